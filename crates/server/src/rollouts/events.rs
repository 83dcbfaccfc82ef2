//! Events of nodes: from facts of their logs, and one by one in the form of the source document (ROL-5).

use model::log::{Fact, FactBody};
use model::rollout::{RolloutEventBody, RolloutFact};
use model::{Incarnation, NodeId, Timestamp};
use rollout::{EventAnswer, RolloutEvent};
use store::Accepted;
use trust::ProbeEvidence;

use crate::node_port::CallingNode;
use crate::state::ControlPlane;

/// What a node says in one request.
pub(crate) struct HeardEvents {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// All facts of the request, events among them; none of one event that is no fact.
    pub(crate) facts: Vec<Fact>,
    /// The events whose evidence holds.
    pub(crate) events: Vec<RolloutEvent>,
}

/// What became of it.
pub(crate) struct EventsTaken {
    /// How far the facts are durable; `None` where there were none.
    pub(crate) accepted: Option<Accepted>,
    pub(crate) answers: Vec<EventAnswer>,
}

/// A fact is an event of a rollout.
pub(crate) fn are_among(facts: &[Fact]) -> bool {
    facts.iter().any(|fact| matches!(fact.body, FactBody::Rollout(_)))
}

impl HeardEvents {
    /// How much of the queue's room it takes, in bytes: what the node sent, and of an event that is no fact its text.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.events.iter().map(|event| wire::body::encoded_len(&event.body));
        wire::body::encoded_len(&self.facts) + texts.sum::<usize>()
    }

    /// The facts of a request, none behind a gap, with the events among them. The log sends again what was not
    /// acknowledged, so an event that a fact carries is the oldest that the node still has.
    pub(crate) fn of_facts(
        plane: &ControlPlane,
        caller: &CallingNode,
        incarnation: &Incarnation,
        facts: Vec<Fact>,
    ) -> HeardEvents {
        let of = |fact: &Fact| match &fact.body {
            FactBody::Rollout(event) => believed(plane, caller, incarnation, event, fact.at),
            _ => None,
        };
        let events = facts.iter().filter_map(of).collect();
        HeardEvents { node: caller.id.clone(), incarnation: incarnation.clone(), facts, events }
    }
}

/// An event whose evidence holds. What a probe found counts only under the host's own key; a forged result is left out,
/// and its number counts as lost once the next one comes.
pub(crate) fn believed(
    plane: &ControlPlane,
    caller: &CallingNode,
    incarnation: &Incarnation,
    fact: &RolloutFact,
    at: Timestamp,
) -> Option<RolloutEvent> {
    if let RolloutEventBody::ProbeResult { probe, outcome, boot } = &fact.event {
        let evidence = ProbeEvidence {
            node: caller.id.clone(),
            incarnation: incarnation.clone(),
            rollout: fact.rollout.clone(),
            event_seq: fact.event_seq,
            boot: boot.clone(),
            probe: probe.clone(),
            outcome: *outcome,
            at,
        };
        let key = *caller.slot.lock().node.key;
        if let Err(error) = evidence.verify(fact.signature.as_ref(), &key) {
            plane.metrics.rollout_event("forged");
            let hostname = caller.slot.names().1;
            tracing::warn!(node = %caller.id, %hostname, rollout = %fact.rollout, event = fact.event_seq, %error,
                "an event of a rollout is not taken");
            return None;
        }
    }
    Some(RolloutEvent {
        node: caller.id.clone(),
        incarnation: incarnation.clone(),
        rollout: fact.rollout.clone(),
        seq: fact.event_seq,
        oldest: fact.event_seq,
        body: fact.event.clone(),
    })
}
