//! `muster-agent file`: the kept versions of files, shown, compared and put back (CNV-8).

use std::fmt;
use std::io::Read;

use catalog::types::Spec;
use converge::ResourceId;
use converge::versions::{
    self, AfterRestore, FileHistory, FilePrivacy, KeptVersion, LIMITS, PassedOver, PassedOverReason,
};
use lang::Value;
use model::lines::diff_lines;
use model::{PathOwnership, PathState, Pause, Timestamp};
use providers::{Kinds, TouchedFile};
use serde::{Deserialize, Serialize};

use crate::clock::now;
use crate::invocation::command;
use crate::render::{self, chain};
use crate::runner::{Runner, RunnerError};
use crate::state::{Durable, StateError};
use crate::versions::VersionCause;

/// What histories call the verb that puts a version back.
const VERB: &str = "muster-agent file restore";
/// The longest text, in bytes, of which the lines are compared.
const MAX_TEXT: u64 = 1024 * 1024;
/// What to do where a file that would be overwritten cannot be kept.
pub(crate) const OVERWRITE_UNKEPT: &str = "copy it away first, or lose it: --force overwrites it";
/// The most paths that a list names.
pub const MAX_LISTED: usize = 1000;

/// Why a version cannot be shown or put back.
#[derive(Debug, thiserror::Error)]
pub enum FileVersionError {
    /// There is no such version.
    #[error("no version {} of {path} is kept", number.map_or("at all".to_owned(), |number| number.to_string()))]
    Unknown {
        /// The file.
        path: String,
        /// The version; `None` for the newest.
        number: Option<u64>,
    },
    /// Its bytes are damaged or gone.
    #[error("the bytes of version {number} of {path} were lost")]
    Lost {
        /// The file.
        path: String,
        /// The version.
        number: u64,
    },
    /// What is there now would be lost.
    #[error(
        "{path} is not overwritten: what it is now cannot be kept as a version ({})",
        reason_not_kept(*reason)
    )]
    NotKept {
        /// The file.
        path: String,
        /// Why.
        reason: PassedOverReason,
    },
    /// The held set cannot be read, so nobody knows whether the file is sensitive.
    #[error("whether the file is sensitive cannot be known: {0}")]
    Declared(String),
    /// The host refuses.
    #[error("{0}")]
    Host(String),
    /// The state directory cannot be used.
    #[error("the kept versions cannot be read")]
    State(#[from] StateError),
}

/// What to do with a file that cannot be kept as a version before it is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnkeptFile {
    /// Leave it as it is.
    Refuse,
    /// Overwrite it; its history says so.
    Overwrite,
}

/// The kept versions of some files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileVersionsView {
    /// The path that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The files, in the order of their paths.
    pub files: Vec<FileVersionsEntry>,
    /// Files that are left out, as there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The kept versions of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileVersionsEntry {
    /// Its path.
    pub path: String,
    /// Its versions, the newest first.
    pub versions: Vec<KeptVersion>,
    /// What was not kept last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<PassedOver>,
}

/// How a version differs from what is there now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileVersionDiff {
    /// The file.
    pub path: String,
    /// The version.
    pub version: KeptVersion,
    /// What differs apart from the content, and how the content differs where it is no text, as lines
    /// for people.
    pub attributes: Vec<String>,
    /// The lines that differ: `-` of the version, `+` of what is there now.
    pub lines: Vec<String>,
}

/// A version that was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredVersion {
    /// The file.
    pub path: String,
    /// The version.
    pub version: KeptVersion,
    /// The file was as in the version already.
    pub unchanged: bool,
    /// The number of the version that was there before; absent when it was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// What happens to it next.
    pub next: AfterRestore,
}

/// The kept versions of a file, or of all files below a directory; of all files for `None`.
///
/// # Errors
/// When they cannot be read.
pub fn versions(durable: &Durable, path: Option<&str>) -> Result<FileVersionsView, StateError> {
    let found = durable.versions().histories(path)?;
    let left_out = found.len().saturating_sub(MAX_LISTED);
    let files = found.into_iter().take(MAX_LISTED).map(|(path, history)| {
        let FileHistory { mut versions, passed_over, .. } = history;
        versions.reverse();
        FileVersionsEntry { path, versions, passed_over }
    });
    Ok(FileVersionsView { path: path.map(str::to_owned), files: files.collect(), left_out })
}

/// How a version differs from what is there now: the newest one for `None`.
///
/// # Errors
/// [`FileVersionError`] says what failed.
pub fn diff(
    runner: &Runner,
    traits: &Value,
    path: &str,
    number: Option<u64>,
) -> Result<FileVersionDiff, FileVersionError> {
    let (kinds, durable) = (runner.kinds(), runner.durable());
    forget_sensitive(runner, traits)?;
    let version = find(durable, path, number)?;
    let state = look(kinds, path)?;
    let names = kinds.host().accounts().unwrap_or_default();
    let user = |uid: u32| names.user_name(uid).map_or(uid.to_string(), str::to_owned);
    let group = |gid: u32| names.group_name(gid).map_or(gid.to_string(), str::to_owned);
    let (mut attributes, mut lines) = (Vec::new(), Vec::new());
    match &state {
        PathState::File { digest, size, mode, uid, gid } => {
            let mut differs = |name: &str, from: String, to: String| {
                if from != to {
                    attributes.push(format!("{name}: {from} -> {to}"));
                }
            };
            differs("mode", format!("{:04o}", version.mode), format!("{mode:04o}"));
            differs("owner", user(version.uid), user(*uid));
            differs("group", group(version.gid), group(*gid));
            if *digest != version.digest {
                let old = text(read(durable, path, &version, MAX_TEXT)?);
                let now = kinds.host().read(path, MAX_TEXT).ok().flatten().and_then(text);
                match old.zip(now) {
                    Some((old, now)) => lines = diff_lines(&old, &now),
                    None => attributes.push(format!(
                        "content: sha256:{} ({} bytes) -> sha256:{} ({size} bytes)",
                        version.digest.short(),
                        version.size,
                        digest.short()
                    )),
                }
            }
        }
        other => attributes.push(format!("now there is {}", other.what())),
    }
    Ok(FileVersionDiff { path: path.to_owned(), version, attributes, lines })
}

/// Puts a version back: content, mode, owner and group. What was there is kept as a version before; a
/// regular file of which none can be kept is overwritten only where `unkept` says so.
///
/// # Errors
/// [`FileVersionError`] says what failed; what was there is there still.
pub fn restore(
    runner: &Runner,
    traits: &Value,
    path: &str,
    number: u64,
    unkept: UnkeptFile,
) -> Result<Restoration, FileVersionError> {
    let (kinds, durable) = (runner.kinds(), runner.durable());
    forget_sensitive(runner, traits)?;
    let version = find(durable, path, Some(number))?;
    let KeptVersion { digest, size, mode, uid, gid, .. } = version.clone();
    let state = look(kinds, path)?;
    let is_as_kept = match &state {
        PathState::File { digest: is, mode: is_mode, uid: is_uid, gid: is_gid, .. } => {
            let owned = !kinds.host().enforces_ownership() || (*is_uid, *is_gid) == (uid, gid);
            *is == digest && *is_mode == mode && owned
        }
        PathState::Directory { .. } | PathState::Other { .. } => {
            let what = state.what();
            return Err(FileVersionError::Host(format!("{path} is {what} now, and is left alone")));
        }
        PathState::Missing | PathState::Symlink { .. } => false,
    };
    if is_as_kept {
        return Ok(Restoration { version, unchanged: true, before: None });
    }
    let privacy = FilePrivacy::of_kept_version(mode);
    let mut content = durable.versions().open_content(&digest)?.ok_or_else(|| lost(path, number))?;
    let (file, cause) =
        (TouchedFile { path: path.to_owned(), privacy }, VersionCause { by: VERB, sensitive: false });
    let kept = durable.versions().keep_file(kinds.host(), &file, cause, now());
    let before = match (kept, unkept) {
        (Ok(before), _) => before,
        (Err(reason), UnkeptFile::Refuse) => {
            return Err(FileVersionError::NotKept { path: path.to_owned(), reason });
        }
        (Err(_), UnkeptFile::Overwrite) => None,
    };
    let ownership = PathOwnership { mode: Some(mode), uid: Some(uid), gid: Some(gid) };
    kinds.write_file(path, &mut content, digest, ownership).map_err(FileVersionError::Host)?;
    if let Err(reason) = kept {
        durable.versions().pass_over(path, reason, 1, cause, now());
    }
    tracing::warn!(path, version = number, bytes = size, "somebody at the host put a version of a file back");
    Ok(Restoration { version, unchanged: false, before })
}

/// What putting a version back came to.
#[derive(Clone, Debug)]
pub struct Restoration {
    version: KeptVersion,
    /// The file was as in the version already.
    pub unchanged: bool,
    before: Option<u64>,
}

impl Restoration {
    /// The same, with what happens next.
    pub fn with_next(self, path: &str, next: AfterRestore) -> RestoredVersion {
        let Restoration { version, unchanged, before } = self;
        RestoredVersion { path: path.to_owned(), version, unchanged, before, next }
    }
}

/// What happens to a file next, by what the held release declares.
pub fn after_restore(runner: &Runner, traits: &Value, path: &str, pause: Option<Pause>) -> AfterRestore {
    let Ok(bound) = runner.bind(traits) else { return AfterRestore::Unknown };
    let writes_file = |spec: &Spec, path: &str| runner.kinds().writes_file(spec, path);
    versions::after_restore(bound.desired(), path, pause, writes_file)
}

/// Of what is sensitive by now no version is left to be shown or put back.
fn forget_sensitive(runner: &Runner, traits: &Value) -> Result<(), FileVersionError> {
    match runner.bind(traits) {
        Ok(bound) => runner.forget_sensitive(&bound)?,
        Err(RunnerError::NothingHeld) => {}
        Err(error) => return Err(FileVersionError::Declared(chain(&error))),
    }
    Ok(())
}

fn find(durable: &Durable, path: &str, number: Option<u64>) -> Result<KeptVersion, FileVersionError> {
    let found = history(durable, path)?.and_then(|history| match number {
        Some(number) => history.find(number).cloned(),
        None => history.newest().cloned(),
    });
    found.ok_or_else(|| FileVersionError::Unknown { path: path.to_owned(), number })
}

fn history(durable: &Durable, path: &str) -> Result<Option<FileHistory>, StateError> {
    let histories = durable.versions().histories(Some(path))?;
    Ok(histories.into_iter().find(|(known, _)| known == path).map(|(_, history)| history))
}

fn look(kinds: &Kinds, path: &str) -> Result<PathState, FileVersionError> {
    kinds.host().look(path).map_err(|error| FileVersionError::Host(chain(&error)))
}

fn lost(path: &str, number: u64) -> FileVersionError {
    FileVersionError::Lost { path: path.to_owned(), number }
}

/// The bytes of a version; none when there are more than `most`.
fn read(
    durable: &Durable,
    path: &str,
    version: &KeptVersion,
    most: u64,
) -> Result<Vec<u8>, FileVersionError> {
    let content = durable.versions().open_content(&version.digest)?;
    let content = content.ok_or_else(|| lost(path, version.number))?;
    let mut bytes = Vec::new();
    let read = content.take(most.min(LIMITS.version_bytes) + 1).read_to_end(&mut bytes);
    read.map_err(|error| FileVersionError::Host(format!("the version cannot be read: {error}")))?;
    Ok(if bytes.len() as u64 > most { vec![0] } else { bytes })
}

/// Text that lines can be compared of.
fn text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Why a version was not kept, for people.
fn reason_not_kept(reason: PassedOverReason) -> String {
    match reason {
        PassedOverReason::Sensitive => "the resource is sensitive".to_owned(),
        PassedOverReason::Private => "only its owner may read it, so it may hold a secret".to_owned(),
        PassedOverReason::TooLarge { size } => {
            format!("{size} bytes, and at most {} MiB are kept of a version", LIMITS.version_bytes >> 20)
        }
        PassedOverReason::TooMany => {
            let (files, bytes) = (LIMITS.change_files, LIMITS.change_bytes >> 20);
            format!("one change keeps at most {files} files and {bytes} MiB")
        }
        PassedOverReason::Failed => "it could not be read, or there was no room".to_owned(),
        PassedOverReason::Unknown => "for a reason that this version of the agent does not know".to_owned(),
    }
}

impl FileVersionsView {
    /// For people, at a time.
    pub fn text(&self, now: Timestamp) -> String {
        use fmt::Write;
        let mut out = String::new();
        if self.files.is_empty() {
            return match &self.path {
                Some(path) => {
                    format!("nothing is kept of {path}: Muster overwrote or removed no version of it\n")
                }
                None => "nothing is kept: Muster overwrote or removed no file yet\n".to_owned(),
            };
        }
        for file in &self.files {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", file.path);
            for version in &file.versions {
                let KeptVersion { number, digest, size, mode, at, by, .. } = version;
                let (digest, at) = (digest.short(), render::when(*at, now));
                let _ = writeln!(
                    out,
                    "  {number:>3}  {size:>8} bytes  {mode:04o}  sha256:{digest}  until {at}, by {by}"
                );
            }
            if let Some(passed) = &file.passed_over {
                let what = match passed.files {
                    1 => "not kept".to_owned(),
                    files => format!("{files} files not kept"),
                };
                let (at, why) = (render::when(passed.at, now), reason_not_kept(passed.reason));
                let _ = writeln!(out, "    -  {what} {at}, by {}: {why}", passed.by);
            }
        }
        if self.left_out > 0 {
            let _ = writeln!(out, "... {} more files; name one, or a directory", self.left_out);
        }
        out
    }
}

impl fmt::Display for FileVersionDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.version.number;
        if self.lines.is_empty() && self.attributes.is_empty() {
            return writeln!(f, "{} is as in version {number}", self.path);
        }
        writeln!(f, "--- {} version {number}\n+++ {} now", self.path, self.path)?;
        for line in self.attributes.iter().chain(&self.lines) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl RestoredVersion {
    /// For people, at a time.
    pub fn text(&self, now: Timestamp) -> String {
        let (path, number) = (&self.path, self.version.number);
        let done = match self.unchanged {
            true => format!("{path} is as in version {number} already"),
            false => {
                let before = self.before.map(|before| format!("; what was there is version {before}"));
                format!("restored {path} to version {number}{}", before.unwrap_or_default())
            }
        };
        let names = |by: &[ResourceId]| by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let next = match &self.next {
            AfterRestore::Stays => "no resource declares it, so it stays as it is now".to_owned(),
            AfterRestore::Reported { by } => {
                format!("{} only observes it: it stays, and is reported as a difference", names(by))
            }
            AfterRestore::PutBack { by } => format!(
                "the agent puts back what {} declares, within seconds where it watches the file; to keep this \
                 version, pause the host first ({}) and have it declared",
                names(by),
                command("pause --reason TEXT")
            ),
            AfterRestore::AfterPause { by, pause } => format!(
                "this host is paused {}; the first run after it puts back what {} declares",
                render::pause(pause, now),
                names(by)
            ),
            AfterRestore::Unknown => {
                "which resources declare it cannot be told; a run puts back what they declare".to_owned()
            }
        };
        format!("{done}\n{next}\n")
    }
}

#[cfg(test)]
mod tests {
    use model::Digest;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_219_200_000);

    fn version(number: u64, content: &str) -> KeptVersion {
        KeptVersion {
            number,
            digest: Digest::of(content.as_bytes()),
            size: content.len() as u64,
            mode: 0o644,
            uid: 0,
            gid: 0,
            at: Timestamp(NOW.0 - 3_600_000 * i64::try_from(number).unwrap_or(0)),
            by: "web/file:/etc/nginx/nginx.conf".to_owned(),
        }
    }

    /// What an operator reads, `crates/agent/tests/pages/file-versions.txt`; `MUSTER_BLESS=1` writes it anew.
    #[test]
    fn what_people_read() {
        let passed = |reason, files| {
            Some(PassedOver { at: NOW, reason, files, by: "old/directory:/srv/old".to_owned() })
        };
        let entry = |path: &str, versions, passed_over| FileVersionsEntry {
            path: path.to_owned(),
            versions,
            passed_over,
        };
        let files = vec![
            entry("/etc/nginx/nginx.conf", vec![version(3, "c"), version(1, "a text")], None),
            entry("/etc/shadow-like", Vec::new(), passed(PassedOverReason::Private, 1)),
            entry("/etc/ssl/key.pem", Vec::new(), passed(PassedOverReason::Sensitive, 1)),
            entry("/srv/old", Vec::new(), passed(PassedOverReason::TooMany, 12)),
            entry("/srv/old/big", Vec::new(), passed(PassedOverReason::TooLarge { size: 5_000_000 }, 1)),
        ];
        let all = FileVersionsView { path: None, files, left_out: 2 };
        let none = FileVersionsView { path: Some("/etc/motd".to_owned()), files: Vec::new(), left_out: 0 };
        let diff = |attributes: &[&str], lines: &[&str]| FileVersionDiff {
            path: "/etc/motd".to_owned(),
            version: version(2, "a\nb\n"),
            attributes: attributes.iter().map(|line| (*line).to_owned()).collect(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let pause = Pause { reason: "ticket 812".to_owned(), since: NOW, until: None };
        let by = || vec![ResourceId::new("web", "file", "/etc/motd")];
        let restored = |unchanged: bool, next| {
            let (path, before) = ("/etc/motd".to_owned(), (!unchanged).then_some(5));
            RestoredVersion { path, version: version(2, "a"), unchanged, before, next }.text(NOW)
        };
        let text = [
            all.text(NOW),
            none.text(NOW),
            diff(&["mode: 0644 -> 0600"], &["-a", "+A"]).to_string(),
            diff(&[], &[]).to_string(),
            restored(false, AfterRestore::PutBack { by: by() }),
            restored(false, AfterRestore::AfterPause { by: by(), pause }),
            restored(true, AfterRestore::Stays),
            restored(false, AfterRestore::Reported { by: by() }),
            restored(false, AfterRestore::Unknown),
        ]
        .join("\n");
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages/file-versions.txt");
        if std::env::var_os("MUSTER_BLESS").is_some() {
            std::fs::write(golden, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(golden).unwrap());
    }
}
