//! SYN-4, SYN-6, SYN-11: a link that is cut in the middle of a pass costs what was in flight and
//! no more: the next link goes on behind what is durable. A poll is a link of one request and one
//! answer, of which the control plane keeps nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::Duration;

use model::ObjectKey;
use pair::{AGENT, PRINCIPAL, Pair, key, saved, saved_feed};
use sync::frame::Frame;
use sync::link::{Span, outlives_exchange};
use sync::{Feed, FeedCursor, Input, Link, Mode, Replica};

const OBJECTS: usize = 10_000;
const WINDOW: usize = 24;
/// Kinds in an order that is not the one in which they change: a pass has stages.
const KINDS: [&str; 4] = ["Repository", "Application", "AppProject", "Application:status"];

fn name(n: usize) -> ObjectKey {
    key(KINDS[n % 3], &format!("a{n:05}"))
}

fn filled(objects: usize) -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    for n in 0..objects {
        pair.put(PRINCIPAL, &name(n), &format!("u{n}"), "content");
    }
    for side in &mut pair.sides {
        Arc::make_mut(&mut side.config.limits).window_events = WINDOW;
        Arc::make_mut(&mut side.config.limits).batch_events = 8;
    }
    pair
}

/// One link over an ordered wire that is cut once the agent took `cut` frames with changes.
/// What it took is made durable, as a link that ends does (SYN-14). Whether it was cut.
fn link(pair: &mut Pair, cut: usize) -> bool {
    pair.wires.iter_mut().for_each(std::collections::VecDeque::clear);
    for side in &mut pair.sides {
        side.link = Some(Link::new(side.config.clone(), pair.now));
        side.frames = Vec::new();
    }
    pair.give(AGENT, Input::Open);
    pair.give(PRINCIPAL, Input::Open);
    let mut taken = 0;
    loop {
        let mut busy = false;
        for at in [PRINCIPAL, AGENT] {
            if let Some(input) = pair.sides[at].held.pop_front() {
                pair.give(at, input);
                busy = true;
            }
            if pair.link(at).wants_input()
                && let Some(frame) = pair.wires[at].pop_front()
            {
                taken += usize::from(at == AGENT && matches!(frame, Frame::Event(_)));
                pair.give(at, Input::Frame(frame));
                busy = true;
            }
        }
        if taken >= cut || !busy {
            break;
        }
    }
    for at in [PRINCIPAL, AGENT] {
        pair.give(at, Input::Disconnected);
        while let Some(input) = pair.sides[at].held.pop_front() {
            pair.give(at, input);
        }
        assert_eq!(pair.link(at).under_way(), 0, "what came is processed to the end");
    }
    taken >= cut
}

/// Works until a side waits for nothing but frames.
fn settle(pair: &mut Pair, at: usize) {
    while let Some(input) = pair.sides[at].held.pop_front() {
        pair.give(at, input);
    }
}

/// What the agent's shell has from one poll to the next.
#[derive(Default)]
struct Poller {
    /// How far the control plane has the own feed.
    after: Option<FeedCursor>,
    /// What the last poll had no room for.
    left: Vec<Frame>,
}

impl Poller {
    /// One request and its answer, each cut after `cut` changes; whether something is left to do.
    fn poll(&mut self, pair: &mut Pair, cut: usize) -> bool {
        pair.wires.iter_mut().for_each(std::collections::VecDeque::clear);
        for side in &mut pair.sides {
            let after = if side.config.role == sync::Role::Agent { self.after.take() } else { None };
            let config = sync::LinkConfig {
                span: Span::Exchange { after: after.map(Box::new) },
                ..side.config.clone()
            };
            (side.link, side.frames, side.closed) = (Some(Link::new(config, pair.now)), Vec::new(), None);
        }
        pair.give(AGENT, Input::Open);
        settle(pair, AGENT);
        let left = std::mem::take(&mut self.left);
        for (n, frame) in left.into_iter().enumerate() {
            pair.wires[PRINCIPAL].insert(n + 1, frame);
        }
        pair.give(PRINCIPAL, Input::Open);
        let mut moved = carry(pair, PRINCIPAL, cut);
        pair.wires[PRINCIPAL].clear();
        moved |= carry(pair, AGENT, cut);
        self.left = pair.wires[PRINCIPAL].drain(..).filter(outlives_exchange).collect();
        for at in [AGENT, PRINCIPAL] {
            pair.give(at, Input::Disconnected);
            settle(pair, at);
        }
        self.after = pair.link(AGENT).resumes_after(&pair.sides[AGENT].feed);
        moved || !self.left.is_empty()
    }
}

/// Gives a side what was sent to it, up to `cut` changes; whether something was more than words.
fn carry(pair: &mut Pair, to: usize, cut: usize) -> bool {
    let (mut events, mut moved) = (0, false);
    while let Some(frame) = pair.wires[to].pop_front() {
        let event = matches!(frame, Frame::Event(_));
        if event && events >= cut {
            break;
        }
        events += usize::from(event);
        moved |= event || matches!(frame, Frame::ResyncRequest(_) | Frame::ResyncResponse(_));
        pair.give(to, Input::Frame(frame));
        settle(pair, to);
    }
    moved
}

/// The control plane that answers the next poll knows what is durable, and nothing else.
fn forget(pair: &mut Pair, at: usize) {
    let side = &mut pair.sides[at];
    side.feed = Feed::restore(saved_feed(&side.feed));
    side.replica = Replica::restore(saved(&side.replica));
}

/// Polls until there is nothing to do; how often, and how many events were sent.
fn polled(pair: &mut Pair, cut: usize, anew: bool) -> (usize, usize) {
    let (mut poller, mut polls, mut sent) = (Poller::default(), 0, 0);
    loop {
        let before = pair.sides[AGENT].replica.cursor().cloned();
        let moved = poller.poll(pair, cut);
        let events = usize::try_from(pair.link(PRINCIPAL).counters().sent).unwrap();
        sent += events;
        pair.now = pair.now.plus(Duration::from_secs(1));
        polls += 1;
        if !moved {
            return (polls, sent);
        }
        let now = pair.sides[AGENT].replica.cursor();
        let numbered = pair.link(AGENT).counters().resyncs == 0 && events > 0;
        assert!(
            !numbered || now.is_some_and(|now| before.as_ref().is_none_or(|before| now.is_ahead_of(before))),
            "the durable cursor advances: {before:?}, {now:?}"
        );
        assert!(polls <= 3 * OBJECTS, "the sets do not become equal");
        if anew {
            forget(pair, PRINCIPAL);
        }
    }
}

/// Cuts links after `cut` frames until all is there; how often, and how many events were sent.
fn until_equal(pair: &mut Pair, cut: usize, advances: bool) -> (usize, usize) {
    let (mut cuts, mut sent) = (0, 0);
    loop {
        let before = pair.sides[AGENT].replica.cursor().cloned();
        let was_cut = link(pair, cut);
        sent += usize::try_from(pair.link(PRINCIPAL).counters().sent).unwrap();
        pair.now = pair.now.plus(Duration::from_secs(1));
        if !was_cut {
            return (cuts, sent);
        }
        cuts += 1;
        let now = pair.sides[AGENT].replica.cursor();
        assert!(
            !advances || now.is_some_and(|now| before.as_ref().is_none_or(|before| now.is_ahead_of(before))),
            "the durable cursor advances: {before:?}, {now:?}"
        );
        assert!(cuts <= 2 * OBJECTS, "the sets do not become equal");
    }
}

#[test]
fn a_cut_costs_a_window() {
    for trie in [true, false] {
        let mut pair = filled(OBJECTS);
        pair.sides[AGENT].config.capabilities.trie_resync = trie;
        // Where no pass is resynced both are the same: without a trie some cuts will do.
        for cut in (1..200).step_by(if trie { 1 } else { 19 }) {
            pair.sides[AGENT].replica = Replica::new();
            let (cuts, sent) = until_equal(&mut pair, cut, true);
            assert!(cuts >= OBJECTS / cut - 1, "{cuts} cuts after {cut} frames");
            assert!(sent <= OBJECTS + cuts * WINDOW, "{sent} events, {cuts} cuts after {cut} frames");
            assert!(pair.is_equal(PRINCIPAL), "after {cut} frames");
            assert_eq!(pair.link(AGENT).counters().resyncs, 0, "after {cut} frames");
        }
    }
}

#[test]
fn what_changes_between_links_is_in_the_next_pass() {
    for trie in [true, false] {
        let mut pair = filled(2000);
        pair.sides[AGENT].config.capabilities.trie_resync = trie;
        for round in 0..40 {
            link(&mut pair, 10 + round);
            // Some were sent already, some not.
            for n in (round * 7..2000).step_by(191) {
                if round % 3 == 0 {
                    pair.remove(PRINCIPAL, &name(n));
                } else {
                    pair.put(PRINCIPAL, &name(n), &format!("u{n}"), &format!("content {round}"));
                }
            }
        }
        until_equal(&mut pair, 97, true);
        assert!(pair.is_equal(PRINCIPAL));
        assert_eq!(pair.link(AGENT).counters().resyncs, 0);
    }
}

#[test]
fn a_trie_resync_that_is_cut_keeps_what_it_brought() {
    for (cut, count) in [(1, 2000), (5, 2000), (40, OBJECTS), (199, OBJECTS)] {
        let mut pair = filled(count);
        let cursor = Some(FeedCursor::at("other".parse().unwrap(), 7));
        let objects =
            vec![(key("Application", "old"), model::Stub { uid: "o".into(), ..model::Stub::of(b"") }, 1)];
        pair.sides[AGENT].replica = Replica::restore(sync::SavedReplica { cursor, objects });
        let (cuts, sent) = until_equal(&mut pair, cut, false);
        assert!(sent <= count + cuts * 256, "{sent} events, {cuts} cuts after {cut} frames");
        assert!(pair.is_equal(PRINCIPAL), "after {cut} frames");
    }
}

#[test]
fn a_cut_poll_costs_a_window() {
    for trie in [true, false] {
        let mut pair = filled(OBJECTS);
        pair.sides[AGENT].config.capabilities.trie_resync = trie;
        for cut in (1..200).step_by(if trie { 11 } else { 37 }) {
            pair.sides[AGENT].replica = Replica::new();
            let (polls, sent) = polled(&mut pair, cut, false);
            assert!(polls >= OBJECTS / cut.min(WINDOW), "{polls} polls of {cut} changes");
            assert!(sent <= OBJECTS + polls * WINDOW, "{sent} events, {polls} polls of {cut} changes");
            assert!(pair.is_equal(PRINCIPAL), "polls of {cut} changes");
            assert_eq!(pair.link(AGENT).counters().resyncs, 0, "polls of {cut} changes");
        }
    }
}

#[test]
fn polls_may_be_answered_by_a_control_plane_that_knows_only_what_is_durable() {
    let mut pair = filled(2000);
    for n in 0..1500 {
        pair.put(AGENT, &key("Application:status", &format!("a{n:05}")), &format!("s{n}"), "fine");
    }
    let (polls, sent) = polled(&mut pair, 199, true);
    assert!(sent <= 2000 + polls * WINDOW, "{sent} events, {polls} polls");
    assert!(pair.is_equal(PRINCIPAL) && pair.is_equal(AGENT), "{polls} polls");
    // A resync of the agent, too: it alone knows how far it came.
    let cursor = Some(FeedCursor::at("other".parse().unwrap(), 7));
    let objects =
        vec![(key("Application", "old"), model::Stub { uid: "o".into(), ..model::Stub::of(b"") }, 1)];
    pair.sides[AGENT].replica = Replica::restore(sync::SavedReplica { cursor, objects });
    let (polls, sent) = polled(&mut pair, 199, true);
    assert!(pair.is_equal(PRINCIPAL), "{polls} polls");
    assert!(sent <= 2000 + polls * WINDOW, "{sent} events, {polls} polls");
}

#[test]
fn a_trie_resync_goes_on_from_poll_to_poll() {
    for source in [PRINCIPAL, AGENT] {
        let mut pair = filled(0);
        let kind = ["Application", "Application:status"][source];
        for n in 0..5000 {
            pair.put(source, &key(kind, &format!("a{n:05}")), &format!("u{n}"), "content");
        }
        let cursor = Some(FeedCursor::at("other".parse().unwrap(), 7));
        let objects = vec![(key(kind, "old"), model::Stub { uid: "o".into(), ..model::Stub::of(b"") }, 1)];
        pair.sides[1 - source].replica = Replica::restore(sync::SavedReplica { cursor, objects });
        let (polls, _) = polled(&mut pair, 199, false);
        assert!(pair.is_equal(source), "{source} after {polls} polls");
        assert!(polls < 5000, "{polls}");
    }
}
