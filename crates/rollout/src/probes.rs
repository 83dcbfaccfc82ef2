//! [`probes_of`]: which probes of its channel are a node's (ROL-7).
//!
//! The same function of the signed policy and of what the release declares of the node, wherever it is asked: on the
//! node, in the fleet repo and on the control plane.

use lang::selector::SelectorError;
use lang::{Selector, Value};
use model::Hostname;
use model::health_probe::{DeclareProbesError, MAX_CHANNEL_PROBES, ProbeTopology};
use model::policy::Policy;

use crate::placement::takes;

/// Why the probes of a node cannot be gone by. Nothing is switched to then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectProbesError {
    /// There are too many in the channel.
    #[error("the channel declares {0} probes; there are at most {MAX_CHANNEL_PROBES}")]
    TooMany(usize),
    /// The nodes of a probe.
    #[error("the nodes of the probe {probe} cannot be read: {source}")]
    Selector {
        /// The probe.
        probe: String,
        /// Why not.
        source: SelectorError,
    },
    /// The probes of this node.
    #[error(transparent)]
    Declare(#[from] DeclareProbesError),
}

/// The probes of a node, by its hostname and by what the release declares of it, as
/// [`RolloutRules::place`](crate::RolloutRules::place) takes it.
///
/// # Errors
/// What of them cannot be read, or is out of bounds.
pub fn probes_of(
    policy: &Policy,
    hostname: &Hostname,
    declared: &Value,
) -> Result<ProbeTopology, SelectProbesError> {
    if policy.probes.len() > MAX_CHANNEL_PROBES {
        return Err(SelectProbesError::TooMany(policy.probes.len()));
    }
    let mut own = Vec::new();
    for channel_probe in &policy.probes {
        let probe = &channel_probe.probe;
        let selector = channel_probe.of.as_deref().map(Selector::parse).transpose();
        let selector =
            selector.map_err(|source| SelectProbesError::Selector { probe: probe.name.clone(), source })?;
        if selector.is_none_or(|selector| takes(&selector, hostname, declared)) {
            own.push(probe.clone());
        }
    }
    Ok(ProbeTopology::declare(own)?)
}
