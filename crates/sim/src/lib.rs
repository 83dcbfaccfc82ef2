//! A fleet in one process: the real steps of node and plane over an in-memory store, disk
//! and network, in virtual time, with injected faults.
//!
//! All chance comes from one seed, so a run that shows a fault is replayed to the letter.
//! [`run`] is one simulation of a fleet: a while with faults, then a while without, by whose end
//! everything must be well. What must hold meanwhile is looked at as it happens: no node
//! adopts what was not signed for it or leads it back, nothing is converged on before it is
//! durable, nothing is acknowledged that is not stored, no fact is stored twice.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a simulation that cannot go on has to stop")]

mod chance;
mod control;
mod disk;
mod faults;
mod hostile;
mod machine;
mod promises;
mod publisher;
mod world;

pub use world::{Report, run};
