//! SYN-6: who asks after a restart, with which checksum, and who answers: for each mode, for a restart
//! of either side, with and without the trie resync.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/pair.rs"]
mod pair;

use model::Stub;
use pair::{AGENT, PRINCIPAL, Pair, key, saved};
use std::time::Duration;
use sync::frame::{Frame, Interop, ResyncRequest, ResyncResponse};
use sync::interop::inventory_checksum;
use sync::link::Span;
use sync::{Mode, Replica};

const APP: &str = "Application";

/// Two sides of which the replica is not what its cursor says: one object is other, one is missing,
/// one is too much.
fn different(mode: Mode, trie: bool) -> (Pair, usize) {
    let source = if mode == Mode::Managed { PRINCIPAL } else { AGENT };
    let mut pair = Pair::new(mode);
    pair.sides[AGENT].config.capabilities.trie_resync = trie;
    for n in 0..40 {
        pair.put(source, &key(APP, &format!("a{n}")), &format!("u{n}"), "content");
    }
    pair.connect();
    assert!(pair.is_equal(source));
    pair.disconnect();
    let replica = &mut pair.sides[1 - source].replica;
    let mut saved = saved(replica);
    saved.objects.retain(|(key, ..)| &*key.name != "a7");
    let stub = |uid: &str| Stub { uid: uid.into(), ..Stub::of(b"other") };
    for (key, old, _) in &mut saved.objects {
        if &*key.name == "a8" {
            *old = stub("u8");
        }
    }
    saved.objects.push((key(APP, "gone"), stub("gone"), 1));
    *replica = Replica::restore(saved);
    (pair, source)
}

fn said(pair: &Pair, at: usize, what: impl Fn(&Frame) -> bool) -> Option<usize> {
    pair.sides[at].frames.iter().position(what)
}

fn interop(what: impl Fn(&Interop) -> bool) -> impl Fn(&Frame) -> bool {
    move |frame| matches!(frame, Frame::Interop(interop) if what(interop))
}

#[test]
fn with_the_trie_the_replica_asks_and_the_source_answers() {
    for mode in [Mode::Managed, Mode::Autonomous] {
        for restarted in [PRINCIPAL, AGENT] {
            let (mut pair, source) = different(mode, true);
            pair.restart(restarted);
            pair.connect();
            let replica = 1 - source;
            let begins = |frame: &Frame| matches!(frame, Frame::ResyncRequest(ask) if **ask == ResyncRequest::Sections);
            let answers = |frame: &Frame| matches!(frame, Frame::ResyncResponse(tell) if matches!(**tell, ResyncResponse::Sections { .. }));
            let compares = |frame: &Frame| matches!(frame, Frame::Checkpoint(_));
            assert!(
                said(&pair, source, compares).is_some(),
                "{mode:?} {restarted}: the source sends its root"
            );
            assert!(said(&pair, replica, begins).is_some(), "{mode:?} {restarted}");
            assert!(said(&pair, source, answers).is_some() && said(&pair, source, begins).is_none());
            assert!(said(&pair, source, interop(|_| true)).is_none(), "nobody speaks of inventories");
            pair.run();
            assert!(pair.is_equal(source), "{mode:?} {restarted}");
        }
    }
}

#[test]
fn without_it_the_restarted_side_speaks_first_as_the_source_document_says() {
    for mode in [Mode::Managed, Mode::Autonomous] {
        for restarted in [PRINCIPAL, AGENT] {
            let (mut pair, source) = different(mode, false);
            let replica = 1 - source;
            // The process that was not restarted has had links.
            pair.drops = |_, frame| !matches!(frame, Frame::Hello(_));
            pair.connect();
            pair.disconnect();
            // A peer as the source document describes it knows no checkpoints.
            pair.drops = |_, frame| matches!(frame, Frame::Checkpoint(_));
            pair.restart(restarted);
            let here = saved(&pair.sides[replica].replica).objects;
            let checksum = inventory_checksum(here.iter().map(|(key, stub, _)| (key, &*stub.uid)));
            pair.connect();
            let asks_to_begin = interop(|word| *word == Interop::RequestResync);
            assert_eq!(
                said(&pair, source, &asks_to_begin).is_some(),
                restarted == source,
                "{mode:?} {restarted}: a restarted source asks the replica to begin, and no other"
            );
            assert!(said(&pair, replica, &asks_to_begin).is_none(), "{mode:?} {restarted}");
            let update = interop(
                |word| matches!(word, Interop::RequestUpdate(it) if it.checksum == Some(Stub::of(b"content").digest)),
            );
            assert!(
                said(&pair, replica, update).is_some(),
                "{mode:?} {restarted}: each object with its content's checksum"
            );
            // The orphan went with the answers' deletes only at the end: the inventory is of before.
            let list =
                interop(|word| matches!(word, Interop::RequestList { checksum: said } if *said == checksum));
            assert!(said(&pair, replica, list).is_some(), "{mode:?} {restarted}: the inventory's checksum");
            let listed = interop(|word| matches!(word, Interop::Listed(_)));
            assert!(said(&pair, source, listed).is_some(), "{mode:?} {restarted}: the source answers");
            assert!(pair.is_equal(source), "{mode:?} {restarted}");
        }
    }
}

/// Exchanges lose requests and answers whole; an inventory resync asks again for what it lost.
#[test]
fn an_inventory_resync_over_exchanges_outlives_lost_answers() {
    let (mut pair, source) = different(Mode::Managed, false);
    for side in &mut pair.sides {
        side.config.span = Span::Exchange { after: None };
    }
    // At first nothing of what is asked and answered arrives.
    pair.drops = |_, frame| {
        matches!(frame, Frame::Interop(_) | Frame::Ping(_) | Frame::Pong(_) | Frame::Checkpoint(_))
    };
    pair.connect();
    assert!(!pair.is_equal(source));
    pair.drops = |_, _| false;
    for _ in 0..20 {
        pair.now = pair.now.plus(Duration::from_secs(5));
        pair.reconnect();
    }
    assert!(pair.is_equal(source), "the parts were asked for again");
}
