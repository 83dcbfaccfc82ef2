//! Which corrections lead from what is found in a backend to what should be there (SYN-5).
//!
//! Pure functions. Managed: the source decides, local edits go back, local deletes are made
//! good, and what synchronization did not put there is nobody's business. Autonomous: what is
//! found is the truth, and goes into the feed; only a mass that vanishes at once is held until
//! an operator says that it is meant.

use std::collections::{BTreeMap, BTreeSet};

use model::collect::CollectInserting;
use model::replication::SyncPolicy;
use model::{Digest, ObjectKey, Stub};

use crate::backend::{FoundObject, Listing};

/// What was put into the backend last, durably known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastApplied {
    /// What was put: with the uid at the source that it had.
    pub stub: Stub,
    /// The version that the backend gave it.
    pub version: String,
}

/// One correction in managed mode. Where none is named, nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// It was never put, or the source has changed it since: put it.
    Apply,
    /// A user's own object stands under its name: put it and mark it, the source decides.
    Adopt,
    /// What is here is of another uid of the source: the mismatch policy decides (SYN-7).
    OtherUid,
    /// Somebody edited it: put it again.
    Revert,
    /// Somebody deleted it: put it again.
    Recreate,
    /// Synchronization put it here, and the source has it no more: delete it.
    Remove,
    /// It is as wanted under another version than the recorded one: record this version.
    Record,
}

/// The corrections in managed mode, by key, towards what the source `wanted`. `same` says whether what is found is what the
/// source wants as this backend keeps it ([`crate::Backend::equivalent`]); it is asked only
/// where versions differ.
pub fn managed(
    wanted: &BTreeMap<ObjectKey, Stub>,
    applied: &BTreeMap<ObjectKey, LastApplied>,
    listing: &Listing,
    mut same: impl FnMut(&FoundObject) -> bool,
) -> BTreeMap<ObjectKey, Correction> {
    let found: BTreeMap<&ObjectKey, &FoundObject> =
        listing.objects.iter().map(|it| (&it.key, it)).collect_inserting();
    let damaged: BTreeSet<&ObjectKey> =
        listing.problems.iter().flat_map(|problem| &problem.kept).collect_inserting();
    let mut corrections = BTreeMap::new();
    for (key, wanted) in wanted {
        let last = applied.get(key);
        let correction = match found.get(key) {
            // What it was is known, but what stands there is an edit that says nothing.
            Some(found) if damaged.contains(key) && found.source_uid.as_deref() == Some(&*wanted.uid) => {
                Some(Correction::Revert)
            }
            Some(found) => present(wanted, last, found, &mut same),
            None => absent(last, listing.complete),
        };
        corrections.extend(correction.map(|correction| (key.clone(), correction)));
    }
    for (key, found) in found {
        if !wanted.contains_key(key) && found.source_uid.is_some() && !found.deleting {
            corrections.insert(key.clone(), Correction::Remove);
        }
    }
    corrections
}

fn present(
    wanted: &Stub,
    last: Option<&LastApplied>,
    found: &FoundObject,
    same: &mut impl FnMut(&FoundObject) -> bool,
) -> Option<Correction> {
    if found.deleting {
        // It can be made anew when it is gone; the backend's answer shows it.
        return None;
    }
    match &found.source_uid {
        // The mark was edited away; the object is ours all the same.
        None if last.is_some_and(|last| last.stub.uid == wanted.uid) => return Some(Correction::Revert),
        None => return Some(Correction::Adopt),
        Some(uid) if **uid != *wanted.uid => return Some(Correction::OtherUid),
        Some(_) => {}
    }
    match last {
        Some(last) if last.stub == *wanted => {
            if last.version == found.version {
                None
            } else if same(found) {
                Some(Correction::Record)
            } else {
                Some(Correction::Revert)
            }
        }
        _ if same(found) => Some(Correction::Record),
        _ => Some(Correction::Apply),
    }
}

fn absent(last: Option<&LastApplied>, complete: bool) -> Option<Correction> {
    // What could not be looked at may well be there.
    match (complete, last) {
        (false, _) => None,
        (true, Some(_)) => Some(Correction::Recreate),
        (true, None) => Some(Correction::Apply),
    }
}

/// When vanished objects are deleted without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The largest share of the feed that may go at once, in percent.
    pub max_delete_percent: u8,
    /// An operator confirmed it.
    pub confirmed: bool,
    /// No object was ever seen since the start: an empty backend may be another one, not mounted.
    pub unseen: bool,
}

/// What is to be done to the feed in autonomous mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedChanges {
    /// Put these as found: new, edited, or another object under the name (its uid differs).
    pub put: BTreeSet<ObjectKey>,
    /// Take these out.
    pub remove: BTreeSet<ObjectKey>,
    /// These vanished, and stay in the feed for now.
    pub held: Option<HeldDeletion>,
}

/// Vanished objects that are not taken for deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDeletion {
    /// Which.
    pub keys: BTreeSet<ObjectKey>,
    /// Why.
    pub why: HoldReason,
}

/// Why vanished objects are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// Something could not be looked at; they may be there.
    Incomplete,
    /// Too many at once: an operator has to confirm it.
    TooMany {
        /// How many objects the feed has.
        of: usize,
    },
}

/// What leads from the feed to what is found, in autonomous mode. The caller leaves kinds
/// that are not synchronized out of both.
pub fn autonomous(feed: &BTreeMap<ObjectKey, Stub>, listing: &Listing, guard: Guard) -> FeedChanges {
    let mut changes = FeedChanges::default();
    let mut there = BTreeSet::new();
    for found in &listing.objects {
        there.insert(&found.key);
        let unchanged = feed.get(&found.key).is_some_and(|fed| {
            fed.digest == Digest::of(&found.spec) && found.uid.as_ref().is_none_or(|uid| **uid == *fed.uid)
        });
        if !unchanged {
            changes.put.insert(found.key.clone());
        }
    }
    let vanished: BTreeSet<ObjectKey> =
        feed.keys().filter(|key| !there.contains(key)).cloned().collect_inserting();
    let why = if vanished.is_empty() {
        None
    } else if !listing.complete {
        Some(HoldReason::Incomplete)
    } else if too_many(vanished.len(), feed.len(), guard) {
        Some(HoldReason::TooMany { of: feed.len() })
    } else {
        None
    };
    match why {
        Some(why) => changes.held = Some(HeldDeletion { keys: vanished, why }),
        None => changes.remove = vanished,
    }
    changes
}

fn too_many(vanished: usize, of: usize, guard: Guard) -> bool {
    let share = usize::from(guard.max_delete_percent);
    let mass = vanished >= SyncPolicy::FEW_ORPHANS && vanished * 100 > of * share;
    !guard.confirmed && (mass || guard.unseen && vanished == of)
}
