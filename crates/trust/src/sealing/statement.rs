//! [`SealingStatement`]: for which key a node's secrets are sealed, signed by its own identity (SEC-1, CFG-8).
//!
//! ```text
//! nodes.yaml: key of web-1 -----------------------+
//!                                                 v
//! control plane, relaying: identity --its fingerprint is the declared one--> its signature --> RecipientKey
//! ```
//!
//! The control plane carries a statement and adds nothing to it: what counts is the key that the fleet repo declares. So
//! a statement of another key, another host or another fleet leads to no recipient, and neither does one of the host
//! that had the name before, once the fleet repo declares the key of the host that has it now.

use model::canonical::CanonicalError;
use model::exchange::Signed;
use model::{FleetId, Hostname, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::RecipientKey;
use crate::document::Slots;
use crate::key::{PublicKey, SigningKey};
use crate::signed::{self, Document, VerifyError};

/// What a node says of the key that its secrets are sealed for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SealingStatement {
    /// The fleet.
    pub fleet: FleetId,
    /// The node's hostname: wraps are bound to it.
    pub hostname: Hostname,
    /// The key.
    #[schemars(with = "String")]
    pub recipient: RecipientKey,
    /// When it was signed, by the node's clock.
    pub at: Timestamp,
}

impl Document for SealingStatement {
    const TYPE: &'static str = "sealing-key";
    const MAX_BYTES: usize = model::capabilities::MAX_SEALING_STATEMENT;

    fn signed_at(&self) -> Timestamp {
        self.at
    }
}

/// A node's statement as a control plane relays it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayedStatement {
    /// The hostname that the node has, as the control plane says.
    pub hostname: Hostname,
    /// The identity that the node has, as the control plane says.
    #[schemars(with = "String")]
    pub identity: PublicKey,
    /// The [`SealingStatement`].
    pub statement: Signed,
}

/// Why a statement makes nobody a recipient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealingStatementError {
    /// It is relayed with another identity than the one that is declared.
    #[error("it is signed by the identity {0}, and nodes.yaml declares another key")]
    OtherIdentity(String),
    /// Its signature does not hold, or it is malformed.
    #[error("it is not believed: {0}")]
    Document(#[from] VerifyError),
    /// It is of another fleet.
    #[error("it is of fleet {0}")]
    OtherFleet(FleetId),
    /// It is of another host.
    #[error("it is of host {0}")]
    OtherHost(Hostname),
    /// The key is a point that shares nothing with anybody.
    #[error("{0} is no key that anything can be sealed for")]
    WeakKey(RecipientKey),
}

impl SealingStatement {
    /// Signs it with the node's identity.
    ///
    /// # Errors
    /// Never: all of it is text and a time.
    pub fn sign(&self, identity: &SigningKey) -> Result<Signed, CanonicalError> {
        signed::sign(self, &[identity])
    }
}

impl RelayedStatement {
    /// The key that secrets of `hostname` are sealed for, where the fleet repo declares the identity with the fingerprint
    /// `declared` for it (`trust::declared_key::fingerprint`).
    ///
    /// # Errors
    /// [`SealingStatementError`] says why it makes nobody a recipient.
    pub fn recipient(
        &self,
        fleet: &FleetId,
        hostname: &Hostname,
        declared: &str,
    ) -> Result<RecipientKey, SealingStatementError> {
        let fingerprint = self.identity.fingerprint();
        if fingerprint != declared {
            return Err(SealingStatementError::OtherIdentity(fingerprint));
        }
        let stated: SealingStatement = signed::verify(&self.statement, &Slots::of(self.identity))?;
        if stated.fleet != *fleet {
            return Err(SealingStatementError::OtherFleet(stated.fleet));
        }
        if stated.hostname != *hostname {
            return Err(SealingStatementError::OtherHost(stated.hostname));
        }
        match stated.recipient.is_usable() {
            true => Ok(stated.recipient),
            false => Err(SealingStatementError::WeakKey(stated.recipient)),
        }
    }
}
