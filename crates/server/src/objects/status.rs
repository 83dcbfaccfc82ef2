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
use crate::refresh::refresh_declared;
use crate::state::ControlPlane;
use crate::work::reach;
use crate::work::select::{self, MeantPage};

/// The most nodes that one order names.
const MAX_NODES: usize = 100_000;

/// One page, in the order of hostnames. The states of all nodes are kept; with a selector the first page
/// counts those of the nodes that it means.
pub(crate) async fn list(call: OperatorCall, asked: Matching) -> Result<SyncsView, Problem> {
    let (plane, limit) = (&call.plane, asked.limit.get());
    let from = select::page_start(asked.from)?;
    let is_first = from.is_empty();
    refresh_declared(plane).await;
    let mut page = SyncsView::default();
    let slots = match call.listed(asked.selector.as_deref())? {
        Some(selector) => {
            let most = if is_first { usize::MAX } else { limit };
            let MeantPage { slots, next } = call.meant_from(&selector, &from, most).await?;
            if is_first {
                for state in slots.iter().filter_map(|slot| slot.counted_sync()) {
                    *page.states.entry(state).or_default() += 1;
                }
                page.at_least = next.is_some();
            }
            page.next = slots.get(limit).map(|slot| slot.names().1).or(next);
            slots
        }
        None => {
            if is_first {
                page.states = plane.index.totals(|totals| totals.sync().clone());
            }
            let slots = plane.index.page(&from, limit + 1);
            page.next = slots.get(limit).map(|slot| slot.names().1);
            slots
        }
    };
    for slot in slots.iter().take(limit) {
        let (_, around) = around(plane, slot).await?;
        page.nodes.push(view(plane, slot, around));
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
        Some(root) => match slot.declared_mode(&root) {
            Some(known) => known,
            None => plane.grants.mode(&root).await.map_err(store_problem)?,
        },
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
        Reach::Unreachable => "unreachable",
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
pub(crate) async fn resync(call: OperatorCall, asked: ResyncNodes) -> Result<Resynced, Problem> {
    let OperatorCall { plane, by, .. } = &call;
    if asked.nodes.len() > MAX_NODES {
        return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_NODES} nodes a request")));
    }
    let slots = call.nodes(&asked.nodes).await?;
    let what = if asked.approve_deletions { "deletions approved" } else { "deletions not approved" };
    // It is in memory alone: the entry comes before it.
    call.audit.record(OperatorCall::subject(&slots).and(what)).await?;
    let wants = Wants { resync: true, approve: asked.approve_deletions };
    let now = slots
        .iter()
        .filter(|slot| plane.hub.sync_index().update(&slot.id(), |summary| summary.want(wants)))
        .count();
    tracing::info!(by, nodes = slots.len(), approve = asked.approve_deletions, "a resync was asked for");
    Ok(Resynced { now, nodes: slots.len() })
}
