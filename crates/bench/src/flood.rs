//! `muster bench flood`: check-ins while strangers flood the node port (SCL-3).
//!
//! The flood is bounded and stays on loopback: 50 addresses of ten /24 hold sockets that say nothing, and send
//! whole first messages of TLS handshakes that never go on. It comes from processes of its own, as one may not
//! have as many files open.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use net::ServerUrl;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::fleet::{self, BenchNode};
use crate::load::Caller;
use crate::process::{ANY_PORT, Server};
use crate::table::{Figures, Row, Unit};
use crate::{BenchError, Scale, checkin, wait_for};

/// A check-in of an enrolled node, handshake included, may take this long during the flood.
const P99_MS: f64 = 1000.0;
/// Addresses that flood: five of each of ten /24.
const ADDRESSES: usize = 50;
const PREFIXES: usize = 10;
/// Processes that flood.
const SOURCES: usize = 5;
/// Nodes that call, each over a new connection each time.
const CALLERS: usize = 16;
/// How long a caller rests between two check-ins.
const REST: Duration = Duration::from_millis(150);
/// Hellos of one address whose connection is kept open; beyond, the oldest is closed.
const HELLOS_KEPT: usize = 40;
/// How many silent sockets an address opens a second at first.
const OPENED_A_SECOND: u32 = 40;
/// How many of them it looks at a second later on, to open another in place of each that was closed.
const LOOKED_AT_A_SECOND: u32 = 10;
/// How long one connection of the flood may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How often a process of the flood writes down what it did.
const COUNTED_EVERY: Duration = Duration::from_millis(500);
/// The longest flood.
const MAX_SECS: u64 = 120;

/// How large a flood.
#[derive(Clone, Debug, Args)]
pub struct FloodArgs {
    /// Seconds of measuring [default: 15, quick: 4]
    #[arg(long)]
    secs: Option<u64>,
    /// First messages of handshakes a second, 50 to 4000 [default: 2000, quick: 200]
    #[arg(long, value_parser = clap::value_parser!(u32).range(50..=4000))]
    hellos: Option<u32>,
    /// Silent sockets, 50 to 20000 [default: 20000, quick: 2000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(50..=20_000))]
    silent: Option<u32>,
    #[command(flatten)]
    pub(super) scale: Scale,
}

/// One process of the flood, started by the others.
#[derive(Clone, Debug, Args)]
pub struct FloodSourceArgs {
    /// The port of loopback to flood
    port: u16,
    /// Which of the processes
    number: usize,
    /// Silent sockets of each address
    silent: usize,
    /// First messages of each address a second
    hellos: u32,
    /// Where the first message is, and the counts go
    dir: PathBuf,
}

/// What one process of the flood did so far.
#[derive(Clone, Copy, Default)]
struct FloodCounts {
    hellos: u64,
    silent: u64,
}

impl FloodArgs {
    fn time(&self) -> Duration {
        Duration::from_secs(self.scale.or(self.secs, 15, 4).clamp(1, MAX_SECS))
    }

    fn hellos(&self) -> u32 {
        self.scale.or(self.hellos, 2_000, 200)
    }

    /// Of each address.
    fn silent(&self) -> usize {
        self.scale.or(self.silent, 20_000, 2_000) as usize / ADDRESSES
    }
}

pub(super) async fn run(args: &FloodArgs, figures: &Figures) -> Result<(), BenchError> {
    let dir = tempfile::tempdir()?;
    let nodes = fleet::fill(dir.path(), CALLERS, CALLERS).await?;
    let server = Server::control_plane(dir.path(), ANY_PORT)?;
    let url = checkin::url_of(dir.path())?;
    let quiet = check_ins(&nodes, &url, args.time().min(Duration::from_secs(3))).await?;
    let sources = begin(dir.path(), &nodes[0], &url, args)?;
    sleep(Duration::from_secs(1 + args.silent() as u64 / u64::from(OPENED_A_SECOND))).await;
    let (before, began) = (counts(dir.path())?, Instant::now());
    let flooded = check_ins(&nodes, &url, args.time()).await?;
    let (after, elapsed) = (counts(dir.path())?, began.elapsed());
    let memory = server.memory()? as f64 / 1048576.0;
    drop(sources);
    let sent = (after.hellos - before.hellos) as f64 / elapsed.as_secs_f64();
    figures.table(
        "flood, before",
        "check-ins over a new connection each, before the flood",
        vec![millis("p50", &quiet, 0.5), millis("p99", &quiet, 0.99)],
    )?;
    figures.table(
        "flood, during",
        "check-ins over a new connection each, during the flood",
        vec![
            Row::at_least(
                "first messages of handshakes",
                sent,
                0.9 * f64::from(args.hellos()),
                Unit::PerSecond,
            ),
            Row::plain("silent sockets that were held open", after.silent as f64, Unit::Count),
            Row::plain("check-ins", flooded.len() as f64, Unit::Count),
            millis("p50", &flooded, 0.5),
            Row::at_most("p99", at(&flooded, 0.99), P99_MS, Unit::Millis),
            millis("longest", &flooded, 1.0),
            Row::plain("memory of the control plane", memory, Unit::Mib),
        ],
    )
}

/// A share of the times was at most this long, in milliseconds.
fn at(times: &[Duration], share: f64) -> f64 {
    let last = times.len().saturating_sub(1);
    let time = times.get(((times.len() as f64 * share) as usize).min(last));
    time.map_or(f64::INFINITY, |time| time.as_secs_f64() * 1e3)
}

fn millis(what: &'static str, times: &[Duration], share: f64) -> Row {
    Row::plain(what, at(times, share), Unit::Millis)
}

/// Every node checks in again and again; gives how long each took, the shortest first. One that fails fails all.
async fn check_ins(
    nodes: &[BenchNode],
    url: &ServerUrl,
    time: Duration,
) -> Result<Vec<Duration>, BenchError> {
    let (mut tasks, started) = (JoinSet::new(), Instant::now());
    for node in nodes {
        let mut caller = Caller::new(node.clone(), url)?;
        tasks.spawn(async move {
            let mut times = Vec::new();
            while started.elapsed() < time {
                let began = Instant::now();
                let mut client = caller.dial().await?;
                caller.check_in(&mut client).await?;
                times.push(began.elapsed());
                drop(client);
                sleep(REST).await;
            }
            Ok::<_, BenchError>(times)
        });
    }
    let mut times: Vec<Duration> = wait_for(&mut tasks, 0).await?.into_iter().flatten().collect();
    times.sort_unstable();
    Ok(times)
}

/// Starts the processes of the flood; they end when they are dropped.
fn begin(dir: &Path, node: &BenchNode, url: &ServerUrl, args: &FloodArgs) -> Result<Vec<Server>, BenchError> {
    let mut hello = Vec::new();
    let name = ServerName::try_from("127.0.0.1")?;
    ClientConnection::new(node.tls.clone(), name)?.write_tls(&mut hello)?;
    std::fs::write(dir.join("hello"), hello)?;
    let port = url.authority().rsplit_once(':').ok_or("a URL without a port")?.1.to_owned();
    let dir = dir.to_str().ok_or("no UTF-8")?;
    let silent = args.silent().to_string();
    let hellos = (args.hellos() / ADDRESSES as u32).max(1).to_string();
    let start = |number: usize| {
        let number = number.to_string();
        let args = ["bench", "flood-source", &port, &number, &silent, &hellos, dir];
        Server::start(&args, Stdio::inherit())
    };
    (0..SOURCES).map(start).collect()
}

/// What the processes of the flood wrote down.
fn counts(dir: &Path) -> Result<FloodCounts, BenchError> {
    let mut all = FloodCounts::default();
    for number in 0..SOURCES {
        let text = std::fs::read_to_string(dir.join(format!("flood-{number}")))?;
        let (hellos, silent) = text.trim().split_once(' ').ok_or("half a count")?;
        all.hellos += hellos.parse::<u64>()?;
        all.silent += silent.parse::<u64>()?;
    }
    Ok(all)
}

/// One process of the flood; ends when its control plane does, or after the longest flood there is.
#[allow(clippy::print_stdout, reason = "who started it waits for a line")]
pub(super) async fn source(args: &FloodSourceArgs) -> Result<(), BenchError> {
    let target: SocketAddr = (Ipv4Addr::LOCALHOST, args.port).into();
    let hello: Arc<[u8]> = std::fs::read(args.dir.join("hello"))?.into();
    let (sent, held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for address in (args.number..ADDRESSES).step_by(SOURCES) {
        let from = Ipv4Addr::new(
            127,
            0,
            1 + u8::try_from(address % PREFIXES)?,
            1 + u8::try_from(address / PREFIXES)?,
        );
        tasks.spawn(say_hello(from, target, args.hellos, hello.clone(), sent.clone()));
        tasks.spawn(hold_silent(from, target, args.silent, held.clone()));
    }
    println!("flooding");
    let file = args.dir.join(format!("flood-{}", args.number));
    let written = args.dir.join(format!("flood-{}.new", args.number));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2 * MAX_SECS) {
        let counts = format!("{} {}", sent.load(Ordering::Relaxed), held.load(Ordering::Relaxed));
        std::fs::write(&written, counts)?;
        std::fs::rename(&written, &file)?;
        sleep(COUNTED_EVERY).await;
    }
    Ok(())
}

async fn connect(from: Ipv4Addr, target: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((from, 0).into()).ok()?;
    timeout(CONNECT_WITHIN, socket.connect(target)).await.ok()?.ok()
}

async fn say_hello(
    from: Ipv4Addr,
    target: SocketAddr,
    a_second: u32,
    hello: Arc<[u8]>,
    sent: Arc<AtomicU64>,
) {
    let mut ticks = interval(Duration::from_secs(1) / a_second.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut open = VecDeque::new();
    loop {
        ticks.tick().await;
        let Some(mut stream) = connect(from, target).await else { continue };
        if stream.write_all(&hello).await.is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
            open.push_back(stream);
        }
        if open.len() > HELLOS_KEPT {
            open.pop_front();
        }
    }
}

async fn hold_silent(from: Ipv4Addr, target: SocketAddr, most: usize, held: Arc<AtomicU64>) {
    let mut ticks = interval(Duration::from_secs(1) / OPENED_A_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut open, mut is_full) = (VecDeque::<TcpStream>::new(), false);
    loop {
        ticks.tick().await;
        if open.len() == most && !is_full {
            is_full = true;
            ticks = interval(Duration::from_secs(1) / LOOKED_AT_A_SECOND);
        }
        if open.len() >= most
            && let Some(oldest) = open.pop_front()
        {
            let is_open = matches!(
                oldest.try_read(&mut [0]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock
            );
            if is_open {
                open.push_back(oldest);
                continue;
            }
            held.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(stream) = connect(from, target).await {
            held.fetch_add(1, Ordering::Relaxed);
            open.push_back(stream);
        }
    }
}
