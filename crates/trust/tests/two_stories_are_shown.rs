//! SEC-4: two nodes that were told two stories show it with what each signed, and with the fleet's trust alone.
//! Nothing that one of them could have made up alone counts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, header, key, name, offer, release_key, trust};
use model::log::Cursor;
use model::{Digest, Timestamp};
use trust::equivocation::{
    Contradiction, SEEN_FORMAT, SeenRecord, Testimony, TestimonyError, Verified, contradiction,
};
use trust::provenance::{AnchoredTrust, EntryProof, FORMAT, NodeHistory, Provenance};
use trust::seen::Seen;
use trust::signed::{digest, sign};
use trust::{Header, SigningKey};

fn at(secs: u64) -> Timestamp {
    CREATED.plus(Duration::from_secs(secs))
}

fn log(seq: u64) -> Cursor {
    Cursor { incarnation: "i1".parse().unwrap(), seq }
}

/// What a node exports that was given this header.
fn told(node: &SigningKey, header: &Header, facts: u64, secs: u64) -> SeenRecord {
    told_with(node, header, log(facts), secs)
}

/// The same, whose log ends there.
fn told_with(node: &SigningKey, header: &Header, log_head: Cursor, secs: u64) -> SeenRecord {
    let (acked, seq) = (Some(log_head.seq), header.seq);
    let header = sign(header, &[&release_key()]).unwrap();
    let seen =
        Seen { node: node.public().node_id(), header: digest(&header), seq, log_head, at: at(secs), acked };
    SeenRecord { format: SEEN_FORMAT, key: node.public(), seen: seen.sign(node).unwrap(), header }
}

fn verified(testimony: Testimony) -> Result<Verified, TestimonyError> {
    testimony.verify(&AnchoredTrust::of(trust()))
}

fn seen(record: &SeenRecord) -> Verified {
    verified(Testimony::Seen(Box::new(record.clone()))).unwrap()
}

/// What a control plane gives to an operator, with its history of a node.
fn given(node: &SigningKey, newest: u64, secs: u64) -> Verified {
    given_with(Some(NodeHistory { node: node.public().node_id(), newest: log(newest) }), secs)
}

/// The same, with this history.
fn given_with(history: Option<NodeHistory>, secs: u64) -> Verified {
    let offer = offer(&header(7), "web-1");
    let provenance = Provenance {
        format: FORMAT,
        made: at(secs),
        hostname: name("web-1"),
        path: "/etc/motd".to_owned(),
        trust: vec![],
        entry: EntryProof { header: offer.header, entry: offer.entry, proof: offer.proof },
        chunks: vec![],
        objects: vec![],
        traits: None,
        history,
    };
    verified(Testimony::Provenance(Box::new(provenance))).unwrap()
}

#[test]
fn two_headers_of_one_number_are_a_contradiction() {
    let (web, db) = (key(21), key(22));
    let other = Header { selection: Digest::of(b"for db-1 alone"), ..header(7) };
    let (a, b) = (seen(&told(&web, &header(7), 3, 0)), seen(&told(&db, &other, 3, 0)));
    let found = contradiction(&a, &b).unwrap();
    assert!(matches!(&found, Contradiction::TwoHeaders { seq: 7, .. }), "{found}");
    // Told the same, and told an older release: both may be honest.
    assert_eq!(contradiction(&a, &seen(&told(&db, &header(7), 9, 5))), None);
    assert_eq!(contradiction(&a, &seen(&told(&db, &header(6), 3, 0))), None);
    // Each channel has its own header; all have one selection.
    let lab = |selection| Header { channel: "lab".parse().unwrap(), selection, ..header(7) };
    assert_eq!(contradiction(&a, &seen(&told(&db, &lab(header(7).selection), 3, 0))), None);
    let found = contradiction(&a, &seen(&told(&db, &lab(Digest::of(b"x")), 3, 0))).unwrap();
    assert!(matches!(&found, Contradiction::TwoSelections { seq: 7, .. }), "{found}");
    // Against what an operator was given.
    let found = contradiction(&given(&web, 3, 0), &b).unwrap();
    assert!(matches!(&found, Contradiction::TwoHeaders { seq: 7, .. }), "{found}");
}

#[test]
fn facts_that_were_acknowledged_and_are_gone_are_a_contradiction() {
    let web = key(21);
    let record = told(&web, &header(7), 9, 0);
    let found = contradiction(&seen(&record), &given(&web, 5, 60)).unwrap();
    assert!(
        matches!(&found, Contradiction::LostFacts { kept, end, .. } if (kept.seq, end.seq) == (9, 5)),
        "{found}"
    );
    assert!(contradiction(&given(&web, 5, 60), &seen(&record)).is_some());
    // It has them; it was asked before they were there; it is of another node.
    assert_eq!(contradiction(&seen(&record), &given(&web, 9, 60)), None);
    assert!(contradiction(&seen(&told(&web, &header(7), 9, 61)), &given(&web, 5, 60)).is_none());
    assert_eq!(contradiction(&seen(&record), &given(&key(22), 5, 60)), None);
    // A node's own log that ends earlier later: two hosts with one key, or one set back.
    let found = contradiction(&seen(&record), &seen(&told(&web, &header(7), 5, 60))).unwrap();
    assert!(matches!(found, Contradiction::LogWentBack { .. }), "{found}");
    assert_eq!(contradiction(&seen(&told(&web, &header(7), 5, 60)), &seen(&record)), Some(found));
    // It grew; it is another node's; both were signed at one time, in whichever order.
    for other in [
        told(&web, &header(7), 9, 60),
        told(&web, &header(7), 12, 60),
        told(&key(22), &header(7), 5, 60),
        told(&web, &header(7), 5, 0),
    ] {
        assert_eq!(contradiction(&seen(&record), &seen(&other)), None, "{other:?}");
        assert_eq!(contradiction(&seen(&other), &seen(&record)), None, "{other:?}");
    }
}

/// A log that begins anew has another incarnation: what was in the one before is compared with nothing.
#[test]
fn another_incarnation_of_a_log_is_another_log() {
    let web = key(21);
    let before = seen(&told(&web, &header(7), 9, 0));
    let anew = Cursor { incarnation: "i2".parse().unwrap(), seq: 5 };
    let by_node = seen(&told_with(&web, &header(7), anew.clone(), 60));
    assert_eq!(contradiction(&before, &by_node), None);
    let history = NodeHistory { node: web.public().node_id(), newest: anew };
    assert_eq!(contradiction(&before, &given_with(Some(history), 60)), None);
}

#[test]
fn each_side_says_what_it_claims() {
    let web = key(21);
    let node = web.public().node_id();
    let by_node = seen(&told(&web, &header(7), 9, 0)).says();
    assert!(by_node.starts_with(&format!("node {node} signed at ")), "{by_node}");
    assert!(by_node.contains("release 7 of channel main") && by_node.ends_with("ends at 9"), "{by_node}");
    let by_control_plane = given(&web, 5, 60).says();
    assert!(
        by_control_plane.ends_with(&format!("its history of node {node} ends at 5")),
        "{by_control_plane}"
    );
    let alone = given_with(None, 60).says();
    assert!(alone.starts_with("a control plane said: release 7 of channel main"), "{alone}");
}

#[test]
fn what_one_could_have_made_up_counts_for_nothing() {
    let web = key(21);
    let honest = told(&web, &header(7), 3, 0);
    let refused = |record: SeenRecord| verified(Testimony::Seen(Box::new(record))).unwrap_err();
    // A header that no release key signed.
    let forged = sign(&Header { selection: Digest::of(b"x"), ..header(7) }, &[&web]).unwrap();
    assert!(matches!(refused(SeenRecord { header: forged, ..honest.clone() }), TestimonyError::Header(_)));
    // A header that the node did not sign that it accepted.
    let other = sign(&Header { selection: Digest::of(b"x"), ..header(7) }, &[&release_key()]).unwrap();
    assert_eq!(refused(SeenRecord { header: other, ..honest.clone() }), TestimonyError::OtherHeader);
    // Another number than the header's.
    let renumbered =
        Seen { seq: 8, ..Seen::verify(&honest.seen, &web.public()).unwrap() }.sign(&web).unwrap();
    assert_eq!(refused(SeenRecord { seen: renumbered, ..honest.clone() }), TestimonyError::OtherHeader);
    // Another node's words.
    assert!(matches!(
        refused(SeenRecord { key: key(22).public(), ..honest.clone() }),
        TestimonyError::Seen(_)
    ));
    assert_eq!(refused(SeenRecord { format: 2, ..honest }), TestimonyError::Format(2));
}
