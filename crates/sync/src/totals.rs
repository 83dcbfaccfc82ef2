//! [`SetIndex`]: what a feed and a replica keep of their objects besides them; [`Room`]: what may be
//! added to them.
//!
//! ```text
//! object changed --> SetIndex: objects, bytes, sections, and the trie, worked out when it is looked at
//!                        |
//!                        +--> Room: the same with what is planned, within limits
//! ```

use std::collections::{BTreeMap, BTreeSet};

use model::set::MAX_SECTIONS;
use model::{ObjectKey, ObjectSet, SectionKey, Stub};

/// The most changes that wait to be worked into the set; then all are, in one go.
const MAX_UNSETTLED: usize = 8192;

/// Objects, and bytes of their contents together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many objects.
    pub objects: usize,
    /// Bytes of their contents.
    pub bytes: u64,
}

impl Totals {
    /// An object is of another size; `None` where it is not there.
    fn replace(&mut self, old: Option<u64>, new: Option<u64>) {
        self.objects = self.objects + usize::from(new.is_some()) - usize::from(old.is_some());
        self.bytes = self.bytes.saturating_add(new.unwrap_or(0)).saturating_sub(old.unwrap_or(0));
    }
}

/// The totals of a set, and its trie.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetIndex {
    pub totals: Totals,
    /// Objects of each section.
    sections: BTreeMap<SectionKey, usize>,
    set: ObjectSet,
    /// Objects that changed since the set was looked at.
    unsettled: Vec<ObjectKey>,
}

impl SetIndex {
    /// An object changed its size; `None` where it is not there.
    pub fn replace(&mut self, section: &SectionKey, old: Option<u64>, new: Option<u64>) {
        self.totals.replace(old, new);
        match (self.sections.get_mut(section), old, new) {
            (Some(count), None, Some(_)) => *count += 1,
            (None, None, Some(_)) => drop(self.sections.insert(section.clone(), 1)),
            (Some(count), Some(_), None) => {
                *count -= 1;
                if *count == 0 {
                    self.sections.remove(section);
                }
            }
            _ => {}
        }
    }

    /// An object is to be worked into the set; whether that is to be done now, for many.
    pub fn changed(&mut self, key: ObjectKey) -> bool {
        self.unsettled.push(key);
        self.unsettled.len() > MAX_UNSETTLED
    }

    /// The set; `now` has what changed objects are.
    pub fn set(&mut self, now: impl Fn(&ObjectKey) -> Option<Stub>) -> &ObjectSet {
        if !self.unsettled.is_empty() {
            let keys = std::mem::take(&mut self.unsettled);
            self.set.edit_all(keys.into_iter().map(|key| {
                let stub = now(&key);
                (key, stub)
            }));
        }
        &self.set
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Room for more.
    pub fn room(&self) -> Room {
        Room { totals: self.totals, begun: BTreeSet::new() }
    }
}

/// Why an object has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    #[error("a set has at most {MAX_SECTIONS} kinds and namespaces")]
    Sections,
    #[error("a replica has at most {0} objects")]
    Objects(usize),
    #[error("the objects of a replica hold at most {0} bytes together")]
    Bytes(u64),
}

/// A set as it is with what is planned.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub totals: Totals,
    /// Sections that begin with what is planned.
    begun: BTreeSet<SectionKey>,
}

impl Room {
    /// Plans that an object of this size is put in place of an old one. One that does not grow has
    /// room also where there is too much already.
    ///
    /// # Errors
    /// When there is no room for it within `most`, or its section would be one too many.
    pub fn put(
        &mut self,
        index: &SetIndex,
        section: &SectionKey,
        (old, new): (Option<u64>, u64),
        most: Totals,
    ) -> Result<(), NoRoom> {
        let begins = !index.sections.contains_key(section) && !self.begun.contains(section);
        if begins && index.sections.len() + self.begun.len() >= MAX_SECTIONS {
            return Err(NoRoom::Sections);
        }
        let mut totals = self.totals;
        totals.replace(old, Some(new));
        if old.is_none() && totals.objects > most.objects {
            return Err(NoRoom::Objects(most.objects));
        }
        if old.is_none_or(|old| old < new) && totals.bytes > most.bytes {
            return Err(NoRoom::Bytes(most.bytes));
        }
        self.totals = totals;
        if begins {
            self.begun.insert(section.clone());
        }
        Ok(())
    }

    /// Plans that an object of this size is taken out.
    pub fn remove(&mut self, old: u64) {
        self.totals.replace(Some(old), None);
    }
}
