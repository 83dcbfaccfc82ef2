//! SYN-3, SYN-12, OPS-2: "in sync" is said only of what was compared or reached, one object
//! that always fails hides no other difference, and what an operator asked for is passed on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use model::condition::{Difference, SetCondition};
use pair::{AGENT, PRINCIPAL, Pair, key};
use sync::frame::{Frame, Interop};
use sync::link::{Note, Outcome};
use sync::{Input, Link, Mode};

const APP: &str = "Application";

fn filled(objects: usize) -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    for n in 0..objects {
        pair.put(PRINCIPAL, &key(APP, &format!("a{n}")), &format!("u{n}"), "x");
    }
    pair
}

fn standing(pair: &Pair, at: usize) -> SetCondition {
    let side = &pair.sides[at];
    pair.link(at).their_condition(&side.replica)
}

#[test]
fn behind_is_not_in_sync() {
    let mut pair = filled(5);
    pair.drops = |to, frame| match frame {
        Frame::Event(event) => event.rev > 2,
        Frame::Checkpoint(_) => true,
        _ => false,
    } && to == AGENT;
    pair.connect();
    assert_eq!(pair.sides[AGENT].replica.len(), 2, "the others are on their way");
    assert_eq!(standing(&pair, AGENT), SetCondition::Behind(5), "and it is known that there are more");
    assert_eq!(pair.link(AGENT).under_way(), 0);
    pair.drops = |_, _| false;
    pair.reconnect();
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
    // A change whose event is lost is known by a sign of incarnation.
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Event(_));
    pair.put(PRINCIPAL, &key(APP, "new"), "n", "x");
    pair.run();
    let ping = sync::frame::Ping { number: 1, head: pair.sides[PRINCIPAL].feed.head(), ..Default::default() };
    pair.give(AGENT, Input::Frame(Frame::Ping(ping)));
    assert_eq!(standing(&pair, AGENT), SetCondition::Behind(1));
}

#[test]
fn an_object_that_always_fails_hides_no_other_difference() {
    let mut pair = filled(20);
    pair.sides[AGENT].outcome = |item, _| {
        if &*item.key.name == "a0" {
            Outcome::Temporary("the disk is busy".to_owned())
        } else {
            Outcome::Done
        }
    };
    pair.connect();
    assert!(matches!(standing(&pair, AGENT), SetCondition::Behind(_)));
    pair.pass(400);
    assert!(
        matches!(standing(&pair, AGENT), SetCondition::OutOfSync(Difference::Rejected { rejection, .. }) if rejection.message.contains("the disk is busy"))
    );
    assert_eq!(
        pair.sides[AGENT].replica.cursor(),
        Some(&pair.sides[PRINCIPAL].feed.cursor()),
        "others go on"
    );
    assert_eq!(pair.link(PRINCIPAL).refused_there(), 1, "the source sees it");
    let why = pair.sides[PRINCIPAL].notes.iter().find_map(|note| match note {
        Note::RefusedThere { code, message, .. } => Some((code.as_str(), message.as_str())),
        _ => None,
    });
    assert_eq!(why, Some(("fails-for-now", "the disk is busy")), "and is told why, once");
    assert!(pair.link(AGENT).counters().marks_equal > 0, "the rest is compared, and equal");
    // It is still tried, and works one day.
    pair.sides[AGENT].outcome = |_, _| Outcome::Done;
    pair.pass(70);
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().resyncs, 0);
}

#[test]
fn what_failed_on_a_link_that_is_over_comes_again_on_the_next() {
    let mut pair = filled(20);
    pair.sides[AGENT].outcome = |item, _| {
        if &*item.key.name == "a0" { Outcome::Temporary("busy".to_owned()) } else { Outcome::Done }
    };
    pair.connect();
    pair.pass(400);
    pair.sides[AGENT].outcome = |_, _| Outcome::Done;
    pair.reconnect();
    pair.pass(2);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.sides[AGENT].replica.len(), 20);
}

#[test]
fn what_an_operator_asks_before_the_hello_is_passed_on_with_it() {
    let mut pair = filled(1);
    for side in &mut pair.sides {
        side.link = Some(Link::new(side.config.clone(), pair.now));
    }
    pair.give(PRINCIPAL, Input::Open);
    pair.give(PRINCIPAL, Input::Approve);
    pair.give(PRINCIPAL, Input::Resync);
    assert!(pair.link(PRINCIPAL).has_wishes());
    pair.give(AGENT, Input::Open);
    pair.run();
    assert!(!pair.link(PRINCIPAL).has_wishes());
    let frames = &pair.sides[PRINCIPAL].frames;
    assert!(frames.contains(&Frame::Approve));
    assert!(frames.contains(&Frame::Interop(Box::new(Interop::RequestResync))));
}
