//! What Muster speaks of: ids, objects, canonical bytes, sets, deltas, logs, statuses.
//!
//! Invariants: a [`Digest`] is always SHA-256; a set's shape and root are a function of
//! its objects alone; nothing here reads a clock, a file or a source of randomness.

pub mod canonical;
pub mod capabilities;
pub mod certificate;
pub mod chunk;
pub mod collect;
pub mod condition;
pub mod contention;
pub mod delta;
pub mod descent;
pub mod digest;
pub mod exchange;
pub mod health_probe;
pub mod id;
pub mod instance;
pub mod invocation;
pub mod join;
pub mod lines;
pub mod log;
pub mod lookup;
pub mod node_conditions;
pub mod object;
pub mod path;
pub mod policy;
pub mod replication;
pub mod report;
pub mod rollout;
pub mod runs_heard;
mod schema;
pub mod selection;
pub mod set;
pub mod share;
pub mod sort;
pub mod status;
pub mod summary;
pub mod tags;
pub mod text;
pub mod time;
pub mod trie;
pub mod unadopted;
pub mod window;
pub mod work;

pub use capabilities::{AgentCapabilities, ReleaseVersion};
pub use certificate::{CertificateState, CertificateValidity};
pub use contention::{Contention, Culprit, CulpritFinding, UnknownCulprit};
pub use delta::{Delta, Edit, Fields};
pub use descent::{Descent, DescentError};
pub use digest::Digest;
pub use id::{Channel, FleetId, Hostname, Incarnation, NodeId};
pub use instance::AgentInstance;
pub use join::{JoinDecision, JoinState, KeyConfirmation, PendingJoin};
pub use node_conditions::NodeConditions;
pub use object::{Kind, ObjectKey, SectionKey, Stub};
pub use path::{PathOwnership, PathState};
pub use report::{
    Action, FailureCause, FailureCode, FailureKey, FailureNote, Pause, ResourceReport, RunCounts, RunReport,
    UnmadeRun, UnmadeRunCause,
};
pub use runs_heard::{OngoingRun, RunsHeard, SuccessfulRun};
pub use selection::{Proof, Selection, SelectionEntry};
pub use set::{ObjectSet, SetDelta};
pub use summary::RunsSummary;
pub use time::Timestamp;
pub use trie::{Trie, TrieNode};
