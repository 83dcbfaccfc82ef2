//! Streams that idle: memory and CPU of the control plane for each.

use std::ops::Range;
use std::time::{Duration, Instant};

use model::replication::Mode;
use net::ServerUrl;

use super::SyncLoad;
use super::link::{DIALS, Peer, peers};
use super::stage::{Stage, until};
use crate::BenchError;
use crate::table::{Row, Unit};

/// Memory of one stream at the control plane, in KiB.
const MEMORY_KIB: f64 = 40.0;
/// CPU of all of them, in percent of a core.
const CPU_PERCENT: f64 = 1.0;

/// Opens the streams of some nodes, and waits until their sets are equal.
async fn open(stage: &Stage, url: &ServerUrl, nodes: Range<usize>) -> Result<Vec<Peer>, BenchError> {
    let held = peers(stage, url, nodes).await?;
    until("idle streams are in sync", || {
        held.iter().all(|(_, handler)| handler.counters().checkpoints_equal > 0)
    })
    .await?;
    Ok(held)
}

pub(super) async fn run(load: &SyncLoad<'_>) -> Result<(), BenchError> {
    let mut stage = Stage::fill(load.streams, &[Mode::Managed, Mode::Autonomous]).await?;
    let url = stage.start()?;
    let fresh = stage.server()?.settled_memory(load.steady).await?;
    // Every node once, few at a time: what is kept of a node that was there once is not its
    // stream's.
    for first in (0..load.streams).step_by(DIALS) {
        for (linked, _) in open(&stage, &url, first..load.streams.min(first + DIALS)).await? {
            linked.stop().await?;
        }
    }
    let before = stage.server()?.settled_memory(load.steady).await?;
    let (began, dialing) = (Instant::now(), stage.cpu()?);
    let held = open(&stage, &url, 0..load.streams).await?;
    let dialing = stage.cpu()?.since(dialing);
    let opened = began.elapsed();
    stage.server()?.settled_memory(load.steady).await?;
    let (cpu, since) = (stage.cpu()?, Instant::now());
    tokio::time::sleep(load.idle).await;
    let spent = stage.cpu()?.since(cpu);
    let elapsed = since.elapsed();
    let memory = stage.server()?.memory()?;
    let alive = held.iter().filter(|(linked, _)| !linked.ended.is_finished()).count();
    let kib = |now: u64, then: u64| now.saturating_sub(then) as f64 / 1024.0 / alive.max(1) as f64;
    let percent = |time: Duration| time.as_secs_f64() * 100.0 / elapsed.as_secs_f64();
    let opened_cpu = dialing.server.as_secs_f64() * 1e3 / alive.max(1) as f64;
    load.figures.table(
        "idle streams",
        &format!("{} idle streams for {} s", load.streams, load.idle.as_secs()),
        vec![
            Row::at_least("streams", alive as f64, load.streams as f64, Unit::Count),
            Row::at_most("memory a stream", kib(memory, before), MEMORY_KIB, Unit::KibOfMemory),
            Row::plain("a node that was there once", kib(before, fresh), Unit::KibOfMemory),
            Row::at_most("CPU of all, of a core", percent(spent.server), CPU_PERCENT, Unit::Percent),
            Row::plain("CPU of this side, of a core", percent(spent.here), Unit::Percent),
            Row::plain("opened within", opened.as_secs_f64(), Unit::Secs),
            Row::plain("server CPU to open one", opened_cpu, Unit::Millis),
        ],
    )
}
