//! Updates of many agents at once: what each costs the control plane.

use std::ops::Range;
use std::time::{Duration, Instant};

use model::replication::Mode;
use net::ServerUrl;
use serde_json::Value;
use server::api::objects::{APPLY, Apply, ApplyOutcome, Mapping};
use tokio::task::JoinSet;

use super::SyncLoad;
use super::link::{Peer, peers};
use super::stage::{Stage, content, micros_each, settled};
use super::updates::{SIZE, Updater, costs};
use crate::table::{Row, Unit};
use crate::{BenchError, checkin, wait_for};
use cli::operator::Operator;

/// Server CPU for an update, in microseconds.
const CPU_MICROS: f64 = 15.0;
/// The same in times of the CPU of a check-in's floor.
const UP_TO_FLOOR: f64 = 0.18;
/// Server CPU for an object that is posted, in times of the CPU of a check-in's floor.
const DOWN_TO_FLOOR: f64 = 0.35;
/// Updates of one agent that may be unacknowledged.
const WINDOW: u64 = 128;
/// Objects in one request of an operator, all of one node.
const POSTED: usize = 100;
/// Requests of operators at once.
pub(super) const POSTS: usize = 4;

pub(super) async fn run(load: &SyncLoad<'_>) -> Result<(), BenchError> {
    // In the same run, as the machine's speed moves from day to day.
    let floor = checkin::floor_cpu(load.time).await?;
    let mut stage = Stage::fill(2 * load.agents, &[Mode::Autonomous, Mode::Managed]).await?;
    let url = stage.start()?;
    up(&stage, &url, load, floor).await?;
    down(&stage, &url, load, floor).await
}

/// All nodes of a mode, by number.
fn of_mode(stage: &Stage, mode: Mode) -> impl Iterator<Item = usize> {
    (0..stage.nodes.len()).filter(move |number| stage.mode(*number) == mode)
}

fn bytes(peers: &[Peer]) -> u64 {
    peers.iter().map(|(linked, _)| linked.bytes()).sum()
}

async fn up(stage: &Stage, url: &ServerUrl, load: &SyncLoad<'_>, floor: Duration) -> Result<(), BenchError> {
    let peers = peers(stage, url, of_mode(stage, Mode::Autonomous)).await?;
    let end = Instant::now() + load.warm_up + load.time;
    let mut running = JoinSet::new();
    for (_, handler) in &peers {
        running.spawn(Updater::new(handler.clone(), WINDOW)?.run(end));
    }
    tokio::time::sleep(load.warm_up).await;
    let acked = || peers.iter().map(|(_, handler)| handler.acked()).sum::<u64>();
    let (cpu, before, sent, since) = (stage.cpu()?, acked(), bytes(&peers), Instant::now());
    wait_for(&mut running, 0).await?;
    let (count, elapsed) = (acked() - before, since.elapsed());
    let (cpu, sent) = (stage.cpu()?.since(cpu), bytes(&peers) - sent);
    let each = micros_each(cpu.server, count);
    let mut rows = vec![
        Row::at_most("server CPU an update", each, CPU_MICROS, Unit::Micros),
        Row::at_most("to a check-in's floor", each / micros_each(floor, 1), UP_TO_FLOOR, Unit::Times),
        Row::plain("updates acknowledged a second", count as f64 / elapsed.as_secs_f64(), Unit::PerSecond),
    ];
    rows.extend(costs(cpu, sent, count).split_off(1));
    let title = format!("updates of 1 KiB up from {} agents", peers.len());
    load.figures.table("agents, up", &title, rows)?;
    for (linked, _) in peers {
        linked.stop().await?;
    }
    Ok(())
}

async fn down(
    stage: &Stage,
    url: &ServerUrl,
    load: &SyncLoad<'_>,
    floor: Duration,
) -> Result<(), BenchError> {
    let peers = peers(stage, url, of_mode(stage, Mode::Managed)).await?;
    let hostname = |number: usize| stage.nodes[number].hostname.to_string();
    let nodes: Vec<String> = of_mode(stage, Mode::Managed).map(hostname).collect();
    let applied = || peers.iter().map(|(_, handler)| handler.counters().applied).sum::<u64>();
    let (cpu, sent, since) = (stage.cpu()?, bytes(&peers), Instant::now());
    let next = move |turn: usize| (nodes[turn % nodes.len()].clone(), 0..POSTED);
    let posted = post(stage, load.time, None, next).await?;
    // An object that is posted again before it was sent travels once.
    let (count, last) = settled("all that was posted is applied", posted, load.quiet, applied).await?;
    let (cpu, sent, elapsed) = (stage.cpu()?.since(cpu), bytes(&peers) - sent, last - since);
    let rate = count as f64 / elapsed.as_secs_f64();
    let mut rows = vec![Row::plain("updates applied a second", rate, Unit::PerSecond)];
    rows.extend(costs(cpu, sent, count));
    let to_floor = micros_each(cpu.server, count) / micros_each(floor, 1);
    rows.push(Row::at_most("to a check-in's floor", to_floor, DOWN_TO_FLOOR, Unit::Times));
    rows.push(Row::plain("replaced before they were sent", (posted - count) as f64, Unit::Count));
    let what = format!("updates of 1 KiB down to {} agents, {POSTED} posted at once", peers.len());
    load.figures.table("agents, down", &what, rows)
}

/// Has operators post for a while, each after a pause if there is one: in each turn some objects of
/// a node. Returns how many objects were changed.
pub(super) async fn post(
    stage: &Stage,
    time: Duration,
    pause: Option<Duration>,
    next: impl Fn(usize) -> (String, Range<usize>) + Clone + Send + 'static,
) -> Result<u64, BenchError> {
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for place in 0..POSTS {
        let (operator, next) = (stage.operator().await?, next.clone());
        tasks.spawn(async move {
            let (mut count, mut at) = (0, began);
            for turn in (place..).step_by(POSTS) {
                if began.elapsed() >= time {
                    break;
                }
                if let Some(pause) = pause {
                    at += pause;
                    tokio::time::sleep_until(at.into()).await;
                }
                let (node, objects) = next(turn);
                // Each turn writes another version than the one before.
                count += post_once(&operator, node, objects, began.elapsed().as_nanos() as u64).await?;
            }
            Ok::<_, BenchError>(count)
        });
    }
    Ok(wait_for(&mut tasks, 0).await?.into_iter().sum())
}

async fn post_once(
    operator: &Operator,
    node: String,
    objects: Range<usize>,
    version: u64,
) -> Result<u64, BenchError> {
    let manifest = |number| Ok(serde_json::from_slice::<Value>(&content(number, SIZE, version))?);
    let apply = Apply {
        manifests: objects.map(manifest).collect::<Result<_, BenchError>>()?,
        node: Some(node),
        mapping: Mapping::default(),
        dry_run: false,
        trace: None,
    };
    let results = operator.call(&APPLY, apply).await?.results;
    if let Some(refused) = results.iter().find(|done| done.outcome == ApplyOutcome::Refused) {
        return Err(format!("an object was refused: {}", refused.why.as_deref().unwrap_or("?")).into());
    }
    let changed =
        results.iter().filter(|done| matches!(done.outcome, ApplyOutcome::Created | ApplyOutcome::Changed));
    Ok(changed.count() as u64)
}
