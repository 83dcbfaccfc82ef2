//! [`ReleaseSigners`]: the keys that sign a release together, each where its signature counts.

use trust::{Header, PublicKey, TrustDocument};

use model::exchange::Signed;

use super::error::PublishError;
use crate::credentials::ReleaseKey;
use crate::screen::aside;
use crate::signer::{self, FleetSigner};

/// How many signatures a header must have to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signatures {
    /// As many as its channel asks for.
    Enough,
    /// Those that are at hand: others sign later.
    AtHand,
}

/// At least one key, each of which counts in some channel of the fleet.
pub(super) struct ReleaseSigners {
    first: ReleaseKey,
    others: Vec<ReleaseKey>,
}

impl ReleaseSigners {
    pub(super) fn of(
        keys: impl IntoIterator<Item = ReleaseKey>,
        trust: &TrustDocument,
    ) -> Result<ReleaseSigners, PublishError> {
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or_else(|| PublishError::OtherKey("none".to_owned()))?;
        let signers = ReleaseSigners { first, others: keys.collect() };
        let mut seen: Vec<PublicKey> = Vec::new();
        for key in signers.all().map(FleetSigner::public) {
            if seen.contains(&key) {
                return Err(PublishError::SameSigner(key.id()));
            }
            seen.push(key);
            let listed = trust.thresholds.values().any(|threshold| threshold.signers.contains(&key));
            let slots = &trust.release;
            if !listed && slots.previous == Some(key) {
                aside(&format!(
                    "warning: release key {} is the previous one, and counts only until it is retired; the current \
                     one is {}\nnext: sign with that: --key FILE or MUSTER_RELEASE_KEY",
                    key.id(),
                    slots.current.id()
                ));
            } else if !listed && slots.current != key {
                return Err(PublishError::OtherKey(key.id()));
            }
        }
        Ok(signers)
    }

    /// The key that seals secrets, beside whose file the last header is kept.
    pub(super) fn first(&self) -> &ReleaseKey {
        &self.first
    }

    fn all(&self) -> impl Iterator<Item = &FleetSigner> {
        std::iter::once(&self.first).chain(&self.others).map(|key| &key.key)
    }

    /// Whether one of them is this key.
    pub(super) fn has(&self, key: &PublicKey) -> bool {
        self.all().any(|signer| signer.public() == *key)
    }

    /// The one that signs lists: the current release key, or else the previous one.
    pub(super) fn of_lists(&self, trust: &TrustDocument) -> Option<&FleetSigner> {
        trust.release.keys().find_map(|key| self.all().find(|signer| signer.public() == *key))
    }

    /// Signs a header with those of the keys that count in its channel.
    pub(super) fn sign(
        &self,
        header: &Header,
        trust: &TrustDocument,
        signatures: Signatures,
    ) -> Result<Signed, PublishError> {
        let asked = trust.header_signers(&header.channel);
        let counting: Vec<&FleetSigner> = self.all().filter(|signer| asked.has(&signer.public())).collect();
        let (have, need) = (counting.len(), asked.needed());
        if signatures == Signatures::Enough && have < need {
            let others = asked.keys().into_iter().filter(|key| !self.has(key)).map(|key| key.id()).collect();
            return Err(PublishError::TooFew { channel: header.channel.clone(), have, need, others });
        }
        signer::sign(header, &counting).map_err(PublishError::Sign)
    }
}
