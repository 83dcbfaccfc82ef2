//! DLT-3, SYN-6: a descent finds what two maps differ in, by either addressing, and asks only for
//! what differs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use model::chunk::{self, LeafChunk, TreeChunk};
use model::descent::{self, Descent, DescentError, Found, Frontier, MAX_DEPTH};
use model::object::SectionKey;
use model::set::leaf;
use model::trie::{BUCKET, Leaf, Top, Trie, TrieNode, bucket_hash};
use model::{Digest, ObjectKey, ObjectSet, Stub};
use proptest::prelude::*;

type Map = BTreeMap<ObjectKey, Stub>;

fn section(number: usize) -> SectionKey {
    SectionKey::of(["Module", "Params", "Peer"][number])
}

fn key(section_number: usize, name: u16) -> ObjectKey {
    ObjectKey { section: section(section_number), name: format!("name-{name}").into() }
}

fn maps() -> impl Strategy<Value = Map> {
    let one = (0..3_usize, 0..400_u16, 0..3_u8).prop_map(|(s, n, c)| (key(s, n), Stub::of(&[c])));
    prop::collection::btree_map(one.clone().prop_map(|(key, _)| key), one.prop_map(|(_, stub)| stub), 0..300)
}

/// Two maps that have much in common.
fn pairs() -> impl Strategy<Value = (Map, Map)> {
    let edits = prop::collection::vec((0..3_usize, 0..400_u16, 0..4_u8), 0..30);
    (maps(), edits).prop_map(|(known, edits)| {
        let mut source = known.clone();
        for (section, name, content) in edits {
            match content {
                0 => drop(source.remove(&key(section, name))),
                content => drop(source.insert(key(section, name), Stub::of(&[content]))),
            }
        }
        (source, known)
    })
}

fn set(map: &Map) -> ObjectSet {
    ObjectSet::of(map.clone())
}

fn roots(set: &ObjectSet) -> Vec<(SectionKey, Digest)> {
    set.sections().map(|(section, trie)| (section.clone(), trie.hash())).collect()
}

/// All nodes of a set, as a store has them.
fn nodes(set: &ObjectSet) -> BTreeMap<Digest, TreeChunk> {
    fn store(section: &SectionKey, trie: &Trie, nodes: &mut BTreeMap<Digest, TreeChunk>) {
        nodes.extend(chunk::of_trie(section, trie).map(|chunk| (trie.hash(), chunk)));
        if let Top::Branch(children) = trie.top() {
            children.iter().for_each(|child| store(section, child, nodes));
        }
    }
    let mut nodes = BTreeMap::new();
    set.sections().for_each(|(section, trie)| store(section, trie, &mut nodes));
    nodes
}

/// Supplies all that is needed, by hash; says how many nodes and rounds it took.
fn by_hash(mut descent: Descent, source: &ObjectSet) -> (Descent, usize, usize) {
    let (nodes, mut asked, mut rounds) = (nodes(source), BTreeSet::new(), 0);
    loop {
        let needs: Vec<Digest> = descent.needs().collect();
        if needs.is_empty() {
            return (descent, asked.len(), rounds);
        }
        rounds += 1;
        for hash in needs {
            assert!(asked.insert(hash), "{hash} is asked for twice");
            descent.supply(nodes[&hash].clone()).unwrap();
        }
    }
}

/// The same by section and path, a few at a time.
fn by_path(mut descent: Descent, source: &ObjectSet, most: usize) -> Descent {
    while let Some((section, paths)) = descent.needs_at(most) {
        assert!(!paths.is_empty() && paths.len() <= most);
        for path in paths {
            let node = TrieNode::of(&source.section(&section).at(&path));
            descent.supply_at(&section, &path, node).unwrap();
        }
    }
    descent
}

fn keys<L: std::ops::Deref<Target = Leaf>>(leaves: &[(SectionKey, L)]) -> Vec<ObjectKey> {
    leaves.iter().map(|(section, leaf)| descent::key_of(section, leaf)).collect()
}

fn check(found: Found, source: &Map, known: &Map) {
    let differing: Map = found
        .differing
        .iter()
        .map(|(section, leaf)| (descent::key_of(section, leaf), leaf.stub.clone()))
        .collect();
    assert_eq!(differing.len(), found.differing.len(), "each once");
    let expected = source.iter().filter(|(key, stub)| known.get(key) != Some(stub));
    assert_eq!(differing, expected.map(|(key, stub)| (key.clone(), stub.clone())).collect());
    let mut orphans = keys(&found.orphans);
    orphans.sort();
    let expected: Vec<_> = known.keys().filter(|key| !source.contains_key(key)).cloned().collect();
    assert_eq!(orphans, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_differs_is_found_by_hash_and_by_path((source, known) in pairs(), most in 1..40_usize) {
        let (theirs, mine) = (set(&source), set(&known));
        let descent = || Descent::new(roots(&theirs), mine.clone(), 2000).unwrap();
        let (by_hash, asked, rounds) = by_hash(descent(), &theirs);
        prop_assert!(rounds <= MAX_DEPTH);
        let shared = nodes(&mine);
        let own = nodes(&theirs).keys().filter(|hash| !shared.contains_key(*hash)).count();

        prop_assert!(asked <= own, "{asked} nodes for {own} that differ");
        check(by_hash.finish().unwrap(), &source, &known);
        check(by_path(descent(), &theirs, most).finish().unwrap(), &source, &known);
        prop_assert_eq!(by_path(descent(), &theirs, most).into_set().unwrap(), theirs);
    }

    #[test]
    fn two_unrelated_sets_are_compared((source, known) in (maps(), maps())) {
        let (theirs, mine) = (set(&source), set(&known));
        let TreeChunk::Set { sections } = chunk::of_set(&theirs) else { unreachable!() };
        let (descent, ..) = by_hash(Descent::of_set(sections, mine, 2000).unwrap(), &theirs);
        check(descent.finish().unwrap(), &source, &known);
    }

    #[test]
    fn a_node_that_is_not_the_one_named_is_refused((source, known) in pairs(), other in maps()) {
        let (theirs, mine, other) = (set(&source), set(&known), set(&other));
        let mut descent = Descent::new(roots(&theirs), mine, 2000).unwrap();
        let Some((section, paths)) = descent.needs_at(1) else { return Ok(()) };
        let wanted = theirs.section(&section).at(&paths[0]);
        let wrong = other.section(&section);
        prop_assume!(wrong.hash() != wanted.hash());
        let refused = descent.supply_at(&section, &paths[0], TrieNode::of(&wrong)).unwrap_err();
        prop_assert_eq!(refused, DescentError::Unwanted(wrong.hash()));
        // Nor is the right one at another path or in another section.
        for (at, path) in [(section.clone(), vec![1, 2, 3]), (SectionKey::of("Other"), paths[0].clone())] {
            let refused = descent.supply_at(&at, &path, TrieNode::of(&wanted));
            prop_assert!(matches!(refused, Err(DescentError::Unwanted(_))));
        }
        // Nothing of it was taken.
        check(by_path(descent, &theirs, 7).finish().unwrap(), &source, &known);
    }
}

fn many(count: u16) -> ObjectSet {
    set(&(0..count).map(|name| (key(0, name), Stub::of(b"x"))).collect())
}

#[test]
fn a_source_of_too_many_objects_is_refused() {
    let source = many(3000);
    let descent = |most| Descent::new(roots(&source), ObjectSet::new(), most).unwrap();
    assert_eq!(by_path(descent(3000), &source, 64).finish().unwrap().differing.len(), 3000);
    let mut small = descent(2999);
    let refused = loop {
        let (section, paths) = small.needs_at(64).expect("it is refused before it ends");
        let supplied = paths.iter().try_for_each(|path| {
            let node = TrieNode::of(&source.section(&section).at(path));
            small.supply_at(&section, path, node)
        });
        if let Err(refused) = supplied {
            break refused;
        }
    };
    assert_eq!(refused, DescentError::TooMany(2999));
}

/// A source that branches for ever costs no more nodes than its bound.
#[test]
fn endless_branches_are_bounded() {
    let mut hash = Digest::of(b"bottom");
    let mut branches = Vec::new();
    for _ in 0..200 {
        let children = Box::new(std::array::from_fn(|child| match child {
            0 => hash,
            child => Digest::of_parts([hash.as_bytes().as_slice(), &[child as u8]]),
        }));
        hash = TrieNode::branch_hash(&children);
        branches.push(TreeChunk::Branch { children });
    }
    let mut descent = Descent::new([(section(0), hash)], ObjectSet::new(), 2000).unwrap();
    let mut supplied = branches.iter().rev().map(|branch| descent.supply(branch.clone()));
    assert_eq!(
        supplied.by_ref().take_while(Result::is_ok).count(),
        MAX_DEPTH,
        "paths of 64 nibbles are the longest"
    );
    drop(supplied);
    assert_eq!(descent.needs().count(), 15 * MAX_DEPTH);
    // Of so few objects there are not so many sections and nodes.
    let wide: Vec<_> = (0..5000_u16).map(|n| (SectionKey::of(&format!("K{n}")), hash)).collect();
    assert_eq!(Descent::new(wide.clone(), ObjectSet::new(), 10).err(), None, "one hash is one node");
    let wide = wide.into_iter().zip(0_u16..).map(|((key, _), n)| (key, Digest::of(&n.to_be_bytes())));
    assert_eq!(Descent::new(wide, ObjectSet::new(), 10).err(), Some(DescentError::TooMany(10)));
}

#[test]
fn a_leaf_hangs_only_where_its_name_puts_it() {
    let section = section(0);
    let bucket = Trie::build([leaf(&section, "stray".into(), Stub::of(b"1"))]);
    let right = model::trie::nibble_at(&Digest::of(b"stray"), 0);
    for at in 0..16 {
        let mut children = Box::new([Digest::ZERO; 16]);
        children[at] = bucket.hash();
        let root = TrieNode::branch_hash(&children);
        let mut descent = Descent::new([(section.clone(), root)], ObjectSet::new(), 10).unwrap();
        descent.supply_at(&section, &[], TrieNode::Branch(children)).unwrap();
        let supplied = descent.supply_at(&section, &[at as u8], TrieNode::of(&bucket));
        assert_eq!(supplied.is_ok(), at == right, "{at}");
        let leaves = |names: &[&str]| {
            let one = |name: &&str| LeafChunk { name: (*name).into(), stub: Stub::of(b"1") };
            TrieNode::Bucket(names.iter().map(one).collect())
        };
        let twice = leaves(&["stray", "stray"]);
        assert!(matches!(descent.supply_at(&section, &[at as u8], twice), Err(DescentError::Chunk(_))));
    }
}

#[test]
fn a_bucket_has_only_so_many_leaves() {
    let section = section(0);
    let bucket = |count: usize| {
        let mut leaves: Vec<LeafChunk> =
            (0..count).map(|n| LeafChunk { name: format!("n{n}").into(), stub: Stub::of(b"1") }).collect();
        leaves.sort_by_key(|leaf| Digest::of(leaf.name.as_bytes()));
        let hashed = leaves.iter().map(|one| leaf(&section, one.name.clone(), one.stub.clone()));
        (bucket_hash(hashed.map(|leaf| (leaf.position, leaf.hash))), TrieNode::Bucket(leaves))
    };
    for (count, fits) in [(BUCKET, true), (BUCKET + 1, false)] {
        let (root, node) = bucket(count);
        let mut descent = Descent::new([(section.clone(), root)], ObjectSet::new(), 10).unwrap();
        assert_eq!(descent.supply_at(&section, &[], node).is_ok(), fits, "{count} leaves");
    }
}

#[test]
fn an_unfinished_descent_names_what_is_missing() {
    let source = many(20);
    let root = source.section(&section(0)).hash();
    let descent = || Descent::new(roots(&source), ObjectSet::new(), 100).unwrap();
    assert_eq!(descent().finish().err(), Some(DescentError::Missing(root)));
    assert_eq!(descent().into_set().err(), Some(DescentError::Missing(root)));
    assert_eq!(Descent::new(roots(&source), source.clone(), 100).unwrap().needs().count(), 0);
}

#[test]
fn a_frontier_holds_each_hash_once() {
    let mut frontier = Frontier::default();
    let hashes = [b"a", b"b", b"c"].map(|name| Digest::of(name));
    hashes.iter().for_each(|hash| frontier.add(*hash, ()));
    let first = frontier.take(2);
    assert_eq!(first.len(), 2);
    hashes.iter().for_each(|hash| frontier.add(*hash, ()));
    assert_eq!(frontier.take(10).len(), 1);
    assert!(frontier.take(10).is_empty());
}
