//! [`refresh`]: judges the nodes that changed, or whose time came, and keeps the totals of the fleet so. It is done in
//! memory: what releases declare of nodes is read from the store by [`refresh_declared`], for those who ask for it.

use std::sync::Arc;

use model::replication::Mode;
use plane::{Heads, NodeState};

use crate::answer::chain;
use crate::causes::causes_of;
use crate::causes::next_step::certificate_until;
use crate::hub::ConditionContext;
use crate::index::{CountBasis, DeclareOutcome, NodeSlot};
use crate::state::{ControlPlane, now, run_to_completion};
use crate::totals::CountedNode;

/// Nodes judged before others get their turn on the thread.
const YIELD_AFTER: usize = 64;

/// Brings the totals up to date. Cost: the nodes that changed since the last time, or whose time came; after
/// a publish all nodes, once. Nothing is read from the store.
pub(crate) async fn refresh(plane: &Arc<ControlPlane>) {
    // While others judge, what they took is not counted yet.
    let is_idle = plane.index.refreshing.try_lock().is_ok();
    if is_idle && plane.index.is_refreshed(basis(plane, &plane.heads()), now()) {
        return;
    }
    let plane = plane.clone();
    // Whole, also when who asked hangs up: a node that was taken is judged.
    let refreshed = run_to_completion(async move {
        let _one = plane.index.refreshing.lock().await;
        let heads = plane.heads();
        let basis = basis(&plane, &heads);
        for (at, slot) in plane.index.take_queued(basis, now()).into_iter().enumerate() {
            judge(&plane, &heads, &slot);
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

/// By what nodes count now.
fn basis(plane: &ControlPlane, heads: &Heads) -> CountBasis {
    let issuers = plane.authorities.set().counting();
    CountBasis { heads: heads.version, recovery: plane.certificate_recovery(), issuers }
}

/// As [`refresh`], with what releases declare of nodes: by that selectors find them, and the states of their
/// synchronization count. Cost: besides a read of the set of each node whose set is another one than before; after
/// a start of all nodes, once.
pub(crate) async fn refresh_declared(plane: &Arc<ControlPlane>) {
    refresh(plane).await;
    let is_idle = plane.index.declaring.try_lock().is_ok();
    if is_idle && plane.index.is_all_declared() {
        return;
    }
    let declaring = plane.clone();
    let declared = run_to_completion(async move {
        let _one = declaring.index.declaring.lock().await;
        while let Some(slot) = declaring.index.take_undeclared() {
            declare(&declaring, &slot).await;
        }
        Ok::<_, crate::state::GivenUp>(())
    });
    if let Err(error) = declared.await {
        tracing::warn!(%error, "what releases declare of nodes is behind");
    }
    // Those of them that synchronize count otherwise now.
    refresh(plane).await;
}

fn judge(plane: &ControlPlane, heads: &Heads, slot: &Arc<NodeSlot>) {
    // What changes from here on is judged anew.
    slot.lock().queued = false;
    let mode = plane.index.mode_or_queue(slot, slot.pointed_root(heads).as_ref());
    let (id, reach) = (slot.id(), crate::work::reach(plane, &slot.id()));
    let around = ConditionContext { mode, reach, instance: plane.boot(), started: plane.started };
    let sync = plane.hub.sync_index().read(&id, |summary| summary.condition(around).cause.state());
    let mut contact = None;
    plane.index.count(slot, |node, totals| {
        let basis = plane.status_basis(heads);
        let status = node.status(heads, basis.now);
        contact = node.contact_untold(status.contact);
        let state = status.overall();
        let mut causes: Vec<_> = Vec::new();
        for cause in causes_of(node, state, basis) {
            let key = totals.interned(cause.key);
            if !causes.iter().any(|(known, _)| *known == key) {
                causes.push((key, cause.since));
            }
        }
        let until = [node.status_until(heads, basis.now), certificate_until(node, basis)];
        CountedNode {
            state,
            sync,
            trust: node.trust_version,
            causes: causes.into(),
            until: until.into_iter().flatten().min(),
        }
    });
    if let Some(contact) = contact {
        plane.rollouts.contact(&id, contact);
    }
}

/// Keeps what is declared of a node as the release that it is pointed to has it.
async fn declare(plane: &ControlPlane, slot: &Arc<NodeSlot>) {
    let facts = match slot.pointed_root(&plane.heads()) {
        Some(root) if slot.declared_mode(&root).is_some() => return,
        Some(root) => match plane.grants.facts(&root).await {
            Ok(facts) => facts.map(|facts| (root, facts)),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "what a release declares cannot be read");
                return plane.index.mark(slot);
            }
        },
        None => None,
    };
    let is_off = facts.as_ref().is_none_or(|(_, facts)| facts.mode == Mode::Off);
    let pointed = |node: &mut NodeState| node.pointed(&plane.heads()).map(|(_, entry)| entry.root);
    // As it counts otherwise then, or waits to be read anew.
    let was_off = plane.index.declare(slot, facts, pointed) == DeclareOutcome::After(Mode::Off);
    if !(is_off && was_off) {
        plane.index.mark(slot);
    }
}
