//! [`RehearsalReport`]: what a rehearsal came to.
//!
//! Times are seconds since the release was published.

use std::collections::BTreeMap;

use model::{Channel, Hostname, Timestamp};
use rollout::{HaltCause, MemberRecord, NodeRolloutState, RolloutState};
use serde::Serialize;
use trust::rollout_terms::{OnFailure, REST};

use crate::faults::{FaultShares, NodeFault};
use crate::stage::Stage;

/// The most groups of waiting nodes that are named; the rest is one more group.
const MAX_WAITING: usize = 10;

/// What a rehearsal came to.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsalReport {
    /// The channel.
    pub channel: Channel,
    /// What drew the faults; with it, the same fleet, shares and begin the report is the same.
    pub seed: u64,
    /// When the release was published, in the rehearsal.
    pub begins: Timestamp,
    /// The shares of faults that were asked for.
    pub shares: FaultShares,
    /// How many nodes these came to.
    pub faults: FaultCounts,
    /// How the rollout ended.
    pub outcome: RehearsalOutcome,
    /// When the last node changed, or the rollout ended if that was later.
    pub lasts_secs: u64,
    /// What stopped it; absent where nothing did.
    pub stop: Option<StopReport>,
    /// The most nodes in flight at a time.
    pub in_flight: InFlightPeak,
    /// The waves in their order, the implied last one included where it has nodes.
    pub waves: Vec<WaveReport>,
    /// The budgets.
    pub budgets: Vec<BudgetReport>,
    /// Nodes that are not on the release at the end and did not fail, by what they wait for; the most first.
    pub waiting: Vec<WaitingNodes>,
    /// The nodes, by hostname.
    pub nodes: Vec<NodeReport>,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RehearsalOutcome {
    /// Every gate passed.
    Through,
    /// It stopped; what was changed stays changed, but for nodes that returned by themselves.
    Halted,
    /// It stopped, and what was changed went back.
    WentBack,
    /// It stopped, and is not back.
    GoingBack,
    /// It is not through after 400 days.
    Unfinished,
}

/// How many nodes had which fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultCounts {
    /// Their probes fail.
    pub fail: usize,
    /// Of these, nodes without an enforcing probe: nothing sees that they are not well.
    pub unseen: usize,
    /// They are not reached.
    pub offline: usize,
    /// They are slow.
    pub slow: usize,
    /// The release takes the network from them.
    pub cut_off: usize,
}

/// What stopped a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopReport {
    /// When.
    pub at_secs: u64,
    /// What, as a sentence.
    pub cause: String,
    /// The wave whose gate it was.
    pub wave: String,
    /// How many of it failed.
    pub failed: u64,
    /// How many may.
    pub allowed: u64,
    /// One of them.
    pub example: Hostname,
    /// How many nodes had begun until then.
    pub begun: usize,
}

/// The most nodes in flight at a time: asked, on their way, or failed and not back.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlightPeak {
    /// How many.
    pub most: usize,
    /// When there were so many the first time; absent where there were none.
    pub at_secs: Option<u64>,
}

/// What became of a wave.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveReport {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// When it may begin at the earliest, if the terms say so.
    pub not_before: Option<Timestamp>,
    /// How long each of its nodes soaks.
    pub soak_secs: u64,
    /// Of a hundred of its nodes so many must be confirmed.
    pub success: u8,
    /// So many failures stop the rollout; absent where nothing does.
    pub stops_at: Option<usize>,
    /// When it opened; absent where it did not.
    pub opened_secs: Option<u64>,
    /// When the last of its nodes was confirmed, failed or was back.
    pub ended_secs: Option<u64>,
    /// How many are confirmed.
    pub confirmed: usize,
    /// How many failed and are on the release still.
    pub failed: usize,
    /// How many are back on the release of before.
    pub returned: usize,
    /// How many are not reached.
    pub offline: usize,
    /// How many others are not on the release.
    pub waiting: usize,
}

/// How full a budget was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// Its nodes.
    #[serde(rename = "where")]
    pub of: String,
    /// How many these are.
    pub nodes: usize,
    /// How many of them may be in flight.
    pub limit: usize,
    /// The most that were.
    #[serde(flatten)]
    pub peak: InFlightPeak,
}

/// Nodes that wait for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingNodes {
    /// How many.
    pub count: usize,
    /// What for, as a sentence.
    pub cause: String,
    /// The first of them.
    pub example: Hostname,
}

/// What became of a node.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its hostname.
    pub hostname: Hostname,
    /// Its wave.
    pub wave: String,
    /// What went wrong with it.
    pub fault: Option<NodeFault>,
    /// All takes it longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub slow: bool,
    /// How it stands at the end.
    pub state: NodeRolloutState,
    /// When it was asked.
    pub asked_secs: Option<u64>,
    /// When it began.
    pub began_secs: Option<u64>,
    /// When it was switched, by what the control plane heard.
    pub switched_secs: Option<u64>,
    /// When it was confirmed, failed or was back.
    pub ended_secs: Option<u64>,
    /// What keeps it from the release; absent where it is confirmed.
    pub cause: Option<String>,
}

/// A member at the end, with what it is told by.
struct EndedNode<'s> {
    index: usize,
    record: &'s MemberRecord,
    cause: Option<String>,
}

impl EndedNode<'_> {
    fn is_waiting(&self) -> bool {
        use NodeRolloutState::{Activating, Deferred, Pending, Soaking};
        matches!(self.record.state, Pending | Activating | Soaking | Deferred)
    }
}

/// What a rehearsal came to that was played.
pub(crate) fn of_stage(stage: &Stage<'_>) -> RehearsalReport {
    let by_id: BTreeMap<_, usize> =
        stage.hosts.iter().enumerate().map(|(index, host)| (&host.id, index)).collect();
    let mut nodes: Vec<EndedNode<'_>> = stage
        .rollouts
        .members(&stage.key)
        .filter_map(|record| {
            let explained = stage.rollouts.explain(&record.node);
            let cause = explained.and_then(|why| why.cause).map(|cause| cause.to_string());
            Some(EndedNode { index: *by_id.get(&record.node)?, record, cause })
        })
        .collect();
    nodes.sort_by(|one, other| one.record.hostname.cmp(&other.record.hostname));
    let rehearsal = stage.rehearsal;
    let since = |at: Timestamp| at.since(rehearsal.begins).as_secs();
    let watch = &stage.watch;
    RehearsalReport {
        channel: rehearsal.channel.clone(),
        seed: rehearsal.seed,
        begins: rehearsal.begins,
        shares: rehearsal.faults,
        faults: faults(stage),
        outcome: outcome(stage),
        lasts_secs: watch.last.into_iter().chain(watch.through).max().map_or(0, since),
        stop: stop(stage),
        in_flight: InFlightPeak { most: watch.in_flight.most, at_secs: watch.in_flight.at.map(since) },
        waves: waves(stage, &nodes),
        budgets: budgets(stage, &nodes),
        waiting: waiting(&nodes),
        nodes: nodes.iter().map(|node| node_report(stage, node)).collect(),
    }
}

fn faults(stage: &Stage<'_>) -> FaultCounts {
    let mut counts = FaultCounts::default();
    for host in &stage.hosts {
        counts.slow += usize::from(host.nature.is_slow);
        match host.nature.fault {
            Some(NodeFault::Fails) => {
                counts.fail += 1;
                counts.unseen += usize::from(host.enforcing().is_empty());
            }
            Some(NodeFault::Offline) => counts.offline += 1,
            Some(NodeFault::CutOff) => counts.cut_off += 1,
            None => {}
        }
    }
    counts
}

fn outcome(stage: &Stage<'_>) -> RehearsalOutcome {
    let document = stage.rollouts.document(&stage.key);
    match document.map(|document| document.state) {
        Some(RolloutState::Terminal) => RehearsalOutcome::Through,
        Some(RolloutState::Reverted) => RehearsalOutcome::WentBack,
        Some(RolloutState::Failed) if stage.rehearsal.terms.on_failure == OnFailure::Rollback => {
            RehearsalOutcome::GoingBack
        }
        Some(RolloutState::Failed) => RehearsalOutcome::Halted,
        _ => RehearsalOutcome::Unfinished,
    }
}

fn stop(stage: &Stage<'_>) -> Option<StopReport> {
    let seen = stage.watch.stop.as_ref()?;
    // No operator says anything in a rehearsal.
    let HaltCause::Gate { wave, failed, allowed, example } = &seen.cause else { return None };
    Some(StopReport {
        at_secs: seen.at.since(stage.rehearsal.begins).as_secs(),
        cause: seen.cause.to_string(),
        wave: wave.clone(),
        failed: *failed,
        allowed: *allowed,
        example: example.clone(),
        begun: seen.begun,
    })
}

fn waves(stage: &Stage<'_>, nodes: &[EndedNode<'_>]) -> Vec<WaveReport> {
    let Some(rules) = stage.rollouts.rules(&stage.key) else { return Vec::new() };
    let since = |at: &Timestamp| at.since(stage.rehearsal.begins).as_secs();
    let mut waves: Vec<WaveReport> = (0..rules.waves())
        .map(|wave| WaveReport {
            name: rules.wave_name(wave).to_owned(),
            nodes: 0,
            not_before: rules.not_before(wave),
            soak_secs: rules.gate(wave).soak_secs,
            success: rules.gate(wave).success,
            stops_at: None,
            opened_secs: stage.watch.opened.get(wave).map(since),
            ended_secs: u16::try_from(wave).ok().and_then(|wave| stage.watch.wave_ended.get(&wave)).map(since),
            confirmed: 0,
            failed: 0,
            returned: 0,
            offline: 0,
            waiting: 0,
        })
        .collect();
    for node in nodes {
        let Some(wave) = waves.get_mut(usize::from(node.record.placement.wave)) else { continue };
        wave.nodes += 1;
        let count = match node.record.state {
            NodeRolloutState::Converged => &mut wave.confirmed,
            NodeRolloutState::Failed => &mut wave.failed,
            NodeRolloutState::Reverted => &mut wave.returned,
            _ if stage.fault(node.index) == Some(NodeFault::Offline) => &mut wave.offline,
            _ => &mut wave.waiting,
        };
        *count += 1;
    }
    for wave in &mut waves {
        let counted = wave.nodes - wave.offline;
        let allowed = counted * usize::from(100 - wave.success.min(100)) / 100;
        wave.stops_at = Some(allowed + 1).filter(|failures| *failures <= counted);
    }
    // The implied last wave is no news where nobody is in it.
    if waves.last().is_some_and(|last| last.nodes == 0 && last.name == REST) {
        waves.pop();
    }
    waves
}

fn budgets(stage: &Stage<'_>, nodes: &[EndedNode<'_>]) -> Vec<BudgetReport> {
    let since = |at: Timestamp| at.since(stage.rehearsal.begins).as_secs();
    let report = |(bit, (terms, peak)): (usize, (&trust::rollout_terms::BudgetTerms, &crate::watch::Peak))| {
        let is_in = |node: &&EndedNode<'_>| node.record.placement.budgets & (1 << bit) != 0;
        let population = nodes.iter().filter(is_in).count();
        BudgetReport {
            of: terms.of.as_str().to_owned(),
            nodes: population,
            limit: terms.limit(population),
            peak: InFlightPeak { most: peak.most, at_secs: peak.at.map(since) },
        }
    };
    stage.rehearsal.terms.budgets.iter().zip(&stage.watch.budgets).enumerate().map(report).collect()
}

fn waiting(nodes: &[EndedNode<'_>]) -> Vec<WaitingNodes> {
    let mut by_cause: BTreeMap<&str, WaitingNodes> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.is_waiting()) {
        let cause = node.cause.as_deref().unwrap_or_default();
        let group = by_cause.entry(cause).or_insert_with(|| WaitingNodes {
            count: 0,
            cause: cause.to_owned(),
            example: node.record.hostname.clone(),
        });
        group.count += 1;
    }
    let mut groups: Vec<WaitingNodes> = by_cause.into_values().collect();
    groups.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.cause.cmp(&other.cause)));
    if let Some((last, more)) = groups.get(MAX_WAITING..).and_then(<[_]>::split_first) {
        let count = last.count + more.iter().map(|group| group.count).sum::<usize>();
        let others = WaitingNodes { count, cause: "for something else".to_owned(), example: last.example.clone() };
        groups.truncate(MAX_WAITING);
        groups.push(others);
    }
    groups
}

fn node_report(stage: &Stage<'_>, node: &EndedNode<'_>) -> NodeReport {
    let since = |at: Timestamp| at.since(stage.rehearsal.begins).as_secs();
    let seen = stage.watch.nodes.get(node.index).copied().unwrap_or_default();
    let rules = stage.rollouts.rules(&stage.key);
    let wave = usize::from(node.record.placement.wave);
    NodeReport {
        hostname: node.record.hostname.clone(),
        wave: rules.map(|rules| rules.wave_name(wave)).unwrap_or(REST).to_owned(),
        fault: stage.fault(node.index),
        slow: stage.hosts.get(node.index).is_some_and(|host| host.nature.is_slow),
        state: node.record.state,
        asked_secs: seen.asked.map(since),
        began_secs: seen.began.map(since),
        switched_secs: seen.switched.map(since),
        ended_secs: seen.ended.map(since),
        cause: node.cause.clone(),
    }
}
