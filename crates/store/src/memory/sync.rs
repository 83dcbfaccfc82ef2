//! Synchronization: the two sets of each node.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::condition::SyncCondition;
use model::{Incarnation, NodeId, ObjectKey, Stub, Timestamp};
use sync::FeedCursor;
use sync::feed::{Change, SavedFeed, State as Now};
use sync::{Content, Saved, SavedReplica, Side, Write};

use super::State;
use crate::error::{Result, StoreError};
use crate::objects::{ObjectFilter, ObjectPlace, ObjectRecord, SyncHead};

/// What is kept of one node.
#[derive(Debug, Default)]
pub(super) struct Sets {
    incarnation: Option<Incarnation>,
    head: u64,
    compacted: u64,
    ours: BTreeMap<ObjectKey, (u64, Now, Option<Content>)>,
    theirs: BTreeMap<ObjectKey, (Stub, u64, Content)>,
    cursor: Option<FeedCursor>,
    acked: Option<FeedCursor>,
    condition: Option<SyncCondition>,
    changed: Timestamp,
}

impl Sets {
    fn write(&mut self, write: Write, now: Timestamp) -> Result<()> {
        let head = write.check(self.incarnation.as_ref().map(|_| self.head)).map_err(StoreError::Unsound)?;
        if let Some(incarnation) = write.found {
            (self.incarnation, self.compacted, self.acked) = (Some(incarnation), 0, None);
            self.ours.clear();
        }
        if write.forget_theirs {
            self.theirs.clear();
            self.cursor = None;
        }
        self.head = head.unwrap_or(0);
        for (change, content) in write.ours {
            self.ours.insert(change.key, (change.rev, change.state, content));
        }
        if let Some(compacted) = write.compacted.filter(|compacted| *compacted > self.compacted) {
            let gone = |(rev, now, _): &(u64, Now, _)| matches!(now, Now::Gone { .. }) && *rev <= compacted;
            self.ours.retain(|_, row| !gone(row));
            self.compacted = compacted;
        }
        for (key, put) in write.theirs {
            match put {
                Some(put) => drop(self.theirs.insert(key, put)),
                None => drop(self.theirs.remove(&key)),
            }
        }
        self.cursor = write.cursor.or_else(|| self.cursor.take());
        self.changed = now;
        Ok(())
    }

    fn feed(&self) -> Option<SavedFeed> {
        let change = |(key, (rev, state, _)): (&ObjectKey, &(u64, Now, _))| Change {
            rev: *rev,
            key: key.clone(),
            state: state.clone(),
        };
        let changes = self.ours.iter().map(change).collect();
        Some(SavedFeed {
            incarnation: self.incarnation.clone()?,
            head: self.head,
            compacted: self.compacted,
            changes,
        })
    }

    fn head(&self) -> SyncHead {
        let live = |(_, now, _): &&(u64, Now, _)| matches!(now, Now::Live { .. });
        SyncHead {
            ours: self.incarnation.clone().map(|incarnation| FeedCursor::at(incarnation, self.head)),
            theirs: self.cursor.clone(),
            acked: self.acked.clone(),
            condition: self.condition.clone(),
            our_objects: self.ours.values().filter(live).count() as u64,
            their_objects: self.theirs.len() as u64,
            changed: self.changed,
        }
    }

    fn content(&self, side: Side, key: &ObjectKey) -> Option<Content> {
        match side {
            Side::Ours => self.ours.get(key).and_then(|(_, _, content)| content.clone()),
            Side::Theirs => self.theirs.get(key).map(|(_, _, content)| content.clone()),
        }
    }

    /// Live objects of one side after a key.
    fn after<'a>(
        &'a self,
        side: Side,
        after: Option<&ObjectKey>,
    ) -> Box<dyn Iterator<Item = (&'a ObjectKey, &'a Stub, u64, &'a Content)> + 'a> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::<&ObjectKey>::Unbounded);
        match side {
            Side::Ours => Box::new(self.ours.range(range).filter_map(|(key, row)| match row {
                (rev, Now::Live { stub, .. }, Some(content)) => Some((key, stub, *rev, content)),
                _ => None,
            })),
            Side::Theirs => Box::new(
                self.theirs.range(range).map(|(key, (stub, rev, content))| (key, stub, *rev, content)),
            ),
        }
    }
}

impl State {
    /// What is kept of an active node.
    fn sets(&self, node: &NodeId) -> Result<Option<&Sets>> {
        if !self.is_active(node) {
            return Err(StoreError::UnknownNode(node.clone()));
        }
        Ok(self.sync.get(node))
    }

    pub(super) fn is_active(&self, node: &NodeId) -> bool {
        self.nodes.get(node).is_some_and(|node| node.record.removed.is_none())
    }

    pub(super) fn sync_load(&self, node: &NodeId) -> Result<Saved> {
        let Some(sets) = self.sets(node)? else { return Ok(Saved::default()) };
        let object = |(key, (stub, rev, _)): (&ObjectKey, &(Stub, u64, _))| (key.clone(), stub.clone(), *rev);
        let objects = sets.theirs.iter().map(object).collect();
        Ok(Saved { feed: sets.feed(), replica: SavedReplica { cursor: sets.cursor.clone(), objects } })
    }

    pub(super) fn sync_write(&mut self, node: &NodeId, write: Write, now: Timestamp) -> Result<()> {
        self.active(node)?;
        if let Some(sets) = self.sync.get_mut(node) {
            return sets.write(write, now);
        }
        let mut sets = Sets::default();
        sets.write(write, now)?;
        self.sync.insert(node.clone(), sets);
        Ok(())
    }

    pub(super) fn sync_contents(
        &self,
        node: &NodeId,
        side: Side,
        keys: &[ObjectKey],
    ) -> Result<Vec<Option<Content>>> {
        let sets = self.sets(node)?;
        Ok(keys.iter().map(|key| sets.and_then(|sets| sets.content(side, key))).collect())
    }

    pub(super) fn sync_heads(&self) -> Vec<(NodeId, SyncHead)> {
        let active = self.sync.iter().filter(|(node, _)| self.is_active(node));
        active.map(|(node, sets)| (node.clone(), sets.head())).collect()
    }

    pub(super) fn sync_acked(&mut self, node: &NodeId, cursor: FeedCursor) {
        if !self.is_active(node) {
            return;
        }
        if let Some(sets) = self.sync.get_mut(node)
            && sets.incarnation.as_ref() == Some(&cursor.incarnation)
        {
            sets.acked = Some(cursor);
        }
    }

    pub(super) fn sync_condition(&mut self, node: &NodeId, condition: Option<SyncCondition>) {
        if self.is_active(node) {
            self.sync.entry(node.clone()).or_default().condition = condition;
        }
    }

    pub(super) fn sync_objects(
        &self,
        filter: &ObjectFilter,
        after: Option<&ObjectPlace>,
        limit: usize,
    ) -> Vec<ObjectRecord> {
        let mut page = Vec::new();
        for (node, sets) in self.sync.iter().filter(|(node, _)| self.is_active(node)) {
            if filter.node.as_ref().is_some_and(|wanted| wanted != node) {
                continue;
            }
            for side in [Side::Ours, Side::Theirs] {
                if filter.side.is_some_and(|wanted| wanted != side) {
                    continue;
                }
                let from = match after {
                    Some(place) if (&place.node, place.side) > (node, side) => continue,
                    Some(place) if (&place.node, place.side) == (node, side) => Some(&place.key),
                    _ => None,
                };
                let wanted = sets.after(side, from).filter(|(key, ..)| {
                    filter.lets(key.section.kind.as_str(), &key.section.namespace)
                        && filter.name.as_ref().is_none_or(|name| **name == *key.name)
                });
                let record = |(key, stub, rev, content): (&ObjectKey, &Stub, u64, &Content)| ObjectRecord {
                    node: node.clone(),
                    side,
                    key: key.clone(),
                    stub: stub.clone(),
                    rev,
                    at: Timestamp(content.at),
                    trace: content.trace.clone(),
                };
                let left = limit.saturating_sub(page.len());
                page.extend(wanted.take(left).map(record));
            }
        }
        page
    }

    /// Forgets the sets of removed nodes; returns how many objects they had.
    pub(super) fn prune_sets(&mut self) -> u64 {
        let nodes = &self.nodes;
        let active = |node: &NodeId| nodes.get(node).is_some_and(|node| node.record.removed.is_none());
        let mut gone = 0;
        self.sync.retain(|node, sets| {
            let keep = active(node);
            let head = sets.head();
            gone += if keep { 0 } else { head.our_objects + head.their_objects };
            keep
        });
        gone
    }
}
