//! How the agent speaks to people: errors with causes, reports, plans.

use std::fmt::Write;

use model::delta::render_edit;
use model::report::PartialRun;
pub use model::text::chain;
use model::{Action, RunReport};

/// A run or a plan, for people.
pub fn report(report: &RunReport) -> String {
    let mut out = String::new();
    for item in &report.items {
        let word = match item.action {
            Action::Ok => "ok",
            Action::Changed => "changed",
            Action::Failed => "FAILED",
            Action::Ignored => "failed (ignored)",
            Action::Skipped => "skipped",
            Action::WouldChange => "would change",
            Action::Unknown => "outcome unknown",
            Action::Restored => "restored",
            Action::Deleted => "deleted",
        };
        // Writing to a String cannot fail.
        let _ = match &item.edit {
            Some(edit) => {
                render_edit(&mut out, &format!("{} ({word})", item.resource), edit);
                Ok(())
            }
            None => writeln!(out, "  {} ({word})", item.resource),
        };
        if let Some(reason) = &item.reason {
            let _ = writeln!(out, "    {reason}");
        }
    }
    let counts = &report.counts;
    let _ = match &report.partial {
        Some(PartialRun::Tags(tags)) => writeln!(out, "only resources tagged {}", tags.join(" or ")),
        Some(PartialRun::Resources(count)) => writeln!(out, "only {count} resources"),
        None => Ok(()),
    };
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
