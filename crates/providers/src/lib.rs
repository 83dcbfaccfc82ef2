//! The resource types over a host, and traits.
//!
//! [`Kinds`] looks, asks [`converge::kinds`] what differs, and does it; [`traits`]
//! observes what the host is; [`query`] answers what an operator asks. Nothing is decided here: which resources there are, in
//! which order and under which conditions they come, is `converge`'s.
//!
//! Invariants: a check writes nothing; a check of what is already right costs one look
//! and no write; an apply looks again before it writes, so that nothing is overwritten
//! that was not seen.

mod blobs;
pub mod custom;
mod directory;
mod download;
mod exec;
mod file;
mod host_entry;
mod kinds;
mod line;
mod part;
pub(crate) mod provider;
pub mod query;
mod state;
mod symlink;
pub mod traits;
mod tree;
mod undo;

pub use blobs::Blobs;
pub use kinds::{Kinds, ROOTED};
