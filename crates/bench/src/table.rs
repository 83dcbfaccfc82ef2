//! [`Figures`]: where the rows of a benchmark go: a table for people, or one JSON object a row for
//! programs (`--json`).

use std::sync::atomic::{AtomicUsize, Ordering};

use cli::screen::Screen;
use serde::Serialize;

use crate::BenchError;

/// With `--quick` a limit of what depends on the machine and on the build is this many times wider: what
/// it finds then is something that hangs or is done over and over, in a debug build on a busy machine too.
const QUICK_SLACK: f64 = 50.0;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    /// Things.
    #[serde(rename = "")]
    Count,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// 1,024 bytes, as they travel.
    #[serde(rename = "KiB")]
    Kib,
    /// 1,024 bytes of memory.
    #[serde(rename = "KiB of memory")]
    KibOfMemory,
    /// 1,024 times 1,024 bytes of memory.
    #[serde(rename = "MiB")]
    Mib,
    /// Seconds.
    #[serde(rename = "s")]
    Secs,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// So many in each second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Times a peer of the same run.
    #[serde(rename = "times")]
    Times,
    /// Percent of a core.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => "bytes",
            Unit::Kib | Unit::KibOfMemory => "KiB",
            Unit::Mib => "MiB",
            Unit::Secs => "s",
            Unit::Millis => "ms",
            Unit::Micros => "us",
            Unit::PerSecond => "/s",
            Unit::Times => "times",
            Unit::Percent => "%",
        }
    }

    /// It is the same on every machine and in every build.
    fn is_exact(self) -> bool {
        matches!(self, Unit::Count | Unit::Bytes | Unit::Kib)
    }
}

/// Which side of its limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    /// The figure must not exceed the limit.
    AtMost,
    /// The figure must reach the limit.
    AtLeast,
}

/// A figure, with its limit if it has one.
#[derive(Clone, Debug)]
pub(super) struct Row {
    name: &'static str,
    value: f64,
    unit: Unit,
    limit: Option<(Direction, f64)>,
}

impl Row {
    /// A figure without a limit.
    pub(super) fn plain(name: &'static str, value: f64, unit: Unit) -> Row {
        Row { name, value, unit, limit: None }
    }

    /// A figure that must not exceed its limit.
    pub(super) fn at_most(name: &'static str, value: f64, limit: f64, unit: Unit) -> Row {
        Row { name, value, unit, limit: Some((Direction::AtMost, limit)) }
    }

    /// A figure that must reach its limit.
    pub(super) fn at_least(name: &'static str, value: f64, limit: f64, unit: Unit) -> Row {
        Row { name, value, unit, limit: Some((Direction::AtLeast, limit)) }
    }

    fn is_kept(&self) -> bool {
        match self.limit {
            None => true,
            Some((Direction::AtMost, limit)) => self.value <= limit,
            Some((Direction::AtLeast, limit)) => self.value >= limit,
        }
    }

    /// With the limit that holds at small sizes in a debug build.
    fn quick(mut self) -> Row {
        if let (Some((direction, limit)), false) = (&mut self.limit, self.unit.is_exact()) {
            match direction {
                Direction::AtMost => *limit *= QUICK_SLACK,
                Direction::AtLeast => *limit /= QUICK_SLACK,
            }
        }
        self
    }
}

/// A row as programs read it: one object a line.
#[derive(Serialize)]
struct RowLine<'a> {
    /// The command: `checkin`.
    bench: &'static str,
    /// The table, by a name that does not change with sizes.
    table: &'static str,
    /// The table as people read it, sizes included.
    title: &'a str,
    name: &'static str,
    value: f64,
    unit: Unit,
    /// Absent for a figure without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<Direction>,
    kept: bool,
    /// At small sizes: the figure itself says nothing.
    quick: bool,
}

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
            true => self.lines(table, title, &rows)?,
            false => text(title, &rows),
        };
        Ok(self.screen.text(&shown)?)
    }

    fn lines(&self, table: &'static str, title: &str, rows: &[Row]) -> Result<String, BenchError> {
        let mut out = String::new();
        for row in rows {
            out += &serde_json::to_string(&RowLine {
                bench: self.bench,
                table,
                title,
                name: row.name,
                value: row.value,
                unit: row.unit,
                limit: row.limit.map(|(_, limit)| limit),
                direction: row.limit.map(|(direction, _)| direction),
                kept: row.is_kept(),
                quick: self.quick,
            })?;
            out.push('\n');
        }
        Ok(out)
    }
}

fn number(value: f64, unit: Unit) -> String {
    let number = match value {
        _ if unit == Unit::Count || value >= 100.0 => format!("{value:.0}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    format!("{number} {}", unit.text()).trim_end().to_owned()
}

/// The rows, aligned.
fn text(title: &str, rows: &[Row]) -> String {
    let figures: Vec<String> = rows.iter().map(|row| number(row.value, row.unit)).collect();
    let name = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let figure = figures.iter().map(|figure| figure.chars().count()).max().unwrap_or(0);
    let mut out = format!("\n{title}\n");
    for (row, value) in rows.iter().zip(&figures) {
        let limit = match row.limit {
            None => String::new(),
            Some((direction, limit)) => {
                let word = match direction {
                    Direction::AtMost => "at most",
                    Direction::AtLeast => "at least",
                };
                let kept = if row.is_kept() { "kept" } else { "MISSED" };
                format!("  {word} {}: {kept}", number(limit, row.unit))
            }
        };
        out += &format!("  {:<name$}  {value:>figure$}{limit}\n", row.name);
    }
    out
}
