//! What is at a path of a host, or was, or should be.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// What is, or was, at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", try_from = "PathStateForm")]
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

/// How [`PathState`] is read: every field that some variant has, in one pass. What serde derives for a tag among the
/// fields keeps all of them aside first, which costs a run over a long ledger time, and the agent several kilobytes.
#[derive(Deserialize)]
struct PathStateForm {
    #[serde(rename = "type")]
    kind: PathStateKind,
    digest: Option<Digest>,
    size: Option<u64>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    empty: Option<bool>,
    target: Option<String>,
    what: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PathStateKind {
    Missing,
    File,
    Directory,
    Symlink,
    Other,
}

impl TryFrom<PathStateForm> for PathState {
    type Error = String;

    fn try_from(form: PathStateForm) -> Result<PathState, String> {
        fn needed<T>(field: &str, given: Option<T>) -> Result<T, String> {
            given.ok_or_else(|| format!("missing field `{field}`"))
        }
        let owned = || -> Result<(u32, u32, u32), String> {
            Ok((needed("mode", form.mode)?, needed("uid", form.uid)?, needed("gid", form.gid)?))
        };
        Ok(match form.kind {
            PathStateKind::Missing => PathState::Missing,
            PathStateKind::File => {
                let (mode, uid, gid) = owned()?;
                let (digest, size) = (needed("digest", form.digest)?, needed("size", form.size)?);
                PathState::File { digest, size, mode, uid, gid }
            }
            PathStateKind::Directory => {
                let (mode, uid, gid) = owned()?;
                PathState::Directory { mode, uid, gid, empty: needed("empty", form.empty)? }
            }
            PathStateKind::Symlink => PathState::Symlink { target: needed("target", form.target)? },
            PathStateKind::Other => PathState::Other { what: needed("what", form.what)? },
        })
    }
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
