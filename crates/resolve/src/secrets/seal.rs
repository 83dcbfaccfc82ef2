//! [`FleetSealer`]: from values in hand to what each node's set has of its secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::canonical::{self, CanonicalError};
use model::{Digest, Hostname};
use trust::RecipientKey;
use trust::sealing::{InHand, MAX_NODE_SECRETS, SealError, SecretKeys};

use super::{KEYS_NAME, NodeSecrets, SealedSection, SecretNeeds, object};
use crate::resolver::Changed;
use crate::specialize::Specialized;

/// Why the secrets of a fleet cannot be sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSealed {
    /// A value was not given.
    #[error("secret `{0}` has no value")]
    Missing(String),
    /// A value or a recipient key cannot be used.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A node has too many.
    #[error("{node} needs {count} secrets; a node has at most {MAX_NODE_SECRETS}")]
    TooMany {
        /// The node or the pattern.
        node: String,
        /// How many it needs.
        count: usize,
    },
    /// A document has no canonical form.
    #[error("a document has no canonical form")]
    Canonical(#[source] CanonicalError),
}

/// A fleet with what its nodes' sets have of their secrets.
#[derive(Clone, Debug)]
pub struct SealedFleet {
    /// What nodes get.
    pub fleet: Specialized,
    /// What differs from the fleet that was sealed before.
    pub changed: Changed,
    /// Nodes named exactly that need secrets and have no recipient key, sorted: what is made of a secret is blocked on
    /// them, and all else converges.
    pub without_key: Vec<Arc<str>>,
    /// Patterns of nodes that need secrets: those whose recipient key is not declared are blocked alike.
    pub patterns: Vec<String>,
}

/// Wraps by what is sealed, the node and its key: each is made once.
type WrapCache = BTreeMap<(Digest, Arc<str>, RecipientKey), String>;

/// Seals one fleet after the other, and makes anew only what changed.
#[derive(Default)]
pub struct FleetSealer {
    last: Option<Specialized>,
    wraps: WrapCache,
}

impl FleetSealer {
    /// Puts into the nodes' sets what is sealed for them. `changed` is against the fleet of the last call.
    ///
    /// # Errors
    /// [`NotSealed`]; the next call then starts from nothing.
    pub fn seal(
        &mut self,
        fleet: &Specialized,
        changed: &Changed,
        needs: &SecretNeeds,
        recipients: &BTreeMap<Arc<str>, RecipientKey>,
        values: &BTreeMap<String, InHand>,
    ) -> Result<SealedFleet, NotSealed> {
        let last = self.last.take();
        if needs.is_empty() && last.as_ref().is_none_or(|last| !has_secrets(last)) {
            self.last = Some(fleet.clone());
            return Ok(SealedFleet {
                fleet: fleet.clone(),
                changed: changed.clone(),
                without_key: Vec::new(),
                patterns: Vec::new(),
            });
        }
        let old_wraps = std::mem::take(&mut self.wraps);
        let mut pass = SealPass { old_wraps, ..SealPass::new(values) };
        let (mut exact, mut without_key) = (fleet.exact.clone(), Vec::new());
        // Who has an entry of its own, and who a pattern classifies and is to get one for its keys.
        let by_pattern = recipients.keys().filter(|name| !fleet.exact.contains_key(&***name));
        let by_pattern = by_pattern.filter_map(|name| Some((name, fleet.node(name)?)));
        for (name, spec) in fleet.exact.iter().chain(by_pattern) {
            let key = recipients.get(name);
            let Some(secrets) = pass.node(name, needs.of_node(spec), key)? else { continue };
            if key.is_none() {
                without_key.push(name.clone());
            }
            exact.insert_mut(name.clone(), Arc::new(spec.with_secrets(Some(secrets))));
        }
        let (mut patterns, mut blocked) = (Vec::clone(&fleet.patterns), Vec::new());
        for pattern in &mut patterns {
            let names = needs.of_node(&pattern.spec);
            if let Some(secrets) = pass.node(&pattern.pattern.as_str().into(), names, None)? {
                blocked.push(pattern.pattern.as_str().to_owned());
                pattern.spec = Arc::new(pattern.spec.with_secrets(Some(secrets)));
            }
        }
        self.wraps = pass.wraps;
        let fleet = Specialized { exact, patterns: Arc::new(patterns), ..fleet.clone() };
        let changed = Changed {
            modules: changed.modules,
            channels: changed.channels,
            ..difference(last.as_ref(), &fleet)
        };
        self.last = Some(fleet.clone());
        Ok(SealedFleet { fleet, changed, without_key, patterns: blocked })
    }
}

fn has_secrets(fleet: &Specialized) -> bool {
    let mut specs = fleet.exact.values().chain(fleet.patterns.iter().map(|pattern| &pattern.spec));
    specs.any(|spec| spec.secrets.is_some())
}

fn difference(old: Option<&Specialized>, new: &Specialized) -> Changed {
    let Some(old) = old else {
        let hostnames = new.exact.keys().cloned().collect();
        return Changed { hostnames, patterns: true, modules: true, channels: true };
    };
    let names: BTreeSet<&Arc<str>> = old.exact.keys().chain(new.exact.keys()).collect();
    let differs = |name: &&&Arc<str>| match (old.exact.get(&****name), new.exact.get(&****name)) {
        (Some(old), Some(new)) => !Arc::ptr_eq(old, new) && old != new,
        _ => true,
    };
    let hostnames = names.iter().filter(differs).map(|name| Arc::clone(name)).collect();
    Changed { hostnames, patterns: old.patterns != new.patterns, ..Changed::default() }
}

/// One pass over the nodes of a fleet.
pub(super) struct SealPass<'s> {
    values: &'s BTreeMap<String, InHand>,
    old_wraps: WrapCache,
    wraps: WrapCache,
    sections: BTreeMap<BTreeSet<String>, Arc<SealedSection>>,
}

impl<'s> SealPass<'s> {
    pub(super) fn new(values: &'s BTreeMap<String, InHand>) -> SealPass<'s> {
        SealPass { values, old_wraps: WrapCache::new(), wraps: WrapCache::new(), sections: BTreeMap::new() }
    }

    /// What the set of a node has of these secrets; `None` when it needs none.
    pub(super) fn node(
        &mut self,
        name: &Arc<str>,
        names: BTreeSet<String>,
        key: Option<&RecipientKey>,
    ) -> Result<Option<NodeSecrets>, NotSealed> {
        if names.is_empty() {
            return Ok(None);
        }
        if names.len() > MAX_NODE_SECRETS {
            return Err(NotSealed::TooMany { node: name.to_string(), count: names.len() });
        }
        let keys = match key {
            Some(key) => Some(self.keys(name, key, &names)?),
            None => None,
        };
        let keys = keys.flatten();
        Ok(Some(NodeSecrets { sealed: self.section(names)?, keys }))
    }

    fn value(&self, name: &str) -> Result<&'s InHand, NotSealed> {
        self.values.get(name).ok_or_else(|| NotSealed::Missing(name.to_owned()))
    }

    fn section(&mut self, names: BTreeSet<String>) -> Result<Arc<SealedSection>, NotSealed> {
        if let Some(known) = self.sections.get(&names) {
            return Ok(known.clone());
        }
        let mut objects = Vec::with_capacity(names.len());
        for name in &names {
            let bytes = canonical::to_bytes(self.value(name)?.sealed()).map_err(NotSealed::Canonical)?;
            objects.push(object(name, bytes));
        }
        let section = Arc::new(SealedSection::of(objects));
        self.sections.insert(names, section.clone());
        Ok(section)
    }

    /// The node's own keys; `None` where the name is no hostname, which a pattern's is not.
    fn keys(
        &mut self,
        name: &Arc<str>,
        recipient: &RecipientKey,
        names: &BTreeSet<String>,
    ) -> Result<Option<crate::specialize::Grant>, NotSealed> {
        let Ok(node) = name.parse::<Hostname>() else { return Ok(None) };
        let mut wraps = BTreeMap::new();
        for secret in names {
            let value = self.value(secret)?;
            let key = (value.sealed().commitment, name.clone(), *recipient);
            let wrap = match self.old_wraps.remove(&key) {
                Some(wrap) => wrap,
                None => value.wrap(&node, recipient)?,
            };
            self.wraps.insert(key, wrap.clone());
            wraps.insert(secret.clone(), wrap);
        }
        let keys = SecretKeys { node, recipient: *recipient, wraps };
        Ok(Some(object(KEYS_NAME, canonical::to_bytes(&keys).map_err(NotSealed::Canonical)?)))
    }
}
