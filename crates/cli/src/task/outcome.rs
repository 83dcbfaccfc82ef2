//! What became of a task's nodes: grouped by outcome, with what to do.

use std::collections::BTreeMap;

use model::work::{ActionOutcome, RefusalCode};
use plane::work::{NodeStage, TaskProgress, TaskSummary};
use serde::Serialize;
use server::api::work::TaskNodeView;

use super::words::name;
use crate::exit::Exit;
use crate::next_step::{muster, with_credentials};
use crate::screen::{Mark, tally};
use crate::whom::MAX_NAMES;

/// Nodes that came to the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeGroup {
    /// What they came to.
    pub text: String,
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
pub fn groups(task: &str, nodes: &[TaskNodeView]) -> Vec<OutcomeGroup> {
    let mut by_words: BTreeMap<String, OutcomeGroup> = BTreeMap::new();
    let mut named: Vec<(String, &TaskNodeView)> = nodes.iter().map(|node| (name(node), node)).collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (hostname, node) in named {
        let (text, mark, next) = words(task, &hostname, node);
        let group = by_words.entry(text.clone()).or_insert_with(|| OutcomeGroup {
            text,
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
    let mut groups: Vec<OutcomeGroup> = by_words.into_values().collect();
    groups.sort_by_key(|group| (group.mark != Mark::Good, std::cmp::Reverse(group.count)));
    groups
}

/// What is to be done about a node that cannot be reached.
const WAIT: &str = "--wait 1h waits for nodes that cannot be reached";

/// What a node came to, how much it matters, and what to do.
pub(super) fn words(task: &str, node: &str, view: &TaskNodeView) -> (String, Mark, Option<String>) {
    let in_words = |text: &str, mark, next: Option<&str>| (text.to_owned(), mark, next.map(str::to_owned));
    match (view.stage, &view.outcome) {
        (NodeStage::Waiting, _) => in_words("not asked yet", Mark::Dim, None),
        (NodeStage::Deferred, _) => (
            "not reachable, and waited for".to_owned(),
            Mark::Warn,
            Some(muster(&format!("node show {node}"))),
        ),
        (NodeStage::Issued, _) => in_words("asked, not begun", Mark::Dim, None),
        (NodeStage::Running, _) => in_words("running", Mark::Dim, None),
        (NodeStage::Unreachable, _) => in_words("unreachable, so it was not asked", Mark::Warn, Some(WAIT)),
        (NodeStage::Offline, _) => in_words("offline, so it was not asked", Mark::Warn, Some(WAIT)),
        (NodeStage::Withdrawn, _) => in_words("called off before it began", Mark::Warn, None),
        (NodeStage::Silent, _) => (
            "asked, and never heard of again".to_owned(),
            Mark::Bad,
            Some(format!("it may have been done: {}", muster(&format!("node show {node}")))),
        ),
        (NodeStage::Removed, _) => in_words("removed from the fleet", Mark::Warn, None),
        (NodeStage::Ended, None) => in_words("ended", Mark::Dim, None),
        (NodeStage::Ended, Some(outcome)) => of_outcome(task, node, outcome),
    }
}

fn of_outcome(task: &str, node: &str, outcome: &ActionOutcome) -> (String, Mark, Option<String>) {
    let look = || Some(muster(&format!("task output {task} {node}")));
    let (mark, next) = match outcome {
        ActionOutcome::Exited { code: 0 } => return ("succeeded".to_owned(), Mark::Good, None),
        ActionOutcome::HandedOver => return ("handed over".to_owned(), Mark::Good, None),
        ActionOutcome::Answered { .. } => return ("answered".to_owned(), Mark::Good, None),
        ActionOutcome::Exited { .. } | ActionOutcome::Signalled { .. } | ActionOutcome::Failed { .. } => {
            (Mark::Bad, look())
        }
        ActionOutcome::TimedOut => {
            (Mark::Bad, Some("--timeout gives it longer, up to what its delegation allows".to_owned()))
        }
        ActionOutcome::Cancelled => (Mark::Warn, None),
        ActionOutcome::Refused { code, .. } => {
            (Mark::Bad, Some(with_credentials(allowed_where(*code)).into_owned()))
        }
        ActionOutcome::Expired => (Mark::Warn, Some("run it again; nothing of it was done there".to_owned())),
        ActionOutcome::Unknown => (
            Mark::Bad,
            Some(format!(
                "it may have been done, or still run: look at {node}, then run it again if it is to"
            )),
        ),
    };
    (outcome.to_string(), mark, next)
}

/// Where it is said what a node may be asked for.
fn allowed_where(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::NotDelegated => "what may be asked is in `delegations` of the fleet repo",
        RefusalCode::TooMany => "cancel tasks that wait there, or wait for them",
        RefusalCode::NotAutonomous => "make the object so with `muster object apply`",
        RefusalCode::OperationNotAllowed | RefusalCode::KindNotSynchronized => {
            "what may be asked of objects is in `sync` of the fleet repo"
        }
        RefusalCode::NotFresh => "`muster beacon` or `muster publish` signs anew; then ask again",
        RefusalCode::Unknown => "this program is older than the node, and does not know this refusal",
        RefusalCode::ObjectAbsent => "`muster object list` shows what the node has",
    }
}

/// How a task stands, in one line.
pub fn line(summary: &TaskSummary) -> String {
    let progress = &summary.progress;
    let text = tally([
        (progress.succeeded, "succeeded"),
        (progress.failed, "failed"),
        (progress.unknown, "unknown"),
        (progress.silent, "silent"),
        (progress.unreachable, "unreachable"),
        (progress.offline, "offline"),
        (progress.cancelled, "cancelled"),
        (progress.withdrawn, "called off"),
        (progress.removed, "removed"),
        (progress.running, "running"),
        (progress.issued, "asked"),
        (progress.deferred, "not reachable and waited for"),
        (progress.waiting, "waiting"),
    ]);
    let why = summary.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}{why}, {}: {}", summary.state.as_str(), crate::whom::nodes(progress.total), text)
}

/// What a task that ended means for scripts.
pub fn exit(progress: &TaskProgress, nodes: &[TaskNodeView]) -> Exit {
    let refused = |node: &TaskNodeView| matches!(node.outcome, Some(ActionOutcome::Refused { .. }));
    if progress.succeeded == progress.total {
        Exit::Ok
    } else if !nodes.is_empty() && nodes.iter().all(refused) {
        Exit::Refused
    } else {
        Exit::SomeFailed
    }
}
