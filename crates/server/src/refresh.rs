//! [`refresh`]: judges the nodes that changed, or whose time came, and keeps the totals of the fleet so.

use std::sync::Arc;

use model::replication::Mode;
use plane::Heads;

use crate::answer::chain;
use crate::causes::causes_of;
use crate::causes::next_step::certificate_until;
use crate::hub::ConditionContext;
use crate::index::NodeSlot;
use crate::state::{ControlPlane, now, run_to_completion};
use crate::totals::CountedNode;

/// Nodes judged before others get their turn on the thread.
const YIELD_AFTER: usize = 64;

/// Brings the totals up to date. Cost: the nodes that changed since the last time, or whose time came; after
/// a publish all nodes, once.
pub(crate) async fn refresh(plane: &Arc<ControlPlane>) {
    // While others judge, what they took is not counted yet.
    let is_idle = plane.index.refreshing.try_lock().is_ok();
    if is_idle && plane.index.is_refreshed(plane.heads().version, now()) {
        return;
    }
    let plane = plane.clone();
    // Whole, also when who asked hangs up: a node that was taken is judged.
    let refreshed = run_to_completion(async move {
        let _one = plane.index.refreshing.lock().await;
        let heads = plane.heads();
        for (at, slot) in plane.index.take_queued(heads.version, now()).into_iter().enumerate() {
            judge(&plane, &heads, &slot).await;
            if at % YIELD_AFTER == YIELD_AFTER - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok::<_, crate::state::GivenUp>(())
    });
    if let Err(error) = refreshed.await {
        tracing::warn!(%error, "the totals of the fleet are behind");
    }
}

async fn judge(plane: &ControlPlane, heads: &Heads, slot: &Arc<NodeSlot>) {
    // What changes from here on is judged anew.
    slot.lock().queued = false;
    let mode = declare(plane, heads, slot).await;
    let (id, reach) = (slot.id(), crate::work::reach(plane, &slot.id()));
    let around = ConditionContext { mode, reach, instance: plane.boot(), started: plane.started };
    let sync = plane.hub.sync_index().read(&id, |summary| summary.condition(around).cause.state());
    let recovery = plane.certificates.recovery;
    plane.index.count(slot, |node, totals| {
        let now = now();
        let state = node.status(heads, now).overall();
        let mut causes: Vec<_> = Vec::new();
        for cause in causes_of(node, state, heads, recovery) {
            let key = totals.interned(cause.key);
            if !causes.iter().any(|(known, _)| *known == key) {
                causes.push((key, cause.since));
            }
        }
        let until = [node.status_until(heads, now), certificate_until(node, recovery, now)];
        CountedNode {
            state,
            sync,
            trust: node.trust_version,
            causes: causes.into(),
            until: until.into_iter().flatten().min(),
        }
    });
}

/// Keeps what is declared of a node as the release that it is pointed to has it; gives its mode.
async fn declare(plane: &ControlPlane, heads: &Heads, slot: &Arc<NodeSlot>) -> Mode {
    let Some(root) = slot.pointed_root(heads) else {
        plane.index.declare(slot, None);
        return Mode::Off;
    };
    if let Some(known) = slot.declared_mode(&root) {
        return known;
    }
    match plane.grants.facts(&root).await {
        Ok(Some(facts)) => {
            let mode = facts.mode;
            plane.index.declare(slot, Some((root, facts)));
            mode
        }
        Ok(None) => {
            plane.index.declare(slot, None);
            Mode::Off
        }
        Err(error) => {
            tracing::warn!(error = %chain(&error), "what a release declares cannot be read");
            plane.index.mark(slot);
            Mode::Off
        }
    }
}
