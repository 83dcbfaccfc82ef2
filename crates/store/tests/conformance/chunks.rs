//! Chunks and contents.

use bytes::Bytes;
use model::Digest;
use model::chunk::TreeChunk;

use super::fixture::{self, at, put, tree};
use store::{PutError, Store, StoreError};

pub(super) async fn contents_are_served_in_ranges(store: &Store) {
    let large: Bytes = (0..100_000u32).flat_map(u32::to_be_bytes).collect::<Vec<u8>>().into();
    let contents = vec![Bytes::from_static(b"small"), Bytes::new(), large.clone()];
    let digests = store.put_contents(contents.clone(), at(0)).await.unwrap();
    assert_eq!(digests, contents.iter().map(|content| Digest::of(content)).collect::<Vec<_>>());
    for (digest, content) in digests.iter().zip(&contents) {
        assert_eq!(store.content(digest, None).await.unwrap().as_ref(), Some(content));
        assert_eq!(store.content_size(digest).await.unwrap(), Some(content.len() as u64));
    }
    let part = store.content(&digests[2], Some(200_000..200_010)).await.unwrap().unwrap();
    assert_eq!(part, large.slice(200_000..200_010));
    let cut = store.content(&digests[2], Some(399_998..500_000)).await.unwrap().unwrap();
    assert_eq!(cut, large.slice(399_998..));
    let beyond = store.content(&digests[2], Some(500_000..500_001)).await.unwrap().unwrap();
    assert!(beyond.is_empty());
    let other = Digest::of(b"other");
    assert_eq!(store.content(&other, None).await.unwrap(), None);
    assert_eq!(store.content_size(&other).await.unwrap(), None);
    let missing = store.missing_contents(vec![other, digests[0], digests[1]], at(1)).await.unwrap();
    assert_eq!(missing, [other]);
}

pub(super) async fn chunks_are_closed(store: &Store) {
    let tree = tree(30, "a");
    let last = tree.chunks.last().unwrap();
    let (below, needs) = (&tree.chunks[..tree.chunks.len() - 1], last.needs());

    let refused = store.put_chunks(vec![last.clone()], at(0)).await.unwrap_err();
    let PutError::NotComplete { chunks, contents } = refused else { panic!("{refused:?}") };
    assert_eq!((chunks, contents), (needs.chunks, vec![]));

    let refused = store.put_chunks(tree.chunks.clone(), at(0)).await.unwrap_err();
    let PutError::NotComplete { chunks, contents } = refused else { panic!("{refused:?}") };
    let mut wanted: Vec<Digest> = tree.contents.iter().map(|content| Digest::of(content)).collect();
    wanted.sort();
    assert_eq!((chunks, contents), (vec![], wanted), "all that is missing, in order");
    assert_eq!(store.chunk(&tree.root).await.unwrap(), None, "nothing of a refused put is stored");

    store.put_contents(tree.contents.clone(), at(0)).await.unwrap();
    let mut backwards = below.to_vec();
    backwards.reverse();
    store.put_chunks(backwards, at(0)).await.unwrap();
    assert_eq!(store.put_chunks(vec![last.clone()], at(0)).await.unwrap(), [tree.root]);
    assert_eq!(store.chunk(&tree.root).await.unwrap().as_ref(), Some(last));
    let other = Digest::of(b"other");
    assert_eq!(store.missing_chunks(vec![tree.root, other], at(1)).await.unwrap(), [other]);
    // Again is fine.
    store.put_chunks(tree.chunks.clone(), at(1)).await.unwrap();
    assert_eq!(store.integrity().await.unwrap(), Vec::<String>::new());
}

pub(super) async fn bad_chunks_are_refused(store: &Store) {
    let refused = store.put_chunks(vec![empty_bucket()], at(0)).await.unwrap_err();
    assert!(matches!(refused, PutError::Malformed(_)), "{refused:?}");

    // A tower of branches with one child each would have a reader recurse without end.
    let mut children = Box::new([Digest::ZERO; 16]);
    let tree = tree(1, "a");
    put(store, &tree, at(0)).await;
    children[0] = tree.root;
    for _ in 0..300 {
        let chunk = TreeChunk::Branch { children: children.clone() };
        let hash = chunk.hash().unwrap();
        match store.put_chunks(vec![chunk], at(0)).await {
            Ok(_) => children[0] = hash,
            Err(refused) => {
                assert!(matches!(refused, PutError::Malformed(_)), "{refused:?}");
                children[0] = Digest::ZERO;
                break;
            }
        }
    }
    assert_eq!(children[0], Digest::ZERO, "a tower of 300 chunks was accepted");

    // The same in one call.
    let mut chunks = Vec::new();
    children[0] = tree.root;
    for _ in 0..store::MAX_CHUNKS_IN_PUT {
        let chunk = TreeChunk::Branch { children: children.clone() };
        children[0] = chunk.hash().unwrap();
        chunks.push(chunk);
    }
    let refused = store.put_chunks(chunks, at(0)).await.unwrap_err();
    assert!(matches!(refused, PutError::Malformed(_)), "{refused:?}");

    // A content of another size than the chunk says.
    let Some(TreeChunk::Set { mut sections }) =
        store.chunk(&tree.sets.values().next().unwrap().root()).await.unwrap()
    else {
        panic!("the set is there")
    };
    let params = sections.iter_mut().find(|section| section.kind == "Params").unwrap();
    params.leaf.as_mut().unwrap().stub.size += 1;
    let refused = store.put_chunks(vec![TreeChunk::Set { sections }], at(0)).await.unwrap_err();
    assert!(matches!(refused, PutError::WrongSize { .. }), "{refused:?}");

    let many =
        vec![TreeChunk::Branch { children: Box::new([Digest::ZERO; 16]) }; store::MAX_CHUNKS_IN_PUT + 1];
    let refused = store.put_chunks(many, at(0)).await.unwrap_err();
    assert!(matches!(refused, PutError::Store(StoreError::TooLarge { .. })), "{refused:?}");
    let large = Bytes::from(vec![0; usize::try_from(model::object::MAX_BLOB).unwrap() + 1]);
    let refused = store.put_contents(vec![large], at(0)).await.unwrap_err();
    assert!(matches!(refused, PutError::Store(StoreError::TooLarge { .. })), "{refused:?}");
}

/// What is malformed as soon as it is looked at.
fn empty_bucket() -> TreeChunk {
    TreeChunk::Bucket { kind: "Module".into(), namespace: String::new(), leaves: Vec::new() }
}

pub(super) async fn trees_are_read_back(store: &Store) {
    let tree = tree(50, "a");
    put(store, &tree, at(0)).await;
    let others = [fixture::tree(50, "b"), fixture::tree(3, "a"), fixture::tree(0, "a")];
    for other in &others {
        put(store, other, at(0)).await;
    }
    // Beside whatever is known, a selection is what is stored.
    for known in others.iter().map(|other| Some(&other.selection)).chain([Some(&tree.selection), None]) {
        let selection = store.selection(&tree.root, known).await.unwrap().unwrap();
        assert_eq!(selection, tree.selection);
        assert!(selection.exact().leaves().eq(tree.selection.exact().leaves()));
    }
    for set in tree.sets.values() {
        assert_eq!(store.set(&set.root()).await.unwrap().as_ref(), Some(set));
    }
    assert_eq!(store.set(&Digest::of(b"other")).await.unwrap(), None);
    assert_eq!(store.selection(&Digest::of(b"other"), None).await.unwrap(), None);
    let wrong = store.set(&tree.root).await.unwrap_err();
    assert!(matches!(wrong, StoreError::Malformed { .. }), "{wrong:?}");
}
