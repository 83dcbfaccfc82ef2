//! Updates of objects over one link, durable where they arrive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::ObjectKey;
use model::replication::Mode;
use test_support::memory::MemoryLinkHandler;

use super::SyncLoad;
use super::durable::DurableHandler;
use super::link::{Linked, incarnation, link};
use super::stage::{Cpu, Stage, content, key, micros_each, uid, until};
use crate::BenchError;
use crate::fleet::now;
use crate::table::{Row, Unit};

/// Updates a second, applied and acknowledged.
const RATE: f64 = 20_000.0;
/// Bytes of an object.
pub(super) const SIZE: usize = 1024;
/// Updates that may be unacknowledged.
const WINDOW: u64 = 4096;
/// All versions have as many digits as this one.
const VERSIONS: u64 = 1_000_000_000_000_000;

/// A node whose objects change without end.
pub(super) struct Updater {
    handler: Arc<MemoryLinkHandler>,
    objects: Vec<(ObjectKey, Arc<str>, Bytes)>,
    next: usize,
    /// Changes made.
    pub(super) made: u64,
    window: u64,
}

impl Updater {
    /// Updates twice as many objects as may be under way, so that none is overtaken.
    pub(super) fn new(handler: Arc<MemoryLinkHandler>, window: u64) -> Result<Updater, BenchError> {
        let count = usize::try_from(window * 2)?;
        let object = |number| Ok((key(number)?, uid(number), content(number, SIZE, VERSIONS)));
        let objects = (0..count).map(object).collect::<Result<_, BenchError>>()?;
        Ok(Updater { handler, objects, next: 0, made: 0, window })
    }

    /// Changes so many objects, each once.
    pub(super) fn update(&mut self, count: u64) {
        let mut changed = Vec::new();
        for _ in 0..count {
            let (key, uid, bytes) = &self.objects[self.next];
            // Another version, at little cost.
            let mut bytes = bytes.to_vec();
            let tail = format!("{}}}}}", VERSIONS + self.made);
            let from = bytes.len() - tail.len();
            bytes[from..].copy_from_slice(tail.as_bytes());
            changed.push((key.clone(), uid.clone(), Bytes::from(bytes)));
            self.made += 1;
            self.next = (self.next + 1) % self.objects.len();
        }
        self.handler.put_all(changed, now().0);
    }

    /// Keeps the window full until then.
    pub(super) async fn run(mut self, until: Instant) -> Result<Updater, BenchError> {
        let mut seen = self.handler.seen();
        while Instant::now() < until {
            let under_way = self.made.saturating_sub(self.handler.acked());
            let room = self.window.saturating_sub(under_way);
            if room >= self.window / 8 {
                // In pieces, as changes come.
                self.update(room.min(256));
                tokio::task::yield_now().await;
            } else if tokio::time::timeout(Duration::from_secs(30), seen.changed()).await.is_err() {
                return Err("nothing was acknowledged for 30 s".into());
            }
        }
        Ok(self)
    }
}

/// One autonomous node with a link.
pub(super) async fn autonomous(stage: &mut Stage) -> Result<(Arc<MemoryLinkHandler>, Linked), BenchError> {
    let url = stage.start()?;
    let handler = Arc::new(MemoryLinkHandler::new(incarnation(0)?));
    let linked = link(&stage.nodes[0], &url, Mode::Autonomous, &handler, handler.head()).await?;
    Ok((handler, linked))
}

/// Updates that come up; gives how many a second.
pub(super) async fn up(load: &SyncLoad<'_>) -> Result<f64, BenchError> {
    let mut stage = Stage::fill(1, &[Mode::Autonomous]).await?;
    let (handler, linked) = autonomous(&mut stage).await?;
    let began = Instant::now();
    let updater = Updater::new(handler.clone(), WINDOW)?;
    let running = tokio::spawn(updater.run(began + load.warm_up + load.time));
    tokio::time::sleep(load.warm_up).await;
    let (cpu, acked, bytes, since) = (stage.cpu()?, handler.acked(), linked.bytes(), Instant::now());
    let updater = running.await??;
    let (count, elapsed) = (handler.acked() - acked, since.elapsed());
    let (cpu, bytes) = (stage.cpu()?.since(cpu), linked.bytes() - bytes);
    until("all updates are acknowledged", || handler.acked() >= updater.made).await?;
    let counters = handler.counters();
    let rate = count as f64 / elapsed.as_secs_f64();
    let mut rows = vec![Row::at_least("updates acknowledged a second", rate, RATE, Unit::PerSecond)];
    rows.extend(costs(cpu, bytes, count));
    rows.push(Row::plain("replaced before they were sent", counters.coalesced as f64, Unit::Count));
    let title = "updates of 1 KiB up from one agent, durable at the control plane";
    load.figures.table("updates, up", title, rows)?;
    linked.stop().await?;
    Ok(rate)
}

/// What each update cost.
pub(super) fn costs(cpu: Cpu, bytes: u64, count: u64) -> Vec<Row> {
    let micros = |time| micros_each(time, count);
    vec![
        Row::plain("server CPU each", micros(cpu.server), Unit::Micros),
        Row::plain("CPU of this side each", micros(cpu.here), Unit::Micros),
        Row::plain("bytes each, both ways", bytes as f64 / count.max(1) as f64, Unit::Bytes),
    ]
}

/// Updates that go down; gives how many a second.
///
/// The feed holds all of them when the link opens, so that it never waits for more.
pub(super) async fn down(load: &SyncLoad<'_>) -> Result<f64, BenchError> {
    let mut stage = Stage::fill(1, &[Mode::Managed]).await?;
    let dir = tempfile::tempdir()?;
    let handler = Arc::new(DurableHandler::open(dir.path(), &incarnation(0)?)?);
    let mut rate = 0.0;
    for (version, title) in [(1, "objects created"), (2, "updates")] {
        stage.put([0], load.objects, SIZE, version).await?;
        let url = stage.start()?;
        handler.anew();
        let linked = link(&stage.nodes[0], &url, Mode::Managed, &handler, handler.head()).await?;
        let all = load.objects as u64;
        until("the first of them are applied", || handler.applied() > 0).await?;
        let (cpu, bytes, before) = (stage.cpu()?, linked.bytes(), handler.applied());
        until("all are applied", || handler.applied() >= all).await?;
        let (cpu, bytes, count) = (stage.cpu()?.since(cpu), linked.bytes() - bytes, all - before);
        rate = handler.rate();
        until("the set is equal", || handler.in_sync() > 0).await?;
        let mut rows = vec![Row::at_least("applied a second", rate, RATE, Unit::PerSecond)];
        rows.extend(costs(cpu, bytes, count));
        let table = if version == 1 { "created, down" } else { "updates, down" };
        load.figures.table(table, &format!("{title} of 1 KiB down to one agent, durable there"), rows)?;
        linked.stop().await?;
        stage.kill();
    }
    Ok(rate)
}
