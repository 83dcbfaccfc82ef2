//! The control plane is killed and starts anew under all its streams, while other nodes poll.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use model::replication::Mode;
use net::ServerUrl;
use streams::task::{Ended, EndedBy, link_time};
use sync::backoff::{LinkEnd, ReconnectPolicy};
use sync::frame::CloseReason;
use sync::link::Note;
use test_support::memory::MemoryLinkHandler;

use super::SyncLoad;
use super::link::{incarnation, link, retry_after};
use super::stage::{Stage, content, key, quantile, uid, until};
use super::updates::SIZE;
use crate::fleet::{BenchNode, now};
use crate::load::Caller;
use crate::table::{Row, Unit};
use crate::{BenchError, lock};

/// All streams are back and in sync within so many seconds.
const BACK_SECS: f64 = 30.0;
/// All but one in a hundred streams said hello so many seconds after they were dialled at most.
const HELLO_SECS: f64 = 5.0;
/// All but one in a hundred check-ins of pollers took at most so many seconds.
const POLL_SECS: f64 = 1.0;
/// Objects of each node.
const OBJECTS: usize = 4;
/// Nodes that poll.
const POLLERS: usize = 60;
/// Each of them so often.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// How long a poller waits after a failure.
const POLL_AGAIN: Duration = Duration::from_millis(50);

/// What all nodes share.
struct Shared {
    url: ServerUrl,
    stop: AtomicBool,
    /// Nodes whose sets are equal with those of the newest control plane.
    in_sync: AtomicUsize,
    /// Restarts so far.
    round: AtomicUsize,
    /// Since when the control plane answers; `None` while there is none.
    up: Mutex<Option<Instant>>,
    polls: Mutex<Vec<f64>>,
    /// From the dial of each stream to the control plane's hello, in seconds.
    hellos: Mutex<Vec<f64>>,
    failed: AtomicUsize,
}

impl Shared {
    fn up(&self) -> Option<Instant> {
        *lock(&self.up)
    }

    fn set_up(&self, up: Option<Instant>) {
        *lock(&self.up) = up;
    }

    /// How long this took that began then; while there is no control plane nobody can answer.
    fn took(&self, times: &Mutex<Vec<f64>>, began: Instant) {
        if let Some(up) = self.up() {
            lock(times).push(began.max(up).elapsed().as_secs_f64());
        }
    }
}

/// The times until now, in their order.
fn take(times: &Mutex<Vec<f64>>) -> Vec<f64> {
    let mut times = std::mem::take(&mut *lock(times));
    times.sort_by(f64::total_cmp);
    times
}

pub(super) async fn run(load: &SyncLoad<'_>) -> Result<(), BenchError> {
    let modes = [Mode::Managed, Mode::Autonomous];
    let mut stage = Stage::fill(load.streams + POLLERS, &modes).await?;
    stage.put((0..load.streams).step_by(2), OBJECTS, SIZE, 1).await?;
    let url = stage.start()?;
    let shared = Arc::new(Shared {
        url: url.clone(),
        stop: AtomicBool::new(false),
        in_sync: AtomicUsize::new(0),
        round: AtomicUsize::new(0),
        up: Mutex::new(Some(Instant::now())),
        polls: Mutex::default(),
        hellos: Mutex::default(),
        failed: AtomicUsize::new(0),
    });
    let mut handlers = Vec::new();
    for number in 0..load.streams {
        let (mode, handler) = (stage.mode(number), Arc::new(MemoryLinkHandler::new(incarnation(number)?)));
        if mode == Mode::Autonomous {
            change(&handler, 1)?;
            handlers.push(handler.clone());
        }
        let node =
            Streaming { number, node: stage.nodes[number].clone(), mode, handler, shared: shared.clone() };
        let wait = load.spread.mul_f64(number as f64 / load.streams.max(1) as f64);
        tokio::spawn(node.run(wait));
    }
    let back = || shared.in_sync.load(Ordering::Relaxed) >= load.streams;
    let first = until("all streams are in sync", back).await?;
    for node in &stage.nodes[load.streams..] {
        tokio::spawn(poll(Caller::new(node.clone(), &url)?, shared.clone()));
    }
    tokio::time::sleep(load.calm).await;
    let calm = take(&shared.polls);
    // Killed; while it is gone, half of the nodes change.
    shared.set_up(None);
    shared.in_sync.store(0, Ordering::Relaxed);
    shared.round.fetch_add(1, Ordering::Relaxed);
    stage.kill();
    let killed = Instant::now();
    for handler in &handlers {
        change(handler, 2)?;
    }
    drop((take(&shared.polls), take(&shared.hellos)));
    stage.start_at(&url)?;
    let listening = killed.elapsed();
    shared.set_up(Some(Instant::now()));
    until("all streams are back and in sync", back).await?;
    let all_back = killed.elapsed();
    let cpu = stage.cpu()?;
    let (storm, hellos) = (take(&shared.polls), take(&shared.hellos));
    shared.stop.store(true, Ordering::Relaxed);
    let streams = load.streams.max(1) as f64;
    load.figures.table(
        "restart",
        &format!("the control plane starts anew under {} streams", load.streams),
        vec![
            Row::at_most("all back and in sync", all_back.as_secs_f64(), BACK_SECS, Unit::Secs),
            Row::at_most("dial, handshake and hello, p99", quantile(&hellos, 0.99), HELLO_SECS, Unit::Secs),
            Row::at_most("p99 of pollers meanwhile", quantile(&storm, 0.99), POLL_SECS, Unit::Secs),
            Row::plain("longest", storm.last().copied().unwrap_or_default(), Unit::Secs),
            Row::plain("check-ins meanwhile", storm.len() as f64, Unit::Count),
            Row::plain("p99 of pollers before", quantile(&calm, 0.99), Unit::Secs),
            Row::plain("listening again after", listening.as_secs_f64(), Unit::Secs),
            Row::plain(
                "stream requests refused or failed",
                shared.failed.load(Ordering::Relaxed) as f64,
                Unit::Count,
            ),
            Row::plain("server CPU a stream", cpu.server.as_secs_f64() * 1e3 / streams, Unit::Millis),
            Row::plain("all in sync at first after", first.as_secs_f64(), Unit::Secs),
        ],
    )
}

fn change(handler: &MemoryLinkHandler, version: u64) -> Result<(), BenchError> {
    let object = |number| Ok((key(number)?, uid(number), content(number, SIZE, version)));
    let objects = (0..OBJECTS).map(object).collect::<Result<Vec<_>, BenchError>>()?;
    handler.put_all(objects, now().0);
    Ok(())
}

/// A node that keeps a stream open, as an agent does.
struct Streaming {
    number: usize,
    node: BenchNode,
    mode: Mode,
    handler: Arc<MemoryLinkHandler>,
    shared: Arc<Shared>,
}

impl Streaming {
    async fn run(self, wait: Duration) {
        let mut reconnect = ReconnectPolicy::new(self.number as u64);
        tokio::time::sleep(wait).await;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let (how, again) = match self.one(&mut reconnect).await {
                Ok(ended) => {
                    let how = match ended.how {
                        EndedBy::Them(CloseReason::Shutdown) => LinkEnd::SentAway,
                        _ => LinkEnd::Lost,
                    };
                    (how, ended.retry_after.map(Duration::from_secs))
                }
                Err(error) => {
                    if self.shared.up().is_some() {
                        self.shared.failed.fetch_add(1, Ordering::Relaxed);
                    }
                    let again = retry_after(&*error);
                    (if again.is_some() { LinkEnd::Refused } else { LinkEnd::Unreached }, again)
                }
            };
            let now = link_time();
            reconnect.ended(now, how, again);
            tokio::time::sleep(reconnect.not_before().since(now)).await;
        }
    }

    /// One stream from its request to its end.
    async fn one(&self, reconnect: &mut ReconnectPolicy) -> Result<Ended, BenchError> {
        let equal = self.equal();
        let round = self.shared.round.load(Ordering::Relaxed);
        let mut seen = self.handler.seen();
        let (began, hellos) = (Instant::now(), self.handler.hellos());
        let linked =
            link(&self.node, &self.shared.url, self.mode, &self.handler, self.handler.head()).await?;
        let mut ended = linked.ended;
        let (mut met, mut sent) = (false, false);
        loop {
            tokio::select! {
                ended = &mut ended => return Ok(ended?),
                _ = seen.changed(), if !sent => {
                    if !met && self.handler.hellos() > hellos {
                        met = true;
                        self.shared.took(&self.shared.hellos, began);
                    }
                    let head = if self.mode == Mode::Autonomous { self.handler.acked() } else { 0 };
                    let whole = self.mode == Mode::Managed || head >= self.head();
                    if whole && self.equal() > equal {
                        sent = true;
                        reconnect.worked();
                        if self.shared.round.load(Ordering::Relaxed) == round {
                            self.shared.in_sync.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }
        }
    }

    fn head(&self) -> u64 {
        self.handler.head().get()
    }

    /// How often the other side's set was found equal here.
    fn equal(&self) -> usize {
        self.handler.notes().iter().filter(|note| **note == Note::InSync).count()
    }
}

/// A node that checks in over a kept connection, and dials anew when that is gone.
async fn poll(mut caller: Caller, shared: Arc<Shared>) {
    let mut client = None;
    while !shared.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        loop {
            let called = async {
                let mut dialled = match client.take() {
                    None => caller.dial().await?,
                    Some(client) => client,
                };
                caller.check_in(&mut dialled).await.map(|()| dialled)
            };
            match called.await {
                Ok(kept) => break client = Some(kept),
                Err(_) if shared.stop.load(Ordering::Relaxed) => return,
                Err(_) => tokio::time::sleep(POLL_AGAIN).await,
            }
        }
        shared.took(&shared.polls, began);
        tokio::time::sleep(POLL_EVERY).await;
    }
}
