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

use crate::BenchError;

/// How much load.
#[derive(Clone, Debug, Args)]
pub struct SyncArgs {
    /// Streams held at once, idle and over a restart
    #[arg(long, default_value_t = 9_000)]
    streams: usize,
    /// Objects of a large set
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Agents that update at once
    #[arg(long, default_value_t = 500)]
    agents: usize,
    /// Seconds for each measurement under load
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds for which streams are watched idling: two rounds of pings
    #[arg(long, default_value_t = 65)]
    idle_seconds: u64,
    /// Only these measurements
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,
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
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.clamp(1, 300))
    }

    fn wants(&self, part: Measurement) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Measures all parts that are wanted.
pub(super) async fn run(args: &SyncArgs) -> Result<(), BenchError> {
    let (mut up, mut down) = (None, None);
    if args.wants(Measurement::Idle) {
        idle::run(args).await?;
    }
    if args.wants(Measurement::Up) {
        up = Some(updates::up(args).await?);
    }
    if args.wants(Measurement::Down) {
        down = Some(updates::down(args).await?);
    }
    if args.wants(Measurement::Crowd) {
        crowd::run(args).await?;
    }
    if args.wants(Measurement::Latency) {
        latency::run(args, up, down).await?;
    }
    if args.wants(Measurement::Resync) {
        resync::run(args).await?;
    }
    if args.wants(Measurement::Restart) {
        restart::run(args).await?;
    }
    Ok(())
}
