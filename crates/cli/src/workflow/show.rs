//! Workflows for people.

use server::api::work::{StepView, WorkflowView};

use crate::clock::{ago, now, short};
use crate::next_step::muster;
use crate::screen::{Mark, Screen};
use crate::table::table;
use crate::task;

/// Workflows as a table.
pub fn list(workflows: &[WorkflowView], screen: Screen) -> String {
    let now = now();
    let row = |view: &WorkflowView| {
        [
            view.id.clone(),
            view.name.clone(),
            format!("{} ago", ago(view.created, now)),
            view.by.clone(),
            screen.mark(mark(&view.state), &words(&view.state)),
            step(view),
            view.why.clone().unwrap_or_default(),
        ]
    };
    table(&["WORKFLOW", "NAME", "BEGUN", "BY", "STATE", "STEP", "WHY"], workflows.iter().map(row))
}

/// A workflow: where it stands, its steps, and what to do.
pub fn show(view: &WorkflowView, screen: Screen) -> String {
    let now = now();
    let took = match view.finished {
        Some(finished) => format!(" after {}", short(finished.since(view.created))),
        None => String::new(),
    };
    let mut out = format!(
        "workflow {}  {}  by {}, {} ago\nit is {}{took}\n",
        screen.mark(Mark::Bold, &view.id),
        view.name,
        view.by,
        ago(view.created, now),
        screen.mark(mark(&view.state), &words(&view.state)),
    );
    if let Some(why) = &view.why {
        out.push_str(&format!("because {why}\n"));
    }
    if let Some(next) = next(view) {
        out.push_str(&format!("next: {next}\n"));
    }
    let row = |(number, step): (usize, &StepView)| {
        [
            (number + 1).to_string(),
            step.name.clone(),
            screen.mark(mark(&step.state), &words(&step.state)),
            step.tasks.last().cloned().unwrap_or_default(),
            match step.tasks.len() {
                0 | 1 => String::new(),
                tries => format!("{tries} tries"),
            },
            step.summary.as_ref().map(task::line).unwrap_or_default(),
        ]
    };
    out.push_str(&format!(
        "\n{}",
        table(&["", "STEP", "STATE", "TASK", "", "CAME TO"], view.steps.iter().enumerate().map(row))
    ));
    out
}

/// What is to be done where a workflow does not go on by itself.
fn next(view: &WorkflowView) -> Option<String> {
    let id = &view.id;
    match view.state.as_str() {
        "awaiting-approval" => Some(format!("{}, or abort {id}", muster(&format!("workflow approve {id}")))),
        "failed" => {
            let failed = view.steps.iter().rev().find_map(|step| step.tasks.last());
            let look = failed
                .map(|task| format!("{}, then ", muster(&format!("task show {task}"))))
                .unwrap_or_default();
            Some(format!("{look}{}, or abort {id}", muster(&format!("workflow resume {id}"))))
        }
        _ => None,
    }
}

/// A workflow in one line.
pub fn line(view: &WorkflowView) -> String {
    let now = view.steps.iter().rev().find(|step| !step.tasks.is_empty());
    let outcome =
        now.and_then(|step| step.summary.as_ref()).map(|summary| format!(": {}", task::line(summary)));
    format!("workflow {} {}, step {}{}", view.id, words(&view.state), step(view), outcome.unwrap_or_default())
}

/// The newest step that was begun: `2/3 the edge`.
fn step(view: &WorkflowView) -> String {
    let begun = view.steps.iter().enumerate().rev().find(|(_, step)| !step.tasks.is_empty());
    match begun {
        Some((at, step)) => format!("{}/{} {}", at + 1, view.steps.len(), step.name),
        None => format!("0/{}", view.steps.len()),
    }
}

fn words(state: &str) -> String {
    state.replace('-', " ")
}

fn mark(state: &str) -> Mark {
    match state {
        "done" | "passed" => Mark::Good,
        "failed" => Mark::Bad,
        "aborting" | "aborted" | "awaiting-approval" => Mark::Warn,
        _ => Mark::Dim,
    }
}
