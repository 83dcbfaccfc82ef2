//! [`report_of`]: what a rehearsal came to that was played, by what was seen and by how its members stand.

use std::collections::BTreeMap;

use model::Timestamp;
use rollout::{HaltCause, MemberRecord, NodeRolloutState, RolloutState};
use trust::rollout_terms::{BudgetTerms, OnFailure, REST};

use crate::faults::NodeFault;
use crate::report::{
    BudgetReport, FaultCounts, InFlightPeak, NodeForecast, RehearsalOutcome, RehearsalReport, StopReport,
    WaitingNodes, WaveReport,
};
use crate::stage::Stage;
use crate::watch::Peak;

/// The most groups of waiting nodes that are named; the rest is one more group.
const MAX_WAITING: usize = 10;

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
pub(crate) fn report_of(stage: &Stage<'_>) -> RehearsalReport {
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
        counts.seldom += usize::from(host.nature.first_call.is_some());
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
            ended_secs: u16::try_from(wave)
                .ok()
                .and_then(|wave| stage.watch.wave_ended.get(&wave))
                .map(since),
            confirmed: 0,
            failed: 0,
            returned: 0,
            offline: 0,
            waiting: 0,
        })
        .collect();
    let mut counted = vec![0; waves.len()];
    for node in nodes {
        let index = usize::from(node.record.placement.wave);
        let Some(wave) = waves.get_mut(index) else { continue };
        wave.nodes += 1;
        counted[index] += usize::from(!is_apart(stage, node));
        let count = match node.record.state {
            NodeRolloutState::Converged => &mut wave.confirmed,
            NodeRolloutState::Failed => &mut wave.failed,
            NodeRolloutState::Reverted => &mut wave.returned,
            _ if stage.fault(node.index) == Some(NodeFault::Offline) => &mut wave.offline,
            _ => &mut wave.waiting,
        };
        *count += 1;
    }
    for (wave, counted) in waves.iter_mut().zip(counted) {
        let allowed = counted * usize::from(100 - wave.success.min(100)) / 100;
        wave.stops_at = Some(allowed + 1).filter(|failures| *failures <= counted);
    }
    // The implied last wave is no news where nobody is in it.
    if waves.last().is_some_and(|last| last.nodes == 0 && last.name == REST) {
        waves.pop();
    }
    waves
}

/// It counts in no gate: nobody reaches it, or it is pinned.
fn is_apart(stage: &Stage<'_>, node: &EndedNode<'_>) -> bool {
    let is_pinned = node.record.placement.pinned.is_some();
    let is_offline = stage.fault(node.index) == Some(NodeFault::Offline);
    node.record.state == NodeRolloutState::Pending && (is_pinned || is_offline)
}

fn budgets(stage: &Stage<'_>, nodes: &[EndedNode<'_>]) -> Vec<BudgetReport> {
    let since = |at: Timestamp| at.since(stage.rehearsal.begins).as_secs();
    let report = |(bit, (terms, peak)): (usize, (&BudgetTerms, &Peak))| {
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
        let others =
            WaitingNodes { count, cause: "for something else".to_owned(), example: last.example.clone() };
        groups.truncate(MAX_WAITING);
        groups.push(others);
    }
    groups
}

fn node_report(stage: &Stage<'_>, node: &EndedNode<'_>) -> NodeForecast {
    let since = |at: Timestamp| at.since(stage.rehearsal.begins).as_secs();
    let seen = stage.watch.nodes.get(node.index).copied().unwrap_or_default();
    let rules = stage.rollouts.rules(&stage.key);
    let wave = usize::from(node.record.placement.wave);
    NodeForecast {
        hostname: node.record.hostname.clone(),
        wave: rules.map(|rules| rules.wave_name(wave)).unwrap_or(REST).to_owned(),
        fault: stage.fault(node.index),
        slow: stage.hosts.get(node.index).is_some_and(|host| host.nature.is_slow),
        seldom: stage.hosts.get(node.index).is_some_and(|host| host.nature.first_call.is_some()),
        state: node.record.state,
        asked_secs: seen.asked.map(since),
        began_secs: seen.began.map(since),
        switched_secs: seen.switched.map(since),
        confirmed_secs: seen.confirmed.map(since),
        failed_secs: seen.failed.map(since),
        ended_secs: seen.ended.map(since),
        cause: node.cause.clone(),
    }
}
