//! What the sets of many nodes have in common: modules, policies, module lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::channel::ChannelSettings;
use model::canonical;
use model::policy::Policy;
use model::selection::SelectionEntry;
use model::set::{self, ObjectSet};
use model::trie::{Leaf, Trie};
use model::{Channel, Hostname, Kind, SectionKey, Selection, Stub};

use super::{PARAMS_NAME, POLICY_NAME, ReleaseError};
use crate::check::modules::SharedModule;
use crate::secrets::NodeSecrets;
use crate::specialize::{NodeSpec, Specialized};

/// What the sets of many nodes have in common.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) modules: Arc<BTreeMap<String, Arc<SharedModule>>>,
    pub(super) settings: Arc<BTreeMap<String, ChannelSettings>>,
    pub(super) policies: BTreeMap<String, ChannelPolicy>,
    pub(super) lists: BTreeMap<Arc<[Arc<str>]>, Trie>,
    pub(super) sections: Sections,
}

/// A channel's policy as an object.
#[derive(Clone)]
pub(super) struct ChannelPolicy {
    pub(super) channel: Channel,
    pub(super) trie: Trie,
    pub(super) bytes: Arc<[u8]>,
    pub(super) policy: Policy,
}

/// The keys of a node's sections, and the names in them, made once.
#[derive(Clone)]
pub(super) struct Sections {
    pub(super) module: SectionKey,
    pub(super) params: SectionKey,
    pub(super) policy: SectionKey,
    pub(super) params_name: Arc<str>,
}

impl Shared {
    pub(super) fn of(fleet: &Specialized) -> Result<Shared, ReleaseError> {
        let sections = Sections {
            module: SectionKey::of(Kind::MODULE),
            params: SectionKey::of(Kind::PARAMS),
            policy: SectionKey::of(Kind::POLICY),
            params_name: PARAMS_NAME.into(),
        };
        let mut policies = BTreeMap::new();
        for (name, settings) in fleet.channels.iter() {
            policies.insert(name.clone(), ChannelPolicy::of(name, settings, &sections)?);
        }
        Ok(Shared {
            modules: fleet.modules.clone(),
            settings: fleet.channels.clone(),
            policies,
            lists: BTreeMap::new(),
            sections,
        })
    }

    /// Nothing that all nodes share differs.
    pub(super) fn is_of(&self, fleet: &Specialized) -> bool {
        let same_modules = Arc::ptr_eq(&self.modules, &fleet.modules) || self.modules == fleet.modules;
        same_modules && (Arc::ptr_eq(&self.settings, &fleet.channels) || self.settings == fleet.channels)
    }

    pub(super) fn module(&self, name: &str) -> Result<&Arc<SharedModule>, ReleaseError> {
        self.modules.get(name).ok_or_else(|| ReleaseError::UnknownModule(name.to_owned()))
    }

    pub(super) fn policy(&self, spec: &NodeSpec) -> Result<&ChannelPolicy, ReleaseError> {
        let unknown = || ReleaseError::UnknownChannel(spec.channel.to_string());
        self.policies.get(&*spec.channel).ok_or_else(unknown)
    }

    pub(super) fn list_of(&self, spec: &NodeSpec) -> Result<Trie, ReleaseError> {
        match self.lists.get(&spec.modules) {
            Some(trie) => Ok(trie.clone()),
            None => self.list(&spec.modules),
        }
    }

    pub(super) fn list(&self, names: &[Arc<str>]) -> Result<Trie, ReleaseError> {
        let leaf = |name: &Arc<str>| {
            let module = self.module(name)?;
            let size = module.bytes.len() as u64;
            let stub = Stub { uid: "".into(), digest: module.digest, size };
            Ok(set::leaf(&self.sections.module, name.clone(), stub))
        };
        let leaves: Result<Vec<Leaf>, ReleaseError> = names.iter().map(leaf).collect();
        Ok(Trie::build(leaves?))
    }

    pub(super) fn set(&self, spec: &NodeSpec) -> Result<ObjectSet, ReleaseError> {
        let Sections { module, params, policy, params_name } = &self.sections;
        let own = set::leaf(params, params_name.clone(), Stub::of(&spec.params));
        let sections = [
            (module.clone(), self.list_of(spec)?),
            (params.clone(), Trie::build([own])),
            (policy.clone(), self.policy(spec)?.trie.clone()),
        ];
        let secrets = spec.secrets.iter().flat_map(NodeSecrets::sections);
        Ok(ObjectSet::of_sections(sections.into_iter().chain(spec.grants.sections()).chain(secrets)))
    }

    pub(super) fn entry(&self, spec: &NodeSpec) -> Result<SelectionEntry, ReleaseError> {
        Ok(SelectionEntry { channel: self.policy(spec)?.channel.clone(), root: self.set(spec)?.root() })
    }

    pub(super) fn selected(&self, name: &str, spec: &NodeSpec) -> Result<Leaf, ReleaseError> {
        let hostname: Hostname = name.parse().map_err(ReleaseError::Name)?;
        Ok(Selection::leaf(&hostname, &self.entry(spec)?))
    }
}

impl ChannelPolicy {
    fn of(
        name: &str,
        settings: &ChannelSettings,
        sections: &Sections,
    ) -> Result<ChannelPolicy, ReleaseError> {
        let policy = policy(settings);
        let bytes: Arc<[u8]> = canonical::to_bytes(&policy).map_err(ReleaseError::Canonical)?.into();
        let leaf = set::leaf(&sections.policy, POLICY_NAME.into(), Stub::of(&bytes));
        Ok(ChannelPolicy {
            channel: name.parse().map_err(ReleaseError::Name)?,
            trie: Trie::build([leaf]),
            bytes,
            policy,
        })
    }
}

/// A channel's settings as its nodes get them. What only observes is already said in params,
/// and freshness in the header.
fn policy(settings: &ChannelSettings) -> Policy {
    Policy {
        contact_secs: settings.contact_secs.into(),
        jitter_percent: u8::try_from(settings.jitter_percent).unwrap_or(u8::MAX),
        converge_secs: settings.converge_secs.into(),
        bundle_max_age_secs: settings.bundle_max_age_secs.into(),
        offline_grace_secs: settings.offline_grace_secs.into(),
        metered: settings.metered,
        transport: settings.transport,
        link: settings.link,
        trait_ttl_secs: settings
            .trait_ttl_secs
            .iter()
            .map(|(group, secs)| (group.clone(), u64::from(*secs)))
            .collect(),
        reboot: settings.reboot.clone(),
        probes: settings.probes.clone(),
        guard: settings.guard,
    }
}
