//! SYN-3, SYN-4: a feed holds each object once, at its newest change; commands under their own
//! names never coalesce; tombstones have a bound, and who is behind it is told apart.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use model::{Kind, ObjectKey, ObjectSet, Stub};
use proptest::prelude::*;
use sync::FeedCursor;
use sync::feed::{ObjectState, Resume};
use sync::{Change, Feed, SavedFeed};

fn key(n: u8) -> ObjectKey {
    ObjectKey::of(if n.is_multiple_of(2) { "App" } else { "Proj" }, &format!("n{n}"))
}

fn stub(uid: &str, content: u8) -> Stub {
    Stub { uid: uid.into(), ..Stub::of(&[content]) }
}

fn put(feed: &mut Feed, n: u8, uid: &str, content: u8) -> Option<Change> {
    let change = feed.planner().put(&key(n), &stub(uid, content)).unwrap();
    change.inspect(|change| {
        feed.commit(change.clone()).unwrap();
    })
}

#[test]
fn a_change_is_planned_only_where_something_changes() {
    let mut feed = Feed::new("l".parse().unwrap());
    assert_eq!(feed.planner().remove(&key(1)), None);
    let born = |change: Option<Change>| match change.unwrap().state {
        ObjectState::Live { born, .. } => born,
        ObjectState::Deleted { .. } => 0,
    };
    assert_eq!(born(put(&mut feed, 1, "a", 1)), 1);
    assert_eq!(put(&mut feed, 1, "a", 1), None, "equal");
    assert_eq!(born(put(&mut feed, 1, "a", 2)), 1, "the same object");
    assert_eq!(born(put(&mut feed, 1, "b", 2)), 3, "another uid is another object");
    let gone = feed.planner().remove(&key(1)).unwrap();
    assert_eq!(gone.state, ObjectState::Deleted { uid: "b".into() });
    assert!(feed.commit(Change { rev: 9, ..gone.clone() }).is_err(), "it must follow");
    feed.commit(gone).unwrap();
    assert_eq!(born(put(&mut feed, 1, "b", 2)), 5, "back again is born again");
}

#[test]
fn changes_planned_together_see_one_another() {
    let feed = Feed::new("l".parse().unwrap());
    let mut planner = feed.planner();
    let revs: Vec<Option<u64>> = [
        planner.put(&key(1), &stub("a", 1)).unwrap(),
        planner.put(&key(1), &stub("a", 1)).unwrap(),
        planner.put(&key(2), &stub("b", 1)).unwrap(),
        planner.remove(&key(1)),
        planner.remove(&key(1)),
    ]
    .into_iter()
    .map(|change| change.map(|change| change.rev))
    .collect();
    assert_eq!(revs, [Some(1), None, Some(2), Some(3), None]);
}

#[test]
fn where_a_replica_stands() {
    let mut feed = Feed::new("l".parse().unwrap()).keeping_tombstones(8);
    for n in 0..9 {
        put(&mut feed, n, "a", 1);
        let gone = feed.planner().remove(&key(n)).unwrap();
        feed.commit(gone).unwrap();
    }
    assert_eq!((feed.compacted(), feed.tombstones()), (4, 7), "an eighth goes at once");
    let at = |incarnation: &str, seq| feed.can_resume(&FeedCursor::at(incarnation.parse().unwrap(), seq));
    assert_eq!(at("l", 18), Resume::From(sync::Position::at(18)));
    assert_eq!(at("l", 4), Resume::From(sync::Position::at(4)));
    assert_eq!(at("l", 3), Resume::Behind);
    assert_eq!(at("l", 19), Resume::AheadOfHead);
    assert_eq!(at("m", 18), Resume::Behind);
}

proptest! {
    #[test]
    fn each_object_is_there_once_at_its_newest(steps in proptest::collection::vec((0_u8..12, proptest::option::of(0_u8..4)), 0..80)) {
        let mut feed = Feed::new("l".parse().unwrap());
        for (n, content) in steps {
            let change = match content {
                Some(content) => feed.planner().put(&key(n), &stub("u", content)).unwrap(),
                None => feed.planner().remove(&key(n)),
            };
            if let Some(change) = change {
                feed.commit(change).unwrap();
            }
        }
        let changes = feed.changes();
        prop_assert!(changes.windows(2).all(|pair| pair[0].rev < pair[1].rev));
        prop_assert_eq!(changes.len(), feed.len() + feed.tombstones());
        prop_assert_eq!(feed.count_after_without(0, &Kind::new("none")), changes.len() as u64 + feed.compacted());
        let objects: Vec<_> = feed.objects().map(|(key, stub)| (key.clone(), stub.clone())).collect();
        prop_assert_eq!(feed.totals().bytes, objects.iter().map(|(_, stub)| stub.size).sum::<u64>());
        prop_assert_eq!(feed.planner().totals(), feed.totals());
        prop_assert_eq!(feed.root(), ObjectSet::of(objects).root());
        let mut by_kind = 0;
        for kind in [Kind::new("App"), Kind::new("Proj")] {
            for live in [true, false] {
                let mut at = 0;
                while let Some((rev, _)) = feed.by_kind_after(&kind, live, at, feed.head()) {
                    (at, by_kind) = (rev, by_kind + 1);
                }
            }
        }
        prop_assert_eq!(by_kind, changes.len());
        let kept = SavedFeed {
            incarnation: feed.incarnation().clone(),
            head: feed.head(),
            compacted: feed.compacted(),
            changes: feed.changes().into_iter().rev().collect(),
        };
        let mut again = Feed::restore(kept);
        prop_assert_eq!(again.root(), feed.root());
        prop_assert_eq!(again.changes(), changes);
        let mut new = feed.reincarnate("m".parse().unwrap());
        prop_assert_eq!(new.root(), feed.root());
        prop_assert_eq!((new.head(), new.tombstones()), (feed.len() as u64, 0));
    }
}
