//! IDN-9: a comparison that needs proofs begins at once where the source is of another incarnation, and takes for an object
//! what the source has now, not what it proved once; and changes of one incarnation alone are taken as they come.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use model::Digest;
use pair::{AGENT, PRINCIPAL, Pair, key, signing};
use sync::frame::{Event, Frame, ResyncRequest, ResyncResponse};
use sync::link::FeedProofs;
use sync::{Feed, Input, Mode};

const APP: &str = "Application";

fn pair_of(proofs: FeedProofs, required: FeedProofs) -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    pair.sides[PRINCIPAL].config.proofs = proofs;
    pair.sides[AGENT].config.proofs = required;
    pair
}

fn proven() -> Pair {
    pair_of(signing::made(1), signing::required(1))
}

fn here(pair: &Pair, name: &str) -> Option<Digest> {
    pair.sides[AGENT].replica.get(&key(APP, name)).map(|(stub, _)| stub.digest)
}

/// What the control plane says of an object now, as an answer to who asked for it: proven, and true at this moment.
fn answer(pair: &Pair, name: &str) -> Event {
    let side = &pair.sides[PRINCIPAL];
    let of = key(APP, name);
    let (rev, state) = side.feed.get(&of).unwrap();
    let proof = signing::proof(&side.config.proofs, side.feed.incarnation(), rev, &of, state);
    let op = match state.stub() {
        None => sync::frame::Op::Delete { uid: "u1".into() },
        Some(stub) => {
            sync::frame::Op::Put { stub: stub.clone(), content: side.contents[&of].clone(), created: false }
        }
    };
    Event { seq: 0, rev, upto: Default::default(), key: of, op, trace: None, at: 1, proof }
}

/// The answers that were true one after the other, and of which one is given to a node that asked while the fourth was.
#[derive(Clone, Copy, Debug)]
enum Given {
    Old,
    Gone,
    OfNow,
    Later,
}

/// A node that holds `before` compares with a feed in which the object was `old`, then gone, and is `of now`; whoever stands
/// in between keeps the answer back, and gives another one.
fn answered_with(given: Given) -> Pair {
    let mut pair = proven();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "before");
    pair.connect();
    pair.disconnect();
    assert_eq!(here(&pair, "a"), Some(Digest::of(b"before")));
    pair.sides[PRINCIPAL].feed = Feed::new("other".parse().unwrap());
    let mut said = Vec::new();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "old");
    said.push(answer(&pair, "a"));
    pair.remove(PRINCIPAL, &key(APP, "a"));
    said.push(answer(&pair, "a"));
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "of now");
    said.push(answer(&pair, "a"));
    let is_end = |frame: &Frame| matches!(frame, Frame::ResyncResponse(told) if matches!(**told, ResyncResponse::Objects(_)));
    pair.drops = |to, frame| {
        let ends =
            matches!(frame, Frame::ResyncResponse(told) if matches!(**told, ResyncResponse::Objects(_)));
        to == AGENT && (ends || matches!(frame, Frame::Event(_) | Frame::Checkpoint(_)))
    };
    pair.connect();
    let asks = |frame: &Frame| matches!(frame, Frame::ResyncRequest(ask) if matches!(**ask, ResyncRequest::Objects(_)));
    assert!(pair.sides[AGENT].frames.iter().any(asks), "it asks for what differs");
    let end = pair.sides[PRINCIPAL].frames.iter().find(|frame| is_end(frame)).cloned().unwrap();
    pair.put(PRINCIPAL, &key(APP, "a"), "u1", "later");
    said.push(answer(&pair, "a"));
    let told = said.swap_remove(given as usize);
    // What follows on the link is kept back too: what is here now is of the answer.
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(told))));
    pair.give(AGENT, Input::Frame(end));
    pair.run();
    assert!(pair.sides[AGENT].closed.is_none(), "{given:?}: {:?}", pair.sides[AGENT].closed);
    pair
}

#[test]
fn an_answer_that_was_true_once_is_withheld() {
    for given in [Given::Old, Given::Gone] {
        let mut pair = answered_with(given);
        assert_eq!(here(&pair, "a"), Some(Digest::of(b"before")), "{given:?}");
        // The roots go on differing, so that it is asked again.
        assert!(!pair.is_equal(PRINCIPAL));
        pair.drops = |_, _| false;
        pair.reconnect();
        pair.pass(120);
        assert_eq!(here(&pair, "a"), Some(Digest::of(b"later")), "{given:?}");
        assert!(pair.is_equal(PRINCIPAL));
    }
}

#[test]
fn what_was_found_is_taken_and_what_changed_since() {
    for (given, taken) in [(Given::OfNow, "of now"), (Given::Later, "later")] {
        let pair = answered_with(given);
        assert_eq!(here(&pair, "a"), Some(Digest::of(taken.as_bytes())), "{given:?}");
    }
}

/// The frames that ask for a comparison on this link.
fn comparisons(pair: &Pair) -> usize {
    let asks = |frame: &&Frame| match frame {
        Frame::ResyncRequest(ask) => {
            matches!(**ask, ResyncRequest::ProvenSections { .. } | ResyncRequest::Sections)
        }
        _ => false,
    };
    pair.sides[AGENT].frames.iter().filter(asks).count()
}

/// None of its changes counts before, so nothing is waited for. Without proofs the roots are compared first, which are the
/// same where a control plane was merely restored.
#[test]
fn of_another_incarnation_it_is_asked_for_at_once() {
    for (proofs, required, asked) in
        [(signing::made(1), signing::required(1), 1), (FeedProofs::Unsigned, FeedProofs::Unsigned, 0)]
    {
        let mut pair = pair_of(proofs, required);
        pair.put(PRINCIPAL, &key(APP, "a"), "u1", "a");
        pair.connect();
        pair.disconnect();
        pair.sides[PRINCIPAL].feed = Feed::new("other".parse().unwrap());
        pair.put(PRINCIPAL, &key(APP, "b"), "u2", "b");
        pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Checkpoint(_));
        pair.connect();
        assert_eq!(comparisons(&pair), asked);
        assert_eq!(here(&pair, "b").is_some(), asked == 1);
        pair.drops = |_, _| false;
        pair.reconnect();
        assert!(pair.is_equal(PRINCIPAL));
    }
}

/// The first link of a node was cut before it had all.
#[test]
fn the_first_incarnation_counts_from_the_hello_on() {
    let mut pair = proven();
    pair.put(PRINCIPAL, &key(APP, "a"), "ua", "a");
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Checkpoint(_));
    pair.connect();
    assert!(here(&pair, "a").is_some());
    pair.disconnect();
    // What was proven once in another incarnation is said as if it were the feed.
    pair.sides[PRINCIPAL].feed = Feed::new("of-before".parse().unwrap());
    pair.put(PRINCIPAL, &key(APP, "b"), "ub", "b");
    pair.drops = |to, frame| match to == AGENT {
        true => matches!(frame, Frame::Checkpoint(_) | Frame::Event(_)),
        // Whoever says so cannot sign an answer, and hears of no acknowledgement of what he never sent.
        false => matches!(frame, Frame::ResyncRequest(_) | Frame::Ack(_)),
    };
    pair.connect();
    let said = Event { seq: 1, ..answer(&pair, "b") };
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(said))));
    pair.run();
    assert_eq!((pair.sides[AGENT].closed, here(&pair, "b")), (None, None));
    assert!(here(&pair, "a").is_some());
}
