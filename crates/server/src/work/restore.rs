//! After a start: tasks go on where what is durable says that they are, and nothing that a
//! crash left behind stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::log::FactBody;
use model::work::ActionOutcome;
use model::{Kind, NodeId};
use net::accept::stopped;
use plane::work::{Task, TaskDocument, TaskInput, Workflow, action_id, parse_action_id};
use store::{StoreError, TaskKind, TaskRecord};

use tokio::sync::watch;

use super::{PAGE, input, row, targets, without};
use crate::answer::chain;
use crate::hub::FeedEdit;
use crate::state::{ControlPlane, now};

/// Between two attempts to sweep while the store does not answer.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(30);

/// Takes up every open task and workflow. The hub knows how far nodes are before.
///
/// # Errors
/// When the store cannot be read. A record that cannot be read is left alone, and logged.
pub(crate) async fn open(plane: &Arc<ControlPlane>) -> Result<(), StoreError> {
    for record in plane.store.open_tasks().await? {
        match record.kind {
            TaskKind::Task => match serde_json::from_str::<TaskDocument>(&record.document) {
                Ok(document) => {
                    let nodes = targets(plane, &record.id).await?.into_iter().collect();
                    plane.work.spawn(plane, Task::restore(document, nodes), true).await;
                }
                Err(error) => unreadable(&record, &error),
            },
            TaskKind::Workflow => match serde_json::from_str::<Workflow>(&record.document) {
                Ok(workflow) => plane.work.workflows.restore(workflow, plane.work.next_version()),
                Err(error) => unreadable(&record, &error),
            },
        }
    }
    Ok(())
}

fn unreadable(record: &TaskRecord, error: &serde_json::Error) {
    tracing::error!(task = record.id, %error, "a stored task cannot be read; it is left alone");
}

/// What the log of each open target says that the task may not have heard.
pub(super) async fn stored_facts(plane: &ControlPlane, task: &Task) -> Vec<TaskInput> {
    let mut inputs = Vec::new();
    for (node, _) in task.nodes().iter().filter(|(_, work)| work.stage.has_object()) {
        if plane.index.get(node).is_none() {
            inputs.push(TaskInput::Removed(node.clone()));
            continue;
        }
        let facts = plane.store.action_facts(node, &action_id(&task.spec().id, node)).await;
        match facts {
            Ok(facts) => {
                let events = facts.iter().filter_map(|record| match &record.fact.body {
                    FactBody::Action(action) => input(node, &action.event),
                    _ => None,
                });
                inputs.extend(events);
            }
            // The object stays, and the sweep of the next start looks again.
            Err(error) => tracing::warn!(%node, error = %chain(&error), "facts of an action cannot be read"),
        }
    }
    inputs
}

/// A terminal fact of a task that is not open: its object goes, and what it came to is kept.
pub(super) async fn late(
    plane: &ControlPlane,
    task: &str,
    node: &NodeId,
    outcome: &ActionOutcome,
    took: u64,
) {
    if let Err(error) = plane.hub.change(node, vec![without(&action_id(task, node))]).await {
        tracing::warn!(task, %node, %error, "an ended action could not be taken away");
    }
    if let Err(error) = keep_late(plane, task, node, outcome, took).await {
        tracing::warn!(task, %node, error = %chain(&error), "a late outcome could not be kept");
    }
}

async fn keep_late(
    plane: &ControlPlane,
    task: &str,
    node: &NodeId,
    outcome: &ActionOutcome,
    took: u64,
) -> Result<(), StoreError> {
    let kept = targets(plane, task).await?.into_iter().find(|(id, _)| id == node);
    let Some((_, mut kept)) = kept else { return Ok(()) };
    if !kept.end(outcome.clone(), took, now()) {
        return Ok(());
    }
    plane.store.put_task_nodes(task, vec![row(task, node, &kept)?]).await
}

/// Takes away the objects of actions whose terminal fact is here, or of which no task is
/// known: a crash came between the fact and the removal. Ends when the control plane stops.
pub(super) async fn sweep(plane: Arc<ControlPlane>, mut stop: watch::Receiver<bool>) {
    while let Err(error) = sweep_once(&plane).await {
        tracing::warn!(error = %chain(&error), "ended actions could not be looked for");
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stopped(&mut stop) => return,
        }
    }
}

async fn sweep_once(plane: &ControlPlane) -> Result<(), StoreError> {
    let mut by_node: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for action in plane.hub.all_of(sync::Side::Feed, &Kind::new(Kind::ACTION)).await? {
        by_node.entry(action.node).or_default().push(action.key.name.to_string());
    }
    for (node, actions) in by_node {
        let mut edits: Vec<FeedEdit> = Vec::new();
        for actions in actions.chunks(PAGE) {
            let over = plane.store.ended_actions(&node, actions.to_vec()).await?;
            for action in actions {
                let known = match parse_action_id(action) {
                    _ if over.contains(action) => false,
                    Some((task, _)) => {
                        plane.work.get(task).is_some() || plane.store.task(task).await?.is_some()
                    }
                    None => false,
                };
                if !known {
                    edits.push(without(action));
                }
            }
        }
        if !edits.is_empty()
            && let Err(error) = plane.hub.change(&node, edits).await
        {
            tracing::warn!(%node, %error, "ended actions could not be taken away");
        }
    }
    Ok(())
}
