//! Pure decisions of each resource type: from what is declared and what is there to
//! what differs.
//!
//! Each module answers one question for one type: given a bound spec and a [`PathState`],
//! which [`Edit`] makes the host right? Nothing here touches the host; the shell looks,
//! asks, and does. Ownership is asked about in numbers, because names are the host's.

use model::delta::MAX_FIELD;
use model::{Digest, Edit, Fields, PathOwnership, PathState};
use serde::{Deserialize, Serialize};

use crate::Prior;

pub mod accounts;
pub mod archive;
pub mod block;
pub mod custom;
pub mod directory;
pub mod download;
pub mod exec;
pub mod file;
pub mod group;
pub mod host;
pub mod hostname;
pub mod image;
pub mod ini;
pub mod json;
mod json_text;
pub mod line;
mod lines;
pub mod mount;
pub mod nixos;
pub mod package;
pub mod repository;
pub mod ssh_key;
pub mod state;
pub mod switch;
pub mod symlink;
pub mod sysctl;
pub mod system_directories;
pub mod tree;
pub mod unit;
pub mod user;

/// Permission bits of a file that the spec says nothing about.
pub const DEFAULT_FILE_MODE: u32 = 0o644;
/// Permission bits of a directory that the spec says nothing about.
pub const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// What differs; `None` when the host is as declared (or when `unknown`). Its fields
    /// hold only what differs; all of them for an addition.
    pub edit: Option<Edit<Fields>>,
    /// What is there now; nothing at a path for types that manage nothing that can be looked at.
    pub prior: Prior,
    /// What an operator should know beforehand: what cannot be undone or enforced.
    pub note: Option<String>,
    /// Nothing can say without running it. Applying runs it; a plan shows "outcome unknown".
    pub unknown: bool,
    /// What the change makes beside the thing itself.
    #[serde(default)]
    pub surroundings: Surroundings,
}

/// The files and directories that a thing lies in, and that setting it makes where they are missing: the
/// file that it is a part of, a mount point. Each by its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// What is missing, and is made.
    pub missing: Vec<String>,
    /// What is there already.
    pub there: Vec<String>,
}

impl Checked {
    /// The prior state of what cannot be looked at.
    pub const NOTHING: Prior = Prior::Path(PathState::Missing);

    /// The host is as declared.
    pub fn in_sync(prior: Prior) -> Checked {
        Checked { edit: None, prior, note: None, unknown: false, surroundings: Surroundings::default() }
    }

    /// The host differs by `edit`.
    pub fn differs(prior: Prior, edit: Edit<Fields>) -> Checked {
        Checked { edit: Some(edit), ..Checked::in_sync(prior) }
    }

    /// Only running it can say.
    pub fn unknown() -> Checked {
        Checked { unknown: true, ..Checked::in_sync(Checked::NOTHING) }
    }
}

/// What an apply did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// What was changed, as text; `None` when nothing was.
    pub edit: Option<Edit<Fields>>,
    /// Something was changed.
    pub changed: bool,
    /// What a command printed, bounded.
    pub output: Option<String>,
}

/// Names for numbers, as the host's account files give them.
pub trait AccountLookup {
    /// The user's name, or the number as text.
    fn user(&self, uid: u32) -> String;
    /// The group's name, or the number as text.
    fn group(&self, gid: u32) -> String;
}

/// How a file's bytes read in an edit: whole when they are text of at most
/// [`MAX_FIELD`] bytes, else by digest and length.
pub fn content_field(bytes: Option<&[u8]>, digest: &Digest, size: u64) -> String {
    let whole = bytes.filter(|bytes| bytes.len() <= MAX_FIELD && bytes.len() as u64 == size);
    match whole.and_then(|bytes| std::str::from_utf8(bytes).ok()) {
        Some(text) => text.to_owned(),
        None => format!("sha256:{} ({size} bytes)", digest.short()),
    }
}

/// Collects what differs, field by field.
#[derive(Default)]
struct FieldDifference {
    from: Fields,
    to: Fields,
}

impl FieldDifference {
    fn field(&mut self, name: &str, from: Option<String>, to: Option<String>) {
        if let Some(from) = from {
            self.from.insert(name.to_owned(), from);
        }
        if let Some(to) = to {
            self.to.insert(name.to_owned(), to);
        }
    }

    /// Adds mode, owner and group where they are wanted and differ from `now`.
    fn ownership(&mut self, wanted: &PathOwnership, now: Option<(u32, u32, u32)>, names: &dyn AccountLookup) {
        let differs = |want: Option<u32>, now: Option<u32>| want.filter(|want| now != Some(*want));
        if let Some(mode) = differs(wanted.mode, now.map(|now| now.0)) {
            self.field("mode", now.map(|now| mode_field(now.0)), Some(mode_field(mode)));
        }
        if let Some(uid) = differs(wanted.uid, now.map(|now| now.1)) {
            self.field("owner", now.map(|now| names.user(now.1)), Some(names.user(uid)));
        }
        if let Some(gid) = differs(wanted.gid, now.map(|now| now.2)) {
            self.field("group", now.map(|now| names.group(now.2)), Some(names.group(gid)));
        }
    }

    /// Mode and owners of what is made.
    fn new_ownership(&mut self, wanted: &PathOwnership, default_mode: u32, names: &dyn AccountLookup) {
        let mode = wanted.mode.or(Some(default_mode));
        self.ownership(&PathOwnership { mode, ..*wanted }, None, names);
    }

    /// That something takes the place of a directory.
    fn replaced_directory(&mut self, prior: &PathState, by: &str) {
        self.field("type", Some("directory".to_owned()), Some(by.to_owned()));
        if let PathState::Directory { empty: false, .. } = prior {
            self.field("entries", Some("removed with everything inside".to_owned()), None);
        }
    }

    fn change(self) -> Option<Edit<Fields>> {
        (!self.from.is_empty() || !self.to.is_empty())
            .then_some(Edit::Change { from: self.from, to: self.to })
    }
}

/// Whether wanted ownership differs from what is there; no allocation.
fn ownership_differs(wanted: &PathOwnership, mode: u32, uid: u32, gid: u32) -> bool {
    wanted.mode.is_some_and(|want| want != mode)
        || wanted.uid.is_some_and(|want| want != uid)
        || wanted.gid.is_some_and(|want| want != gid)
}

/// Permission bits as they are written.
pub fn mode_field(mode: u32) -> String {
    format!("{mode:04o}")
}
