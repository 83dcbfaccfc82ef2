//! From acceptance at the source to being visible at the destination, at half load.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::replication::Mode;

use super::SyncLoad;
use super::crowd::{POSTS, post};
use super::durable::DurableHandler;
use super::link::{incarnation, link};
use super::stage::{Stage, quantile, settled, until};
use super::updates::{self, Updater};
use crate::BenchError;
use crate::table::{Row, Unit};

/// All but one in a hundred took at most so long, in milliseconds.
const P99_MS: f64 = 50.0;
/// Changes come in groups this far apart.
const BEAT: Duration = Duration::from_millis(5);
/// How long operators post as fast as they can, at most.
const FASTEST_FOR: Duration = Duration::from_secs(3);
/// Objects in one request of an operator.
const POSTED: usize = 50;
/// Objects that each operator changes, one group after the other.
const KEYS: usize = 2_000;

pub(super) async fn run(
    load: &SyncLoad<'_>,
    up_rate: Option<f64>,
    down_rate: Option<f64>,
) -> Result<(), BenchError> {
    let up_rate = match up_rate {
        Some(rate) => rate,
        None => updates::up(load).await?,
    };
    up(load, up_rate / 2.0).await?;
    let down_rate = match down_rate {
        Some(rate) => rate,
        None => updates::down(load).await?,
    };
    down(load, down_rate / 2.0).await
}

fn rows(mut took: Vec<f64>, rate: f64) -> Vec<Row> {
    took.sort_by(f64::total_cmp);
    vec![
        Row::at_most("p99", quantile(&took, 0.99), P99_MS, Unit::Millis),
        Row::plain("p50", quantile(&took, 0.5), Unit::Millis),
        Row::plain("longest", took.last().copied().unwrap_or_default(), Unit::Millis),
        Row::plain("updates a second", rate, Unit::PerSecond),
    ]
}

/// From a change at a node until the node knows that it is durable at the control plane.
async fn up(load: &SyncLoad<'_>, rate: f64) -> Result<(), BenchError> {
    let mut stage = Stage::fill(1, &[Mode::Autonomous]).await?;
    let (handler, linked) = updates::autonomous(&mut stage).await?;
    let mut updater = Updater::new(handler.clone(), 4096)?;
    let (mut seen, mut beat) = (handler.seen(), tokio::time::interval(BEAT));
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let (began, each) = (Instant::now(), rate * BEAT.as_secs_f64());
    let (mut beats, mut took, mut waiting) = (0.0, Vec::new(), VecDeque::new());
    while began.elapsed() < load.warm_up + load.time {
        tokio::select! {
            _ = beat.tick() => {
                beats += 1.0;
                let due = ((beats * each) as u64).saturating_sub(updater.made);
                updater.update(due);
                waiting.push_back((updater.made, due, Instant::now()));
            }
            _ = seen.changed() => {
                let acked = handler.acked();
                while let Some((_, count, since)) = waiting.pop_front_if(|(last, ..)| *last <= acked) {
                    if began.elapsed() >= load.warm_up {
                        let millis = since.elapsed().as_secs_f64() * 1e3;
                        took.extend(std::iter::repeat_n(millis, usize::try_from(count)?));
                    }
                }
            }
        }
    }
    // What still waits took at least so long.
    for (_, count, since) in waiting {
        let millis = since.elapsed().as_secs_f64() * 1e3;
        took.extend(std::iter::repeat_n(millis, usize::try_from(count)?));
    }
    let rate = updater.made as f64 / began.elapsed().as_secs_f64();
    let title = "a change at the node to its acknowledgement, at half load";
    load.figures.table("latency, up", title, rows(took, rate))?;
    linked.stop().await?;
    Ok(())
}

/// From an operator's change until it is durable at the node.
async fn down(load: &SyncLoad<'_>, rate: f64) -> Result<(), BenchError> {
    let mut stage = Stage::fill(1, &[Mode::Managed]).await?;
    let (url, dir) = (stage.start()?, tempfile::tempdir()?);
    let handler = Arc::new(DurableHandler::open(dir.path(), &incarnation(0)?)?);
    let linked = link(&stage.nodes[0], &url, Mode::Managed, &handler, handler.head()).await?;
    until("the empty set is equal", || handler.in_sync() > 0).await?;
    // What operators can post is a limit of its own.
    let (count, most) = posted(&stage, load.time.min(FASTEST_FOR), None).await?;
    settled("all that was posted is applied", count, load.quiet, || handler.applied()).await?;
    let rate = rate.min(most / 2.0);
    handler.anew();
    let (count, reached) = posted(&stage, load.warm_up + load.time, Some(rate)).await?;
    settled("all that was posted is applied", count, load.quiet, || handler.applied()).await?;
    let mut rows = rows(handler.latencies(), reached);
    rows.push(Row::plain("updates a second that operators could post", most, Unit::PerSecond));
    load.figures.table("latency, down", "an operator's change to the node's disk, at half load", rows)?;
    linked.stop().await?;
    Ok(())
}

/// Posts for a while, at a rate if there is one; returns how many were posted, and the rate that came about.
async fn posted(stage: &Stage, time: Duration, rate: Option<f64>) -> Result<(u64, f64), BenchError> {
    let (node, began) = (stage.nodes[0].hostname.to_string(), Instant::now());
    let pause = rate.map(|rate| Duration::from_secs_f64((POSTS * POSTED) as f64 / rate));
    let next = move |turn: usize| {
        let from = turn % POSTS * KEYS + turn / POSTS * POSTED % KEYS;
        (node.clone(), from..from + POSTED)
    };
    let count = post(stage, time, pause, next).await?;
    Ok((count, count as f64 / began.elapsed().as_secs_f64()))
}
