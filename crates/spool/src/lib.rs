//! The node's durable state: atomic files, a log of facts, keyed journals, blobs, the
//! objects that are synchronized.
//!
//! ```text
//! FactLog   Journal   ObjectLog     indexes: what counts, and where it is
//!     \        |        /
//!      SegmentedLog                 batches of records, one fsync each      StateFile   BlobStore
//!            \________________________  Disk  _________________________________/_________/
//! ```
//!
//! Everything goes through a [`Disk`], so a test can stop the process or fail the disk at
//! each single point. Invariants: what a call returned `Ok` for is there after `kill -9`
//! and after power loss; what it returned an error for is not, or is there whole; damaged
//! files are set aside and named to the caller, never a reason not to start (LIF-10); what a
//! newer version wrote is read, or refused unharmed (LIF-4).

pub mod atomic;
pub mod blobs;
mod disk;
mod error;
pub mod journal;
pub mod lock;
pub mod log;
pub mod objects;
mod segmented;

/// The format that this version writes. A later version that writes something that this one
/// cannot read has a higher one (docs/durable-formats.md).
pub const FORMAT: u32 = 1;
/// The oldest format whose readers understand what this version writes.
pub const READABLE_FROM: u32 = 1;

pub use atomic::{Loaded, PeekedFile, StateFile};
pub use blobs::BlobStore;
pub use disk::{Disk, DiskOp, FaultAction, Faults, Point};
pub use error::{Result, SpoolError};
pub use journal::Journal;
pub use lock::{DirectoryTurn, StateLock};
pub use log::{FactLog, LogLimits};
pub use objects::ObjectLog;
