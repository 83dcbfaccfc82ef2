//! Rollouts as operators see them.

mod named;

use std::collections::{BTreeMap, BTreeSet};

use model::{Channel, NodeId, Timestamp};
use plane::Heads;
use rollout::{
    MemberRecord, NodeExplanation, NodeRolloutState, RolloutDocument, RolloutKey, RolloutState, Rollouts,
    WaitCause,
};
use tokio::sync::MutexGuard;
use wire::Problem;

use self::named::ChannelRollouts;
pub(crate) use self::named::NamedRollout;

use super::RolloutOwner;
use super::durable::DurableRollouts;
use crate::answer::store_problem;
use crate::api::rollouts::{
    ChannelRolloutView, MAX_WAITING, NewerReleaseView, NextRolloutView, NodeRolloutView, RolloutFreezeView,
    RolloutHaltView, RolloutHistory, RolloutNodesQuery, RolloutNodesView, RolloutPauseView, RolloutView,
    RolloutWaitView, RolloutWaveView,
};
use crate::state::{ControlPlane, now};

/// How it is put what a node waits for.
pub(crate) type WaitWords = fn(&WaitCause) -> String;

/// Rollouts and their nodes in numbers.
pub(crate) struct RolloutTotals {
    pub(crate) rollouts: BTreeMap<RolloutState, i64>,
    pub(crate) nodes: BTreeMap<NodeRolloutState, i64>,
}

impl RolloutOwner {
    /// The rollouts as they are stored: after a commit that failed memory is ahead of that.
    async fn stored(&self, plane: &ControlPlane) -> Result<MutexGuard<'_, DurableRollouts>, Problem> {
        let mut rollouts = self.rollouts.lock().await;
        rollouts.load(plane).await?;
        Ok(rollouts)
    }

    /// Rollouts, those of the newest releases first; pruned ones too.
    pub(crate) async fn list(
        &self,
        plane: &ControlPlane,
        asked: RolloutHistory,
    ) -> Result<Vec<RolloutView>, Problem> {
        let stored = plane.store.rollout_documents(asked.channel.as_ref(), asked.before, asked.limit.get());
        let stored = stored.await.map_err(store_problem)?;
        let (heads, rollouts) = (plane.heads(), self.stored(plane).await?);
        let core = rollouts.core();
        let view =
            |stored: &RolloutDocument| view(core, &heads, core.document(&stored.key).unwrap_or(stored));
        Ok(stored.iter().map(view).collect())
    }

    /// One rollout, with the reasons for which its nodes wait.
    pub(crate) async fn show(&self, plane: &ControlPlane, name: &str) -> Result<RolloutView, Problem> {
        let named = self.named(plane, name, None).await?.document;
        let (heads, rollouts) = (plane.heads(), self.stored(plane).await?);
        let core = rollouts.core();
        match core.document(&named.key) {
            Some(document) => {
                Ok(RolloutView { waiting: waiting(core, document), ..view(core, &heads, document) })
            }
            None => Ok(view(core, &heads, &named)),
        }
    }

    /// The nodes of a rollout, in the order of hostnames.
    pub(crate) async fn nodes(
        &self,
        plane: &ControlPlane,
        asked: RolloutNodesQuery,
    ) -> Result<RolloutNodesView, Problem> {
        let key = self.named(plane, &asked.rollout, None).await?.document.key;
        let (from, limit) = (asked.from.unwrap_or_default(), asked.limit.get());
        let rollouts = self.stored(plane).await?;
        let core = rollouts.core();
        let is_asked = |member: &&MemberRecord| {
            member.hostname.as_str() >= from.as_str() && asked.state.is_none_or(|state| state == member.state)
        };
        let mut found: Vec<&MemberRecord> = core.members(&key).filter(is_asked).collect();
        found.sort_by(|one, other| one.hostname.cmp(&other.hostname));
        let next = found.get(limit).map(|member| member.hostname.clone());
        let nodes = found.into_iter().take(limit).filter_map(|member| node_view(core, &key, &member.node));
        Ok(RolloutNodesView { nodes: nodes.collect(), next })
    }

    /// Why a node has not changed yet, in these words; `None` of one that is in no rollout.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn explain(
        &self,
        plane: &ControlPlane,
        node: &NodeId,
        words: WaitWords,
    ) -> Result<Option<NodeRolloutView>, Problem> {
        let (heads, rollouts) = (plane.heads(), self.stored(plane).await?);
        let core = rollouts.core();
        let view = core.explain(node).map(|explained| {
            let newer = core.document(&explained.rollout).and_then(|document| newer(core, &heads, document));
            NodeRolloutView { newer, ..explained_view(core, node, explained, words) }
        });
        Ok(view)
    }

    /// How the rollout of a channel stands that runs, is halted or was the last, and the one that waits behind it; `None` of
    /// one without a node, which nobody waits for.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn of_channel(
        &self,
        plane: &ControlPlane,
        channel: &Channel,
    ) -> Result<Option<ChannelRolloutView>, Problem> {
        let rollouts = self.stored(plane).await?;
        let core = rollouts.core();
        let of_channel = ChannelRollouts::of(core, channel);
        let Some(document) = of_channel.shown() else { return Ok(None) };
        let (mut nodes, mut confirmed) = (0, 0);
        for member in core.members(&document.key) {
            nodes += 1;
            confirmed += usize::from(member.state == NodeRolloutState::Converged);
        }
        let next = of_channel.waiting.filter(|waiting| waiting.key != document.key);
        if nodes == 0 && next.is_none() {
            return Ok(None);
        }
        let by = |paused: &RolloutPauseView| format!("{} paused it at {}", paused.by, paused.at);
        let paused = paused(document);
        let paused_by = paused.as_ref().map(by);
        let halted = document.halt.as_ref().map(|halt| halt.cause.to_string());
        Ok(Some(ChannelRolloutView {
            id: document.id.clone(),
            seq: document.key.seq,
            state: document.state,
            since: document.since,
            paused,
            confirmed,
            nodes,
            cause: halted.or(paused_by).or_else(|| waits(core, document)),
            next: next.map(|next| NextRolloutView {
                id: next.id.clone(),
                seq: next.key.seq,
                since: next.since,
                waits: waits(core, next),
            }),
        }))
    }

    /// The earlier releases that nodes of a channel's newest rollout stay on.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn releases_before(
        &self,
        plane: &ControlPlane,
        channel: &Channel,
    ) -> Result<BTreeSet<u64>, Problem> {
        let rollouts = self.stored(plane).await?;
        let core = rollouts.core();
        let of_channel = core.documents().filter(|document| document.key.channel == *channel);
        let newest = of_channel.max_by_key(|document| document.key.seq);
        Ok(newest.map(|document| core.releases_before(&document.key)).unwrap_or_default())
    }

    /// In numbers, for metrics; `None` while a decision is being made durable.
    pub(crate) fn totals(&self) -> Option<RolloutTotals> {
        let rollouts = self.rollouts.try_lock().ok()?;
        let core = rollouts.core();
        let mut totals = RolloutTotals { rollouts: BTreeMap::new(), nodes: BTreeMap::new() };
        for document in core.documents() {
            *totals.rollouts.entry(document.state).or_default() += 1;
            if !matches!(document.state, RolloutState::Superseded | RolloutState::Opening) {
                for member in core.members(&document.key) {
                    *totals.nodes.entry(member.state).or_default() += 1;
                }
            }
        }
        Some(totals)
    }
}

fn paused(document: &RolloutDocument) -> Option<RolloutPauseView> {
    document.paused.as_ref().map(|paused| RolloutPauseView { by: paused.by.clone(), at: paused.at })
}

fn waits(core: &Rollouts, document: &RolloutDocument) -> Option<String> {
    let wait = core.waits_to_begin(&document.key).filter(|_| document.state == RolloutState::Opening)?;
    Some(WaitCause::from(wait).to_string())
}

/// The newest release of a rollout's channel, where it is a later one than the rollout's.
fn newer(core: &Rollouts, heads: &Heads, document: &RolloutDocument) -> Option<NewerReleaseView> {
    let channel = &document.key.channel;
    let head = heads.channels.get(channel).filter(|head| head.header.seq > document.key.seq)?;
    let seq = head.header.seq;
    let rollout = core.document(&RolloutKey { channel: channel.clone(), seq });
    Some(NewerReleaseView {
        seq,
        at_once: head.header.rollout.is_none(),
        rollout: rollout.map(|rollout| rollout.id.clone()),
        state: rollout.map(|rollout| rollout.state),
        waits: rollout.and_then(|rollout| waits(core, rollout)),
    })
}

/// The freeze window that keeps a rollout that runs from starting nodes.
fn frozen(core: &Rollouts, document: &RolloutDocument, now: Timestamp) -> Option<RolloutFreezeView> {
    // One that is through starts those who come late.
    let waits = || core.members(&document.key).any(|member| member.state == NodeRolloutState::Pending);
    let may_start = document.state.is_running() || document.state.starts_nodes() && waits();
    let rules = core.rules(&document.key).filter(|_| may_start)?;
    let (window, open) = rules.frozen(now)?;
    let until = open.opened(now).map(|opened| opened.plus(open.length()));
    Some(RolloutFreezeView { window: window.to_owned(), until })
}

fn view(core: &Rollouts, heads: &Heads, document: &RolloutDocument) -> RolloutView {
    let mut nodes = BTreeMap::new();
    let mut waves: Vec<RolloutWaveView> = match core.rules(&document.key) {
        None => Vec::new(),
        Some(rules) => (0..rules.waves())
            .map(|wave| RolloutWaveView {
                name: rules.wave_name(wave).to_owned(),
                opened: document.opened.get(wave).copied(),
                not_before: rules.not_before(wave),
                soak_secs: rules.gate(wave).soak_secs,
                nodes: BTreeMap::new(),
            })
            .collect(),
    };
    for member in core.members(&document.key) {
        *nodes.entry(member.state).or_default() += 1;
        if let Some(wave) = waves.get_mut(usize::from(member.placement.wave)) {
            *wave.nodes.entry(member.state).or_default() += 1;
        }
    }
    // The last wave that nobody declared is there for whom no other one takes.
    let declared = core.rules(&document.key).map_or(0, |rules| rules.terms().waves.len());
    if waves.len() > declared && waves.last().is_some_and(|wave| wave.nodes.is_empty()) {
        waves.pop();
    }
    RolloutView {
        id: document.id.clone(),
        channel: document.key.channel.clone(),
        seq: document.key.seq,
        published: document.published,
        state: document.state,
        since: document.since,
        was_through: document.is_through(),
        paused: paused(document),
        halt: document.halt.as_ref().map(|halt| RolloutHaltView {
            at: halt.at,
            cause: halt.cause.to_string(),
            goes_back: halt.goes_back,
            is_final: halt.cause.is_final(),
        }),
        waits: waits(core, document),
        frozen: frozen(core, document, now()),
        newer: newer(core, heads, document),
        nodes,
        waves,
        waiting: Vec::new(),
    }
}

/// Why nodes that did not begin wait, and how nodes failed, the reason of the most first.
fn waiting(core: &Rollouts, document: &RolloutDocument) -> Vec<RolloutWaitView> {
    let mut reasons = BTreeMap::<String, usize>::new();
    let stands = |member: &&MemberRecord| match member.state {
        NodeRolloutState::Pending | NodeRolloutState::Failed => true,
        NodeRolloutState::Reverted => member.failure.is_some(),
        _ => false,
    };
    for member in core.members(&document.key).filter(stands) {
        let explained = core.explain(&member.node).filter(|explained| explained.rollout == document.key);
        if let Some(cause) = explained.and_then(|explained| explained.cause) {
            *reasons.entry(cause.to_string()).or_default() += 1;
        }
    }
    let mut waiting: Vec<_> =
        reasons.into_iter().map(|(cause, nodes)| RolloutWaitView { cause, nodes }).collect();
    waiting.sort_by_key(|wait| std::cmp::Reverse(wait.nodes));
    waiting.truncate(MAX_WAITING);
    waiting
}

/// A member of a rollout: what the rollouts say of it, where this is the one that it is in now.
fn node_view(core: &Rollouts, key: &RolloutKey, node: &NodeId) -> Option<NodeRolloutView> {
    if let Some(explained) = core.explain(node).filter(|explained| explained.rollout == *key) {
        return Some(explained_view(core, node, explained, WaitCause::to_string));
    }
    let (document, member) = (core.document(key)?, core.member(key, node)?);
    let wave = core.rules(key)?.wave_name(usize::from(member.placement.wave)).to_owned();
    Some(NodeRolloutView {
        node: node.clone(),
        hostname: member.hostname.clone(),
        rollout: document.id.clone(),
        rollout_state: document.state,
        wave,
        state: member.state,
        since: member.since,
        before: member.before,
        cause: member.failure.as_ref().map(ToString::to_string),
        silent_since: None,
        boot: None,
        passed: Vec::new(),
        newer: None,
    })
}

fn explained_view(
    core: &Rollouts,
    node: &NodeId,
    explained: NodeExplanation,
    words: WaitWords,
) -> NodeRolloutView {
    let evidence = explained.evidence;
    NodeRolloutView {
        boot: evidence.as_ref().and_then(|evidence| evidence.boot.clone()),
        passed: evidence.map(|evidence| evidence.passed).unwrap_or_default(),
        node: node.clone(),
        before: core.member(&explained.rollout, node).and_then(|member| member.before),
        hostname: explained.hostname,
        rollout: explained.id,
        rollout_state: explained.rollout_state,
        wave: explained.wave,
        state: explained.state,
        since: explained.since,
        cause: explained.cause.as_ref().map(words),
        silent_since: None,
        newer: None,
    }
}
