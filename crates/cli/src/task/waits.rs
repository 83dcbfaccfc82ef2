//! Why a task waits: nodes that were asked some time ago and did not say that they began.

use std::time::{Duration, Instant};

use model::Timestamp;
use plane::work::NodeStage;
use server::api::work::{TASK_NODES, TaskNodeView, TaskView};
use server::api::{NODE, NodeView};

use super::caller::Caller;
use super::ticker::Ticker;
use super::words::name;
use crate::clock::{ago, now, short};
use crate::failure::Failure;
use crate::operator::Operator;
use crate::whom::MAX_NAMES;

/// A node that is asked answers within this, unless it polls or is not there.
const SOON: Duration = Duration::from_secs(8);
/// After how long it is shown again; twice as long each time, up to [`SELDOM`].
const AGAIN: Duration = Duration::from_secs(60);
const SELDOM: Duration = Duration::from_secs(3600);

/// Tells, while a task is followed, which nodes it waits for and why; not at once, and not often.
#[derive(Debug)]
pub(super) struct Waits {
    next: Instant,
    again: Duration,
}

impl Waits {
    pub(super) fn new() -> Waits {
        Waits { next: Instant::now() + SOON, again: AGAIN }
    }

    /// Shows what the task waits for, when it is due.
    pub(super) async fn tell(
        &mut self,
        caller: &mut Caller<'_>,
        ticker: &mut Ticker,
        task: &TaskView,
    ) -> Result<(), Failure> {
        let progress = &task.summary.progress;
        if Instant::now() < self.next || progress.issued + progress.deferred == 0 {
            return Ok(());
        }
        self.next = Instant::now() + self.again;
        self.again = (2 * self.again).min(SELDOM);
        let id = task.id.as_str();
        let nodes =
            caller.ask(ticker, async |operator: &Operator| operator.all(&TASK_NODES, id).await).await?;
        for line in lines(caller.operator(), &nodes).await {
            ticker.say(&line);
        }
        Ok(())
    }
}

/// Why a task waits: a line for each of the first few nodes that were asked some time ago.
pub(super) async fn lines(operator: &Operator, nodes: &[TaskNodeView]) -> Vec<String> {
    let now = now();
    let waited_for = |node: &&TaskNodeView| {
        let asked = node.stage == NodeStage::Issued && now.since(node.since) >= SOON;
        asked || node.stage == NodeStage::Deferred
    };
    let waiting: Vec<&TaskNodeView> = nodes.iter().filter(waited_for).collect();
    let mut lines = Vec::new();
    for node in waiting.iter().take(MAX_NAMES) {
        // One that cannot be asked about is no reason to give up what is followed.
        if let Ok(view) = operator.call(&NODE, node.node.as_str()).await {
            lines.push(format!("{} {}", name(node), line(node, &view, now)));
        }
    }
    if let more @ 1.. = waiting.len().saturating_sub(MAX_NAMES) {
        lines.push(format!("{more} more wait likewise"));
    }
    lines
}

/// When a node was heard, when it is asked, and until when it may begin.
pub fn line(node: &TaskNodeView, view: &NodeView, now: Timestamp) -> String {
    let Some(seen) = view.last_seen else { return "was never heard".to_owned() };
    let heard = format!("was last heard {} ago", ago(seen, now));
    let promised = Duration::from_secs(view.promised_secs);
    let due = seen.plus(promised);
    let contact = match due.since(now) {
        Duration::ZERO => format!("is late by {}", short(now.since(due))),
        within => format!("calls within {}", short(within)),
    };
    if node.stage == NodeStage::Deferred {
        return format!("{heard} and {contact}; it is waited for, and asked at its next contact");
    }
    let expires = match node.expires.map(|until| until.since(now)) {
        None => String::new(),
        Some(Duration::ZERO) => {
            return format!("{heard} and {contact}; it begins no more, and may still say that it did");
        }
        Some(left) => format!("; expires within {}", short(left)),
    };
    let asked = if seen > node.since {
        "it was asked, and did not begin yet"
    } else {
        "it is asked at its next contact"
    };
    format!("{heard} and {contact}; {asked}{expires}")
}
