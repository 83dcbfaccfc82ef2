//! The work machine's inputs and effects, as values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Timestamp;
use model::work::{ActionEvent, ActionFact, ActionOutcome, Order, OutputStream};
use serde::{Deserialize, Serialize};

use super::OrderError;

/// What time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkTime {
    /// The host's clock: for waits.
    pub now: Timestamp,
    /// The time that trust goes by, which a host's clock set back does not set back: for
    /// what expires.
    pub trusted: Timestamp,
}

/// What is durable of an action, besides its facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionMark {
    /// How far it came.
    pub stage: ActionStage,
    /// When its order expires: until then the mark is kept, whether or not the object is.
    pub expires: Timestamp,
}

/// How far an action came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionStage {
    /// It may have been executed.
    Begun,
    /// Its terminal fact is in the log, or was.
    Done,
}

/// What the shell found at the start.
#[derive(Clone, Debug, Default)]
pub struct RestoredWork {
    /// The marks.
    pub marks: BTreeMap<String, ActionMark>,
    /// Actions whose `started` lies in the log.
    pub begun: BTreeSet<String>,
    /// Actions whose terminal fact lies in the log.
    pub ended: BTreeSet<String>,
    /// The number of the release held; 0 when none is.
    pub held_seq: u64,
    /// The Action objects of the replica, in the order of their revisions.
    pub orders: Vec<(String, Result<Order, OrderError>)>,
}

impl RestoredWork {
    /// Some marks are lost, and any order may have been one of theirs: each that has none is marked as
    /// begun, and so becomes unknown and is never run. To be durable before the loss is forgotten.
    pub fn presume_begun(&self, marks: &mut BTreeMap<String, ActionMark>, at: WorkTime) {
        let readable = self.orders.iter().filter_map(|(id, order)| Some((id, order.as_ref().ok()?)));
        for (id, order) in readable {
            let expires = super::machine::bounded(order.expires, at);
            marks.entry(id.clone()).or_insert(ActionMark { stage: ActionStage::Begun, expires });
        }
    }

    /// Notices a fact of the log that was not acknowledged yet.
    pub fn notice(&mut self, fact: &ActionFact) {
        match &fact.event {
            ActionEvent::Started => drop(self.begun.insert(fact.id.clone())),
            ActionEvent::Ended { .. } => drop(self.ended.insert(fact.id.clone())),
            ActionEvent::Output { .. } | ActionEvent::Unknown => {}
        }
    }
}

/// What may be done, by the word of a held release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkPermit<P> {
    /// What the shell needs to do it.
    pub permitted: P,
    /// The longest time that the release gives it, in seconds.
    pub timeout_secs: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum WorkInput {
    /// Time passed.
    Tick,
    /// An Action object came or changed; [`super::order_of`] its content.
    Put {
        /// Its id: the object's name.
        id: String,
        /// Its content.
        order: Result<Order, OrderError>,
    },
    /// An Action object is gone.
    Removed {
        /// Its id.
        id: String,
    },
    /// Another release is held: what waits is judged anew.
    Delegations {
        /// Its number.
        seq: u64,
    },
    /// [`WorkEffect::Begin`] is durable.
    Begun {
        /// The action.
        id: String,
    },
    /// [`WorkEffect::Begin`] could not be made durable.
    NotBegun {
        /// The action.
        id: String,
        /// Why, for people.
        message: String,
    },
    /// It printed something.
    Output {
        /// The action.
        id: String,
        /// Where.
        stream: OutputStream,
        /// What.
        bytes: Vec<u8>,
    },
    /// A fact of output could not be kept.
    OutputLost {
        /// The action.
        id: String,
        /// The stream.
        stream: OutputStream,
        /// How many bytes it had.
        bytes: u64,
    },
    /// What was executed is over.
    Ended {
        /// The action.
        id: String,
        /// How it ended.
        outcome: ActionOutcome,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// [`WorkEffect::End`] is durable.
    Kept {
        /// The action.
        id: String,
    },
    /// [`WorkEffect::End`] could not be made durable; it is tried again.
    NotKept {
        /// The action.
        id: String,
    },
    /// The agent stops.
    Stopping,
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkEffect<P> {
    /// Make the mark durable, then the fact `started`; then [`WorkInput::Begun`], or
    /// [`WorkInput::NotBegun`] when either fails.
    Begin {
        /// The action.
        id: String,
        /// Its mark.
        mark: ActionMark,
    },
    /// Do it: [`WorkInput::Output`] as it comes, then [`WorkInput::Ended`] once. Comes before all other
    /// effects of its input, and is done under the release that it was judged by.
    Execute {
        /// The action.
        id: String,
        /// What.
        permitted: P,
        /// The longest time for it; then it is ended and [`ActionOutcome::TimedOut`].
        timeout: Duration,
    },
    /// End what runs; its [`WorkInput::Ended`] follows, with [`ActionOutcome::Cancelled`] unless it
    /// was over already.
    Kill {
        /// The action.
        id: String,
    },
    /// Check in soon: work waits for a newer release than the one held.
    CheckIn,
    /// Append a fact of output; [`WorkInput::OutputLost`] when that fails.
    Say(ActionFact),
    /// Append the terminal fact, then make the mark durable, if there is one; then
    /// [`WorkInput::Kept`], or [`WorkInput::NotKept`] when either fails.
    End {
        /// The terminal fact.
        fact: ActionFact,
        /// The mark.
        mark: Option<ActionMark>,
    },
    /// Make a mark durable. Nothing depends on it.
    Remember {
        /// The action.
        id: String,
        /// Its mark.
        mark: ActionMark,
    },
    /// Take a mark away.
    Forget {
        /// The action.
        id: String,
    },
    /// Nothing runs any more and nothing begins: the agent may stop. Said once.
    Drained,
}
