//! Logs: to stderr, as text or as one JSON object a line.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use clap::ValueEnum;
use model::text::printable_json;
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

/// Lines of JSON with what a terminal takes for more than text written as escapes: nodes name things as they like.
struct PlainJson<W>(W);

impl<W: io::Write> io::Write for PlainJson<W> {
    /// Takes a whole line, as `tracing` writes one.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(printable_json(text).as_bytes())?,
            Err(_) => self.0.write_all(line.escape_ascii().to_string().as_bytes())?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
        LogFormat::Json => {
            let lines = lines.with_writer(|| PlainJson(std::io::stderr()));
            logs.with(lines.json().flatten_event(true)).try_init()
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// OPS-4: a line of JSON says what the node said, and nothing that a terminal obeys.
    #[test]
    fn a_node_s_text_in_json_is_text() {
        const SAID: &str = "a\u{1b}[8mb\u{9b}2J\u{202e}c\nd\u{7f}";
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || PlainJson(writer.clone()));
        let subscriber = tracing_subscriber::registry().with(layer.json().flatten_event(true));
        tracing::subscriber::with_default(subscriber, || tracing::warn!(said = SAID, "it says"));
        let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let line = written.strip_suffix('\n').unwrap();
        assert!(line.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{line:?}");
        let read: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(read["said"], SAID);
    }
}
