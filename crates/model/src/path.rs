//! What is at a path of a host, or was, or should be.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// What is, or was, at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PathState {
    /// Nothing.
    Missing,
    /// A regular file.
    File {
        /// SHA-256 of its bytes.
        digest: Digest,
        /// Length in bytes.
        size: u64,
        /// Permission bits, at most 0o7777.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A directory.
    Directory {
        /// Permission bits, at most 0o7777.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// It has no entries.
        empty: bool,
    },
    /// A symbolic link.
    Symlink {
        /// What it points to, as text.
        target: String,
    },
    /// Something that no resource type manages.
    Other {
        /// What it is, for people: `a FIFO`, `a socket`, `a block device`.
        what: String,
    },
}

impl PathState {
    /// What it is in one or two words, for messages and the `type` field.
    pub fn what(&self) -> &str {
        match self {
            PathState::Missing => "nothing",
            PathState::File { .. } => "file",
            PathState::Directory { .. } => "directory",
            PathState::Symlink { .. } => "symlink",
            PathState::Other { what } => what,
        }
    }
}

/// Mode, owner and group in numbers; what is absent is left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOwnership {
    /// Permission bits, at most 0o7777.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
}

impl PathOwnership {
    /// This one, and what it leaves open taken from `other`.
    pub fn or(self, other: PathOwnership) -> PathOwnership {
        PathOwnership {
            mode: self.mode.or(other.mode),
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
        }
    }
}
