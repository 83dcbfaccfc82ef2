//! Where each object lies: what is in memory of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ObjectKey;
use model::object::SectionKey;
use sync::Side;

use crate::segmented::Location;

/// The newest record of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Location,
    /// It is an object and no tombstone.
    pub(super) live: bool,
    pub(super) rev: u64,
}

type Section = BTreeMap<Arc<str>, Entry>;

/// Where all objects and tombstones are, the names shared with whoever wrote them.
#[derive(Debug, Default)]
pub(super) struct Index {
    ours: BTreeMap<SectionKey, Section>,
    theirs: BTreeMap<SectionKey, Section>,
    /// Tombstones by revision.
    graves: BTreeMap<u64, ObjectKey>,
    /// Bytes of records that count: in ours, in theirs.
    live: [u64; 2],
}

impl Index {
    fn side(&mut self, side: Side) -> &mut BTreeMap<SectionKey, Section> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }

    pub(super) fn get(&self, side: Side, key: &ObjectKey) -> Option<&Entry> {
        let sections = match side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        };
        sections.get(&key.section)?.get(&*key.name)
    }

    /// Bytes of records of one set that count.
    pub(super) fn live(&self, side: Side) -> u64 {
        self.live[side as usize]
    }

    /// Puts an entry; returns the one in whose place it is.
    pub(super) fn insert(&mut self, side: Side, key: &ObjectKey, entry: Entry) -> Option<Entry> {
        let sections = self.side(side);
        let before = match sections.get_mut(&key.section) {
            Some(section) => section.insert(key.name.clone(), entry),
            None => {
                let section = Section::from([(key.name.clone(), entry)]);
                sections.insert(key.section.clone(), section);
                None
            }
        };
        if let Some(before) = before {
            self.forgotten(side, &before);
        }
        self.live[side as usize] += u64::from(entry.at.length);
        if !entry.live {
            self.graves.insert(entry.rev, key.clone());
        }
        before
    }

    pub(super) fn remove(&mut self, side: Side, key: &ObjectKey) -> Option<Entry> {
        let sections = self.side(side);
        let section = sections.get_mut(&key.section)?;
        let before = section.remove(&*key.name)?;
        if section.is_empty() {
            sections.remove(&key.section);
        }
        self.forgotten(side, &before);
        Some(before)
    }

    fn forgotten(&mut self, side: Side, entry: &Entry) {
        self.live[side as usize] -= u64::from(entry.at.length);
        if !entry.live {
            self.graves.remove(&entry.rev);
        }
    }

    /// Forgets a whole set; returns what it had.
    pub(super) fn clear(&mut self, side: Side) -> Vec<Entry> {
        self.live[side as usize] = 0;
        if side == Side::Ours {
            self.graves.clear();
        }
        let sections = std::mem::take(self.side(side));
        sections.into_values().flat_map(BTreeMap::into_values).collect()
    }

    /// Forgets tombstones up to a revision; returns them.
    pub(super) fn forget_graves(&mut self, compacted: u64) -> Vec<(ObjectKey, Entry)> {
        let kept = self.graves.split_off(&compacted.saturating_add(1));
        let gone = std::mem::replace(&mut self.graves, kept);
        let entry = |key: ObjectKey| self.remove(Side::Ours, &key).map(|entry| (key, entry));
        gone.into_values().filter_map(entry).collect()
    }

    /// All entries with their keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (Side, ObjectKey, Entry)> {
        let of = |side: Side, sections: &BTreeMap<SectionKey, Section>| {
            let entries = sections.iter().flat_map(move |(section, names)| {
                names.iter().map(move |(name, entry)| {
                    (side, ObjectKey { section: section.clone(), name: name.clone() }, *entry)
                })
            });
            entries.collect::<Vec<_>>()
        };
        of(Side::Ours, &self.ours).into_iter().chain(of(Side::Theirs, &self.theirs))
    }
}
