//! [`Exceptions`]: what is so of few nodes at a time. A node of which none of it is so pays one pointer for it: the
//! memory of a node that is not connected is bounded (SCL-1).

use std::sync::LazyLock;

use model::tags::TaggedRun;
use model::{Contention, Digest, NodeConditions, ReleaseVersion, Timestamp};

use crate::node::ReportedRefusal;

/// What is so of few nodes at a time; the default is that nothing of it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceptions {
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

static NONE: LazyLock<Exceptions> = LazyLock::new(Exceptions::default);

/// [`Exceptions`] that take memory only while something of them is so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptExceptions(Option<Box<Exceptions>>);

impl KeptExceptions {
    pub(crate) fn get(&self) -> &Exceptions {
        self.0.as_deref().unwrap_or(&NONE)
    }

    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Exceptions) -> T) -> T {
        let Some(kept) = &mut self.0 else {
            let mut exceptions = Exceptions::default();
            let done = change(&mut exceptions);
            self.0 = (exceptions != *NONE).then(|| Box::new(exceptions));
            return done;
        };
        let done = change(kept);
        if **kept == *NONE {
            self.0 = None;
        }
        done
    }
}
