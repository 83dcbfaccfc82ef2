//! [`Quarantine`]: generations that this host returned from, and does not activate again by itself (ROL-12).

use serde::{Deserialize, Serialize};

use crate::boot::BootMoment;
use crate::generation::{Generation, GenerationId};
use crate::record::ReturnCause;

/// How many generations are remembered; the oldest is forgotten first.
pub const MAX_QUARANTINED: usize = 64;
/// A host may go down for a reason of its own: a generation from which it returned for that alone is in quarantine only
/// from the second time on.
pub const REBOOTS_BEFORE_QUARANTINE: u32 = 2;

/// A generation that this host returned from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinedGeneration {
    /// The generation.
    pub id: GenerationId,
    /// The number of the release that it was of.
    pub seq: u64,
    /// Why the host returned the last time.
    #[serde(flatten)]
    pub cause: ReturnCause,
    /// How often it did.
    pub returns: u32,
    /// When it did the last time; nothing where an earlier agent wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<BootMoment>,
    /// One more try is granted after so many returns: this many, and it may be tried.
    #[serde(default, skip_serializing_if = "is_none_granted")]
    pub granted_after: u32,
}

fn is_none_granted(granted_after: &u32) -> bool {
    *granted_after == 0
}

/// The generations that this host returned from, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quarantine(Vec<QuarantinedGeneration>);

impl Quarantine {
    /// Why a generation is not activated, if so.
    pub fn of(&self, id: GenerationId) -> Option<&QuarantinedGeneration> {
        let known = self.0.iter().find(|known| known.id == id)?;
        let is_granted = known.granted_after == known.returns;
        let may_be_tried = known.cause == ReturnCause::Rebooted && known.returns < REBOOTS_BEFORE_QUARANTINE;
        (!may_be_tried && !is_granted).then_some(known)
    }

    /// Those that are not activated, the oldest first.
    pub fn held(&self) -> impl Iterator<Item = &QuarantinedGeneration> {
        self.0.iter().filter(|known| self.of(known.id).is_some())
    }

    /// The administrator of the host lets what is held back of a release be tried again, as if this host had never
    /// returned from it; gives what was held. Two channels may have a release of the same number.
    pub fn lift_release(&mut self, release: u64) -> Vec<QuarantinedGeneration> {
        let lifted: Vec<QuarantinedGeneration> =
            self.held().filter(|known| known.seq == release).cloned().collect();
        lifted.iter().for_each(|known| self.lift(known.id));
        lifted
    }

    /// One more try of a generation, which is counted: another return from it, and it is in quarantine again.
    pub fn grant_try(&mut self, id: GenerationId) {
        if let Some(known) = self.0.iter_mut().find(|known| known.id == id) {
            known.granted_after = known.returns;
        }
    }

    /// All that are remembered, those that may be tried once more included.
    pub fn all(&self) -> &[QuarantinedGeneration] {
        &self.0
    }

    /// The host returned from a generation. An operator's halt, a release that followed and a disk without
    /// room blame nobody.
    pub(crate) fn note(&mut self, generation: &Generation, cause: &ReturnCause, now: &BootMoment) {
        if matches!(cause, ReturnCause::Halted | ReturnCause::Superseded | ReturnCause::Unguarded { .. }) {
            return;
        }
        let before = self.0.iter().position(|known| known.id == generation.id).map(|at| self.0.remove(at));
        let (returns, granted_after) = before.map_or((0, 0), |before| (before.returns, before.granted_after));
        if self.0.len() >= MAX_QUARANTINED {
            self.0.remove(0);
        }
        let Generation { id, seq, .. } = *generation;
        let returned = Some(now.clone());
        let returns = returns.saturating_add(1);
        self.0.push(QuarantinedGeneration {
            id,
            seq,
            cause: cause.clone(),
            returns,
            returned,
            granted_after,
        });
    }

    /// A generation may be activated again.
    pub(crate) fn lift(&mut self, id: GenerationId) {
        self.0.retain(|known| known.id != id);
    }
}
