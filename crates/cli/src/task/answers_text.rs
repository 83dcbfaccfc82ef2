//! Answers for people.

use std::collections::BTreeSet;

use model::work::Work;
use serde_json::{Map, Value};
use server::api::work::{TaskNodeView, TaskView};

use super::answers::{Answers, SameAnswer, answers};
use crate::screen::{Mark, Screen};
use crate::table::table;
use crate::whom::{nodes, some_of};

/// The longest value that stands on a line with its nodes, in characters.
const MAX_INLINE: usize = 100;

/// Answers: how many there are, then one by one with their nodes.
pub fn text(answers: &Answers, screen: Screen) -> String {
    let Answers { asked, answers, absent, without } = answers;
    let different = match answers.len() {
        0 => "no answer".to_owned(),
        1 => "1 answer".to_owned(),
        count => format!("{count} answers"),
    };
    let mut out = format!("{}: {different}\n", nodes(*asked));
    if !answers.is_empty() && answers.iter().all(|same| inline(&same.answer).is_some()) {
        let row = |same: &SameAnswer| {
            [
                format!("{:>6}x", same.nodes.len()),
                screen.mark(Mark::Bold, &inline(&same.answer).unwrap_or_default()),
                some_of(&same.nodes, same.nodes.len()),
            ]
        };
        out.push_str(&table(&["", "ANSWER", "NODES"], answers.iter().map(row)));
    } else {
        for same in answers {
            let who = some_of(&same.nodes, same.nodes.len());
            out.push_str(&format!("\n{:>6}x  {}\n", same.nodes.len(), screen.mark(Mark::Bold, &who)));
            for line in block(&same.answer).lines() {
                out.push_str(format!("         {line}").trim_end());
                out.push('\n');
            }
        }
    }
    if !absent.is_empty() {
        let who = some_of(absent, absent.len());
        let text = screen.mark(Mark::Warn, "has nothing of that name");
        out.push_str(&format!("{:>6}x  {text}  {who}\n", absent.len()));
    }
    for group in without {
        let who = some_of(&group.nodes, group.count);
        out.push_str(&format!("{:>6}x  {}  {who}\n", group.count, screen.mark(group.mark, &group.text)));
        if let Some(next) = &group.next {
            out.push_str(&format!("         next: {next}\n"));
        }
    }
    out
}

/// The answers to a task in words; `None` when it is no query, or nobody answered yet.
pub fn answers_of(task: &TaskView, nodes: &[TaskNodeView], screen: Screen) -> Option<String> {
    if !matches!(task.work, Work::Query { .. }) {
        return None;
    }
    // Who did not answer stands with the task already.
    let answers = Answers { without: Vec::new(), ..answers(&task.id, nodes, None) };
    (!answers.answers.is_empty()).then(|| text(&answers, screen))
}

/// A value that fits on a line.
fn inline(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => "(nothing)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) if items.iter().all(|item| !item.is_array() && !item.is_object()) => {
            items.iter().filter_map(inline).collect::<Vec<_>>().join(", ")
        }
        Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.contains('\n') && text.chars().count() <= MAX_INLINE).then_some(text)
}

/// A value over several lines: a list of flat maps is a table, a map a line for each name.
fn block(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => match flat(items) {
            Some(rows) => rows,
            None => items.iter().map(|item| format!("- {}\n", block(item).trim_end())).collect(),
        },
        Value::Object(map) => lines(map),
        other => inline(other).unwrap_or_default(),
    }
}

fn lines(map: &Map<String, Value>) -> String {
    let mut out = String::new();
    for (name, value) in map {
        match inline(value) {
            Some(text) => out.push_str(&format!("{name}: {text}\n")),
            None => {
                out.push_str(&format!("{name}:\n"));
                let below = block(value);
                // What is text stands behind a bar, so that it is not taken for names.
                let bar = if value.is_string() { "  | " } else { "  " };
                below.lines().for_each(|line| out.push_str(&format!("{bar}{line}\n")));
            }
        }
    }
    out
}

/// A list of maps whose values fit on lines, as a table.
fn flat(items: &[Value]) -> Option<String> {
    let maps: Vec<&Map<String, Value>> = items.iter().map(Value::as_object).collect::<Option<_>>()?;
    let names: BTreeSet<&String> = maps.iter().flat_map(|map| map.keys()).collect();
    let cell = |map: &Map<String, Value>, name: &String| map.get(name).map_or(Some(String::new()), inline);
    let row =
        |map: &&Map<String, Value>| names.iter().map(|name| cell(map, name)).collect::<Option<Vec<_>>>();
    let rows: Vec<Vec<String>> = maps.iter().map(row).collect::<Option<_>>()?;
    let headings: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    (!rows.is_empty()).then(|| table(&headings, rows))
}
