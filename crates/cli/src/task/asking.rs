//! Following a query: answers are shown as they come, and who has not answered.

use std::time::{Duration, Instant};

use model::status::Contact;
use plane::work::NodeStage;
use server::api::NODE;
use server::api::work::{CANCEL_TASK, TASK, TASK_NODES, TaskNodeView, TaskView};

use super::answers::answers;
use super::answers_text;
use super::caller::{Caller, changes_after, wait_between_requests};
use super::output::TaskReport;
use super::ticker::Ticker;
use super::words::name;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::Screen;
use crate::whom::MAX_NAMES;

/// Answers are shown before the last one is here when it takes longer than this.
const SOON: Duration = Duration::from_secs(2);
/// How often is looked whether those left are reachable.
const LOOK_EVERY: Duration = Duration::from_secs(8);

/// Follows a query until all have answered, nobody who is left can be reached, or somebody interrupts: what is
/// left of it is called off then. `path`: what of each answer is shown.
///
/// # Errors
/// When the control plane cannot be asked any more.
pub(crate) async fn follow_answers(
    caller: &mut Caller<'_>,
    mut task: TaskView,
    path: Option<&str>,
    screen: Screen,
) -> Result<TaskReport, Failure> {
    let mut ticker = Ticker::new(screen);
    let id = task.id.clone();
    let all = async |operator: &Operator| operator.all(&TASK_NODES, id.as_str()).await;
    let (began, mut looked, mut shown) = (Instant::now(), Instant::now(), 0);
    while !task.summary.state.is_final() {
        let update = async {
            let nodes = caller.ask(&mut ticker, all).await?;
            let left = left(&nodes);
            ticker.show(&waits_for(&nodes, &left));
            let answered = nodes.len() - left.len();
            // Whoever reads a pipe gets each answer once, at the end.
            if screen.is_terminal() && answered > shown && !left.is_empty() && began.elapsed() >= SOON {
                shown = answered;
                let so_far: Vec<_> = nodes.iter().filter(|node| is_over(node)).cloned().collect();
                ticker.say(&answers_text(&answers(&id, &so_far, path), screen));
            }
            if !left.is_empty() && looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                if nobody_is_reachable(caller.operator(), &left).await {
                    return Ok(None);
                }
            }
            wait_between_requests(0).await;
            let request = changes_after(&id, task.version);
            let newer = async |operator: &Operator| operator.call(&TASK, request.clone()).await;
            Ok::<_, Failure>(Some(caller.ask(&mut ticker, newer).await?))
        };
        let update = tokio::select! {
            update = update => update?,
            _ = tokio::signal::ctrl_c() => None,
        };
        task = match update {
            Some(newer) => newer,
            None => {
                let off = async |operator: &Operator| operator.call(&CANCEL_TASK, id.as_str()).await;
                task = caller.ask(&mut ticker, off).await?;
                break;
            }
        };
    }
    let nodes = caller.ask(&mut ticker, all).await?;
    ticker.clear();
    Ok(TaskReport { task, nodes, output: Vec::new() })
}

fn is_over(node: &TaskNodeView) -> bool {
    node.stage == NodeStage::Ended
}

/// Those that have not answered.
fn left(nodes: &[TaskNodeView]) -> Vec<&TaskNodeView> {
    nodes.iter().filter(|node| !is_over(node)).collect()
}

/// How many answered, and who has not.
fn waits_for(nodes: &[TaskNodeView], left: &[&TaskNodeView]) -> String {
    let named: Vec<String> = left.iter().take(MAX_NAMES).map(|node| name(node)).collect();
    let more = match left.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let answered = nodes.len() - left.len();
    match left.len() {
        0 => format!("{answered} of {} answered", nodes.len()),
        _ => format!("{answered} of {} answered; no answer from {}{more}", nodes.len(), named.join(", ")),
    }
}

/// Whether each of them missed so many contacts that it is taken for unreachable (LIF-1), and none is waited for.
async fn nobody_is_reachable(operator: &Operator, left: &[&TaskNodeView]) -> bool {
    for node in left {
        // One that is waited for is what --wait asks for.
        if node.stage == NodeStage::Deferred {
            return false;
        }
        match operator.call(&NODE, node.node.as_str()).await {
            Ok(view) if view.status.contact != Contact::Online => {}
            // Of one that cannot be asked about nothing is known.
            Ok(_) | Err(_) => return false,
        }
    }
    true
}
