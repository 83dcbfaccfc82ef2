//! Explanations as people read them.

use lang::Value;
use resolve::explain::{ExplainedLayer, LayerOutcome};

use super::resource::{ConditionAnswer, ExplainedResource, UsedName};
use super::{ClassifiedNode, Explained, ExplainedSubject, ValueExplanation};
use crate::screen::{Mark, Screen};
use crate::table::table;

/// The longest value in a table, in characters.
const MAX_CELL: usize = 60;

pub(super) fn text(explained: &Explained, screen: Screen) -> String {
    let node = screen.mark(Mark::Bold, &explained.node);
    let body = match &explained.subject {
        ExplainedSubject::Classified(classified) => self::classified(classified, screen),
        ExplainedSubject::Value(value) => self::value(value, screen),
        ExplainedSubject::Resource(resource) => self::resource(resource, screen),
    };
    format!("{node}\n{body}\nconditions decided with: {}\n", explained.traits)
}

fn classified(classified: &ClassifiedNode, screen: Screen) -> String {
    let node = &classified.node;
    let mut rows = vec![row(["matched by", &node.matched.pattern, &node.matched.source.to_string()])];
    rows.extend(node.host_file.iter().map(|source| row(["host file", "", &source.to_string()])));
    for value in &node.declared {
        let winner = value.winner();
        let said = winner.map(|winner| (shown(&winner.value), why(winner))).unwrap_or_default();
        rows.push(row([&value.name, &said.0, &said.1]));
    }
    for group in &node.groups {
        let name = group.name.as_deref().unwrap_or("(no name)");
        rows.push(row(["group", &format!("{name} where {}", group.condition), &group.source.to_string()]));
    }
    rows.extend(node.observe.iter().map(|source| row(["observe", "true", &source.to_string()])));
    let mut out = table(&["DECLARED", "VALUE", "BECAUSE"], rows);
    out.push('\n');
    out.push_str(&modules(classified, screen));
    if !classified.vars.is_empty() {
        let one = |var: &ValueExplanation| {
            let winner = var.explained.winner();
            let value = var.value.as_ref().map_or_else(|| "(none)".to_owned(), shown);
            row([&var.explained.name, &value, &winner.map(why).unwrap_or_default()])
        };
        out.push('\n');
        out.push_str(&table(&["VAR", "VALUE", "BECAUSE"], classified.vars.iter().map(one)));
    }
    out
}

fn modules(classified: &ClassifiedNode, screen: Screen) -> String {
    let mut rows = Vec::new();
    for module in &classified.node.modules {
        for (number, because) in module.because.iter().enumerate() {
            let name = if number == 0 { module.name.as_str() } else { "" };
            rows.push(row([name, &format!("{} ({})", because.reason, because.source)]));
        }
        if let Some(condition) = classified.conditions.get(&module.name) {
            rows.push(row(["", &screen.mark(Mark::Warn, condition)]));
        }
    }
    for excluded in &classified.node.excluded {
        rows.push(row([&excluded.name, &format!("EXCLUDED ({})", excluded.source)]));
    }
    table(&["MODULE", "BECAUSE"], rows)
}

fn value(value: &ValueExplanation, screen: Screen) -> String {
    let said = match (&value.value, &value.error) {
        (Some(found), _) => found.to_string(),
        (None, Some(error)) => screen.mark(Mark::Bad, error),
        (None, None) => "(nothing sets it)".to_owned(),
    };
    let mut out = format!("{} = {said}\n\n", screen.mark(Mark::Bold, &value.explained.name));
    let one = |layer: &ExplainedLayer| {
        let outcome = layer.outcome.text();
        let outcome =
            if layer.outcome == LayerOutcome::Wins { screen.mark(Mark::Good, &outcome) } else { outcome };
        row([&layer.layer.to_string(), &shown(&layer.value), &layer.source.to_string(), &outcome])
    };
    out.push_str(&table(&["LAYER", "VALUE", "WHERE", "OUTCOME"], value.explained.layers.iter().map(one)));
    out
}

fn resource(resource: &ExplainedResource, screen: Screen) -> String {
    let mut out = format!("{}\n", screen.mark(Mark::Bold, &resource.id));
    if let Some(source) = &resource.source {
        out.push_str(&format!("  declared at {source}\n"));
    }
    for because in &resource.because {
        out.push_str(&format!("  module {}: {} ({})\n", resource.module, because.reason, because.source));
    }
    for condition in &resource.conditions {
        let answer = match &condition.answer {
            ConditionAnswer::Holds => screen.mark(Mark::Good, "holds"),
            ConditionAnswer::Skips => screen.mark(Mark::Warn, "false here, so it is skipped"),
            ConditionAnswer::AskedOnNode => "asked on the node in each run".to_owned(),
            ConditionAnswer::Failed(why) => screen.mark(Mark::Bad, why),
        };
        let at = condition.source.as_ref().map(|source| format!("  ({source})")).unwrap_or_default();
        out.push_str(&format!("  {}: {}  -> {answer}{at}\n", condition.key, condition.condition));
        condition.uses.iter().for_each(|used| out.push_str(&used_line(used)));
    }
    if let Some(error) = &resource.error {
        out.push_str(&format!("  error: {}\n", screen.mark(Mark::Bad, error)));
    }
    for attribute in &resource.attributes {
        let at = attribute.source.as_ref().map(|source| format!("  ({source})")).unwrap_or_default();
        if attribute.value.contains('\n') {
            out.push_str(&format!("  {}:{at}\n", attribute.name));
            for line in attribute.value.lines() {
                out.push_str(format!("    | {line}").trim_end());
                out.push('\n');
            }
        } else {
            out.push_str(&format!("  {}: {}{at}\n", attribute.name, attribute.value));
        }
        attribute.uses.iter().for_each(|used| out.push_str(&used_line(used)));
    }
    out
}

fn used_line(used: &UsedName) -> String {
    let value = used.value.as_ref().map_or_else(|| "(not known here)".to_owned(), shown);
    let why = match (&used.layer, &used.source) {
        (Some(layer), Some(source)) => format!("  {layer} ({source})"),
        _ => String::new(),
    };
    format!("      {} = {value}{why}\n", used.name)
}

/// The layer and where it stands.
fn why(layer: &ExplainedLayer) -> String {
    format!("{} ({})", layer.layer, layer.source)
}

/// A value on one line of bounded length.
fn shown(value: &Value) -> String {
    let text = value.to_string().replace('\n', "\\n");
    if text.chars().count() <= MAX_CELL {
        return text;
    }
    let cut: String = text.chars().take(MAX_CELL - 3).collect();
    format!("{cut}...")
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.into_iter().map(str::to_owned).collect()
}
