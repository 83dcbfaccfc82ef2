//! What became of a task's nodes: grouped by outcome, with what to do.

use std::collections::BTreeMap;

use model::work::Outcome;
use plane::work::{NodeStage, Progress, Summary, TaskState};
use serde::Serialize;
use server::api::work::TaskNodeView;

use super::words::name;
use crate::exit::Exit;
use crate::screen::Mark;
use crate::whom::MAX_NAMES;

/// Nodes that came to the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What they came to.
    pub said: String,
    /// How much it matters.
    #[serde(skip)]
    pub mark: Mark,
    /// How many.
    pub count: usize,
    /// The first few of them.
    pub nodes: Vec<String>,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Nodes grouped by what they came to: what went well first, then the most frequent. Within a
/// group the nodes are in the order of their names.
pub fn groups(task: &str, nodes: &[TaskNodeView]) -> Vec<Group> {
    let mut by_words: BTreeMap<String, Group> = BTreeMap::new();
    let mut named: Vec<(String, &TaskNodeView)> = nodes.iter().map(|node| (name(node), node)).collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (hostname, node) in named {
        let (said, mark, next) = words(task, &hostname, node);
        let group = by_words.entry(said.clone()).or_insert_with(|| Group {
            said,
            mark,
            count: 0,
            nodes: Vec::new(),
            next,
        });
        group.count += 1;
        if group.nodes.len() < MAX_NAMES {
            group.nodes.push(hostname);
        }
    }
    let mut groups: Vec<Group> = by_words.into_values().collect();
    groups.sort_by_key(|group| (group.mark != Mark::Good, std::cmp::Reverse(group.count)));
    groups
}

/// What a node came to, how much it matters, and what to do.
pub(super) fn words(task: &str, node: &str, view: &TaskNodeView) -> (String, Mark, Option<String>) {
    let said = |text: &str, mark, next: Option<&str>| (text.to_owned(), mark, next.map(str::to_owned));
    match (view.stage, &view.outcome) {
        (NodeStage::Waiting, _) => said("not asked yet", Mark::Dim, None),
        (NodeStage::Deferred, _) => {
            ("offline, and waited for".to_owned(), Mark::Warn, Some(format!("muster node show {node}")))
        }
        (NodeStage::Issued, _) => said("asked, not begun", Mark::Dim, None),
        (NodeStage::Running, _) => said("running", Mark::Dim, None),
        (NodeStage::Offline, _) => said(
            "offline, so it was not asked",
            Mark::Warn,
            Some("--wait 1h waits for nodes that are offline"),
        ),
        (NodeStage::Withdrawn, _) => said("called off before it began", Mark::Warn, None),
        (NodeStage::Silent, _) => (
            "asked, and never heard of again".to_owned(),
            Mark::Bad,
            Some(format!("it may have been done: muster node show {node}")),
        ),
        (NodeStage::Removed, _) => said("removed from the fleet", Mark::Warn, None),
        (NodeStage::Ended, None) => said("ended", Mark::Dim, None),
        (NodeStage::Ended, Some(outcome)) => of_outcome(task, node, outcome),
    }
}

fn of_outcome(task: &str, node: &str, outcome: &Outcome) -> (String, Mark, Option<String>) {
    let look = || Some(format!("muster task output {task} {node}"));
    let (mark, next) = match outcome {
        Outcome::Exited { code: 0 } => return ("succeeded".to_owned(), Mark::Good, None),
        Outcome::Answered { .. } => return ("answered".to_owned(), Mark::Good, None),
        Outcome::Exited { .. } | Outcome::Signalled { .. } | Outcome::Failed { .. } => (Mark::Bad, look()),
        Outcome::TimedOut => {
            (Mark::Bad, Some("--timeout gives it longer, up to what its delegation allows".to_owned()))
        }
        Outcome::Cancelled => (Mark::Warn, None),
        Outcome::Refused { .. } => {
            (Mark::Bad, Some("what may be asked is in `delegations` of the fleet repo".to_owned()))
        }
        Outcome::Expired => (Mark::Warn, Some("run it again; nothing of it was done there".to_owned())),
        Outcome::Unknown => (
            Mark::Bad,
            Some(format!(
                "it may have been done, or still run: look at {node}, then run it again if it is to"
            )),
        ),
    };
    (outcome.to_string(), mark, next)
}

/// How a task stands, in one line.
pub fn line(summary: &Summary) -> String {
    let Progress {
        total,
        waiting,
        deferred,
        issued,
        running,
        succeeded,
        failed,
        unknown,
        cancelled,
        offline,
        withdrawn,
        silent,
        removed,
    } = summary.progress;
    let parts = [
        (succeeded, "succeeded"),
        (failed, "failed"),
        (unknown, "unknown"),
        (silent, "silent"),
        (offline, "offline"),
        (cancelled, "cancelled"),
        (withdrawn, "called off"),
        (removed, "removed"),
        (running, "running"),
        (issued, "asked"),
        (deferred, "offline and waited for"),
        (waiting, "waiting"),
    ];
    let said: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let why = summary.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}{why}, {}: {}", state(summary.state), crate::whom::nodes(total), said.join(", "))
}

/// A task's state as a word.
pub(super) fn state(state: TaskState) -> &'static str {
    match state {
        TaskState::Planned => "planned",
        TaskState::Running => "running",
        TaskState::Halting => "halting",
        TaskState::Cancelling => "cancelling",
        TaskState::Done => "done",
        TaskState::Halted => "halted",
        TaskState::Cancelled => "cancelled",
    }
}

/// What a task that ended means for scripts.
pub fn exit(progress: &Progress, nodes: &[TaskNodeView]) -> Exit {
    let refused = |node: &TaskNodeView| matches!(node.outcome, Some(Outcome::Refused { .. }));
    if progress.succeeded == progress.total {
        Exit::Ok
    } else if !nodes.is_empty() && nodes.iter().all(refused) {
        Exit::Refused
    } else {
        Exit::SomeFailed
    }
}
