//! [`SyncCondition`]: how synchronization of a node stands, and what that rests on.
//!
//! ```text
//! link:  SetCondition of each set --+
//!        Evidence of a comparison --+--> SyncCause --> SyncCondition {cause, since}
//! plane: mode, contact, restart   --+                     reason()   a stable code
//!                                                         message()  words for people
//!                                                         next_step() what to do
//! ```
//!
//! The link, the control plane's summary of a node, its store, its API, the metrics, the CLI and the
//! agent's own status hold this one type; each text of it is made here, and nothing reads a text
//! back.
//!
//! Invariants: [`SyncCause::InSync`] carries the comparison that it rests on (CNV-3), and that
//! comparison names the instance of the control plane that took part in it. Every cause has a reason
//! code that `muster help` explains; every cause that is not green has a next step.

mod difference;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::log::Cursor;

pub use difference::{Difference, MAX_MESSAGE, NodeProblem, Rejection, node_status_key};

/// Which way a set travels, and each object of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The set that the control plane authors for the node.
    Down,
    /// The set that the node authors; the control plane has a copy that nobody changes there.
    Up,
}

impl Direction {
    /// Who receives.
    pub fn receiver(self) -> &'static str {
        match self {
            Direction::Down => "the node",
            Direction::Up => "the control plane",
        }
    }

    /// Who authors.
    pub fn source(self) -> &'static str {
        match self {
            Direction::Down => "the control plane",
            Direction::Up => "the node",
        }
    }
}

/// How one set and its replica stand, as a link sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCondition {
    /// The link does not know yet where the other side is.
    Connecting,
    /// The replica has all changes that its source is known to have.
    InSync,
    /// So many changes are on their way; an upper bound.
    Behind(u64),
    /// A resync is under way, or waits for its turn.
    Comparing,
    /// They differ, and stay so without help.
    OutOfSync(Difference),
}

/// A comparison that found both sets equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// When, by the clock of the side that keeps this.
    pub at: Timestamp,
    /// The instance of the control plane (one run of its process) that took part.
    pub instance: String,
    /// The checkpoint of the control plane's feed up to which the node acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Cursor>,
    /// The checkpoint of the node's feed that was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Cursor>,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = |cursor: &Option<Cursor>| cursor.as_ref().map_or(0, |cursor| cursor.seq);
        write!(
            f,
            "compared at {}, revision {} down, {} up",
            self.at,
            revision(&self.down),
            revision(&self.up)
        )
    }
}

/// What changes that wait are waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A link is open: they are on their way.
    UnderWay,
    /// They go with the node's next contact.
    NextContact,
    /// The node did not call when it was to.
    NodeLate,
}

/// Why synchronization of a node stands as it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum SyncCause {
    /// The node's release synchronizes no objects.
    Off,
    /// Two agents use the node's identity (IDN-10).
    DuplicateIdentity,
    /// No link has compared the sets yet.
    NeverCompared,
    /// The sets were equal, and the control plane was started since; its data may have been
    /// restored (CNV-3).
    NotComparedSinceRestart {
        /// The comparison before.
        last: Evidence,
    },
    /// The last link ended while changes were on their way or sets were compared.
    Interrupted,
    /// The sets were equal, and the node did not call since when it was to.
    NodeLate {
        /// The last comparison.
        last: Evidence,
    },
    /// A link is open, and the sets are not compared yet.
    Connecting,
    /// Both sides compare what they have.
    Comparing,
    /// Changes are not there yet.
    Behind {
        /// So many of the control plane's; an upper bound.
        down: u64,
        /// So many of the node's, as far as known; an upper bound.
        up: u64,
        /// What they wait for.
        delivery: Delivery,
    },
    /// Both sets are equal on both sides.
    InSync(Evidence),
    /// The sets may be equal; where the node's objects live something is wrong.
    AtNode {
        /// What the node says.
        problem: NodeProblem,
    },
    /// A set and its replica differ, and stay so without help.
    OutOfSync {
        /// Which set.
        direction: Direction,
        /// In what.
        difference: Difference,
    },
}

/// The status of a condition, in Kubernetes' sense: whether the node is in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It is.
    True,
    /// It is not.
    False,
    /// That is not known.
    Unknown,
}

/// The few states that tables count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SyncState {
    /// It does not come right without an operator.
    OutOfSync,
    /// Changes are not there yet.
    Behind,
    /// Both sides compare.
    Comparing,
    /// There is no comparison that counts.
    Unknown,
    /// Equal, by a comparison.
    InSync,
    /// Nothing is synchronized.
    Off,
    /// A state that a newer version knows.
    #[serde(other)]
    Other,
}

impl SyncState {
    /// All that this version says, the worst first.
    pub const ALL: [SyncState; 6] = [
        SyncState::OutOfSync,
        SyncState::Behind,
        SyncState::Comparing,
        SyncState::Unknown,
        SyncState::InSync,
        SyncState::Off,
    ];
}

impl fmt::Display for SyncState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncState::OutOfSync => "out of sync",
            SyncState::Behind => "behind",
            SyncState::Comparing => "comparing",
            SyncState::Unknown => "unknown",
            SyncState::InSync => "in sync",
            SyncState::Off => "off",
            SyncState::Other => "of a newer version",
        })
    }
}

/// Who has to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// Nobody.
    None,
    /// It comes right by itself, or with the node's next contact.
    Wait,
    /// An operator.
    Act,
}

/// How synchronization of a node stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncCondition {
    /// Why.
    pub cause: SyncCause,
    /// Since when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl SyncCause {
    /// The codes of [`SyncCause::reason`]; `muster help` explains each.
    pub const REASONS: [&'static str; 20] = [
        "off",
        "duplicate-identity",
        "never-compared",
        "not-compared-since-restart",
        "interrupted",
        "node-late",
        "connecting",
        "comparing",
        "changes-under-way",
        "changes-wait-for-contact",
        "changes-wait-for-node",
        "in-sync",
        "objects-rejected",
        "held-otherwise",
        "deletions-unconfirmed",
        "no-room",
        "resync-without-effect",
        "folder-unusable",
        "deletions-held-back",
        "manifests-unreadable",
    ];

    /// What a link sees of both sets. In sync are only sets that were compared.
    pub fn of_link(down: SetCondition, up: SetCondition, compared: Option<Evidence>) -> SyncCause {
        use SetCondition::{Behind, Comparing, Connecting, InSync, OutOfSync};
        let differ = |direction, difference| SyncCause::OutOfSync { direction, difference };
        let behind = |down, up| SyncCause::Behind { down, up, delivery: Delivery::UnderWay };
        match (down, up) {
            (OutOfSync(difference), _) => differ(Direction::Down, difference),
            (_, OutOfSync(difference)) => differ(Direction::Up, difference),
            (Connecting, _) | (_, Connecting) => SyncCause::Connecting,
            (Comparing, _) | (_, Comparing) => SyncCause::Comparing,
            (Behind(down), Behind(up)) => behind(down, up),
            (Behind(down), InSync) => behind(down, 0),
            (InSync, Behind(up)) => behind(0, up),
            (InSync, InSync) => compared.map_or(SyncCause::Connecting, SyncCause::InSync),
        }
    }

    /// A stable code, one of [`SyncCause::REASONS`].
    pub fn reason(&self) -> &'static str {
        match self {
            SyncCause::Off => "off",
            SyncCause::DuplicateIdentity => "duplicate-identity",
            SyncCause::NeverCompared => "never-compared",
            SyncCause::NotComparedSinceRestart { .. } => "not-compared-since-restart",
            SyncCause::Interrupted => "interrupted",
            SyncCause::NodeLate { .. } => "node-late",
            SyncCause::Connecting => "connecting",
            SyncCause::Comparing => "comparing",
            SyncCause::Behind { delivery: Delivery::UnderWay, .. } => "changes-under-way",
            SyncCause::Behind { delivery: Delivery::NextContact, .. } => "changes-wait-for-contact",
            SyncCause::Behind { delivery: Delivery::NodeLate, .. } => "changes-wait-for-node",
            SyncCause::InSync(_) => "in-sync",
            SyncCause::AtNode { problem } => problem.reason(),
            SyncCause::OutOfSync { difference, .. } => match difference {
                Difference::Rejected { .. } => "objects-rejected",
                Difference::HeldOtherwise { .. } => "held-otherwise",
                Difference::DeletionsUnconfirmed { .. } => "deletions-unconfirmed",
                Difference::NoRoom { .. } => "no-room",
                Difference::ResyncWithoutEffect => "resync-without-effect",
            },
        }
    }

    /// The state that tables and metrics count it under.
    pub fn state(&self) -> SyncState {
        match self {
            SyncCause::Off => SyncState::Off,
            SyncCause::NeverCompared
            | SyncCause::NotComparedSinceRestart { .. }
            | SyncCause::Interrupted
            | SyncCause::NodeLate { .. }
            | SyncCause::Connecting => SyncState::Unknown,
            SyncCause::Comparing => SyncState::Comparing,
            SyncCause::Behind { .. } => SyncState::Behind,
            SyncCause::InSync(_) => SyncState::InSync,
            SyncCause::DuplicateIdentity | SyncCause::AtNode { .. } | SyncCause::OutOfSync { .. } => {
                SyncState::OutOfSync
            }
        }
    }

    /// Whether the node is in sync.
    pub fn status(&self) -> ConditionStatus {
        match self.state() {
            SyncState::InSync => ConditionStatus::True,
            SyncState::OutOfSync | SyncState::Behind => ConditionStatus::False,
            SyncState::Comparing | SyncState::Unknown | SyncState::Off | SyncState::Other => {
                ConditionStatus::Unknown
            }
        }
    }

    /// Who has to do something.
    pub fn attention(&self) -> Attention {
        match self.state() {
            SyncState::InSync | SyncState::Off => Attention::None,
            SyncState::OutOfSync => Attention::Act,
            SyncState::Behind | SyncState::Comparing | SyncState::Unknown | SyncState::Other => {
                Attention::Wait
            }
        }
    }

    /// The comparison that it rests on, or that was the last.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            SyncCause::InSync(evidence) => Some(evidence),
            SyncCause::NotComparedSinceRestart { last } | SyncCause::NodeLate { last } => Some(last),
            _ => None,
        }
    }

    /// Why, in words.
    pub fn message(&self) -> String {
        match self {
            SyncCause::Off => "its release synchronizes no objects".to_owned(),
            SyncCause::DuplicateIdentity => "two agents use this node's identity".to_owned(),
            SyncCause::NeverCompared => "no link has compared the sets yet".to_owned(),
            SyncCause::NotComparedSinceRestart { last } => {
                format!("not compared since the control plane started; before, {last}")
            }
            SyncCause::Interrupted => "the last link ended before the sets were compared".to_owned(),
            SyncCause::NodeLate { last } => format!("the node did not call when it was to; {last}"),
            SyncCause::Connecting => "a link is open, and the sets are not compared yet".to_owned(),
            SyncCause::Comparing => "both sides compare what they have".to_owned(),
            SyncCause::Behind { down, up, delivery } => {
                let changes = changes(*down, *up);
                match delivery {
                    Delivery::UnderWay => format!("{changes}: on the way"),
                    Delivery::NextContact => format!("{changes}: for the node's next contact"),
                    Delivery::NodeLate => format!("{changes}, and the node did not call when it was to"),
                }
            }
            SyncCause::InSync(evidence) => evidence.to_string(),
            SyncCause::AtNode { problem } => problem.message(),
            SyncCause::OutOfSync { direction, difference } => difference.message(*direction),
        }
    }

    /// What to do, for an operator; `None` when it is green. `node` is the name that commands take.
    pub fn next_step(&self, node: &str) -> Option<String> {
        Some(match self {
            SyncCause::InSync(_) => return None,
            SyncCause::Off => "declare `sync` for it in the fleet repo and publish, if it should".to_owned(),
            SyncCause::DuplicateIdentity => {
                "stop one, or enroll the copy anew: `muster help duplicate-identity`".to_owned()
            }
            SyncCause::NeverCompared | SyncCause::Interrupted => format!("muster object resync {node}"),
            SyncCause::NotComparedSinceRestart { .. } => {
                format!("wait for its next contact, or `muster object resync {node}`")
            }
            SyncCause::NodeLate { .. } | SyncCause::Behind { delivery: Delivery::NodeLate, .. } => {
                format!("look at the host and its network; `muster node show {node}`")
            }
            SyncCause::Behind { delivery: Delivery::NextContact, .. } => {
                format!("wait, or `muster node run {node}`")
            }
            SyncCause::Connecting
            | SyncCause::Comparing
            | SyncCause::Behind { delivery: Delivery::UnderWay, .. } => "it ends by itself".to_owned(),
            SyncCause::AtNode { problem } => problem.next_step(node),
            SyncCause::OutOfSync { difference, .. } => difference.next_step(node),
        })
    }
}

/// So many changes, by direction.
fn changes(down: u64, up: u64) -> String {
    match (down, up) {
        (down, 0) => format!("{down} changes of the control plane"),
        (0, up) => format!("{up} changes of the node"),
        (down, up) => format!("{down} changes of the control plane, {up} of the node"),
    }
}

impl SyncCondition {
    /// The type of this condition, in Kubernetes' sense.
    pub const TYPE: &'static str = "InSync";

    /// A cause that has held since then.
    pub fn new(cause: SyncCause, since: Option<Timestamp>) -> SyncCondition {
        SyncCondition { cause, since }
    }
}
