//! The `muster-agent` binary.

use std::process::ExitCode;

use agent::verbs::{self, Cli};
use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("MUSTER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    verbs::main(Cli::parse())
}
