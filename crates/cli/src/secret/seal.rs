//! From a fleet repo's references to sealed values, for a publish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resolve::secrets::{AwaitedStatements, FleetSealer, SealedFleet, SecretNeeds};
use resolve::{Changed, Fleet};
use serde::Serialize;
use trust::sealing::InHand;

use super::recipients::{self, StatementRelay};
use super::source::{SecretError, SecretSettings};
use crate::publish::PublishError;
use crate::screen::{aside, plural};
use crate::signer::FleetSigner;

/// The most nodes that a message names.
const NAMED: usize = 5;
/// What is said of a signer whose signatures may differ each time.
const SEALS_ANEW: &str = "note: secrets are sealed by what the signing command makes; where it signs the same bytes \
                          differently each time, each publish seals every secret anew";

/// Nodes on which what is made of a secret is blocked, as nothing is sealed for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedNodes {
    /// Nodes named exactly that need secrets and have no recipient key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_recipient_key: Vec<Arc<str>>,
    /// Patterns of nodes that need secrets: a node of theirs without a recipient key is blocked alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
}

impl BlockedNodes {
    /// Nobody is.
    pub fn is_empty(&self) -> bool {
        self.without_recipient_key.is_empty() && self.patterns.is_empty()
    }

    /// In a line or two for people; empty where nobody is.
    pub fn phrase(&self) -> String {
        let nodes = &self.without_recipient_key;
        let mut out = String::new();
        if !nodes.is_empty() {
            let named = nodes.iter().take(NAMED).map(|name| &**name).collect::<Vec<_>>().join(", ");
            let more = nodes.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" +{more}") } else { String::new() };
            let verb = if nodes.len() == 1 { "needs secrets and has" } else { "need secrets and have" };
            out = format!(
                "warning: {} {verb} no recipient key, and what is made of a secret is blocked there: {named}{more}\n\
                 next: muster secret trust {} KEY, with the key that `muster-agent identity` prints there\n",
                plural(nodes.len(), "node"),
                nodes[0],
            );
        }
        if !self.patterns.is_empty() {
            out += &format!(
                "note: of the nodes of {}, those get secrets for which `muster secret trust NODE KEY` was done\n",
                self.patterns.join(", ")
            );
        }
        out
    }
}

/// Seals what a fleet needs.
#[derive(Default)]
pub struct SecretPublisher {
    sealer: FleetSealer,
    /// Where secrets are asked for; without it a fleet that needs one cannot be published.
    pub settings: Option<SecretSettings>,
}

impl SecretPublisher {
    /// The fleet with what is sealed for its nodes. The control plane of this fleet is asked what nodes say of their
    /// recipient keys, where that counts.
    ///
    /// # Errors
    /// When a secret has no value, or cannot be sealed, or the control plane does not answer.
    pub async fn seal(
        &mut self,
        fleet: &Fleet,
        changed: &Changed,
        signer: &FleetSigner,
        relay: StatementRelay<'_>,
    ) -> Result<SealedFleet, PublishError> {
        let needs = SecretNeeds::of(fleet.specialize());
        let stated = recipients::stated(relay, &AwaitedStatements::needing(fleet, &needs)).await?;
        recipients::tell_refused(&stated);
        let values = self.values(fleet, &needs, signer)?;
        self.sealer
            .seal(fleet.specialize(), changed, &needs, &recipients::keys_of(fleet, &stated), &values)
            .map_err(PublishError::NotSealed)
    }

    /// The values of secrets, sealed once.
    ///
    /// # Errors
    /// As [`SecretPublisher::seal`].
    pub(crate) fn values(
        &self,
        fleet: &Fleet,
        needs: &SecretNeeds,
        signer: &FleetSigner,
    ) -> Result<BTreeMap<String, InHand>, PublishError> {
        if needs.is_empty() {
            return Ok(BTreeMap::new());
        }
        super::leave_no_core();
        let settings = self.settings.as_ref().ok_or(PublishError::NoSecretSources)?;
        let names: BTreeSet<&str> = needs.secrets.keys().map(String::as_str).collect();
        let values = settings.values(fleet.secret_sources(), &names).map_err(unresolved)?;
        let no_text: Vec<SecretError> = needs
            .secrets
            .iter()
            .filter(|(name, needed)| {
                needed.in_text && values.get(*name).is_some_and(|value| std::str::from_utf8(value).is_err())
            })
            .map(|(name, _)| SecretError::NotText(name.clone()))
            .collect();
        if !no_text.is_empty() {
            return Err(unresolved(no_text));
        }
        if signer.may_seal_anew() {
            aside(SEALS_ANEW);
        }
        let sealer = signer.sealer().map_err(|error| PublishError::Sign(error.into()))?;
        let seal = |(name, value): (&String, &super::source::SecretValue)| {
            let sealed = sealer.seal(name, value).map_err(|error| PublishError::NotSealed(error.into()))?;
            Ok((name.clone(), sealed))
        };
        values.iter().map(seal).collect()
    }
}

/// Tells every secret that has no value, and gives the first as the failure.
fn unresolved(mut errors: Vec<SecretError>) -> PublishError {
    let first = errors.remove(0);
    for error in errors {
        aside(&format!("error: {}", model::text::chain(&error)));
    }
    PublishError::Secret(first)
}
