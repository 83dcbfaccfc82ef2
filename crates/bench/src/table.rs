//! How figures are printed: each beside its limit.

/// A figure with its limit.
pub(super) struct Row {
    /// What was measured.
    pub(super) what: String,
    /// The figure as text.
    pub(super) figure: String,
    /// The limit as text, and whether it was kept; `None` for a figure without one.
    pub(super) limit: Option<(String, bool)>,
}

impl Row {
    /// A figure without a limit.
    pub(super) fn plain(what: impl Into<String>, figure: impl Into<String>) -> Row {
        Row { what: what.into(), figure: figure.into(), limit: None }
    }

    /// A figure that must not exceed its limit.
    pub(super) fn at_most(what: impl Into<String>, figure: f64, limit: f64, unit: &str) -> Row {
        let limit = Some((format!("at most {}", number(limit, unit)), figure <= limit));
        Row { limit, ..Row::plain(what, number(figure, unit)) }
    }

    /// A figure that must reach its limit.
    pub(super) fn at_least(what: impl Into<String>, figure: f64, limit: f64, unit: &str) -> Row {
        let limit = Some((format!("at least {}", number(limit, unit)), figure >= limit));
        Row { limit, ..Row::plain(what, number(figure, unit)) }
    }
}

fn number(value: f64, unit: &str) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0} {unit}"),
        _ if value >= 1.0 => format!("{value:.2} {unit}"),
        _ => format!("{value:.3} {unit}"),
    }
}

/// Prints the rows, aligned.
#[allow(clippy::print_stdout, reason = "this is what the user asked for")]
pub(super) fn print(title: &str, rows: &[Row]) {
    let what = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    let figure = rows.iter().map(|row| row.figure.chars().count()).max().unwrap_or(0);
    println!("\n{title}");
    for row in rows {
        let limit = match &row.limit {
            None => String::new(),
            Some((limit, true)) => format!("  {limit}: kept"),
            Some((limit, false)) => format!("  {limit}: MISSED"),
        };
        println!("  {:<what$}  {:>figure$}{limit}", row.what, row.figure);
    }
}
