//! SYN-3 to SYN-6, SYN-12: the defects that the study of the source system lists, each as a
//! promise that holds here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "model/pair.rs"]
mod pair;

use std::sync::Arc;

use model::condition::{Difference, SetCondition};
use pair::{AGENT, PRINCIPAL, Pair, key, saved, saved_feed};
use sync::frame::{Ack, Capabilities, Frame, Interop, Op, Ping, PingOrder, Refused, ResyncResponse};
use sync::link::{ItemOutcome, LinkCommand, Note, may_overtake};
use sync::object::status_key;
use sync::{Input, Link, Mode};

const APP: &str = "Application";

fn filled(objects: usize) -> Pair {
    let mut pair = Pair::new(Mode::Managed);
    for n in 0..objects {
        pair.put(PRINCIPAL, &key(APP, &format!("a{n}")), &format!("u{n}"), &format!("content {n}"));
    }
    pair
}

fn theirs(pair: &Pair, at: usize) -> SetCondition {
    let side = &pair.sides[at];
    pair.link(at).replica_condition(&side.replica)
}

#[test]
fn a_full_queue_evicts_nothing() {
    // There: a thousand events, then the oldest goes without a word.
    let mut pair = filled(5000);
    for round in 0..3 {
        for n in 0..5000 {
            pair.put(
                PRINCIPAL,
                &key(APP, &format!("a{n}")),
                &format!("u{n}"),
                &format!("content {n} {round}"),
            );
        }
    }
    pair.put(PRINCIPAL, &"Action//x1".parse().unwrap(), "x1", "do");
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.sides[AGENT].replica.len(), 5001);
    let counters = pair.link(PRINCIPAL).counters();
    assert_eq!(counters.sent, 5001, "each object once, at its newest change");
    assert_eq!(counters.coalesced, 15_000, "evictions prevented are counted");
}

#[test]
fn every_connect_compares_not_only_the_first_of_a_process() {
    let mut pair = filled(20);
    pair.connect();
    // The replica loses an object without noticing: only the roots tell.
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.objects.pop();
    pair.disconnect();
    pair.sides[AGENT].replica = sync::Replica::restore(saved);
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().resync_objects, 1, "at the cost of the difference");
    assert_eq!(theirs(&pair, AGENT), SetCondition::InSync);
}

#[test]
fn roots_are_compared_periodically_on_a_link_that_stays() {
    let mut pair = filled(20);
    pair.connect();
    let mut saved = saved(&pair.sides[AGENT].replica);
    saved.objects[3].1.digest = model::Digest::ZERO;
    pair.sides[AGENT].replica = sync::Replica::restore(saved);
    pair.pass(620);
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.link(AGENT).counters().resyncs, 1);
}

#[test]
fn content_is_compared_not_only_names() {
    for walk in [true, false] {
        let mut pair = filled(30);
        pair.sides[AGENT].config.capabilities.trie_resync = walk;
        pair.connect();
        let mut saved = saved(&pair.sides[AGENT].replica);
        saved.objects[7].1.digest = model::Digest::of(b"something else under the same name and uid");
        pair.disconnect();
        pair.sides[AGENT].replica = sync::Replica::restore(saved);
        pair.connect();
        assert!(pair.is_equal(PRINCIPAL), "walk {walk}");
        assert_eq!(pair.link(AGENT).counters().resync_objects, 1, "walk {walk}");
    }
}

#[test]
fn acknowledgements_do_not_wait_behind_data() {
    let ack = Frame::Ack(Ack { seq: 1, cursor: None, refused: 0, compared: false });
    assert!(may_overtake(&ack));
    let ping = |order| Frame::Ping(Ping { order, ..Ping::default() });
    assert!(may_overtake(&ping(PingOrder::Any)));
    assert!(!may_overtake(&ping(PingOrder::Barrier)), "it stands behind what it asks about");
    // The agent acknowledges the object while its own status of it is not acknowledged, and
    // a delete under way takes no acknowledgement with it.
    let mut pair = filled(1);
    pair.sides[PRINCIPAL].slow = true;
    pair.connect();
    pair.put(AGENT, &status_key(&key(APP, "a0")), "u0", "fine");
    pair.run();
    assert_eq!(pair.link(AGENT).in_flight(), 1, "the principal is slow with the status");
    pair.put(PRINCIPAL, &key(APP, "a0"), "u0", "newer");
    pair.remove(PRINCIPAL, &key(APP, "a0"));
    pair.run();
    assert_eq!(pair.link(PRINCIPAL).in_flight(), 0, "acknowledged");
    assert_eq!(pair.link(PRINCIPAL).acked(), Some(&pair.sides[PRINCIPAL].feed.cursor()));
}

#[test]
fn deletes_while_a_side_is_down_arrive_for_every_kind() {
    for (walk, kind) in
        [true, false].into_iter().flat_map(|walk| ["AppProject", APP, "Repository"].map(|kind| (walk, kind)))
    {
        let mut pair = filled(10);
        pair.sides[AGENT].config.capabilities.trie_resync = walk;
        pair.put(PRINCIPAL, &key(kind, "secret"), "s", "credentials");
        pair.connect();
        pair.restart(PRINCIPAL);
        pair.remove(PRINCIPAL, &key(kind, "secret"));
        pair.connect();
        assert!(pair.sides[AGENT].replica.get(&key(kind, "secret")).is_none(), "{kind}, by the tombstone");

        pair.put(PRINCIPAL, &key(kind, "secret"), "s2", "credentials");
        pair.run();
        pair.disconnect();
        // Also when the tombstone is forgotten: by content.
        let feed =
            std::mem::replace(&mut pair.sides[PRINCIPAL].feed, sync::Feed::new("gone".parse().unwrap()));
        pair.sides[PRINCIPAL].feed = feed.keeping_tombstones(1);
        pair.remove(PRINCIPAL, &key(kind, "secret"));
        for n in 0..3 {
            pair.put(PRINCIPAL, &key(kind, &format!("t{n}")), &format!("t{n}"), "t");
            pair.remove(PRINCIPAL, &key(kind, &format!("t{n}")));
        }
        pair.connect();
        assert!(
            pair.sides[AGENT].replica.get(&key(kind, "secret")).is_none(),
            "{kind}, walk {walk}, as an orphan"
        );
        assert!(pair.is_equal(PRINCIPAL));
        assert_eq!(pair.link(AGENT).counters().orphans, 1);
    }
}

#[test]
fn a_resync_of_thousands_loses_none() {
    for walk in [true, false] {
        let mut pair = filled(3000);
        pair.sides[AGENT].config.capabilities.trie_resync = walk;
        pair.connect();
        let mut saved = saved(&pair.sides[AGENT].replica);
        saved.objects.truncate(400);
        saved.cursor = Some(sync::FeedCursor::at("other".parse().unwrap(), 7));
        pair.disconnect();
        pair.sides[AGENT].replica = sync::Replica::restore(saved);
        pair.connect();
        assert!(
            pair.is_equal(PRINCIPAL),
            "walk {walk} {:?} {:?} {:?}",
            pair.link(AGENT).counters(),
            theirs(&pair, AGENT),
            pair.sides[AGENT].frames
        );
        assert_eq!(pair.sides[AGENT].replica.cursor(), Some(&pair.sides[PRINCIPAL].feed.cursor()));
        assert_eq!(pair.link(AGENT).counters().resync_objects, 2600, "walk {walk}");
    }
}

#[test]
fn an_empty_source_is_no_reason_for_silence() {
    for walk in [true, false] {
        let mut pair = filled(2);
        pair.sides[AGENT].config.capabilities.trie_resync = walk;
        pair.connect();
        pair.disconnect();
        pair.sides[PRINCIPAL].feed = sync::Feed::new("fresh".parse().unwrap());
        pair.connect();
        assert!(pair.sides[AGENT].replica.is_empty(), "walk {walk}: few orphans go unasked");
    }
}

#[test]
fn many_orphans_wait_for_an_operator() {
    for walk in [true, false] {
        let mut pair = filled(50);
        pair.sides[AGENT].config.capabilities.trie_resync = walk;
        pair.connect();
        pair.disconnect();
        pair.sides[PRINCIPAL].feed = sync::Feed::new("fresh".parse().unwrap());
        pair.connect();
        assert_eq!(pair.sides[AGENT].replica.len(), 50, "nothing is deleted unasked");
        assert!(matches!(
            theirs(&pair, AGENT),
            SetCondition::OutOfSync(Difference::DeletionsUnconfirmed { kept: 50, of: 50 })
        ));
        pair.pass(5);
        assert_eq!(pair.sides[AGENT].replica.len(), 50);
        // What is new at the source still arrives.
        pair.put(PRINCIPAL, &key(APP, "new"), "n", "new");
        pair.run();
        assert_eq!(pair.sides[AGENT].replica.len(), 51);
        pair.give(AGENT, Input::Command(LinkCommand::Approve));
        pair.run();
        assert_eq!(pair.sides[AGENT].replica.len(), 1, "walk {walk}");
        assert!(pair.is_equal(PRINCIPAL));
    }
}

/// The word counts for what the source took out because of it, though the comparison that was under
/// way when it came found nothing; not for what vanishes later.
#[test]
fn an_operators_word_outlives_a_comparison_that_found_nothing() {
    for (later, gone) in [(5, true), (60, false)] {
        let mut pair = filled(50);
        pair.connect();
        pair.give(AGENT, Input::Command(LinkCommand::Approve));
        pair.run();
        pair.pass(later);
        // What was removed is known by a comparison only: its tombstones are forgotten.
        let feed = &mut pair.sides[PRINCIPAL].feed;
        *feed = std::mem::replace(feed, sync::Feed::new("gone".parse().unwrap())).keeping_tombstones(1);
        pair.give(AGENT, Input::Command(LinkCommand::Resync));
        for number in 0..40 {
            let feed = &mut pair.sides[PRINCIPAL].feed;
            let change = feed.planner().remove(&key(APP, &format!("a{number}"))).unwrap();
            feed.commit(change).unwrap();
        }
        pair.run();
        let resyncs = pair.link(AGENT).counters().resyncs;
        assert!(resyncs >= 2, "{resyncs}");
        let kept =
            matches!(theirs(&pair, AGENT), SetCondition::OutOfSync(Difference::DeletionsUnconfirmed { .. }));
        assert_eq!(kept, !gone, "after {later} s");
        let left = pair.sides[AGENT].replica.len();
        assert!(if gone { left == 10 } else { left >= 49 }, "{left} after {later} s");
    }
}

#[test]
fn one_slow_object_stalls_no_other() {
    let mut pair = filled(9000);
    pair.sides[AGENT].outcome = |item, _| {
        if &*item.key.name == "a0" {
            ItemOutcome::Temporary("the disk is busy".to_owned())
        } else {
            ItemOutcome::Done
        }
    };
    pair.connect();
    assert_eq!(pair.sides[AGENT].replica.len(), 8999, "all others, beyond any window");
    assert_eq!(pair.link(PRINCIPAL).in_flight(), 0);
    assert_eq!(pair.sides[AGENT].replica.cursor().unwrap().revision, 0, "the cursor stays below it");
    pair.sides[AGENT].outcome = |_, _| ItemOutcome::Done;
    pair.pass(3);
    assert_eq!(pair.sides[AGENT].replica.len(), 9000);
    assert_eq!(pair.sides[AGENT].replica.cursor(), Some(&pair.sides[PRINCIPAL].feed.cursor()));
}

#[test]
fn an_error_that_stays_is_told_to_the_source() {
    // There: acknowledged and forgotten.
    let mut pair = filled(3);
    pair.sides[AGENT].outcome = |item, _| match &*item.key.name {
        "a1" => ItemOutcome::Permanent { code: "invalid".to_owned(), message: "no such field".to_owned() },
        "a2" => ItemOutcome::Recoverable("conflict".to_owned()),
        _ => ItemOutcome::Done,
    };
    pair.connect();
    pair.pass(120);
    let told: Vec<(String, String)> = pair.sides[PRINCIPAL]
        .notes
        .iter()
        .filter_map(|note| match note {
            Note::RefusedThere(Refused { key, code, .. }) => Some((key.name.to_string(), code.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [("a1".to_owned(), "invalid".to_owned()), ("a2".to_owned(), "recovery-failed".to_owned())]
    );
    assert!(
        matches!(theirs(&pair, AGENT), SetCondition::OutOfSync(Difference::Rejected { rejection, .. }) if rejection.message.contains("no such field"))
    );
    assert_eq!(pair.sides[AGENT].tries[&key(APP, "a2")], 6, "fetched anew five times");
    assert_eq!(
        pair.sides[AGENT].replica.cursor(),
        Some(&pair.sides[PRINCIPAL].feed.cursor()),
        "others go on"
    );
}

#[test]
fn work_ordered_while_a_node_is_away_is_not_coalesced_with_state() {
    let mut pair = filled(2);
    for n in 0..20 {
        pair.put(PRINCIPAL, &format!("Action//x{n}").parse().unwrap(), &format!("x{n}"), "sync");
        pair.put(PRINCIPAL, &key(APP, "a0"), "u0", &format!("version {n}"));
    }
    pair.connect();
    let actions =
        pair.sides[AGENT].applied.iter().filter(|key| key.section.kind.as_str() == "Action").count();
    assert_eq!(actions, 20);
    assert_eq!(pair.link(PRINCIPAL).counters().sent, 22);
}

#[test]
fn a_source_from_an_old_backup_begins_a_new_life() {
    let mut pair = filled(10);
    let backup = saved_feed(&pair.sides[PRINCIPAL].feed);
    for n in 0..10 {
        pair.put(PRINCIPAL, &key(APP, &format!("a{n}")), &format!("u{n}"), "newer");
    }
    pair.connect();
    pair.disconnect();
    pair.sides[PRINCIPAL].feed = sync::Feed::restore(backup);
    for n in 0..10 {
        pair.sides[PRINCIPAL].contents.insert(key(APP, &format!("a{n}")), format!("content {n}").into());
    }
    pair.connect();
    assert_eq!(pair.sides[PRINCIPAL].closed, Some(("reincarnated", Some(0))));
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    assert_eq!(pair.sides[AGENT].replica.cursor().unwrap().incarnation.as_str(), "x1");
}

#[test]
fn versions_are_a_range_and_a_mismatch_backs_off() {
    let mut pair = filled(1);
    pair.sides[AGENT].config.versions = (1, 7);
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL), "versions that meet");
    pair.disconnect();
    pair.sides[AGENT].config.versions = (1, 1);
    pair.connect();
    assert_eq!(pair.sides[AGENT].closed.map(|(code, _)| code), Some("version"));
    assert!(pair.sides[AGENT].closed.unwrap().1.unwrap() >= 60, "not ten times a second");
}

#[test]
fn who_never_acknowledges_is_left_and_who_acknowledges_the_unsent_too() {
    let mut pair = filled(1);
    // Its acknowledgements are lost, so it takes itself to have spoken.
    Arc::make_mut(&mut pair.sides[AGENT].config.limits).ping_every = std::time::Duration::from_secs(20);
    pair.drops = |_, frame| matches!(frame, Frame::Ack(_));
    pair.connect();
    pair.pass(1000);
    assert_eq!(pair.sides[PRINCIPAL].closed.map(|(code, _)| code), Some("no-acknowledgement"));

    let mut pair = filled(1);
    pair.connect();
    pair.give(
        PRINCIPAL,
        Input::Frame(Frame::Ack(Ack { seq: 99, cursor: None, refused: 0, compared: false })),
    );
    assert_eq!(pair.sides[PRINCIPAL].closed.map(|(code, _)| code), Some("ack-of-unsent"));
}

#[test]
fn received_events_come_to_their_end_at_a_shutdown() {
    let mut pair = filled(100);
    pair.sides[AGENT].slow = true;
    pair.connect();
    pair.give(AGENT, Input::Command(LinkCommand::Shutdown));
    assert_eq!(pair.sides[AGENT].closed, None, "a batch is under way");
    pair.sides[AGENT].slow = false;
    pair.run();
    assert_eq!(pair.sides[AGENT].closed.map(|(code, _)| code), Some("shutdown"));
    assert_eq!(pair.sides[AGENT].replica.len(), 100);
}

#[test]
fn projects_come_before_applications_and_go_after_them() {
    let mut pair = Pair::new(Mode::Managed);
    pair.put(PRINCIPAL, &key(APP, "a"), "1", "a");
    pair.put(PRINCIPAL, &key("AppProject", "p"), "2", "p");
    pair.connect();
    pair.disconnect();
    pair.remove(PRINCIPAL, &key("AppProject", "p"));
    pair.remove(PRINCIPAL, &key(APP, "a"));
    pair.connect();
    let kinds: Vec<&str> = pair.sides[AGENT].applied.iter().map(|key| key.section.kind.as_str()).collect();
    assert_eq!(kinds, ["AppProject", APP, APP, "AppProject"]);
}

#[test]
fn a_type_from_the_wrong_side_is_refused_by_name() {
    let cases = [
        (Mode::Managed, AGENT, "Application", "wrong-side"),
        (Mode::Managed, AGENT, "Action", "wrong-side"),
        (Mode::Autonomous, PRINCIPAL, "Application", "wrong-side"),
        (Mode::Off, PRINCIPAL, "Application", "wrong-side"),
        (Mode::Off, AGENT, "Application:status", "wrong-side"),
        (Mode::Managed, PRINCIPAL, "Secret", "kind-not-allowed"),
    ];
    for (mode, from, kind, expected) in cases {
        let mut pair = Pair::new(mode);
        pair.put(from, &key(kind, "x"), "u", "content");
        pair.connect();
        let rejected = pair.sides[1 - from].replica.rejected();
        assert_eq!(
            rejected.get(&key(kind, "x")).map(|rejected| rejected.code.as_str()),
            Some(expected),
            "{mode:?} {kind}"
        );
        assert_eq!(pair.sides[1 - from].applied, []);
    }
}

#[test]
fn bad_objects_have_names() {
    let mut pair = Pair::new(Mode::Managed);
    pair.put(PRINCIPAL, &key(APP, "nouid"), "", "x");
    pair.put(PRINCIPAL, &key(APP, "big"), "b", &"x".repeat(sync::object::MAX_CONTENT + 1));
    pair.put(PRINCIPAL, &key(APP, "lie"), "l", "truth");
    pair.sides[PRINCIPAL].contents.insert(key(APP, "lie"), "a lie".into());
    pair.put(PRINCIPAL, &key(APP, "one"), "same", "1");
    pair.put(PRINCIPAL, &key(APP, "two"), "same", "2");
    pair.connect();
    pair.pass(200);
    let codes: Vec<(String, String)> = pair.sides[AGENT]
        .replica
        .rejected()
        .iter()
        .map(|(key, rejected)| (key.name.to_string(), rejected.code.clone()))
        .collect();
    let expected =
        [("big", "too-large"), ("lie", "digest-mismatch"), ("nouid", "no-uid"), ("two", "uid-twice")];
    assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code.to_owned())));
    // The second has the uid alone, in the end: then it is taken.
    pair.remove(PRINCIPAL, &key(APP, "one"));
    pair.pass(10);
    assert_eq!(pair.sides[AGENT].replica.get(&key(APP, "two")).map(|(stub, _)| &*stub.uid), Some("same"));
}

#[test]
fn a_peer_without_the_walk_is_asked_as_the_source_document_says() {
    for (mode, source) in [(Mode::Managed, PRINCIPAL), (Mode::Autonomous, AGENT)] {
        let mut pair = Pair::new(mode);
        for n in 0..5 {
            pair.put(source, &key(APP, &format!("a{n}")), &format!("u{n}"), "x");
        }
        pair.sides[source].config.capabilities = Capabilities { trie_resync: false, ..Capabilities::ALL };
        pair.connect();
        pair.disconnect();
        // The source restarts and has another incarnation; the replica has one that is gone, one
        // that differs, and lacks one.
        let mut saved = saved(&pair.sides[1 - source].replica);
        saved.objects.remove(0);
        saved.objects[0].1.digest = model::Digest::ZERO;
        let stray = (key(APP, "stray"), model::Stub { uid: "s".into(), ..model::Stub::of(b"") }, 1);
        saved.objects.push(stray);
        pair.sides[1 - source].replica = sync::Replica::restore(saved);
        pair.sides[source].feed = pair.sides[source].feed.reincarnate("second".parse().unwrap());
        pair.connect();
        assert!(pair.is_equal(source));
        let said = |at: usize| -> Vec<&'static str> {
            let mut words: Vec<&'static str> = Vec::new();
            for frame in &pair.sides[at].frames {
                let word = match frame {
                    Frame::Interop(interop) => match **interop {
                        Interop::RequestResync => "request-resource-resync",
                        Interop::RequestList { .. } => "request-synced-resource-list",
                        Interop::Listed(_) => "response-synced-resource",
                        Interop::RequestUpdate(_) => "request-update",
                    },
                    Frame::Event(event) if event.seq == 0 => match event.op {
                        Op::Put { .. } => "put",
                        Op::Delete { .. } => "delete",
                    },
                    _ => continue,
                };
                if words.last() != Some(&word) {
                    words.push(word);
                }
            }
            words
        };
        assert_eq!(said(source)[0], "request-resource-resync", "{mode:?}");
        assert!(said(source).ends_with(&["response-synced-resource", "delete", "put"]), "{:?}", said(source));
        assert_eq!(said(1 - source), ["request-synced-resource-list", "request-update"]);
    }
}

#[test]
fn a_walk_costs_what_differs() {
    let mut pair = filled(20_000);
    pair.connect();
    let mut saved = saved(&pair.sides[AGENT].replica);
    for n in 0..10 {
        saved.objects[n * 1999].1.digest = model::Digest::ZERO;
    }
    pair.disconnect();
    pair.sides[AGENT].replica = sync::Replica::restore(saved);
    pair.connect();
    assert!(pair.is_equal(PRINCIPAL));
    let counters = pair.link(AGENT).counters();
    assert_eq!(counters.resync_objects, 10);
    assert!(counters.resync_frames < 20, "{} frames", counters.resync_frames);
    let places: usize = pair.sides[PRINCIPAL]
        .frames
        .iter()
        .map(|frame| match frame {
            Frame::ResyncResponse(tell) => match &**tell {
                ResyncResponse::Tops { tops, .. } => tops.len(),
                _ => 0,
            },
            _ => 0,
        })
        .sum();
    assert!(places <= 10 * 4 + 1, "{places} places");
}

#[test]
fn links_are_small() {
    // 9,000 idle streams at 40 KiB each leave most of it to TLS and HTTP.
    assert!(size_of::<Link>() < 2048, "{} bytes", size_of::<Link>());
}
