//! How the agent speaks to people: errors with causes, reports, plans, times.

use std::fmt::Write;

use model::delta::render_edit;
use model::report::PartialRun;
pub use model::text::chain;
use model::{Action, Pause, RunReport, Timestamp};
use node::RebootOutlook;

/// What was done about a resource, in a word or two.
pub fn word(action: Option<Action>) -> &'static str {
    match action {
        None => "not notified",
        Some(Action::Ok) => "ok",
        Some(Action::Changed) => "changed",
        Some(Action::Failed) => "FAILED",
        Some(Action::Ignored) => "failed (ignored)",
        Some(Action::Skipped) => "skipped",
        Some(Action::WouldChange) => "would change",
        Some(Action::Unknown) => "outcome unknown",
        Some(Action::Restored) => "restored",
        Some(Action::Deleted) => "deleted",
    }
}

pub use model::time::{short, when};

/// Why and since when the host is paused, and how that ends.
pub fn pause(pause: &Pause, now: Timestamp) -> String {
    let until = match pause.until {
        Some(until) => format!("; ends by itself {}", when(until, now)),
        None => String::new(),
    };
    format!("since {}: {}{until}", when(pause.since, now), pause.reason)
}

/// What requires a reboot, and what becomes of it.
pub fn reboot(reboot: &RebootOutlook, now: Timestamp) -> String {
    let last = reboot.last.as_ref().map(|last| format!("; the last one {}", when(last.at, now)));
    let since = when(reboot.since, now);
    format!("required by {}, known since {since}; {}{}", reboot.reason, reboot.plan, last.unwrap_or_default())
}

/// A run or a plan, for people.
pub fn report(report: &RunReport) -> String {
    let mut out = String::new();
    if let Some(paused) = &report.paused {
        let _ = writeln!(out, "PAUSED since {}, so it only observed: {}", paused.since, paused.reason);
    }
    for item in &report.items {
        let word = word(Some(item.action));
        // Writing to a String cannot fail.
        let _ = match &item.edit {
            Some(edit) => {
                render_edit(&mut out, &format!("{} ({word})", item.resource), edit);
                Ok(())
            }
            None => writeln!(out, "  {} ({word})", item.resource),
        };
        if let Some(reason) = &item.reason {
            let _ = writeln!(out, "    {}", reason.replace('\n', "\n    "));
        }
    }
    let counts = &report.counts;
    let _ = match &report.partial {
        Some(PartialRun::Tags(tags)) => writeln!(out, "only resources tagged {}", tags.join(" or ")),
        Some(PartialRun::Resources(count)) => writeln!(out, "only {count} resources"),
        None => Ok(()),
    };
    if !report.unknown_tags.is_empty() {
        let _ = writeln!(out, "no resource is tagged {}", report.unknown_tags.join(" or "));
    }
    let _ = write!(
        out,
        "{} modules: {} ok, {} changed, {} failed, {} skipped",
        counts.modules, counts.ok, counts.changed, counts.failed, counts.skipped
    );
    if counts.would_change > 0 {
        let _ = write!(out, ", {} would change", counts.would_change);
    }
    let _ = writeln!(out, "; release {}, {} ms", report.seq, report.duration_ms);
    out
}

/// That others fail for the same cause.
pub(crate) fn same_cause(others: u32) -> String {
    format!("same cause on {others} {}", if others == 1 { "other" } else { "others" })
}
