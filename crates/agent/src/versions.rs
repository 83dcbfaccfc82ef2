//! [`VersionStore`]: the kept versions of files (CNV-8).
//!
//! ```text
//! runner, `file restore` -> VersionStore::keep -> versions/content (bytes) -> versions/journal (which)
//!                                                 `- converge::versions says what is kept and what goes
//! ```
//!
//! Enforcement goes on without it: what cannot be kept is passed over, and the file's history says so.
//! Bytes and journal have their own place in the state directory: an older agent, which knows nothing of
//! them, leaves them alone.
//!
//! Invariants: no lock is held while the host is read, which may hang; bytes are durable before the
//! journal names them. Between runs the journal is on disk alone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use catalog::types::Spec;
use converge::Desired;
use converge::bind::BindError;
use converge::versions::{
    FileHistory, FilePrivacy, FoundFile, LIMITS, PassedOver, PassedOverReason, may_keep, over_limits,
};
use host::Host;
use model::collect::CollectInserting;
use model::digest::Hasher;
use model::{Digest, Timestamp};
use providers::{Kinds, TouchedFile, TouchedFiles};
use spool::{BlobStore, Disk, Journal, SpoolError};

use crate::clock::now;
use crate::render::chain;
use crate::state::{Durable, RestingJournal, StateError, locked, spool};

/// Everything of it, below the state directory.
pub(crate) const DIRECTORY: &str = "versions";
/// What fails where the store cannot be read.
const READ: &str = "read the kept versions of files";

/// The kept versions of all files.
pub struct VersionStore {
    histories: Mutex<Histories>,
    contents: BlobStore,
    /// What was found damaged since it was last asked.
    repairs: Mutex<Vec<String>>,
}

/// Which versions there are: in memory while a run may change them.
struct Histories {
    journal: RestingJournal<String, FileHistory>,
    /// Runs under way.
    runs: usize,
}

/// Who overwrites or removes files.
#[derive(Clone, Copy, Debug)]
pub struct VersionCause<'a> {
    /// In words: a resource, or the verb.
    pub by: &'a str,
    /// The resource is declared sensitive.
    pub sensitive: bool,
}

impl Histories {
    /// Lets go of them, unless a run may change them.
    fn settle(&mut self) {
        if self.runs == 0 {
            self.journal.rest();
        }
    }
}

impl VersionStore {
    /// Opens the store below a state directory.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(disk: &Disk, state: &Path) -> Result<VersionStore, StateError> {
        let directory = state.join(DIRECTORY);
        // Bytes that were kept just before a crash are in it, and in no history.
        let contents = BlobStore::open_dir(disk, &directory.join("content"), 2 * LIMITS.bytes);
        let store = VersionStore {
            histories: Mutex::new(Histories {
                journal: RestingJournal::new(disk, directory.join("journal")),
                runs: 0,
            }),
            contents: contents.map_err(spool(READ))?,
            repairs: Mutex::default(),
        };
        let named = store.with_histories(|histories| digests(histories.entries().values()))?;
        store.contents.retain(&named).map_err(spool(READ))?;
        Ok(store)
    }

    /// A run begins: what it reads stays in memory until it ends.
    pub(crate) fn begin_run(&self) {
        locked(&self.histories).runs += 1;
    }

    /// A run ended.
    pub(crate) fn end_run(&self) {
        let mut histories = locked(&self.histories);
        histories.runs = histories.runs.saturating_sub(1);
        histories.settle();
    }

    /// What was found damaged since this was asked last, in words.
    pub(crate) fn take_repairs(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.repairs))
    }

    /// Keeps what these files are, before they are overwritten or removed. A file that is not there
    /// has no version.
    pub fn keep(&self, host: &Host, touched: &TouchedFiles, cause: VersionCause<'_>, at: Timestamp) {
        let mut room = LIMITS.change_bytes;
        let mut left_out = touched.left_out;
        for file in &touched.files {
            match self.keep_one(host, file, cause, &mut room) {
                Ok(None) => {}
                Ok(Some(found)) => self.keep_found(&file.path, found, cause, at),
                Err(PassedOverReason::TooMany) if touched.directory.is_some() => left_out += 1,
                Err(reason) => self.pass_over(&file.path, reason, 1, cause, at),
            }
        }
        if let Some(directory) = touched.directory.as_ref().filter(|_| left_out > 0) {
            self.pass_over(directory, PassedOverReason::TooMany, left_out, cause, at);
        }
    }

    /// Keeps what one file is, before the verb that puts a version back overwrites it: gives the number
    /// of the version, `None` where no regular file is. What is not kept is not noted.
    ///
    /// # Errors
    /// Why it is not kept.
    pub fn keep_file(
        &self,
        host: &Host,
        file: &TouchedFile,
        cause: VersionCause<'_>,
        at: Timestamp,
    ) -> Result<Option<u64>, PassedOverReason> {
        let mut room = LIMITS.change_bytes;
        let Some(found) = self.keep_one(host, file, cause, &mut room)? else { return Ok(None) };
        self.keep_found(&file.path, found, cause, at);
        let number = self.with_histories(|histories| {
            histories.get(&file.path).and_then(|history| history.find_like(&found)).map(|kept| kept.number)
        });
        number.ok().flatten().map(Some).ok_or(PassedOverReason::Failed)
    }

    fn keep_found(&self, path: &str, found: FoundFile, cause: VersionCause<'_>, at: Timestamp) {
        let by = cause.by.to_owned();
        // Another change may have let go of the same bytes just now.
        let kept = self.change(path, |history| match self.contents.has(&found.digest) {
            true => history.keep(found, by, at),
            false => history.pass_over(PassedOver { at, reason: PassedOverReason::Failed, files: 1, by }),
        });
        warn_of_unrecorded(path, kept);
    }

    /// Notes that files were overwritten or removed of which no version was kept.
    pub(crate) fn pass_over(
        &self,
        path: &str,
        reason: PassedOverReason,
        files: u64,
        cause: VersionCause<'_>,
        at: Timestamp,
    ) {
        tracing::debug!(path, ?reason, files, by = cause.by, "no version was kept");
        let by = cause.by.to_owned();
        let noted = self.change(path, |history| history.pass_over(PassedOver { at, reason, files, by }));
        warn_of_unrecorded(path, noted);
    }

    /// Lets go of the versions of files whose resources are sensitive: they became so without a change.
    ///
    /// # Errors
    /// When they cannot be read, or not be let go of: none may be shown then.
    pub(crate) fn forget_sensitive(&self, desired: &Desired, kinds: &Kinds) -> Result<(), StateError> {
        let sensitive: Vec<_> = desired.resources().filter(|resource| resource.sensitive).collect();
        if sensitive.is_empty() {
            return Ok(());
        }
        let kept = self.histories(None)?.into_iter().filter(|(_, history)| !history.versions.is_empty());
        for (path, history) in kept {
            let writes = |spec: &Result<Spec, BindError>| {
                spec.as_ref().is_ok_and(|spec| kinds.writes_file(spec, &path))
            };
            if let Some(resource) = sensitive.iter().find(|resource| writes(&resource.spec)) {
                let files = u64::try_from(history.versions.len()).unwrap_or(u64::MAX);
                let (reason, by) = (PassedOverReason::Sensitive, resource.id.to_string());
                self.change(&path, |history| {
                    history.pass_over(PassedOver { at: now(), reason, files, by });
                })?;
            }
        }
        Ok(())
    }

    /// Keeps the bytes of one file; `None` when there is none.
    fn keep_one(
        &self,
        host: &Host,
        file: &TouchedFile,
        cause: VersionCause<'_>,
        room: &mut u64,
    ) -> Result<Option<FoundFile>, PassedOverReason> {
        // What cannot be opened, and what is no regular file, is the change's to report.
        let Ok(Some(mut open)) = host.open_file(&file.path) else { return Ok(None) };
        let failed = |error: std::io::Error| {
            tracing::warn!(path = file.path, %error, "a file's version cannot be kept");
            PassedOverReason::Failed
        };
        let seen = open.metadata().map_err(failed)?;
        let (size, mode) = (seen.len(), seen.mode() & 0o7777);
        let privacy = if cause.sensitive { FilePrivacy::Sensitive } else { file.privacy };
        may_keep(&LIMITS, privacy, size, mode)?;
        *room = room.checked_sub(size).ok_or(PassedOverReason::TooMany)?;
        let digest = hash(&mut open, size).map_err(failed)?;
        let found = FoundFile { digest, size, mode, uid: seen.uid(), gid: seen.gid() };
        if !self.contents.has(&digest) {
            open.seek(SeekFrom::Start(0)).map_err(failed)?;
            let put = self.contents.put(&mut open, Some(digest), LIMITS.version_bytes);
            put.map_err(|error| failed(std::io::Error::other(chain(&error))))?;
        }
        Ok(Some(found))
    }

    /// Changes a history, and removes what is more than is kept.
    fn change(&self, path: &str, change: impl FnOnce(&mut FileHistory)) -> Result<(), StateError> {
        self.with_histories(|histories| {
            let gone = change_history(histories, path, change).map_err(spool("record a file's version"))?;
            // Before another change may name the same bytes.
            for digest in gone {
                // Only space: the next start removes it.
                let _ = self.contents.remove(&digest);
            }
            Ok(())
        })?
    }

    /// The histories of a path and of all below it, in their order; of all paths for `None`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn histories(&self, path: Option<&str>) -> Result<Vec<(String, FileHistory)>, StateError> {
        let path = path.map(|path| path.trim_end_matches('/'));
        let wanted = |known: &str| match path {
            Some(path) => {
                known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            None => true,
        };
        self.with_histories(|histories| {
            let found = histories.entries().iter().filter(|(known, _)| wanted(known));
            found.map(|(path, history)| (path.clone(), history.clone())).collect()
        })
    }

    /// Opens the bytes of a version, verified; `None` when they were lost.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open_content(&self, digest: &Digest) -> Result<Option<File>, StateError> {
        self.contents.open(digest).map_err(spool("read a kept version"))
    }

    fn with_histories<T>(
        &self,
        work: impl FnOnce(&mut Journal<String, FileHistory>) -> T,
    ) -> Result<T, StateError> {
        // The journal changes by whole operations.
        let mut histories = locked(&self.histories);
        let mut repairs = Vec::new();
        let journal = histories.journal.get(|repair| repairs.push(repair)).map_err(spool(READ))?;
        if !repairs.is_empty() {
            // Only space: the bytes of versions that are lost by it.
            let _ = self.contents.retain(&digests(journal.entries().values()));
            locked(&self.repairs).append(&mut repairs);
        }
        let worked = work(journal);
        histories.settle();
        Ok(worked)
    }
}

fn warn_of_unrecorded(path: &str, recorded: Result<(), StateError>) {
    if let Err(error) = recorded {
        tracing::warn!(path, error = %chain(&error), "a file's version cannot be recorded");
    }
}

impl Durable {
    /// The kept versions of files.
    pub fn versions(&self) -> &VersionStore {
        &self.versions
    }
}

/// Changes a history; gives the contents that no version has any more, or why it could not be recorded.
fn change_history(
    histories: &mut Journal<String, FileHistory>,
    path: &str,
    change: impl FnOnce(&mut FileHistory),
) -> Result<BTreeSet<Digest>, SpoolError> {
    let mut history = histories.get(&path.to_owned()).cloned().unwrap_or_default();
    let before: Vec<Digest> = history.versions.iter().map(|version| version.digest).collect();
    change(&mut history);
    histories.put(path.to_owned(), history)?;
    let over = over_limits(histories.entries(), &LIMITS);
    let gone = over.iter().flat_map(|(path, _)| histories.get(path)).flat_map(|history| &history.versions);
    let mut gone: BTreeSet<Digest> = gone.map(|version| version.digest).chain(before).collect_inserting();
    histories.apply(over)?;
    for named in digests(histories.entries().values()) {
        gone.remove(&named);
    }
    Ok(gone)
}

fn digests<'a>(histories: impl Iterator<Item = &'a FileHistory>) -> BTreeSet<Digest> {
    histories.flat_map(|history| &history.versions).map(|version| version.digest).collect_inserting()
}

/// The digest of a file of at most `size` bytes: one that grew meanwhile is another.
fn hash(file: &mut File, size: u64) -> std::io::Result<Digest> {
    let mut hasher = Hasher::new();
    std::io::copy(&mut file.take(size), &mut hasher)?;
    Ok(hasher.finish())
}
