//! A small fleet: keys, a selection of two names and a pattern, and signed offers from it.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::time::Duration;

use model::exchange::{Offer, Signed};
use model::selection::PatternEntry;
use model::trie::Trie;
use model::{Digest, Hostname, Selection, SelectionEntry, Timestamp};
use trust::adopt::{Judge, judge, takes};
use trust::clock::TrustTime;
use trust::feature::FEATURES;
use trust::release::Fallback;
use trust::signed::{digest, sign};
use trust::{Adopted, Beacon, Floor, Header, Refusal, SigningKey, Slots, TrustDocument};

/// When the release of [`header`] was signed.
pub const CREATED: Timestamp = Timestamp::from_secs(1_800_000_000);
/// For how long it is fresh.
pub const FRESH: Duration = Duration::from_secs(86_400);

pub fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

/// The release key.
pub fn release_key() -> SigningKey {
    key(1)
}

pub fn trust() -> TrustDocument {
    let (release, root) = (Slots::of(release_key().public()), Slots::of(key(2).public()));
    TrustDocument::first("acme-1".parse().unwrap(), release, root)
}

pub fn name(text: &str) -> Hostname {
    text.parse().unwrap()
}

pub fn entry(channel: &str, content: &str) -> SelectionEntry {
    SelectionEntry { channel: channel.parse().unwrap(), root: Digest::of(content.as_bytes()) }
}

/// web-1 and db-1 by name, edge-* by pattern, lab-1 in a channel of its own.
pub fn selection() -> Selection {
    let exact =
        [("web-1", entry("main", "web")), ("db-1", entry("main", "db")), ("lab-1", entry("lab", "web"))];
    let leaves = exact.iter().map(|(hostname, entry)| Selection::leaf(&name(hostname), entry));
    let except = vec!["edge-9".to_owned()];
    let pattern = PatternEntry { pattern: "edge-*".to_owned(), except, entry: entry("main", "edge") };
    Selection::new(Trie::build(leaves), vec![pattern])
}

pub fn header(seq: u64) -> Header {
    Header {
        fleet: "acme-1".parse().unwrap(),
        channel: "main".parse().unwrap(),
        seq,
        label: Some("main@4f2c".to_owned()),
        created: CREATED,
        selection: selection().root().unwrap(),
        freshness_secs: FRESH.as_secs(),
        fallbacks: vec![],
        requires: vec![],
        rollout: None,
    }
}

pub fn signed(header: &Header) -> Signed {
    sign(header, &[&release_key()]).unwrap()
}

pub fn fallback(header: &Header) -> Fallback {
    Fallback { seq: header.seq, header: digest(&signed(header)) }
}

pub fn beacon(header: &Header, at: Timestamp) -> Beacon {
    let (fleet, channel) = (header.fleet.clone(), header.channel.clone());
    Beacon { fleet, channel, seq: header.seq, header: digest(&signed(header)), at }
}

/// A header offered to a hostname as an honest control plane does.
pub fn offer(header: &Header, hostname: &str) -> Offer {
    let (selection, header) = (selection(), signed(header));
    let first = selection.first(hostname, &takes);
    let proof = selection.prove(hostname, first).unwrap();
    let entry = selection.entry(hostname, &takes).unwrap();
    Offer { header, beacon: None, entry, proof, set: None }
}

pub fn at(clock: Timestamp) -> TrustTime {
    TrustTime { clock, ..TrustTime::default() }
}

/// What web-1, or another, says to an offer.
pub fn judged(offer: &Offer, hostname: &str, floor: &Floor, time: TrustTime) -> Result<Adopted, Refusal> {
    let (trust, hostname) = (trust(), name(hostname));
    judge(
        offer,
        Judge { trust: &trust, hostname: &hostname, floor, time, matches: &takes, features: FEATURES },
    )
}
