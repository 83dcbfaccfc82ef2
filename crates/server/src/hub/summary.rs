//! [`SyncSummary`]: what the control plane knows of one node's synchronization without loading its
//! sets. It is always in memory, so that the status of a whole fleet reads no database.
//!
//! ```text
//! feed changed --> head, down ----+
//! node acknowledged --> acked ----+--> objects_behind, actions_behind
//! replica written --> up ---------+                                   \
//! node rejected an object --> rejected -----------------------------+--> condition (condition.rs)
//! link opened, compared, ended --> link, concluded -----------------+
//! operator asked --> wants --+
//! behind, unconfirmed -------+--> wants_link --> stream_requested of the next check-in
//! ```
//!
//! Invariants: `concluded` is the outcome of a comparison that went to its end, or that one was
//! broken off, and never says more than a link saw (CNV-3). What counts after a restart (`acked`,
//! `concluded`) is marked unsaved until the store has it. What a link says of the sets counts while it
//! is the node's last one, or an exchange. Actions are no objects: a node that lacks only actions is
//! not behind (SYN-6).

mod condition;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::condition::{NodeProblem, Rejection, SyncCause, SyncCondition};
use model::replication::TransportKind;
use model::{Kind, NodeId, ObjectKey, Timestamp};
use store::{SyncHead, SyncProgress};
use sync::{Feed, FeedCursor, Frame};
use tokio::time::Instant;

pub(crate) use condition::ConditionContext;

use super::link::{LinkCommand, LinkReport, NodeLink, Wants};

/// The most rejections that are remembered of one node.
const MAX_REJECTED: usize = 100;
/// How long a second agent is shown after it came last: three times as long as it stays away.
const DUPLICATE_SHOWN: Duration = Duration::from_secs(900);

/// What is known of one node's sets without loading them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncSummary {
    /// The end of the feed that the control plane authors.
    head: Option<FeedCursor>,
    /// How far the node acknowledged it.
    pub(crate) acked: Option<FeedCursor>,
    /// What is in the feed: objects, and actions.
    down: u64,
    /// How many of it are actions.
    actions: u64,
    /// How many changes of objects the node lacks, while it has the feed's incarnation; an upper bound.
    lacks: u64,
    /// Objects of the replica of the node's feed.
    pub(crate) up: u64,
    /// What the last comparison of the sets came to.
    concluded: Option<SyncCondition>,
    /// Since when the node is behind.
    behind_since: Option<Timestamp>,
    /// When a second agent came last under this identity.
    pub(crate) duplicate: Option<Instant>,
    /// Objects of ours that the node does not take, and why; of very many only some.
    pub(crate) rejected: BTreeMap<ObjectKey, Rejection>,
    /// What the node says is wrong where its objects live.
    pub(crate) node_problem: Option<NodeProblem>,
    wants: Wants,
    /// An exchange took the wants to heart at this end.
    wants_begun: bool,
    /// The link that the node has.
    pub(crate) link: Option<Arc<NodeLink>>,
    /// A comparison is wanted: the last one was with another instance of the control plane, or
    /// was broken off.
    unconfirmed: bool,
    /// `acked` is from before this instance of the control plane, and may be a backup's: a node may lack since
    /// what it acknowledged then.
    acked_before: bool,
    /// The store does not have `acked` and `concluded` as they are.
    pub(super) unsaved: bool,
}

impl SyncSummary {
    /// What the store knows, and the actions in the feed by the revisions of their last changes.
    pub(super) fn restored(head: SyncHead, actions: &[u64]) -> SyncSummary {
        let mut summary = SyncSummary {
            actions: actions.len() as u64,
            head: head.feed,
            acked_before: head.acked.is_some(),
            acked: head.acked,
            down: head.feed_objects,
            up: head.replica_objects,
            // The data may be a backup's: only a comparison with this instance counts (CNV-3).
            unconfirmed: head.condition.as_ref().is_some_and(|it| it.cause.evidence().is_some()),
            concluded: head.condition,
            ..SyncSummary::default()
        };
        let behind = summary.behind();
        summary.behind_since = (behind > 0).then_some(head.changed);
        let acked = summary.acked.as_ref().map_or(0, |acked| acked.revision);
        summary.lacks = behind.saturating_sub(actions.iter().filter(|rev| **rev > acked).count() as u64);
        summary
    }

    /// How far the node acknowledged our feed as it is numbered now.
    fn acked_revision(&self) -> Option<u64> {
        let head = self.head.as_ref()?;
        self.acked.as_ref().filter(|acked| acked.incarnation == head.incarnation).map(|acked| acked.revision)
    }

    /// By how many changes the node is behind our feed, actions included; an upper bound.
    pub(crate) fn behind(&self) -> u64 {
        self.acked_revision().map_or(self.down, |acked| self.revision().saturating_sub(acked))
    }

    /// How many of the changes by which the node is behind are of actions.
    pub(crate) fn actions_behind(&self) -> u64 {
        self.behind().saturating_sub(self.objects_behind())
    }

    /// By how many changes of objects the node is behind our feed; an upper bound.
    pub(crate) fn objects_behind(&self) -> u64 {
        self.acked_revision().map_or_else(|| self.objects_down(), |_| self.lacks)
    }

    /// Objects that go down.
    pub(crate) fn objects_down(&self) -> u64 {
        self.down.saturating_sub(self.actions)
    }

    /// There are objects or actions in one of its sets.
    pub(crate) fn has_objects(&self) -> bool {
        self.down + self.up > 0
    }

    /// Its sets differ, and stay so without help.
    pub(super) fn is_out_of_sync(&self) -> bool {
        let concluded = self.concluded.as_ref();
        !self.rejected.is_empty()
            || self.node_problem.is_some()
            || concluded.is_some_and(|it| matches!(it.cause, SyncCause::OutOfSync { .. }))
    }

    /// Whether the node has our change of this revision; `None` while only an instance before this one knows.
    pub(crate) fn has(&self, revision: u64) -> Option<bool> {
        let has = self.acked_revision().is_some_and(|acked| acked >= revision);
        (!has || !self.acked_before).then_some(has)
    }

    /// The node called and synchronizes: it is to compare, unless it did with this instance.
    pub(crate) fn called(&mut self, instance: &str) {
        let compared = self.concluded.as_ref().and_then(|it| it.cause.evidence());
        self.unconfirmed |= compared.is_none_or(|evidence| evidence.instance != instance);
    }

    /// Two agents come under one identity (IDN-10).
    pub(super) fn is_duplicate(&self) -> bool {
        self.duplicate.is_some_and(|at| at.elapsed() < DUPLICATE_SHOWN)
    }

    /// Something waits that a link is needed for (SYN-10): changes, an operator's word, or a
    /// comparison with this instance of the control plane.
    pub(super) fn wants_link(&self) -> bool {
        self.link.is_none() && (self.behind() > 0 || self.unconfirmed || self.wants != Wants::default())
    }

    /// The last revision of the feed.
    pub(super) fn revision(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.revision)
    }

    /// The feed is loaded: now it is known how many changes of objects the node lacks.
    pub(super) fn lacks(&mut self, changes: u64) {
        self.lacks = changes.min(self.behind());
    }

    /// The feed changed: in these objects last, one change each, up to its end.
    pub(super) fn feed_changed(&mut self, feed: &Feed, keys: &[ObjectKey], now: Timestamp) {
        (self.down, self.actions) = (feed.len() as u64, feed.len_of(&Kind::new(Kind::ACTION)) as u64);
        self.lacks += keys.iter().filter(|key| !is_action(key)).count() as u64;
        // What was rejected was another version of the object, or another incarnation's.
        keys.iter().for_each(|key| drop(self.rejected.remove(key)));
        let before = self.head.replace(feed.cursor());
        if before.is_none_or(|before| before.incarnation != *feed.incarnation()) {
            self.rejected.clear();
            self.lacks = self.objects_down();
        }
        self.behind_since = (self.behind() > 0).then(|| self.behind_since.unwrap_or(now));
    }

    /// A link reports this, and reported `before` last. Of objects it says nothing when it synchronizes
    /// none.
    pub(super) fn reported(
        &mut self,
        link: &Arc<NodeLink>,
        report: LinkReport,
        before: LinkReport,
        now: Timestamp,
    ) {
        let LinkReport { cause, acked, objects, rejected } = report;
        let is_post = link.transport == TransportKind::Poll;
        // What a link says of the sets counts while it is the node's, and that of its one post at a time.
        if link.synchronizes() && (is_post || self.is_linked_by(link)) {
            self.observed(&cause, now);
        }
        // What is posted is the way up of the node's stream.
        if let Some(stream) = self.link.as_ref().filter(|_| is_post) {
            stream.report().cause = cause;
        }
        if let Some(acked) = acked {
            self.acknowledged(acked);
        }
        if let Some(count) = rejected.filter(|_| rejected != before.rejected) {
            self.rejects_still(count);
        }
        self.up = objects;
    }

    /// The node has our feed durably up to here.
    fn acknowledged(&mut self, cursor: FeedCursor) {
        if self.acked.as_ref() == Some(&cursor) {
            return;
        }
        (self.acked, self.unsaved) = (Some(cursor), true);
        self.lacks(self.lacks);
        if self.behind() == 0 {
            self.behind_since = None;
        }
    }

    /// The node does not take an object of the feed; whether that is new.
    pub(crate) fn reject(&mut self, key: ObjectKey, rejection: Rejection) -> bool {
        if self.rejected.len() >= MAX_REJECTED && !self.rejected.contains_key(&key) {
            return false;
        }
        let code = rejection.code.clone();
        self.rejected.insert(key, rejection).is_none_or(|before| before.code != code)
    }

    /// The node rejects so many objects now: if what it rejects for good is as many, it has taken
    /// what it could not take for a while.
    fn rejects_still(&mut self, count: u64) {
        if count == 0 {
            self.rejected.clear();
        }
        let lasts = |rejection: &Rejection| rejection.code != sync::refusal::FAILS;
        if self.rejected.values().filter(|rejection| lasts(rejection)).count() as u64 >= count {
            self.rejected.retain(|_, rejection| lasts(rejection));
        }
    }

    fn observed(&mut self, cause: &SyncCause, now: Timestamp) {
        match cause {
            SyncCause::InSync(_) => self.unconfirmed = false,
            SyncCause::OutOfSync { .. } => {}
            _ => return,
        }
        self.acked_before = false;
        self.conclude(cause.clone(), now);
    }

    fn conclude(&mut self, cause: SyncCause, now: Timestamp) {
        let before = self.concluded.as_ref();
        if before.is_some_and(|before| before.cause == cause) {
            return;
        }
        // A newer comparison with the same outcome does not begin the condition anew.
        let same = before.filter(|before| before.cause.reason() == cause.reason());
        let since = same.and_then(|before| before.since).unwrap_or(now);
        self.concluded = Some(SyncCondition::new(cause, Some(since)));
        self.unsaved = true;
    }

    /// The link is the one that the node has.
    fn is_linked_by(&self, link: &Arc<NodeLink>) -> bool {
        self.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, link))
    }

    /// Changes of objects are under way on a link that sees both sets so.
    fn moves_objects(&self, cause: &SyncCause) -> bool {
        let actions = self.actions_behind();
        matches!(cause, SyncCause::Behind { down, up, .. } if down.saturating_add(*up) > actions)
    }

    /// The link is gone; a newer one stays.
    pub(super) fn link_closed(&mut self, link: &Arc<NodeLink>, now: Timestamp) {
        if !self.is_linked_by(link) {
            return;
        }
        self.link = None;
        // Something was under way: what came of it is not known, and another link is to say.
        let cause = link.report().cause.clone();
        let moved = self.moves_objects(&cause) || cause == SyncCause::Comparing && link.synchronizes();
        self.unconfirmed |= moved;
        let was_in_sync = matches!(&self.concluded, Some(it) if matches!(it.cause, SyncCause::InSync(_)));
        if moved && was_in_sync {
            self.conclude(SyncCause::Interrupted, now);
        }
    }

    /// The node said hello on the link: the link gets what operators asked for.
    pub(crate) fn link_met(&mut self, link: &Arc<NodeLink>) {
        if link.transport == TransportKind::Poll {
            return;
        }
        link.meets();
        // Nothing is compared on it, and no other one is to be asked for.
        self.unconfirmed &= link.synchronizes();
        if self.is_linked_by(link) {
            self.send_wants(link);
        }
    }

    /// The link gets what operators asked for, as far as it has room for it now.
    fn send_wants(&mut self, link: &NodeLink) {
        let Wants { resync, approve } = self.wants;
        self.wants.approve = approve && !link.commands.try_send(LinkCommand::Approve);
        self.wants.resync = resync && !link.commands.try_send(LinkCommand::Resync);
    }

    /// An operator asks for something; `true` when a link took the command.
    pub(crate) fn want(&mut self, wants: Wants) -> bool {
        self.wants.resync |= wants.resync;
        self.wants.approve |= wants.approve;
        self.wants_begun = false;
        match self.link.clone() {
            // Before the hello no command reaches the node.
            Some(link) if link.has_met() => self.send_wants(&link),
            // Server-sent events bring a post, whose answer passes it on.
            Some(link) if link.transport == TransportKind::Sse => {
                link.commands.try_send(LinkCommand::Send(Box::new(Frame::StateUpdated)));
            }
            _ => {}
        }
        self.wants == Wants::default()
    }

    /// What operators asked for, for an exchange: at this end it counts with the first one alone, and it
    /// is sent to the node until an answer with it went out.
    pub(crate) fn wants_of_exchange(&mut self) -> Vec<LinkCommand> {
        let Wants { resync, approve } = self.wants;
        let first = !std::mem::replace(&mut self.wants_begun, resync || approve);
        let wants = [
            (resync, LinkCommand::Resync, Wants::resync_frame()),
            (approve, LinkCommand::Approve, Frame::Approve),
        ];
        let wants = wants.into_iter().filter(|(wanted, ..)| *wanted);
        wants.map(|(_, begin, say)| if first { begin } else { LinkCommand::Send(Box::new(say)) }).collect()
    }

    /// These frames were sent to the node, those among them that pass on what operators asked for.
    pub(crate) fn passed_on(&mut self, frames: &[Frame]) {
        self.wants.resync &= !frames.contains(&Wants::resync_frame());
        self.wants.approve &= !frames.contains(&Frame::Approve);
    }

    /// How far the node acknowledged and what the last comparison came to, when the store does not have
    /// it so.
    pub(super) fn take_unsaved(&mut self, node: &NodeId) -> Option<SyncProgress> {
        std::mem::take(&mut self.unsaved).then(|| SyncProgress {
            node: node.clone(),
            acked: self.acked.clone(),
            condition: self.concluded.clone(),
        })
    }
}

/// It is an action, not an object.
pub(super) fn is_action(key: &ObjectKey) -> bool {
    key.section.kind.as_str() == Kind::ACTION
}
