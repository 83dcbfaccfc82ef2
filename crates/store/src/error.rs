//! Why an operation of the store failed.

use std::sync::Arc;

use model::{Digest, Hostname, NodeId};

/// The result of an operation that knows no refusals of its own.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Failures that every operation may have. Nothing was stored when one is returned,
/// [`StoreError::Closed`] excepted: then nothing is known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// More work waits than may wait; the caller should try again later.
    #[error("the store is busy: too much work is waiting")]
    Busy,
    /// There is no space left.
    #[error("the disk that holds the store is full")]
    Full,
    /// The file or its file system can only be read.
    #[error("the store is read-only")]
    ReadOnly,
    /// The stored bytes are not what was written.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
    /// The tree below a root is whole but not of the asked sort: its publisher made it so.
    #[error("what is stored under {root} cannot be read: {reason}")]
    Malformed {
        /// The root that was asked for.
        root: Digest,
        /// What is wrong.
        reason: String,
    },
    /// Another process has it open.
    #[error("the store is in use by another process")]
    InUse,
    /// It was written by a newer version, or by an altered one.
    #[error("the store's schema is not ours: {0}")]
    Schema(String),
    /// The store was shut down, or its thread died.
    #[error("the store is closed")]
    Closed,
    /// No active node has this id.
    #[error("no active node {0}")]
    UnknownNode(NodeId),
    /// No task has this id.
    #[error("no task {0}")]
    UnknownTask(String),
    /// A write of synchronization does not follow what is kept.
    #[error(transparent)]
    Unsound(sync::durable::UnsoundWrite),
    /// An argument is beyond its bound.
    #[error("{what}: {size} is over the limit of {limit}")]
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// How large it was.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The backend failed in a way that has no name here, or a value cannot be encoded.
    #[error("the store cannot {operation}")]
    Backend {
        /// What was attempted.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

/// Why a node was not enrolled. The token is not burned by any of these (ENR-2).
#[derive(Debug, Clone, thiserror::Error)]
pub enum EnrollError {
    /// The token was used, and not by a first try of the same node (ENR-7).
    #[error("the token was already used")]
    NonceUsed,
    /// Other lists count by now than those that the token was judged by.
    #[error("other lists count by now than those that the token was judged by")]
    ListsMoved,
    /// Another active node has this hostname (IDN-1).
    #[error("the hostname is taken by node {by}")]
    HostnameTaken {
        /// The node that has it.
        by: NodeId,
    },
    /// An active node of another hostname has this key (IDN-1).
    #[error("the key belongs to the active node {by}")]
    KeyTaken {
        /// The hostname of the node that has it.
        by: Hostname,
    },
    /// As many keys used the group token as may (ENR-9).
    #[error("the group token was used by {uses} host{}, as many as it is for", if *uses == 1 { "" } else { "s" })]
    GroupSpent {
        /// By how many.
        uses: u32,
    },
    /// No operator approved the key for this hostname, or no more.
    #[error("the key is not approved")]
    NotApproved,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why chunks or contents were not stored. None of the call is stored then.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PutError {
    /// A chunk cannot be what it claims.
    #[error("malformed chunk: {0}")]
    Malformed(String),
    /// Things that the chunks need are neither stored nor in the same call.
    #[error("{} chunks and {} contents below are missing", chunks.len(), contents.len())]
    NotComplete {
        /// Missing chunks, in order.
        chunks: Vec<Digest>,
        /// Missing contents, in order.
        contents: Vec<Digest>,
    },
    /// A chunk names a content with a size that it does not have.
    #[error("content {digest} has {stored} bytes, a chunk says {claimed}")]
    WrongSize {
        /// The content.
        digest: Digest,
        /// What the chunk says.
        claimed: u64,
        /// What is stored.
        stored: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a release was not committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReleaseCommitError {
    /// The newest release is not the one that the publisher built on, or the new number
    /// is not above it.
    #[error("the newest release is {}, not the one that this was built on",
        head.map_or("none".into(), |seq| seq.to_string()))]
    HeadMoved {
        /// The newest release.
        head: Option<u64>,
    },
    /// The selection is not stored, or is no selection.
    #[error("the selection is not complete: {} chunks are missing", missing.len())]
    NotComplete {
        /// What is missing.
        missing: Vec<Digest>,
    },
    /// A release without a header for any channel means nothing.
    #[error("the release has no header")]
    NoHeader,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
