//! ROL-4, IDN-8: a header of a retired key is believed for what the key signed while a trust document named it, by a key
//! of any document of the line and by no other; not where its time is rejected.

#![allow(clippy::unwrap_used)]

use model::time::SLACK;
use model::{Digest, Timestamp};
use trust::retired::{RetiredHeaderError, verify_retired};
use trust::{Header, SigningKey, Slots, TrustDocument, signed};

/// When the version after the first was signed; each further one a day later.
const SECOND: Timestamp = Timestamp(1_800_000_000_000);
const DAY_MS: i64 = 24 * 3600 * 1000;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

/// A line whose versions have these release keys; the newest rejects what was signed before this.
fn line(keys: &[u8], reject_before: Option<Timestamp>) -> Vec<TrustDocument> {
    let document = |(at, seed): (usize, &u8)| {
        let mut slots = Slots::of(key(*seed).public());
        slots.reject_before = reject_before.filter(|_| at + 1 == keys.len());
        let first = TrustDocument::first("acme-1".parse().unwrap(), slots, Slots::of(key(99).public()));
        let created = (at > 0).then(|| Timestamp(SECOND.0 + (at as i64 - 1) * DAY_MS));
        TrustDocument { version: at as u64 + 1, created, ..first }
    };
    keys.iter().enumerate().map(document).collect()
}

/// What comes of a header of key 1 of this time: the version that believes the key.
fn by(created: Timestamp, keys: &[u8], reject_before: Option<Timestamp>) -> Result<u64, RetiredHeaderError> {
    let header = Header {
        fleet: "acme-1".parse().unwrap(),
        channel: "stable".parse().unwrap(),
        seq: 3,
        label: None,
        created,
        freshness_secs: 1,
        selection: Digest::ZERO,
        fallbacks: Vec::new(),
        requires: Vec::new(),
        rollout: None,
    };
    let documents = line(keys, reject_before);
    let documents: Vec<&TrustDocument> = documents.iter().collect();
    let found = verify_retired(&signed::sign(&header, &[&key(1)]).unwrap(), &documents)?;
    assert_eq!((found.key, found.header), (key(1).public().id(), header));
    Ok(found.version)
}

#[test]
fn by_a_key_of_any_document_and_by_no_other() {
    let created = Timestamp(SECOND.0 - DAY_MS);
    assert_eq!(by(created, &[1, 2, 3], None), Ok(1));
    assert_eq!(by(created, &[1, 1, 2], None), Ok(2), "the last that believes it");
    assert_eq!(by(created, &[2, 3], None), Err(RetiredHeaderError::NeverBelieved));
    assert_eq!(by(created, &[1, 2], Some(created)), Ok(1));
    let limit = Timestamp(created.0 + 1);
    assert_eq!(by(created, &[1, 2], Some(limit)), Err(RetiredHeaderError::RejectedBefore(limit)));
}

#[test]
fn not_for_what_is_dated_after_its_key_was_dropped() {
    let last = SECOND.plus(SLACK);
    let late = Timestamp(last.0 + 1);
    assert_eq!(by(last, &[1, 2, 3], None), Ok(1), "the clocks of two who sign differ");
    let dropped =
        |version, dropped| RetiredHeaderError::SignedAfterDropped { created: late, version, dropped };
    assert_eq!(by(late, &[1, 2, 3], None), Err(dropped(2, SECOND)));
    assert_eq!(by(late, &[1, 1, 2], None), Ok(2), "the third dropped it, a day later");
    assert_eq!(by(late, &[2, 1], None), Ok(2), "the newest names it");
}
