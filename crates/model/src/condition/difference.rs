//! What is wrong where a set is not in sync: in what it differs from its replica, and what a node
//! says of the backend of its objects.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::ObjectKey;

/// The longest message of a [`Rejection`], in bytes.
pub const MAX_MESSAGE: usize = 512;

/// Why the receiver does not take an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// A stable code.
    pub code: String,
    /// For people; at most [`MAX_MESSAGE`] bytes.
    pub message: String,
}

impl Rejection {
    /// A rejection; what is longer than [`MAX_MESSAGE`] is cut off.
    pub fn new(code: &str, message: &str) -> Rejection {
        let cut = |text: &str| text[..text.floor_char_boundary(MAX_MESSAGE)].to_owned();
        Rejection { code: cut(code), message: cut(message) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// In what a set and its replica differ although all was sent: it stays so without help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Difference {
    /// The receiver does not take an object.
    Rejected {
        /// Which.
        object: ObjectKey,
        /// Why.
        rejection: Rejection,
        /// How many more it does not take.
        others: u64,
    },
    /// The receiver holds so many objects otherwise; the source does not know which.
    HeldOtherwise {
        /// How many.
        objects: u64,
    },
    /// The source no longer has so many objects of the receiver's that an operator has to confirm
    /// their deletion.
    DeletionsUnconfirmed {
        /// How many are kept.
        kept: u64,
        /// Of how many.
        of: u64,
    },
    /// The receiver has no room for so many objects.
    NoRoom {
        /// How many.
        objects: u64,
    },
    /// Resyncs do not make the set and its replica equal.
    ResyncWithoutEffect,
}

impl Difference {
    pub(super) fn message(&self, direction: Direction) -> String {
        let (receiver, source) = (direction.receiver(), direction.source());
        match self {
            Difference::Rejected { object, rejection: Rejection { code, message }, others } => {
                let more = if *others > 0 { format!(" (and {others} more)") } else { String::new() };
                format!("{receiver} does not take {object}: {message} ({code}){more}")
            }
            Difference::HeldOtherwise { objects } => format!(
                "{receiver} holds {objects} objects otherwise: rejected, or kept until their deletion is confirmed"
            ),
            Difference::DeletionsUnconfirmed { kept, of } => {
                format!("{kept} of {of} objects are gone at {source}, and their deletion is not confirmed")
            }
            Difference::NoRoom { objects } => format!("{receiver} has no room for {objects} objects"),
            Difference::ResyncWithoutEffect => "resyncs do not make the sets equal".to_owned(),
        }
    }

    pub(super) fn next_step(&self, node: &str) -> String {
        match self {
            Difference::Rejected { rejection, .. } => format!(
                "put the object right and apply it again; `muster help {}`, `muster object list {node}`",
                rejection.code
            ),
            Difference::HeldOtherwise { .. } => format!(
                "`muster object list {node}` names those that it rejects; if others may go: `muster object resync {node} --approve-deletions`"
            ),
            Difference::DeletionsUnconfirmed { .. } => {
                format!("if they may go: `muster object resync {node} --approve-deletions`")
            }
            Difference::NoRoom { .. } => "delete objects that are not needed".to_owned(),
            Difference::ResyncWithoutEffect => {
                format!("muster object resync {node}; if it stays, report a defect")
            }
        }
    }
}

/// What a node says of the backend of its objects: the content of one object of its own
/// set, [`node_status_key`], which is there while something is wrong. The sets may be equal
/// meanwhile; the node's folder is not as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum NodeProblem {
    /// The folder of manifests, or the agent's store, cannot be used.
    FolderUnusable {
        /// Which, as the node calls it.
        folder: String,
        /// Why.
        message: String,
    },
    /// So many objects vanished at once that an operator has to confirm their deletion.
    DeletionsHeldBack {
        /// How many are held back.
        kept: u64,
        /// Of how many.
        of: u64,
    },
    /// A manifest cannot be read.
    ManifestsUnreadable {
        /// The first of them.
        manifest: String,
        /// Why.
        message: String,
        /// How many more.
        others: u64,
    },
}

impl NodeProblem {
    /// The longest content of the object that carries it, in bytes.
    pub const MAX_CONTENT: usize = 8 * 1024;

    /// Reads the content of the node's status.
    pub fn from_content(content: &[u8]) -> Option<NodeProblem> {
        let content = (content.len() <= NodeProblem::MAX_CONTENT).then_some(content)?;
        serde_json::from_slice(content).ok()
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            NodeProblem::FolderUnusable { .. } => "folder-unusable",
            NodeProblem::DeletionsHeldBack { .. } => "deletions-held-back",
            NodeProblem::ManifestsUnreadable { .. } => "manifests-unreadable",
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            NodeProblem::FolderUnusable { folder, message } => format!("{folder} of the node: {message}"),
            NodeProblem::DeletionsHeldBack { kept, of } => {
                format!("{kept} of {of} objects vanished at once on the node, and are held back")
            }
            NodeProblem::ManifestsUnreadable { manifest, message, others } => {
                let more = if *others > 0 { format!(" (and {others} more)") } else { String::new() };
                format!("{manifest} on the node: {message}{more}")
            }
        }
    }

    pub(super) fn next_step(&self, node: &str) -> String {
        match self {
            NodeProblem::FolderUnusable { .. } => {
                format!("look at the folder on {node}; `muster-agent status` there")
            }
            NodeProblem::DeletionsHeldBack { .. } => {
                format!("if they may go: `muster object resync {node} --approve-deletions`")
            }
            NodeProblem::ManifestsUnreadable { .. } => {
                format!("correct the manifest on {node}; `muster-agent status` there names all")
            }
        }
    }
}

/// The status of the release's `Sync` object, which the node authors: its [`NodeProblem`].
pub fn node_status_key() -> ObjectKey {
    ObjectKey::of("Sync:status", "sync")
}
