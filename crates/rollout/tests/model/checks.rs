//! What must be true of every stored decision, looked up plainly over all that is stored.

use std::collections::{BTreeMap, BTreeSet};

use model::status::Contact;
use model::{NodeId, Timestamp};
use rollout::event::{ProbeMode, ProbeOutcome};
use rollout::{
    BeginRefusal, MemberGoal, MemberRecord, NextCall, NodeRolloutState, RolloutChange, RolloutEventBody,
    RolloutKey, RolloutPointer, RolloutState,
};
use trust::rollout_terms::BudgetTerms;

use super::planes::{Database, StoredCommit, StoredRows};

/// The events of each node and rollout that took effect, in their order.
pub type Accepted = BTreeMap<(RolloutKey, NodeId), Vec<RolloutEventBody>>;

pub struct Surroundings<'a> {
    pub database: &'a Database,
    pub told: &'a BTreeMap<NodeId, (Contact, NextCall)>,
    pub accepted: &'a Accepted,
    pub now: Timestamp,
    /// Whether what looks at every member is looked at.
    pub wide: bool,
}

pub fn commit(stored: &StoredCommit, around: &Surroundings<'_>) {
    for change in &stored.commit.rollouts {
        let before =
            |member: &MemberRecord| stored.members.get(&(change.document.key.clone(), member.node.clone()));
        let started = |member: &&MemberRecord| {
            member.asked.is_some() && before(member).is_none_or(|before| before.asked.is_none())
        };
        let started: Vec<&MemberRecord> = change.members.iter().filter(started).collect();
        nothing_starts_in_a_halt(change, &started);
        for member in &started {
            let told = around.told.get(&member.node);
            assert!(
                told == Some(&(Contact::Online, NextCall::Soon)),
                "{} is asked, and calls later",
                member.hostname
            );
        }
        if around.wide {
            // Whatever made it count: that it was asked, or anything else; but for one that was confirmed and goes back by
            // itself, which nobody let begin and for which others wait.
            let is_new = |member: &&MemberRecord| {
                let goes_by_itself = |before: &MemberRecord| {
                    before.state == NodeRolloutState::Converged && member.state == NodeRolloutState::Failed
                };
                let is_let =
                    before(member).is_none_or(|before| !before.in_flight() && !goes_by_itself(before));
                member.in_flight() && is_let
            };
            for member in change.members.iter().filter(is_new) {
                budgets_hold(change, member, around.database);
            }
        }
        for member in &change.members {
            let is_new = before(member).is_none_or(|before| before.state != NodeRolloutState::Converged);
            if member.state == NodeRolloutState::Converged && is_new {
                converged_rests_on_probes(change, member, around);
            }
        }
        let opened = stored.documents.get(&change.document.key).map_or(0, |before| before.opened.len());
        for wave in opened..change.document.opened.len() {
            wave_may_open(change, wave, around);
        }
    }
}

/// What a node is told of the end of a rollout.
#[derive(PartialEq, Eq)]
pub enum ToldEnd {
    Nothing,
    OfItsRollout,
    OfAnEarlierOne,
}

impl ToldEnd {
    pub fn is_earlier(&self) -> bool {
        *self == ToldEnd::OfAnEarlierOne
    }
}

/// Nobody is told of an end but who was confirmed in that rollout, which was through; it may have gone back by itself since.
pub fn told_end(pointer: &RolloutPointer, node: &NodeId, database: &Database) -> ToldEnd {
    let Some(through) = &pointer.dispatch.through else { return ToldEnd::Nothing };
    let rows = database.rollouts.values().find(|rows| rows.document.id == *through).unwrap();
    assert!(rows.document.is_through(), "{through} was not through");
    let state = rows.members.get(node).map(|member| member.state);
    let was_confirmed = matches!(
        state,
        None | Some(NodeRolloutState::Converged | NodeRolloutState::Failed | NodeRolloutState::Reverted)
    );
    assert!(was_confirmed, "a node that is {state:?} in {through} is told of its end");
    match pointer.dispatch.is_through() {
        true => ToldEnd::OfItsRollout,
        false => ToldEnd::OfAnEarlierOne,
    }
}

fn nothing_starts_in_a_halt(change: &RolloutChange, started: &[&MemberRecord]) {
    let document = &change.document;
    let goes_back = document.halt.as_ref().is_some_and(|halt| halt.goes_back);
    for member in started {
        match document.state {
            RolloutState::Active | RolloutState::Converging | RolloutState::Terminal => {
                assert!(document.paused.is_none(), "{} is started in a pause", member.hostname);
                assert_eq!(member.goal, MemberGoal::Target);
            }
            RolloutState::Failed | RolloutState::Reverted => {
                let back = member.goal == MemberGoal::Before && goes_back;
                assert!(back, "{} is started in a halted rollout", member.hostname);
                assert!(!document.is_through(), "{} gave up its way back, and is asked", member.hostname);
            }
            state => panic!("{} is started in a rollout that is {state}", member.hostname),
        }
    }
}

/// Who is in flight, and how many there are, of a budget.
fn in_flight(database: &Database, budget: &BudgetTerms) -> (BTreeSet<NodeId>, usize) {
    let (mut nodes, mut population) = (BTreeSet::new(), 0);
    for rows in database.rollouts.values() {
        let Some(bit) = rows.terms.budgets.iter().position(|other| other == budget) else { continue };
        // As it is after the step: a step asks nobody before all else that it decides is decided.
        let is_current = !matches!(
            rows.document.state,
            RolloutState::Opening | RolloutState::Superseded | RolloutState::Pruned
        );
        for member in rows.members.values().filter(|member| member.placement.budgets & (1 << bit) != 0) {
            population += usize::from(is_current);
            if member.in_flight() {
                nodes.insert(member.node.clone());
            }
        }
    }
    (nodes, population)
}

fn who_is_in_flight(database: &Database, budget: &BudgetTerms) -> String {
    let of = database.rollouts.values().filter(|rows| rows.terms.budgets.contains(budget)).flat_map(|rows| {
        let members = rows.members.values().filter(|member| member.in_flight());
        members.map(|member| format!("{} {} in {}", member.hostname, member.state, rows.document.key))
    });
    of.collect::<Vec<_>>().join(", ")
}

fn budgets_hold(change: &RolloutChange, member: &MemberRecord, database: &Database) {
    let Some(rows) = database.rollouts.get(&change.document.key) else { return };
    for (bit, budget) in rows.terms.budgets.iter().enumerate() {
        if member.placement.budgets & (1 << bit) == 0 {
            continue;
        }
        let held_before = database.rollouts.values().any(|other| {
            let has = other.terms.budgets.iter().any(|other| other == budget);
            let record =
                other.members.get(&member.node).filter(|_| other.document.key != change.document.key);
            has && record.is_some_and(MemberRecord::in_flight)
        });
        let (nodes, population) = in_flight(database, budget);
        let limit = budget.limit(population);
        assert!(
            held_before || nodes.len() <= limit,
            "{} is started by {}, and of `{}` {} of {population} are in flight, {limit} may be: {}",
            member.hostname,
            change.document.key,
            budget.of,
            nodes.len(),
            who_is_in_flight(database, budget)
        );
    }
}

fn converged_rests_on_probes(change: &RolloutChange, member: &MemberRecord, around: &Surroundings<'_>) {
    let key = (change.document.key.clone(), member.node.clone());
    let events = around.accepted.get(&key).map(Vec::as_slice).unwrap_or_default();
    let is_activation =
        |event: &RolloutEventBody| matches!(event, RolloutEventBody::ActivationComplete { .. });
    let from = events.iter().rposition(is_activation).expect("confirmed without an activation");
    let RolloutEventBody::ActivationComplete { release, boot } = &events[from] else { unreachable!() };
    assert_eq!(*release, change.document.key.seq);
    let mut declared: Option<BTreeMap<&str, (ProbeMode, Option<ProbeOutcome>)>> = None;
    for event in &events[from..] {
        match event {
            RolloutEventBody::ProbeTopologyDeclared { probes } => {
                declared =
                    Some(probes.iter().map(|probe| (probe.name.as_str(), (probe.mode, None))).collect());
            }
            RolloutEventBody::ProbeResult { probe, outcome, boot: of } => {
                assert_eq!(of, boot);
                declared.as_mut().unwrap().get_mut(probe.as_str()).unwrap().1 = Some(*outcome);
            }
            _ => {}
        }
    }
    let declared = declared.expect("confirmed without declared probes");
    for name in member.enforcing.iter() {
        assert_eq!(declared.get(name.as_str()).map(|probe| probe.0), Some(ProbeMode::Enforce), "{name}");
    }
    for (name, (mode, outcome)) in declared {
        let passed = mode != ProbeMode::Enforce || outcome == Some(ProbeOutcome::Pass);
        assert!(passed, "{} is confirmed, and probe {name} did not pass", member.hostname);
    }
    let rows = &around.database.rollouts[&change.document.key];
    let gate = gate_of(rows, usize::from(member.placement.wave));
    let soaked = events.iter().rev().find_map(|event| match event {
        RolloutEventBody::Converged { soaked_secs, .. } => Some(*soaked_secs),
        _ => None,
    });
    assert!(soaked.unwrap() >= gate.0, "{} is confirmed before its soak is over", member.hostname);
}

fn gate_of(rows: &StoredRows, wave: usize) -> (u64, u8) {
    let terms = rows.terms.waves.get(wave);
    terms.map_or((300, 100), |wave| (wave.gate.soak_secs, wave.gate.success))
}

fn wave_may_open(change: &RolloutChange, wave: usize, around: &Surroundings<'_>) {
    let rows = &around.database.rollouts[&change.document.key];
    let not_before = rows.terms.waves.iter().take(wave + 1).filter_map(|wave| wave.not_before).max();
    assert!(not_before.is_none_or(|at| at <= around.now), "wave {wave} opens before its notBefore");
    let Some(newest) = wave.checked_sub(1) else { return };
    let approved = change.document.approvals.iter().any(|a| a.wave.map(usize::from) == Some(newest));
    if approved || !around.wide {
        return;
    }
    let (mut counted, mut failed) = (0, 0);
    for member in rows.members.values().filter(|member| usize::from(member.placement.wave) == newest) {
        if member.skipped.is_some() || member.passed_on || member.forgiven {
            continue;
        }
        match member.state {
            NodeRolloutState::Pending => {
                let pinned = member.placement.pinned.is_some_and(|until| until > around.now);
                let offline = around.told.get(&member.node).is_some_and(|told| told.0 == Contact::Offline);
                let keeps = |why| matches!(why, BeginRefusal::Pinned | BeginRefusal::Paused);
                let is_kept = member.held_off.is_some_and(|held| keeps(held.why));
                let waits = is_kept || offline || member.asked.is_none() && pinned;
                assert!(waits, "wave {wave} opens while {} may begin in the wave before", member.hostname);
            }
            NodeRolloutState::Activating | NodeRolloutState::Soaking => {
                panic!("wave {wave} opens while {} is on its way", member.hostname);
            }
            NodeRolloutState::Converged | NodeRolloutState::Deferred => counted += 1,
            NodeRolloutState::Failed | NodeRolloutState::Reverted => {
                let failure = usize::from(member.failure.is_some());
                (counted, failed) = (counted + failure, failed + failure);
            }
        }
    }
    let allowed = counted * (100 - usize::from(gate_of(rows, newest).1)) / 100;
    assert!(failed <= allowed, "wave {wave} opens with {failed} failed of {counted} before it");
}
