//! `directory` with `source` on a host: many files compared by digest, each written as a `file` is.
//!
//! ```text
//! observe: list each directory of the tree -> stamp known? its digest : read the file
//! set:     directories, parents first -> files and links -> removals, what is inside first
//! ```
//!
//! Invariants: a check of files that were not touched since the last one reads none of them; what is
//! overwritten or removed is in the blob store before, up to [`tree::MAX_TREE_KEPT`]; nothing outside the
//! directory is touched, and no link is followed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::types::{ArchiveSpec, Ensure, Ownership, TreeSpec};
use converge::JobFailure;
use converge::kinds::tree::{self, MAX_TREE_KEPT, TOP, TreeEntry, TreeRights};
use converge::kinds::{AccountLookup, DEFAULT_DIRECTORY_MODE, DEFAULT_FILE_MODE};
use host::{FileVersion, FileWrite, ListedEntry, ListedKind, ListedNames};
use model::{Digest, Edit, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{AccountNames, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider};

/// The most entries of a directory that is purged, and of all that is below it.
const MAX_ENTRIES: usize = 20_000;
/// The deepest level below a directory that is purged.
const MAX_DEPTH: usize = 32;
/// The most digests that are remembered.
const MAX_REMEMBERED: usize = 50_000;
/// A file that was changed within this long before it was read may be changed again without
/// another stamp.
const CLOCK_GRANULARITY: Duration = Duration::from_millis(50);
/// As [`CLOCK_GRANULARITY`], on file systems that keep whole seconds.
const COARSE_GRANULARITY: Duration = Duration::from_secs(3);

/// The digests of files by their paths, for as long as their stamps are the same.
#[derive(Debug, Default)]
pub(crate) struct DigestCache(Mutex<HashMap<String, (FileVersion, Digest)>>);

impl DigestCache {
    fn find(&self, path: &str, stamp: &FileVersion) -> Option<Digest> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(path).filter(|(known, _)| known == stamp).map(|(_, digest)| *digest)
    }

    /// Remembers a digest that was made at `read_at`, with the stamp from before.
    fn remember(&self, path: String, stamp: FileVersion, digest: Digest, read_at: SystemTime) {
        let (seconds, nanos) = stamp.changed();
        let apart = if nanos == 0 { COARSE_GRANULARITY } else { CLOCK_GRANULARITY };
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else { return };
        let changed = UNIX_EPOCH + Duration::new(seconds, nanos);
        if !read_at.duration_since(changed).is_ok_and(|since| since > apart) {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(path, (stamp, digest));
    }
}

impl StateProvider for TreeSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let directories = tree::directories(self);
        let files: Vec<String> = self.files.keys().map(|path| format!("./{path}")).collect();
        let names = directories.iter().chain(&files).map(String::as_str);
        let fields = TreeLook::new(kinds, FileTree::of(self)).at(names)?;
        if fields.get(TOP).and_then(|text| TreeEntry::read(text)) == Some(TreeEntry::Absent) {
            return Ok(None);
        }
        // Directories alone may be someone else's: they go with the files that are in them.
        let file = |text: &String| {
            matches!(TreeEntry::read(text), Some(TreeEntry::File { .. } | TreeEntry::Symlink(_)))
        };
        let any = fields.values().any(file);
        Ok((any || self.ensure == Ensure::Present).then_some(fields))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        tree::desired(self, now)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, .. } = change;
        let nothing = Fields::new();
        let now = now.unwrap_or(&nothing);
        let mut change = TreeChange::new(kinds, FileTree::of(self));
        match to {
            Some(to) => change.bring(now, to)?,
            None => change.remove_all(now)?,
        }
        Ok(None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    fn works_below_root(&self) -> bool {
        true
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        tree::note(edit)
    }

    fn shown(&self, edit: Edit<Fields>) -> Edit<Fields> {
        tree::shown(edit)
    }
}

/// A directory of which some files are managed.
#[derive(Clone, Copy)]
pub(crate) struct FileTree<'a> {
    path: &'a str,
    ownership: &'a Ownership,
    /// What is not declared is looked at too.
    purge: bool,
}

impl<'a> FileTree<'a> {
    pub(crate) fn of(spec: &'a TreeSpec) -> FileTree<'a> {
        FileTree { path: &spec.path, ownership: &spec.ownership, purge: spec.purge }
    }

    pub(crate) fn of_archive(spec: &'a ArchiveSpec) -> FileTree<'a> {
        FileTree { path: &spec.path, ownership: &spec.ownership, purge: false }
    }

    /// The path of a name of a state.
    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}{}", self.path, name.strip_prefix(TOP).unwrap_or(name))
    }
}

/// A look at a tree.
pub(crate) struct TreeLook<'a> {
    kinds: &'a Kinds,
    tree: FileTree<'a>,
    names: AccountNames,
    fields: Fields,
}

impl<'a> TreeLook<'a> {
    pub(crate) fn new(kinds: &'a Kinds, tree: FileTree<'a>) -> TreeLook<'a> {
        TreeLook { kinds, tree, names: kinds.names(), fields: Fields::new() }
    }

    /// Looks at these names; what is not there is absent, the directory itself too.
    pub(crate) fn at<'n>(mut self, names: impl Iterator<Item = &'n str>) -> Result<Fields, String> {
        let mut children: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for name in names {
            if let Some((parent, child)) = name.rsplit_once('/') {
                children.entry(parent).or_default().insert(child);
            }
        }
        let top = match self.kinds.look(self.tree.path)? {
            PathState::Missing => TreeEntry::Absent,
            PathState::Directory { mode, uid, gid, .. } => TreeEntry::Directory(self.rights(mode, uid, gid)),
            other => {
                let (path, what) = (self.tree.path, other.what());
                return Err(format!("{path} is not a directory ({what}); it is left alone, move it away"));
            }
        };
        self.fields.insert(TOP.to_owned(), top.to_string());
        for (directory, names) in children {
            self.directory(directory, &names)?;
        }
        Ok(self.fields)
    }

    /// Looks at a directory of the tree; at all that is in it where it is purged.
    fn directory(&mut self, directory: &str, declared: &BTreeSet<&str>) -> Result<(), String> {
        let names: Vec<&str> = declared.iter().copied().collect();
        let wanted = match self.tree.purge {
            true => ListedNames::All(MAX_ENTRIES),
            false => ListedNames::Given(&names),
        };
        let path = self.tree.path_of(directory);
        // Where something else stands in its place, its parent says so.
        let listed = match self.fields.get(directory).and_then(|text| TreeEntry::read(text)) {
            Some(TreeEntry::Directory(_)) => self.kinds.host.list(&path, wanted).map_err(text)?,
            _ => None,
        };
        let absent = TreeEntry::Absent.to_string();
        self.fields.extend(declared.iter().map(|name| (format!("{directory}/{name}"), absent.clone())));
        for entry in listed.unwrap_or_default() {
            let name = format!("{directory}/{}", entry.name);
            let extra = !declared.contains(entry.name.as_str());
            self.entry(name.clone(), &entry)?;
            if extra && entry.kind == ListedKind::Directory {
                self.below(&name, 1)?;
            }
        }
        Ok(())
    }

    /// Looks at all that is in a directory that is not declared.
    fn below(&mut self, directory: &str, depth: usize) -> Result<(), String> {
        let path = self.tree.path_of(directory);
        let listed = self.kinds.host.list(&path, ListedNames::All(MAX_ENTRIES)).map_err(text)?;
        for entry in listed.unwrap_or_default() {
            let name = format!("{directory}/{}", entry.name);
            self.entry(name.clone(), &entry)?;
            if entry.kind == ListedKind::Directory {
                if depth >= MAX_DEPTH {
                    return Err(format!("{path} lies more than {MAX_DEPTH} levels deep; nothing is purged"));
                }
                self.below(&name, depth + 1)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: String, entry: &ListedEntry) -> Result<(), String> {
        if self.fields.len() >= MAX_ENTRIES {
            return Err(format!("there is more than {MAX_ENTRIES} files in {}", self.tree.path));
        }
        let rights = || self.rights(entry.mode, entry.uid, entry.gid);
        let found = match &entry.kind {
            ListedKind::Directory => TreeEntry::Directory(rights()),
            ListedKind::Symlink(target) => TreeEntry::Symlink(target.clone()),
            ListedKind::Other => TreeEntry::Other,
            ListedKind::File => {
                let digest = self.digest(&name, entry)?;
                TreeEntry::File { digest, size: entry.stamp.size(), rights: rights() }
            }
        };
        self.fields.insert(name, found.to_string());
        Ok(())
    }

    fn digest(&self, name: &str, entry: &ListedEntry) -> Result<Digest, String> {
        let path = self.tree.path_of(name);
        if let Some(digest) = self.kinds.digests.find(&path, &entry.stamp) {
            return Ok(digest);
        }
        let read_at = SystemTime::now();
        match self.kinds.look(&path)? {
            PathState::File { digest, size, .. } if size == entry.stamp.size() => {
                self.kinds.digests.remember(path, entry.stamp, digest, read_at);
                Ok(digest)
            }
            _ => Err(format!("{path} was changed by something else just now; the next run looks again")),
        }
    }

    /// Rights in the form of the declaration.
    fn rights(&self, mode: u32, uid: u32, gid: u32) -> TreeRights {
        let Ownership { owner, group, .. } = self.tree.ownership;
        let free = !self.kinds.host.enforces_ownership();
        let text = |declared: &Option<String>, number: u32, name: String| match declared {
            Some(declared) if free || declared.parse() == Ok(number) => declared.clone(),
            _ => name,
        };
        TreeRights {
            mode: format!("{mode:04o}"),
            owner: text(owner, uid, self.names.user(uid)),
            group: text(group, gid, self.names.group(gid)),
        }
    }
}

/// A change of a tree under way.
pub(crate) struct TreeChange<'a> {
    kinds: &'a Kinds,
    tree: FileTree<'a>,
    /// How many bytes may still be kept of what was there.
    left: u64,
}

impl<'a> TreeChange<'a> {
    pub(crate) fn new(kinds: &'a Kinds, tree: FileTree<'a>) -> TreeChange<'a> {
        TreeChange { kinds, tree, left: MAX_TREE_KEPT }
    }

    /// The path of a name of a state.
    pub(crate) fn path_of(&self, name: &str) -> String {
        self.tree.path_of(name)
    }

    /// Brings what differs from one state to another; contents are in the blob store.
    pub(crate) fn bring(&mut self, now: &Fields, to: &Fields) -> Result<(), String> {
        let read = |fields: &Fields, name: &str| fields.get(name).and_then(|text| TreeEntry::read(text));
        let names: Vec<&String> =
            to.iter().filter(|(name, text)| now.get(*name) != Some(text)).map(|(name, _)| name).collect();
        // Names sort parents before what is in them.
        for name in &names {
            if let (now, Some(to)) = (read(now, name), read(to, name)) {
                self.put(name, now.as_ref().unwrap_or(&TreeEntry::Absent), &to)?;
            }
        }
        for name in names.iter().rev() {
            if let (Some(TreeEntry::Absent), Some(now)) = (read(to, name), read(now, name)) {
                self.remove(name, &now)?;
            }
        }
        Ok(())
    }

    /// Removes all that a state names.
    pub(crate) fn remove_all(&mut self, now: &Fields) -> Result<(), String> {
        for (name, text) in now.iter().rev() {
            if let Some(now) = TreeEntry::read(text) {
                self.remove(name, &now)?;
            }
        }
        Ok(())
    }

    /// Brings one path to a state other than absent.
    pub(crate) fn put(&mut self, name: &str, now: &TreeEntry, to: &TreeEntry) -> Result<(), String> {
        let (host, path) = (&self.kinds.host, self.path_of(name));
        match (to, now) {
            (TreeEntry::Absent | TreeEntry::Other, _) => Ok(()),
            (TreeEntry::Directory(rights), TreeEntry::Directory(_)) => {
                host.set_ownership(&path, &self.wanted(rights)?).map_err(text)
            }
            // What a purge removed is put back by a look that does not know of the purge.
            (TreeEntry::Directory(rights), _) => match self.kinds.look(&path)? {
                PathState::Directory { .. } => host.set_ownership(&path, &self.wanted(rights)?).map_err(text),
                _ => host.make_directory(&path, &self.wanted(rights)?, DEFAULT_DIRECTORY_MODE).map_err(text),
            },
            (TreeEntry::Symlink(target), _) => host.make_symlink(&path, target).map_err(text),
            (TreeEntry::File { digest, rights, .. }, TreeEntry::File { digest: is, .. }) if digest == is => {
                host.set_ownership(&path, &self.wanted(rights)?).map_err(text)
            }
            (TreeEntry::File { digest, .. }, _) => {
                let mut content = self.kinds.blob(digest).map_err(|why| format!("{path}: {why}"))?;
                self.put_bytes(name, now, to, &mut *content)
            }
        }
    }

    /// Writes a file with this content.
    pub(crate) fn put_bytes(
        &mut self,
        name: &str,
        now: &TreeEntry,
        to: &TreeEntry,
        content: &mut dyn Read,
    ) -> Result<(), String> {
        let TreeEntry::File { digest, rights, .. } = to else { return Ok(()) };
        let path = self.path_of(name);
        let ownership = self.wanted(rights)?;
        self.keep(&path, now)?;
        let write = FileWrite {
            content,
            digest: *digest,
            ownership,
            default_mode: DEFAULT_FILE_MODE,
            backup: false,
            validate: None,
        };
        self.kinds.host.write(&path, write).map_err(text)
    }

    /// Removes one path; a directory in which something else is stays.
    fn remove(&mut self, name: &str, now: &TreeEntry) -> Result<(), String> {
        let path = self.tree.path_of(name);
        match now {
            TreeEntry::Absent | TreeEntry::Other => Ok(()),
            TreeEntry::Directory(_) => match self.kinds.look(&path)? {
                PathState::Directory { empty: false, .. } => Ok(()),
                _ => self.kinds.host.remove_directory(&path, false).map(drop).map_err(text),
            },
            TreeEntry::File { .. } | TreeEntry::Symlink(_) => {
                self.keep(&path, now)?;
                self.kinds.host.remove_file(&path).map(drop).map_err(text)
            }
        }
    }

    /// Keeps the bytes that a change takes away, within the bound.
    fn keep(&mut self, path: &str, now: &TreeEntry) -> Result<(), String> {
        let TreeEntry::File { digest, size, .. } = now else { return Ok(()) };
        let Some(left) = self.left.checked_sub(*size) else { return Ok(()) };
        self.left = left;
        let file = self.kinds.host.open_file(path).map_err(text)?;
        let file = file.ok_or_else(|| format!("{path} went away while it was looked at"))?;
        self.kinds.keep_prior_bytes(path, &mut file.take(*size + 1), digest)
    }

    fn wanted(&self, rights: &TreeRights) -> Result<PathOwnership, String> {
        let named = |text: &String| (text != "-").then(|| text.clone());
        let mode = u32::from_str_radix(&rights.mode, 8).ok();
        let ownership = Ownership { mode, owner: named(&rights.owner), group: named(&rights.group) };
        Ok(self.kinds.wanted(&ownership)?.0)
    }
}
