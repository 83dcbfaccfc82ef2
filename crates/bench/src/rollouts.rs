//! `muster bench rollout`: a wave of a large fleet planned and moved on by the core, and the events of nodes taken in
//! by a real control plane (ROL-1, ROL-5).

mod events;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lang::Selector;
use model::rollout::RolloutEventBody;
use model::share::Share;
use model::status::Contact;
use model::{Channel, Digest, Incarnation, NodeId, Timestamp};
use rollout::{
    EventAnswer, JoiningNode, NewRollout, NextCall, RolloutAnswer, RolloutEffect, RolloutEvent, RolloutId,
    RolloutInput, RolloutKey, RolloutStep, Rollouts,
};
use trust::RolloutTerms;
use trust::rollout_terms::{BudgetTerms, GateTerms, WaveMembers, WaveTerms};

use crate::BenchError;
use crate::table::{Figures, Row, Unit};

/// A wave may be planned in this long, in seconds.
const PLAN_SECS: f64 = 1.0;
/// What follows from one event may be decided in this long, in milliseconds: all but one of a hundred events.
const EVENT_MILLIS: f64 = 1.0;
/// Nodes that answer, of those that are asked.
const ANSWERING: usize = 1_000;
/// When it begins: always then.
const BEGINS: Timestamp = Timestamp::from_secs(1_800_000_000);
/// The release that is rolled out, and the one before.
const RELEASES: (u64, u64) = (2, 1);

/// How large what is measured is.
#[derive(Clone, Copy, Debug)]
pub(super) struct RolloutSizes {
    /// Nodes that the core plans.
    pub(super) planned: usize,
    /// Nodes that report to a control plane.
    pub(super) reporting: usize,
}

pub(super) async fn run(sizes: RolloutSizes, figures: &Figures) -> Result<(), BenchError> {
    planned(sizes.planned, figures)?;
    events::run(sizes.reporting, figures).await
}

/// One wave under a budget, so that an event has both to count in, and somebody to let go.
fn terms() -> Result<RolloutTerms, BenchError> {
    let budget = BudgetTerms { of: Selector::parse("*")?, in_flight: Some(Share::Percent(4)), max: None };
    Ok(RolloutTerms { waves: vec![wave()], budgets: vec![budget], ..RolloutTerms::default() })
}

/// A wave of all nodes, which soak for no time.
fn wave() -> WaveTerms {
    let gate = GateTerms { soak_secs: 0, success: 90 };
    WaveTerms { name: "all".to_owned(), members: WaveMembers::Rest, not_before: None, gate }
}

fn planned(count: usize, figures: &Figures) -> Result<(), BenchError> {
    let channel: Channel = "stable".parse()?;
    let header = Digest::of(b"the header of release 2");
    let id = RolloutId::of_release(&channel, None, &header, |_| false);
    let nodes = (0..count).map(joining).collect::<Result<Vec<JoiningNode>, BenchError>>()?;
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.node.clone()).collect();
    let key = RolloutKey { channel, seq: RELEASES.0 };
    let new = NewRollout { key, id: id.clone(), header, terms: Arc::new(terms()?), nodes };
    let mut rollouts = Rollouts::new();
    // Who is reached is known before a release is published.
    for node in &ids {
        let (contact, next_call) = (Contact::Online, NextCall::default());
        rollouts.handle(RolloutInput::Contact { node: node.clone(), contact, next_call }, BEGINS);
    }
    let began = Instant::now();
    let step = rollouts.handle(RolloutInput::Published(vec![new]), BEGINS);
    if !matches!(step.answer, RolloutAnswer::Published(Ok(()))) {
        return Err(format!("the rollout did not begin: {:?}", step.answer).into());
    }
    // One step asks a bounded number of nodes. The wave is planned when nothing is due at this moment any more.
    while rollouts.next_deadline().is_some_and(|due| due <= BEGINS) {
        rollouts.handle(RolloutInput::Tick, BEGINS);
    }
    let planned = began.elapsed();
    let asked: Vec<NodeId> = ids.into_iter().filter(|node| is_asked(&rollouts, node)).collect();
    let told = answer_all(&mut rollouts, &id, &asked)?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    figures.table(
        "rollout, planned",
        &format!("a rollout over {count} nodes, in memory: one wave under a budget of 4 %"),
        vec![
            Row::at_most(
                "planned, and as many asked as may be",
                planned.as_secs_f64(),
                PLAN_SECS,
                Unit::Secs,
            ),
            Row::plain("nodes asked", asked.len() as f64, Unit::Count),
            Row::plain("an event, half of them", millis(told.at(0.50)), Unit::Millis),
            Row::at_most("an event, 99 of 100", millis(told.at(0.99)), EVENT_MILLIS, Unit::Millis),
            Row::plain("an event, the slowest", millis(told.at(1.0)), Unit::Millis),
            Row::at_most(
                "others woken by a node's acknowledgement or activation",
                told.others_woken as f64,
                0.0,
                Unit::Count,
            ),
        ],
    )
}

fn micros_each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}

fn joining(number: usize) -> Result<JoiningNode, BenchError> {
    let hostname = format!("node-{number:06}.bench.example");
    Ok(JoiningNode {
        node: NodeId::of_key(hostname.as_bytes()),
        hostname: hostname.parse()?,
        declared: lang::Value::Map(Default::default()),
        enforcing: Arc::new([]),
        before: Some(RELEASES.1),
    })
}

fn is_asked(rollouts: &Rollouts, node: &NodeId) -> bool {
    use model::rollout::RolloutTask::{Acknowledge, Proceed};
    rollouts
        .pointer(node)
        .is_some_and(|pointer| matches!(pointer.dispatch.task, Acknowledge { .. } | Proceed))
}

/// What became of the events of many nodes.
struct EventsTold {
    /// How long each took, in rising order.
    times: Vec<Duration>,
    /// Nodes woken by an event of another one that frees no slot.
    others_woken: usize,
}

impl EventsTold {
    fn at(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }
}

/// The events of nodes from their acknowledgement to their confirmation, node by node.
fn answer_all(rollouts: &mut Rollouts, id: &RolloutId, asked: &[NodeId]) -> Result<EventsTold, BenchError> {
    let (mut times, mut others_woken) = (Vec::new(), 0);
    for node in asked.iter().take(ANSWERING) {
        let bodies = life(RELEASES.0);
        let last = bodies.len();
        for (seq, body) in (1..).zip(bodies) {
            let event = event(node, id, seq, body)?;
            let began = Instant::now();
            let step = rollouts.handle(RolloutInput::Event(event), BEGINS);
            times.push(began.elapsed());
            if step.answer != RolloutAnswer::Event(EventAnswer::Accepted) {
                return Err(format!("event {seq} of {node} was not taken: {:?}", step.answer).into());
            }
            // The last one frees a slot, and whoever takes it is woken.
            if usize::try_from(seq)? < last {
                others_woken += woken(&step).filter(|other| *other != node).count();
            }
        }
    }
    times.sort_unstable();
    Ok(EventsTold { times, others_woken })
}

fn woken(step: &RolloutStep) -> impl Iterator<Item = &NodeId> {
    step.effects.iter().filter_map(|effect| match effect {
        RolloutEffect::Wake(node) => Some(node),
        RolloutEffect::Note { .. } => None,
    })
}

/// What a node without probes says from its acknowledgement to its confirmation.
fn life(release: u64) -> Vec<RolloutEventBody> {
    let boot = "0c5a7d70-7a36-4b5e-a3d3-8d3b2a0c6f1e".to_owned();
    vec![
        RolloutEventBody::DispatchAck,
        RolloutEventBody::ActivationStarted,
        RolloutEventBody::ActivationComplete { release, boot: boot.clone() },
        RolloutEventBody::ProbeTopologyDeclared { probes: Vec::new() },
        RolloutEventBody::Converged { release, boot, soaked_secs: 0 },
    ]
}

fn event(
    node: &NodeId,
    id: &RolloutId,
    seq: u64,
    body: RolloutEventBody,
) -> Result<RolloutEvent, BenchError> {
    let incarnation: Incarnation = "i0123456789abcdef".parse()?;
    Ok(RolloutEvent { node: node.clone(), incarnation, rollout: id.clone(), seq, oldest: seq, body })
}
