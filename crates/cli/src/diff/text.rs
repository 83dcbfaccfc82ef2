//! A fleet-wide difference as people read it.

use model::delta::render;

use super::group::{Assigned, Compared, DiffGroup, MAX_SHOWN};
use crate::observed::TraitSource;
use crate::screen::{Mark, Screen};

/// Before the lines of a group.
const INDENT: &str = "        ";

/// Prints a comparison: totals, then group by group, the biggest first.
pub fn text(compared: &Compared, screen: Screen) -> String {
    text_from(compared, "this repo", screen)
}

/// The same, where the new release is called so.
pub(crate) fn text_from(compared: &Compared, new: &str, screen: Screen) -> String {
    let Compared { from, nodes, same, change, observe, patterns, requires, rollouts, groups } = compared;
    let from = from.map_or_else(|| "nothing".to_owned(), |seq| format!("r{seq}"));
    if compared.is_same() {
        return format!("{from} -> {new}   {nodes} nodes: all the same\n");
    }
    let observing = if *observe > 0 { format!(" ({observe} only observe)") } else { String::new() };
    let unused = match patterns {
        0 => String::new(),
        1 => "; 1 pattern without enrolled nodes changes".to_owned(),
        count => format!("; {count} patterns without enrolled nodes change"),
    };
    let mut out =
        format!("{from} -> {new}   {nodes} nodes: {same} same, {change} change{observing}{unused}\n");
    out.push_str(&required(requires));
    if !rollouts.is_empty() {
        out.push_str("\nhow releases reach their nodes:\n");
        out.push_str(&screen.difference(&render(rollouts), INDENT));
    }
    for group in groups {
        out.push('\n');
        out.push_str(&one(group, screen));
    }
    let shown: usize = groups.iter().map(|group| group.count).sum();
    if shown < change + patterns {
        let more = change + patterns - shown;
        out.push_str(&format!("\n... {more} more, in groups beyond the first {MAX_SHOWN}\n"));
    }
    out
}

/// The line that names what agents must have; nothing when all have it.
pub fn required(requires: &[String]) -> String {
    if requires.is_empty() {
        return String::new();
    }
    let requires = requires.join(", ");
    format!("it requires {requires}: a node whose agent lacks that refuses it and keeps what it holds\n")
}

fn one(group: &DiffGroup, screen: Screen) -> String {
    let first = group.nodes.first().map(|name| name.to_string()).unwrap_or_default();
    let who = match (group.pattern, group.count) {
        (true, _) => format!("pattern {first} (no enrolled node)"),
        (false, 1) => first,
        (false, count) => format!("{first} +{}", count - 1),
    };
    let mut notes = Vec::new();
    match group.assigned {
        Assigned::Kept => {}
        Assigned::New => notes.push("gets its first set".to_owned()),
        Assigned::Lost => notes
            .push("no entry matches any more: it stays as it is, on the release that it holds".to_owned()),
    }
    notes.extend(group.channel.as_ref().map(|(from, to)| format!("channel {from} -> {to}")));
    if group.first.observe {
        // What is granted holds on a node that only observes, too.
        let what =
            if group.first.granted.is_empty() { "only observes" } else { "only observes its resources" };
        notes.push(what.to_owned());
    }
    if group.first.observe_ends {
        notes.push(
            "observes no more: what was held back is done, removals too (`muster run show NODE` names them)"
                .to_owned(),
        );
    }
    let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join("; ")) };
    let mut out = format!("{:>6}  {}{notes}\n", group.count, screen.mark(Mark::Bold, &who));
    if group.assigned == Assigned::Lost {
        return out;
    }
    out.push_str(&screen.difference(&render(&group.first.granted), INDENT));
    out.push_str(&screen.difference(&render(&group.first.resources), INDENT));
    if group.first.resources.is_empty() && (group.first.granted.is_empty() || !group.first.params.is_empty())
    {
        out.push_str("        no resource of it differs; what is declared does:\n");
        out.push_str(&screen.difference(&render(&group.first.params), INDENT));
    }
    if !matches!(group.first.traits, TraitSource::Recorded(_)) {
        out.push_str(&format!("        (bound with {})\n", group.first.traits));
    }
    out
}
