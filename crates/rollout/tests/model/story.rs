//! What happened to one host of a world, for people, and the names of what a world has reached.

use model::{Hostname, NodeId, Timestamp};
use rollout::{MemberRecord, RolloutAnswer, RolloutEventBody, RolloutInput, RolloutState};

use super::planes::StoredCommit;

/// Whose story is told (`ROLLOUT_TRACE`), and where it is.
pub struct Story<'a> {
    pub host: &'a Hostname,
    pub node: Option<&'a NodeId>,
    pub plane: usize,
    pub now: Timestamp,
}

impl Story<'_> {
    /// Prints what concerns the host, and what becomes of rollouts.
    pub fn tell(&self, input: &RolloutInput, answer: &RolloutAnswer, stored: Option<&StoredCommit>) {
        let Story { now, plane, .. } = self;
        match input {
            RolloutInput::Event(event) if Some(&event.node) == self.node => {
                println!(
                    "{now} plane {plane}: {} {} {:?} -> {answer:?}",
                    event.rollout, event.seq, event.body
                );
            }
            RolloutInput::Command { rollout, command, .. } => {
                println!("{now} plane {plane}: {rollout} {command:?} -> {answer:?}");
            }
            RolloutInput::Published(new) => {
                new.iter().for_each(|new| println!("{now} plane {plane}: {} is published", new.key));
            }
            _ => {}
        }
        let Some(stored) = stored else { return };
        for change in &stored.commit.rollouts {
            let document = &change.document;
            if stored.documents.get(&document.key).map(|before| before.state) != Some(document.state) {
                println!("{now} plane {plane}:   {} becomes {}", document.key, document.state);
            }
            for member in change.members.iter().filter(|member| member.hostname == *self.host) {
                let MemberRecord { state, goal, before, failure, passed_on, .. } = member;
                let asked = member.asked.map(|asked| asked.until);
                println!(
                    "{now} plane {plane}:   in {}: {state} to {goal:?}, asked until {asked:?}, before {before:?}, \
                     passed on {passed_on}, {failure:?}",
                    document.key
                );
            }
        }
    }
}

/// A rollout's state, as what a world has reached.
pub fn state_name(state: RolloutState) -> &'static str {
    match state {
        RolloutState::Opening => "Opening",
        RolloutState::Active => "Active",
        RolloutState::Converging => "Converging",
        RolloutState::Terminal => "Terminal",
        RolloutState::Reverted => "Reverted",
        RolloutState::Failed => "Failed",
        RolloutState::Superseded => "Superseded",
        RolloutState::Pruned => "Pruned",
    }
}

/// An event, as what a world has reached.
pub fn name_of(body: &RolloutEventBody) -> &'static str {
    match body {
        RolloutEventBody::DispatchAck => "DispatchAck",
        RolloutEventBody::Unknown => "Unknown",
        RolloutEventBody::DispatchReject { .. } => "DispatchReject",
        RolloutEventBody::ActivationStarted => "ActivationStarted",
        RolloutEventBody::ActivationComplete { .. } => "ActivationComplete",
        RolloutEventBody::ActivationFailed { .. } => "ActivationFailed",
        RolloutEventBody::ActivationDeferred { .. } => "ActivationDeferred",
        RolloutEventBody::ProbeTopologyDeclared { .. } => "ProbeTopologyDeclared",
        RolloutEventBody::ProbeResult { .. } => "ProbeResult",
        RolloutEventBody::ProbeFailureFirst { .. } => "ProbeFailureFirst",
        RolloutEventBody::Failed { .. } => "node Failed",
        RolloutEventBody::RollbackComplete { .. } => "RollbackComplete",
        RolloutEventBody::Converged { .. } => "Converged",
    }
}
