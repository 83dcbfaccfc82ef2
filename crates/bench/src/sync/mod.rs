//! `muster bench sync`: two-way synchronization against its limits: idle streams, updates up
//! and down, latency, resyncs, a restart of the control plane.
//!
//! The control plane is a process of its own; the nodes' ends of the links live in this one.

mod crowd;
mod durable;
mod idle;
mod latency;
mod link;
mod restart;
mod resync;
mod stage;
mod updates;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::table::Figures;
use crate::{BenchError, Scale};

/// How much load.
#[derive(Clone, Debug, Args)]
pub struct SyncArgs {
    /// Streams held at once, idle and over a restart [default: 9000, quick: 50]
    #[arg(long)]
    streams: Option<usize>,
    /// Objects of a large set [default: 100000, quick: 1000]
    #[arg(long)]
    objects: Option<usize>,
    /// Agents that update at once [default: 500, quick: 10]
    #[arg(long)]
    agents: Option<usize>,
    /// Seconds for each measurement under load [default: 10, quick: 0.5]
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds for which streams are watched idling: two rounds of pings [default: 65, quick: 1]
    #[arg(long)]
    idle_seconds: Option<u64>,
    /// Only these measurements
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,
    #[command(flatten)]
    pub(super) scale: Scale,
}

/// How much load, and where the figures go.
struct SyncLoad<'a> {
    streams: usize,
    objects: usize,
    agents: usize,
    /// Of each measurement under load.
    time: Duration,
    /// For which streams are watched idling.
    idle: Duration,
    /// For which memory has to stand still.
    steady: Duration,
    /// For which load goes on before it is measured.
    warm_up: Duration,
    /// When nothing was applied for so long, nothing more is under way.
    quiet: Duration,
    /// Over which the first requests of many streams are spread.
    spread: Duration,
    /// For which pollers are measured undisturbed.
    calm: Duration,
    figures: &'a Figures,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Memory and CPU of streams that idle
    Idle,
    /// Updates of one agent that come up
    Up,
    /// Updates that go down to one agent
    Down,
    /// Updates of many agents
    Crowd,
    /// From the source to the destination at half load
    Latency,
    /// Large sets that differ a little, or wholly
    Resync,
    /// The control plane starts anew under all streams
    Restart,
}

impl SyncArgs {
    fn load<'a>(&self, figures: &'a Figures) -> SyncLoad<'a> {
        let scale = self.scale;
        let seconds = Duration::from_secs;
        let pause = |full, quick| scale.or(None, seconds(full), Duration::from_millis(quick));
        SyncLoad {
            streams: scale.or(self.streams, 9_000, 50),
            objects: scale.or(self.objects, 100_000, 1_000),
            agents: scale.or(self.agents, 500, 10),
            time: scale.time(self.seconds, 10, 300),
            idle: seconds(scale.or(self.idle_seconds, 65, 1)),
            steady: scale.steady(),
            warm_up: pause(5, 200),
            quiet: pause(2, 500),
            spread: pause(20, 500),
            calm: pause(10, 500),
            figures,
        }
    }

    fn wants(&self, part: Measurement) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Measures all parts that are wanted.
pub(super) async fn run(args: &SyncArgs, figures: &Figures) -> Result<(), BenchError> {
    let load = &args.load(figures);
    let (mut up, mut down) = (None, None);
    if args.wants(Measurement::Idle) {
        idle::run(load).await?;
    }
    if args.wants(Measurement::Up) {
        up = Some(updates::up(load).await?);
    }
    if args.wants(Measurement::Down) {
        down = Some(updates::down(load).await?);
    }
    if args.wants(Measurement::Crowd) {
        crowd::run(load).await?;
    }
    if args.wants(Measurement::Latency) {
        latency::run(load, up, down).await?;
    }
    if args.wants(Measurement::Resync) {
        resync::run(load).await?;
    }
    if args.wants(Measurement::Restart) {
        restart::run(load).await?;
    }
    Ok(())
}
