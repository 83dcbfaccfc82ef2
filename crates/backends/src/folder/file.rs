//! [`FolderFile`]: what one file of a folder says, and how sure that is.

use bytes::Bytes;

use super::names::FileRole;
use super::tree::FileStamp;
use crate::backend::ListingProblem;
use crate::manifest::{Manifest, ReadManifestError};

/// A file is read once it has had one stamp for this long, in milliseconds.
pub(crate) const SETTLE: u64 = 300;
/// The same where stamps are of whole seconds.
const SETTLE_COARSE: u64 = 2_500;
/// A file that never rests is read after this long all the same, in milliseconds.
const MAX_SETTLE: u64 = 5_000;
/// A missing file is gone after this long, in milliseconds.
const GONE: u64 = 1_000;
/// The most bytes of specs in one folder.
pub(crate) const MAX_TOTAL: usize = 64 * 1024 * 1024;

/// What reading a file came to.
#[derive(Debug)]
pub(crate) enum FileRead {
    /// Its manifests; `blank` when the text has nothing at all, not even a comment.
    Manifests {
        /// In their order.
        manifests: Vec<Manifest>,
        /// There is no text.
        blank: bool,
    },
    /// A status.
    Status(Bytes),
    /// Its text is nothing of that.
    Bad(ReadManifestError),
    /// It may not be read.
    Refused(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FolderFile {
    pub(crate) role: FileRole,
    /// The stamp of what was read last; `None` when it has to be read again.
    read: Option<FileStamp>,
    /// The stamp that it had when it was written here.
    pub(crate) written: Option<FileStamp>,
    pending: Option<UnsettledChange>,
    pub(crate) missing: Option<u64>,
    /// It could be read at least once.
    pub(crate) known: bool,
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) status: Option<Bytes>,
    pub(crate) problem: Option<ListingProblem>,
}

/// A change that has not settled.
#[derive(Debug)]
struct UnsettledChange {
    stamp: FileStamp,
    /// Since when it has this stamp.
    since: u64,
    /// Since when it changes.
    first: u64,
}

impl FolderFile {
    pub(crate) fn new(role: FileRole) -> FolderFile {
        FolderFile { role, ..FolderFile::default() }
    }

    /// The stamp of what it says here.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        self.read.or(self.written)
    }

    pub(crate) fn unsettled(&self) -> bool {
        self.pending.is_some() || self.missing.is_some()
    }

    /// Bytes of specs.
    pub(crate) fn size(&self) -> usize {
        self.manifests.iter().map(|manifest| manifest.spec.len()).sum()
    }

    /// It is there with this stamp; true when that is new.
    pub(crate) fn seen(&mut self, stamp: FileStamp, now: u64) -> bool {
        let back = self.missing.take().is_some();
        if self.read == Some(stamp) {
            return self.pending.take().is_some() || back;
        }
        let first = self.pending.as_ref().map_or(now, |pending| pending.first);
        match &self.pending {
            Some(pending) if pending.stamp == stamp => back,
            _ => {
                self.pending = Some(UnsettledChange { stamp, since: now, first });
                true
            }
        }
    }

    /// What it says now has to be read; `at_once` when that need not have settled.
    pub(crate) fn due(&self, now: u64, at_once: bool) -> bool {
        self.pending.as_ref().is_some_and(|pending| {
            let settle = if pending.stamp.coarse() { SETTLE_COARSE } else { SETTLE };
            at_once || now.saturating_sub(pending.since) >= settle || self.restless(now)
        })
    }

    /// It has been changing for so long that it is read as it is.
    pub(crate) fn restless(&self, now: u64) -> bool {
        self.pending.as_ref().is_some_and(|pending| now.saturating_sub(pending.first) >= MAX_SETTLE)
    }

    /// It is not there; true when that is new.
    pub(crate) fn missed(&mut self, now: u64) -> bool {
        self.pending = None;
        if self.missing.is_some() {
            return false;
        }
        self.missing = Some(now);
        true
    }

    /// It has been missing long enough.
    pub(crate) fn gone(&self, now: u64, quiet: bool) -> bool {
        self.missing.is_some_and(|since| {
            let missing = now.saturating_sub(since);
            missing >= GONE && (quiet || missing >= MAX_SETTLE)
        })
    }

    /// Takes in what it says; what cannot be taken leaves what it said before.
    pub(crate) fn loaded(&mut self, path: &str, stamp: Option<FileStamp>, read: FileRead, room: usize) {
        self.read = stamp;
        self.pending = None;
        self.missing = None;
        let problem = match read {
            FileRead::Bad(error) => Some((error.line, error.problem.code(), error.to_string())),
            FileRead::Refused(why) => Some((None, "not-readable", why)),
            FileRead::Status(status) => {
                self.status = Some(status);
                None
            }
            FileRead::Manifests { manifests, blank } => {
                let size: usize = manifests.iter().map(|manifest| manifest.spec.len()).sum();
                if manifests.is_empty() && (blank || !self.manifests.is_empty()) {
                    let text = "it is empty; remove the file to remove its objects".to_owned();
                    Some((None, "empty", text))
                } else if size > room {
                    let text = format!("the folder has more than {MAX_TOTAL} bytes of objects");
                    Some((None, "too-large", text))
                } else {
                    self.manifests = manifests;
                    None
                }
            }
        };
        self.known |= problem.is_none();
        self.problem = problem.map(|(line, code, text)| {
            let kept: Vec<_> = self.manifests.iter().map(|manifest| manifest.key.clone()).collect();
            let stays = !kept.is_empty() || self.status.is_some();
            let message = format!("{text}{}", if stays { "; what it said before stays" } else { "" });
            ListingProblem { kept, ..ListingProblem::of(path, line, code, message) }
        });
    }
}
