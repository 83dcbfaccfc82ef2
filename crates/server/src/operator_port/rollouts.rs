//! Rollouts: how they stand, why a node has not changed yet, and orders to them.

use rollout::{RolloutCommand, WaitCause};
use store::audit::AuditSubject;
use wire::{Code, Problem};

use super::OperatorCall;
use crate::api::NodeName;
use crate::api::rollouts::{
    ControlRollout, NodeRolloutView, RolloutHistory, RolloutName, RolloutNodesQuery, RolloutNodesView,
    RolloutTurn, RolloutView,
};

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
    let node = call.node(&asked.node).await?.id();
    let words = if call.is_scoped() { WaitCause::without_others } else { WaitCause::to_string };
    call.plane.rollouts.explain(&call.plane, &node, words).await
}

pub(super) async fn control(call: OperatorCall, asked: ControlRollout) -> Result<RolloutView, Problem> {
    let document = call.plane.rollouts.named(&call.plane, &asked.rollout).await?;
    let mut subject = AuditSubject::of(format!("rollout {}: {}", document.id, asked.turn));
    let command = match asked.turn {
        RolloutTurn::Approve => RolloutCommand::Approve,
        RolloutTurn::Pause => RolloutCommand::Pause,
        RolloutTurn::Resume => RolloutCommand::Resume,
        RolloutTurn::Abort => RolloutCommand::Abort,
        RolloutTurn::Rollback => RolloutCommand::Rollback,
        RolloutTurn::Skip => {
            let named = asked.node.as_deref().ok_or_else(|| {
                Problem::new(Code::BadBody, "`node` says which node is taken out of the rollout")
            })?;
            let slot = call.node(named).await?;
            subject = AuditSubject::nodes([&slot.names().1]).and(format!("rollout {}: skip", document.id));
            RolloutCommand::Skip(slot.id())
        }
    };
    let (store, plane) = (call.recording(subject), &call.plane);
    plane.rollouts.command(plane, store, document.key, &call.by, command).await?;
    tracing::info!(by = call.by, rollout = %document.id, turn = %asked.turn, "a rollout goes on as an operator asked");
    plane.rollouts.show(plane, document.id.as_str()).await
}
