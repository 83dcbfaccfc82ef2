//! Whom a selector means, and of whom it is plain that nothing allows the work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::delegation::NotDelegated;
use lang::Value;
use lang::selector::{Selector, SelectorMatch, Subject};
use model::work::{ActionRefusal, RefusalCode, Work};
use model::{Hostname, NodeId};
use plane::work::{NodeStage, Reach, Task};
use store::StoreError;
use wire::{Code, Problem};

use super::reach;
use crate::answer::store_problem;
use crate::api::work::{Select, Selected};
use crate::grants::SetGrants;
use crate::index::{NodeSlot, clip};
use crate::operator_port::OperatorCall;
use crate::refresh::refresh_declared;
use crate::state::ControlPlane;

/// How many hostnames an answer names.
const FIRST: usize = 10;

/// Reads a selector.
pub(crate) fn read(text: &str) -> Result<Selector, Problem> {
    Selector::parse(text).map_err(|error| Problem::new(Code::BadSelector, crate::answer::chain(&error)))
}

/// Where a page of a listing by hostname begins: from the first on, or from what the page before named.
///
/// # Errors
/// [`Code::BadQuery`] for what no page can have named.
pub(crate) fn page_start(from: Option<String>) -> Result<String, Problem> {
    let Some(text) = from.filter(|text| !text.is_empty()) else { return Ok(String::new()) };
    match text.parse::<Hostname>() {
        Ok(name) => Ok(name.to_string()),
        Err(_) => {
            let detail = format!("`from` is {:?}, and no page before named that as the next", clip(&text));
            Err(Problem::new(Code::BadQuery, detail))
        }
    }
}

/// The most nodes that one page of a selection looks at.
pub(crate) const MAX_LOOKED_AT: usize = 20_000;
/// The most nodes in one page of a selection by what nodes observe.
pub(crate) const MAX_OBSERVED: usize = 200;
/// After so long a page ends with what it has: others wait for their turn.
const PAGE_WITHIN: Duration = Duration::from_millis(100);
/// Nodes looked at in one go.
const GO: usize = 256;

/// A page of the nodes that a selector means, in the order of their hostnames.
#[derive(Default)]
pub(crate) struct MeantPage {
    pub(crate) slots: Vec<Arc<NodeSlot>>,
    /// The hostname to look on from, when there may be more.
    pub(crate) next: Option<Hostname>,
}

/// The nodes that a selector means, in the order of their hostnames.
pub(crate) async fn meant(
    plane: &Arc<ControlPlane>,
    selector: &Selector,
) -> Result<Vec<Arc<NodeSlot>>, Problem> {
    let mut meant = Vec::new();
    let mut page = meant_from(plane, selector, "", usize::MAX).await?;
    loop {
        meant.append(&mut page.slots);
        let Some(next) = page.next else { return Ok(meant) };
        page = meant_from(plane, selector, next.as_str(), usize::MAX).await?;
    }
}

/// So many of the nodes that a selector means, from a hostname on: at most [`MAX_OBSERVED`] where it asks for
/// traits, from [`MAX_LOOKED_AT`] nodes. A label, a group or the beginning of a hostname that all of them have
/// bounds the nodes that are looked at; only what an expression asks for is read from the store.
pub(crate) async fn meant_from(
    plane: &Arc<ControlPlane>,
    selector: &Selector,
    from: &str,
    limit: usize,
) -> Result<MeantPage, Problem> {
    if let Some(name) = selector.exact() {
        let is_later = |slot: &Arc<NodeSlot>| slot.names().1.as_str() >= from;
        let slots = plane.index.find(name).filter(is_later).into_iter().collect();
        return Ok(MeantPage { slots, next: None });
    }
    refresh_declared(plane).await;
    groups_exist(plane, selector)?;
    let limit = if selector.uses_traits() { limit.min(MAX_OBSERVED) } else { limit };
    let (begun, among, prefix) = (Instant::now(), selector.only_among(), selector.prefix());
    let mut from = from.max(prefix).to_owned();
    let (mut page, mut looked_at) = (MeantPage::default(), 0);
    loop {
        let (go, is_last) = match &among {
            Some(terms) => {
                let names = plane.index.declared().page(terms, &from, GO);
                // Nodes that left since are not there; those behind them are.
                let behind = names.last().map(|name| format!("{name}\0"));
                let go = plane.index.of_names(&names);
                from = behind.filter(|_| go.is_empty()).unwrap_or(from);
                (go, names.len() < GO)
            }
            None => {
                let go = plane.index.page(&from, GO);
                let is_last = go.len() < GO;
                (go, is_last)
            }
        };
        for slot in go {
            let (_, name) = slot.names();
            if !name.as_str().starts_with(prefix) {
                return Ok(page);
            }
            let over = looked_at > 0 && begun.elapsed() > PAGE_WITHIN;
            if page.slots.len() == limit || looked_at == MAX_LOOKED_AT || over {
                page.next = Some(name);
                return Ok(page);
            }
            looked_at += 1;
            // What comes right behind this name.
            from = format!("{name}\0");
            if is_meant(plane, selector, &slot).await? {
                page.slots.push(slot);
            }
        }
        if is_last {
            return Ok(page);
        }
    }
}

async fn is_meant(plane: &ControlPlane, selector: &Selector, slot: &NodeSlot) -> Result<bool, Problem> {
    let (id, hostname) = slot.names();
    let bare = Subject { hostname: hostname.as_str(), id: id.as_str(), traits: None, declared: None };
    match selector.judge(&bare) {
        SelectorMatch::Yes => return Ok(true),
        SelectorMatch::No => return Ok(false),
        SelectorMatch::Unknown(_) => {}
    }
    let declared = if !selector.uses_declared() || !slot.is_declared() {
        None
    } else if selector.evaluates_labels() {
        match slot.pointed_root(&plane.heads()) {
            Some(root) => plane.grants.declared(&root).await.map_err(store_problem)?,
            None => None,
        }
    } else {
        Some(plane.index.declared().declared(&hostname, &selector.declared_terms()))
    };
    let subject = Subject { declared: declared.as_ref(), ..bare };
    // Traits are the dearest to have, and hardly ever wanted of a node that is not meant without them.
    if !selector.uses_traits() || selector.judge(&subject) == SelectorMatch::No {
        return Ok(selector.judge(&subject) == SelectorMatch::Yes);
    }
    let traits = plane.store.traits(&id).await.map_err(store_problem)?.and_then(|traits| {
        // Traits are values without null and floats; others say nothing.
        serde_json::from_value::<Value>(traits.values).ok()
    });
    Ok(selector.judge(&Subject { traits: traits.as_ref(), ..subject }) == SelectorMatch::Yes)
}

/// Refuses a group that no node is in: it is a slip of the pen, or not yet published.
fn groups_exist(plane: &ControlPlane, selector: &Selector) -> Result<(), Problem> {
    let declared = plane.index.declared();
    let Some(unknown) = selector.groups().find(|group| !declared.has_group(group)) else { return Ok(()) };
    let known = declared.groups();
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
    let mut nodes = meant(plane, &read(&request.selector)?).await?;
    if call.is_scoped() {
        refresh_declared(plane).await;
        nodes.retain(|slot| call.covers(slot));
    }
    let mut selected = Selected {
        count: nodes.len(),
        first: Vec::new(),
        online: 0,
        promotable: 0,
        unreachable: 0,
        offline: 0,
    };
    for slot in nodes {
        let (id, hostname) = slot.names();
        match reach(plane, &id) {
            Reach::Online => selected.online += 1,
            Reach::Promotable { .. } => selected.promotable += 1,
            Reach::Unreachable => selected.unreachable += 1,
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
