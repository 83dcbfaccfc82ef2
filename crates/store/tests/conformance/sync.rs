//! Synchronization: SYN-4, SYN-6.

use bytes::Bytes;
use model::condition::{Difference, Direction, Evidence, SyncCause, SyncCondition};
use model::object::SectionKey;
use model::{Kind, NodeId, ObjectKey, Stub};
use sync::FeedCursor;
use sync::feed::ObjectState;
use sync::{Change, Content, Saved, SavedFeed, SavedReplica, Side, Write};

use super::fixture::{DAY, at, enrolled, incarnation, new_node, token};
use store::Retention;
use store::{MAX_CHANGES_IN_WRITE, Store, StoreError};
use store::{ObjectFilter, SyncProgress};

fn key(kind: &str, namespace: &str, name: &str) -> ObjectKey {
    let section = SectionKey { kind: Kind::new(kind), namespace: namespace.into() };
    ObjectKey { section, name: name.into() }
}

fn content(text: &str) -> Content {
    let trace = (!text.is_empty()).then(|| format!("00-{text}"));
    Content { bytes: Bytes::from(text.to_owned()), trace, at: 1234 }
}

fn stub(uid: &str, text: &str) -> Stub {
    Stub { uid: uid.into(), ..Stub::of(text.as_bytes()) }
}

fn live(rev: u64, born: u64, name: &str, text: &str) -> (Change, Option<Content>) {
    let state = ObjectState::Live { stub: stub("u", text), born };
    (Change { rev, key: key("Job", "a", name), state }, Some(content(text)))
}

fn gone(rev: u64, name: &str) -> (Change, Option<Content>) {
    (Change { rev, key: key("Job", "a", name), state: ObjectState::Deleted { uid: "u".into() } }, None)
}

fn put(name: &str, rev: u64, text: &str) -> (ObjectKey, Option<(Stub, u64, Content)>) {
    (key("Job:status", "b", name), Some((stub("s", text), rev, content(text))))
}

fn cursor(name: &str, seq: u64) -> Option<FeedCursor> {
    Some(FeedCursor::at(incarnation(name), seq))
}

/// The same in the middle of a pass.
fn in_pass(name: &str, revision: u64) -> Option<FeedCursor> {
    let order = ::sync::cursor::KindOrder(0xfeed);
    let pass = ::sync::PassPosition { to: revision + 9, rank: 3, revision: revision + 2, order };
    Some(FeedCursor { pass: Some(pass), ..cursor(name, revision)? })
}

fn sorted(mut saved: Saved) -> Saved {
    if let Some(feed) = &mut saved.feed {
        feed.changes.sort_by(|a, b| a.key.cmp(&b.key));
    }
    saved.replica.objects.sort_by(|a, b| a.0.cmp(&b.0));
    saved
}

async fn load(store: &Store, node: &NodeId) -> Saved {
    sorted(store.sync_load(node).await.unwrap())
}

pub(super) async fn sets_are_kept(store: &Store) {
    let node = enrolled(store, 1).await;
    let other = enrolled(store, 2).await;
    assert_eq!(load(store, &node).await, Saved::default());
    let first = Write {
        begin: Some(incarnation("f1")),
        feed: vec![live(1, 1, "a", "one"), live(2, 2, "b", ""), live(3, 1, "a", "two"), gone(4, "b")],
        replica: vec![put("x", 7, "xx"), put("y", 8, "yy")],
        cursor: in_pass("t1", 8),
        ..Write::default()
    };
    store.sync_write(&node, first.clone(), at(1)).await.unwrap();
    let expected = Saved {
        feed: Some(SavedFeed {
            incarnation: incarnation("f1"),
            head: 4,
            compacted: 0,
            changes: vec![live(3, 1, "a", "two").0, gone(4, "b").0],
        }),
        replica: SavedReplica {
            cursor: in_pass("t1", 8),
            objects: vec![
                (key("Job:status", "b", "x"), stub("s", "xx"), 7),
                (key("Job:status", "b", "y"), stub("s", "yy"), 8),
            ],
        },
    };
    assert_eq!(load(store, &node).await, expected);
    assert_eq!(load(store, &other).await, Saved::default(), "each node has its own");

    let asked = vec![key("Job", "a", "a"), key("Job", "a", "b"), key("Job", "a", "c"), key("No", "", "a")];
    let found = store.sync_contents(&node, Side::Feed, asked.clone()).await.unwrap();
    assert_eq!(found, [Some(content("two")), None, None, None]);
    assert_eq!(store.sync_contents(&node, Side::Replica, asked).await.unwrap(), [None, None, None, None]);
    let theirs = vec![key("Job:status", "b", "y")];
    assert_eq!(store.sync_contents(&node, Side::Replica, theirs).await.unwrap(), [Some(content("yy"))]);

    let second = Write {
        feed: vec![live(5, 5, "b", "again"), gone(6, "a")],
        compacted: Some(4),
        replica: vec![(key("Job:status", "b", "x"), None), (key("No", "", "x"), None), put("y", 9, "")],
        ..Write::default()
    };
    store.sync_write(&node, second, at(2)).await.unwrap();
    let saved = load(store, &node).await;
    let feed = saved.feed.unwrap();
    assert_eq!((feed.head, feed.compacted), (6, 4));
    assert_eq!(feed.changes, [gone(6, "a").0, live(5, 5, "b", "again").0]);
    assert_eq!(saved.replica.cursor, in_pass("t1", 8), "a write without one leaves it");
    assert_eq!(saved.replica.objects, [(key("Job:status", "b", "y"), stub("s", ""), 9)]);
    let empty = store.sync_contents(&node, Side::Replica, vec![key("Job:status", "b", "y")]).await.unwrap();
    assert_eq!(empty, [Some(content(""))]);

    // Tombstones up to the compacted go, those beyond it stay.
    let third = Write { feed: vec![gone(7, "b")], compacted: Some(6), ..Write::default() };
    store.sync_write(&node, third, at(3)).await.unwrap();
    assert_eq!(load(store, &node).await.feed.unwrap().changes, [gone(7, "b").0]);
}

pub(super) async fn a_side_is_forgotten_whole(store: &Store) {
    let node = enrolled(store, 1).await;
    let first = Write {
        begin: Some(incarnation("f1")),
        feed: vec![live(1, 1, "a", "one"), gone(2, "b")],
        replica: vec![put("x", 7, "xx")],
        cursor: in_pass("t1", 8),
        ..Write::default()
    };
    store.sync_write(&node, first, at(1)).await.unwrap();
    let progress = SyncProgress { node: node.clone(), acked: cursor("f1", 2), condition: None };
    store.sync_progress(vec![progress]).await.unwrap();
    let anew =
        Write { begin: Some(incarnation("f2")), feed: vec![live(1, 1, "c", "new")], ..Write::default() };
    store.sync_write(&node, anew, at(2)).await.unwrap();
    let saved = load(store, &node).await;
    let feed = saved.feed.unwrap();
    assert_eq!((feed.incarnation, feed.head, feed.compacted), (incarnation("f2"), 1, 0));
    assert_eq!(feed.changes, [live(1, 1, "c", "new").0]);
    assert_eq!((saved.replica.cursor, saved.replica.objects.len()), (in_pass("t1", 8), 1));
    assert_eq!(store.sync_heads().await.unwrap()[0].1.acked, None, "that was another incarnation");

    let forget = Write { forget_replica: true, replica: vec![put("z", 1, "zz")], ..Write::default() };
    store.sync_write(&node, forget, at(3)).await.unwrap();
    let saved = load(store, &node).await;
    assert_eq!(saved.feed.unwrap().head, 1);
    assert_eq!(saved.replica.cursor, None);
    assert_eq!(saved.replica.objects, [(key("Job:status", "b", "z"), stub("s", "zz"), 1)]);
    let asked = vec![key("Job:status", "b", "x"), key("Job:status", "b", "z")];
    let found = store.sync_contents(&node, Side::Replica, asked).await.unwrap();
    assert_eq!(found, [None, Some(content("zz"))]);
}

pub(super) async fn an_unsound_write_changes_nothing(store: &Store) {
    let node = enrolled(store, 1).await;
    let unsound = async |write: Write| {
        let refused = store.sync_write(&node, write, at(5)).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unsound(_)), "{refused:?}");
    };
    unsound(Write { feed: vec![live(1, 1, "a", "a")], ..Write::default() }).await;
    unsound(Write { compacted: Some(0), ..Write::default() }).await;
    assert_eq!(load(store, &node).await, Saved::default());
    assert_eq!(store.sync_heads().await.unwrap(), []);
    let first =
        Write { begin: Some(incarnation("f1")), feed: vec![live(1, 1, "a", "a")], ..Write::default() };
    store.sync_write(&node, first, at(1)).await.unwrap();
    let before = load(store, &node).await;
    let also = || vec![put("x", 1, "x")];
    for ours in [
        vec![live(1, 1, "b", "b")],
        vec![live(3, 3, "b", "b")],
        vec![live(2, 2, "b", "b"), live(4, 4, "c", "c")],
        vec![live(2, 2, "b", "b"), live(2, 2, "c", "c")],
        vec![(live(2, 2, "b", "b").0, None)],
        vec![(live(2, 2, "b", "b").0, Some(content("bb")))],
        vec![(gone(2, "a").0, Some(content("")))],
    ] {
        unsound(Write { feed: ours, replica: also(), cursor: cursor("t", 1), ..Write::default() }).await;
    }
    unsound(Write { compacted: Some(2), replica: also(), ..Write::default() }).await;
    unsound(Write { begin: Some(incarnation("f2")), feed: vec![live(2, 2, "b", "b")], ..Write::default() })
        .await;
    let wrong = (key("Job:status", "b", "x"), Some((stub("s", "xx"), 1, content("x"))));
    unsound(Write { forget_replica: true, replica: vec![wrong], ..Write::default() }).await;
    assert_eq!(load(store, &node).await, before);

    let stranger = new_node(9).node_id;
    let refused = store.sync_write(&stranger, Write::default(), at(1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::UnknownNode(_)), "{refused:?}");
    let refused = store.sync_load(&stranger).await.unwrap_err();
    assert!(matches!(refused, StoreError::UnknownNode(_)), "{refused:?}");
    let many = (0..=MAX_CHANGES_IN_WRITE).map(|n| (key("Job", "", &n.to_string()), None)).collect();
    let refused =
        store.sync_write(&node, Write { replica: many, ..Write::default() }, at(1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
}

pub(super) async fn heads_say_how_far_each_is(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    let three = enrolled(store, 3).await;
    assert_eq!(store.sync_heads().await.unwrap(), []);
    let first = Write {
        begin: Some(incarnation("f1")),
        feed: vec![
            live(1, 1, "a", "a"),
            live(2, 2, "b", "b"),
            gone(3, "a"),
            gone(4, "c"),
            live(5, 5, "c", "c"),
        ],
        replica: vec![put("x", 1, "x"), put("y", 1, "y"), put("x", 2, "xx")],
        ..Write::default()
    };
    store.sync_write(&one, first, at(1)).await.unwrap();
    let second = Write { replica: vec![put("x", 1, "x")], cursor: cursor("t", 4), ..Write::default() };
    store.sync_write(&two, second, at(2)).await.unwrap();
    let acked = [(&one, "f1", 3), (&one, "f0", 9), (&two, "f1", 3), (&new_node(9).node_id, "f1", 3)];
    let acked = acked.map(|(node, incarnation, seq)| SyncProgress {
        node: node.clone(),
        acked: cursor(incarnation, seq),
        condition: None,
    });
    store.sync_progress(acked.to_vec()).await.unwrap();

    let found = |cause| Some(SyncCondition::new(cause, Some(at(5))));
    let difference = Difference::DeletionsUnconfirmed { kept: 3, of: 4 };
    let out_of_sync = found(SyncCause::OutOfSync { direction: Direction::Up, difference });
    let evidence = Evidence {
        at: at(4),
        instance: "i1".to_owned(),
        down: cursor("f1", 3).map(|cursor| cursor.checkpoint()),
        up: None,
    };
    let in_sync = found(SyncCause::InSync(evidence));
    let unknown = new_node(9).node_id;
    let conditions = [
        (&one, &out_of_sync),
        (&two, &out_of_sync),
        (&two, &in_sync),
        (&unknown, &out_of_sync),
        (&three, &in_sync),
    ];
    let conditions = conditions.map(|(node, condition)| SyncProgress {
        node: node.clone(),
        acked: None,
        condition: condition.clone(),
    });
    store.sync_progress(conditions.to_vec()).await.unwrap();
    // A write takes nothing of it away.
    let third = Write { feed: vec![live(6, 6, "d", "d")], ..Write::default() };
    store.sync_write(&one, third, at(1)).await.unwrap();

    let heads = store.sync_heads().await.unwrap();
    assert!(heads.is_sorted_by(|a, b| a.0 < b.0));
    let of = |node: &NodeId| heads.iter().find(|(id, _)| id == node).unwrap().1.clone();
    let head = of(&one);
    assert_eq!((head.feed, head.replica, head.acked), (cursor("f1", 6), None, cursor("f1", 3)));
    assert_eq!((head.feed_objects, head.replica_objects, head.changed), (3, 2, at(1)));
    let head = of(&two);
    assert_eq!((head.feed, head.replica, head.acked), (None, cursor("t", 4), None));
    assert_eq!((head.feed_objects, head.replica_objects, head.changed), (0, 1, at(2)));
    assert_eq!(heads.len(), 3);
    let conditions = [of(&one).condition, of(&two).condition, of(&three).condition];
    assert_eq!(conditions, [out_of_sync, in_sync.clone(), in_sync]);
    assert_eq!((of(&three).feed, of(&three).replica), (None, None), "nothing else is known of it");
}

pub(super) async fn objects_are_listed_in_pages(store: &Store) {
    let nodes = [enrolled(store, 1).await, enrolled(store, 2).await, enrolled(store, 3).await];
    for (n, node) in nodes.iter().enumerate() {
        let kinds = ["Job", "App"];
        let names = ["a", "b", "c"];
        let mut rev = 0;
        let mut ours = Vec::new();
        for (kind, name) in kinds.iter().flat_map(|kind| names.map(|name| (*kind, name))) {
            rev += 1;
            let state = ObjectState::Live { stub: stub("u", name), born: rev };
            ours.push((Change { rev, key: key(kind, &format!("ns-{n}"), name), state }, Some(content(name))));
        }
        let ended = ObjectState::Deleted { uid: "u".into() };
        ours.push((Change { rev: rev + 1, key: key("Job", &format!("ns-{n}"), "c"), state: ended }, None));
        let theirs = vec![put("a", 1, "x"), put("z", 2, "z")];
        let write = Write { begin: Some(incarnation("f")), feed: ours, replica: theirs, ..Write::default() };
        store.sync_write(node, write, at(1)).await.unwrap();
    }
    store.remove_node(&nodes[2], at(2)).await.unwrap();
    let list = async |filter: &ObjectFilter, step: usize| {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = store.sync_objects(filter.clone(), after, step).await.unwrap();
            assert!(page.len() <= step);
            let Some(last) = page.last() else { return all };
            after = Some(last.position());
            all.extend(page);
        }
    };
    let any = ObjectFilter::default();
    let all = list(&any, 1000).await;
    assert_eq!(all.len(), 2 * (5 + 2), "no tombstones, and nothing of a removed node");
    assert!(all.is_sorted_by(|a, b| a.position() < b.position()));
    for step in 1..5 {
        assert_eq!(list(&any, step).await, all, "in pages of {step}");
    }
    let record = all.iter().find(|r| r.side == Side::Replica && &*r.key.name == "z").unwrap();
    assert_eq!((record.rev, record.at.0, record.trace.as_deref()), (2, 1234, Some("00-z")));
    assert_eq!(record.stub, stub("s", "z"));

    let filters = [
        ObjectFilter { node: Some(nodes[1].clone()), ..any.clone() },
        ObjectFilter { node: Some(nodes[2].clone()), ..any.clone() },
        ObjectFilter { side: Some(Side::Replica), ..any.clone() },
        ObjectFilter { kind: Some(Kind::new("Job")), ..any.clone() },
        ObjectFilter { namespace: Some("ns-1".into()), ..any.clone() },
        ObjectFilter { name: Some("a".into()), ..any.clone() },
        ObjectFilter { kind: Some(Kind::new("App")), name: Some("b".into()), ..any.clone() },
    ];
    for filter in filters {
        let mut expected = all.clone();
        expected.retain(|record| {
            filter.node.as_ref().is_none_or(|node| *node == record.node)
                && filter.side.is_none_or(|side| side == record.side)
                && filter.kind.as_ref().is_none_or(|kind| *kind == record.key.section.kind)
                && filter.namespace.as_ref().is_none_or(|name| **name == *record.key.section.namespace)
                && filter.name.as_ref().is_none_or(|name| **name == *record.key.name)
        });
        for step in [1, 3, 1000] {
            assert_eq!(list(&filter, step).await, expected, "{filter:?} in pages of {step}");
        }
    }
}

pub(super) async fn a_removed_node_leaves_no_objects(store: &Store) {
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    let write = || Write {
        begin: Some(incarnation("f1")),
        feed: vec![live(1, 1, "a", "a"), gone(2, "b")],
        replica: vec![put("x", 1, "x")],
        cursor: cursor("t", 1),
        ..Write::default()
    };
    for node in [&one, &two] {
        store.sync_write(node, write(), at(1)).await.unwrap();
        store.remove_node(node, at(2)).await.unwrap();
        let refused = store.sync_write(node, Write::default(), at(3)).await.unwrap_err();
        assert!(matches!(refused, StoreError::UnknownNode(_)), "{refused:?}");
        assert!(store.sync_load(node).await.is_err());
        assert!(store.sync_contents(node, Side::Feed, vec![key("Job", "a", "a")]).await.is_err());
    }
    assert_eq!(store.sync_heads().await.unwrap(), []);

    // One comes back: it begins from nothing.
    store.enroll(new_node(1), token("back"), at(4)).await.unwrap();
    assert_eq!(load(store, &one).await, Saved::default());
    store.sync_write(&one, write(), at(5)).await.unwrap();

    let pruned = store.prune(at(6), Retention::default()).await.unwrap();
    assert_eq!((pruned.objects, pruned.nodes), (2, 0), "the objects of the other; its history stays");
    assert_eq!(load(store, &one).await.feed.unwrap().head, 2);
    let pruned = store.prune(at(400 * DAY), Retention::default()).await.unwrap();
    assert_eq!((pruned.objects, pruned.nodes), (0, 1));
}
