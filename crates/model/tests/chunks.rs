//! DLT-3, DLT-4: trees travel and are kept in chunks, each named by the hash that it stands for.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::chunk::{self, ChunkError, TreeChunk};
use model::descent::{self, Descent, DescentError, MAX_OBJECTS};
use model::object::SectionKey;
use model::selection::PatternEntry;
use model::set::leaf;
use model::trie::{Top, Trie};
use model::{Digest, Kind, ObjectKey, ObjectSet, Selection, SelectionEntry, Stub};

type Store = BTreeMap<Digest, TreeChunk>;

fn set(modules: u32) -> ObjectSet {
    let module = |i: u32| (ObjectKey::of(Kind::MODULE, &format!("m{i}")), Stub::of(&i.to_be_bytes()));
    let policy = (ObjectKey::of(Kind::POLICY, "channel"), Stub { uid: "u".into(), ..Stub::of(b"p") });
    ObjectSet::of((0..modules).map(module).chain([policy]))
}

/// All chunks of a set, as an upload walks them, each checked against its name.
fn store_set(set: &ObjectSet, store: &mut Store) {
    put(store, set.root(), chunk::of_set(set));
    for (section, trie) in set.sections() {
        store_trie(section, trie, store);
    }
}

fn store_trie(section: &SectionKey, trie: &Trie, store: &mut Store) {
    let Some(chunk) = chunk::of_trie(section, trie) else { return };
    put(store, trie.hash(), chunk);
    if let Top::Branch(children) = trie.top() {
        children.iter().for_each(|child| store_trie(section, child, store));
    }
}

/// The set of a root, by a descent from nothing.
fn read_set(root: &Digest, store: &Store) -> Result<ObjectSet, DescentError> {
    descent::read_set(root, &mut |name| Ok(store.get(name).cloned()))
}

fn read(mut descent: Descent, store: &Store) -> Result<ObjectSet, DescentError> {
    loop {
        let needs: Vec<Digest> = descent.needs().collect();
        if needs.is_empty() {
            return descent.into_set();
        }
        for hash in needs {
            descent.supply(store.get(&hash).ok_or(DescentError::Missing(hash))?.clone())?;
        }
    }
}

fn put(store: &mut Store, name: Digest, chunk: TreeChunk) {
    assert_eq!(chunk.hash().unwrap(), name, "a chunk is named by its hash");
    let wire = serde_json::to_string(&chunk).unwrap();
    assert_eq!(serde_json::from_str::<TreeChunk>(&wire).unwrap(), chunk);
    store.insert(name, chunk);
}

#[test]
fn a_set_comes_back_whole() {
    for modules in [0, 1, 2, 8, 9, 200, 3000] {
        let (set, mut store) = (set(modules), Store::new());
        store_set(&set, &mut store);
        let read = read_set(&set.root(), &store).unwrap();
        assert_eq!(read.root(), set.root());
        assert!(read.objects().eq(set.objects()));
    }
}

#[test]
fn what_a_chunk_needs_is_all_that_is_below_it() {
    let (set, mut store) = (set(200), Store::new());
    store_set(&set, &mut store);
    let (mut todo, mut contents) = (vec![set.root()], BTreeMap::new());
    while let Some(name) = todo.pop() {
        let needs = store[&name].needs();
        todo.extend(needs.chunks);
        contents.extend(needs.contents);
    }
    let stubs = set.objects().map(|(_, stub)| (stub.digest, stub.size));
    assert_eq!(contents, stubs.collect());
}

#[test]
fn an_edit_makes_few_new_chunks() {
    let (old, mut store) = (set(5000), Store::new());
    store_set(&old, &mut store);
    let before = store.len();
    let mut new = old.clone();
    new.insert(ObjectKey::of(Kind::MODULE, "m77"), Stub::of(b"edited"));
    store_set(&new, &mut store);
    assert!(store.len() - before <= 5, "{} new chunks for one edit", store.len() - before);
}

#[test]
fn a_missing_chunk_is_named() {
    let (set, mut store) = (set(200), Store::new());
    store_set(&set, &mut store);
    for name in store.keys().copied().collect::<Vec<_>>() {
        let mut others = store.clone();
        // Chunks of one-object sections are held by the set's own.
        let needed =
            name == set.root() || set.sections().any(|(_, trie)| trie.len() > 1 && holds(trie, &name));
        others.remove(&name);
        let read = read_set(&set.root(), &others);
        assert_eq!(read.err(), needed.then_some(DescentError::Missing(name)));
    }
}

fn holds(trie: &Trie, name: &Digest) -> bool {
    let below = match trie.top() {
        Top::Branch(children) => children.iter().any(|child| holds(child, name)),
        Top::Bucket(_) => false,
    };
    trie.hash() == *name || below
}

#[test]
fn a_selection_has_the_root_that_its_chunk_says() {
    let entry = SelectionEntry { channel: "main".parse().unwrap(), root: set(3).root() };
    let exact = (0..100).map(|i| Selection::leaf(&format!("n{i}").parse().unwrap(), &entry));
    let pattern =
        PatternEntry { pattern: "edge-*".into(), except: vec!["edge-1".into()], entry: entry.clone() };
    let selection = Selection::new(Trie::build(exact), vec![pattern]);
    let top = chunk::of_selection(&selection);
    assert_eq!(top.hash().unwrap(), selection.root().unwrap());
    assert_eq!(top.needs().chunks, [selection.exact().hash(), entry.root]);
    let mut store = Store::new();
    store_trie(&Selection::section(), selection.exact(), &mut store);
    let section = Selection::section();
    let roots = [(section.clone(), selection.exact().hash())];
    let read = read(Descent::new(roots, ObjectSet::new(), MAX_OBJECTS).unwrap(), &store).unwrap();
    assert_eq!(&read.section(&section), selection.exact());
    // Leaves of a selection are sets, not contents.
    assert!(store.values().all(|chunk| chunk.needs().contents.is_empty()));
}

#[test]
fn malformed_chunks_are_refused() {
    let leaf_chunk = |name: &str| chunk::LeafChunk { name: name.into(), stub: Stub::of(name.as_bytes()) };
    let bucket = |names: &[String]| TreeChunk::Bucket {
        kind: "Module".into(),
        namespace: String::new(),
        leaves: names.iter().map(|name| leaf_chunk(name)).collect(),
    };
    let mut sorted: Vec<String> = (0..9).map(|i| format!("n{i}")).collect();
    sorted.sort_by_key(|name| Digest::of(name.as_bytes()));
    let backwards: Vec<String> = sorted.iter().take(3).rev().cloned().collect();
    let section = |kind: &str, root: bool, leaf: bool| chunk::SectionChunk {
        kind: kind.into(),
        namespace: String::new(),
        root: root.then_some(Digest::ZERO),
        leaf: leaf.then(|| leaf_chunk("x")),
    };
    let many = (0..=model::set::MAX_SECTIONS).map(|i| section(&format!("k{i:05}"), true, false)).collect();
    for (what, chunk) in [
        ("an empty bucket", bucket(&[])),
        ("nine leaves", bucket(&sorted)),
        ("leaves backwards", bucket(&backwards)),
        ("a leaf twice", bucket(&[sorted[0].clone(), sorted[0].clone()])),
        (
            "sections backwards",
            TreeChunk::Set { sections: vec![section("b", true, false), section("a", true, false)] },
        ),
        (
            "a section twice",
            TreeChunk::Set { sections: vec![section("a", true, false), section("a", true, false)] },
        ),
        ("root and leaf", TreeChunk::Set { sections: vec![section("a", true, true)] }),
        ("neither", TreeChunk::Set { sections: vec![section("a", false, false)] }),
        ("too many sections", TreeChunk::Set { sections: many }),
    ] {
        assert!(matches!(chunk.hash(), Err(ChunkError::Malformed(_))), "{what}");
    }
}

#[test]
fn a_tree_of_the_wrong_form_is_not_read() {
    let key = SectionKey::of(Kind::MODULE);
    let few = Trie::build([leaf(&key, "only".into(), Stub::of(b"1"))]);
    let mut children = [Digest::ZERO; 16];
    let nibble = model::trie::nibble_at(&Digest::of(b"only"), 0);
    children[nibble] = few.hash();
    let branch = TreeChunk::Branch { children: Box::new(children) };
    let name = branch.hash().unwrap();
    let mut store = Store::from([(name, branch)]);
    store_trie(&key, &few, &mut store);
    let descent = |root| Descent::new([(key.clone(), root)], ObjectSet::new(), MAX_OBJECTS).unwrap();
    let malformed = |why| Some(DescentError::Chunk(ChunkError::Malformed(why)));
    assert_eq!(read(descent(name), &store).err(), malformed("a branch of too few leaves"));
    assert_eq!(read(descent(few.hash()), &store).unwrap().section(&key), few);
    let top = chunk::of_set(&ObjectSet::new());
    assert_eq!(descent(name).supply(top).err(), malformed("not a trie"));
    let fifteen = serde_json::json!({ "t": "branch", "children": vec![Digest::ZERO; 15] });
    assert!(serde_json::from_value::<TreeChunk>(fifteen).is_err());
}
