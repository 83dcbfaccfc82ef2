//! The control plane's shell: node port, operator port, store, posture.
//!
//! Decides nothing about nodes: [`plane`] does. What is here authenticates, calls the
//! step, makes durable what it says, and answers.
//!
//! Tasks: one accept loop a port, one per connection; [`upkeep`] flushes contacts, renews
//! what is renewed by itself and prunes. Shared state is [`state::ControlPlane`]; heads
//! travel in a watch channel, so that a publish wakes those who wait.

mod answer;
pub mod api;
mod enroll;
mod index;
mod intake;
mod node_port;
mod operator_port;
pub mod posture;
mod releases;
mod reread;
mod run;
mod sets;
mod state;
mod upkeep;

pub use posture::{Credentials, EnrollInfo, Founded, Posture};
pub use run::{Config, Running, StartError, start};
