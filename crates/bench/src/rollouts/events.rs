//! Events of nodes taken in by a real control plane, durably, while it moves the rollout on by them (ROL-5).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::exchange::Answer;
use model::log::FactBody;
use model::rollout::{RolloutDispatch, RolloutEventBody, RolloutFact, RolloutTask};
use net::client::Client;
use tokio::task::JoinSet;
use trust::RolloutTerms;

use super::life;
use crate::checkin::url_of;
use crate::fleet::{self, BenchNode, FleetPlan};
use crate::load::Caller;
use crate::process::{ANY_PORT, Server};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, wait_for};

/// So many events a second are durable on SQLite.
const EVENTS_A_SECOND: f64 = 5_000.0;
/// Connections that are opened at once.
const DIALS: usize = 32;
/// How many events a check-in carries, as an agent sends them: the acknowledgement before it begins, then its
/// activation with the probes, then its confirmation.
const CHECKINS: [usize; 3] = [1, 3, 1];
/// Each node is asked within this, and the rollout is through within this.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a node asks until it is its turn.
const ASKS_AGAIN: Duration = Duration::from_millis(200);

pub(super) async fn run(count: usize, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let terms = RolloutTerms { waves: vec![super::wave()], ..RolloutTerms::default() };
    let sets = vec![fleet::objects_of(model::replication::Mode::Off)?];
    let plan = FleetPlan { count, near: count, certified: count, sets, rollout: Some(Arc::new(terms)) };
    let nodes = fleet::fill_with(dir.path(), plan).await?.nodes;
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    let reporting = all_asked(&nodes, dir.path()).await?;
    let (cpu, began) = (server.cpu()?, Instant::now());
    let told = tell_all(reporting).await?;
    let took = began.elapsed();
    let cpu = server.cpu()?.saturating_sub(cpu);
    through(told).await?;
    let events = count * CHECKINS.iter().sum::<usize>();
    figures.table(
        "rollout, events",
        &format!(
            "{events} events of {count} nodes at once, three check-ins each, durable before each answer"
        ),
        vec![
            Row::at_least(
                "events a second",
                events as f64 / took.as_secs_f64(),
                EVENTS_A_SECOND,
                Unit::PerSecond,
            ),
            Row::plain("server CPU an event", super::micros_each(cpu, events), Unit::Micros),
        ],
    )
}

/// A node with its open connection and what it was asked.
struct ReportingNode {
    caller: Caller,
    client: Client,
    next: model::exchange::HeldRelease,
    dispatch: RolloutDispatch,
}

/// Has every node call until it is asked to acknowledge.
async fn all_asked(nodes: &[BenchNode], dir: &Path) -> Result<Vec<ReportingNode>, BenchError> {
    let url = url_of(dir)?;
    let mut open = Vec::with_capacity(nodes.len());
    for group in nodes.chunks(DIALS) {
        let mut tasks = JoinSet::new();
        for node in group {
            let mut caller = Caller::new(node.clone(), &url)?;
            let next = node.next.clone().ok_or("there is no second release")?;
            tasks.spawn(async move {
                let mut client = caller.dial().await?;
                caller.check_in(&mut client).await?;
                Ok::<_, BenchError>((caller, client, next))
            });
        }
        open.extend(wait_for(&mut tasks, 0).await?);
    }
    let deadline = Instant::now() + PATIENCE;
    let mut reporting = Vec::with_capacity(open.len());
    for (mut caller, mut client, next) in open {
        let dispatch = loop {
            let answer = caller.ask(&mut client).await?;
            if let Some(dispatch) = answer.rollout.filter(is_asked) {
                break dispatch;
            }
            if Instant::now() > deadline {
                return Err("a node was not asked to begin".into());
            }
            tokio::time::sleep(ASKS_AGAIN).await;
        };
        reporting.push(ReportingNode { caller, client, next, dispatch });
    }
    Ok(reporting)
}

fn is_asked(dispatch: &RolloutDispatch) -> bool {
    matches!(dispatch.task, RolloutTask::Acknowledge { .. })
}

/// All nodes tell what they do, at once.
async fn tell_all(reporting: Vec<ReportingNode>) -> Result<Vec<ReportingNode>, BenchError> {
    let mut tasks = JoinSet::new();
    for mut node in reporting {
        tasks.spawn(async move {
            let mut facts =
                (1..).zip(life(node.dispatch.seq)).map(|(seq, body)| fact(&node.dispatch, seq, body));
            for (number, events) in CHECKINS.into_iter().enumerate() {
                let facts = facts.by_ref().take(events).collect();
                // It holds the release from its activation on.
                let held = (number > 0).then(|| node.next.clone());
                node.caller.report(&mut node.client, facts, held).await?;
            }
            drop(facts);
            Ok::<_, BenchError>(node)
        });
    }
    wait_for(&mut tasks, 0).await
}

fn fact(dispatch: &RolloutDispatch, event_seq: u64, event: RolloutEventBody) -> FactBody {
    FactBody::Rollout(RolloutFact { rollout: dispatch.rollout.clone(), event_seq, event, signature: None })
}

/// Every event counted: the rollout is at its end.
async fn through(told: Vec<ReportingNode>) -> Result<(), BenchError> {
    let mut node = told.into_iter().next().ok_or("no node")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer: Answer = node.caller.ask(&mut node.client).await?;
        if answer.rollout.is_none_or(|dispatch| dispatch.is_through()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("the rollout did not end, so events were not counted".into());
        }
        tokio::time::sleep(ASKS_AGAIN).await;
    }
}
