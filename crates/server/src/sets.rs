//! Sets and what they entitle to, read from the store and kept within bounds.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::exchange::SetOffer;
use model::object::{MAX_INLINE, blobs_named};
use model::{Digest, Kind, ObjectSet};
use plane::{SetBase, SetWanted};
use store::{Store, StoreError};
use tokio::sync::OnceCell;

use crate::cache::{ByteCache, HeldBytes};

/// The sets kept, in bytes.
const SETS_BYTES: u64 = 128 * 1024 * 1024;
/// What an object of a set takes in memory, with its content's place among what the set entitles to.
const OBJECT_BYTES: u64 = 384;
/// The lists of blobs kept, in bytes.
const BLOBS_BYTES: u64 = 16 * 1024 * 1024;
/// What a blob takes in such a list.
const BLOB_BYTES: u64 = 48;
/// The most bytes of contents that one answer carries; the rest is fetched.
const MAX_INLINE_TOTAL: u64 = 256 * 1024;

/// A set, and what it entitles to once that was asked for.
struct KnownSet {
    set: Arc<ObjectSet>,
    /// Every content that it names, as an object's or as a blob of one, in order.
    entitled: OnceCell<Box<[Digest]>>,
}

impl HeldBytes for Arc<KnownSet> {
    fn held_bytes(&self) -> u64 {
        self.set.len() as u64 * OBJECT_BYTES
    }
}

impl HeldBytes for Arc<BTreeSet<Digest>> {
    fn held_bytes(&self) -> u64 {
        self.len() as u64 * BLOB_BYTES
    }
}

/// Sets by root, and the blobs that an object's content names.
pub(crate) struct ReleaseSets {
    store: Arc<Store>,
    sets: ByteCache<Arc<KnownSet>>,
    blobs: ByteCache<Arc<BTreeSet<Digest>>>,
}

impl ReleaseSets {
    pub(crate) fn new(store: Arc<Store>) -> ReleaseSets {
        ReleaseSets { store, sets: ByteCache::new(SETS_BYTES), blobs: ByteCache::new(BLOBS_BYTES) }
    }

    /// A set by root; `None` when it is not known here.
    pub(crate) async fn get(&self, root: &Digest) -> Result<Option<Arc<ObjectSet>>, StoreError> {
        Ok(self.known(root).await?.map(|known| known.set.clone()))
    }

    async fn known(&self, root: &Digest) -> Result<Option<Arc<KnownSet>>, StoreError> {
        if let Some(known) = self.sets.get(root) {
            return Ok(Some(known));
        }
        let Some(set) = self.store.set(root).await? else { return Ok(None) };
        let known = Arc::new(KnownSet { set: Arc::new(set), entitled: OnceCell::new() });
        self.sets.put(*root, known.clone());
        Ok(Some(known))
    }

    /// The difference that leads to the wanted set, with the small contents (DLT-3). From a
    /// set not known here, every object is named and the node fetches what it lacks.
    pub(crate) async fn offer(&self, wanted: SetWanted) -> Result<Option<SetOffer>, StoreError> {
        let Some(target) = self.get(&wanted.target).await? else { return Ok(None) };
        let base_root = match wanted.base {
            SetBase::Given(root) => Some(root),
            SetBase::Nothing | SetBase::Unknown => None,
        };
        let base = match base_root {
            Some(root) => self.get(&root).await?,
            None => None,
        };
        let holds_something_else = base.is_none() && wanted.base != SetBase::Nothing;
        let empty = ObjectSet::new();
        let delta = base.as_deref().unwrap_or(&empty).delta_to(&target);
        let mut contents = Vec::new();
        let mut room = MAX_INLINE_TOTAL;
        for stub in delta.edits.values().filter_map(model::Edit::to) {
            if stub.size > MAX_INLINE || stub.size > room || holds_something_else {
                continue;
            }
            if let Some(content) = self.store.content(&stub.digest, None).await?
                && let Ok(text) = String::from_utf8(content.to_vec())
            {
                room -= stub.size;
                contents.push(text);
            }
        }
        Ok(Some(SetOffer { base: base_root.filter(|_| base.is_some()), delta, contents }))
    }

    /// Whether a set names a content: as an object's, or as a blob of one (IDN-5). The set is looked through
    /// once, and not for each content.
    pub(crate) async fn entitles(&self, root: &Digest, content: &Digest) -> Result<bool, StoreError> {
        let Some(known) = self.known(root).await? else { return Ok(false) };
        let entitled = known.entitled.get_or_try_init(|| self.named_by(&known.set)).await?;
        Ok(entitled.binary_search(content).is_ok())
    }

    /// Every content that a set names, in order.
    async fn named_by(&self, set: &ObjectSet) -> Result<Box<[Digest]>, StoreError> {
        let mut named = Vec::with_capacity(set.len());
        for (key, stub) in set.objects() {
            named.push(stub.digest);
            if key.section.kind.as_str() == Kind::MODULE {
                named.extend(self.blobs_of(&stub.digest).await?.iter().copied());
            }
        }
        named.sort_unstable();
        named.dedup();
        Ok(named.into())
    }

    async fn blobs_of(&self, object: &Digest) -> Result<Arc<BTreeSet<Digest>>, StoreError> {
        if let Some(known) = self.blobs.get(object) {
            return Ok(known);
        }
        let content = self.store.content(object, None).await?.unwrap_or_default();
        let blobs = Arc::new(blobs_named(&content));
        self.blobs.put(*object, blobs.clone());
        Ok(blobs)
    }
}
