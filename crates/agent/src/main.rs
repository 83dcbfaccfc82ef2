//! The `muster-agent` binary.

use std::process::ExitCode;

use agent::verbs::{self, Cli};
use clap::Parser;
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let asked = std::env::var("MUSTER_LOG").ok().and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(LevelFilter::INFO);
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    verbs::main(Cli::parse())
}
