//! Whom a selector means, and of whom it is plain that nothing delegates the work.

use std::sync::Arc;

use lang::Value;
use lang::selector::{Selector, Subject, Verdict};
use model::{Digest, NodeId};
use plane::work::{NodeStage, Reach, Task};
use store::StoreError;
use wire::{Code, Problem};

use super::reach;
use crate::answer::store_problem;
use crate::api::work::Selected;
use crate::index::Slot;
use crate::state::ControlPlane;

/// How many hostnames an answer names.
const FIRST: usize = 10;

/// Reads a selector.
pub(crate) fn read(text: &str) -> Result<Selector, Problem> {
    Selector::parse(text).map_err(|error| Problem::new(Code::BadSelector, crate::answer::chain(&error)))
}

/// The nodes that a selector means, in the order of their hostnames. Traits and what is
/// declared are read for those nodes alone that it depends on, one at a time.
pub(crate) async fn meant(plane: &ControlPlane, selector: &Selector) -> Result<Vec<Arc<Slot>>, Problem> {
    if let Some(name) = selector.exact() {
        return Ok(plane.index.find(name).into_iter().collect());
    }
    let mut meant = Vec::new();
    for slot in plane.index.all() {
        if is_meant(plane, selector, &slot).await? {
            meant.push(slot);
        }
    }
    Ok(meant)
}

/// So many of the nodes that a selector means, in the order of their hostnames, from a hostname
/// on. Cost: the nodes up to the last of them.
pub(crate) async fn meant_from(
    plane: &ControlPlane,
    selector: &Selector,
    from: &str,
    limit: usize,
) -> Result<Vec<Arc<Slot>>, Problem> {
    let mut meant = Vec::new();
    for slot in plane.index.page(from, usize::MAX) {
        if meant.len() == limit {
            break;
        }
        if is_meant(plane, selector, &slot).await? {
            meant.push(slot);
        }
    }
    Ok(meant)
}

async fn is_meant(plane: &ControlPlane, selector: &Selector, slot: &Slot) -> Result<bool, Problem> {
    let (id, hostname, pointed) = about(plane, slot);
    let bare = Subject { hostname: hostname.as_str(), id: id.as_str(), traits: None, declared: None };
    match selector.judge(&bare) {
        Verdict::Yes => return Ok(true),
        Verdict::No => return Ok(false),
        Verdict::Unknown(_) => {}
    }
    let traits = if selector.uses_traits() {
        plane.store.traits(&id).await.map_err(store_problem)?.and_then(|traits| {
            // Traits are values without null and floats; others say nothing.
            serde_json::from_value::<Value>(traits.values).ok()
        })
    } else {
        None
    };
    let declared = match (selector.uses_declared(), pointed) {
        (true, Some(root)) => plane.grants.declared(&root).await.map_err(store_problem)?,
        _ => None,
    };
    let groups_known = declared.as_ref().is_some_and(|declared| declared.path("groups").is_some());
    if names_groups(selector) && declared.is_some() && !groups_known {
        let detail = "which groups a node is in is not in this release; name hosts, labels or traits";
        return Err(Problem::new(Code::BadSelector, detail));
    }
    let subject = Subject { traits: traits.as_ref(), declared: declared.as_ref(), ..bare };
    Ok(selector.judge(&subject) == Verdict::Yes)
}

/// It has a term `@group`.
fn names_groups(selector: &Selector) -> bool {
    let before_where = selector.as_str().split("where:").next().unwrap_or("");
    selector.uses_declared() && before_where.contains('@')
}

fn about(plane: &ControlPlane, slot: &Slot) -> (NodeId, model::Hostname, Option<Digest>) {
    let heads = plane.heads();
    let mut entry = slot.lock();
    let pointed = entry.node.pointed(&heads).map(|(_, entry)| entry.root);
    (entry.node.id.clone(), entry.node.hostname.clone(), pointed)
}

/// `POST /v1/selections`.
pub(crate) async fn count(plane: &ControlPlane, text: &str) -> Result<Selected, Problem> {
    let nodes = meant(plane, &read(text)?).await?;
    let mut selected =
        Selected { count: nodes.len(), first: Vec::new(), online: 0, promotable: 0, offline: 0 };
    for slot in nodes {
        let (id, hostname) = {
            let entry = slot.lock();
            (entry.node.id.clone(), entry.node.hostname.clone())
        };
        match reach(plane, &id) {
            Reach::Online => selected.online += 1,
            Reach::Promotable { .. } => selected.promotable += 1,
            Reach::Offline | Reach::Removed => selected.offline += 1,
        }
        if selected.first.len() < FIRST {
            selected.first.push(hostname);
        }
    }
    Ok(selected)
}

/// The ids of nodes, refused when there are not so many as the operator was told.
pub(crate) fn ids(nodes: &[Arc<Slot>], expected: Option<usize>) -> Result<Vec<NodeId>, Problem> {
    match expected {
        Some(expected) if expected != nodes.len() => {
            let detail = format!("the selector means {} nodes now, not {expected}", nodes.len());
            Err(Problem::new(Code::SelectionMoved, detail))
        }
        _ => Ok(nodes.iter().map(|slot| slot.lock().node.id.clone()).collect()),
    }
}

/// The targets for which neither the set that they are pointed to nor the one that they hold
/// delegates the work, and why. Where that is not known the node judges alone; it does in
/// any case.
pub(super) async fn refusals(plane: &ControlPlane, task: &Task) -> Vec<(NodeId, String)> {
    let mut refused = Vec::new();
    for (node, _) in task.nodes().iter().filter(|(_, work)| work.stage == NodeStage::Waiting) {
        match refusal(plane, task, node).await {
            Ok(Some(why)) => refused.push((node.clone(), why)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%node, %error, "what is delegated cannot be read"),
        }
    }
    refused
}

async fn refusal(plane: &ControlPlane, task: &Task, node: &NodeId) -> Result<Option<String>, StoreError> {
    let Some(slot) = plane.index.get(node) else { return Ok(None) };
    let (_, _, pointed) = about(plane, &slot);
    let held = slot.lock().node.held.as_ref().map(|held| held.root);
    let Some(pointed) = pointed else { return Ok(None) };
    let mut why = None;
    for root in [Some(pointed), held.filter(|held| *held != pointed)].into_iter().flatten() {
        let Some(granted) = plane.grants.of(&root).await? else { return Ok(None) };
        match catalog::delegation::allows(&granted.delegations, &task.spec().work) {
            Ok(_) => return Ok(None),
            Err(error) => why = why.or_else(|| Some(error.to_string())),
        }
    }
    Ok(why)
}
