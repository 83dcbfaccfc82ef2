//! [`AwaitedStatements`]: whose recipient key its own statement may say (SEC-1, CFG-8).
//!
//! The fleet repo decides who may: a host whose `key` it declares, and that it does not name otherwise. A line of
//! `recipients.yaml` comes before any statement. A host that `revocations.yaml` names has lost its word: whoever holds
//! what was taken from it may hold its identity, too, and could sign for another key with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{FleetId, Hostname};
use trust::RecipientKey;
use trust::sealing::{RelayedStatement, SealingStatementError};

use super::SecretNeeds;
use crate::resolver::Fleet;
use crate::specialize::NodeSpec;

/// The hosts of a fleet whose statements count, each with the fingerprint of the key that is declared for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwaitedStatements {
    declared: BTreeMap<Hostname, String>,
}

/// What statements come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedRecipients {
    /// The recipient keys, by hostname.
    pub keys: BTreeMap<Arc<str>, RecipientKey>,
    /// Statements that make nobody a recipient, by hostname.
    pub refused: BTreeMap<Hostname, SealingStatementError>,
}

impl AwaitedStatements {
    /// Those of nodes that need secrets.
    pub fn needing(fleet: &Fleet, needs: &SecretNeeds) -> AwaitedStatements {
        match needs.is_empty() {
            true => AwaitedStatements::default(),
            false => AwaitedStatements::among(fleet, |spec| !needs.of_node(spec).is_empty()),
        }
    }

    /// Those of all nodes.
    pub fn all(fleet: &Fleet) -> AwaitedStatements {
        AwaitedStatements::among(fleet, |_| true)
    }

    fn among(fleet: &Fleet, is_meant: impl Fn(&NodeSpec) -> bool) -> AwaitedStatements {
        let revoked = fleet.admission().revocations.iter().flatten();
        let revoked: BTreeSet<&str> = revoked.map(|revocation| revocation.host.as_str()).collect();
        let may = |name: &str| !fleet.recipients().contains_key(name) && !revoked.contains(name);
        // A key is declared of one host, which is named exactly.
        let awaited = |(name, spec): (&Arc<str>, &Arc<NodeSpec>)| {
            let is_one = may(name) && is_meant(spec);
            let declared = is_one.then(|| spec.declared_key())??;
            Some((name.parse().ok()?, declared))
        };
        AwaitedStatements { declared: fleet.specialize().exact.iter().filter_map(awaited).collect() }
    }

    /// Whose statements count, in the order of their names.
    pub fn nodes(&self) -> impl Iterator<Item = &Hostname> {
        self.declared.keys()
    }

    /// Nobody's counts.
    pub fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    /// Takes what a control plane relays: of hosts that were not asked for nothing.
    pub fn take<'r>(
        &self,
        fleet: &FleetId,
        relayed: impl IntoIterator<Item = &'r RelayedStatement>,
    ) -> StatedRecipients {
        let mut stated = StatedRecipients::default();
        for one in relayed {
            let Some((hostname, declared)) = self.declared.get_key_value(&one.hostname) else { continue };
            match one.recipient(fleet, hostname, declared) {
                Ok(key) => drop(stated.keys.insert(hostname.as_str().into(), key)),
                Err(why) => drop(stated.refused.insert(hostname.clone(), why)),
            }
        }
        stated
    }
}
