//! SYN-4 to SYN-6, SYN-12, LIF-5: whatever the other side says, what it costs here is bounded:
//! objects, refusals, questions, loads, permits, new incarnations, numbers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::Duration;

use model::condition::SetCondition;
use model::set::MAX_SECTIONS;
use model::{Digest, ObjectKey, SectionKey, Stub, TrieNode};
use pair::{AGENT, PRINCIPAL, Pair, key, saved};
use sync::FeedCursor;
use sync::cursor::{KindOrder, PassPosition};
use sync::frame::{
    Checkpoint, Event, Frame, GoAway, Interop, InventoryItem, Op, Ping, PingOrder, Refused, ResyncRequest,
    ResyncResponse,
};
use sync::link::{ApplyItem, ItemOutcome, LinkCommand, Note};
use sync::replica::MAX_REJECTED_OBJECTS;
use sync::{Feed, Input, Mode, Replica};

const APP: &str = "Application";

fn filled(objects: usize) -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    for n in 0..objects {
        pair.put(PRINCIPAL, &key(APP, &format!("a{n:04}")), &format!("u{n}"), "12345");
    }
    pair
}

fn standing(pair: &Pair, at: usize) -> SetCondition {
    let side = &pair.sides[at];
    pair.link(at).replica_condition(&side.replica)
}

fn closed(pair: &Pair, at: usize) -> Option<&'static str> {
    pair.sides[at].closed.map(|(code, _)| code)
}

fn codes(pair: &Pair, at: usize) -> Vec<&str> {
    pair.sides[at].replica.rejected().values().map(|rejected| rejected.code.as_str()).collect()
}

#[test]
fn a_replica_has_only_so_many_objects() {
    let mut pair = filled(15);
    Arc::make_mut(&mut pair.sides[AGENT].config.limits).replica.objects = 10;
    pair.connect();
    assert_eq!(pair.sides[AGENT].replica.len(), 10);
    assert_eq!(codes(&pair, AGENT), ["too-many"; 5]);
    assert_eq!(pair.link(PRINCIPAL).refused_there(), Some(5), "the source knows");
    let node = &pair.sides[AGENT];
    assert!(pair.link(AGENT).is_settled(&node.feed, &node.replica), "one set that differs is enough");
    // One that is there changes as before; one that goes makes no room for five.
    pair.put(PRINCIPAL, &key(APP, "a0001"), "u1", "other");
    pair.remove(PRINCIPAL, &key(APP, "a0000"));
    pair.run();
    assert_eq!(pair.sides[AGENT].replica.len(), 9);
    for n in 2..6 {
        pair.remove(PRINCIPAL, &key(APP, &format!("a{n:04}")));
    }
    pair.pass(10);
    assert!(pair.is_equal(PRINCIPAL), "with room for all they come");
    assert_eq!((pair.sides[AGENT].replica.len(), codes(&pair, AGENT).len()), (10, 0));
}

#[test]
fn a_replica_has_only_so_many_bytes() {
    let mut pair = filled(10);
    Arc::make_mut(&mut pair.sides[AGENT].config.limits).replica.bytes = 25;
    pair.connect();
    assert_eq!((pair.sides[AGENT].replica.len(), pair.sides[AGENT].replica.bytes()), (5, 25));
    pair.put(PRINCIPAL, &key(APP, "a0000"), "u0", "123456");
    pair.run();
    assert_eq!(pair.sides[AGENT].replica.bytes(), 25, "what grows is refused");
    pair.put(PRINCIPAL, &key(APP, "a0001"), "u1", "1234");
    pair.run();
    assert_eq!(pair.sides[AGENT].replica.bytes(), 24, "what shrinks is taken");
}

fn section(n: usize) -> ObjectKey {
    let section = SectionKey { kind: model::Kind::new(APP), namespace: format!("ns{n}").into() };
    ObjectKey { section, name: "x".into() }
}

#[test]
fn sets_have_only_so_many_sections() {
    let mut feed = Feed::new("l".parse().unwrap());
    let stub = |n: usize| Stub { uid: format!("u{n}").into(), ..Stub::of(b"x") };
    for n in 0..MAX_SECTIONS {
        let change = feed.planner().put(&section(n), &stub(n)).unwrap().unwrap();
        feed.commit(change).unwrap();
    }
    let refused = feed.planner().put(&section(MAX_SECTIONS), &stub(0)).unwrap_err();
    assert!(refused.to_string().starts_with("too-many-sections"), "{refused}");
    // One that goes makes room.
    let change = feed.planner().remove(&section(0)).unwrap();
    feed.commit(change).unwrap();
    assert!(feed.planner().put(&section(MAX_SECTIONS), &stub(0)).unwrap().is_some());

    // And who says more all the same is refused by name.
    let mut pair = Pair::new(Mode::Managed);
    pair.connect();
    for n in 0..=MAX_SECTIONS {
        let op = Op::Put { stub: stub(n), content: b"x".as_slice().into(), created: true };
        let rev = n as u64 + 1;
        let event = Event {
            seq: rev,
            rev,
            upto: sync::Position::at(rev),
            key: section(n),
            op,
            trace: None,
            at: 1,
            proof: None,
        };
        pair.give(AGENT, Input::Frame(Frame::Event(Box::new(event))));
    }
    pair.run();
    assert_eq!(pair.sides[AGENT].replica.sections(), MAX_SECTIONS);
    assert_eq!(codes(&pair, AGENT), ["too-many"]);
}

#[test]
fn what_is_refused_is_remembered_only_so_far() {
    let mut pair = filled(3);
    for n in 0..3000 {
        pair.put(AGENT, &key("Evil", &format!("e{n}")), &format!("e{n}"), "x");
    }
    pair.connect();
    let replica = &pair.sides[PRINCIPAL].replica;
    assert_eq!((replica.rejected().len(), replica.refused()), (MAX_REJECTED_OBJECTS, 3000));
    assert_eq!(pair.link(AGENT).refused_there(), Some(3000), "all are counted");
    let noted = pair.sides[PRINCIPAL].notes.iter().filter(|note| matches!(note, Note::RefusedHere(_)));
    assert!(noted.count() <= 100, "not a line for each");
    let resyncs = pair.link(PRINCIPAL).counters().resyncs;
    pair.pass(500);
    assert!(pair.link(PRINCIPAL).counters().resyncs <= resyncs + 1, "nor a resync after the other");
    assert!(matches!(standing(&pair, PRINCIPAL), SetCondition::OutOfSync(_)));
}

#[test]
fn a_walk_and_a_list_have_an_end() {
    let mut pair = filled(500);
    Arc::make_mut(&mut pair.sides[AGENT].config.limits).replica.objects = 8;
    let cursor = Some(FeedCursor::at("other".parse().unwrap(), 7));
    let objects = vec![(key(APP, "old"), Stub { uid: "o".into(), ..Stub::of(b"") }, 1)];
    pair.sides[AGENT].replica = Replica::restore(sync::SavedReplica { cursor, objects });
    pair.connect();
    assert_eq!(pair.sides[AGENT].closed, Some(("too-many", Some(3600))));

    let mut pair = filled(1);
    Arc::make_mut(&mut pair.sides[AGENT].config.limits).replica.objects = 8;
    pair.sides[AGENT].config.capabilities.trie_resync = false;
    pair.drops = |_, frame| matches!(frame, Frame::Pong(_));
    pair.connect();
    pair.give(AGENT, Input::Command(LinkCommand::Resync));
    for n in 0..9 {
        let (name, kind) = (format!("l{n}"), APP.to_owned());
        let one =
            InventoryItem { name, namespace: "ns".to_owned(), uid: "u".to_owned(), kind, checksum: None };
        pair.give(AGENT, Input::Frame(Frame::Interop(Box::new(Interop::Listed(one)))));
    }
    assert_eq!(closed(&pair, AGENT), Some("too-many"));
}

fn ask_list() -> Frame {
    Frame::Interop(Box::new(Interop::RequestList { checksum: Digest::ZERO }))
}

fn listed(pair: &Pair) -> usize {
    let one = |frame: &&Frame| matches!(frame, Frame::Interop(said) if matches!(**said, Interop::Listed(_)));
    pair.sides[PRINCIPAL].frames.iter().filter(one).count()
}

#[test]
fn a_list_is_said_once_at_a_time_in_parts_and_with_a_permit() {
    let mut pair = filled(2000);
    pair.connect();
    pair.give(PRINCIPAL, Input::Frame(ask_list()));
    assert_eq!(listed(&pair), 0, "who can walk gets none");
    pair.disconnect();

    pair.sides[AGENT].config.capabilities.trie_resync = false;
    pair.connect();
    let before = listed(&pair);
    (pair.sides[PRINCIPAL].busy, pair.sides[PRINCIPAL].full) = (true, true);
    for _ in 0..100 {
        pair.give(PRINCIPAL, Input::Frame(ask_list()));
    }
    assert_eq!((listed(&pair) - before, pair.sides[PRINCIPAL].wanted.get()), (0, 1), "a permit first");
    pair.sides[PRINCIPAL].busy = false;
    pair.now = pair.now.plus(Duration::from_secs(1));
    pair.give(PRINCIPAL, Input::Tick);
    pair.run();
    let first = listed(&pair) - before;
    assert!(first > 0 && first < 1000, "no more while much waits to be sent: {first}");
    pair.give(PRINCIPAL, Input::Frame(ask_list()));
    pair.sides[PRINCIPAL].full = false;
    pair.run();
    assert_eq!(listed(&pair) - before, 2000, "one list for a hundred questions");
}

#[test]
fn contents_are_loaded_once_at_a_time() {
    let mut pair = filled(100);
    pair.sides[PRINCIPAL].full = true;
    pair.connect();
    for _ in 0..60 {
        pair.give(PRINCIPAL, Input::Frame(Frame::ResyncRequest(Box::new(ResyncRequest::Sections))));
        let from = FeedCursor::at("p".parse().unwrap(), 0);
        pair.give(PRINCIPAL, Input::Frame(Frame::ResyncRequest(Box::new(ResyncRequest::Done { from }))));
    }
    assert_eq!(closed(&pair, PRINCIPAL), None);
    assert_eq!(pair.sides[PRINCIPAL].held.len(), 1, "one load is under way");
    pair.sides[PRINCIPAL].full = false;
    pair.sides[AGENT].replica = Replica::new();
    pair.reconnect();
    assert!(pair.is_equal(PRINCIPAL));
}

/// Of changes and of a peer's requests one load each in turn: neither waits for all of the other.
#[test]
fn changes_and_answers_take_turns() {
    let mut pair = filled(40);
    Arc::make_mut(&mut pair.sides[PRINCIPAL].config.limits).load_events = 4;
    pair.connect();
    pair.sides[PRINCIPAL].full = true;
    let keys: Vec<ObjectKey> = (0..40).map(|n| key(APP, &format!("a{n:04}"))).collect();
    for (n, key) in keys.iter().enumerate() {
        pair.put(PRINCIPAL, key, &format!("u{n}"), "other");
    }
    pair.sides[PRINCIPAL].frames.clear();
    let request = Frame::ResyncRequest(Box::new(ResyncRequest::Objects(keys)));
    pair.give(PRINCIPAL, Input::Frame(request));
    pair.sides[PRINCIPAL].full = false;
    pair.run();
    let answers: Vec<bool> = pair.sides[PRINCIPAL]
        .frames
        .iter()
        .filter_map(|frame| if let Frame::Event(event) = frame { Some(event.seq == 0) } else { None })
        .collect();
    let count = answers.iter().filter(|answer| **answer).count();
    assert_eq!((answers.len(), count), (80, 40), "each once");
    assert!(answers.chunk_by(PartialEq::eq).all(|load| load.len() <= 4), "{answers:?}");
}

#[test]
fn a_permit_is_not_kept_by_asking() {
    let mut pair = filled(10);
    pair.connect();
    pair.wires.iter_mut().for_each(std::collections::VecDeque::clear);
    pair.give(PRINCIPAL, Input::Frame(Frame::ResyncRequest(Box::new(ResyncRequest::Sections))));
    for _ in 0..20 {
        let section = key(APP, "x").section;
        let tops = ResyncRequest::Tops { section, paths: vec![Vec::new()] };
        pair.give(PRINCIPAL, Input::Frame(Frame::ResyncRequest(Box::new(tops))));
        pair.now = pair.now.plus(Duration::from_secs(30));
        pair.give(PRINCIPAL, Input::Tick);
    }
    assert_eq!(closed(&pair, PRINCIPAL), Some("endless-resync"));
}

/// A source whose answer to a resync does not have the hash that it named is not believed.
#[test]
fn a_wrong_node_ends_the_link() {
    let tell = |tell| Input::Frame(Frame::ResyncResponse(Box::new(tell)));
    let nodes = [
        (TrieNode::Bucket(Vec::new()), Some("wrong-node")),
        (TrieNode::Branch(Box::new([Digest::of(b"endless"); 16])), Some("wrong-node")),
        (TrieNode::of(&filled(20).sides[PRINCIPAL].feed.set().section(&key(APP, "x").section)), None),
    ];
    for (node, expected) in nodes {
        let mut pair = filled(20);
        pair.connect();
        pair.disconnect();
        let mut saved = saved(&pair.sides[AGENT].replica);
        saved.objects[7].1.digest = Digest::ZERO;
        pair.sides[AGENT].replica = Replica::restore(saved);
        pair.drops = |_, frame| matches!(frame, Frame::ResyncResponse(tell) if matches!(**tell, ResyncResponse::Tops { .. }));
        pair.connect();
        let section = key(APP, "x").section;
        // Of another place than was asked for: ignored.
        let tops = vec![(vec![1], node.clone())];
        pair.give(AGENT, tell(ResyncResponse::Tops { section: section.clone(), tops }));
        assert_eq!(closed(&pair, AGENT), None);
        pair.drops = |_, _| false;
        pair.give(AGENT, tell(ResyncResponse::Tops { section, tops: vec![(Vec::new(), node)] }));
        pair.run();
        assert_eq!(closed(&pair, AGENT), expected);
        assert_eq!(pair.is_equal(PRINCIPAL), expected.is_none());
    }
}

#[test]
fn a_new_life_is_not_begun_on_demand() {
    let mut pair = filled(10);
    pair.connect();
    pair.disconnect();
    let incarnation = pair.sides[PRINCIPAL].feed.incarnation().clone();
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.cursor = Some(FeedCursor::at(incarnation.clone(), i64::MAX as u64));
    pair.sides[AGENT].replica = Replica::restore(saved);
    pair.sides[PRINCIPAL].refound_again = Some(Duration::from_secs(u64::MAX));
    pair.connect();
    assert_eq!(pair.sides[PRINCIPAL].closed, Some(("reincarnated-before", Some(3600))));
    assert_eq!(*pair.sides[PRINCIPAL].feed.incarnation(), incarnation);
    assert_eq!(pair.link(PRINCIPAL).acked(), None, "nobody has more than there is");
    assert_eq!(pair.sides[PRINCIPAL].incarnations, 1, "asked for once");
}

#[test]
fn numbers_of_the_other_side_overflow_nothing() {
    let mark =
        || Checkpoint { seq: u64::MAX, cursor: FeedCursor::at("p".parse().unwrap(), 1), root: Digest::ZERO };
    let event = || {
        let (seq, rev, upto) = (u64::MAX, u64::MAX, sync::Position::at(u64::MAX));
        let op = Op::Delete { uid: "u".into() };
        Event { seq, rev, upto, key: key(APP, "a"), op, trace: None, at: i64::MIN, proof: None }
    };
    for frame in [Frame::Event(Box::new(event())), Frame::Checkpoint(mark())] {
        let mut pair = filled(2);
        pair.connect();
        pair.give(AGENT, Input::Frame(frame));
        assert_eq!(pair.sides[AGENT].closed, Some(("out-of-order", Some(1))));
    }
    let mut pair = filled(2);
    pair.connect();
    pair.give(
        AGENT,
        Input::Frame(Frame::Ping(Ping { number: u64::MAX, head: u64::MAX, order: PingOrder::Barrier })),
    );
    pair.run();
    assert!(matches!(standing(&pair, AGENT), SetCondition::InSync | SetCondition::Behind(_)));
    let away = GoAway { code: "x".to_owned(), message: String::new(), retry_after: Some(u64::MAX) };
    pair.give(AGENT, Input::Frame(Frame::GoAway(away)));
    assert_eq!(pair.sides[AGENT].closed, Some(("went-away", Some(3600))));
}

/// What fails for now is held within the window's bytes, and what comes after it is read all the same.
#[test]
fn contents_that_fail_for_now_do_not_stop_reading() {
    let mut pair = Pair::new(Mode::Managed);
    Arc::make_mut(&mut pair.sides[AGENT].config.limits).window_bytes = 1000;
    pair.sides[AGENT].outcome = |item, _| {
        if item.key.name.starts_with("large") {
            ItemOutcome::Temporary("the disk is full".to_owned())
        } else {
            ItemOutcome::Done
        }
    };
    for n in 0..6 {
        pair.put(PRINCIPAL, &key(APP, &format!("large{n}")), &format!("u{n}"), &"x".repeat(400));
    }
    pair.connect();
    assert!(pair.link(AGENT).wants_input(), "what is held does not count as unread");
    assert_eq!(pair.link(AGENT).under_way(), 2, "two are held, four are left to a comparison");
    pair.put(PRINCIPAL, &key(APP, "small"), "s", "y");
    pair.run();
    assert!(pair.sides[AGENT].applied.contains(&key(APP, "small")));
    assert!(matches!(standing(&pair, AGENT), SetCondition::OutOfSync(_)), "and nobody says in sync");
    pair.sides[AGENT].outcome = |_, _| ItemOutcome::Done;
    pair.pass(700);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(standing(&pair, AGENT), SetCondition::InSync);
}

/// Of what the other side can say again and again so much is noted, and no more.
#[test]
fn a_peer_does_not_fill_the_log() {
    let mut pair = filled(2);
    pair.connect();
    for n in 0..1000 {
        let (code, message) = (["a", "b"][n % 2].to_owned(), "x".repeat(4096));
        let refused = Refused { rev: 1, key: key(APP, "a0000"), code, message };
        pair.give(PRINCIPAL, Input::Frame(Frame::Refused(Box::new(refused))));
        pair.give(AGENT, Input::Frame(Frame::Interop(Box::new(Interop::RequestResync))));
        pair.run();
    }
    assert_eq!(pair.link(PRINCIPAL).counters().refused_there, 1000, "all are counted");
    assert!(pair.link(AGENT).counters().resyncs >= 900);
    let noted = |at: usize| {
        let lines = |note: &&Note| matches!(note, Note::RefusedThere(_) | Note::Resynced { .. });
        pair.sides[at].notes.iter().filter(lines).count()
    };
    assert_eq!((noted(PRINCIPAL), noted(AGENT)), (100, 100));
}

/// Whatever becomes of objects, and whether or not the source answers: so much is held, and no more.
#[test]
fn objects_that_are_not_applied_are_held_within_bounds() {
    let fetched: fn(&ApplyItem, u32) -> ItemOutcome = |_, _| ItemOutcome::Recoverable("conflict".to_owned());
    let retried: fn(&ApplyItem, u32) -> ItemOutcome = |_, _| ItemOutcome::Temporary("no space".to_owned());
    for (outcome, size, most) in [(fetched, 1, 12), (fetched, 400, 2), (retried, 1, 12), (retried, 400, 2)] {
        let mut pair = Pair::new(Mode::Managed);
        let limits = Arc::make_mut(&mut pair.sides[AGENT].config.limits);
        (limits.window_events, limits.pending_retries, limits.window_bytes) = (8, 4, 1000);
        pair.sides[AGENT].outcome = outcome;
        pair.connect();
        send_named(&mut pair, 100, &"x".repeat(size), |n| format!("u{n}"));
        assert_eq!(pair.link(AGENT).under_way(), most);
        assert!(pair.link(AGENT).wants_input(), "and what comes after them is read");
    }
}

/// Nothing is held for an object whose uid another one has, however many there are.
#[test]
fn objects_of_one_uid_are_not_held() {
    let mut pair = Pair::new(Mode::Managed);
    pair.connect();
    send_named(&mut pair, 5000, &"x".repeat(10_240), |_| "u".to_owned());
    assert_eq!(pair.link(AGENT).under_way(), 0);
    let replica = &pair.sides[AGENT].replica;
    assert_eq!((replica.len(), replica.refused()), (1, 4999));
    assert_eq!(codes(&pair, AGENT), ["uid-twice"; MAX_REJECTED_OBJECTS]);
}

/// Gives the agent events that the control plane's feed does not have, so that it answers nothing.
fn send_named(pair: &mut Pair, count: u64, content: &str, uid: fn(u64) -> String) {
    pair.drops = |at, _| at == PRINCIPAL;
    for rev in 1..=count {
        let content = bytes::Bytes::from(content.to_owned());
        let stub = Stub { uid: uid(rev).into(), ..Stub::of(&content) };
        let op = Op::Put { stub, content, created: true };
        let (upto, key) = (sync::Position::at(rev), key(APP, &format!("n{rev}")));
        let event = Event { seq: rev, rev, upto, key, op, trace: None, at: 1, proof: None };
        pair.give(AGENT, Input::Frame(Frame::Event(Box::new(event))));
        pair.run();
    }
}

#[test]
fn what_waits_for_a_retry_is_due_and_a_ping_says_where_the_feed_is() {
    let mut pair = filled(1);
    pair.sides[AGENT].outcome = |_, tries| match tries {
        1 => ItemOutcome::Temporary("busy".to_owned()),
        _ => ItemOutcome::Done,
    };
    pair.connect();
    let retry = pair.now.plus(Duration::from_secs(1));
    assert_eq!(pair.link(AGENT).next_deadline(), Some(retry));
    pair.pass(90);
    assert!(pair.is_equal(PRINCIPAL));
    let pings = pair.sides[PRINCIPAL].frames.iter().filter_map(|frame| match frame {
        Frame::Ping(ping) => Some(ping.head),
        _ => None,
    });
    assert_eq!(pings.collect::<Vec<u64>>(), [1]);
}

#[test]
fn a_node_does_not_speak_for_operators() {
    let mut pair = Pair::new(Mode::Autonomous);
    for n in 0..30 {
        pair.put(AGENT, &key(APP, &format!("a{n}")), &format!("u{n}"), "content");
    }
    pair.connect();
    pair.disconnect();
    pair.sides[AGENT].feed = Feed::new("other".parse().unwrap());
    pair.connect();
    pair.give(PRINCIPAL, Input::Frame(Frame::Approve));
    pair.run();
    assert_eq!(pair.sides[PRINCIPAL].replica.len(), 30, "what the node lacks is kept");
    pair.give(PRINCIPAL, Input::Command(LinkCommand::Approve));
    pair.run();
    assert_eq!(pair.sides[PRINCIPAL].replica.len(), 0);
}

/// A place in a pass that ends before the cursor's own revision is none.
#[test]
fn a_pass_that_ends_before_it_began_is_no_pass() {
    let mut pair = filled(15);
    pair.connect();
    pair.disconnect();
    let order = KindOrder::of(&pair.sides[AGENT].config.kinds);
    let pass = PassPosition { to: 5, rank: 0, revision: 0, order };
    let cursor = FeedCursor { incarnation: "p".parse().unwrap(), revision: 10, pass: Some(pass) };
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.cursor = Some(cursor);
    pair.sides[AGENT].replica = Replica::restore(saved);
    pair.connect();
    assert_eq!((closed(&pair, PRINCIPAL), pair.link(PRINCIPAL).counters().sent), (None, 5));
    assert!(pair.is_equal(PRINCIPAL));
}
