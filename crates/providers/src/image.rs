//! `image` on a host (ROL-10).
//!
//! ```text
//! set: remove half trees -> unpack beside, each file and directory on the disk -> look at all of it
//!      -> note that it is the newest -> replace the link, in one step -> remove what is too old or too much
//! ```
//!
//! Invariants: the link leads to a tree that was unpacked to its end and looked at; a kill, or a full disk, before the link is
//! replaced leaves it as it was. A tree is forgotten before its first file is removed, so that half of one is never taken for
//! whole.

use std::time::Duration;

use catalog::types::{ARCHIVE_TEXT, Ensure, IMAGE_TARGET_TEXT, ImageSpec, is_tree_name};
use converge::JobFailure;
use converge::kinds::image::{self, ImageTree, ObservedImage};
use converge::kinds::{DEFAULT_DIRECTORY_MODE, state, tree};
use host::{ListedKind, ListedNames};
use model::collect::CollectInserting;
use model::{Edit, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::archive::remembered;
use crate::kinds::{fault, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider};

/// The most entries of a store that are looked at.
const MAX_ENTRIES: usize = 1000;

impl StateProvider for ImageSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let target = link(kinds, self)?;
        let in_use = target.as_deref().and_then(|target| self.tree_of(target)).map(str::to_owned);
        let is_declared = in_use.as_deref() == Some(self.tree_name()) && self.tree.ensure == Ensure::Present;
        let tree = match &in_use {
            Some(_) if is_declared => self.tree.observe(kinds)?.unwrap_or_default(),
            Some(name) => {
                let unpacked = unpacked(kinds, self, name)?.unwrap_or_default();
                unpacked.into_iter().filter(|(name, _)| name == ARCHIVE_TEXT).collect_inserting()
            }
            None => Fields::new(),
        };
        let known = image::in_order(order(kinds, self)?.as_ref());
        // Where it is to go and no link is left, every tree is something to remove.
        let may_stay = self.tree.ensure == Ensure::Present || target.is_some();
        let mut rest = Vec::new();
        for name in trees(kinds, self)? {
            let is_wanted = Some(&name) == in_use.as_ref()
                || (name == self.tree_name() && self.tree.ensure == Ensure::Present)
                || (may_stay
                    && known.contains(&name)
                    && image::is_whole(unpacked(kinds, self, &name)?.as_ref()));
            if !is_wanted {
                rest.push(name);
            }
        }
        if self.tree.ensure == Ensure::Absent
            && matches!(kinds.look(&self.store)?, PathState::Directory { empty: true, .. })
        {
            rest.push(".".to_owned());
        }
        Ok(ObservedImage { target, tree, rest }.state(self))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        image::desired(self, None, now)
    }

    fn desired_here(&self, kinds: &Kinds, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        image::desired(self, remembered(kinds, &self.tree)?.as_ref(), now)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { to, timeout, .. } = change;
        let target = to.and_then(|to| to.get(IMAGE_TARGET_TEXT));
        match target {
            Some(_) if self.tree.ensure == Ensure::Present => switch(kinds, self, timeout)?,
            target => take_away(kinds, self, target)?,
        }
        Ok(None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Archive
    }

    fn works_below_root(&self) -> bool {
        true
    }

    fn shown(&self, edit: Edit<Fields>) -> Edit<Fields> {
        tree::shown(edit)
    }
}

/// What the link points to; `None` where there is nothing.
fn link(kinds: &Kinds, spec: &ImageSpec) -> Result<Option<String>, String> {
    match kinds.look(&spec.path)? {
        PathState::Missing => Ok(None),
        PathState::Symlink { target } => Ok(Some(target)),
        other => Err(format!(
            "{} is no symbolic link ({}); it is left alone, move it away",
            spec.path,
            other.what()
        )),
    }
}

/// The trees that lie in the store, whole or not.
fn trees(kinds: &Kinds, spec: &ImageSpec) -> Result<Vec<String>, String> {
    match kinds.look(&spec.store)? {
        PathState::Missing => return Ok(Vec::new()),
        PathState::Directory { .. } => {}
        other => {
            return Err(format!("{} is not a directory ({}); move it away", spec.store, other.what()));
        }
    }
    let listed = kinds.host.list(&spec.store, ListedNames::All(MAX_ENTRIES)).map_err(text)?;
    let directories =
        listed.unwrap_or_default().into_iter().filter(|entry| entry.kind == ListedKind::Directory);
    Ok(directories.map(|entry| entry.name).filter(|name| is_tree_name(name)).collect())
}

fn unpacked(kinds: &Kinds, spec: &ImageSpec, tree: &str) -> Result<Option<Fields>, String> {
    let path = spec.path_of(tree);
    kinds.blobs.unpacked(&path).map_err(|error| format!("cannot read what was unpacked in {path}: {error}"))
}

/// In which order trees were switched to.
fn order(kinds: &Kinds, spec: &ImageSpec) -> Result<Option<Fields>, String> {
    let found = kinds.blobs.unpacked(&spec.store);
    found.map_err(|error| format!("cannot read which trees of {} there are: {error}", spec.path))
}

fn keep_order(kinds: &Kinds, spec: &ImageSpec, order: Option<&Fields>) -> Result<(), String> {
    let kept = kinds.blobs.keep_unpacked(&spec.store, order);
    kept.map_err(|error| format!("cannot write down which trees of {} there are: {error}", spec.path))
}

fn switch(kinds: &Kinds, spec: &ImageSpec, timeout: Duration) -> Result<(), JobFailure> {
    let target = link(kinds, spec)?;
    let in_use = target.as_deref().and_then(|target| spec.tree_of(target));
    let known = image::in_order(order(kinds, spec)?.as_ref());
    // What a return goes to is what the link leads to, whatever was noted of a switch that never reached it.
    let known = image::in_use_first(in_use, known);
    // What a run that was cut off left may be what this one has no room for.
    for name in trees(kinds, spec)? {
        let stays = name == spec.tree_name() || Some(name.as_str()) == in_use;
        let is_kept =
            stays || known.contains(&name) && image::is_whole(unpacked(kinds, spec, &name)?.as_ref());
        if !is_kept {
            discard(kinds, spec, &name)?;
        }
    }
    if kinds.look(&spec.store)? == PathState::Missing {
        let root = PathOwnership::default();
        kinds.host.make_directory(&spec.store, &root, DEFAULT_DIRECTORY_MODE).map_err(fault)?;
    }
    if in_use == Some(spec.tree_name()) {
        return complete(kinds, spec, timeout);
    }
    let was_there = image::is_whole(unpacked(kinds, spec, spec.tree_name())?.as_ref());
    let switched = complete(kinds, spec, timeout).and_then(|()| {
        keep_order(kinds, spec, Some(&image::ordered(spec.tree_name(), &known)))?;
        kinds.host.make_symlink(&spec.path, &spec.target()).map_err(fault)
    });
    if let Err(why) = switched {
        // What was made in vain would only take the room of what is tried next.
        if !was_there && let Err(error) = forget(kinds, spec, &known) {
            tracing::warn!(image = spec.path, error, "a tree that nothing leads to stays until the next run");
        }
        return Err(why);
    }
    if let Err(error) = collect(kinds, spec) {
        tracing::warn!(image = spec.path, error, "trees that nothing needs stay until the next switch");
    }
    Ok(())
}

/// Removes the tree that was made in vain; these are known as before.
fn forget(kinds: &Kinds, spec: &ImageSpec, known: &[String]) -> Result<(), String> {
    discard(kinds, spec, spec.tree_name())?;
    match known.split_first() {
        Some((newest, others)) => keep_order(kinds, spec, Some(&image::ordered(newest, others))),
        None => keep_order(kinds, spec, None),
    }
}

/// Unpacks the tree where it is not whole, and looks at all of it.
fn complete(kinds: &Kinds, spec: &ImageSpec, timeout: Duration) -> Result<(), JobFailure> {
    let left = |kinds: &Kinds| -> Result<_, String> {
        let now = spec.tree.observe(kinds)?;
        let to = spec.tree.desired_here(kinds, now.as_ref())?;
        Ok(state::difference(now.as_ref(), to.as_ref()).map(|edit| (now, to, edit)))
    };
    let Some((now, to, _)) = left(kinds)? else { return Ok(()) };
    spec.tree.set(kinds, StateChange { now: now.as_ref(), to: to.as_ref(), timeout })?;
    match left(kinds)? {
        None => Ok(()),
        Some((_, _, edit)) => {
            let left = crate::state::summary(&tree::shown(edit));
            Err(format!("the archive was unpacked, and its tree is not whole: {left}").into())
        }
    }
}

/// Removes the trees that are too old, or too much together.
fn collect(kinds: &Kinds, spec: &ImageSpec) -> Result<(), String> {
    let known = image::in_order(order(kinds, spec)?.as_ref());
    let mut sized = Vec::new();
    for name in &known {
        let bytes = unpacked(kinds, spec, name)?.as_ref().map_or(0, image::bytes_of);
        sized.push(ImageTree { name: name.clone(), bytes });
    }
    let (stay, go) = known.split_at(image::kept(&sized, spec.keep));
    for name in go {
        discard(kinds, spec, name)?;
    }
    keep_order(kinds, spec, Some(&image::ordered(spec.tree_name(), stay)))
}

/// Removes a tree of the store; before, it is forgotten.
fn discard(kinds: &Kinds, spec: &ImageSpec, tree: &str) -> Result<(), String> {
    let path = spec.path_of(tree);
    let forgotten = kinds.blobs.keep_unpacked(&path, None);
    forgotten.map_err(|error| format!("cannot forget what is unpacked in {path}: {error}"))?;
    kinds.host.remove_directory(&path, true).map(drop).map_err(text)
}

/// Takes the link away, or lets it point where it did before: to a tree of the store, beside which the others stay for a
/// return, or to what was there before there was an image; then no tree is needed.
fn take_away(kinds: &Kinds, spec: &ImageSpec, target: Option<&String>) -> Result<(), JobFailure> {
    let now = link(kinds, spec)?;
    match target {
        Some(target) => kinds.host.make_symlink(&spec.path, target).map_err(fault)?,
        None if now.as_deref().is_some_and(|now| spec.tree_of(now).is_some()) => {
            kinds.host.remove_file(&spec.path).map_err(fault)?;
        }
        // Somebody else's.
        None => {}
    }
    if let Some(in_use) = target.and_then(|target| spec.tree_of(target)) {
        let known = image::in_use_first(Some(in_use), image::in_order(order(kinds, spec)?.as_ref()));
        return Ok(keep_order(kinds, spec, Some(&image::ordered(in_use, &known)))?);
    }
    for name in trees(kinds, spec)? {
        discard(kinds, spec, &name)?;
    }
    keep_order(kinds, spec, None)?;
    if let PathState::Directory { empty: true, .. } = kinds.look(&spec.store)? {
        kinds.host.remove_directory(&spec.store, false).map_err(fault)?;
    }
    Ok(())
}
