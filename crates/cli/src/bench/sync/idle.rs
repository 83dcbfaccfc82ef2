//! Streams that idle: memory and CPU of the control plane for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::replication::Mode;
use streams::MemoryShore;
use tokio::task::JoinSet;

use super::super::BenchError;
use super::super::table::{Row, print};
use super::SyncArgs;
use super::link::{Linked, life, link};
use super::stage::{Stage, until};

/// Memory of one stream at the control plane, in KiB.
const MEMORY_KIB: f64 = 40.0;
/// CPU of all of them, in percent of a core.
const CPU_PERCENT: f64 = 1.0;
/// Streams opened at once.
const DIALS: usize = 32;
/// How long memory is given to settle.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &SyncArgs) -> Result<(), BenchError> {
    let mut stage = Stage::fill(args.streams, &[Mode::Managed, Mode::Autonomous]).await?;
    let url = stage.start()?;
    tokio::time::sleep(SETTLE).await;
    let before = stage.server()?.memory()?;
    let began = Instant::now();
    let mut held: Vec<(Linked, Arc<MemoryShore>)> = Vec::new();
    let mut tasks: JoinSet<Result<_, BenchError>> = JoinSet::new();
    for number in 0..stage.nodes.len() {
        let (node, url, mode) = (stage.nodes[number].clone(), url.clone(), stage.mode(number));
        tasks.spawn(async move {
            let shore = Arc::new(MemoryShore::new(life(number)?));
            let linked = link(&node, &url, mode, &shore, shore.watch()).await?;
            Ok((linked, shore))
        });
        while tasks.len() >= DIALS {
            if let Some(done) = tasks.join_next().await {
                held.push(done??);
            }
        }
    }
    while let Some(done) = tasks.join_next().await {
        held.push(done??);
    }
    until("all idle streams are in sync", || held.iter().all(|(_, shore)| shore.counters().marks_equal > 0))
        .await?;
    let opened = began.elapsed();
    tokio::time::sleep(SETTLE).await;
    let (cpu, since) = (stage.cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(args.idle_seconds)).await;
    let spent = stage.cpu()?.since(cpu);
    let elapsed = since.elapsed();
    let memory = stage.server()?.memory()?;
    let alive = held.iter().filter(|(linked, _)| !linked.ended.is_finished()).count();
    let each = memory.saturating_sub(before) as f64 / 1024.0 / alive.max(1) as f64;
    let percent = |time: Duration| time.as_secs_f64() * 100.0 / elapsed.as_secs_f64();
    let opened_cpu = cpu.server.as_secs_f64() * 1e3 / alive.max(1) as f64;
    print(
        &format!("{alive} idle streams for {} s", elapsed.as_secs()),
        &[
            Row::at_least("streams", alive as f64, args.streams as f64, ""),
            Row::at_most("memory a stream", each, MEMORY_KIB, "KiB"),
            Row::at_most("CPU of all, of a core", percent(spent.server), CPU_PERCENT, "%"),
            Row::plain("CPU of this side, of a core", format!("{:.2} %", percent(spent.here))),
            Row::plain("opened within", format!("{:.1} s", opened.as_secs_f64())),
            Row::plain("server CPU to open one", format!("{opened_cpu:.2} ms")),
        ],
    );
    Ok(())
}
