//! Where each object lies: what is in memory of it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use model::ObjectKey;
use model::object::SectionKey;
use model::sort::SortCompactly;
use sync::Side;

use crate::segmented::Location;

/// The newest record of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) at: Location,
    /// It is an object and no tombstone.
    pub(super) live: bool,
    pub(super) rev: u64,
}

/// A record that counts, and what it is of.
pub(super) type Alive = (Side, ObjectKey, IndexEntry);

type Section = BTreeMap<Arc<str>, IndexEntry>;

/// Where all objects and tombstones are, the names shared with whoever wrote them.
#[derive(Debug, Default)]
pub(super) struct ObjectIndex {
    sides: [BTreeMap<SectionKey, Section>; 2],
    /// Tombstones by revision.
    graves: BTreeMap<u64, ObjectKey>,
    /// Bytes of records that count: of the feed, of the replica.
    live: [u64; 2],
    /// Bytes of records that count, by segment.
    live_in: BTreeMap<u64, u64>,
}

impl ObjectIndex {
    pub(super) fn get(&self, side: Side, key: &ObjectKey) -> Option<&IndexEntry> {
        self.sides[side as usize].get(&key.section)?.get(&*key.name)
    }

    /// Bytes of records of one set that count.
    pub(super) fn live(&self, side: Side) -> u64 {
        self.live[side as usize]
    }

    /// Bytes of records of a segment that count.
    pub(super) fn live_in(&self, segment: u64) -> u64 {
        self.live_in.get(&segment).copied().unwrap_or(0)
    }

    /// Puts an entry in place of the one that may be there.
    pub(super) fn insert(&mut self, side: Side, key: &ObjectKey, entry: IndexEntry) {
        let sections = &mut self.sides[side as usize];
        let before = match sections.get_mut(&key.section) {
            Some(section) => section.insert(key.name.clone(), entry),
            None => {
                let section = Section::from([(key.name.clone(), entry)]);
                sections.insert(key.section.clone(), section);
                None
            }
        };
        if let Some(before) = before {
            self.dead(side, &before);
        }
        self.live[side as usize] += u64::from(entry.at.length);
        *self.live_in.entry(entry.at.segment).or_default() += u64::from(entry.at.length);
        if !entry.live {
            self.graves.insert(entry.rev, key.clone());
        }
    }

    pub(super) fn remove(&mut self, side: Side, key: &ObjectKey) {
        let sections = &mut self.sides[side as usize];
        let Some(section) = sections.get_mut(&key.section) else { return };
        let before = section.remove(&*key.name);
        if section.is_empty() {
            sections.remove(&key.section);
        }
        if let Some(before) = before {
            self.dead(side, &before);
        }
    }

    /// A record does not count any more.
    fn dead(&mut self, side: Side, entry: &IndexEntry) {
        let length = u64::from(entry.at.length);
        self.live[side as usize] -= length;
        if let Some(live) = self.live_in.get_mut(&entry.at.segment) {
            *live -= length;
            if *live == 0 {
                self.live_in.remove(&entry.at.segment);
            }
        }
        if !entry.live {
            self.graves.remove(&entry.rev);
        }
    }

    /// Forgets a whole set.
    pub(super) fn clear(&mut self, side: Side) {
        let sections = std::mem::take(&mut self.sides[side as usize]);
        for entry in sections.into_values().flat_map(BTreeMap::into_values) {
            self.dead(side, &entry);
        }
    }

    /// Forgets tombstones up to a revision.
    pub(super) fn forget_graves(&mut self, compacted: u64) {
        let kept = self.graves.split_off(&compacted.saturating_add(1));
        for key in std::mem::replace(&mut self.graves, kept).into_values() {
            self.remove(Side::Feed, &key);
        }
    }

    /// What counts in some segments, in the order in which it lies there.
    pub(super) fn alive_in(&self, segments: RangeInclusive<u64>) -> Vec<Alive> {
        let mut alive = Vec::new();
        for side in [Side::Feed, Side::Replica] {
            for (section, names) in &self.sides[side as usize] {
                for (name, entry) in names.iter().filter(|(_, entry)| segments.contains(&entry.at.segment)) {
                    let key = ObjectKey { section: section.clone(), name: name.clone() };
                    alive.push((side, key, *entry));
                }
            }
        }
        alive.sort_compactly_by_key(|(_, _, entry)| (entry.at.segment, entry.at.offset));
        alive
    }
}
