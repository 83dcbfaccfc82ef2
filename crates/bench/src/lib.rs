//! `muster bench`: speed and memory, each beside its floor in the same run.
//!
//! Every figure is a ratio to a limit or to a peer measured in the same run. Servers are
//! processes of their own, so that their CPU and memory can be read from the kernel.

mod check;
mod checkin;
mod fleet;
mod flood;
mod floor;
mod joins;
mod load;
mod process;
mod proof;
mod publish;
mod rehearse;
mod renewals;
mod rollouts;
mod secrets;
mod status;
mod sync;
mod table;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::task::JoinSet;

use cli::exit::Exit;
use cli::failure::{Failure, UserError};
use cli::screen::{Screen, aside, plural};

use rollouts::RolloutSizes;
use table::Figures;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The bare loop: hyper, rustls, one signature verified, one JSON body, nothing else
    Floor(Load),
    /// A real control plane with real keys, beside the floor, in one run
    Checkin(Load),
    /// Certificates renewed as 100,000 nodes do within ten minutes, while others check in
    Renewals(Load),
    /// Ten thousand hosts that join at once, while others check in
    Joins(JoinsArgs),
    /// Judging 100,000 named nodes before anything is signed
    Check(CheckArgs),
    /// Resolving and publishing 100,000 host entries, and an edit of one
    Publish(PublishArgs),
    /// Playing a rollout over 10,000 nodes beforehand
    Rehearse(RehearseBenchArgs),
    /// Planning a wave of 100,000 nodes, moving it on by their events, and taking events in durably
    Rollout(RolloutBenchArgs),
    /// Verifying a node's own proof from a release of 100,000 nodes
    Proof(CheckArgs),
    /// Opening 100 secrets at a node, and a publish in which one of 100,000 recipients rotates
    Secrets(CheckArgs),
    /// Looking at 100,000 nodes with sets of their own, while they check in
    Status(StatusArgs),
    /// Synchronization: streams, updates, latency, resyncs, a restart
    Sync(sync::SyncArgs),
    /// Check-ins of nodes while strangers flood the node port, on loopback
    Flood(flood::FloodArgs),
    /// One process of the flood, started by the other
    #[command(hide = true)]
    FloodSource(flood::FloodSourceArgs),
    /// The floor's server, started by the others
    #[command(hide = true)]
    FloorServer {
        /// The certificates and the key to verify with
        dir: PathBuf,
    },
}

/// Connections that call at once.
const CONNECTIONS: usize = 16;

/// How much load.
#[derive(Clone, Debug, Args)]
pub struct Load {
    /// Seconds for each measurement [default: 5, quick: 0.5]
    #[arg(long)]
    secs: Option<u64>,
    /// Connections that call at once
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: usize,
    /// Nodes enrolled [default: 20000, quick: 200]
    #[arg(long)]
    nodes: Option<usize>,
    /// Connections held open and idle [default: 9000, quick: 100]
    #[arg(long)]
    idle: Option<usize>,
    #[command(flatten)]
    scale: Scale,
}

impl Load {
    fn time(&self) -> Duration {
        self.scale.time(self.secs, 5, 60)
    }

    fn nodes(&self) -> usize {
        self.scale.or(self.nodes, 20_000, 200).max(self.connections)
    }

    fn idle(&self) -> usize {
        self.scale.or(self.idle, 9_000, 100)
    }
}

/// At which sizes it is measured.
#[derive(Clone, Copy, Debug, Args)]
struct Scale {
    /// Small sizes and seconds, with limits that hold there in a debug build too: whether it can be measured
    #[arg(long)]
    quick: bool,
}

impl Scale {
    /// What was asked for, or else the size at this scale.
    fn or<T>(self, asked: Option<T>, full: T, quick: T) -> T {
        asked.unwrap_or(if self.quick { quick } else { full })
    }

    /// For how long something is measured, in seconds as asked for or at full scale.
    fn time(self, asked: Option<u64>, full: u64, most: u64) -> Duration {
        let asked = asked.map(|asked| Duration::from_secs(asked.clamp(1, most)));
        self.or(asked, Duration::from_secs(full), Duration::from_millis(500))
    }

    /// For how long memory has to stand still.
    fn steady(self) -> Duration {
        self.or(None, Duration::from_secs(2), Duration::from_millis(250))
    }
}

/// How many hosts join at once.
#[derive(Clone, Debug, Args)]
pub struct JoinsArgs {
    /// Hosts that join, 10000 at most [default: 10000, quick: 300]
    #[arg(long)]
    hosts: Option<usize>,
    #[command(flatten)]
    scale: Scale,
}

/// How many nodes to judge.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Named nodes [default: 100000, quick: 1000]
    #[arg(long)]
    nodes: Option<usize>,
    #[command(flatten)]
    scale: Scale,
}

/// How large a fleet is rehearsed.
#[derive(Clone, Debug, Args)]
pub struct RehearseBenchArgs {
    /// Nodes, made of patterns [default: 10000, quick: 500]
    #[arg(long)]
    nodes: Option<usize>,
    #[command(flatten)]
    scale: Scale,
}

/// How large a fleet is rolled out to.
#[derive(Clone, Debug, Args)]
pub struct RolloutBenchArgs {
    /// Nodes that are planned [default: 100000, quick: 1000]
    #[arg(long)]
    nodes: Option<usize>,
    /// Nodes that report to a control plane [default: 4000, quick: 50]
    #[arg(long)]
    reporting: Option<usize>,
    #[command(flatten)]
    scale: Scale,
}

/// How large a fleet repo.
#[derive(Clone, Debug, Args)]
pub struct PublishArgs {
    /// Host entries with vars of their own [default: 100000, quick: 500]
    #[arg(long)]
    nodes: Option<usize>,
    #[command(flatten)]
    scale: Scale,
}

/// How large a fleet is looked at.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Nodes, each with a set of its own [default: 100000, quick: 500]
    #[arg(long)]
    nodes: Option<usize>,
    /// Seconds for each measurement [default: 20, quick: 2]
    #[arg(long)]
    secs: Option<u64>,
    #[command(flatten)]
    scale: Scale,
}

/// Why a measurement could not be made.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until at most `most` tasks are under way, and gives what those that ended gave.
async fn wait_for<T, E>(tasks: &mut JoinSet<Result<T, E>>, most: usize) -> Result<Vec<T>, BenchError>
where
    T: 'static,
    E: 'static,
    BenchError: From<E>,
{
    let mut ended = Vec::new();
    while tasks.len() > most {
        if let Some(done) = tasks.join_next().await {
            ended.push(done??);
        }
    }
    Ok(ended)
}

/// An operation of a benchmark that failed: which, and on what.
#[derive(Debug, thiserror::Error)]
#[error("{operation}")]
struct OperationFailed {
    operation: String,
    source: BenchError,
}

/// Names the operation, with its file, that an error is about.
trait During<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T, BenchError>;
}

impl<T, E: Into<BenchError>> During<T> for Result<T, E> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T, BenchError> {
        self.map_err(|error| OperationFailed { operation: operation(), source: error.into() }.into())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the measurement could not be made")]
struct BenchFailed(#[source] BenchError);

impl UserError for BenchFailed {}

/// Measures and prints.
///
/// # Errors
/// When something needed could not be started or failed under load. A limit that was passed is
/// no error: the table says so, and the exit is [`Exit::Error`].
pub async fn run(bench: Bench, screen: Screen) -> Result<Exit, Failure> {
    let begin = |name, scale: Scale| Figures::new(name, scale.quick, screen);
    let (figures, measured) = match bench {
        Bench::Floor(load) => {
            let figures = begin("floor", load.scale);
            let measured = checkin::floor_alone(&load, &figures).await;
            (figures, measured)
        }
        Bench::Checkin(load) => {
            let figures = begin("checkin", load.scale);
            let measured = checkin::run(&load, &figures).await;
            (figures, measured)
        }
        Bench::Renewals(load) => {
            let figures = begin("renewals", load.scale);
            let measured = renewals::run(&load, &figures).await;
            (figures, measured)
        }
        Bench::Joins(args) => {
            let figures = begin("joins", args.scale);
            let (hosts, time) = (args.scale.or(args.hosts, 10_000, 300), args.scale.time(None, 10, 60));
            let measured = joins::run(hosts, time, &figures).await;
            (figures, measured)
        }
        Bench::Check(args) => {
            let figures = begin("check", args.scale);
            let measured = check::run(args.scale.or(args.nodes, 100_000, 1_000), &figures);
            (figures, measured)
        }
        Bench::Rehearse(args) => {
            let figures = begin("rehearse", args.scale);
            let measured = rehearse::run(args.scale.or(args.nodes, 10_000, 500), &figures);
            (figures, measured)
        }
        Bench::Rollout(args) => {
            let figures = begin("rollout", args.scale);
            let sizes = RolloutSizes {
                planned: args.scale.or(args.nodes, 100_000, 1_000),
                reporting: args.scale.or(args.reporting, 4_000, 50),
            };
            let measured = rollouts::run(sizes, &figures).await;
            (figures, measured)
        }
        Bench::Proof(args) => {
            let figures = begin("proof", args.scale);
            let time = args.scale.time(None, 2, 60);
            let measured = proof::run(args.scale.or(args.nodes, 100_000, 1_000), time, &figures);
            (figures, measured)
        }
        Bench::Secrets(args) => {
            let figures = begin("secrets", args.scale);
            let time = args.scale.time(None, 2, 60);
            let measured = secrets::run(args.scale.or(args.nodes, 100_000, 200), time, &figures).await;
            (figures, measured)
        }
        Bench::Publish(args) => {
            let figures = begin("publish", args.scale);
            let nodes = args.scale.or(args.nodes, 100_000, 500);
            let measured = publish::run(nodes, &figures).await;
            (figures, measured)
        }
        Bench::Status(args) => {
            let figures = begin("status", args.scale);
            let nodes = args.scale.or(args.nodes, 100_000, 500);
            let time = Duration::from_secs(args.scale.or(args.secs, 20, 2).clamp(1, 300));
            let measured = status::run(nodes, time, &figures).await;
            (figures, measured)
        }
        Bench::Sync(args) => {
            let figures = begin("sync", args.scale);
            let measured = sync::run(&args, &figures).await;
            (figures, measured)
        }
        Bench::Flood(args) => {
            let figures = begin("flood", args.scale);
            let measured = flood::run(&args, &figures).await;
            (figures, measured)
        }
        Bench::FloodSource(args) => {
            flood::source(&args).await.map_err(BenchFailed)?;
            return Ok(Exit::Ok);
        }
        Bench::FloorServer { dir } => {
            floor::serve(&dir).await.map_err(BenchFailed)?;
            return Ok(Exit::Ok);
        }
    };
    measured.map_err(BenchFailed)?;
    if figures.is_quick() {
        aside("small sizes: whether each figure can be made, and not what it is");
    }
    match figures.missed() {
        0 => Ok(Exit::Ok),
        missed => {
            aside(&format!("{} passed", plural(missed, "limit")));
            Ok(Exit::Error)
        }
    }
}
