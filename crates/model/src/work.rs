//! Work: actions that the control plane asks for, the delegations of a release that allow
//! them, and what becomes of them (OPS-2, LIF-5). Operations on objects are allowed by the
//! release's leave to synchronize instead (SYN-5).
//!
//! An action is an object of kind `Action` in the set that the control plane authors for a
//! node, under the action's id as name and uid. It stays there until the node's log holds its
//! terminal fact. Cancelling changes the object; nothing else does.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::replication::ObjectOperation;
use crate::{Kind, ObjectKey, SectionKey, Timestamp};

/// The most bytes of a command's output that are kept, both streams together.
pub const MAX_OUTPUT: u64 = 1024 * 1024;
/// The most bytes of output in one fact.
pub const MAX_OUTPUT_CHUNK: usize = 16 * 1024;
/// The longest time that an action may take, in seconds.
pub const MAX_TIMEOUT_SECS: u64 = 24 * 3600;
/// The most arguments of one command.
pub const MAX_ARGS: usize = 256;

/// The content of an object of kind `Delegation`: what the control plane may ask a node for.
/// Several count together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delegation {
    /// Commands that may be run as given: each a list of patterns, one an argument, the first
    /// for the program (an absolute path); `**` at the end stands for any further arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Vec<String>>,
    /// Named actions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub actions: BTreeMap<String, ActionSpec>,
    /// What may be asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<QuerySpec>,
    /// The longest time for any of it, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
}

/// An action by name: a command whose arguments have a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionSpec {
    /// The command; `{name}` as a whole argument stands for that argument's value.
    pub command: Vec<String>,
    /// The arguments: for each the pattern that its value must match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    /// The longest time, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
}

/// What may be asked of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum QuerySpec {
    /// Traits, observed now.
    Traits,
    /// The processes.
    Processes,
    /// What a file is and, up to the bound of output, its content: paths by pattern.
    File {
        /// Patterns of absolute paths.
        paths: Vec<String>,
    },
    /// Listening sockets.
    Listeners,
    /// Units, packages and the like that a trait names are in the traits; this is free disk
    /// space by mount.
    Disks,
}

/// The content of an object of kind `Action`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The task that it belongs to.
    pub task: String,
    /// What to do.
    pub work: Work,
    /// The longest time that it may take, in seconds.
    pub timeout_secs: u64,
    /// Not to be begun after this; what did not begin by then is reported as expired.
    pub expires: Timestamp,
    /// End it, if it runs; do not begin it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel: bool,
    /// The number of the release that the node is pointed to. A node that holds an older one, which
    /// does not allow the work, adopts this one before it refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<u64>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Work {
    /// Run a command.
    Command {
        /// The program and its arguments.
        argv: Vec<String>,
    },
    /// Run a named action.
    Action {
        /// Its name.
        name: String,
        /// Its arguments.
        #[serde(default)]
        args: BTreeMap<String, String>,
    },
    /// Ask something.
    Query {
        /// What: `traits`, `processes`, `file`, `listeners`, `disks`.
        what: String,
        /// Of which file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// Hand an operation to whoever owns an object on the node (SYN-2, SYN-5).
    Operation {
        /// What to do with it.
        operation: ObjectOperation,
        /// Which object.
        object: OperationTarget,
    },
}

/// The object that an operation is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationTarget {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl OperationTarget {
    /// The key of the object.
    pub fn key(&self) -> ObjectKey {
        let section = SectionKey { kind: Kind::new(&self.kind), namespace: self.namespace.as_str().into() };
        ObjectKey { section, name: self.name.as_str().into() }
    }
}

impl std::fmt::Display for OperationTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let namespace = if self.namespace.is_empty() { "_" } else { &self.namespace };
        write!(f, "{}/{namespace}/{}", self.kind, self.name)
    }
}

/// Why an action is refused: for programs, as the message beside it is for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// No release that counts delegates it.
    #[default]
    NotDelegated,
    /// The node has as many actions as it may have.
    TooMany,
    /// An operation on an object of a node that is not autonomous.
    NotAutonomous,
    /// The release does not allow the operation.
    OperationNotAllowed,
    /// The release does not synchronize objects of this kind.
    KindNotSynchronized,
    /// The object is not there.
    ObjectAbsent,
    /// Nothing was signed for the release held within its freshness: the node takes no actions.
    NotFresh,
    /// A reason that a newer version knows; the message says it.
    #[serde(other)]
    Unknown,
}

/// A refused action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRefusal {
    /// Why, for programs.
    pub code: RefusalCode,
    /// Why, for people.
    pub message: String,
}

impl From<ActionRefusal> for ActionOutcome {
    fn from(refusal: ActionRefusal) -> ActionOutcome {
        ActionOutcome::Refused { code: refusal.code, message: refusal.message }
    }
}

/// What became of an action: facts in the node's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionFact {
    /// The action's id.
    pub id: String,
    /// What happened.
    pub event: ActionEvent,
}

/// One thing that happened to an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum ActionEvent {
    /// It begins; durable before the command is.
    Started,
    /// Output, in order.
    Output {
        /// The stream.
        stream: OutputStream,
        /// Bytes as text; what is no UTF-8 is replaced.
        text: String,
        /// Bytes left out before this, over the bound.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropped: u64,
    },
    /// It is over.
    Ended {
        /// How.
        outcome: ActionOutcome,
        /// How long it took, in milliseconds.
        #[serde(rename = "durationMs")]
        duration_ms: u64,
    },
    /// Something that a newer agent says of it.
    #[serde(other)]
    Unknown,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Which stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How an action ended: its terminal fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum ActionOutcome {
    /// The command exited with this code; 0 is success.
    Exited {
        /// The code.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// It took too long, and was ended.
    TimedOut,
    /// An operator ended it, or a stop of the agent did.
    Cancelled,
    /// The release does not allow it, or the node cannot take it.
    Refused {
        /// Why, for programs.
        #[serde(default)]
        code: RefusalCode,
        /// Why, for people.
        message: String,
    },
    /// It could not begin.
    Failed {
        /// Why.
        message: String,
    },
    /// It did not begin in time.
    Expired,
    /// The answer of a query, as JSON.
    Answered {
        /// The answer.
        result: serde_json::Value,
    },
    /// The owner of the object has the operation.
    HandedOver,
    /// It was begun, and what became of it is not known: the agent died in between. It is
    /// never run again. Also an end that a newer agent has a word for.
    #[serde(other)]
    Unknown,
}

impl std::fmt::Display for ActionOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ActionOutcome::Exited { code } => write!(f, "exit {code}"),
            ActionOutcome::Signalled { signal } => write!(f, "ended by signal {signal}"),
            ActionOutcome::TimedOut => f.write_str("took too long"),
            ActionOutcome::Cancelled => f.write_str("cancelled"),
            ActionOutcome::Refused { message, .. } => write!(f, "refused: {message}"),
            ActionOutcome::Failed { message } => write!(f, "failed: {message}"),
            ActionOutcome::Expired => f.write_str("did not begin in time"),
            ActionOutcome::Unknown => f.write_str("unknown: the agent died while it ran"),
            ActionOutcome::Answered { .. } => f.write_str("answered"),
            ActionOutcome::HandedOver => f.write_str("handed over"),
        }
    }
}

impl std::fmt::Display for ActionEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ActionEvent::Started => f.write_str("started"),
            ActionEvent::Output { text, .. } => write!(f, "{} bytes of output", text.len()),
            ActionEvent::Ended { outcome, .. } => outcome.fmt(f),
            ActionEvent::Unknown => f.write_str("something that only a newer version can read"),
        }
    }
}

impl ActionOutcome {
    /// It is what was asked for.
    pub fn is_success(&self) -> bool {
        matches!(
            self,
            ActionOutcome::Exited { code: 0 } | ActionOutcome::Answered { .. } | ActionOutcome::HandedOver
        )
    }
}
