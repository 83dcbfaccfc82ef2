//! Replication of sets between control plane and agent.
//!
//! Two sides, *principal* (the control plane) and *agent*; three modes, *managed* (the
//! principal's objects are the truth), *autonomous* (the agent's are) and *off* (actions alone). Each side authors
//! one set towards the other, its [`feed::Feed`], and keeps a replica of the other's. A
//! [`frame::Frame`] is what travels between them, whatever carries it.

pub mod admission;
pub mod backoff;
pub mod bounds;
pub mod cursor;
pub mod durable;
pub mod feed;
pub mod frame;
pub mod identity;
pub mod interop;
pub mod link;
pub mod mapping;
pub mod mode;
pub mod object;
pub mod refusal;
pub mod replica;
mod totals;

pub use cursor::{FeedCursor, PassPosition, Position};
pub use durable::{Content, Saved, SavedReplica, Side, Write};
pub use feed::{Change, Feed, SavedFeed};
pub use frame::Frame;
pub use link::{Input, Link, LinkConfig, Output};
pub use mode::{Mode, Role};
pub use replica::Replica;
pub use totals::Totals;
