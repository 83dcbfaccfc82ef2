//! [`OpenItems`]: problems of a node that are not over, and runs that were requested of it and are not confirmed. Few
//! nodes have any at a time; the others pay one pointer for it: the memory of a node that is not connected is bounded
//! (SCL-1).

use std::sync::LazyLock;

use model::tags::TaggedRun;
use model::{Contention, Digest, NodeConditions, ReleaseVersion, Timestamp};

use crate::node::ReportedRefusal;

/// What is the matter with a node, and what was requested of it; the default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenItems {
    /// What the node says is the matter.
    pub conditions: NodeConditions,
    /// The digest of traits that it sent and that are too large to be taken, while it has these: an agent of before
    /// does not know the bounds.
    pub untaken_traits: Option<Digest>,
    /// Converge now, with this number (DLT-5).
    pub run_request: Option<u64>,
    /// Run what has one of these tags.
    pub tagged_run: Option<TaggedRun>,
    /// The last refusal that it reported since it adopted something.
    pub refusal: Option<ReportedRefusal>,
    /// What something else on its host changes again and again, since the agent began (CNV-7).
    pub contended: Vec<Contention>,
    /// Two hosts hold its key, noticed then; until an operator decides (IDN-10).
    pub copied: Option<Timestamp>,
    /// Starts of its agent whose place another branch of them took.
    pub displaced: Vec<u64>,
    /// Its agent is older than the fleet takes, and its check-ins are refused: the version that it has.
    pub agent_too_old: Option<ReleaseVersion>,
}

static NONE: LazyLock<OpenItems> = LazyLock::new(OpenItems::default);

/// [`OpenItems`] that take memory only while there are some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptOpenItems(Option<Box<OpenItems>>);

impl KeptOpenItems {
    pub(crate) fn get(&self) -> &OpenItems {
        self.0.as_deref().unwrap_or(&NONE)
    }

    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut OpenItems) -> T) -> T {
        let Some(kept) = &mut self.0 else {
            let mut open_items = OpenItems::default();
            let done = change(&mut open_items);
            self.0 = (open_items != *NONE).then(|| Box::new(open_items));
            return done;
        };
        let done = change(kept);
        if **kept == *NONE {
            self.0 = None;
        }
        done
    }
}
