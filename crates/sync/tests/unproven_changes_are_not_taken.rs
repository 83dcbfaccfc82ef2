//! IDN-9: a node whose fleet names a key for the control plane takes of its feed what that key proves, and nothing
//! else: not from whoever stands in between, not what was proven once and is old, not what is merely said to be gone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use std::sync::Arc;

use bytes::Bytes;
use model::{Digest, Stub};
use pair::{AGENT, PRINCIPAL, Pair, key, signing};
use sync::frame::{Capabilities, Frame, Op, ResyncRequest, ResyncResponse};
use sync::{Feed, Input, Mode};

const APP: &str = "Application";

fn proven() -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    pair.sides[PRINCIPAL].config.proofs = signing::made(1);
    pair.sides[AGENT].config.proofs = signing::required(1);
    pair
}

/// The frames that the control plane sent on this link.
fn sent(pair: &Pair) -> Vec<Frame> {
    pair.sides[PRINCIPAL].frames.clone()
}

/// The event that put an object, as it was sent.
fn event(pair: &Pair, name: &str) -> sync::frame::Event {
    let of = |frame: &Frame| match frame {
        Frame::Event(event) if *event.key.name == *name => Some((**event).clone()),
        _ => None,
    };
    sent(pair).iter().rev().find_map(of).expect("it was sent")
}

fn here(pair: &Pair, name: &str) -> Option<Digest> {
    pair.sides[AGENT].replica.get(&key(APP, name)).map(|(stub, _)| stub.digest)
}

/// A link to the agent on which somebody else says what the control plane said before.
fn closed(pair: &Pair) -> Option<&'static str> {
    pair.sides[AGENT].closed.map(|(code, _)| code)
}

#[test]
fn what_is_proven_comes_and_goes() {
    let mut pair = proven();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "one");
    pair.connect();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "two");
    pair.put(PRINCIPAL, &key(APP, "b"), "u2", "b");
    pair.run();
    pair.remove(PRINCIPAL, &key(APP, "b"));
    pair.run();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!((here(&pair, "a"), here(&pair, "b")), (Some(Digest::of(b"two")), None));
    // The node's own statuses need no proof.
    pair.put(AGENT, &key("Application:status", "a"), "u1", "{}");
    pair.run();
    assert!(pair.is_equal(AGENT));
}

#[test]
fn a_feed_that_is_not_signed_is_not_taken() {
    for signed_by in [None, Some(2)] {
        let mut pair = proven();
        pair.sides[PRINCIPAL].config.proofs = signed_by.map(signing::made).unwrap_or_default();
        pair.put(PRINCIPAL, &key(APP, "a"), "u1", "one");
        pair.connect();
        assert_eq!((closed(&pair), here(&pair, "a")), (Some("unproven"), None), "{signed_by:?}");
    }
}

#[test]
fn a_change_that_is_altered_on_the_way_ends_the_link() {
    type Alter = fn(&mut sync::frame::Event);
    let alterations: [Alter; 6] = [
        |event| event.op = put(b"evil"),
        |event| event.key = key(APP, "elsewhere"),
        |event| event.op = Op::Delete { uid: "u1".into() },
        |event| event.rev += 1,
        |event| event.proof = None,
        |event| event.proof = Some(Bytes::from_static(b"proof")),
    ];
    for alter in alterations {
        let mut pair = proven();
        pair.connect();
        pair.put(PRINCIPAL, &key(APP, "a"), "u1", "one");
        // What is on the wire is altered before the node reads it.
        loop {
            let next = pair.wires[AGENT].iter_mut().find_map(|frame| match frame {
                Frame::Event(event) => Some(event),
                _ => None,
            });
            match next {
                Some(event) => break alter(event),
                None => {
                    let held = pair.sides[PRINCIPAL].held.pop_front().expect("the content is loaded");
                    pair.give(PRINCIPAL, held);
                }
            }
        }
        pair.run();
        assert_eq!(closed(&pair), Some("unproven"));
        assert!(pair.sides[AGENT].replica.is_empty());
    }
}

fn put(content: &'static [u8]) -> Op {
    let content = Bytes::from_static(content);
    Op::Put { stub: Stub { uid: "u1".into(), ..Stub::of(&content) }, content, created: false }
}

/// What was proven once is said again by somebody in between, at its place on the link.
fn replay(pair: &mut Pair, mut old: sync::frame::Event) {
    old.seq = pair.sides[PRINCIPAL]
        .frames
        .iter()
        .filter(|frame| matches!(frame, Frame::Event(event) if event.seq > 0))
        .count() as u64
        + 1;
    // The control plane does not hear what it never sent acknowledged.
    pair.drops = |to, frame| to == PRINCIPAL && matches!(frame, Frame::Ack(_));
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(old))));
    pair.run();
}

#[test]
fn an_older_change_is_not_taken_again() {
    let mut pair = proven();
    pair.connect();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "old");
    pair.run();
    let old = event(&pair, "a");
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "new");
    pair.run();
    replay(&mut pair, old);
    assert_eq!((closed(&pair), here(&pair, "a")), (None, Some(Digest::of(b"new"))));
}

#[test]
fn what_is_deleted_does_not_come_back() {
    let mut pair = proven();
    pair.connect();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "old");
    pair.run();
    let old = event(&pair, "a");
    pair.remove(PRINCIPAL, &key(APP, "a"));
    pair.run();
    replay(&mut pair, old);
    assert_eq!((closed(&pair), here(&pair, "a")), (None, None));
}

#[test]
fn what_came_into_being_again_is_not_deleted_by_an_older_delete() {
    let mut pair = proven();
    pair.connect();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "old");
    pair.run();
    pair.remove(PRINCIPAL, &key(APP, "a"));
    pair.run();
    let gone = event(&pair, "a");
    assert!(matches!(gone.op, Op::Delete { .. }));
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "again");
    pair.run();
    replay(&mut pair, gone);
    assert_eq!((closed(&pair), here(&pair, "a")), (None, Some(Digest::of(b"again"))));
}

/// What the node knows by its cursor, it knows over the next link too, when nothing of the object is left to compare with.
#[test]
fn what_was_deleted_on_an_earlier_link_does_not_come_back() {
    let mut pair = proven();
    pair.connect();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "old");
    pair.run();
    let old = event(&pair, "a");
    pair.remove(PRINCIPAL, &key(APP, "a"));
    pair.run();
    pair.reconnect();
    replay(&mut pair, old);
    assert_eq!((closed(&pair), here(&pair, "a")), (None, None));
}

/// A change that somebody in between kept back, and says once the object is gone: beyond the cursor, which stands still
/// until the pass is whole, and not beyond the delete.
#[test]
fn what_was_kept_back_does_not_come_after_its_delete() {
    let mut pair = proven();
    pair.connect();
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Event(_));
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "old");
    pair.run();
    let old = event(&pair, "a");
    pair.disconnect();
    pair.remove(PRINCIPAL, &key(APP, "a"));
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Checkpoint(_));
    pair.connect();
    assert!(matches!(event(&pair, "a").op, Op::Delete { .. }));
    replay(&mut pair, old);
    assert_eq!((closed(&pair), here(&pair, "a")), (None, None));
}

/// The same where the link was cut among the deletes of a pass, and the next one goes on there.
#[test]
fn what_was_kept_back_does_not_come_where_the_deletes_go_on() {
    let mut pair = proven();
    for name in ["a", "c"] {
        pair.put(PRINCIPAL, &key(APP, name), &format!("u{name}"), name);
    }
    pair.connect();
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Event(_));
    pair.put(PRINCIPAL, &key(APP, "a"), "ua", "kept back");
    pair.run();
    let mut old = event(&pair, "a");
    pair.disconnect();
    for name in ["a", "c"] {
        pair.remove(PRINCIPAL, &key(APP, name));
    }
    // Of the deletes one comes.
    pair.drops = |to, frame| {
        let is_later = matches!(frame, Frame::Event(event) if &*event.key.name == "c");
        to == AGENT && (is_later || matches!(frame, Frame::Checkpoint(_)))
    };
    pair.connect();
    assert_eq!((here(&pair, "a"), here(&pair, "c").is_some()), (None, true));
    let cursor = pair.sides[AGENT].replica.cursor().unwrap();
    assert!(cursor.revision < old.rev && cursor.position().pass.is_some(), "{cursor:?}");
    pair.disconnect();
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Event(_) | Frame::Checkpoint(_));
    pair.connect();
    old.seq = 1;
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(old))));
    pair.run();
    assert_eq!(here(&pair, "a"), None);
}

/// A control plane was restored, and its set is of another incarnation: what was proven in the one before counts no more,
/// whoever says again that the feed is of that one.
#[test]
fn changes_of_an_incarnation_of_before_are_not_taken() {
    let mut pair = proven();
    pair.connect();
    pair.put(PRINCIPAL, &key(APP, "b"), "ub", "old");
    pair.run();
    let mut old = event(&pair, "b");
    pair.disconnect();
    let before = std::mem::replace(&mut pair.sides[PRINCIPAL].feed, Feed::new("other".parse().unwrap()));
    pair.put(PRINCIPAL, &key(APP, "a"), "ua", "a");
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(here(&pair, "b"), None);
    pair.disconnect();
    pair.sides[PRINCIPAL].feed = before;
    pair.drops = |to, frame| match to == AGENT {
        true => matches!(frame, Frame::Event(_)),
        // The control plane does not hear what it never sent acknowledged.
        false => matches!(frame, Frame::ResyncRequest(_) | Frame::Ack(_)),
    };
    pair.connect();
    old.seq = 1;
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(old))));
    pair.run();
    assert_eq!((closed(&pair), here(&pair, "b")), (None, None));
    assert!(here(&pair, "a").is_some());
}

/// Both have objects, and the source says anew what it is: of another incarnation, with other objects.
fn with_another_source(proofs: sync::link::FeedProofs) -> Pair {
    let mut pair = proven();
    for name in ["a", "b"] {
        pair.put(PRINCIPAL, &key(APP, name), &format!("u{name}"), name);
    }
    pair.connect();
    pair.disconnect();
    let side = &mut pair.sides[PRINCIPAL];
    side.feed = Feed::new("other".parse().unwrap());
    side.config.proofs = proofs;
    pair.put(PRINCIPAL, &key(APP, "a"), "ua", "a");
    pair
}

#[test]
fn another_incarnation_counts_once_its_head_is_proven() {
    let mut pair = with_another_source(signing::made(1));
    pair.connect();
    assert_eq!((closed(&pair), here(&pair, "b")), (None, None), "a restored control plane, say");
    assert!(pair.is_equal(PRINCIPAL));
    let asked = |frame: &Frame| matches!(frame, Frame::ResyncRequest(ask) if matches!(**ask, ResyncRequest::ProvenSections { .. }));
    assert!(pair.sides[AGENT].frames.iter().any(asked));

    for proofs in [Default::default(), signing::made(2)] {
        let mut pair = with_another_source(proofs);
        pair.connect();
        assert_eq!(closed(&pair), Some("unproven"));
        assert!(here(&pair, "a").is_some() && here(&pair, "b").is_some(), "nothing is taken for gone");
    }
}

#[test]
fn an_answer_of_before_is_no_answer() {
    let mut pair = with_another_source(signing::made(1));
    pair.connect();
    let of = |frame: &Frame| matches!(frame, Frame::ResyncResponse(tell) if matches!(**tell, ResyncResponse::Sections { .. }));
    let recorded = sent(&pair).into_iter().find(of).expect("the sets were compared");
    // Later there are more objects, of a newer incarnation; whoever stands in between has the answer of before.
    pair.disconnect();
    pair.pass(1);
    pair.sides[PRINCIPAL].feed = Feed::new("newest".parse().unwrap());
    pair.put(PRINCIPAL, &key(APP, "c"), "uc", "c");
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::ResyncResponse(_));
    pair.connect();
    pair.give(AGENT, Input::Frame(recorded));
    pair.run();
    assert_eq!(closed(&pair), Some("unproven"));
    assert!(here(&pair, "a").is_some());
}

#[test]
fn one_trie_answers_a_comparison_while_the_feed_goes_on() {
    let mut pair = proven();
    for n in 0..400 {
        pair.put(PRINCIPAL, &key(APP, &format!("n{n}")), &format!("u{n}"), "one");
    }
    pair.connect();
    pair.disconnect();
    let anew = pair.sides[PRINCIPAL].feed.reincarnate("anew".parse().unwrap());
    pair.sides[PRINCIPAL].feed = anew;
    for n in 0..40 {
        pair.put(PRINCIPAL, &key(APP, &format!("n{n}")), &format!("u{n}"), "two");
    }
    // Each answer is followed by a change of the set that it is of.
    pair.sides[AGENT].config.limits = Arc::new(sync::link::Limits { requested: 3, ..Default::default() });
    pair.sides[PRINCIPAL].full = true;
    pair.connect();
    for n in 100..160 {
        pair.put(PRINCIPAL, &key(APP, &format!("n{n}")), &format!("u{n}"), "three");
        pair.run();
    }
    pair.sides[PRINCIPAL].full = false;
    pair.run();
    pair.pass(2);
    assert_eq!(closed(&pair), None);
    assert!(pair.is_equal(PRINCIPAL));
}

#[test]
fn a_peer_that_cannot_prove_what_is_gone_gets_no_link() {
    let mut pair = proven();
    pair.sides[PRINCIPAL].config.capabilities = Capabilities { trie_resync: false, ..Capabilities::ALL };
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "one");
    pair.connect();
    assert_eq!((closed(&pair), here(&pair, "a")), (Some("no-proofs"), None));
}
