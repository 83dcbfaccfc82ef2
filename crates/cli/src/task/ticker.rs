//! [`Ticker`]: one line about what goes on, drawn over on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::screen::{Screen, aside};

/// The widest that a line is drawn, so that it stays one line on a usual terminal.
const MAX_WIDTH: usize = 79;
/// How often a new line is written where lines cannot be drawn over.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Says on stderr how something goes on. Says nothing when the result is wanted as JSON.
#[derive(Debug)]
pub struct Ticker {
    quiet: bool,
    terminal: bool,
    drawn: bool,
    last: String,
    at: Option<Instant>,
}

impl Ticker {
    /// A line on this process's stderr.
    pub fn new(screen: Screen) -> Ticker {
        let terminal = io::stderr().is_terminal();
        Ticker { quiet: screen.is_json(), terminal, drawn: false, last: String::new(), at: None }
    }

    /// Shows the line. Where it cannot be drawn over only a line that differs is written, and
    /// not too often.
    pub fn show(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        if self.terminal {
            let line: String = line.chars().take(MAX_WIDTH).collect();
            draw(&format!("\r\u{1b}[K{}", model::text::printable(&line)));
            self.drawn = true;
            return;
        }
        let soon = self.at.is_some_and(|at| at.elapsed() < PLAIN_EVERY);
        if !soon && line != self.last {
            aside(line);
            line.clone_into(&mut self.last);
            self.at = Some(Instant::now());
        }
    }

    /// Makes room for other output.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            draw("\r\u{1b}[K");
        }
    }

    /// Says a line that stays.
    pub fn say(&mut self, line: &str) {
        self.clear();
        if !self.quiet {
            aside(line);
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.clear();
    }
}

fn draw(text: &str) {
    let mut err = io::stderr().lock();
    // Nobody is left to tell when stderr is gone.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
