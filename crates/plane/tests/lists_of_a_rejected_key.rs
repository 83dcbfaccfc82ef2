//! IDN-6, IDN-8, ENR-3: what a signed list counts for whose key was retired, or may have been stolen: an allowlist lets
//! nobody in by it, and a set of revocations shuts out on.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use model::Timestamp;
use plane::lists::{AllowlistState, KeptList};
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::lists::{Revocation, RevocationSet, TokenAllowlist};
use trust::signed::{self, VerifyError};
use trust::{ListRefusal, SigningKey, Slots, TrustDocument};

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_800_000_000 + secs)
}

/// The versions, newest first: the release key was rotated, and what was signed before `reject` counts no more.
fn versions(reject: Option<Timestamp>) -> Vec<ChainHead> {
    let slots = |seed| Slots::of(key(seed).public());
    let first = ChainHead::of(TrustDocument::first("acme-1".parse().unwrap(), slots(2), slots(1)));
    let to = SlotChange::Replace(key(3).public());
    let next = chain::next_version(&first, SlotName::Release, to, reject, at(100)).unwrap();
    let next = first.follow(&chain::sign(&next, &key(1)).unwrap()).unwrap();
    vec![next, first]
}

#[test]
fn an_allowlist_lets_nobody_in_and_a_revocation_shuts_out() {
    let fleet = "acme-1".parse().unwrap();
    let allowlist = TokenAllowlist { fleet, seq: 1, at: at(10), tokens: BTreeMap::new() };
    let revoked = BTreeMap::from([("web-1".parse().unwrap(), Revocation { not_before: at(5), why: None })]);
    let set = RevocationSet { fleet: allowlist.fleet.clone(), seq: 1, at: at(10), revoked };
    let sign = |by: u8| {
        let by = key(by);
        (signed::sign(&allowlist, &[&by]).unwrap(), signed::sign(&set, &[&by]).unwrap())
    };
    let (tokens, revocations) = sign(2);
    // Retired alone, what it signed counts on.
    let retired = versions(None);
    assert!(matches!(AllowlistState::kept(tokens.clone(), &retired).unwrap(), AllowlistState::Published(_)));
    assert_eq!(KeptList::<RevocationSet>::kept(revocations.clone(), &retired).unwrap().list, set);
    // It may have been stolen by then.
    let rejected = versions(Some(at(50)));
    assert!(matches!(AllowlistState::kept(tokens, &rejected).unwrap(), AllowlistState::Rejected));
    assert_eq!(KeptList::<RevocationSet>::kept(revocations, &rejected).unwrap().list, set);
    // Of a key that never counted neither does.
    let (tokens, revocations) = sign(9);
    let untrusted = ListRefusal::Signature(VerifyError::Untrusted);
    assert_eq!(AllowlistState::kept(tokens, &rejected).unwrap_err(), untrusted);
    assert_eq!(KeptList::<RevocationSet>::kept(revocations, &rejected).unwrap_err(), untrusted);
}
