//! How the agent speaks to people: errors with causes, reports, plans, times.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::delta::render_edit;
use model::report::PartialRun;
pub use model::text::chain;
use model::{Action, Pause, ResourceReport, RunReport, Timestamp};
use node::RebootOutlook;

/// The most skipped resources that a report names; of more, as many for each reason.
const NAMED_SKIPPED: usize = 5;

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
    let skipped = report.items.iter().filter(|item| item.action == Action::Skipped);
    let named = skipped.clone().count() <= NAMED_SKIPPED;
    for item in report.items.iter().filter(|item| named || item.action != Action::Skipped) {
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
    if !named {
        skipped_by_reason(&mut out, skipped);
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
        "{} {}: {} ok, {} changed, {} failed, {} skipped",
        counts.modules,
        if counts.modules == 1 { "module" } else { "modules" },
        counts.ok,
        counts.changed,
        counts.failed,
        counts.skipped
    );
    if counts.would_change > 0 {
        let _ = write!(out, ", {} would change", counts.would_change);
    }
    let _ = writeln!(out, "; release {}, {} ms", report.seq, report.duration_ms);
    out
}

/// What was skipped, one line for each reason.
fn skipped_by_reason<'a>(out: &mut String, skipped: impl Iterator<Item = &'a ResourceReport>) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for item in skipped {
        let reason = item.reason.as_deref().unwrap_or("no reason is known");
        reasons.entry(reason).or_default().push(&item.resource);
    }
    for (reason, names) in reasons {
        let first = names.iter().take(NAMED_SKIPPED).copied().collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(NAMED_SKIPPED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = writeln!(out, "  {} skipped: {reason}\n    {first}{more}", names.len());
    }
}

#[cfg(test)]
mod tests {
    use model::{Digest, RunCounts};

    use super::*;

    fn skipping(reasons: &[&str]) -> RunReport {
        let item = |(n, reason): (usize, &&str)| ResourceReport {
            resource: format!("m/package:{n}"),
            action: Action::Skipped,
            edit: None,
            reason: Some((*reason).to_owned()),
            cause: None,
            duration_ms: 0,
        };
        RunReport {
            started: Timestamp(0),
            duration_ms: 7,
            seq: 3,
            root: Digest::ZERO,
            intended: false,
            paused: None,
            partial: None,
            unknown_tags: vec![],
            unswitched: Vec::new(),
            counts: RunCounts { modules: 1, skipped: 7, ..RunCounts::default() },
            items: reasons.iter().enumerate().map(item).collect(),
        }
    }

    #[test]
    fn many_skipped_resources_are_one_line_for_each_reason() {
        let many = report(&skipping(&[
            "rooted",
            "rooted",
            "rooted",
            "rooted",
            "rooted",
            "rooted",
            "when is false: x",
        ]));
        assert_eq!(
            many,
            "  6 skipped: rooted\n    m/package:0, m/package:1, m/package:2, m/package:3, m/package:4 and 1 more\n\
             \x20 1 skipped: when is false: x\n    m/package:6\n\
             1 module: 0 ok, 0 changed, 0 failed, 7 skipped; release 3, 7 ms\n"
        );
    }

    #[test]
    fn few_are_named() {
        let few = report(&skipping(&["rooted"]));
        assert!(few.starts_with("  m/package:0 (skipped)\n    rooted\n1 module: "), "{few}");
    }
}
