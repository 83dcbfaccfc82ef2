//! `muster bench renewals`: a fleet renews its certificates while others check in (IDN-2, SCL-3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use net::ServerUrl;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::checkin::url_of;
use crate::fleet::{self, BenchNode};
use crate::load::{self, Caller};
use crate::process::{ANY_PORT, Server};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, Load, wait_for};

/// Renewals a second of 100,000 nodes within ten minutes.
const WANTED_RATE: f64 = 100_000.0 / 600.0;
/// Check-ins may take this long meanwhile, all but one in a hundred, in milliseconds.
const CHECKIN_P99_MS: f64 = 250.0;
/// What a node renews here over one connection; the control plane gives no more at once.
const EACH: usize = 8;
/// Nodes that renew at once.
const RENEWING: usize = 16;

pub(super) async fn run(load: &Load, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let nodes = fleet::fill(dir.path(), load.nodes(), load.nodes()).await?;
    let (calling, renewing) = nodes.split_at(load.connections.min(nodes.len() / 2));
    let half = renewing.len() / 2;
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    let url = url_of(dir.path())?;
    let time = load.time();
    let alone = load::measure(&server, &url, calling, time, true).await?;
    let paced = Some(Duration::from_secs_f64(1.0 / WANTED_RATE));
    let (with, renewed) = tokio::try_join!(
        load::measure(&server, &url, calling, time, true),
        renew(&url, &renewing[..half], time, paced)
    )?;
    let cpu = server.cpu()?;
    let most = renew(&url, &renewing[half..], time, None).await?;
    let cpu = server.cpu()?.saturating_sub(cpu).div_f64(most.count.max(1) as f64);
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    figures.table(
        "renewals",
        "certificates renewed, each node on a connection of its own",
        vec![
            Row::plain("check-in p99 alone", millis(alone.p99), Unit::Millis),
            Row::plain("renewals a second beside check-ins", renewed.rate, Unit::PerSecond),
            Row::at_most("check-in p99 meanwhile", millis(with.p99), CHECKIN_P99_MS, Unit::Millis),
            Row::at_least("renewals a second", most.rate, WANTED_RATE, Unit::PerSecond),
            Row::plain(
                "CPU a renewal, its part of a handshake included",
                cpu.as_secs_f64() * 1e6,
                Unit::Micros,
            ),
        ],
    )
}

struct RenewedCount {
    count: u64,
    rate: f64,
}

/// Nodes renew for a while, one after the other on each of a few connections; one each tick in all where paced.
async fn renew(
    url: &ServerUrl,
    nodes: &[BenchNode],
    time: Duration,
    paced: Option<Duration>,
) -> Result<RenewedCount, BenchError> {
    let ticks = paced.map(|every| {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Arc::new(tokio::sync::Mutex::new(ticks))
    });
    let (count, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for part in nodes.chunks(nodes.len().div_ceil(RENEWING).max(1)) {
        let (part, url, ticks, count) = (part.to_vec(), url.clone(), ticks.clone(), count.clone());
        tasks.spawn(async move {
            for node in part {
                let mut caller = Caller::new(node, &url)?;
                let mut client = caller.dial().await?;
                for _ in 0..EACH {
                    if let Some(ticks) = &ticks {
                        ticks.lock().await.tick().await;
                    }
                    if began.elapsed() >= time {
                        return Ok(());
                    }
                    caller.renew(&mut client).await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<_, BenchError>(())
        });
    }
    wait_for(&mut tasks, 0).await?;
    let count = count.load(Ordering::Relaxed);
    // Nodes may have run out before the time did.
    Ok(RenewedCount { count, rate: count as f64 / began.elapsed().as_secs_f64() })
}
