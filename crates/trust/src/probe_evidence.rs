//! [`ProbeEvidence`]: what a probe found on a host, under the host's own key (ROL-5).
//!
//! A result is bound to the rollout, the number of the event and the boot, so that nobody can show a result of before
//! for one of now: a control plane neither, that wants a wave to open.

use model::canonical::CanonicalError;
use model::exchange::Signature;
use model::rollout::{ProbeOutcome, RolloutId};
use model::{Incarnation, NodeId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Slots;
use crate::key::{PublicKey, SigningKey};
use crate::signed::{self, Document, UnsignedDocument, VerifyError};

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeEvidence {
    /// The node.
    pub node: NodeId,
    /// Its log.
    pub incarnation: Incarnation,
    /// The rollout.
    pub rollout: RolloutId,
    /// The number of the event.
    pub event_seq: u64,
    /// The boot in which the probe looked.
    pub boot: String,
    /// The probe.
    pub probe: String,
    /// What it found.
    pub outcome: ProbeOutcome,
    /// When, by the host's clock.
    pub at: Timestamp,
}

impl Document for ProbeEvidence {
    const TYPE: &'static str = "probe-result";

    fn signed_at(&self) -> Timestamp {
        self.at
    }
}

/// Why a probe's result is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeEvidenceError {
    /// There is no signature with it.
    #[error("the result of a probe has no signature of its host")]
    NotSigned,
    /// Its signature does not hold.
    #[error("the result of a probe is not its host's: {0}")]
    Document(#[from] VerifyError),
    /// What was signed cannot be written.
    #[error("the result of a probe cannot be written: {0}")]
    Canonical(#[from] CanonicalError),
}

impl ProbeEvidence {
    /// The signature of the host's key.
    ///
    /// # Errors
    /// Never for a number within 2^53.
    pub fn sign(&self, key: &SigningKey) -> Result<Option<Signature>, CanonicalError> {
        Ok(signed::sign(self, &[key])?.signatures.pop())
    }

    /// Judges the signature that came with it.
    ///
    /// # Errors
    /// [`ProbeEvidenceError`] says why it is not believed.
    pub fn verify(&self, signature: Option<&Signature>, key: &PublicKey) -> Result<(), ProbeEvidenceError> {
        let signature = signature.ok_or(ProbeEvidenceError::NotSigned)?;
        let document = UnsignedDocument::of(self)?.signed(vec![signature.clone()]);
        signed::verify::<ProbeEvidence>(&document, &Slots::of(*key))?;
        Ok(())
    }
}
