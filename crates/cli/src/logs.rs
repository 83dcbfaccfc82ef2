//! Logs: to stderr, as text or as one JSON object a line.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

use crate::screen::colour_wanted;

/// Names the form of logs.
pub const FORMAT_ENV: &str = "MUSTER_LOG_FORMAT";

/// The form of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs: one object a line
    Json,
}

/// Begins to log at a level; `MUSTER_LOG` overrides it.
pub fn begin(level: LevelFilter, format: LogFormat) {
    let asked = std::env::var("MUSTER_LOG").ok().and_then(|asked| asked.parse().ok());
    let logs = tracing_subscriber::fmt().with_max_level(asked.unwrap_or(level)).with_writer(std::io::stderr);
    // A second subscriber is refused; the first one serves.
    let _ = match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal() && colour_wanted()).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}
