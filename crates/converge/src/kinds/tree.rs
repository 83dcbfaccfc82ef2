//! `directory` with `source`: a directory and the files below it.
//!
//! A state of a tree names each path below the directory (`./conf.d/a`; the directory itself is `.`)
//! and says in one text what is there: [`TreeEntry`].

use std::collections::BTreeSet;
use std::fmt;

use catalog::types::{Ensure, TreeSpec};
use model::collect::CollectInserting;
use model::{Digest, Edit, Fields};

use super::system_directories::refuse_system_directory;
use super::{DEFAULT_DIRECTORY_MODE, DEFAULT_FILE_MODE};

/// The name of the directory itself in a state.
pub const TOP: &str = ".";
/// The most paths of an edit that are shown.
const MAX_SHOWN: usize = 50;
/// The most bytes that are kept of what one change overwrites or removes.
pub const MAX_TREE_KEPT: u64 = 64 * 1024 * 1024;
/// A removal of this many files at once is said beforehand.
const MANY: usize = 20;

/// What is at a path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// `absent`.
    Absent,
    /// `directory 0755 root root`.
    Directory(TreeRights),
    /// `sha256:HEX 12 bytes 0644 root root`.
    File {
        /// SHA-256 of its bytes.
        digest: Digest,
        /// Length in bytes.
        size: u64,
        /// Its mode and owners.
        rights: TreeRights,
    },
    /// `link TARGET`.
    Symlink(String),
    /// `other`: nothing that Muster manages.
    Other,
}

/// Mode, owner and group as texts; `-` for what is as the host makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRights {
    /// In octal.
    pub mode: String,
    /// A name or a number.
    pub owner: String,
    /// A name or a number.
    pub group: String,
}

impl TreeRights {
    /// Whoever may read it may execute it.
    pub(super) fn make_executable(&mut self) {
        if let Ok(mode) = u32::from_str_radix(&self.mode, 8) {
            self.mode = format!("{:04o}", mode | (mode & 0o444) >> 2);
        }
    }
}

impl fmt::Display for TreeRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.mode, self.owner, self.group)
    }
}

impl fmt::Display for TreeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeEntry::Absent => f.write_str("absent"),
            TreeEntry::Directory(rights) => write!(f, "directory {rights}"),
            TreeEntry::File { digest, size, rights } => write!(f, "sha256:{digest} {size} bytes {rights}"),
            TreeEntry::Symlink(target) => write!(f, "link {target}"),
            TreeEntry::Other => f.write_str("other"),
        }
    }
}

impl TreeEntry {
    /// Reads what it is shown as; `None` for anything else.
    pub fn read(text: &str) -> Option<TreeEntry> {
        if let Some(target) = text.strip_prefix("link ") {
            return Some(TreeEntry::Symlink(target.to_owned()));
        }
        let rights = |words: &[&str]| match words {
            [mode, owner, group] => {
                Some(TreeRights { mode: (*mode).into(), owner: (*owner).into(), group: (*group).into() })
            }
            _ => None,
        };
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["absent"] => Some(TreeEntry::Absent),
            ["other"] => Some(TreeEntry::Other),
            ["directory", rest @ ..] => rights(rest).map(TreeEntry::Directory),
            [digest, size, "bytes", rest @ ..] => Some(TreeEntry::File {
                digest: digest.strip_prefix("sha256:")?.parse().ok()?,
                size: size.parse().ok()?,
                rights: rights(rest)?,
            }),
            _ => None,
        }
    }
}

/// The digest of a file in a state of a tree, whose bytes putting it back needs.
pub(crate) fn kept_digest(text: &str) -> Option<Digest> {
    match TreeEntry::read(text)? {
        TreeEntry::File { digest, .. } => Some(digest),
        _ => None,
    }
}

/// The directories of a tree by their names in a state, the directory itself first, parents before
/// what is in them.
pub fn directories(spec: &TreeSpec) -> BTreeSet<String> {
    let mut found = BTreeSet::from([TOP.to_owned()]);
    for path in spec.files.keys() {
        found.extend(path.match_indices('/').map(|(at, _)| format!("./{}", &path[..at])));
    }
    found
}

/// The state that the tree should have. A path of which nothing is said is left as it is.
///
/// # Errors
/// When something that is no file, or no directory, stands where one is declared.
pub fn desired(spec: &TreeSpec, now: Option<&Fields>) -> Result<Option<Fields>, String> {
    if spec.ensure == Ensure::Absent {
        return Ok(None);
    }
    let there = |name: &str| {
        now.and_then(|now| now.get(name)).and_then(|text| TreeEntry::read(text)).unwrap_or(TreeEntry::Absent)
    };
    let refused =
        |name: &str, what: &str| Err(format!("{}/{} is {what}; move it away", spec.path, &name[2..]));
    let mut to = Fields::new();
    for name in directories(spec) {
        let entry = match there(&name) {
            TreeEntry::Absent => {
                TreeEntry::Directory(rights(spec, spec.ownership.mode, DEFAULT_DIRECTORY_MODE, None))
            }
            TreeEntry::Directory(now) => {
                TreeEntry::Directory(rights(spec, spec.ownership.mode, DEFAULT_DIRECTORY_MODE, Some(now)))
            }
            _ => return refused(&name, "no directory"),
        };
        to.insert(name, entry.to_string());
    }
    for (path, file) in &spec.files {
        let name = format!("./{path}");
        let now = match there(&name) {
            TreeEntry::Absent | TreeEntry::Symlink(_) => None,
            TreeEntry::File { rights, .. } => Some(rights),
            TreeEntry::Directory(_) | TreeEntry::Other => return refused(&name, "no file"),
        };
        let mut rights = rights(spec, spec.file_mode, DEFAULT_FILE_MODE, now);
        if file.executable {
            rights.make_executable();
        }
        let entry = TreeEntry::File { digest: file.digest, size: file.size, rights };
        to.insert(name, entry.to_string());
    }
    if spec.purge {
        refuse_system_directory(&spec.path)?;
        let now = || now.into_iter().flatten();
        // What nobody can remove keeps the directories that it is in.
        let other: Vec<&String> = now()
            .filter(|(_, text)| TreeEntry::read(text) == Some(TreeEntry::Other))
            .map(|(name, _)| name)
            .collect();
        for (name, _) in now().filter(|(name, _)| !to.contains_key(*name)).collect::<Vec<_>>() {
            let below = format!("{name}/");
            if !other.iter().any(|stays| *stays == name || stays.starts_with(&below)) {
                to.insert(name.clone(), TreeEntry::Absent.to_string());
            }
        }
    }
    Ok(Some(to))
}

/// Rights as declared, else as they are, else as the host makes them.
fn rights(spec: &TreeSpec, mode: Option<u32>, default_mode: u32, now: Option<TreeRights>) -> TreeRights {
    let new = TreeRights { mode: format!("{default_mode:04o}"), owner: "-".into(), group: "-".into() };
    let now = now.unwrap_or(new);
    TreeRights {
        mode: mode.map_or(now.mode, |mode| format!("{mode:04o}")),
        owner: spec.ownership.owner.clone().unwrap_or(now.owner),
        group: spec.ownership.group.clone().unwrap_or(now.group),
    }
}

/// At most [`MAX_SHOWN`] paths of an edit, and how many more there are.
pub fn shown(edit: Edit<Fields>) -> Edit<Fields> {
    let names: BTreeSet<&String> =
        edit.from().into_iter().chain(edit.to()).flat_map(Fields::keys).collect_inserting();
    let Some(last) = names.iter().nth(MAX_SHOWN).map(|name| (**name).clone()) else { return edit };
    let more = names.len() - MAX_SHOWN;
    let last = &last;
    edit.map(|fields| {
        let first = fields.range::<String, _>(..last.clone());
        let mut shown: Fields = first.map(|(name, text)| (name.clone(), text.clone())).collect_inserting();
        shown.insert("more".to_owned(), format!("and {more} more"));
        shown
    })
}

/// What to know before a change: what a purge removes, and what cannot be put back.
pub fn note(edit: &Edit<Fields>) -> Option<String> {
    let entries = |fields: Option<&Fields>| -> Vec<(String, TreeEntry)> {
        let read = |(name, text): (&String, &String)| Some((name.clone(), TreeEntry::read(text)?));
        fields.into_iter().flatten().filter_map(read).collect()
    };
    let (from, to) = (entries(edit.from()), entries(edit.to()));
    let gone = to.iter().filter(|(_, entry)| *entry == TreeEntry::Absent).count();
    let gone = if edit.to().is_none() { from.len() } else { gone };
    let size = |entry: &TreeEntry| if let TreeEntry::File { size, .. } = entry { *size } else { 0 };
    let kept: u64 = from.iter().map(|(_, entry)| size(entry)).sum();
    let removes = (gone >= MANY).then(|| format!("removes {gone} files, links and directories"));
    let too_much = (kept > MAX_TREE_KEPT).then(|| {
        format!("cannot be undone whole: only {} MiB of what was there are kept", MAX_TREE_KEPT >> 20)
    });
    removes.into_iter().chain(too_much).reduce(|a, b| format!("{a}; {b}"))
}
