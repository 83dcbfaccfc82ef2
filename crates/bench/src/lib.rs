//! `muster bench`: speed and memory, each beside its floor in the same run.
//!
//! Every figure is a ratio to a limit or to a peer measured in the same run. Servers are
//! processes of their own, so that their CPU and memory can be read from the kernel.

mod check;
mod checkin;
mod fleet;
mod floor;
mod load;
mod process;
mod publish;
mod sync;
mod table;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::task::JoinSet;

use cli::exit::Exit;
use cli::failure::{Failure, UserError};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The bare loop: hyper, rustls, one signature verified, one JSON body, nothing else
    Floor(Load),
    /// A real control plane with real keys, beside the floor, in one run
    Checkin(Load),
    /// Judging 100,000 named nodes before anything is signed
    Check(CheckArgs),
    /// Resolving and publishing 100,000 host entries, and an edit of one
    Publish(PublishArgs),
    /// Synchronization: streams, updates, latency, resyncs, a restart
    Sync(sync::SyncArgs),
    /// The floor's server, started by the others
    #[command(hide = true)]
    FloorServer {
        /// The certificates and the key to verify with
        dir: PathBuf,
    },
}

/// How much load.
#[derive(Clone, Debug, Args)]
pub struct Load {
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    secs: u64,
    /// Connections that call at once
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Nodes enrolled
    #[arg(long, default_value_t = 20_000)]
    nodes: usize,
    /// Connections held open and idle
    #[arg(long, default_value_t = 9_000)]
    idle: usize,
}

impl Load {
    fn time(&self) -> Duration {
        Duration::from_secs(self.secs.clamp(1, 60))
    }
}

/// How many nodes to judge.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Named nodes
    #[arg(long, default_value_t = 100_000)]
    nodes: usize,
    /// A small fleet, whether it can be measured at all
    #[arg(long)]
    quick: bool,
}

/// How large a fleet repo.
#[derive(Clone, Debug, Args)]
pub struct PublishArgs {
    /// Host entries with vars of their own
    #[arg(long, default_value_t = 100_000)]
    nodes: usize,
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

#[derive(Debug, thiserror::Error)]
#[error("the measurement could not be made: {0}")]
struct BenchFailed(BenchError);

impl UserError for BenchFailed {}

/// Measures and prints.
///
/// # Errors
/// When something needed could not be started or failed under load.
pub async fn run(bench: Bench) -> Result<Exit, Failure> {
    let measured = match bench {
        Bench::Floor(load) => checkin::floor_alone(&load).await,
        Bench::Checkin(load) => checkin::run(&load).await,
        Bench::Check(args) => check::run(&args),
        Bench::Publish(args) => publish::run(args.nodes).await,
        Bench::Sync(args) => sync::run(&args).await,
        Bench::FloorServer { dir } => floor::serve(&dir).await,
    };
    measured.map_err(BenchFailed)?;
    Ok(Exit::Ok)
}
