//! SYN-6: a resync goes by what the source has now: what came meanwhile is no orphan, what was fetched
//! and is not durable is fetched again, and kinds keep their order.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use std::sync::Arc;

use model::{Digest, Kind, ObjectKey, Stub};
use pair::{AGENT, PRINCIPAL, Pair, key, saved, saved_feed};
use sync::frame::{Checkpoint, Frame, PingOrder, ResyncRequest, ResyncResponse};
use sync::link::LinkCommand;
use sync::{Feed, FeedCursor, Mode, Replica};

const APP: &str = "Application";

/// A source of objects, and a node that lacks the first of them and has a stray one.
fn different() -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    for n in 0..10 {
        pair.put(PRINCIPAL, &key(APP, &format!("a{n}")), &format!("u{n}"), "content");
    }
    pair.connect();
    pair.disconnect();
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.objects.remove(0);
    saved.objects.push((key(APP, "stray"), Stub { uid: "s".into(), ..Stub::of(b"old") }, 1));
    pair.sides[AGENT].replica = Replica::restore(saved);
    pair.sides[AGENT].applied.clear();
    pair
}

/// The same once the node asked for what it lacks, and before the source answers.
fn under_way() -> Pair {
    let mut pair = different();
    pair.sides[PRINCIPAL].full = true;
    pair.connect();
    assert!(asked(&pair).any(|request| matches!(request, ResyncRequest::Objects(_))));
    pair
}

fn asked(pair: &Pair) -> impl Iterator<Item = &ResyncRequest> {
    pair.sides[AGENT].frames.iter().filter_map(|frame| match frame {
        Frame::ResyncRequest(request) => Some(&**request),
        _ => None,
    })
}

#[test]
fn an_orphan_goes() {
    let mut pair = under_way();
    pair.sides[PRINCIPAL].full = false;
    pair.run();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().orphans, 1);
}

#[test]
fn what_comes_back_while_sets_are_compared_is_no_orphan() {
    for (slow, behind) in [(false, false), (true, false), (true, true)] {
        let mut pair = under_way();
        pair.sides[AGENT].slow = slow;
        if behind {
            pair.put(PRINCIPAL, &key(APP, "before"), "b", "new");
        }
        pair.put(PRINCIPAL, &key(APP, "stray"), "s", "new");
        pair.sides[PRINCIPAL].full = false;
        pair.run();
        pair.sides[AGENT].slow = false;
        pair.run();
        assert!(pair.is_equal(PRINCIPAL));
        assert_eq!(pair.link(AGENT).counters().orphans, 0, "slow {slow}, behind another {behind}");
        let times = pair.sides[AGENT].applied.iter().filter(|key| &*key.name == "stray").count();
        assert_eq!(times, 1, "it is changed, and never deleted");
    }
}

#[test]
fn a_checkpoint_of_before_the_end_begins_no_other_resync() {
    let mut pair = under_way();
    let cursor = pair.sides[PRINCIPAL].feed.cursor();
    let older = Checkpoint { seq: 0, cursor, root: Digest::of(b"an older set") };
    pair.give(AGENT, sync::Input::Frame(Frame::Checkpoint(older)));
    pair.sides[PRINCIPAL].full = false;
    pair.run();
    assert!(pair.is_equal(PRINCIPAL));
    let counters = pair.link(AGENT).counters();
    assert_eq!((counters.resyncs, counters.checkpoints_different), (1, 1), "it is not compared");
}

#[test]
fn the_cursor_is_moved_by_the_resync_itself() {
    let mut pair = different();
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.cursor = Some(FeedCursor::at("other".parse().unwrap(), 7));
    pair.sides[AGENT].replica = Replica::restore(saved);
    pair.sides[PRINCIPAL].full = true;
    pair.connect();
    pair.drops = |_, frame| matches!(frame, Frame::Checkpoint(_));
    pair.sides[PRINCIPAL].full = false;
    pair.run();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.sides[AGENT].replica.cursor(), Some(&pair.sides[PRINCIPAL].feed.cursor()));
}

#[test]
fn what_was_fetched_and_is_not_durable_is_fetched_again() {
    let mut pair = under_way();
    (pair.sides[AGENT].slow, pair.sides[PRINCIPAL].full) = (true, false);
    pair.run();
    assert_eq!(pair.link(AGENT).under_way(), 1, "it is being applied");
    pair.disconnect();
    pair.sides[AGENT].slow = false;
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().resyncs, 1, "by one comparison");
}

#[test]
fn a_comparison_goes_on_with_the_set_that_it_began_with() {
    let mut pair = under_way();
    pair.disconnect();
    pair.sides[PRINCIPAL].full = false;
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert!(!asked(&pair).any(|request| *request == ResyncRequest::Sections), "it is not begun again");
}

/// Sections that were asked for twice, as where the first request was told to wait: the second answer says that
/// the set changed, and nothing else does.
#[test]
fn a_second_answer_of_sections_says_that_the_set_changed() {
    let mut pair = different();
    pair.drops = |to, frame| match frame {
        Frame::ResyncRequest(request) => to == PRINCIPAL && matches!(**request, ResyncRequest::Tops { .. }),
        Frame::Event(event) => to == AGENT && event.seq > 0,
        _ => false,
    };
    pair.connect();
    let tops = asked(&pair).find(|request| matches!(request, ResyncRequest::Tops { .. })).unwrap().clone();
    pair.put(PRINCIPAL, &key(APP, "late"), "late", "content");
    for request in [ResyncRequest::Sections, tops] {
        pair.give(PRINCIPAL, sync::Input::Frame(Frame::ResyncRequest(Box::new(request))));
    }
    pair.drops = |_, _| false;
    pair.run();
    assert_eq!(pair.sides[AGENT].closed, None, "the node is that of the newer set");
    assert!(pair.sides[AGENT].replica.get(&key(APP, "late")).is_some());
}

#[test]
fn a_comparison_with_a_set_that_is_no_more_begins_again() {
    for restored in [false, true] {
        let mut pair = different();
        let backup = saved_feed(&pair.sides[PRINCIPAL].feed);
        for n in 0..3 {
            pair.put(PRINCIPAL, &key(APP, &format!("late{n}")), &format!("l{n}"), "late");
        }
        // Nothing of the feed comes, so that the cursor stays where it was.
        pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Event(event) if event.seq > 0);
        pair.sides[PRINCIPAL].full = true;
        pair.connect();
        pair.give(AGENT, sync::Input::Command(LinkCommand::Resync));
        pair.run();
        assert!(asked(&pair).any(|request| matches!(request, ResyncRequest::Objects(_))));
        pair.disconnect();
        pair.drops = |_, _| false;
        let feed = &mut pair.sides[PRINCIPAL].feed;
        *feed = if restored { Feed::restore(backup) } else { feed.reincarnate("new".parse().unwrap()) };
        pair.sides[PRINCIPAL].full = false;
        pair.connect();
        assert_eq!(asked(&pair).next(), Some(&ResyncRequest::Sections), "restored {restored}");
        assert!(pair.is_equal(PRINCIPAL), "restored {restored}");
    }
}

#[test]
fn kinds_keep_their_order() {
    // Neither is the order of their names.
    in_the_order_of(["Repository", APP, "AppProject"], false);
    in_the_order_of([APP, "Repository", "AppProject"], true);
}

/// Objects are applied in the order of these kinds, also where the link is `cut` before the first answer.
fn in_the_order_of(kinds: [&str; 3], cut: bool) {
    let keys = |name: &str| -> Vec<ObjectKey> {
        let key = |kind: &str, namespace: u32| format!("{kind}/ns{namespace}/{name}").parse().unwrap();
        (0..5).flat_map(|namespace| kinds.map(|kind| key(kind, namespace))).collect()
    };
    let mut pair = Pair::new(Mode::Managed);
    for side in &mut pair.sides {
        side.config.kinds = kinds.map(Kind::new).to_vec();
        Arc::make_mut(&mut side.config.limits).requested = if cut { 7 } else { 4 };
    }
    pair.sides[PRINCIPAL].full = cut;
    for key in keys("new") {
        pair.put(PRINCIPAL, &key, &key.to_string(), "content");
    }
    let old = |key: ObjectKey| (key.clone(), Stub { uid: key.to_string().into(), ..Stub::of(b"old") }, 1);
    let cursor = Some(FeedCursor::at("other".parse().unwrap(), 7));
    let objects = keys("old").into_iter().map(old).collect();
    pair.sides[AGENT].replica = Replica::restore(sync::SavedReplica { cursor, objects });
    pair.connect();
    if cut {
        pair.disconnect();
        pair.sides[PRINCIPAL].full = false;
        Arc::make_mut(&mut pair.sides[AGENT].config.limits).requested = 4;
        pair.connect();
    }
    pair.give(AGENT, sync::Input::Command(LinkCommand::Approve));
    pair.run();
    assert!(pair.is_equal(PRINCIPAL));
    let mut applied: Vec<String> =
        pair.sides[AGENT].applied.iter().map(|key| format!("{} {}", key.name, key.section.kind)).collect();
    applied.dedup();
    let new = kinds.map(|kind| format!("new {kind}"));
    let gone = kinds.map(|kind| format!("old {kind}"));
    assert_eq!(applied, new.into_iter().chain(gone.into_iter().rev()).collect::<Vec<_>>(), "cut {cut}");
}

#[test]
fn an_object_with_other_content_is_fetched_once() {
    let mut pair = different();
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.objects[4].1.digest = Digest::ZERO;
    pair.sides[AGENT].replica = Replica::restore(saved);
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().resync_objects, 2, "the one that was missing, and this one");
}

/// Who is asked by names answers in parts with a number each.
#[test]
fn a_part_that_was_given_up_is_not_taken_for_the_next_one() {
    let mut pair = different();
    pair.sides[AGENT].config.capabilities.trie_resync = false;
    pair.drops = |_, frame| matches!(frame, Frame::Pong(_));
    pair.connect();
    pair.give(AGENT, sync::Input::Command(LinkCommand::Resync));
    pair.run();
    // More changes than a comparison remembers: it begins anew.
    for n in 0..20_001 {
        pair.put(PRINCIPAL, &key(APP, &format!("c{n}")), &format!("c{n}"), "new");
    }
    pair.run();
    let numbers: Vec<u64> = pair.sides[AGENT]
        .frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Ping(ping) if ping.order == PingOrder::Barrier => Some(ping.number),
            _ => None,
        })
        .collect();
    assert_eq!(numbers.len(), 2, "{numbers:?}");
    assert_ne!(numbers[0], numbers[1]);
}

/// A comparison that a link left is of no use to a peer that does not know its requests.
#[test]
fn a_comparison_begins_anew_with_a_peer_that_can_do_other_things() {
    let nodes = |_: usize, frame: &Frame| matches!(frame, Frame::ResyncResponse(response) if matches!(**response, ResyncResponse::Tops { .. }));
    let names = |_: usize, frame: &Frame| matches!(frame, Frame::Pong(_));
    for (first, drops) in [(true, nodes as fn(usize, &Frame) -> bool), (false, names)] {
        let mut pair = different();
        pair.sides[AGENT].config.capabilities.trie_resync = first;
        pair.drops = drops;
        pair.connect();
        pair.give(AGENT, sync::Input::Command(LinkCommand::Resync));
        pair.run();
        pair.disconnect();
        pair.sides[AGENT].config.capabilities.trie_resync = !first;
        pair.drops = |_, _| false;
        pair.connect();
        pair.run();
        assert!(pair.is_equal(PRINCIPAL), "by nodes first: {first}");
    }
}
