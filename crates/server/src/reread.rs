//! Reading a new selection beside a known one, so that a small release of a large fleet costs
//! what differs: subtrees that both have are shared, in the reading and in memory.

use std::collections::BTreeMap;

use model::chunk::{Chunk, ChunkError};
use model::trie::{Top, Trie};
use model::{Digest, Selection, set};
use store::{Store, StoreError};

/// Beyond this many chunks that differ, the whole is read at once instead.
const MAX_CHUNKS: usize = 2000;

/// What a walk found.
#[derive(Default)]
struct Found {
    chunks: BTreeMap<Digest, Chunk>,
    /// Subtrees of the known selection that stand in the new one too.
    shared: BTreeMap<Digest, Trie>,
}

/// Reads a selection by root; `None` when it is not stored.
pub(crate) async fn selection(
    store: &dyn Store,
    known: Option<&Selection>,
    root: &Digest,
) -> Result<Option<Selection>, StoreError> {
    if let Some(known) = known
        && let Some(Chunk::Selection { exact, patterns }) = store.chunk(root).await?
        && let Some(found) = differing(store, known.exact(), exact).await?
        && let Ok(exact) = build(&exact, &found)
    {
        return Ok(Some(Selection::new(exact, patterns)));
    }
    store.selection(root).await
}

/// The chunks of a trie that a known one lacks; `None` when there are too many, or one is
/// missing.
async fn differing(store: &dyn Store, known: &Trie, root: Digest) -> Result<Option<Found>, StoreError> {
    let mut found = Found::default();
    let mut places = vec![(root, known.clone())];
    while let Some((digest, known)) = places.pop() {
        if digest == known.hash() {
            found.shared.insert(digest, known);
            continue;
        }
        if digest == Digest::ZERO {
            continue;
        }
        let Some(chunk) = store.chunk(&digest).await? else { return Ok(None) };
        if let Chunk::Branch { children } = &chunk {
            for (nibble, child) in children.iter().enumerate() {
                let beside = match known.top() {
                    Top::Branch(tries) => tries.get(nibble).cloned().unwrap_or_default(),
                    Top::Bucket(_) => Trie::default(),
                };
                places.push((*child, beside));
            }
        }
        found.chunks.insert(digest, chunk);
        if found.chunks.len() > MAX_CHUNKS {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

fn build(root: &Digest, found: &Found) -> Result<Trie, ChunkError> {
    if *root == Digest::ZERO {
        return Ok(Trie::default());
    }
    if let Some(shared) = found.shared.get(root) {
        return Ok(shared.clone());
    }
    match found.chunks.get(root).ok_or(ChunkError::Missing(*root))? {
        Chunk::Bucket { leaves, .. } => {
            let section = Selection::section();
            let leaves = leaves.iter().map(|leaf| set::leaf(&section, leaf.name.clone(), leaf.stub.clone()));
            Ok(Trie::build(leaves))
        }
        Chunk::Branch { children } => {
            let mut tries: [Trie; 16] = Default::default();
            for (trie, child) in tries.iter_mut().zip(children) {
                *trie = build(child, found)?;
            }
            Trie::of_children(tries).ok_or(ChunkError::Malformed("a branch of too few leaves"))
        }
        Chunk::Set { .. } | Chunk::Selection { .. } => Err(ChunkError::Malformed("not a trie")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use bytes::Bytes;
    use model::chunk;
    use model::selection::Entry;
    use model::{Kind, ObjectKey, ObjectSet, Stub, Timestamp};
    use store::MemoryStore;

    use super::*;

    /// A selection of these hosts, each with a set that holds a number; stored.
    async fn stored(store: &MemoryStore, hosts: &[(u32, u32)]) -> Selection {
        let (mut chunks, mut contents, mut leaves) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (host, value) in hosts {
            let content = Bytes::from(value.to_string());
            let set = ObjectSet::of([(ObjectKey::of(Kind::PARAMS, "node"), Stub::of(&content))]);
            let entry = Entry { channel: "stable".parse().unwrap(), root: set.root() };
            leaves.push(Selection::leaf(&format!("h{host}.test").parse().unwrap(), &entry));
            chunks.push(chunk::of_set(&set));
            contents.insert(content);
        }
        let selection = Selection::new(Trie::build(leaves), Vec::new());
        let mut tries = vec![selection.exact().clone()];
        while let Some(trie) = tries.pop() {
            chunks.extend(chunk::of_trie(&Selection::section(), &trie));
            if let Top::Branch(children) = trie.top() {
                tries.extend(children.iter().cloned());
            }
        }
        chunks.push(chunk::of_selection(&selection));
        store.put_contents(contents.into_iter().collect(), Timestamp(0)).await.unwrap();
        store.put_chunks(chunks, Timestamp(0)).await.unwrap();
        selection
    }

    fn fleet(edit: impl Fn(u32) -> Option<u32>) -> Vec<(u32, u32)> {
        (0..1000).filter_map(|host| Some((host, edit(host)?))).collect()
    }

    #[tokio::test]
    async fn what_is_read_beside_a_known_selection_is_what_is_stored() {
        let store = MemoryStore::default();
        let known = stored(&store, &fleet(|_| Some(1))).await;
        let edits: [&dyn Fn(u32) -> Option<u32>; 5] = [
            &|_| Some(1),
            &|host| Some(if host == 7 { 2 } else { 1 }),
            &|host| (host != 7).then_some(1),
            &|host| (host < 3).then_some(1),
            &|_| None,
        ];
        for edit in edits {
            let new = stored(&store, &fleet(edit)).await;
            let root = new.root().unwrap();
            for known in [None, Some(&known)] {
                let read = selection(&store, known, &root).await.unwrap().unwrap();
                assert_eq!(read.root().unwrap(), root);
                assert!(read.exact().leaves().eq(new.exact().leaves()));
            }
        }
    }

    #[tokio::test]
    async fn one_node_of_many_is_read_by_its_path() {
        let store = MemoryStore::default();
        let known = stored(&store, &fleet(|_| Some(1))).await;
        let new = stored(&store, &fleet(|host| Some(if host == 7 { 2 } else { 1 }))).await;
        let found = differing(&store, known.exact(), new.exact().hash()).await.unwrap().unwrap();
        assert!(found.chunks.len() <= 4, "{} chunks", found.chunks.len());
    }

    #[tokio::test]
    async fn what_is_not_stored_is_none() {
        let store = MemoryStore::default();
        let known = stored(&store, &fleet(|_| Some(1))).await;
        assert_eq!(selection(&store, Some(&known), &Digest::of(b"nothing")).await.unwrap(), None);
    }
}
