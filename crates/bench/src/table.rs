//! [`Figures`]: where the rows of a benchmark go: a table for people, or one JSON object a row for
//! programs (`--json`).

use std::sync::atomic::{AtomicUsize, Ordering};

use cli::screen::Screen;
pub(super) use figures::{Figure as Row, Unit};

use crate::BenchError;

/// Where the rows of one benchmark go, and how many of them passed their limits.
pub(super) struct Figures {
    bench: &'static str,
    quick: bool,
    screen: Screen,
    missed: AtomicUsize,
}

impl Figures {
    /// Of this command.
    pub(super) fn new(bench: &'static str, quick: bool, screen: Screen) -> Figures {
        Figures { bench, quick, screen, missed: AtomicUsize::new(0) }
    }

    /// Small sizes are wanted.
    pub(super) fn is_quick(&self) -> bool {
        self.quick
    }

    /// How many limits were passed so far.
    pub(super) fn missed(&self) -> usize {
        self.missed.load(Ordering::Relaxed)
    }

    /// Prints a table as soon as it is there.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(super) fn table(&self, table: &'static str, title: &str, rows: Vec<Row>) -> Result<(), BenchError> {
        let rows: Vec<Row> = match self.quick {
            true => rows.into_iter().map(Row::quick).collect(),
            false => rows,
        };
        self.missed.fetch_add(rows.iter().filter(|row| !row.is_kept()).count(), Ordering::Relaxed);
        let shown = match self.screen.is_json() {
            true => figures::lines(self.bench, table, title, &rows, self.quick)?,
            false => figures::text(title, &rows),
        };
        Ok(self.screen.text(&shown)?)
    }
}
