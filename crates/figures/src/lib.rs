//! What a benchmark measured: figures, each with its limit, as a table for people and as one JSON object a
//! row for programs.
//!
//! Every benchmark prints these, and `cargo xtask figures` keeps them in `docs/figures` and makes
//! `docs/benchmarks.md` of them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// With `--quick` a limit of what depends on the machine and on the build is this many times wider: what
/// it finds then is something that hangs or is done over and over, in a debug build on a busy machine too.
const QUICK_SLACK: f64 = 50.0;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
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

    /// A value of this unit, with the digits that count.
    pub fn measured(self, value: f64) -> String {
        let number = match value.abs() {
            size if matches!(self, Unit::Count | Unit::Bytes) || size >= 100.0 => {
                grouped(&format!("{value:.0}"))
            }
            size if size >= 1.0 => format!("{value:.2}"),
            _ => format!("{value:.3}"),
        };
        self.behind(number)
    }

    /// A value that was laid down, as exact as it is.
    fn given(self, value: f64) -> String {
        let number = if value.fract() == 0.0 { grouped(&format!("{value:.0}")) } else { value.to_string() };
        self.behind(number)
    }

    fn behind(self, number: String) -> String {
        format!("{number} {}", self.text()).trim_end().to_owned()
    }
}

/// A whole number with a comma before each three digits.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut grouped = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Which side of its limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitDirection {
    /// The figure must not exceed the limit.
    AtMost,
    /// The figure must reach the limit.
    AtLeast,
}

/// What a figure must keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureLimit {
    /// The last value that keeps it, in the figure's unit.
    pub limit: f64,
    /// Whether that is the most or the least.
    pub direction: LimitDirection,
}

/// A figure, with its limit if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured, in words that do not change with sizes.
    pub name: Cow<'static, str>,
    /// How much.
    pub value: f64,
    /// What that counts.
    pub unit: Unit,
    /// What it must keep.
    #[serde(flatten)]
    pub limit: Option<FigureLimit>,
}

impl Figure {
    /// A figure without a limit.
    pub fn plain(name: impl Into<Cow<'static, str>>, value: f64, unit: Unit) -> Figure {
        Figure { name: name.into(), value, unit, limit: None }
    }

    /// A figure that must not exceed its limit.
    pub fn at_most(name: impl Into<Cow<'static, str>>, value: f64, limit: f64, unit: Unit) -> Figure {
        let limit = Some(FigureLimit { limit, direction: LimitDirection::AtMost });
        Figure { limit, ..Figure::plain(name, value, unit) }
    }

    /// A figure that must reach its limit.
    pub fn at_least(name: impl Into<Cow<'static, str>>, value: f64, limit: f64, unit: Unit) -> Figure {
        let limit = Some(FigureLimit { limit, direction: LimitDirection::AtLeast });
        Figure { limit, ..Figure::plain(name, value, unit) }
    }

    /// Whether it keeps its limit; one without a limit does.
    pub fn is_kept(&self) -> bool {
        self.limit.is_none_or(|limit| match limit.direction {
            LimitDirection::AtMost => self.value <= limit.limit,
            LimitDirection::AtLeast => self.value >= limit.limit,
        })
    }

    /// With the limit that holds at small sizes in a debug build.
    #[must_use]
    pub fn quick(mut self) -> Figure {
        if let (Some(limit), false) = (&mut self.limit, self.unit.is_exact()) {
            match limit.direction {
                LimitDirection::AtMost => limit.limit *= QUICK_SLACK,
                LimitDirection::AtLeast => limit.limit /= QUICK_SLACK,
            }
        }
        self
    }

    /// The value with its unit.
    pub fn shown(&self) -> String {
        self.unit.measured(self.value)
    }

    /// The limit with its unit, as `at most 4 KiB`.
    pub fn shown_limit(&self) -> Option<String> {
        let limit = self.limit?;
        let words = match limit.direction {
            LimitDirection::AtMost => "at most",
            LimitDirection::AtLeast => "at least",
        };
        Some(format!("{words} {}", self.unit.given(limit.limit)))
    }
}

/// A figure as programs read it: one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureLine {
    /// The benchmark: `checkin`.
    pub bench: Cow<'static, str>,
    /// The table, by a name that does not change with sizes.
    pub table: Cow<'static, str>,
    /// The table as people read it, sizes included.
    pub title: String,
    /// The figure itself.
    #[serde(flatten)]
    pub figure: Figure,
    /// Whether it keeps its limit.
    pub kept: bool,
    /// At small sizes: the figure itself says nothing.
    pub quick: bool,
}

/// The rows of a table as programs read them: one object a line.
///
/// # Errors
/// When a value is no number that JSON has.
pub fn lines(
    bench: &'static str,
    table: &'static str,
    title: &str,
    rows: &[Figure],
    quick: bool,
) -> Result<String, serde_json::Error> {
    let mut out = String::new();
    for figure in rows {
        let (title, figure, kept) = (title.to_owned(), figure.clone(), figure.is_kept());
        let line = FigureLine { bench: bench.into(), table: table.into(), title, figure, kept, quick };
        out += &serde_json::to_string(&line)?;
        out.push('\n');
    }
    Ok(out)
}

/// The table that people read: aligned, each figure beside its limit.
pub fn text(title: &str, rows: &[Figure]) -> String {
    let shown: Vec<String> = rows.iter().map(Figure::shown).collect();
    let name = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let figure = shown.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let mut out = format!("\n{title}\n");
    for (row, shown) in rows.iter().zip(&shown) {
        let kept = if row.is_kept() { "kept" } else { "MISSED" };
        let limit = row.shown_limit().map(|limit| format!("  {limit}: {kept}")).unwrap_or_default();
        out += &format!("  {:<name$}  {shown:>figure$}{limit}\n", row.name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Figure; 5] {
        [
            Figure::at_most("CPU to the floor's", 1.0734, 1.5, Unit::Times),
            Figure::at_least("a second", 128_605.4, 50_000.0, Unit::PerSecond),
            Figure::at_most("memory", 15.04, 15.0, Unit::Mib),
            Figure::plain("nodes", 9.0, Unit::Count),
            Figure::plain("sent", 0.0, Unit::Bytes),
        ]
    }

    #[test]
    fn a_figure_is_shown_with_what_counts_of_it_beside_its_limit() {
        assert_eq!(
            text("a check-in", &rows()),
            "\na check-in\n  CPU to the floor's  1.07 times  at most 1.5 times: kept\n  \
             a second            128,605 /s  at least 50,000 /s: kept\n  \
             memory               15.04 MiB  at most 15 MiB: MISSED\n  \
             nodes                        9\n  \
             sent                   0 bytes\n"
        );
    }

    #[test]
    fn a_line_is_one_object_and_is_read_back() {
        let [ratio, .., nodes, _] = rows();
        let json =
            lines("checkin", "check-in", "a check-in", &[ratio.clone(), nodes.clone()], false).unwrap();
        let (first, second) = json.split_once('\n').unwrap();
        assert_eq!(
            first,
            r#"{"bench":"checkin","table":"check-in","title":"a check-in","name":"CPU to the floor's","value":1.0734,"unit":"times","limit":1.5,"direction":"at_most","kept":true,"quick":false}"#
        );
        assert!(!second.contains("limit") && !second.contains("direction"), "{second}");
        for (line, figure) in [(first, ratio), (second, nodes)] {
            assert_eq!(serde_json::from_str::<FigureLine>(line).unwrap().figure, figure);
        }
    }

    #[test]
    fn quick_limits_are_wider_but_for_what_is_the_same_everywhere() {
        let limit = |figure: Figure| figure.quick().limit.map(|limit| limit.limit);
        assert_eq!(limit(Figure::at_most("p99", 1.0, 2.0, Unit::Millis)), Some(100.0));
        assert_eq!(limit(Figure::at_least("a second", 1.0, 100.0, Unit::PerSecond)), Some(2.0));
        assert_eq!(limit(Figure::at_most("sent", 1.0, 900.0, Unit::Bytes)), Some(900.0));
    }
}
