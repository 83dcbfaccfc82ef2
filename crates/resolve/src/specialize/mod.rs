//! From an entry to what a node gets: a pure function of the context, the entry and the
//! host file (CFG-2). No observed trait is read here (CFG-9).

mod base;
mod entry;
mod grants;
mod node;
mod split;

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::channel::ChannelSettings;
use catalog::module::Params;
use lang::Pattern;
use lang::pattern::first_match;
use model::{Digest, canonical};

pub(crate) use base::{Memo, groups_of};
pub(crate) use entry::{ReadEntry, read_entry, read_host};
pub(crate) use grants::Holding;
pub use grants::{Grant, Grants};
pub(crate) use node::{SpecializedFor, node};
pub(crate) use split::{PatternShare, TooMany, meeting, split};

use crate::check::modules::SharedModule;
use crate::rollouts::RolloutPolicy;
use crate::secrets::NodeSecrets;

/// A sorted map from names. A clone shares all but what is changed later, so that a new state beside
/// the old one costs what differs.
pub type ByName<V> = rpds::RedBlackTreeMapSync<Arc<str>, V>;

/// What one node, or every node of a pattern, gets. Small: modules and channel are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// The channel's name.
    pub channel: Arc<str>,
    /// Its modules, those that others depend on included, each after what it depends on.
    pub modules: Arc<[Arc<str>]>,
    /// Canonical bytes of its [`Params`].
    pub params: Arc<[u8]>,
    /// What it may synchronize, and what the control plane may ask it for.
    pub grants: Arc<Grants>,
    /// What its set has of its secrets, once they are sealed (`resolve::secrets`).
    pub secrets: Option<NodeSecrets>,
}

impl NodeSpec {
    /// The same node with other grants.
    pub(crate) fn granted(&self, grants: Arc<Grants>) -> NodeSpec {
        NodeSpec { grants, ..self.clone() }
    }

    /// The same node with what is sealed for it.
    pub(crate) fn with_secrets(&self, secrets: Option<NodeSecrets>) -> NodeSpec {
        NodeSpec { secrets, ..self.clone() }
    }

    /// The params, read from their canonical bytes.
    ///
    /// # Errors
    /// When the bytes were not made by this crate.
    pub fn read_params(&self) -> Result<Params, canonical::CanonicalError> {
        canonical::parse(&self.params)
    }

    /// The fingerprint of the key that the fleet repo declares of the node (CFG-8).
    pub(crate) fn declared_key(&self) -> Option<String> {
        self.read_params().ok()?.node.key
    }
}

/// What nodes get that a pattern classifies, unless they are named exactly. One pattern of the
/// fleet repo is several here where synchronization or a delegation is for some of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternSpec {
    /// The pattern.
    pub pattern: Pattern,
    /// Names that the pattern does not classify although it matches them.
    pub except: Arc<[Pattern]>,
    /// What they get.
    pub spec: Arc<NodeSpec>,
}

/// What a fleet repo means, node by node.
#[derive(Clone, Debug, Default)]
pub struct Specialized {
    /// The oldest agent that check-ins are taken from, if the fleet says so.
    pub minimum_agent: Option<String>,
    /// Every channel's settings.
    pub channels: Arc<BTreeMap<String, ChannelSettings>>,
    /// How releases reach the nodes of a channel, for those that say so.
    pub rollouts: Arc<BTreeMap<String, RolloutPolicy>>,
    /// Nodes that are named exactly or have a host file. They come before all patterns.
    pub exact: ByName<Arc<NodeSpec>>,
    /// Patterns in the order in which they classify.
    pub patterns: Arc<Vec<PatternSpec>>,
    /// Every module of the fleet.
    pub modules: Arc<BTreeMap<String, Arc<SharedModule>>>,
    /// The files and scripts of all modules.
    pub blobs: Arc<BTreeMap<Digest, Arc<[u8]>>>,
}

impl Specialized {
    /// What the node of that name gets; nothing when no entry matches it.
    pub fn node(&self, hostname: &str) -> Option<&Arc<NodeSpec>> {
        self.exact.get(hostname).or_else(|| {
            let rules = self.patterns.iter().map(|spec| (&spec.pattern, &spec.except[..]));
            Some(&self.patterns[first_match(rules, hostname)?].spec)
        })
    }
}
