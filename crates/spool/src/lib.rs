//! The node's durable state: atomic files, a log of facts, a keyed journal, blobs, the
//! objects that are synchronized.
//!
//! Everything goes through a [`Disk`], so a test can stop the process or fail the disk at
//! each single point. Invariants: what a call returned `Ok` for is there after `kill -9`
//! and after power loss; what it returned an error for is not, or is there whole; damaged
//! files are set aside and named to the caller, never a reason not to start (LIF-10).

pub mod atomic;
pub mod blobs;
mod disk;
mod error;
mod frame;
pub mod journal;
pub mod lock;
pub mod log;
pub mod objects;
mod segment;

pub use atomic::{Loaded, Slot};
pub use blobs::BlobStore;
pub use disk::{Disk, FaultAction, Faults, Op, Point};
pub use error::{Result, SpoolError};
pub use journal::Journal;
pub use lock::StateLock;
pub use log::{FactLog, Limits};
pub use objects::ObjectLog;
