//! Hosts that ask to join, and copies of nodes: an operator decides (ENR-9, IDN-10).

use model::{JoinDecision, JoinState, PendingJoin};
use store::audit::AuditSubject;
use wire::{Code, Problem};

use super::OperatorCall;
use super::fleet::node_view;
use crate::answer::store_problem;
use crate::api::joins::{JoinName, JoinView, JoinsView};
use crate::api::{NodeName, NodeView};
use crate::joins::{fingerprint, named};
use crate::state::now;
use plane::joining::HeardJoin;

pub(super) fn list(call: &OperatorCall) -> JoinsView {
    JoinsView { joins: call.plane.joins.pending().all().into_iter().map(view).collect() }
}

fn view(kept: &HeardJoin) -> JoinView {
    let join = &kept.join;
    JoinView {
        id: join.node_id.clone(),
        hostname: join.hostname.clone(),
        fingerprint: fingerprint(join),
        address: join.address.clone(),
        since: join.since,
        heard: kept.heard,
        state: join.state,
        decided: join.decided.clone(),
        group: join.group.is_some(),
    }
}

fn viewed(join: PendingJoin) -> JoinView {
    view(&HeardJoin { heard: now(), join })
}

pub(super) async fn approve(call: OperatorCall, asked: JoinName) -> Result<JoinView, Problem> {
    decide(call, asked, JoinState::Approved).await
}

pub(super) async fn deny(call: OperatorCall, asked: JoinName) -> Result<JoinView, Problem> {
    decide(call, asked, JoinState::Denied).await
}

async fn decide(call: OperatorCall, asked: JoinName, state: JoinState) -> Result<JoinView, Problem> {
    let _one = call.plane.joins.changing.lock().await;
    let join = meant(&call, &asked)?;
    if state == JoinState::Denied && join.state != JoinState::Denied {
        let room = call.plane.joins.pending().room_for_denial();
        room.map_err(|bound| Problem::new(Code::TooManyJoins, bound.to_string()))?;
    }
    if state == JoinState::Approved
        && let Some(slot) = call.plane.index.find(join.hostname.as_str())
    {
        let by = slot.id();
        return Err(Problem::new(Code::HostnameTaken, format!("the hostname is taken by node {by}")));
    }
    let join = PendingJoin { state, decided: Some(JoinDecision { at: now(), by: call.by.clone() }), ..join };
    call.recording(subject(&join)).decide_join(join.clone()).await.map_err(store_problem)?;
    call.plane.joins.pending().change(join.clone());
    let PendingJoin { node_id, hostname, .. } = &join;
    tracing::info!(by = call.by, node = %node_id, %hostname, state = state.as_str(), "a join was decided");
    Ok(viewed(join))
}

pub(super) async fn forget(call: OperatorCall, asked: JoinName) -> Result<JoinView, Problem> {
    let _one = call.plane.joins.changing.lock().await;
    let join = meant(&call, &asked)?;
    let store = call.recording(subject(&join));
    store.forget_joins(vec![join.node_id.clone()]).await.map_err(store_problem)?;
    call.plane.joins.forget(&join.node_id);
    Ok(viewed(join))
}

/// The key that is meant, with the fingerprint that was asked for.
fn meant(call: &OperatorCall, asked: &JoinName) -> Result<PendingJoin, Problem> {
    let name = match &asked.fingerprint {
        Some(fingerprint) => fingerprint,
        None => &asked.join,
    };
    let join = named(&call.plane, name)?;
    let is_meant =
        [join.hostname.as_str(), join.node_id.as_str(), &fingerprint(&join)].contains(&&*asked.join);
    if is_meant {
        Ok(join)
    } else {
        Err(Problem::new(Code::NotFound, "the key asks to join under another name"))
    }
}

fn subject(join: &PendingJoin) -> AuditSubject {
    AuditSubject::nodes([&join.hostname]).and(format!("{} {}", join.node_id, fingerprint(join)))
}

pub(super) async fn resolve_copy(call: OperatorCall, asked: NodeName) -> Result<NodeView, Problem> {
    let slot = call.node(&asked.node).await?;
    let (id, hostname) = slot.names();
    let store = call.recording(AuditSubject::nodes([&hostname]).and(id.to_string()));
    store.set_copied(&id, None).await.map_err(store_problem)?;
    {
        let mut entry = slot.lock();
        entry.node.copy_resolved();
        call.plane.index.mark_entry(&slot, &mut entry);
    }
    slot.wake.notify_waiters();
    call.plane.hub.sync_index().update(&id, |summary| summary.duplicate = None);
    tracing::info!(by = call.by, node = %id, %hostname, "one host alone holds the node's key, says an operator");
    node_view(&call, &asked.node).await
}
