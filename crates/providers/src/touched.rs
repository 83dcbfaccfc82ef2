//! Which files a change may overwrite or remove: their versions are kept before (CNV-8).
//!
//! Invariant: nothing is read here but names, what the account files and a tree's state say, and an archive
//! that is to be unpacked over files that are there.

use std::collections::BTreeSet;
use std::time::Duration;

use catalog::module::OnRemove;
use catalog::schema::{self, Manages};
use catalog::types::{
    ArchiveSpec, DROP_IN_TEXT, Ensure, FileSpec, PathRole, ResourcePath, Spec, SymlinkSpec, TreeSpec,
    UnitSpec, WrittenContent,
};
use converge::kinds::Checked;
use converge::kinds::tree::{self, TOP, TreeEntry};
use converge::versions::{FilePrivacy, LIMITS};
use converge::{LedgerEntry, Prior};
use host::{ListedKind, ListedNames};
use model::collect::CollectInserting;
use model::{Fields, PathState};

use crate::provider::{Provider, StateProvider};
use crate::tree::FileTree;
use crate::{Kinds, archive, ssh_key};

/// The most entries of a directory that are looked at, and of all that is below it.
const MAX_ENTRIES: usize = 20_000;
/// The most levels below a directory that are looked at.
const MAX_DEPTH: usize = 64;

/// A file that a change may overwrite or remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedFile {
    /// Its path on the host.
    pub path: String,
    /// Whom its content may concern, the resource's `sensitive` apart.
    pub privacy: FilePrivacy,
}

/// The files that a change may overwrite or remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedFiles {
    /// The files, at most [`converge::versions::VersionLimits::change_files`] of them.
    pub files: Vec<TouchedFile>,
    /// How many there are besides, below [`TouchedFiles::directory`].
    pub left_out: u64,
    /// The directory that all of them are in, where it is one.
    pub directory: Option<String>,
}

impl TouchedFiles {
    fn add(&mut self, path: String, privacy: FilePrivacy) {
        if self.files.len() < LIMITS.change_files {
            self.files.push(TouchedFile { path, privacy });
        } else {
            self.left_out += 1;
        }
    }
}

impl Kinds {
    /// The files that a resource manages, or of which it manages a part: those that it writes. Of a
    /// user or package, whose tools write, and of a command there are none.
    pub fn managed_files(&self, spec: &Spec) -> Vec<TouchedFile> {
        let written = |path: ResourcePath<'_>| {
            let PathRole::Written { content, .. } = path.role else { return None };
            let privacy = match content {
                WrittenContent::Public => FilePrivacy::Public,
                WrittenContent::ByMode { declared } => FilePrivacy::ByMode { declared },
            };
            Some(TouchedFile { path: path.path.into_owned(), privacy })
        };
        let written = || spec.paths(&|user| ssh_key::home(user, self)).filter_map(written).collect();
        match spec {
            // Nothing is written for a user that is not there.
            Spec::SshKey(key) if ssh_key::home(&key.user, self).is_none() => Vec::new(),
            _ => written(),
        }
    }

    /// Whether a resource writes this file: one of its [`Kinds::managed_files`], or a member of its archive.
    pub fn writes_file(&self, spec: &Spec, path: &str) -> bool {
        let Spec::Archive(archive) = spec else {
            return self.managed_files(spec).iter().any(|file| file.path == path);
        };
        let Some(name) = path.strip_prefix(archive.path.as_str()).filter(|name| name.starts_with('/')) else {
            return false;
        };
        let unpacked = archive::remembered(self, archive).ok().flatten();
        let entry = unpacked.as_ref().and_then(|unpacked| unpacked.get(&format!("{TOP}{name}")));
        let entry = entry.and_then(|text| TreeEntry::read(text));
        archive.ensure == Ensure::Present
            && matches!(entry, Some(TreeEntry::File { .. } | TreeEntry::Symlink(_)))
    }

    /// The files that applying a resource may overwrite or remove, given what its check saw. An archive
    /// that is to be unpacked over what is there is fetched for it, for at most `timeout`.
    ///
    /// # Errors
    /// In words, when an archive cannot be fetched or read: nobody knows what unpacking it would overwrite,
    /// though the next try to fetch it may succeed.
    pub fn touched_by_apply(
        &self,
        spec: &Spec,
        checked: &Checked,
        timeout: Duration,
    ) -> Result<TouchedFiles, String> {
        if !Provider::of(spec).works_here(self) {
            return Ok(TouchedFiles::default());
        }
        Ok(match (spec, &checked.prior) {
            (Spec::Directory(spec), Prior::Path(PathState::Directory { empty: false, .. }))
                if spec.ensure == Ensure::Absent && spec.recurse =>
            {
                self.below(&spec.path)
            }
            // Its trees come from archives, and it replaces a link alone.
            (Spec::Image(_), _) => TouchedFiles::default(),
            // By force.
            (
                Spec::File(FileSpec { path, .. }) | Spec::Symlink(SymlinkSpec { path, .. }),
                Prior::Path(PathState::Directory { empty: false, .. }),
            ) => self.below(path),
            (Spec::Directory(spec), Prior::Path(PathState::File { .. })) => {
                let privacy = FilePrivacy::ByMode { declared: None };
                let file = TouchedFile { path: spec.path.clone(), privacy };
                TouchedFiles { files: vec![file], ..TouchedFiles::default() }
            }
            (Spec::Tree(spec), Prior::State(Some(now))) => {
                tree_files(spec, now, tree::desired(spec, Some(now)).ok().flatten().as_ref())
            }
            (Spec::Archive(spec), Prior::State(now)) => {
                let mut touched = edited_members(self, spec, now.as_ref().unwrap_or(&Fields::new()));
                add_overwritten(self, spec, &mut touched, timeout)?;
                touched
            }
            // Nothing is there that could be lost.
            (_, Prior::Path(state)) if !matches!(state, PathState::File { .. }) => TouchedFiles::default(),
            (Spec::Unit(unit), Prior::State(now)) => {
                let paths = unit_files(unit, now.as_ref()).into_iter();
                let files = paths
                    .map(|path| TouchedFile { path, privacy: FilePrivacy::ByMode { declared: None } })
                    .collect();
                TouchedFiles { files, ..TouchedFiles::default() }
            }
            _ => TouchedFiles { files: self.managed_files(spec), ..TouchedFiles::default() },
        })
    }

    /// The files that removing what left the set may overwrite or remove.
    pub fn touched_by_removal(&self, entry: &LedgerEntry, how: OnRemove) -> TouchedFiles {
        if how == OnRemove::Keep {
            return TouchedFiles::default();
        }
        let whole = schema::find(&entry.kind).is_some_and(|kind| kind.manages == Manages::Path);
        if matches!(entry.prior, Prior::Path(_)) && !entry.attributes.contains_key("tree") {
            // What a part did stays.
            let privacy = FilePrivacy::ByMode { declared: None };
            let file = whole.then(|| TouchedFile { path: entry.path.clone(), privacy });
            return TouchedFiles { files: file.into_iter().collect(), ..TouchedFiles::default() };
        }
        let Ok(spec) = schema::bind_removal(&entry.kind, &entry.path, &entry.attributes) else {
            return TouchedFiles::default();
        };
        match &spec {
            Spec::Tree(tree) => {
                let now = tree.observe(self).ok().flatten().unwrap_or_default();
                tree_files(tree, &now, None)
            }
            Spec::Archive(archive) => {
                let now = archive.observe(self).ok().flatten().unwrap_or_default();
                edited_members(self, archive, &now)
            }
            _ => TouchedFiles { files: self.managed_files(&spec), ..TouchedFiles::default() },
        }
    }

    /// Every regular file below a directory, other file systems left out.
    fn below(&self, directory: &str) -> TouchedFiles {
        let mut touched = TouchedFiles { directory: Some(directory.to_owned()), ..TouchedFiles::default() };
        let mut waiting = vec![(directory.to_owned(), 0)];
        let mut seen = 0;
        while let Some((directory, depth)) = waiting.pop() {
            // What cannot be looked at is the removal's to report.
            let listed = self.host.list(&directory, ListedNames::All(MAX_ENTRIES)).ok().flatten();
            for entry in listed.unwrap_or_default() {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return touched;
                }
                let path = format!("{directory}/{}", entry.name);
                match entry.kind {
                    ListedKind::File => touched.add(path, FilePrivacy::ByMode { declared: None }),
                    ListedKind::Directory if depth < MAX_DEPTH => waiting.push((path, depth + 1)),
                    ListedKind::Directory | ListedKind::Symlink(_) | ListedKind::Other => {}
                }
            }
        }
        touched
    }
}

/// The files of a tree that a change from one state to another overwrites or removes.
fn tree_files(spec: &TreeSpec, now: &Fields, to: Option<&Fields>) -> TouchedFiles {
    let mut touched = TouchedFiles { directory: Some(spec.path.clone()), ..TouchedFiles::default() };
    let (tree, privacy) = (FileTree::of(spec), FilePrivacy::ByMode { declared: spec.file_mode });
    for (name, text) in now {
        let changes = match to {
            Some(to) => to.get(name).is_some_and(|wanted| wanted != text),
            None => true,
        };
        if changes && matches!(TreeEntry::read(text), Some(TreeEntry::File { .. })) {
            touched.add(tree.path_of(name), privacy);
        }
    }
    touched
}

/// The files of an archive that are not as they were unpacked: of the others the archive has the content.
fn edited_members(kinds: &Kinds, spec: &ArchiveSpec, now: &Fields) -> TouchedFiles {
    let mut touched = TouchedFiles { directory: Some(spec.path.clone()), ..TouchedFiles::default() };
    let (tree, privacy) = (FileTree::of_archive(spec), FilePrivacy::ByMode { declared: spec.file_mode });
    let unpacked = archive::remembered(kinds, spec).ok().flatten().unwrap_or_default();
    for (name, text) in now.iter().filter(|(name, text)| unpacked.get(*name) != Some(text)) {
        if matches!(TreeEntry::read(text), Some(TreeEntry::File { .. })) {
            touched.add(tree.path_of(name), privacy);
        }
    }
    touched
}

/// Adds the files that have the names of members of an archive which was not unpacked there before.
fn add_overwritten(
    kinds: &Kinds,
    spec: &ArchiveSpec,
    touched: &mut TouchedFiles,
    timeout: Duration,
) -> Result<(), String> {
    let names = archive::overwritten(kinds, spec, timeout)?;
    let (tree, privacy) = (FileTree::of_archive(spec), FilePrivacy::ByMode { declared: spec.file_mode });
    let known: BTreeSet<String> = touched.files.iter().map(|file| file.path.clone()).collect_inserting();
    for path in names.iter().map(|name| tree.path_of(name)).filter(|path| !known.contains(path)) {
        touched.add(path, privacy);
    }
    Ok(())
}

/// The files of a unit's own: those that are declared, and those that it has now.
fn unit_files(spec: &UnitSpec, now: Option<&Fields>) -> Vec<String> {
    let declared: BTreeSet<String> = spec.files.values().map(|file| file.path.clone()).collect_inserting();
    let drop_ins = now.into_iter().flatten().filter(|(_, text)| !text.is_empty());
    let drop_ins = drop_ins.filter(|(name, _)| name.starts_with(DROP_IN_TEXT));
    let extra = drop_ins.filter_map(|(name, _)| spec.file_path(name));
    declared.into_iter().chain(extra).collect_inserting::<BTreeSet<String>>().into_iter().collect()
}
