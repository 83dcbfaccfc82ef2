//! Sets and what they entitle to, read from the store and kept within bounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use model::exchange::SetOffer;
use model::object::{MAX_INLINE, blobs_named};
use model::{Digest, Kind, ObjectSet};
use plane::{SetBase, SetWanted};
use store::{Store, StoreError};

/// The most sets and the most blob lists kept.
const KEPT: usize = 1024;
/// The most bytes of contents that one answer carries; the rest is fetched.
const MAX_INLINE_TOTAL: u64 = 256 * 1024;

/// A bounded cache: the oldest entry leaves.
pub(crate) struct BoundedCache<V> {
    most: usize,
    entries: Mutex<(BTreeMap<Digest, V>, VecDeque<Digest>)>,
}

impl<V: Clone> BoundedCache<V> {
    pub(crate) fn new() -> BoundedCache<V> {
        BoundedCache::keeping(KEPT)
    }

    /// With another bound than the usual one.
    pub(crate) fn keeping(most: usize) -> BoundedCache<V> {
        BoundedCache { most, entries: Mutex::new((BTreeMap::new(), VecDeque::new())) }
    }

    pub(crate) fn get(&self, key: &Digest) -> Option<V> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).0.get(key).cloned()
    }

    pub(crate) fn put(&self, key: Digest, value: V) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (map, order) = &mut *entries;
        if map.insert(key, value).is_none() {
            order.push_back(key);
        }
        while map.len() > self.most {
            let Some(oldest) = order.pop_front() else { break };
            map.remove(&oldest);
        }
    }
}

/// Sets by root, and the blobs that an object's content names.
pub(crate) struct ReleaseSets {
    store: Arc<Store>,
    sets: BoundedCache<Arc<ObjectSet>>,
    blobs: BoundedCache<Arc<BTreeSet<Digest>>>,
}

impl ReleaseSets {
    pub(crate) fn new(store: Arc<Store>) -> ReleaseSets {
        ReleaseSets { store, sets: BoundedCache::new(), blobs: BoundedCache::new() }
    }

    /// A set by root; `None` when it is not known here.
    pub(crate) async fn get(&self, root: &Digest) -> Result<Option<Arc<ObjectSet>>, StoreError> {
        if let Some(known) = self.sets.get(root) {
            return Ok(Some(known));
        }
        let Some(set) = self.store.set(root).await? else { return Ok(None) };
        let set = Arc::new(set);
        self.sets.put(*root, set.clone());
        Ok(Some(set))
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

    /// Whether a set names a content: as an object's, or as a blob of one (IDN-5).
    pub(crate) async fn entitles(&self, root: &Digest, content: &Digest) -> Result<bool, StoreError> {
        let Some(set) = self.get(root).await? else { return Ok(false) };
        if set.objects().any(|(_, stub)| stub.digest == *content) {
            return Ok(true);
        }
        for (key, stub) in set.objects() {
            if key.section.kind.as_str() != Kind::MODULE {
                continue;
            }
            if self.blobs_of(&stub.digest).await?.contains(content) {
                return Ok(true);
            }
        }
        Ok(false)
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
