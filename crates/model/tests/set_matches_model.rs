//! DLT-2, DLT-3: a set behaves as a map; its root is a function of what it holds, and a
//! difference costs what differs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::object::SectionKey;
use model::set::leaf;
use model::trie::Trie;
use model::{Delta, Edit, Kind, ObjectKey, ObjectSet, Stub};
use proptest::prelude::*;

type Map = BTreeMap<ObjectKey, Stub>;

#[derive(Clone, Debug)]
enum Step {
    Insert(ObjectKey, Stub),
    Remove(ObjectKey),
}

fn key(kind: u8, namespace: u8, name: u16) -> ObjectKey {
    let kind = Kind::new(["Module", "Params", "Peer"][usize::from(kind % 3)]);
    let namespace = ["", "eu"][usize::from(namespace % 2)].into();
    ObjectKey { section: SectionKey { kind, namespace }, name: format!("name-{name}").into() }
}

fn stub(content: u8, uid: u8) -> Stub {
    let stub = Stub::of(&[content]);
    Stub { uid: if uid == 0 { "".into() } else { format!("u{uid}").into() }, ..stub }
}

fn keys() -> impl Strategy<Value = ObjectKey> {
    // Few sections and few names, so that buckets split and join again.
    (0..3_u8, 0..2_u8, 0..60_u16).prop_map(|(kind, namespace, name)| key(kind, namespace, name))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let insert =
        (keys(), 0..4_u8, 0..3_u8).prop_map(|(key, content, uid)| Step::Insert(key, stub(content, uid)));
    prop::collection::vec(prop_oneof![3 => insert, 2 => keys().prop_map(Step::Remove)], 0..150)
}

fn take(steps: &[Step]) -> (ObjectSet, Map) {
    let (mut set, mut map) = (ObjectSet::new(), Map::new());
    for step in steps {
        match step.clone() {
            Step::Insert(key, stub) => {
                set.insert(key.clone(), stub.clone());
                map.insert(key, stub);
            }
            Step::Remove(key) => {
                set.remove(&key);
                map.remove(&key);
            }
        }
    }
    (set, map)
}

fn content(set: &ObjectSet) -> Map {
    set.objects().map(|(key, stub)| (key, stub.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_set_is_the_map_of_its_edits(steps in steps()) {
        let (set, map) = take(&steps);
        prop_assert_eq!(content(&set), map.clone());
        prop_assert_eq!((set.len(), set.is_empty()), (map.len(), map.is_empty()));
        for (key, stub) in &map {
            prop_assert_eq!(set.get(key), Some(stub));
        }
        let absent = key(2, 1, 999);
        prop_assert_eq!(set.get(&absent), None);
    }

    #[test]
    fn the_root_knows_content_and_no_history(steps in steps(), seed in any::<u64>()) {
        let (set, map) = take(&steps);
        let mut shuffled: Vec<_> = map.clone().into_iter().collect();
        shuffled.sort_by_key(|(key, _)| model::Digest::of(format!("{seed}{key}").as_bytes()));
        let mut grown = ObjectSet::new();
        for (key, stub) in shuffled.clone() {
            grown.insert(key, stub);
        }
        prop_assert_eq!(ObjectSet::of(shuffled).root(), set.root());
        prop_assert_eq!(grown.root(), set.root());
    }

    #[test]
    fn other_content_has_another_root(a in steps(), b in steps()) {
        let ((set_a, map_a), (set_b, map_b)) = (take(&a), take(&b));
        prop_assert_eq!(map_a == map_b, set_a.root() == set_b.root());
    }

    #[test]
    fn a_difference_leads_there_and_back(a in steps(), b in steps()) {
        let ((set_a, map_a), (set_b, map_b)) = (take(&a), take(&b));
        let there = set_a.delta_to(&set_b);
        prop_assert_eq!(&there, &Delta::between(&map_a, &map_b));
        let arrived = set_a.apply(&there).unwrap();
        prop_assert_eq!(arrived.root(), set_b.root());
        prop_assert_eq!(content(&arrived), map_b);
        prop_assert_eq!(arrived.apply(&set_b.delta_to(&set_a)).unwrap().root(), set_a.root());
        let wire = serde_json::to_string(&there).unwrap();
        prop_assert_eq!(serde_json::from_str::<model::SetDelta>(&wire).unwrap(), there);
    }

    #[test]
    fn a_difference_from_elsewhere_is_refused_whole(a in steps(), b in steps()) {
        let ((set_a, _), (set_b, map_b)) = (take(&a), take(&b));
        let delta = set_a.delta_to(&set_b);
        prop_assume!(!delta.is_empty());
        // Where it already leads, no edit finds its old state.
        prop_assert!(set_b.apply(&delta).is_err());
        prop_assert_eq!(content(&set_b), map_b);
    }
}

#[test]
fn a_wrong_size_does_not_stand_in_the_way() {
    let (name, good) = (ObjectKey::of(Kind::MODULE, "web"), stub(1, 0));
    let odd = ObjectSet::of([(name.clone(), Stub { size: 9999, ..good.clone() })]);
    let right = ObjectSet::of([(name.clone(), good)]);
    assert_eq!(odd.root(), right.root(), "no hash covers the size");
    let next = ObjectSet::of([(name.clone(), stub(2, 0))]);
    assert_eq!(odd.apply(&right.delta_to(&next)).unwrap().get(&name), Some(&stub(2, 0)));
}

#[test]
fn equal_subtrees_are_not_entered() {
    let section = SectionKey::of(Kind::MODULE);
    let named = |i: u32, content: u8| leaf(&section, format!("n{i}").into(), stub(content, 0));
    let old = Trie::build((0..50_000).map(|i| named(i, 0)));
    let mut seen = 0;
    assert_eq!(Trie::diff(&old, &old.clone(), &mut |_, _| seen += 1), 1, "equal tops say it all");
    for edits in [1_u32, 10, 100] {
        let new = (0..edits).fold(old.clone(), |trie, i| trie.with(named(i * 37, 1)));
        seen = 0;
        let compared = Trie::diff(&old, &new, &mut |_, _| seen += 1);
        assert_eq!(seen, edits as usize);
        // Each edit opens at most one branch a level, with its sixteen children.
        let most = (edits as usize) * 5 * 17;
        assert!(compared <= most, "{compared} pairs for {edits} edits, at most {most} expected");
    }
}

#[test]
fn an_edit_is_added_changed_or_removed() {
    let name = ObjectKey::of(Kind::MODULE, "web");
    let (one, two) = (stub(1, 0), stub(2, 0));
    let set = |stubs: &[&Stub]| ObjectSet::of(stubs.iter().map(|stub| (name.clone(), (*stub).clone())));
    for (from, to, edit) in [
        (set(&[]), set(&[&one]), Edit::Add { to: one.clone() }),
        (set(&[&one]), set(&[&two]), Edit::Change { from: one.clone(), to: two.clone() }),
        (set(&[&two]), set(&[]), Edit::Remove { from: two.clone() }),
    ] {
        assert_eq!(from.delta_to(&to).edits, BTreeMap::from([(name.clone(), edit)]));
    }
    assert_eq!(set(&[&one, &two]).get(&name), Some(&two), "of two with one key the later counts");
    assert!(set(&[&one]).delta_to(&set(&[&one])).is_empty());
}

proptest! {
    #[test]
    fn many_edits_at_once_lead_where_single_ones_do(
        before in proptest::collection::btree_map(0_u16..400, 0_u8..3, 0..300),
        edits in proptest::collection::vec((0_u16..400, proptest::option::of(0_u8..3)), 0..300),
    ) {
        let name = |n: u16| ObjectKey::of(Kind::MODULE, &format!("n{n}"));
        let start = ObjectSet::of(before.into_iter().map(|(n, content)| (name(n), stub(content, 0))));
        let (mut bulk, mut single) = (start.clone(), start);
        for (n, content) in &edits {
            match content {
                Some(content) => single.insert(name(*n), stub(*content, 0)),
                None => single.remove(&name(*n)),
            }
        }
        bulk.edit_all(edits.into_iter().map(|(n, content)| (name(n), content.map(|content| stub(content, 0)))));
        prop_assert_eq!(bulk.root(), single.root());
        prop_assert_eq!(bulk.len(), single.len());
        let section = bulk.section(&SectionKey::of(Kind::MODULE));
        for path in [vec![], vec![3], vec![3, 1], vec![15, 0, 2]] {
            let under = |leaf: &&std::sync::Arc<model::trie::Leaf>| {
                path.iter().enumerate().all(|(depth, nibble)| model::trie::nibble_at(&leaf.position, depth) == usize::from(*nibble))
            };
            let expected: Vec<_> = section.leaves().filter(under).cloned().collect();
            prop_assert_eq!(section.at(&path).leaves().cloned().collect::<Vec<_>>(), expected);
        }
    }
}
