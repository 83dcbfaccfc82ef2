//! How synchronization of nodes stands, and resyncs that operators ask for.

use model::NodeId;
use model::replication::Mode;
use plane::work::Reach;
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::api::Matching;
use crate::api::objects::{ConditionView, ResyncNodes, Resynced, SyncView, SyncsView};
use crate::hub::{ConditionContext, Wants};
use crate::index::NodeSlot;
use crate::operator_port::OperatorCall;
use crate::state::ControlPlane;
use crate::work::{reach, select};

/// The most nodes that one order names.
const MAX_NODES: usize = 100_000;

/// One page, in the order of hostnames. The first page counts the states of all nodes that are
/// asked for and costs as many looks; a later one costs what it shows, and with a selector the
/// nodes that it passes over.
pub(crate) async fn list(call: OperatorCall, asked: Matching) -> Result<SyncsView, Problem> {
    let (plane, limit, index) = (&call.plane, asked.limit.get(), call.plane.hub.sync_index());
    let from = asked.from.unwrap_or_default();
    let is_first = from.is_empty();
    let most = if is_first { usize::MAX } else { limit + 1 };
    let slots = match &asked.selector {
        Some(text) => select::meant_from(plane, &select::read(text)?, &from, most).await?,
        None => plane.index.page(&from, most),
    };
    let mut page = SyncsView::default();
    for slot in slots {
        let (id, around) = around(plane, &slot).await?;
        if is_first {
            let state = index.read(&id, |summary| summary.condition(around).cause.state());
            *page.states.entry(state).or_default() += 1;
        }
        if page.nodes.len() < limit {
            page.nodes.push(view(plane, &slot, around));
        } else {
            page.next.get_or_insert_with(|| slot.names().1);
        }
    }
    Ok(page)
}

/// What a node's condition depends on besides its summary.
async fn around<'p>(
    plane: &'p ControlPlane,
    slot: &NodeSlot,
) -> Result<(NodeId, ConditionContext<'p>), Problem> {
    let mode = match slot.pointed_root(&plane.heads()) {
        None => Mode::Off,
        Some(root) => plane.grants.mode(&root).await.map_err(store_problem)?,
    };
    let id = slot.id();
    let (instance, started, reach) = (plane.boot(), plane.started, reach(plane, &id));
    Ok((id, ConditionContext { mode, reach, instance, started }))
}

fn view(plane: &ControlPlane, slot: &NodeSlot, around: ConditionContext<'_>) -> SyncView {
    let (id, node) = slot.names();
    let reach = match around.reach {
        Reach::Online => "online",
        Reach::Promotable { .. } => "promotable",
        Reach::Offline | Reach::Removed => "offline",
    };
    plane.hub.sync_index().read(&id, |summary| SyncView {
        condition: ConditionView::new(&summary.condition(around), node.as_str()),
        mode: around.mode,
        behind: summary.objects_behind(),
        link: summary.link.as_ref().map(|link| link.transport),
        linked_since: summary.link.as_ref().map(|link| link.since),
        reach: reach.to_owned(),
        down: summary.objects_down(),
        up: summary.up,
        node,
    })
}

/// Has nodes compared anew: now, or when they connect.
pub(crate) fn resync(call: &OperatorCall, asked: &ResyncNodes) -> Result<Resynced, Problem> {
    let OperatorCall { plane, by } = call;
    if asked.nodes.len() > MAX_NODES {
        return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_NODES} nodes a request")));
    }
    let slots = asked.nodes.iter().map(|name| plane.index.named(name)).collect::<Result<Vec<_>, _>>()?;
    let wants = Wants { resync: true, approve: asked.approve_deletions };
    let now = slots
        .iter()
        .filter(|slot| plane.hub.sync_index().update(&slot.id(), |summary| summary.want(wants)))
        .count();
    tracing::info!(by, nodes = slots.len(), approve = asked.approve_deletions, "a resync was asked for");
    Ok(Resynced { now, nodes: slots.len() })
}
