//! Replication of sets between control plane and agent.
//!
//! There are two sides, *principal* (the control plane) and *agent*, and three modes: *managed* (the
//! principal's objects are the truth), *autonomous* (the agent's are) and *off* (actions alone). Each
//! side authors one set for the other, its [`feed::Feed`], and keeps a [`replica::Replica`] of the
//! other's. [`frame::Frame`]s travel between them on a [`link::Link`], over any transport.

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
pub use durable::{Content, LoadedChange, Saved, SavedReplica, Side, Write};
pub use feed::{Change, Feed, SavedFeed};
pub use frame::Frame;
pub use link::{Input, Link, LinkConfig, Output};
pub use mode::{Mode, Role};
pub use replica::Replica;
pub use totals::Totals;
