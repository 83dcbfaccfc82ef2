//! [`RolloutEvent`]: what a node says of its part in a rollout, and [`EventCursor`]: each event's effect once,
//! in the order of the node (ROL-5).

use model::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

pub use model::rollout::{
    DeclaredProbe, MAX_EVENT_TEXT, MAX_PROBE_NAME, MAX_PROBES, ProbeMode, ProbeOutcome, RolloutEventBody,
};

use crate::id::RolloutId;

/// The most incarnations of a node that are told apart within one rollout.
pub const MAX_INCARNATIONS: usize = 8;
/// One event. The shell hands it over once it knows that the node itself says so: the connection's key or
/// the signed request, and the host key's signature over a probe's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutEvent {
    /// The node.
    pub node: NodeId,
    /// Its log.
    pub incarnation: Incarnation,
    /// The rollout.
    pub rollout: RolloutId,
    /// Its number among the node's events of this rollout; the first one is 1.
    pub seq: u64,
    /// The lowest number that the node still has and can send again.
    pub oldest: u64,
    /// What happened.
    pub body: RolloutEventBody,
}

/// Up to where the events of a node were taken. They are taken strictly in order: a number beyond the next
/// is not taken and the node sends again from the next on, so one number says exactly which were.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventCursor {
    /// The node's log.
    pub incarnation: Option<Incarnation>,
    /// The highest number taken.
    pub taken: u64,
    /// Events that the node had no more when they were asked for.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Earlier logs of the node: nothing more of them is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Incarnation>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What the number of an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOrder {
    /// It is the next one.
    Next,
    /// It was taken.
    Duplicate,
    /// It is of a log that the node no longer writes.
    EarlierLog,
    /// Others before it are missing.
    Gap {
        /// The first of them.
        from: u64,
    },
}

impl EventCursor {
    /// Where an event is. `oldest` is the lowest number that the node still has.
    pub fn order(&self, incarnation: &Incarnation, seq: u64, oldest: u64) -> EventOrder {
        if self.earlier.contains(incarnation) {
            return EventOrder::EarlierLog;
        }
        let taken = if self.incarnation.as_ref() == Some(incarnation) { self.taken } else { 0 };
        let next = taken.saturating_add(1).max(oldest.min(seq));
        match seq {
            seq if seq <= taken => EventOrder::Duplicate,
            seq if seq == next => EventOrder::Next,
            _ => EventOrder::Gap { from: next },
        }
    }

    /// Takes an event that is [next](EventOrder::Next).
    pub fn take(&mut self, incarnation: &Incarnation, seq: u64) {
        if self.incarnation.as_ref() != Some(incarnation) {
            if let Some(before) = self.incarnation.replace(incarnation.clone()) {
                self.earlier.push(before);
                let over = self.earlier.len().saturating_sub(MAX_INCARNATIONS);
                self.earlier.drain(..over);
            }
            self.taken = 0;
        }
        self.lost = self.lost.saturating_add(seq.saturating_sub(self.taken.saturating_add(1)));
        self.taken = seq;
    }
}

/// Why an event changed nothing. It was taken all the same, once: the node says what is true then in a new
/// event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefusal {
    /// The node was not asked, or the request was withdrawn: it must not begin.
    #[error("the node is not asked to do this (any more)")]
    NotAsked,
    /// The node's state does not go with it.
    #[error("the node is {} here, and the event is of another state", .state.words())]
    OtherState {
        /// The state here.
        state: crate::state::NodeRolloutState,
    },
    /// It is of a release that the rollout is not of.
    #[error("the event is of release {got}, and the node is asked for release {want}")]
    OtherRelease {
        /// The event's.
        got: u64,
        /// The one asked for.
        want: u64,
    },
    /// It is of another boot than that in which the release was activated.
    #[error("the event is of another boot than the one in which the release was activated")]
    OtherBoot,
    /// Too many probes, or a name that is too long.
    #[error("a node declares at most {MAX_PROBES} probes, with names of at most {MAX_PROBE_NAME} bytes")]
    TooManyProbes,
    /// A declaration lacks a probe that the release makes enforcing.
    #[error("probe `{0}` is enforcing by the release, and the node does not declare it so")]
    LacksProbe(String),
    /// The result is of a probe that was not declared.
    #[error("probe `{0}` was not declared before its result")]
    UndeclaredProbe(String),
    /// The probes were not declared since the activation.
    #[error("no probes were declared")]
    NoTopology,
    /// An enforcing probe has not passed since the activation.
    #[error("probe `{0}` has not passed since the activation")]
    ProbeNotPassed(String),
    /// The soak is not over.
    #[error("the soak lasts {left_secs} s yet")]
    SoakNotOver {
        /// Seconds that are left.
        left_secs: u64,
    },
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAnswer {
    /// It took effect.
    Accepted,
    /// It had been taken before.
    Duplicate,
    /// It was taken and changed nothing.
    Refused(EventRefusal),
    /// It was not taken: the node sends its events again, from this number on.
    ReplayFrom(u64),
    /// There is no such rollout, or it is over since long.
    UnknownRollout,
    /// The node is not in that rollout.
    UnknownNode,
}
