//! Sets and what they entitle to, read from the store and kept within bounds.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::descent::MAX_OBJECTS;
use model::exchange::SetOffer;
use model::object::{MAX_INLINE, blobs_named};
use model::{Digest, Kind, ObjectSet};
use plane::{SetBase, SetWanted};
use store::{Store, StoreError};
use trust::nix::{MAX_SET_PATHS, StorePath, store_paths_in};

use crate::cache::{ByteCache, HeldBytes};

/// The sets kept, in bytes.
const SETS_BYTES: u64 = 128 * 1024 * 1024;
/// What an object of a set takes in memory.
const OBJECT_BYTES: u64 = 352;
/// What sets entitle to, in bytes: the largest set by itself, with a blob for each of its objects.
const ENTITLED_BYTES: u64 = 2 * (MAX_OBJECTS * size_of::<Digest>()) as u64 + ENTITLED_ROOM;
/// What keeping that costs besides.
const ENTITLED_ROOM: u64 = 64 * 1024;
/// The lists of blobs kept, in bytes.
const BLOBS_BYTES: u64 = 16 * 1024 * 1024;
/// What a blob takes in such a list.
const BLOB_BYTES: u64 = 48;
/// The lists of paths of the Nix store kept, in bytes.
const STORE_PATHS_BYTES: u64 = 4 * 1024 * 1024;
/// The most bytes of contents that one answer carries; the rest is fetched.
const MAX_INLINE_TOTAL: u64 = 256 * 1024;

impl HeldBytes for Arc<ObjectSet> {
    fn held_bytes(&self) -> u64 {
        self.len() as u64 * OBJECT_BYTES
    }
}

impl HeldBytes for Arc<[Digest]> {
    fn held_bytes(&self) -> u64 {
        size_of_val(&**self) as u64
    }
}

impl HeldBytes for Arc<BTreeSet<Digest>> {
    fn held_bytes(&self) -> u64 {
        self.len() as u64 * BLOB_BYTES
    }
}

impl HeldBytes for Arc<[StorePath]> {
    fn held_bytes(&self) -> u64 {
        self.iter().map(|path| (size_of::<StorePath>() + path.name().len()) as u64).sum()
    }
}

/// Why it is not known what a set entitles to.
enum NotEntitled {
    UnknownSet,
    Store(StoreError),
}

/// Sets by root, and the blobs that an object's content names.
pub(crate) struct ReleaseSets {
    store: Arc<Store>,
    sets: ByteCache<Arc<ObjectSet>>,
    /// By root: every content that a set names, as an object's or as a blob of one, in order. A set that is too large
    /// to be kept has its list here all the same.
    entitled: ByteCache<Arc<[Digest]>>,
    blobs: ByteCache<Arc<BTreeSet<Digest>>>,
    /// By digest of an object's content.
    store_paths: ByteCache<Arc<[StorePath]>>,
}

impl ReleaseSets {
    pub(crate) fn new(store: Arc<Store>) -> ReleaseSets {
        ReleaseSets::within(store, SETS_BYTES)
    }

    /// With so many bytes of sets.
    fn within(store: Arc<Store>, sets_bytes: u64) -> ReleaseSets {
        let (sets, blobs) = (ByteCache::new(sets_bytes), ByteCache::new(BLOBS_BYTES));
        let store_paths = ByteCache::new(STORE_PATHS_BYTES);
        ReleaseSets { store, sets, entitled: ByteCache::new(ENTITLED_BYTES), blobs, store_paths }
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
            SetBase::Offered(root) => Some(root),
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
    /// once, and not for each content; who asks meanwhile waits for that.
    pub(crate) async fn entitles(&self, root: &Digest, content: &Digest) -> Result<bool, StoreError> {
        let read = async {
            match self.get(root).await.map_err(NotEntitled::Store)? {
                Some(set) => self.named_by(&set).await.map_err(NotEntitled::Store),
                None => Err(NotEntitled::UnknownSet),
            }
        };
        match self.entitled.get_or_read(root, read).await {
            Ok(entitled) => Ok(entitled.binary_search(content).is_ok()),
            Err(NotEntitled::UnknownSet) => Ok(false),
            Err(NotEntitled::Store(error)) => Err(error),
        }
    }

    /// The paths of the Nix store that a set names (ROL-9): those whose text is in its modules or params, whatever
    /// expression leads from there to a resource. At most [`MAX_SET_PATHS`], the first ones: the compiler refuses a set
    /// with more. Empty where the set is not known here.
    pub(crate) async fn store_paths(&self, root: &Digest) -> Result<BTreeSet<StorePath>, StoreError> {
        let mut named = BTreeSet::new();
        let Some(set) = self.get(root).await? else { return Ok(named) };
        for (key, stub) in set.objects() {
            if matches!(key.section.kind.as_str(), Kind::MODULE | Kind::PARAMS) {
                named.extend(self.store_paths_of(&stub.digest).await?.iter().cloned());
            }
        }
        Ok(named.into_iter().take(MAX_SET_PATHS).collect())
    }

    async fn store_paths_of(&self, object: &Digest) -> Result<Arc<[StorePath]>, StoreError> {
        if let Some(known) = self.store_paths.get(object) {
            return Ok(known);
        }
        let content = self.store.content(object, None).await?.unwrap_or_default();
        let named: Arc<[StorePath]> = store_paths_in(&content).into_iter().take(MAX_SET_PATHS).collect();
        self.store_paths.put(*object, named.clone());
        Ok(named)
    }

    /// Every content that a set names, in order.
    async fn named_by(&self, set: &ObjectSet) -> Result<Arc<[Digest]>, StoreError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use model::{ObjectKey, Stub, chunk};

    use super::*;
    use crate::state::now;

    /// ROL-9: a set that names ever so many paths has no closures looked through but those of the first.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_set_entitles_to_a_bounded_number_of_closures() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path().join("muster.db")).unwrap());
        let naming = |from: usize, to: usize| {
            let paths = (from..to).map(|number| format!("/nix/store/{number:032}-p"));
            Bytes::from(paths.collect::<Vec<_>>().join(" "))
        };
        let contents = [naming(100, 170), naming(0, 10)];
        let [module, params] = &contents;
        let objects = [(Kind::MODULE, module), (Kind::PARAMS, params)];
        let object = |(kind, content): (&str, &Bytes)| (ObjectKey::of(kind, "node"), Stub::of(content));
        let set = ObjectSet::of(objects.map(object));
        store.put_contents(contents.to_vec(), now()).await.unwrap();
        store.put_chunks(vec![chunk::of_set(&set)], now()).await.unwrap();
        let sets = ReleaseSets::new(store);
        let named = sets.store_paths(&set.root()).await.unwrap();
        let numbers = (0..10).chain(100..100 + MAX_SET_PATHS - 10);
        let wanted: Vec<String> = numbers.map(|number| format!("{number:032}")).collect();
        let hashes: Vec<&str> = named.iter().map(StorePath::hash).collect();
        assert_eq!(hashes, wanted);
    }

    /// IDN-5, SCL-1: what a set entitles to is known though the set is too large to be kept, and a root that is not
    /// known yet entitles once it is.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_set_that_is_too_large_to_be_kept_is_looked_through_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path().join("muster.db")).unwrap());
        let content = Bytes::from_static(b"{}");
        let digest = Digest::of(&content);
        let set = ObjectSet::of([(ObjectKey::of(Kind::PARAMS, "node"), Stub::of(&content))]);
        let (root, sets) = (set.root(), ReleaseSets::within(store.clone(), 1));
        assert!(!sets.entitles(&root, &digest).await.unwrap());
        store.put_contents(vec![content], now()).await.unwrap();
        store.put_chunks(vec![chunk::of_set(&set)], now()).await.unwrap();
        assert!(sets.entitles(&root, &digest).await.unwrap());
        assert!(sets.sets.get(&root).is_none(), "it is not kept");
        assert_eq!(sets.entitled.get(&root).as_deref(), Some(&[digest][..]));
        assert!(!sets.entitles(&root, &Digest::of(b"another")).await.unwrap());
    }
}
