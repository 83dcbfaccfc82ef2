//! The `muster-agent` binary.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use agent::verbs::{self, Cli};
use clap::Parser;
use tracing::level_filters::LevelFilter;

/// What process lists call this process, however its file was named: an agent that starts itself anew is the file
/// `/proc/self/exe`.
const NAME: &std::ffi::CStr = c"muster-agent";

fn main() -> ExitCode {
    // Without it the agent works as well.
    let _ = rustix::thread::set_name(NAME);
    let asked = std::env::var("MUSTER_LOG").ok().and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(LevelFilter::INFO);
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match std::env::var("MUSTER_LOG_FORMAT").as_deref() {
        Ok("json") => logs.json().flatten_event(true).init(),
        // Anything else is text: a mistyped word must not keep the agent from starting.
        Ok(_) | Err(_) => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_ansi(colour).init();
        }
    }
    match Cli::try_parse() {
        Ok(cli) => verbs::main(cli),
        // 2 would mean differences.
        Err(error) => {
            let wrong = error.use_stderr();
            let _ = error.print();
            ExitCode::from(u8::from(wrong))
        }
    }
}
