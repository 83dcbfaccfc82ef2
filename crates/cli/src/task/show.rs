//! Tasks for people.

use std::time::Duration;

use plane::work::TaskState;
use server::api::work::{TaskNodeView, TaskView};

use super::answers_text::answers_of;
use super::outcome::{groups, line, words};
use super::words::{in_words, name};
use crate::clock::{ago, now, short};
use crate::screen::{Mark, Screen};
use crate::table::table;
use crate::whom::some_of;

/// The longest description of work in a table, in characters.
const MAX_WORDS: usize = 60;

/// Tasks as a table.
pub fn list(tasks: &[TaskView], screen: Screen) -> String {
    let now = now();
    let row = |task: &TaskView| {
        let words = in_words(&task.work);
        let progress = &task.summary.progress;
        [
            task.id.clone(),
            format!("{} ago", ago(task.created, now)),
            task.by.clone(),
            clip(&task.selector),
            clip(&words),
            screen.mark(mark(task), task.summary.state.as_str()),
            format!("{}/{}", progress.succeeded, progress.total),
            match progress.failures() {
                0 => String::new(),
                failures => screen.mark(Mark::Bad, &failures.to_string()),
            },
        ]
    };
    table(&["TASK", "BEGUN", "BY", "NODES", "WORK", "STATE", "DONE", "FAILED"], tasks.iter().map(row))
}

fn clip(text: &str) -> String {
    if text.chars().count() <= MAX_WORDS {
        return text.to_owned();
    }
    let head: String = text.chars().take(MAX_WORDS - 3).collect();
    format!("{head}...")
}

fn mark(task: &TaskView) -> Mark {
    let progress = &task.summary.progress;
    match task.summary.state {
        TaskState::Done if progress.succeeded == progress.total => Mark::Good,
        TaskState::Planned | TaskState::Running => Mark::Dim,
        TaskState::Done if progress.failures() == 0 => Mark::Warn,
        TaskState::Cancelling | TaskState::Cancelled => Mark::Warn,
        TaskState::Done | TaskState::Halting | TaskState::Halted => Mark::Bad,
    }
}

/// A task: what it is, how far, which nodes came to what, why it waits, and what a query was
/// answered.
pub fn show(task: &TaskView, nodes: &[TaskNodeView], waits: &[String], each: bool, screen: Screen) -> String {
    let now = now();
    let workflow = task.workflow.as_ref().map(|id| format!(" for workflow {id}")).unwrap_or_default();
    let mut out = format!(
        "task {}  {}\non {}  by {}{workflow}, {} ago\n",
        screen.mark(Mark::Bold, &task.id),
        in_words(&task.work),
        task.selector,
        task.by,
        ago(task.created, now),
    );
    out.push_str(&summary(task, nodes, screen));
    waits.iter().for_each(|why| out.push_str(&format!("  {why}\n")));
    if let Some(answers) = answers_of(task, nodes, screen) {
        out.push_str(&format!("\n{answers}"));
    }
    if each {
        let row = |node: &TaskNodeView| {
            let hostname = name(node);
            let (text, mark, _) = words(&task.id, &hostname, node);
            let took = node.duration_ms.map(|ms| short(Duration::from_millis(ms))).unwrap_or_default();
            [hostname, screen.mark(mark, &text), format!("{} ago", ago(node.since, now)), took]
        };
        out.push_str(&format!("\n{}", table(&["NODE", "CAME TO", "SINCE", "TOOK"], nodes.iter().map(row))));
    }
    out
}

/// What a task came to: the totals, and the nodes grouped by outcome.
pub fn summary(task: &TaskView, nodes: &[TaskNodeView], screen: Screen) -> String {
    let took = task.finished.map(|finished| format!(" after {}", short(finished.since(task.created))));
    let mut out = format!(
        "task {} is {}{}\n",
        task.id,
        screen.mark(mark(task), &line(&task.summary)),
        took.unwrap_or_default()
    );
    for group in groups(&task.id, nodes) {
        let who = some_of(&group.nodes, group.count);
        out.push_str(&format!("{:>6}x  {}  {who}\n", group.count, screen.mark(group.mark, &group.text)));
        if let Some(next) = &group.next {
            out.push_str(&format!("         next: {next}\n"));
        }
    }
    out
}
