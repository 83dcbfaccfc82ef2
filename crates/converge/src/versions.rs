//! [`FileHistory`]: the versions of a managed file that are kept, and which go (CNV-8).
//!
//! ```text
//! a run is about to overwrite or remove a file -> may_keep -> FileHistory::keep      -> over_limits
//!                                                          -> FileHistory::pass_over
//! ```
//!
//! A version is what the file was before Muster overwrote or removed it, whoever had written it. The
//! bytes are kept by digest; this module only says which.
//!
//! Invariants: of one file at most [`VersionLimits::per_file`] versions, of all files at most
//! [`VersionLimits::versions`] with [`VersionLimits::bytes`]; the oldest go first; a file that may hold a
//! secret is not kept, and its history says so; a version keeps its number for as long as it is there.

use std::collections::BTreeMap;

use catalog::types::Spec;
use model::sort::SortCompactly;
use model::{Digest, Pause, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Desired, ResourceId};

/// Permission bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionLimits {
    /// Versions of one file.
    pub per_file: usize,
    /// Bytes of one version.
    pub version_bytes: u64,
    /// Versions of all files together; and as many histories that say only what was not kept.
    pub versions: usize,
    /// Bytes of all versions together.
    pub bytes: u64,
    /// Files of which one change keeps a version: a directory that is removed with all that is in it.
    pub change_files: usize,
    /// Bytes that one change keeps.
    pub change_bytes: u64,
}

/// How much an agent keeps.
pub const LIMITS: VersionLimits = VersionLimits {
    per_file: 5,
    version_bytes: 4 << 20,
    versions: 4096,
    bytes: 64 << 20,
    change_files: 200,
    change_bytes: 16 << 20,
};

/// What a file was before it was overwritten or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptVersion {
    /// Its number, counted from 1 for each file.
    pub number: u64,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// When it was overwritten or removed last.
    pub at: Timestamp,
    /// What did that, for people: a resource, or the verb.
    pub by: String,
}

/// A file as it was seen before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// Why a version was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "camelCase")]
pub enum PassedOverReason {
    /// The resource is declared sensitive.
    Sensitive,
    /// Only the file's owner may read it, so it may hold a secret.
    Private,
    /// It is too large.
    TooLarge {
        /// Its length in bytes.
        size: u64,
    },
    /// One change overwrote or removed more than is kept of one change.
    TooMany,
    /// There was no room for it on the disk, or it could not be read.
    Failed,
    /// A reason that a newer agent knows.
    #[serde(other)]
    Unknown,
}

/// What was not kept last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PassedOver {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: PassedOverReason,
    /// How many files: more than one where the history is a directory's.
    pub files: u64,
    /// What overwrote or removed them, for people.
    pub by: String,
}

/// The kept versions of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileHistory {
    /// How many versions were numbered so far.
    pub numbered: u64,
    /// The versions, the one that was replaced last at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<KeptVersion>,
    /// What was not kept last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<PassedOver>,
}

/// Whom a file's content may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePrivacy {
    /// The resource is declared sensitive.
    Sensitive,
    /// The content is public whatever its mode: keys that let others in, rules.
    Public,
    /// As the mode says: the one that the file has, and the one that is declared for it.
    ByMode {
        /// The declared permission bits.
        declared: Option<u32>,
    },
}

impl FilePrivacy {
    /// That of a file of which a version with these permission bits is kept: a private one was kept where
    /// its type says that it holds no secret.
    pub fn of_kept_version(mode: u32) -> FilePrivacy {
        if is_private(mode) { FilePrivacy::Public } else { FilePrivacy::ByMode { declared: None } }
    }
}

/// Only its owner may use it.
fn is_private(mode: u32) -> bool {
    mode & OTHERS == 0
}

/// Whether a file of this length and mode is kept, before it is read.
///
/// # Errors
/// Why it is not.
pub fn may_keep(
    limits: &VersionLimits,
    privacy: FilePrivacy,
    size: u64,
    mode: u32,
) -> Result<(), PassedOverReason> {
    match privacy {
        FilePrivacy::Sensitive => return Err(PassedOverReason::Sensitive),
        FilePrivacy::ByMode { declared } if is_private(mode) || declared.is_some_and(is_private) => {
            return Err(PassedOverReason::Private);
        }
        FilePrivacy::ByMode { .. } | FilePrivacy::Public => {}
    }
    if size > limits.version_bytes { Err(PassedOverReason::TooLarge { size }) } else { Ok(()) }
}

impl FileHistory {
    /// The version of a number.
    pub fn find(&self, number: u64) -> Option<&KeptVersion> {
        self.versions.iter().find(|version| version.number == number)
    }

    /// The version that was replaced last.
    pub fn newest(&self) -> Option<&KeptVersion> {
        self.versions.last()
    }

    /// A file as it is kept already: what comes back again and again, as when two tools write one file,
    /// does not push the other versions out.
    pub fn find_like(&self, file: &FoundFile) -> Option<&KeptVersion> {
        self.versions.iter().find(|version| {
            (version.digest, version.mode, version.uid, version.gid)
                == (file.digest, file.mode, file.uid, file.gid)
        })
    }

    /// Adds what a file was before a change; what was there alike is the same version again.
    pub fn keep(&mut self, file: FoundFile, by: String, at: Timestamp) {
        let known = self.find_like(&file).map(|version| version.number);
        let number = known.unwrap_or(self.numbered + 1);
        self.numbered = self.numbered.max(number);
        self.versions.retain(|version| version.number != number);
        let FoundFile { digest, size, mode, uid, gid } = file;
        self.versions.push(KeptVersion { number, digest, size, mode, uid, gid, at, by });
    }

    /// Notes that something was not kept. Of a file that became sensitive nothing stays.
    pub fn pass_over(&mut self, passed: PassedOver) {
        if passed.reason == PassedOverReason::Sensitive {
            self.versions.clear();
        }
        self.passed_over = Some(passed);
    }
}

/// A version among those of all files; the order is that in which they go.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct VersionInOrder<'a> {
    at: Timestamp,
    size: u64,
    path: &'a str,
    number: u64,
}

/// The histories that hold more than is kept, as they are without it; one that is left empty is `None`.
pub fn over_limits(
    histories: &BTreeMap<String, FileHistory>,
    limits: &VersionLimits,
) -> Vec<(String, Option<FileHistory>)> {
    let mut all: Vec<VersionInOrder<'_>> = Vec::new();
    let mut gone: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (path, history) in histories {
        let over = history.versions.len().saturating_sub(limits.per_file);
        let (old, kept) = history.versions.split_at(over);
        if !old.is_empty() {
            gone.entry(path).or_default().extend(old.iter().map(|version| version.number));
        }
        all.extend(kept.iter().map(|version| {
            let KeptVersion { at, size, number, .. } = *version;
            VersionInOrder { at, size, path, number }
        }));
    }
    all.sort_compactly();
    let (mut count, mut bytes) = (all.len(), all.iter().map(|version| version.size).sum::<u64>());
    for VersionInOrder { size, path, number, .. } in all {
        if count <= limits.versions && bytes <= limits.bytes {
            break;
        }
        (count, bytes) = (count - 1, bytes - size);
        gone.entry(path).or_default().push(number);
    }
    let bare = histories.iter().filter(|(_, history)| history.versions.is_empty());
    let mut bare: Vec<(Option<Timestamp>, &str)> = bare
        .map(|(path, history)| (history.passed_over.as_ref().map(|passed| passed.at), path.as_str()))
        .collect();
    bare.sort_compactly();
    bare.truncate(bare.len().saturating_sub(limits.versions));
    let bare = bare.into_iter().map(|(_, path)| (path.to_owned(), None));
    let left = gone.into_iter().map(|(path, numbers)| {
        let mut history = histories.get(path).cloned().unwrap_or_default();
        history.versions.retain(|version| !numbers.contains(&version.number));
        let empty = history.versions.is_empty() && history.passed_over.is_none();
        (path.to_owned(), (!empty).then_some(history))
    });
    left.chain(bare).collect()
}

/// What happens to a file that was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "camelCase")]
pub enum AfterRestore {
    /// No resource of the held release declares it.
    Stays,
    /// These only observe it.
    Reported {
        /// The resources.
        by: Vec<ResourceId>,
    },
    /// The agent puts back what these declare: the daemon by the event, where it watches the file, else
    /// the next run.
    PutBack {
        /// The resources.
        by: Vec<ResourceId>,
    },
    /// The first run after the pause puts back what these declare.
    AfterPause {
        /// The resources.
        by: Vec<ResourceId>,
        /// The pause.
        pause: Pause,
    },
    /// Which resources declare it cannot be told.
    Unknown,
}

/// What happens to a file next, given which resources write it: `writes_file` says that of a bound one.
pub fn after_restore(
    desired: &Desired,
    path: &str,
    pause: Option<Pause>,
    writes_file: impl Fn(&Spec, &str) -> bool,
) -> AfterRestore {
    let (mut writing, mut observing) = (Vec::new(), Vec::new());
    // A handler is applied only when it is notified.
    for resource in desired.modules.iter().flat_map(|module| &module.resources) {
        let Ok(spec) = &resource.spec else { continue };
        let is_inside = match spec {
            Spec::Tree(tree) => tree.purge && is_below(path, &tree.path),
            Spec::Directory(directory) => directory.recurse && is_below(path, &directory.path),
            _ => false,
        };
        if is_inside || writes_file(spec, path) {
            let list = if desired.observe || resource.observe { &mut observing } else { &mut writing };
            list.push(resource.id.clone());
        }
    }
    match (writing.is_empty(), observing.is_empty(), pause) {
        (true, true, _) => AfterRestore::Stays,
        (true, false, _) => AfterRestore::Reported { by: observing },
        (false, _, Some(pause)) => AfterRestore::AfterPause { by: writing, pause },
        (false, _, None) => AfterRestore::PutBack { by: writing },
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(content: &str) -> FoundFile {
        let digest = Digest::of(content.as_bytes());
        FoundFile { digest, size: content.len() as u64, mode: 0o644, uid: 0, gid: 0 }
    }

    fn kept(contents: &[&str]) -> FileHistory {
        let mut history = FileHistory::default();
        for (at, content) in contents.iter().enumerate() {
            history.keep(found(content), "base/file:/x".to_owned(), Timestamp(at as i64));
        }
        history
    }

    fn numbers(history: &FileHistory) -> Vec<u64> {
        history.versions.iter().map(|version| version.number).collect()
    }

    fn histories(of: &[(&str, &[&str])]) -> BTreeMap<String, FileHistory> {
        of.iter().map(|(path, contents)| ((*path).to_owned(), kept(contents))).collect()
    }

    #[test]
    fn what_may_be_secret_is_not_kept() {
        let by_mode = |declared| FilePrivacy::ByMode { declared };
        let large = LIMITS.version_bytes + 1;
        for (privacy, size, mode, wanted) in [
            (by_mode(None), 1, 0o644, Ok(())),
            (by_mode(Some(0o644)), 1, 0o640, Ok(())),
            (by_mode(None), LIMITS.version_bytes, 0o440, Ok(())),
            (by_mode(None), 1, 0o600, Err(PassedOverReason::Private)),
            (by_mode(Some(0o600)), 1, 0o644, Err(PassedOverReason::Private)),
            (by_mode(None), large, 0o600, Err(PassedOverReason::Private)),
            (by_mode(None), large, 0o644, Err(PassedOverReason::TooLarge { size: large })),
            (FilePrivacy::Public, 1, 0o600, Ok(())),
            (FilePrivacy::Public, large, 0o600, Err(PassedOverReason::TooLarge { size: large })),
            (FilePrivacy::Sensitive, 1, 0o644, Err(PassedOverReason::Sensitive)),
        ] {
            assert_eq!(may_keep(&LIMITS, privacy, size, mode), wanted, "{privacy:?} {size} {mode:o}");
        }
    }

    #[test]
    fn the_last_five_are_kept_and_keep_their_numbers() {
        let all = histories(&[("/x", &["1", "2", "3", "4", "5", "6", "7"])]);
        let left = over_limits(&all, &LIMITS);
        assert_eq!(left.len(), 1);
        assert_eq!(numbers(left[0].1.as_ref().unwrap()), [3, 4, 5, 6, 7]);
        assert_eq!(over_limits(&histories(&[("/x", &["1", "2", "3", "4", "5"])]), &LIMITS), []);
    }

    #[test]
    fn what_comes_back_is_the_same_version() {
        let history = kept(&["a", "b", "theirs", "c", "theirs", "theirs"]);
        assert_eq!(numbers(&history), [1, 2, 4, 3]);
        assert_eq!(history.newest().unwrap().at, Timestamp(5));
        let mut other_mode = kept(&["a"]);
        other_mode.keep(FoundFile { mode: 0o640, ..found("a") }, String::new(), Timestamp(1));
        assert_eq!(numbers(&other_mode), [1, 2], "another mode is another version");
        other_mode.keep(FoundFile { uid: 1, ..found("a") }, String::new(), Timestamp(2));
        other_mode.keep(FoundFile { gid: 1, ..found("a") }, String::new(), Timestamp(3));
        assert_eq!(numbers(&other_mode), [1, 2, 3, 4], "and so is another owner or group");
        assert_eq!(other_mode.find(3).map(|version| version.uid), Some(1));
        assert_eq!(other_mode.find(9), None);
    }

    #[test]
    fn the_oldest_of_all_files_go_first() {
        let all = histories(&[("/a", &["a1", "a2", "a3"]), ("/b", &["b1"])]);
        // /a has versions of the times 0, 1, 2 and /b of 0; of two of one time the one of the larger size
        // or of the later path stays.
        let few = VersionLimits { versions: 2, ..LIMITS };
        let left: BTreeMap<_, _> = over_limits(&all, &few).into_iter().collect();
        assert_eq!(numbers(left["/a"].as_ref().unwrap()), [2, 3]);
        assert_eq!(left["/b"], None, "an empty history goes");
        // Three of two bytes each: as many as may be.
        for bytes in [6, 7] {
            let little = VersionLimits { bytes, ..LIMITS };
            let left = over_limits(&all, &little);
            assert_eq!(left.len(), 1);
            assert_eq!(numbers(left[0].1.as_ref().unwrap()), [2, 3]);
        }
    }

    #[test]
    fn nothing_stays_of_a_file_that_became_sensitive() {
        let passed = |reason| PassedOver { at: Timestamp(9), reason, files: 1, by: String::new() };
        let mut history = kept(&["a", "b"]);
        history.pass_over(passed(PassedOverReason::TooLarge { size: 9 }));
        assert_eq!(numbers(&history), [1, 2]);
        history.pass_over(passed(PassedOverReason::Sensitive));
        assert_eq!(numbers(&history), [0; 0]);
        history.keep(found("c"), String::new(), Timestamp(10));
        assert_eq!(numbers(&history), [3], "a number is given once");
    }

    #[test]
    fn histories_without_versions_are_bounded_too() {
        let passed = |at| PassedOver {
            at: Timestamp(at),
            reason: PassedOverReason::Private,
            files: 1,
            by: String::new(),
        };
        let mut all = histories(&[("/kept", &["a"])]);
        for at in 1..=4 {
            let bare = FileHistory { passed_over: Some(passed(at)), ..FileHistory::default() };
            all.insert(format!("/{at}"), bare);
        }
        let few = VersionLimits { versions: 3, ..LIMITS };
        assert_eq!(over_limits(&all, &few), [("/1".to_owned(), None)]);
        // What says why nothing is kept stays when its versions go.
        let mut told = kept(&["a", "b"]);
        told.pass_over(passed(9));
        let none = VersionLimits { versions: 1, per_file: 0, ..LIMITS };
        let left = over_limits(&BTreeMap::from([("/x".to_owned(), told.clone())]), &none);
        told.versions.clear();
        assert_eq!(left, [("/x".to_owned(), Some(told))]);
    }

    #[test]
    fn a_reason_of_a_newer_agent_is_read() {
        let read: PassedOverReason = serde_json::from_str(r#"{"code":"fromMars","x":1}"#).unwrap();
        assert_eq!(read, PassedOverReason::Unknown);
    }
}
