//! [`ByteCache`]: what was read, by digest or another key, bounded in bytes. What is asked for again stays;
//! what was read once goes first (S3-FIFO), so that a walk over a whole fleet drives nothing out.

use std::hash::Hash;

use model::Digest;
use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

/// What an entry takes besides its value: key, links, the table's room. In bytes.
const ENTRY_BYTES: u64 = 96;
/// Of how many bytes an entry is taken to be when room for the table is made.
const USUAL_ENTRY: u64 = 1024;

/// A value that knows what it takes.
pub(crate) trait HeldBytes {
    /// In bytes, about.
    fn held_bytes(&self) -> u64;
}

/// Values by digest, or by another key of a few bytes.
pub(crate) struct ByteCache<V: HeldBytes + Clone, K: Hash + Eq + Clone = Digest> {
    cache: Cache<K, V, ByBytes>,
}

#[derive(Clone)]
struct ByBytes;

impl<K, V: HeldBytes> Weighter<K, V> for ByBytes {
    fn weight(&self, _: &K, value: &V) -> u64 {
        ENTRY_BYTES + value.held_bytes()
    }
}

impl<V: HeldBytes + Clone, K: Hash + Eq + Clone> ByteCache<V, K> {
    /// Keeps at most so many bytes.
    pub(crate) fn new(bytes: u64) -> ByteCache<V, K> {
        let items = usize::try_from(bytes / USUAL_ENTRY).unwrap_or(usize::MAX);
        let mut options = OptionsBuilder::new();
        // One shard: a value of many has to fit into its own.
        options.shards(1).weight_capacity(bytes).estimated_items_capacity(items);
        let cache = match options.build() {
            Ok(options) => Cache::with_options(options, ByBytes, Default::default(), Default::default()),
            // Both capacities are set, and nothing else can be missing.
            Err(_) => Cache::with_weighter(items, bytes, ByBytes),
        };
        ByteCache { cache }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key)
    }

    /// What is kept, or what is read now; who asks for the same meanwhile waits for it.
    pub(crate) async fn get_or_read<E>(
        &self,
        key: &K,
        read: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        self.cache.get_or_insert_async(key, read).await
    }

    pub(crate) fn put(&self, key: K, value: V) {
        self.cache.insert(key, value);
    }

    /// Keeps nothing of what was put.
    pub(crate) fn clear(&self) {
        self.cache.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    impl HeldBytes for Arc<[u8]> {
        fn held_bytes(&self) -> u64 {
            self.len() as u64
        }
    }

    fn key(number: u32) -> Digest {
        Digest::of(&number.to_be_bytes())
    }

    #[test]
    fn the_bound_is_of_bytes_and_what_is_asked_for_again_stays() {
        let cache = ByteCache::<Arc<[u8]>>::new(64 * 1024);
        let value = |size: usize| -> Arc<[u8]> { vec![0; size].into() };
        cache.put(key(0), value(1000));
        for number in 1..10_000 {
            cache.put(key(number), value(1000));
            assert!(cache.get(&key(0)).is_some(), "{number}: one that is wanted all the time is kept");
        }
        let kept = (0..10_000).filter(|number| cache.cache.peek(&key(*number)).is_some()).count();
        assert!((30..=60).contains(&kept), "{kept} of 1,096 bytes each in 64 KiB");
        cache.put(key(10_001), value(70_000));
        assert!(cache.get(&key(10_001)).is_none(), "one over the bound is not kept");
    }
}
