//! Whom a selector means, and of whom it is plain that nothing allows the work.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::delegation::NotDelegated;
use lang::Value;
use lang::selector::{Selector, SelectorMatch, Subject};
use model::NodeId;
use model::work::{ActionRefusal, RefusalCode, Work};
use plane::work::{NodeStage, Reach, Task};
use store::StoreError;
use wire::{Code, Problem};

use super::reach;
use crate::answer::store_problem;
use crate::api::work::{Select, Selected};
use crate::grants::SetGrants;
use crate::index::NodeSlot;
use crate::operator_port::OperatorCall;
use crate::state::ControlPlane;

/// How many hostnames an answer names.
const FIRST: usize = 10;

/// Reads a selector.
pub(crate) fn read(text: &str) -> Result<Selector, Problem> {
    Selector::parse(text).map_err(|error| Problem::new(Code::BadSelector, crate::answer::chain(&error)))
}

/// The nodes that a selector means, in the order of their hostnames.
pub(crate) async fn meant(plane: &ControlPlane, selector: &Selector) -> Result<Vec<Arc<NodeSlot>>, Problem> {
    meant_from(plane, selector, "", usize::MAX).await
}

/// So many of the nodes that a selector means, in the order of their hostnames, from a hostname
/// on. Cost: the nodes up to the last of them. Traits and what is declared are read for those
/// nodes alone that it depends on, one at a time.
pub(crate) async fn meant_from(
    plane: &ControlPlane,
    selector: &Selector,
    from: &str,
    limit: usize,
) -> Result<Vec<Arc<NodeSlot>>, Problem> {
    if let (Some(name), true) = (selector.exact(), from.is_empty()) {
        return Ok(plane.index.find(name).into_iter().collect());
    }
    groups_exist(plane, selector).await?;
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

async fn is_meant(plane: &ControlPlane, selector: &Selector, slot: &NodeSlot) -> Result<bool, Problem> {
    let (id, hostname) = slot.names();
    let bare = Subject { hostname: hostname.as_str(), id: id.as_str(), traits: None, declared: None };
    match selector.judge(&bare) {
        SelectorMatch::Yes => return Ok(true),
        SelectorMatch::No => return Ok(false),
        SelectorMatch::Unknown(_) => {}
    }
    let traits = if selector.uses_traits() {
        plane.store.traits(&id).await.map_err(store_problem)?.and_then(|traits| {
            // Traits are values without null and floats; others say nothing.
            serde_json::from_value::<Value>(traits.values).ok()
        })
    } else {
        None
    };
    let declared = match (selector.uses_declared(), slot.pointed_root(&plane.heads())) {
        (true, Some(root)) => plane.grants.declared(&root).await.map_err(store_problem)?,
        _ => None,
    };
    let subject = Subject { traits: traits.as_ref(), declared: declared.as_ref(), ..bare };
    Ok(selector.judge(&subject) == SelectorMatch::Yes)
}

/// Refuses a group that no node is in: it is a slip of the pen, or not yet published. Cost: one
/// look at what each different set declares, until every group was found.
async fn groups_exist(plane: &ControlPlane, selector: &Selector) -> Result<(), Problem> {
    let mut wanted: BTreeSet<&str> = selector.groups().collect();
    let (mut known, mut seen) = (BTreeSet::new(), BTreeSet::new());
    if wanted.is_empty() {
        return Ok(());
    }
    for slot in plane.index.page("", usize::MAX) {
        let Some(root) = slot.pointed_root(&plane.heads()).filter(|root| seen.insert(*root)) else {
            continue;
        };
        let Some(declared) = plane.grants.declared(&root).await.map_err(store_problem)? else { continue };
        let Some(Value::List(groups)) = declared.path("groups") else { continue };
        for group in groups.iter().filter_map(Value::as_str) {
            wanted.remove(group);
            known.insert(group.to_owned());
        }
        if wanted.is_empty() {
            return Ok(());
        }
    }
    let unknown = wanted.into_iter().next().unwrap_or_default();
    let detail = match lang::nearest(unknown, known.iter().map(String::as_str)) {
        Some(near) => format!("no node is in a group {unknown:?}; did you mean @{near}?"),
        None if known.is_empty() => {
            format!("no node is in a group {unknown:?}: name it in groups.yaml and publish")
        }
        None => {
            let known: Vec<String> = known.iter().take(FIRST).map(|group| format!("@{group}")).collect();
            format!("no node is in a group {unknown:?}; there are {}", known.join(", "))
        }
    };
    Err(Problem::new(Code::BadSelector, detail))
}

/// How many nodes a selector means, and how they can be reached.
pub(crate) async fn count(call: OperatorCall, request: Select) -> Result<Selected, Problem> {
    let plane = &call.plane;
    let nodes = meant(plane, &read(&request.selector)?).await?;
    let mut selected =
        Selected { count: nodes.len(), first: Vec::new(), online: 0, promotable: 0, offline: 0 };
    for slot in nodes {
        let (id, hostname) = slot.names();
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

/// The ids of nodes, refused when there are not so many as the operator confirmed.
pub(crate) fn ids(nodes: &[Arc<NodeSlot>], expected: Option<usize>) -> Result<Vec<NodeId>, Problem> {
    match expected {
        Some(expected) if expected != nodes.len() => {
            let detail = format!("the selector means {} nodes now, not {expected}", nodes.len());
            Err(Problem::new(Code::SelectionMoved, detail))
        }
        _ => Ok(nodes.iter().map(|slot| slot.id()).collect()),
    }
}

/// The targets for which neither the set that they are pointed to nor the one that they hold
/// allows the work, and why. Where that is not known the node judges alone; it does in
/// any case.
pub(super) async fn refusals(plane: &ControlPlane, task: &Task) -> Vec<(NodeId, ActionRefusal)> {
    let mut refused = Vec::new();
    for (node, _) in task.nodes().iter().filter(|(_, work)| work.stage == NodeStage::Waiting) {
        match refusal(plane, task, node).await {
            Ok(Some(refusal)) => refused.push((node.clone(), refusal)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%node, %error, "what the release allows cannot be read"),
        }
    }
    refused
}

async fn refusal(
    plane: &ControlPlane,
    task: &Task,
    node: &NodeId,
) -> Result<Option<ActionRefusal>, StoreError> {
    let Some(slot) = plane.index.get(node) else { return Ok(None) };
    let held = slot.lock().node.held.as_ref().map(|held| held.root);
    let Some(pointed) = slot.pointed_root(&plane.heads()) else { return Ok(None) };
    let mut why = None;
    for root in [Some(pointed), held.filter(|held| *held != pointed)].into_iter().flatten() {
        let Some(granted) = plane.grants.of(&root).await? else { return Ok(None) };
        match allowed(&granted, &task.spec().work) {
            Ok(()) => return Ok(None),
            Err(refusal) => why = why.or(Some(refusal)),
        }
    }
    Ok(why)
}

/// Whether what a set grants allows the work: an operation on an object by its leave to
/// synchronize, all else by its delegations.
fn allowed(granted: &SetGrants, work: &Work) -> Result<(), ActionRefusal> {
    if let Work::Operation { operation, object } = work {
        return catalog::sync::allows(Some(&granted.sync), *operation, object);
    }
    let refused =
        |error: NotDelegated| ActionRefusal { code: RefusalCode::NotDelegated, message: error.to_string() };
    catalog::delegation::allows(&granted.delegations, work).map(drop).map_err(refused)
}
