//! WIR-1, ROL-4: of what a node has seen the newest is kept, however it comes; another log is another story, and what
//! came once is not verified again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::{HeldRelease, Signed};
use model::log::Cursor;
use model::{Digest, Incarnation, Timestamp};
use plane::seen::KeptSeen;
use trust::SigningKey;
use trust::seen::Seen;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn cursor(incarnation: &str, seq: u64) -> Cursor {
    Cursor { incarnation: incarnation.parse().unwrap(), seq }
}

fn document(seq: u64, log: Cursor) -> Signed {
    let node = key(7).public().node_id();
    let header = Digest::of(&seq.to_be_bytes());
    Seen { node, header, seq, log_head: log, at: Timestamp(9), acked: None }.sign(&key(7)).unwrap()
}

fn after(known: Option<&KeptSeen>, document: &Signed) -> Option<KeptSeen> {
    KeptSeen::after(known, document, &key(7).public()).unwrap()
}

#[test]
fn the_newest_is_kept() {
    let first = document(5, cursor("i1", 9));
    let kept = after(None, &first).unwrap();
    assert_eq!((kept.seen.seq, kept.seen.log_head.seq), (5, 9));
    assert_eq!(KeptSeen::restored(&first).as_ref(), Some(&kept));
    for (what, seq, log, want) in [
        ("the same again", 5, cursor("i1", 9), false),
        ("an older release", 4, cursor("i1", 9), false),
        ("an older release, and more facts", 4, cursor("i1", 12), false),
        ("fewer facts", 5, cursor("i1", 8), false),
        ("a newer release, and fewer facts", 6, cursor("i1", 8), false),
        ("a newer release", 6, cursor("i1", 9), true),
        ("more facts", 5, cursor("i1", 10), true),
        ("a log that began anew", 4, cursor("i2", 1), true),
    ] {
        let next = document(seq, log);
        assert_eq!(after(Some(&kept), &next).map(|kept| kept.seen.seq), want.then_some(seq), "{what}");
    }
    // Another key's word is none, but what is known already is not looked at again.
    let other = key(8).public();
    assert!(KeptSeen::after(Some(&kept), &document(6, cursor("i1", 9)), &other).is_err());
    assert_eq!(KeptSeen::after(Some(&kept), &first, &other), Ok(None));
}

#[test]
fn it_is_asked_for_where_a_check_in_says_more() {
    let kept = after(None, &document(5, cursor("i1", 9))).unwrap();
    let channel: model::Channel = "main".parse().unwrap();
    let held = |seq| HeldRelease { channel: channel.clone(), seq, header: Digest::ZERO, root: Digest::ZERO };
    let (same, anew): (Incarnation, Incarnation) = ("i1".parse().unwrap(), "i2".parse().unwrap());
    for (what, seq, incarnation, facts, want) in [
        ("the same", Some(5), &same, Some(cursor("i1", 9)), false),
        ("nothing", None, &same, None, false),
        ("a newer release", Some(6), &same, None, true),
        ("an older one", Some(4), &same, None, false),
        ("more facts", Some(5), &same, Some(cursor("i1", 10)), true),
        ("fewer", Some(5), &same, Some(cursor("i1", 8)), false),
        ("facts of a log of before", Some(5), &same, Some(cursor("i0", 99)), false),
        ("a log that began anew", Some(5), &anew, None, true),
    ] {
        let held = seq.map(held);
        assert_eq!(kept.lacks(held.as_ref(), incarnation, facts.as_ref()), want, "{what}");
    }
}
