//! The resource types over a host, and traits.
//!
//! [`Kinds`] looks, asks [`converge::kinds`] what differs, and does it; [`traits`]
//! observes what the host is; [`query`] answers what an operator asks. Nothing is decided here: which resources there are, in
//! which order and under which conditions they come, is `converge`'s.
//!
//! Invariants: a check writes nothing; a check of what is already right costs one look
//! and no write; an apply looks again before it writes, so that nothing is overwritten
//! that was not seen.

mod accounts;
mod archive;
mod blobs;
pub mod clock;
pub mod custom;
mod directory;
mod download;
mod exec;
mod file;
mod group;
mod hanging;
mod host_entry;
mod hostname;
mod image;
mod kinds;
mod line;
mod mount;
mod nixos;
mod package;
mod part;
pub(crate) mod provider;
pub mod query;
mod repository;
mod ssh_key;
mod state;
mod sudo;
mod switch;
mod symlink;
mod sysctl;
mod tools;
mod touched;
pub mod traits;
mod tree;
mod undo;
mod unit;
mod unit_links;
mod user;

pub use blobs::{Blobs, KeepBytesError};
pub use kinds::{Kinds, PROBE_TIMEOUT, ROOTED};
pub use nixos::ClosureRelay;
pub use package::PackageTools;
pub use provider::Notification;
pub use touched::{TouchedFile, TouchedFiles};
pub use unit_links::link_folders;
