//! [`WaitingRelease`]: a release of a rollout that is here and begins once it is asked for.

use std::sync::Arc;

use model::Digest;
use model::rollout::{RolloutDispatch, RolloutId};
use rollout::{Placement, RolloutRules, probes_of};
use trust::Header;
use trust::rollout_terms::RolloutTerms;

use super::{Node, ReleaseChange};
use crate::io::NodeEffect;
use crate::rollout_part::PreparedRelease;
use crate::state::Adoption;

/// A release that can be begun, once that is asked.
#[derive(Debug)]
pub(super) struct WaitingRelease {
    pub(super) adoption: Adoption,
    pub(super) names: RolloutNames,
    pub(super) prepared: Option<PreparedWave>,
    /// The answer spoke of the rollout of a later release, and pointed to this one until that begins: nobody asks for it.
    pub(super) is_before: bool,
}

#[derive(Debug)]
pub(super) struct PreparedWave {
    pub(super) rules: RolloutRules,
    pub(super) placement: Placement,
    pub(super) probes: activation::ProbeTopology,
    /// Why the host returned from it before: it is begun where that is asked, and refused then, and never adopted at once.
    pub(super) quarantined: Option<activation::ReturnCause>,
}

impl Node {
    /// A content is held back no more: what waits is read anew where it was.
    pub(super) fn on_quarantine_lifted(&mut self, effects: &mut Vec<NodeEffect>) {
        let ReleaseChange::Waiting(waiting) = &mut self.change else { return };
        if waiting.prepared.take_if(|wave| wave.quarantined.is_some()).is_some() {
            effects.push(NodeEffect::Prepare(Box::new(waiting.adoption.clone())));
        }
    }
}

/// What a rollout may be called.
#[derive(Debug)]
pub(super) struct RolloutNames {
    seq: u64,
    by_commit: RolloutId,
    by_header: RolloutId,
}

impl RolloutNames {
    pub(super) fn of(header: &Header, digest: &Digest) -> RolloutNames {
        let id = |label| RolloutId::of_release(&header.channel, label, digest, |_| false);
        RolloutNames { seq: header.seq, by_commit: id(header.label.as_deref()), by_header: id(None) }
    }

    pub(super) fn has(&self, dispatch: &RolloutDispatch) -> bool {
        self.seq == dispatch.seq && [&self.by_commit, &self.by_header].contains(&&dispatch.rollout)
    }
}

/// The wave of the node, and its probes.
pub(super) fn wave_of(
    terms: Arc<RolloutTerms>,
    hostname: &model::Hostname,
    prepared: PreparedRelease,
) -> Result<PreparedWave, String> {
    let PreparedRelease { policy, declared, quarantined } = prepared;
    let probes = probes_of(&policy, hostname, &declared);
    let probes = probes.map_err(|error| format!("its probes cannot be gone by: {error}"))?;
    let rules = RolloutRules::new(terms);
    let placement = rules.place(hostname, &declared);
    Ok(PreparedWave { rules, placement, probes, quarantined })
}
