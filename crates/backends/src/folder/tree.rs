//! What a look at the folder shows: which files are there, and how to tell that one changed.

use std::collections::BTreeMap;

use crate::backend::ListingProblem;

/// What distinguishes two states of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    /// Device and inode.
    pub(crate) id: (u64, u64),
    /// Size in bytes.
    pub(crate) size: u64,
    /// Modification and change time, each in seconds and nanoseconds.
    pub(crate) times: [(i64, u64); 2],
}

impl FileStamp {
    /// The file system counts whole seconds: two changes may have one stamp.
    pub(crate) fn coarse(&self) -> bool {
        self.times.iter().all(|(_, nanoseconds)| *nanoseconds == 0)
    }
}

/// Which directory a folder is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderIdentity {
    /// Device and inode.
    pub(crate) id: (u64, u64),
    /// When it was made, in seconds and nanoseconds.
    pub(crate) born: Option<(i64, u32)>,
}

/// One look.
#[derive(Clone, Debug)]
pub(crate) enum FolderLook {
    /// There is no folder to look into.
    Unusable(String),
    /// There is one.
    Here(FolderTree),
}

/// The files of a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolderTree {
    /// Which folder it is.
    pub(crate) id: FolderIdentity,
    /// Manifests and statuses by their path below the folder.
    pub(crate) files: BTreeMap<String, FileStamp>,
    /// Paths that could not be looked at, with all below; the empty one for everything.
    pub(crate) blind: Vec<String>,
    /// Problems to report.
    pub(crate) problems: Vec<ListingProblem>,
}

impl FolderTree {
    /// Whether a path may exist though it is not among the files.
    pub(crate) fn blind_to(&self, path: &str) -> bool {
        let below = |at: &String| {
            at.is_empty()
                || path.strip_prefix(at.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.blind.iter().any(below)
    }
}
