//! Durable state of the control plane: [`Store`] has one method for each domain operation.
//!
//! It keeps everything in one SQLite file. Another database has the same methods, and passes the
//! same `tests/conformance`. Invariants: nothing is acknowledged that is not durable; a fact is
//! accepted once by `(node, incarnation, seq)`; whoever has a chunk has everything below it. A database that
//! went back to what it was before begins another incarnation. [`backup`] copies one that is in use.

#[cfg(test)]
extern crate self as store;

pub mod audit;
mod closure;
mod enrollment;
mod error;
#[cfg(test)]
#[path = "../tests/conformance/fixture.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "shared with tests")]
mod fixture;
mod joining;
mod log;
mod objects;
mod operators;
mod record;
mod rollouts;
pub mod sqlite;
mod tasks;

pub use error::{EnrollError, PutError, ReleaseCommitError, Result, StoreError};
pub use joining::{
    FailedJoin, FailedJoinRecord, JoinFailureKind, ListVersions, MAX_FAILED_JOINS, MAX_REPORTS_OF_TOKEN,
    PutListError, ReportJoinError, ReportingToken, StoredList,
};
pub use objects::{ObjectFilter, ObjectPosition, ObjectRecord, SyncHead, SyncProgress};
pub use operators::{CredentialKind, OperatorCredential, OperatorRecord, OperatorRole};
pub use record::{
    Accepted, ChannelHead, DatabaseIncarnation, Enrolled, FACT_BYTES, FactRecord, FleetMeta, GroupUse,
    Health, IncarnationCause, JoinAdmission, KeptRefusal, KnownPrefix, NODE_FACT_BYTES, NewNode, NodeRecord,
    Pruned, Release, RenewedCertificate, Retention, RunFilter, RunRecord, TokenUse, Touch,
};
pub use rollouts::{
    CommitRolloutsError, FactBatch, KeptRollout, MAX_PRUNED_ROLLOUTS, RolloutWrite, StoredMembers,
};
pub use sqlite::{Store, backup};
pub use tasks::{
    MAX_OPEN_TASKS, MAX_TARGET_STATE, MAX_TARGETS_IN_PUT, MAX_TASK_DOCUMENT, MAX_TASK_TEXT, TaskKind,
    TaskNode, TaskRecord,
};

/// The most rows that one listing returns, whatever limit is asked for.
pub const MAX_LISTED: usize = 1000;
/// The most chunks in one put.
pub const MAX_CHUNKS_IN_PUT: usize = 20_000;
/// The largest stored form of one chunk, in bytes.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;
/// The most bytes of contents in one put: one largest content and some.
pub const MAX_PUT_BYTES: u64 = model::object::MAX_BLOB + 16 * 1024 * 1024;
/// The most digests that one question for missing ones may name.
pub const MAX_ASKED: usize = 100_000;
/// The most objects that one write of synchronization changes.
pub const MAX_CHANGES_IN_WRITE: usize = 100_000;
/// The most bytes of contents in one write of synchronization.
pub const MAX_WRITE_BYTES: u64 = 128 * 1024 * 1024;
/// The most contents of objects that one question names.
pub const MAX_CONTENTS_ASKED: usize = 10_000;
/// How long a burned nonce is kept after its token has expired: far beyond any clock
/// difference, so that an expired token is refused as expired before it is forgotten.
pub const NONCE_KEPT: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 3600);
