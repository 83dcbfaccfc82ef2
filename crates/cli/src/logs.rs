//! Logs: to stderr, as text or as one JSON object a line.

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

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

/// What is logged, to be changed while the program runs.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Begins to log at a level; `MUSTER_LOG` overrides it.
pub fn begin(level: LevelFilter, format: LogFormat) {
    let asked = std::env::var("MUSTER_LOG").ok().and_then(|asked| asked.parse().ok());
    let (filter, handle) = reload::Layer::new(asked.unwrap_or(level));
    let logs = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A second subscriber is refused; the first one serves.
    let begun = match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && colour_wanted();
            logs.with(lines.with_ansi(colour)).try_init()
        }
        LogFormat::Json => logs.with(lines.json().flatten_event(true)).try_init(),
    };
    if begun.is_ok() {
        let _ = LEVEL.set(handle);
    }
}

/// Changes the level while the program runs (OPS-4).
///
/// # Errors
/// What is wrong with it, in words.
pub fn set(level: &str) -> Result<(), String> {
    let parsed: LevelFilter =
        level.parse().map_err(|_| format!("{level:?} is no level: error, warn, info, debug or trace"))?;
    let handle = LEVEL.get().ok_or("this program's logs are another's")?;
    handle.modify(|now| *now = parsed).map_err(|error| error.to_string())
}
