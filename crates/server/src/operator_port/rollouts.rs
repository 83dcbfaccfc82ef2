//! Rollouts: how they stand, why a node has not changed yet, and orders to them.

use model::rollout::RolloutId;
use model::status::Contact;
use model::{Hostname, Timestamp};
use rollout::{ApprovedGate, CommandRefusal, RolloutCommand, RolloutState, WaitCause};
use store::audit::AuditSubject;
use wire::{Code, Problem};

use super::OperatorCall;
use crate::api::NodeName;
use crate::api::rollouts::{
    ControlRollout, NodeRolloutView, RolloutHistory, RolloutName, RolloutNodesQuery, RolloutNodesView,
    RolloutTurn, RolloutView,
};
use crate::index::NodeSlot;
use crate::rollouts::views::NamedRollout;
use crate::state::now;

pub(super) async fn list(call: OperatorCall, asked: RolloutHistory) -> Result<Vec<RolloutView>, Problem> {
    call.plane.rollouts.list(&call.plane, asked).await
}

pub(super) async fn show(call: OperatorCall, asked: RolloutName) -> Result<RolloutView, Problem> {
    call.plane.rollouts.show(&call.plane, &asked.rollout).await
}

pub(super) async fn nodes(call: OperatorCall, asked: RolloutNodesQuery) -> Result<RolloutNodesView, Problem> {
    call.plane.rollouts.nodes(&call.plane, asked).await
}

pub(super) async fn explain(call: OperatorCall, asked: NodeName) -> Result<Option<NodeRolloutView>, Problem> {
    let slot = call.node(&asked.node).await?;
    let words = if call.is_scoped() { WaitCause::without_others } else { WaitCause::to_string };
    let explained = call.plane.rollouts.explain(&call.plane, &slot.id(), words).await?;
    Ok(explained.map(|view| NodeRolloutView { silent_since: silent_since(&call, &slot), ..view }))
}

/// Since when nothing is heard of a node that does not call as it was to.
fn silent_since(call: &OperatorCall, slot: &NodeSlot) -> Option<Timestamp> {
    let (heads, mut entry) = (call.plane.heads(), slot.lock());
    let is_silent = entry.node.status(&heads, now()).contact != Contact::Online;
    is_silent.then(|| entry.node.heard_at())
}

pub(super) async fn control(call: OperatorCall, asked: ControlRollout) -> Result<RolloutView, Problem> {
    let named = call.plane.rollouts.named(&call.plane, &asked.rollout, Some(asked.turn)).await?;
    let NamedRollout { document, other } = named;
    let mut subject = AuditSubject::of(format!("rollout {}: {}", document.id, asked.turn));
    let mut skipped = None;
    let command = match asked.turn {
        RolloutTurn::Approve => {
            RolloutCommand::Approve(asked.wave.map_or(ApprovedGate::Newest, ApprovedGate::Of))
        }
        RolloutTurn::Pause => RolloutCommand::Pause,
        RolloutTurn::Resume => RolloutCommand::Resume,
        RolloutTurn::Abort => RolloutCommand::Abort,
        RolloutTurn::Rollback => RolloutCommand::Rollback,
        RolloutTurn::Skip => {
            let named = asked.node.as_deref().ok_or_else(|| {
                Problem::new(Code::BadBody, "`node` says which node is taken out of the rollout")
            })?;
            let slot = call.node(named).await?;
            let (id, hostname) = slot.names();
            subject = AuditSubject::nodes([&hostname]).and(format!("rollout {}: skip", document.id));
            skipped = Some(hostname);
            RolloutCommand::Skip(id)
        }
    };
    let (store, plane) = (call.recording(subject), &call.plane);
    let done = plane.rollouts.command(plane, store, document.key, &call.by, command).await?;
    done.map_err(|refusal| refused(&refusal, &document.id, other, skipped.as_ref()))?;
    tracing::info!(by = call.by, rollout = %document.id, turn = %asked.turn, "a rollout goes on as an operator asked");
    plane.rollouts.show(plane, document.id.as_str()).await
}

/// A refusal that says which rollout it is about, of a channel's name which other one there is, and a node by its hostname.
fn refused(
    refusal: &CommandRefusal,
    id: &RolloutId,
    other: Option<(RolloutId, RolloutState)>,
    skipped: Option<&Hostname>,
) -> Problem {
    let other = other.map(|(other, state)| format!("; {other} is {}", state.words())).unwrap_or_default();
    let why = match (refusal, skipped) {
        (CommandRefusal::UnknownNode(_), Some(hostname)) => format!("node {hostname} is not in this rollout"),
        _ => refusal.to_string(),
    };
    Problem::new(Code::WrongPhase, format!("{id}: {why}{other}"))
}

#[cfg(test)]
mod tests {
    use model::{Hostname, NodeId};
    use rollout::{CommandRefusal, RolloutState};

    use super::refused;

    /// OPS-1: a refusal names the rollout, the other one of its channel, and the node as people call it.
    #[test]
    fn a_node_is_named_by_its_hostname() {
        let (id, other) = ("stable@4f1c".parse().unwrap(), "stable@5a2d".parse().unwrap());
        let (node, hostname) = (NodeId::of_key(b"key"), "web-2".parse::<Hostname>().unwrap());
        let of = |refusal, other, skipped| refused(&refusal, &id, other, skipped).detail.unwrap();
        let unknown = || CommandRefusal::UnknownNode(node.clone());
        let waits = Some((other, RolloutState::Opening));
        let said = "stable@4f1c: node web-2 is not in this rollout; stable@5a2d is waiting to begin";
        assert_eq!(of(unknown(), waits, Some(&hostname)), said);
        // What was asked by nobody's hostname is said as the rollouts say it.
        assert_eq!(of(unknown(), None, None), format!("stable@4f1c: {}", unknown()));
        let through = || CommandRefusal::Through;
        assert_eq!(of(through(), None, Some(&hostname)), format!("stable@4f1c: {}", through()));
    }
}
