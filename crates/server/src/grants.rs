//! What a release grants a node besides its configuration: synchronization and delegations;
//! and what it declares of it, for selectors.
//!
//! Read from single chunks by root, so that asking for every node of a large fleet reads no
//! whole set.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::delegation::MAX_DELEGATIONS;
use lang::Value;
use model::chunk::{SectionChunk, TreeChunk};
use model::object::MAX_INLINE;
use model::policy::Policy;
use model::replication::{Mode, SyncPolicy};
use model::work::Delegation;
use model::{Descent, Digest, Kind, ObjectSet, Stub};
use serde::Deserialize;
use store::{Store, StoreError};

use crate::cache::{ByteCache, HeldBytes};
use crate::declared::{self, SetFacts};

/// What is kept of each sort, in bytes: modes of two releases of the largest fleet.
const KEPT_BYTES: u64 = 24 * 1024 * 1024;
/// What a text takes besides its bytes.
const TEXT_BYTES: u64 = 24;
/// The largest content read of one of these objects, in bytes.
const MAX_GRANT: u64 = 256 * MAX_INLINE;

/// What one set grants.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetGrants {
    /// Which objects are synchronized, and how.
    pub(crate) sync: Arc<SyncPolicy>,
    /// What the control plane may ask for, in the order of names.
    pub(crate) delegations: Arc<[Delegation]>,
}

impl HeldBytes for Arc<SetGrants> {
    fn held_bytes(&self) -> u64 {
        // Policies and delegations are shared among sets, and counted where they are kept.
        size_of::<SetGrants>() as u64
    }
}

impl HeldBytes for Mode {
    fn held_bytes(&self) -> u64 {
        size_of::<Mode>() as u64
    }
}

impl HeldBytes for Arc<SyncPolicy> {
    fn held_bytes(&self) -> u64 {
        let kinds: u64 = self.kinds.iter().map(|kind| kind.len() as u64 + TEXT_BYTES).sum();
        size_of::<SyncPolicy>() as u64 + kinds
    }
}

impl HeldBytes for Arc<[Delegation]> {
    fn held_bytes(&self) -> u64 {
        // As text it is about as large as it is held.
        let text =
            |delegation: &Delegation| serde_json::to_vec(delegation).map_or(0, |text| text.len() as u64);
        self.iter().map(|delegation| size_of::<Delegation>() as u64 + text(delegation)).sum()
    }
}

/// Grants by root of the set.
pub(crate) struct GrantIndex {
    store: Arc<Store>,
    by_root: ByteCache<Arc<SetGrants>>,
    /// Who is the source of truth, by root: asked of every node of the fleet at once.
    modes: ByteCache<Mode>,
    /// By digest of the object.
    policies: ByteCache<Arc<SyncPolicy>>,
    /// By root of the section.
    delegations: ByteCache<Arc<[Delegation]>>,
}

impl GrantIndex {
    pub(crate) fn new(store: Arc<Store>) -> GrantIndex {
        let (by_root, modes) = (ByteCache::new(KEPT_BYTES), ByteCache::new(KEPT_BYTES));
        let (policies, delegations) = (ByteCache::new(KEPT_BYTES), ByteCache::new(KEPT_BYTES));
        GrantIndex { store, by_root, modes, policies, delegations }
    }

    /// What a set grants; `None` when the set is not known here.
    pub(crate) async fn of(&self, root: &Digest) -> Result<Option<Arc<SetGrants>>, StoreError> {
        if let Some(known) = self.by_root.get(root) {
            return Ok(Some(known));
        }
        let Some(sections) = self.sections(root).await? else { return Ok(None) };
        let delegations = match sections.iter().find(|section| section.kind == Kind::DELEGATION) {
            Some(section) => self.delegated(section).await?,
            None => Arc::default(),
        };
        let granted = Arc::new(SetGrants { sync: self.sync_policy(&sections).await?, delegations });
        self.by_root.put(*root, granted.clone());
        Ok(Some(granted))
    }

    /// Who is the source of truth by a set; off when it is not known here.
    pub(crate) async fn mode(&self, root: &Digest) -> Result<Mode, StoreError> {
        if let Some(known) = self.modes.get(root) {
            return Ok(known);
        }
        let Some(sections) = self.sections(root).await? else { return Ok(Mode::Off) };
        let mode = self.sync_policy(&sections).await?.mode;
        self.modes.put(*root, mode);
        Ok(mode)
    }

    /// What a set says of its node; `None` when it is not known here.
    pub(crate) async fn facts(&self, root: &Digest) -> Result<Option<SetFacts>, StoreError> {
        let Some(sections) = self.sections(root).await? else { return Ok(None) };
        let mode = self.sync_policy(&sections).await?.mode;
        self.modes.put(*root, mode);
        let declared = self.params(&sections).await?;
        Ok(Some(SetFacts { mode, terms: declared.as_ref().map(declared::terms).unwrap_or_default() }))
    }

    /// What a set declares of its node, as selectors read it: `labels`, and `groups` where the
    /// release has them; `None` when the set is not known here.
    pub(crate) async fn declared(&self, root: &Digest) -> Result<Option<Value>, StoreError> {
        match self.sections(root).await? {
            Some(sections) => self.params(&sections).await,
            None => Ok(None),
        }
    }

    /// The digest of the policy of a set's channel; `None` when the set has none, or is not known here.
    pub(crate) async fn policy_digest(&self, root: &Digest) -> Result<Option<Digest>, StoreError> {
        let sections = self.sections(root).await?.unwrap_or_default();
        Ok(only_object(&sections, Kind::POLICY).map(|stub| stub.digest))
    }

    /// The policy of a set's channel.
    pub(crate) async fn channel_policy(&self, root: &Digest) -> Result<Policy, StoreError> {
        let sections = self.sections(root).await?.unwrap_or_default();
        match only_object(&sections, Kind::POLICY) {
            Some(stub) => Ok(self.json::<Policy>(stub).await?.unwrap_or_default()),
            None => Ok(Policy::default()),
        }
    }

    /// The fingerprint of the key that a set declares of its node (CFG-8); `None` when it declares none.
    pub(crate) async fn declared_key(&self, root: &Digest) -> Result<Option<String>, StoreError> {
        let Some(sections) = self.sections(root).await? else { return Ok(None) };
        let Some(stub) = only_object(&sections, Kind::PARAMS) else { return Ok(None) };
        let params = self.json::<NodeParams>(stub).await?;
        Ok(params.and_then(|params| params.node.get("key")?.as_str().map(str::to_owned)))
    }

    async fn params(&self, sections: &[SectionChunk]) -> Result<Option<Value>, StoreError> {
        let Some(stub) = only_object(sections, Kind::PARAMS) else { return Ok(None) };
        Ok(self.json::<NodeParams>(stub).await?.map(NodeParams::declared))
    }

    async fn sync_policy(&self, sections: &[SectionChunk]) -> Result<Arc<SyncPolicy>, StoreError> {
        match only_object(sections, Kind::SYNC) {
            Some(stub) => self.policy(stub).await,
            None => Ok(Arc::default()),
        }
    }

    async fn sections(&self, root: &Digest) -> Result<Option<Vec<SectionChunk>>, StoreError> {
        match self.store.chunk(root).await? {
            Some(TreeChunk::Set { sections }) => Ok(Some(sections)),
            _ => Ok(None),
        }
    }

    async fn policy(&self, stub: &Stub) -> Result<Arc<SyncPolicy>, StoreError> {
        if let Some(known) = self.policies.get(&stub.digest) {
            return Ok(known);
        }
        let read = Arc::new(self.json::<SyncPolicy>(stub).await?.unwrap_or_default());
        self.policies.put(stub.digest, read.clone());
        Ok(read)
    }

    async fn delegated(&self, section: &SectionChunk) -> Result<Arc<[Delegation]>, StoreError> {
        let key = match (&section.root, &section.leaf) {
            (Some(root), _) => *root,
            (None, Some(leaf)) => leaf.stub.digest,
            (None, None) => return Ok(Arc::default()),
        };
        if let Some(known) = self.delegations.get(&key) {
            return Ok(known);
        }
        let mut stubs = self.stubs(section.clone()).await?;
        stubs.sort_by(|a, b| a.0.cmp(&b.0));
        let mut delegations = Vec::with_capacity(stubs.len());
        for (_, stub) in &stubs {
            delegations.extend(self.json::<Delegation>(stub).await?);
        }
        let delegations: Arc<[Delegation]> = delegations.into();
        self.delegations.put(key, delegations.clone());
        Ok(delegations)
    }

    /// The objects of one section, with their names. A section of more than there may be of
    /// delegations, or that cannot be read, has none.
    async fn stubs(&self, section: SectionChunk) -> Result<Vec<(Arc<str>, Stub)>, StoreError> {
        let descent = Descent::of_set(vec![section], ObjectSet::new(), MAX_DELEGATIONS);
        let Ok(mut descent) = descent else { return Ok(Vec::new()) };
        while let Some(hash) = descent.need() {
            let chunk = self.store.chunk(&hash).await?;
            if chunk.is_none_or(|chunk| descent.supply(chunk).is_err()) {
                return Ok(Vec::new());
            }
        }
        let found = descent.finish().unwrap_or_default();
        Ok(found.differing.into_iter().map(|(_, leaf)| (leaf.name, leaf.stub)).collect())
    }

    /// The content of an object; one that cannot be read grants nothing.
    async fn json<T: for<'de> Deserialize<'de>>(&self, stub: &Stub) -> Result<Option<T>, StoreError> {
        if stub.size > MAX_GRANT {
            return Ok(None);
        }
        let content = self.store.content(&stub.digest, None).await?;
        Ok(content.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// The object of a kind of which a set has one.
fn only_object<'a>(sections: &'a [SectionChunk], kind: &str) -> Option<&'a Stub> {
    let section = sections.iter().find(|section| section.kind == kind)?;
    section.leaf.as_ref().map(|leaf| &leaf.stub)
}

/// The part of a node's params that selectors read something of.
#[derive(Deserialize)]
struct NodeParams {
    #[serde(default)]
    node: BTreeMap<String, serde_json::Value>,
}

impl NodeParams {
    fn declared(self) -> Value {
        let mut declared = BTreeMap::from([("labels".to_owned(), Value::Map(BTreeMap::new()))]);
        for (name, value) in self.node {
            if matches!(name.as_str(), "labels" | "groups")
                && let Ok(value) = serde_json::from_value(value)
            {
                declared.insert(name, value);
            }
        }
        Value::Map(declared)
    }
}
