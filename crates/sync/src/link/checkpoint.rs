//! Checkpoints: where the other side's feed stands, and its root there. The roots are compared once
//! nothing is under way; a difference begins a resync. What fails again and again is laid over
//! the replica as it was sent, so that it hides no difference. A checkpoint behind events that
//! were not received ends the link. One whose cursor is beyond everything that was announced (by the
//! hello, by events, by the sections of a resync) counts as different, whatever its root: its changes
//! would be skipped.

use super::types::Note;
use super::{Cx, Link};
use crate::frame::Checkpoint;

impl Link {
    /// The other side has sent all.
    pub(super) fn checkpoint_received(&mut self, checkpoint: Checkpoint, cx: &mut Cx<'_>) {
        if checkpoint.seq != self.inbox.seq {
            return self.out_of_order(checkpoint.seq, cx);
        }
        if self.peer_incarnation.as_ref() == Some(&checkpoint.cursor.incarnation) {
            self.peer_head = self.peer_head.max(checkpoint.cursor.revision);
        }
        self.inbox.checkpoint = Some(checkpoint);
    }

    /// Compares the root, once nothing is under way.
    pub(super) fn compare_checkpoint(&mut self, cx: &mut Cx<'_>) {
        if !self.inbox.is_settled() || self.resync.is_busy() {
            return;
        }
        let Some(checkpoint) = self.inbox.checkpoint.take() else { return };
        self.inbox.ack_due = true;
        // Another incarnation begins with a proof of where it stands, which a checkpoint is not.
        let takes = !self.requires_proofs() || self.takes_changes_of(&checkpoint.cursor.incarnation, cx);
        let announced = checkpoint.cursor.revision <= self.inbox.announced;
        if takes && announced && cx.replica.root() == checkpoint.root {
            self.counters.checkpoints_equal += 1;
            cx.replica.begin_incarnation(&checkpoint.cursor.incarnation);
            // A ping may have overtaken it with a later head.
            self.inbox.verified = checkpoint.cursor.revision >= self.peer_head;
            self.inbox.complete_to(checkpoint.cursor, cx.replica.cursor());
            self.resync.succeeded();
            cx.note(Note::InSync);
        } else {
            self.counters.checkpoints_different += 1;
            self.inbox.verified = false;
            self.resync.differed();
            self.want_resync(cx);
        }
    }
}
