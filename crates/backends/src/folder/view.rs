//! [`FolderView`]: what a folder says, from what was seen of it over time. Pure: looks, texts and
//! times come in, objects go out.
//!
//! - A file counts once it has not changed for a while, or has changed for too long.
//! - A file that cannot be read as manifests keeps what it said last.
//! - A file is gone once it was missing for a while in a folder at rest; its objects count
//!   until then, after those of the files that are there.
//! - A folder that is gone, or is suddenly another and empty, says nothing new.

use std::collections::BTreeMap;

use model::ObjectKey;

use super::file::{FileRead, FolderFile, MAX_TOTAL, SETTLE};
use super::names::{self, FileRole};
use super::tree::{FileStamp, FolderIdentity, FolderLook, FolderTree};
use crate::backend::{FoundObject, Listing, ListingProblem};
use crate::manifest::Manifest;

/// The most problems that are reported one by one.
pub(crate) const MAX_PROBLEMS: usize = 100;
/// An object as published, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct PlacedObject {
    pub(crate) found: FoundObject,
    pub(crate) manifest: Manifest,
    pub(crate) path: String,
    /// Its file holds nothing else.
    pub(crate) alone: bool,
    /// Its file reads as manifests now.
    pub(crate) readable: bool,
}

/// Whether the folder is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    /// It is.
    Here,
    /// It is not, and why.
    Unusable(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FolderView {
    presence: Presence,
    /// The folder that the files are of.
    id: Option<FolderIdentity>,
    files: BTreeMap<String, FolderFile>,
    /// What could not be looked at the last time, and what was reported then.
    tree: FolderTree,
    /// When anything changed last.
    moved: u64,
    total: usize,
    objects: BTreeMap<ObjectKey, PlacedObject>,
    uids: BTreeMap<ObjectKey, String>,
    problems: Vec<ListingProblem>,
    complete: bool,
    /// What is published may not be what is here.
    stale: bool,
}

/// A file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueFile {
    pub(crate) path: String,
    /// The stamp that it must have.
    pub(crate) stamp: FileStamp,
    /// It never rests: any stamp will do.
    pub(crate) restless: bool,
}

impl FolderView {
    pub(crate) fn new() -> FolderView {
        FolderView { stale: true, ..FolderView::default() }
    }

    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// The folder that was looked at.
    pub(crate) fn id(&self) -> Option<FolderIdentity> {
        self.id
    }

    pub(crate) fn object(&self, key: &ObjectKey) -> Option<&PlacedObject> {
        self.objects.get(key)
    }

    pub(crate) fn file(&self, path: &str) -> Option<&FolderFile> {
        self.files.get(path)
    }

    pub(crate) fn listing(&self) -> Listing {
        Listing {
            objects: self.objects.values().map(|placed| placed.found.clone()).collect(),
            problems: self.problems.clone(),
            complete: self.complete,
        }
    }

    /// Something waits for time to pass.
    pub(crate) fn unsettled(&self) -> bool {
        self.files.values().any(FolderFile::unsettled)
    }

    /// Takes a look in; the files to be read now, with the stamp that they must have then.
    pub(crate) fn observe(&mut self, look: FolderLook, now: u64) -> Vec<DueFile> {
        let tree = match look {
            FolderLook::Here(tree) => tree,
            FolderLook::Unusable(why) => {
                self.gone(why);
                return Vec::new();
            }
        };
        let away = matches!(self.presence, Presence::Unusable(_));
        let other = away || self.id.is_some_and(|id| id != tree.id);
        if other && tree.files.is_empty() && !self.files.is_empty() {
            self.gone("an empty one stands in its place".to_owned());
            return Vec::new();
        }
        // At the start there is nothing to wait for: who writes now is seen to change later.
        let first = self.presence == Presence::Unknown;
        self.stale |= self.presence != Presence::Here;
        self.presence = Presence::Here;
        self.id = Some(tree.id);
        let mut due = Vec::new();
        for (path, stamp) in &tree.files {
            let Some(role) = names::role(path) else { continue };
            let file = self.files.entry(path.clone()).or_insert_with(|| FolderFile::new(role));
            let changed = file.seen(*stamp, now);
            if changed {
                self.moved = now;
            }
            self.stale |= changed;
            if file.due(now, first) {
                due.push(DueFile { path: path.clone(), stamp: *stamp, restless: file.restless(now) });
            }
        }
        for (path, file) in &mut self.files {
            if tree.files.contains_key(path) {
                continue;
            }
            if tree.blind_to(path) {
                file.missing = None;
            } else if file.missed(now) {
                self.moved = now;
            }
            self.stale = true;
        }
        self.stale |= first || tree.blind != self.tree.blind || tree.problems != self.tree.problems;
        self.tree = tree;
        due
    }

    fn gone(&mut self, why: String) {
        self.stale = true;
        self.presence = Presence::Unusable(why);
        for file in self.files.values_mut() {
            file.missing = None;
        }
    }

    /// Takes in what a file said under a stamp.
    pub(crate) fn loaded(&mut self, path: &str, stamp: FileStamp, read: FileRead) {
        let Some(file) = self.files.get_mut(path) else { return };
        let before = file.size();
        let room = MAX_TOTAL.saturating_sub(self.total - before);
        self.stale = true;
        file.loaded(path, Some(stamp), read, room);
        self.total = self.total - before + file.size();
    }

    /// A file could not be read, and will be tried again.
    pub(crate) fn not_loaded(&mut self, path: &str, problem: ListingProblem) {
        if let Some(file) = self.files.get_mut(path) {
            file.problem = Some(problem);
            self.stale = true;
        }
    }

    /// Takes in what was written here. The file is read again to be sure; until then this
    /// counts, so what comes of it is no news.
    pub(crate) fn wrote(&mut self, path: &str, stamp: Option<FileStamp>, read: FileRead) {
        let Some(role) = names::role(path) else { return };
        self.unpublish(path);
        let file = self.files.entry(path.to_owned()).or_insert_with(|| FolderFile::new(role));
        let before = file.size();
        file.loaded(path, None, read, usize::MAX);
        file.written = stamp;
        self.total = self.total - before + file.size();
        self.publish_file(path);
    }

    /// A file was removed here.
    pub(crate) fn removed(&mut self, path: &str) {
        self.unpublish(path);
        if let Some(file) = self.files.remove(path) {
            self.total -= file.size();
        }
        self.uids.retain(|key, _| self.objects.contains_key(key));
    }

    fn unpublish(&mut self, path: &str) {
        for manifest in self.files.get(path).map(|file| &file.manifests[..]).unwrap_or_default() {
            if self.objects.get(&manifest.key).is_some_and(|placed| placed.path == path) {
                self.objects.remove(&manifest.key);
                // Another file may say the same object.
                self.stale = true;
            }
        }
    }

    fn publish_file(&mut self, path: &str) {
        let Some(file) = self.files.get(path) else { return };
        let mut placed = Vec::new();
        for manifest in &file.manifests {
            if !self.objects.contains_key(&manifest.key) {
                placed.push((manifest.key.clone(), self.placed(path, file, manifest)));
            }
        }
        self.objects.extend(placed);
    }

    /// Bytes of specs that still have room.
    pub(crate) fn room(&self) -> usize {
        MAX_TOTAL.saturating_sub(self.total)
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn assign_uid(&mut self, key: &ObjectKey, uid: &str) {
        if let Some(placed) = self.objects.get_mut(key)
            && placed.manifest.uid.is_none()
        {
            placed.found.uid = Some(uid.to_owned());
            self.uids.insert(key.clone(), uid.to_owned());
        }
    }

    /// Lets go of what was missing long enough; says whether anything is different now.
    pub(crate) fn publish(&mut self, now: u64) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        if self.presence == Presence::Here {
            self.let_go(now);
        }
        let (objects, of_files) = self.collect();
        let same = |(old, new): (&PlacedObject, &PlacedObject)| old.found == new.found;
        let changed =
            objects.len() != self.objects.len() || !self.objects.values().zip(objects.values()).all(same);
        self.uids.retain(|key, _| objects.contains_key(key));
        self.objects = objects;
        let complete = self.presence == Presence::Here
            && self.tree.blind.is_empty()
            && self.files.values().all(|file| file.known || file.role == FileRole::Status);
        // What is wrong with the whole comes first: single files may be many.
        let of_folder = self.gone_problem().into_iter().chain(self.tree.problems.iter().cloned());
        let problems = bounded(of_folder.chain(of_files).collect());
        let is_news = changed || complete != self.complete || problems != self.problems;
        (self.complete, self.problems) = (complete, problems);
        is_news
    }

    /// Forgets files that have been missing long enough.
    fn let_go(&mut self, now: u64) {
        let quiet = now.saturating_sub(self.moved) >= SETTLE;
        let mut total = self.total;
        self.files.retain(|_, file| {
            let gone = file.gone(now, quiet);
            total -= if gone { file.size() } else { 0 };
            !gone
        });
        self.total = total;
    }

    /// All objects with their paths. Files that are there come before files that are
    /// missing, each in the order of their paths; the first to say an object counts.
    fn collect(&self) -> (BTreeMap<ObjectKey, PlacedObject>, Vec<ListingProblem>) {
        let mut objects: BTreeMap<ObjectKey, PlacedObject> = BTreeMap::new();
        let mut problems = Vec::new();
        let (missing, there): (Vec<_>, Vec<_>) =
            self.files.iter().partition(|(_, file)| file.missing.is_some());
        for (path, file) in there.iter().chain(&missing) {
            problems.extend(file.problem.clone());
            for manifest in &file.manifests {
                if let Some(first) = objects.get(&manifest.key) {
                    if file.missing.is_none() {
                        problems.push(twice(path, manifest, &first.path));
                    }
                    continue;
                }
                objects.insert(manifest.key.clone(), self.placed(path, file, manifest));
            }
        }
        (objects, problems)
    }

    fn placed(&self, path: &str, file: &FolderFile, manifest: &Manifest) -> PlacedObject {
        let alone = file.manifests.len() == 1;
        let beside = names::statuses(path, &manifest.key, alone);
        let beside = beside.iter().find_map(|path| self.files.get(path)?.status.clone());
        let found = FoundObject {
            key: manifest.key.clone(),
            uid: manifest.uid.clone().or_else(|| self.uids.get(&manifest.key).cloned()),
            version: manifest.version(),
            spec: manifest.spec.clone(),
            status: beside.or_else(|| manifest.status.clone()),
            source_uid: manifest.source_uid.clone(),
            deleting: false,
        };
        let readable = file.problem.is_none();
        PlacedObject { found, manifest: manifest.clone(), path: path.to_owned(), alone, readable }
    }

    fn gone_problem(&self) -> Option<ListingProblem> {
        let Presence::Unusable(why) = &self.presence else { return None };
        let message = format!(
            "the folder is not there: {why}; make or mount it, or start the agent anew if it is meant to be empty. Nothing is deleted meanwhile"
        );
        Some(ListingProblem::of("", None, "folder-gone", message))
    }
}

fn twice(path: &str, manifest: &Manifest, first: &str) -> ListingProblem {
    let message = format!("{} stands in {first} too, and counts there; remove one of them", manifest.key);
    ListingProblem::of(path, Some(manifest.line), "object-twice", message)
}

fn bounded(mut problems: Vec<ListingProblem>) -> Vec<ListingProblem> {
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    if more > 0 {
        problems.truncate(MAX_PROBLEMS);
        let message = format!("{more} more problems; mend those before them first");
        problems.push(ListingProblem::of("", None, "more-problems", message));
    }
    problems
}
