//! SYN-3, SYN-7, SYN-12, OPS-2: "in sync" is said only of what was compared or reached, one object
//! that always fails hides no other difference, and what an operator asked for is passed on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use model::condition::{Difference, SetCondition};
use pair::{AGENT, PRINCIPAL, Pair, key, saved};
use sync::cursor::Position;
use sync::frame::{Checkpoint, Event, Frame, Interop, Op, Refused};
use sync::link::{ItemOutcome, LinkCommand, Note};
use sync::{FeedCursor, Input, Mode, refusal};

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
    pair.link(at).replica_condition(&side.replica)
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
    // A change whose event is lost is known by a ping.
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
            ItemOutcome::Temporary("the disk is busy".to_owned())
        } else {
            ItemOutcome::Done
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
    assert_eq!(pair.link(PRINCIPAL).refused_there(), Some(1), "the source sees it");
    let why = pair.sides[PRINCIPAL].notes.iter().find_map(|note| match note {
        Note::RefusedThere(Refused { code, message, .. }) => Some((code.as_str(), message.as_str())),
        _ => None,
    });
    assert_eq!(why, Some(("fails-for-now", "the disk is busy")), "and is told why, once");
    assert!(pair.link(AGENT).counters().checkpoints_equal > 0, "the rest is compared, and equal");
    // It is still tried, and works one day.
    pair.sides[AGENT].outcome = |_, _| ItemOutcome::Done;
    pair.pass(70);
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().resyncs, 0);
}

#[test]
fn what_failed_on_a_link_that_is_over_comes_again_on_the_next() {
    let mut pair = filled(20);
    pair.sides[AGENT].outcome = |item, _| {
        if &*item.key.name == "a0" { ItemOutcome::Temporary("busy".to_owned()) } else { ItemOutcome::Done }
    };
    pair.connect();
    pair.pass(400);
    pair.sides[AGENT].outcome = |_, _| ItemOutcome::Done;
    pair.reconnect();
    pair.pass(2);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.sides[AGENT].replica.len(), 20);
}

#[test]
fn what_an_operator_asks_is_passed_on_to_the_node() {
    let mut pair = filled(1);
    pair.connect();
    pair.give(PRINCIPAL, Input::Command(LinkCommand::Approve));
    pair.give(PRINCIPAL, Input::Command(LinkCommand::Resync));
    pair.run();
    let frames = &pair.sides[PRINCIPAL].frames;
    assert!(frames.contains(&Frame::Approve));
    assert!(frames.contains(&Frame::Interop(Box::new(Interop::RequestResync))));
}

/// The number of the last event that the control plane sent on this link.
fn last_number(pair: &Pair) -> u64 {
    let numbers = pair.sides[PRINCIPAL].frames.iter().map(|frame| match frame {
        Frame::Event(event) => event.seq,
        _ => 0,
    });
    numbers.max().unwrap_or(0)
}

#[test]
fn a_checkpoint_beyond_what_was_sent_compares_nothing() {
    let mut pair = filled(3);
    pair.connect();
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
    let (root, seq) = (pair.sides[AGENT].replica.root(), last_number(&pair));
    let cursor = FeedCursor::at("p".parse().unwrap(), 50);
    let compared = |pair: &Pair| pair.sides[AGENT].notes.iter().filter(|n| **n == Note::InSync).count();
    let before = compared(&pair);
    pair.give(AGENT, Input::Frame(Frame::Checkpoint(Checkpoint { seq, cursor, root })));
    assert_eq!(compared(&pair), before, "its root is right, and its changes were not sent");
    assert_ne!(standing(&pair, AGENT), SetCondition::InSync);
    pair.run();
    assert_eq!(pair.sides[AGENT].replica.cursor().unwrap().revision, 3, "no change is skipped");
}

#[test]
fn a_late_delete_of_another_uid_is_refused() {
    let mut pair = filled(3);
    pair.connect();
    let delete = |pair: &Pair, uid: &str, rev: u64| {
        let op = Op::Delete { uid: uid.into() };
        let (seq, upto) = (last_number(pair) + 1, Position::at(3));
        Event { seq, rev, upto, key: key(APP, "a2"), op, trace: None, at: 0, proof: None }
    };
    let late = delete(&pair, "older", 2);
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(late))));
    pair.run();
    assert!(pair.sides[AGENT].replica.get(&key(APP, "a2")).is_some(), "it is another object's");
    let told =
        |frame: &Frame| matches!(frame, Frame::Refused(refused) if refused.code == refusal::UID_MISMATCH);
    assert!(pair.sides[AGENT].frames.iter().any(told), "the source is told");
    pair.reconnect();
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync, "the source has the object still");
    let newer = Event { seq: last_number(&pair) + 1, ..delete(&pair, "unheard-of", 9) };
    pair.give(AGENT, Input::Frame(Frame::Event(Box::new(newer))));
    while let Some(input) = pair.sides[AGENT].held.pop_front() {
        pair.give(AGENT, input);
    }
    assert!(pair.sides[AGENT].replica.get(&key(APP, "a2")).is_none(), "one that is newer counts");
}

/// A ping overtook the checkpoint with a later head: what was compared is older than what is known.
#[test]
fn an_older_checkpoint_proves_nothing_newer() {
    let mut pair = filled(3);
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Checkpoint(_));
    pair.connect();
    let side = &mut pair.sides[PRINCIPAL];
    let (cursor, root) = (side.feed.cursor(), side.feed.root());
    let checkpoint = Frame::Checkpoint(Checkpoint { seq: 3, cursor, root });
    let ping = sync::frame::Ping { number: 1, head: 5, ..Default::default() };
    pair.give(AGENT, Input::Frame(Frame::Ping(ping)));
    pair.give(AGENT, Input::Frame(checkpoint));
    assert_eq!(standing(&pair, AGENT), SetCondition::Behind(2));
}

/// The source has an object whose content it lacks: cursors meet all the same, and neither side says in
/// sync once the resync did not help.
#[test]
fn a_source_does_not_say_in_sync_of_what_the_other_side_found_different() {
    let mut pair = filled(3);
    pair.sides[PRINCIPAL].contents.remove(&key(APP, "a1"));
    pair.connect();
    pair.pass(5);
    assert_eq!(pair.sides[AGENT].replica.len(), 2);
    assert_eq!(standing(&pair, AGENT), SetCondition::OutOfSync(Difference::ResyncWithoutEffect));
    let own = pair.link(PRINCIPAL).feed_condition(&pair.sides[PRINCIPAL].feed);
    assert_eq!(own, SetCondition::OutOfSync(Difference::HeldOtherwise { objects: 1 }));
    pair.put(PRINCIPAL, &key(APP, "a1"), "u1", "y");
    pair.pass(700);
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
    let own = pair.link(PRINCIPAL).feed_condition(&pair.sides[PRINCIPAL].feed);
    assert_eq!(own, SetCondition::InSync);
}

/// The other side stands at the end of the feed, with another set: before it compared, the source says so.
#[test]
fn a_source_says_comparing_until_the_other_side_compared() {
    let mut pair = filled(3);
    pair.connect();
    pair.disconnect();
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.objects.pop();
    pair.sides[AGENT].replica = sync::Replica::restore(saved);
    pair.drops = |to, frame| to == AGENT && matches!(frame, Frame::Checkpoint(_));
    pair.connect();
    let own = pair.link(PRINCIPAL).feed_condition(&pair.sides[PRINCIPAL].feed);
    assert_eq!(own, SetCondition::Comparing);
    pair.drops = |_, _| false;
    pair.reconnect();
    pair.pass(2);
    let own = pair.link(PRINCIPAL).feed_condition(&pair.sides[PRINCIPAL].feed);
    assert_eq!(own, SetCondition::InSync);
}

/// A write that failed moves no cursor, not even one that stands alone; it is tried again.
#[test]
fn a_cursor_that_was_not_kept_is_not_said() {
    let mut pair = filled(2);
    pair.sides[AGENT].slow = true;
    pair.connect();
    let failed = || Err(sync::link::NotDurable("the disk is full".to_owned()));
    for _ in 0..3 {
        let at = pair.sides[AGENT].held.iter().position(|input| matches!(input, Input::Applied(_)));
        let Some(Input::Applied(_)) = at.and_then(|at| pair.sides[AGENT].held.remove(at)) else {
            panic!("a batch is tried again")
        };
        pair.give(AGENT, Input::Applied(failed()));
        assert_eq!(pair.sides[AGENT].replica.cursor(), None);
        pair.pass(10);
    }
    pair.sides[AGENT].slow = false;
    pair.pass(70);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
}

/// Time passes in the pair, which asks at each step that nothing is due for ever.
#[test]
fn a_full_disk_is_waited_for() {
    let mut pair = filled(5);
    pair.sides[AGENT].disk_full = true;
    pair.connect();
    pair.pass(200);
    assert_eq!(pair.sides[AGENT].replica.cursor(), None);
    pair.sides[AGENT].disk_full = false;
    pair.pass(130);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
}

/// A kind that the node's release does not name, as the next release may or the source may take back.
fn not_allowed() -> Pair {
    let mut pair = filled(2);
    pair.put(PRINCIPAL, &key("Repository", "r"), "r", "x");
    pair.sides[AGENT].config.kinds.retain(|kind| kind.as_str() != "Repository");
    pair.connect();
    let rejected = pair.sides[AGENT].replica.rejected();
    assert_eq!(rejected[&key("Repository", "r")].code, refusal::KIND);
    pair
}

#[test]
fn what_the_next_release_allows_is_fetched() {
    let mut pair = not_allowed();
    pair.sides[AGENT].config.kinds = pair.sides[PRINCIPAL].config.kinds.clone();
    pair.reconnect();
    pair.pass(2);
    assert!(pair.sides[AGENT].replica.get(&key("Repository", "r")).is_some());
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
}

#[test]
fn what_is_not_allowed_and_goes_at_its_source_is_no_difference() {
    let mut pair = not_allowed();
    pair.remove(PRINCIPAL, &key("Repository", "r"));
    pair.pass(70);
    assert!(pair.sides[AGENT].replica.rejected().is_empty());
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
}

/// SYN-12: tries of one version are not those of the next.
#[test]
fn another_version_is_fetched_anew_as_often_as_any() {
    let mut pair = filled(1);
    pair.sides[AGENT].outcome = |_, tries| match tries {
        1..=5 => ItemOutcome::Temporary("busy".to_owned()),
        6 => ItemOutcome::Recoverable("another one has its uid".to_owned()),
        _ => ItemOutcome::Done,
    };
    pair.connect();
    pair.pass(16);
    assert_eq!(pair.sides[AGENT].tries[&key(APP, "a0")], 5);
    pair.put(PRINCIPAL, &key(APP, "a0"), "u0", "y");
    pair.pass(5);
    assert!(pair.is_equal(PRINCIPAL));
    assert!(!pair.sides[AGENT].frames.iter().any(|frame| matches!(frame, Frame::Refused(_))));
}

/// SCL-4: a source that went back to a backup, and whose feed has as many changes since as the replica took in
/// the meantime: the cursors are equal, the sets are not.
#[test]
fn an_acknowledgement_of_a_checkpoint_that_differs_is_no_comparison() {
    let mut pair = filled(3);
    pair.connect();
    let of_feed = |pair: &Pair| pair.link(PRINCIPAL).feed_condition(&pair.sides[PRINCIPAL].feed);
    assert_eq!(of_feed(&pair), SetCondition::InSync);
    let mut backup = filled(2);
    backup.put(PRINCIPAL, &key(APP, "another"), "other", "x");
    pair.sides[PRINCIPAL].feed = backup.sides[PRINCIPAL].feed.clone();
    pair.sides[PRINCIPAL].contents = backup.sides[PRINCIPAL].contents.clone();
    // No resync can begin yet.
    pair.sides.iter_mut().for_each(|side| side.busy = true);
    pair.reconnect();
    assert_eq!(pair.link(AGENT).counters().checkpoints_different, 1);
    assert_eq!(of_feed(&pair), SetCondition::Comparing, "the agent acknowledged, and found another root");
}
