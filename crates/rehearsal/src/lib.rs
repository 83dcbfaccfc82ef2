//! A rollout played beforehand (ROL-11): what a publish would come to, were it like this.
//!
//! ```text
//! Rehearsal (terms, declared nodes, shares of faults, seed, begin)
//!   -> rehearse: rollout::Rollouts decides, activation::Activation goes on at each host, node::RolloutActivation tells, virtual time
//!     -> RehearsalReport: who changes when, what stops it, how long it takes
//! ```
//!
//! The decisions are the real ones: nothing here opens a wave, counts a budget, judges a gate, confirms or returns. What
//! is made up are the hosts ([`NodeFault`]): how long a switch takes, whose probes fail, whom nobody reaches.
//!
//! Pure: time, seed and faults are arguments. The same rehearsal gives the same report, byte for byte: all that a host
//! draws follows from the seed and its hostname, so that another host more changes no other one's fate.
//!
//! What a rehearsal cannot know: what nodes hold now (every node is taken to change), the rollouts of other channels that
//! share a budget or go first, and what operators do.

mod check;
mod faults;
mod gather;
mod host;
mod nature;
mod report;
mod stage;
mod text;
mod timeline;
mod watch;

pub use check::{MAX_REHEARSED_NODES, RehearseError};
pub use faults::{FaultShare, FaultShares, NodeFault, ParseFaultShareError, TooManyFaultsError};
pub use report::{
    BudgetReport, FaultCounts, InFlightPeak, NodeForecast, RehearsalOutcome, RehearsalReport, StopReport,
    WaitingNodes, WaveReport,
};

use std::sync::Arc;

use activation::ProbeTopology;
use lang::Value;
use model::{Channel, Hostname, Timestamp};
use trust::RolloutTerms;

/// What is rehearsed.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The channel.
    pub channel: Channel,
    /// The terms of the release, with the times that they have when it is signed at `begins`.
    pub terms: Arc<RolloutTerms>,
    /// The nodes of the channel.
    pub nodes: Vec<RehearsedNode>,
    /// Of how many nodes what goes wrong.
    pub faults: FaultShares,
    /// What draws them.
    pub seed: u64,
    /// When the release is published.
    pub begins: Timestamp,
}

/// A node as the release declares it.
#[derive(Clone, Debug)]
pub struct RehearsedNode {
    /// Its hostname.
    pub hostname: Hostname,
    /// What the release declares of it: `groups`, a list of names, and `labels`, a map of texts.
    pub declared: Value,
    /// What says that a generation of it works.
    pub probes: ProbeTopology,
}

/// Plays a rollout to its end, in virtual time, or until nothing happens any more.
///
/// # Errors
/// What of the rehearsal cannot be gone by; all of it is judged before anything is played.
pub fn rehearse(rehearsal: &Rehearsal) -> Result<RehearsalReport, RehearseError> {
    check::check(rehearsal)?;
    stage::play(rehearsal)
}
