//! What the node says of the backend of its objects: one object of its own set, which is there
//! while something is wrong, so that the control plane does not say `in sync` of a node whose
//! folder is gone.

use backends::Listing;
use bytes::Bytes;
use model::condition::{NodeProblem, node_status_key};
use model::replication::Mode;

use super::reconciler::Reconciler;
use super::sets::OwnChange;

/// The longest text in a problem, in bytes: the object stays within [`NodeProblem::MAX_CONTENT`].
const MAX_TEXT: usize = 1024;
/// The uid of the object: a node has one for ever.
const UID: &str = "node-status";

impl Reconciler {
    /// Puts what is wrong into the own set, or takes it out again.
    pub(super) fn report(&mut self, problem: Option<NodeProblem>) {
        if self.policy.mode == Mode::Off {
            return;
        }
        let key = node_status_key();
        let own = match problem.as_ref().map(serde_json::to_vec) {
            Some(Ok(content)) => OwnChange::Put { key, uid: UID.into(), content: Bytes::from(content) },
            // A problem is texts and numbers, which JSON always has.
            Some(Err(_)) | None => OwnChange::Remove(key),
        };
        self.own(vec![own]);
    }

    /// The folder cannot be used.
    pub(super) fn unusable(&self, why: &str) -> NodeProblem {
        NodeProblem::FolderUnusable { folder: cut(&self.opened.name), message: cut(why) }
    }

    /// What could not be read of the backend.
    pub(super) fn unreadable(&self, listing: &Listing) -> Option<NodeProblem> {
        let first = listing.problems.first()?;
        if first.path.is_empty() {
            return Some(self.unusable(&first.message));
        }
        Some(NodeProblem::ManifestsUnreadable {
            manifest: cut(&format!("{}/{}", self.opened.name, first.path)),
            message: cut(&format!("{} ({})", first.message, first.code)),
            others: listing.problems.len() as u64 - 1,
        })
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}
