//! [`RehearseError`]: what cannot be rehearsed.

use std::collections::BTreeSet;

use model::Hostname;
use rollout::PublishRefusal;
use trust::rollout_terms::TermsMistake;

use crate::Rehearsal;
use crate::faults::TooManyFaultsError;

/// The most nodes of one rehearsal.
pub const MAX_REHEARSED_NODES: usize = 100_000;

/// What cannot be rehearsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RehearseError {
    /// There is no node.
    #[error("there is no node to rehearse with")]
    NoNode,
    /// There are too many.
    #[error("{0} nodes are to be rehearsed, and at most {MAX_REHEARSED_NODES} can be")]
    TooManyNodes(usize),
    /// A node is there twice.
    #[error("node {0} is there twice")]
    NodeTwice(Hostname),
    /// The shares of faults.
    #[error(transparent)]
    Faults(#[from] TooManyFaultsError),
    /// The terms.
    #[error("the rollout's terms cannot be gone by")]
    Terms(#[source] TermsMistake),
    /// The rollout does not begin.
    #[error("the rollout does not begin")]
    Publish(#[source] PublishRefusal),
}

pub(crate) fn check(rehearsal: &Rehearsal) -> Result<(), RehearseError> {
    let nodes = &rehearsal.nodes;
    if nodes.is_empty() {
        return Err(RehearseError::NoNode);
    }
    if nodes.len() > MAX_REHEARSED_NODES {
        return Err(RehearseError::TooManyNodes(nodes.len()));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = nodes.iter().find(|node| !names.insert(&node.hostname)) {
        return Err(RehearseError::NodeTwice(twice.hostname.clone()));
    }
    rehearsal.faults.check()?;
    let mistakes = rehearsal.terms.mistakes(&rehearsal.channel, rehearsal.begins);
    mistakes.into_iter().next().map_or(Ok(()), |mistake| Err(RehearseError::Terms(mistake)))
}
