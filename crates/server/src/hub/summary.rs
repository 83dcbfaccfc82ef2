//! [`SyncIndex`]: of every node that synchronizes a few words, so that the status of a whole
//! fleet loads no set.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::replication::TransportKind;
use model::{Kind, NodeId, ObjectKey};
use store::{SyncHead, Verdict};
use sync::Feed;
use sync::FeedCursor;
use tokio::time::Instant;

use super::actions::Actions;
use super::link::{LinkCommand, NodeLink, Standing, Wants};
use crate::index::FleetIndex;

/// The most refusals that are remembered of one node.
const MAX_REFUSED: usize = 100;
/// How long a second agent is shown after it came last: three times as long as it stays away.
const DUPLICATE_SHOWN: Duration = Duration::from_secs(900);

/// What is known of one node's sets without loading them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncSummary {
    /// The feed that the control plane authors.
    pub(crate) head: Option<FeedCursor>,
    /// How far the node has it.
    pub(crate) acked: Option<FeedCursor>,
    /// How far the replica of the node's feed is.
    pub(crate) theirs: Option<FeedCursor>,
    /// What is in the feed: objects that go down, and actions.
    down: u64,
    /// Which of it is actions.
    actions: Actions,
    /// Objects that came up.
    pub(crate) up: u64,
    /// What the last comparison of the sets came to; `None` while that is not known.
    pub(crate) verdict: Option<Verdict>,
    /// When a second agent came last under this identity.
    duplicate: Option<Instant>,
    /// Objects of ours that the node would not take, and why.
    pub(crate) refused: BTreeMap<ObjectKey, String>,
    /// What is to be done when there is a link.
    pub(crate) wants: Wants,
    /// The link that it has.
    pub(crate) link: Option<Arc<NodeLink>>,
    unsaved: bool,
    unjudged: bool,
}

impl SyncSummary {
    /// By how many changes the node is behind our feed, actions included; an upper bound.
    pub(crate) fn behind(&self) -> u64 {
        match (&self.head, &self.acked) {
            (None, _) => 0,
            (Some(head), Some(acked)) if head.incarnation == acked.incarnation => {
                head.revision.saturating_sub(acked.revision)
            }
            (Some(_), _) => self.down,
        }
    }

    /// How many of the changes by which the node is behind are of actions.
    pub(crate) fn actions_behind(&self) -> u64 {
        match (&self.head, &self.acked) {
            (None, _) => 0,
            (Some(head), Some(acked)) if head.incarnation == acked.incarnation => {
                self.actions.after(acked.revision)
            }
            (Some(_), _) => self.actions.live(),
        }
    }

    /// By how many changes of objects the node is behind our feed; an upper bound.
    pub(crate) fn objects_behind(&self) -> u64 {
        self.behind().saturating_sub(self.actions_behind())
    }

    /// Objects that go down.
    pub(crate) fn objects_down(&self) -> u64 {
        self.down.saturating_sub(self.actions.live())
    }

    /// The node has our change of this number.
    pub(crate) fn has(&self, rev: u64) -> bool {
        let (Some(head), Some(acked)) = (&self.head, &self.acked) else { return false };
        head.incarnation == acked.incarnation && acked.revision >= rev
    }

    /// Two agents come under one identity (IDN-10).
    pub(crate) fn is_duplicate(&self) -> bool {
        self.duplicate.is_some_and(|at| at.elapsed() < DUPLICATE_SHOWN)
    }

    fn judge(&mut self, verdict: Option<Verdict>) {
        if self.verdict != verdict {
            (self.verdict, self.unjudged) = (verdict, true);
        }
    }

    fn is_linked_by(&self, link: &Arc<NodeLink>) -> bool {
        self.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, link))
    }

    /// Something waits that wants a link (SYN-10).
    fn waits(&self) -> bool {
        self.link.is_none() && (self.behind() > 0 || self.wants != Wants::default())
    }

    fn told(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.revision)
    }
}

/// The fleet as it stands with synchronization, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Links by transport.
    pub(crate) links: BTreeMap<TransportKind, u64>,
    /// Nodes whose objects are behind.
    pub(crate) nodes_behind: u64,
    /// Changes that wait for their nodes, actions included.
    pub(crate) behind: u64,
    /// Of the node that is furthest behind.
    pub(crate) most_behind: u64,
    /// Nodes whose sets differ for good.
    pub(crate) diverged: u64,
    /// Objects that go down.
    pub(crate) down: u64,
    /// Objects that came up.
    pub(crate) up: u64,
}

/// All nodes that have sets, links or wishes.
pub(crate) struct SyncIndex {
    index: Arc<FleetIndex>,
    nodes: Mutex<HashMap<NodeId, SyncSummary>>,
}

impl SyncIndex {
    pub(super) fn new(index: Arc<FleetIndex>) -> SyncIndex {
        SyncIndex { index, nodes: Mutex::default() }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeId, SyncSummary>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how far every node is, and the actions in their feeds by the numbers of their
    /// last changes.
    pub(super) fn fill(&self, heads: Vec<(NodeId, SyncHead)>, mut actions: BTreeMap<NodeId, Vec<u64>>) {
        let mut nodes = self.nodes();
        for (node, head) in heads {
            let revs = actions.remove(&node).unwrap_or_default();
            let summary = SyncSummary {
                actions: Actions::waiting(revs),
                head: head.ours,
                acked: head.acked,
                theirs: head.theirs,
                verdict: head.verdict,
                down: head.our_objects,
                up: head.their_objects,
                ..SyncSummary::default()
            };
            self.show(&node, &summary);
            nodes.insert(node, summary);
        }
    }

    /// Tells the node's entry whether work waits. The order of locks is sync_index, slot.
    fn show(&self, id: &NodeId, summary: &SyncSummary) {
        let Some(slot) = self.index.get(id) else { return };
        let waits = summary.waits();
        let mut entry = slot.lock();
        let news = waits && (!entry.node.work_waits || entry.work_told != Some(summary.told()));
        entry.node.work_waits = waits;
        entry.work_head = summary.told();
        drop(entry);
        if news {
            slot.wake.notify_waiters();
        }
    }

    fn edit<T>(&self, id: &NodeId, edit: impl FnOnce(&mut SyncSummary) -> T) -> T {
        let mut nodes = self.nodes();
        if self.index.get(id).is_none() {
            // The last words of a removed node's link do not bring it back.
            return edit(&mut SyncSummary::default());
        }
        let summary = nodes.entry(id.clone()).or_default();
        let done = edit(summary);
        self.show(id, summary);
        done
    }

    /// What is known of a node.
    pub(crate) fn get(&self, id: &NodeId) -> SyncSummary {
        self.nodes().get(id).cloned().unwrap_or_default()
    }

    /// The link that a node has.
    pub(crate) fn link(&self, id: &NodeId) -> Option<Arc<NodeLink>> {
        self.nodes().get(id)?.link.clone()
    }

    /// The node has a link.
    pub(crate) fn has_link(&self, id: &NodeId) -> bool {
        self.nodes().get(id).is_some_and(|summary| summary.link.is_some())
    }

    /// The nodes that have objects, in the order of their ids.
    pub(crate) fn with_objects(&self) -> Vec<NodeId> {
        let nodes = self.nodes();
        let some = nodes.iter().filter(|(_, summary)| summary.down + summary.up > 0);
        let mut ids: Vec<NodeId> = some.map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids
    }

    /// Everything in numbers. Cost: the nodes that synchronize.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for summary in self.nodes().values() {
            let behind = summary.behind();
            totals.nodes_behind += u64::from(summary.objects_behind() > 0);
            totals.behind += behind;
            totals.most_behind = totals.most_behind.max(behind);
            totals.diverged += u64::from(matches!(summary.verdict, Some(Verdict::Diverged(_))));
            totals.down += summary.objects_down();
            totals.up += summary.up;
            if let Some(link) = &summary.link {
                *totals.links.entry(link.transport).or_default() += 1;
            }
        }
        totals
    }

    /// The feed is here: now it is known which of its changes are of actions.
    pub(super) fn loaded(&self, id: &NodeId, feed: &Feed) {
        let acked = self.nodes().get(id).and_then(|summary| summary.acked.clone());
        let acked = acked.filter(|acked| acked.incarnation == *feed.incarnation());
        // A feed may be long: other nodes do not wait for it.
        let actions = Actions::of(feed, acked.map_or(0, |acked| acked.revision));
        if let Some(summary) = self.nodes().get_mut(id) {
            summary.actions = actions;
        }
    }

    /// The feed changed, and these objects of it, one change each up to its head; of its actions
    /// so many came, and so many went.
    pub(super) fn changed(
        &self,
        id: &NodeId,
        head: FeedCursor,
        objects: u64,
        keys: &[ObjectKey],
        (more, fewer): (u64, u64),
    ) {
        self.edit(id, |summary| {
            let before = head.revision.saturating_sub(keys.len() as u64);
            for (rev, _) in (before + 1..).zip(keys).filter(|(_, key)| is_action(key)) {
                summary.actions.note(rev..=rev);
            }
            summary.actions.count(more, fewer);
            // What was refused was another version of the object, or another incarnation's.
            if summary.head.as_ref().is_none_or(|before| before.incarnation != head.incarnation) {
                summary.refused.clear();
            }
            if !summary.refused.is_empty() {
                keys.iter().for_each(|key| drop(summary.refused.remove(key)));
            }
            (summary.head, summary.down) = (Some(head), objects);
        });
    }

    /// The node has our feed up to here.
    pub(super) fn acked(&self, id: &NodeId, cursor: FeedCursor) {
        self.edit(id, |summary| {
            if summary.acked.as_ref() != Some(&cursor) {
                if summary.head.as_ref().is_some_and(|head| head.incarnation == cursor.incarnation) {
                    summary.actions.forget(cursor.revision);
                }
                (summary.acked, summary.unsaved) = (Some(cursor), true);
            }
        });
    }

    /// The replica is this far.
    pub(super) fn received(&self, id: &NodeId, cursor: Option<FeedCursor>, objects: u64) {
        self.edit(id, |summary| (summary.theirs, summary.up) = (cursor, objects));
    }

    /// An object of ours that the node would not take; whether that is news. Of very many only
    /// some are known.
    pub(super) fn refused(&self, id: &NodeId, key: ObjectKey, why: String) -> bool {
        self.edit(id, |summary| {
            if summary.refused.len() >= MAX_REFUSED && !summary.refused.contains_key(&key) {
                return false;
            }
            let code = code_of(&why).to_owned();
            summary.refused.insert(key, why).is_none_or(|before| code_of(&before) != code)
        })
    }

    /// The node refuses so many objects now: if what it refuses for good is as many, what it
    /// could not take for a while it took.
    pub(super) fn refused_still(&self, id: &NodeId, count: u64) {
        self.edit(id, |summary| {
            let lasts = |why: &String| code_of(why) != sync::refusal::FAILS;
            if summary.refused.values().filter(|why| lasts(why)).count() as u64 >= count {
                summary.refused.retain(|_, why| lasts(why));
            }
        });
    }

    /// The node holds all objects as our feed says.
    pub(super) fn none_refused(&self, id: &NodeId) {
        self.edit(id, |summary| summary.refused.clear());
    }

    /// A second agent came under one identity.
    pub(super) fn duplicate(&self, id: &NodeId) {
        self.edit(id, |summary| summary.duplicate = Some(Instant::now()));
    }

    /// The node's link compared the sets.
    pub(super) fn judged(&self, link: &Arc<NodeLink>, verdict: Verdict) {
        self.edit(&link.node, |summary| {
            if summary.is_linked_by(link) {
                summary.judge(Some(verdict));
            }
        });
    }

    /// The other side of a link said hello: now it can be told what operators asked for.
    pub(super) fn met(&self, link: &Arc<NodeLink>) {
        self.edit(&link.node, |summary| {
            link.meets();
            if summary.is_linked_by(link) {
                let Wants { resync, approve } = summary.wants;
                summary.wants.resync = resync && !link.tell(LinkCommand::Resync);
                summary.wants.approve = approve && !link.tell(LinkCommand::Approve);
            }
        });
    }

    /// An operator asks for something; `true` when a link was told.
    pub(super) fn want(&self, id: &NodeId, wants: Wants) -> bool {
        self.edit(id, |summary| {
            // Before the hello there is nobody who would hear it.
            let told = summary.link.as_ref().filter(|link| link.has_met()).is_some_and(|link| {
                let approved = !wants.approve || link.tell(LinkCommand::Approve);
                approved && (!wants.resync || link.tell(LinkCommand::Resync))
            });
            if !told {
                summary.wants.resync |= wants.resync;
                summary.wants.approve |= wants.approve;
            }
            told
        })
    }

    /// A link takes the place of the one before, which is returned; `false` when there is no
    /// such node (any more).
    pub(super) fn opened(&self, link: &Arc<NodeLink>) -> (bool, Option<Arc<NodeLink>>) {
        let mut nodes = self.nodes();
        // Whoever removes a node takes it out of the index first, then out of here.
        if self.index.get(&link.node).is_none() {
            return (false, None);
        }
        let summary = nodes.entry(link.node.clone()).or_default();
        let before = summary.link.replace(link.clone());
        if let Some(before) = &before {
            before.end("replaced", "the node opened another link");
        }
        self.show(&link.node, summary);
        (true, before)
    }

    /// A link is gone; a newer one stays.
    pub(super) fn closed(&self, link: &Arc<NodeLink>) {
        let mut nodes = self.nodes();
        // A node that was removed meanwhile does not come back by this.
        let Some(summary) = nodes.get_mut(&link.node) else { return };
        if summary.is_linked_by(link) {
            summary.link = None;
            // Something was under way: what came of it is not known.
            let moved = match link.standing() {
                Standing::Behind(changes) => changes > summary.actions_behind(),
                Standing::Resyncing => true,
                Standing::Connecting | Standing::InSync | Standing::Diverged(_) => false,
            };
            if moved && summary.verdict == Some(Verdict::InSync) {
                summary.judge(None);
            }
            self.show(&link.node, summary);
        }
    }

    /// All links that are open.
    pub(crate) fn links(&self) -> Vec<Arc<NodeLink>> {
        self.nodes().values().filter_map(|summary| summary.link.clone()).collect()
    }

    /// The node is removed.
    pub(super) fn remove(&self, id: &NodeId) -> Option<SyncSummary> {
        self.nodes().remove(id)
    }

    /// How far nodes are that said so since the last time.
    pub(super) fn take_acked(&self) -> Vec<(NodeId, FeedCursor)> {
        let mut taken = Vec::new();
        for (id, summary) in self.nodes().iter_mut().filter(|(_, summary)| summary.unsaved) {
            summary.unsaved = false;
            taken.extend(summary.acked.clone().map(|cursor| (id.clone(), cursor)));
        }
        taken
    }

    /// What comparisons came to since the last time.
    pub(super) fn take_judged(&self) -> Vec<(NodeId, Option<Verdict>)> {
        let mut taken = Vec::new();
        for (id, summary) in self.nodes().iter_mut().filter(|(_, summary)| summary.unjudged) {
            summary.unjudged = false;
            taken.push((id.clone(), summary.verdict.clone()));
        }
        taken
    }

    /// What these comparisons came to could not be persisted: it is taken again.
    pub(super) fn judge_again(&self, lost: &[(NodeId, Option<Verdict>)]) {
        let mut nodes = self.nodes();
        for (id, _) in lost {
            if let Some(summary) = nodes.get_mut(id) {
                summary.unjudged = true;
            }
        }
    }
}

/// The code with which a refusal begins.
fn code_of(why: &str) -> &str {
    why.split_once(':').map_or(why, |(code, _)| code)
}

/// It is an action, not an object.
pub(super) fn is_action(key: &ObjectKey) -> bool {
    key.section.kind.as_str() == Kind::ACTION
}
