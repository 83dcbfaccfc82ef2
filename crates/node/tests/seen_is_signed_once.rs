//! WIR-1, DLT-1: what the node has seen is signed once for what it says and travels until a
//! check-in that carried it is answered; an unchanged check-in carries none.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::cell::Cell;
use std::time::Duration;

use common::{Bench, Release, START};
use model::Digest;
use model::exchange::Signed;
use model::log::Cursor;
use node::Witness;
use trust::SigningKey;
use trust::seen::Seen;

fn seen(seq: u64, facts: u64, secs: u64) -> Seen {
    let log_head = Cursor { incarnation: "i1".parse().unwrap(), seq: facts };
    let at = START.plus(Duration::from_secs(secs));
    Seen {
        node: key().public().node_id(),
        header: Digest::of(&seq.to_be_bytes()),
        seq,
        log_head,
        at,
        acked: None,
    }
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[4; 32])
}

#[test]
fn it_travels_until_it_is_answered_and_again_when_it_is_asked_for() {
    let signatures = Cell::new(0);
    let mut witness = Witness::default();
    let next = |witness: &mut Witness, seen: Seen| -> Option<Signed> {
        let sign = |seen: &Seen| {
            signatures.set(signatures.get() + 1);
            seen.sign(&key())
        };
        witness.next(seen, sign).unwrap()
    };
    let first = next(&mut witness, seen(1, 1, 0)).expect("nothing was sent yet");
    // No answer came: the same bytes again, unsigned anew.
    assert_eq!(next(&mut witness, seen(1, 1, 5)).as_ref(), Some(&first));
    assert_eq!(signatures.get(), 1);
    witness.answered(Some(&first), false);
    for minute in 1..5 {
        assert_eq!(next(&mut witness, seen(1, 1, minute * 60)), None, "unchanged");
        witness.answered(None, false);
    }
    assert_eq!(signatures.get(), 1);
    // A fact and a release each say something new.
    let late = next(&mut witness, seen(1, 2, 400));
    let newest = next(&mut witness, seen(2, 2, 500)).unwrap();
    // The answer to an earlier check-in says nothing of the newest document.
    witness.answered(late.as_ref(), false);
    assert_eq!(next(&mut witness, seen(2, 2, 550)).as_ref(), Some(&newest));
    witness.answered(Some(&newest), false);
    assert_eq!((next(&mut witness, seen(2, 2, 600)), signatures.get()), (None, 3));
    // The control plane lost it.
    witness.answered(None, true);
    assert_eq!(next(&mut witness, seen(2, 2, 700)), Some(newest));
    assert_eq!(signatures.get(), 3);
}

#[test]
fn the_newest_release_accepted_is_what_is_said() {
    assert_eq!(Bench::new().node.newest_header(), None);
    let release = Release::new(3, START, &["a"]);
    let bench = Bench::holding(&release);
    let digest = bench.node.adoption().unwrap().digest;
    assert_eq!(bench.node.newest_header(), Some((digest, 3)));
}
