//! What a resync takes out: objects that are here and not at the source.

use std::collections::BTreeSet;

use model::ObjectKey;
use model::replication::SyncPolicy;
use model::sort::SortCompactly;

use super::super::outbox::order_of;
use super::super::types::Note;
use super::super::{Cx, Link};
use super::{APPROVED_FOR, Approval};

impl Link {
    /// Deletes orphans, or keeps them all when they are too many to go unasked.
    pub(super) fn take_orphans(&mut self, orphans: BTreeSet<ObjectKey>, rev: u64, cx: &mut Cx<'_>) {
        let kinds = &self.config.kinds;
        let counts = |key: &ObjectKey| kinds.contains(&key.section.kind);
        let many = orphans.iter().filter(|key| counts(key)).count();
        let all = cx.replica.objects().filter(|(key, _)| counts(key)).count();
        let share = usize::from(self.config.max_delete_percent);
        let mass = many >= SyncPolicy::FEW_ORPHANS && many * 100 > share * all;
        let approved = self.resync.approved.take();
        let counts = |approval: &Approval| !approval.compared || cx.now.since(approval.at) < APPROVED_FOR;
        if !mass {
            let began = self.resync.began;
            self.resync.approved =
                approved.map(|one| Approval { compared: one.compared || began >= one.at, ..one });
        } else if !approved.as_ref().is_some_and(counts) {
            self.resync.kept = Some((many, all));
            // The source gets a frame: it would take the sets for equal.
            self.inbox.ack_due = true;
            self.note_resynced(0, orphans.len(), cx);
            return;
        }
        self.inbox.ack_due |= self.resync.kept.take().is_some();
        let mut orphans: Vec<ObjectKey> = orphans.into_iter().collect();
        orphans.sort_compactly_by_key(|key| std::cmp::Reverse(order_of(key, kinds)));
        self.note_resynced(orphans.len(), 0, cx);
        for key in orphans {
            self.delete_orphan(key, rev, cx);
        }
    }

    fn note_resynced(&mut self, deleted: usize, kept: usize, cx: &mut Cx<'_>) {
        let (frames, fetched) = (self.resync.frames, self.resync.fetched);
        let took = cx.now.since(self.resync.began);
        self.note_some(Note::Resynced { frames, fetched, deleted, kept, took }, cx);
    }
}
