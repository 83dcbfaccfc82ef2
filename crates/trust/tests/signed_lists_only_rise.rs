//! ENR-3, IDN-6: a signed list counts if a release key of this fleet signed it, it is within its bounds and its number
//! is higher than that of the one that is held; a key that was retired is believed for what is held, a rejected one not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use model::Timestamp;
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::lists::{
    HeldList, ListName, ListRefusal, ListSuccession, MAX_LISTED, MAX_NONCE, MAX_WHY, Revocation,
    RevocationSet, SignedList, TokenAllowlist, follows, open, open_kept,
};
use trust::signed::VerifyError;
use trust::{SigningKey, Slots, TrustDocument, signed};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn first() -> ChainHead {
    let slots = |seed| Slots::of(key(seed).public());
    ChainHead::of(TrustDocument::first("acme-1".parse().unwrap(), slots(1), slots(2)))
}

fn allowlist(seq: u64) -> TokenAllowlist {
    let tokens = BTreeMap::from([("n".to_owned(), NOW)]);
    TokenAllowlist { fleet: "acme-1".parse().unwrap(), seq, at: NOW, tokens }
}

fn set(not_before: Timestamp) -> RevocationSet {
    let revoked = BTreeMap::from([("web-1".parse().unwrap(), Revocation { not_before, why: None })]);
    RevocationSet { fleet: "acme-1".parse().unwrap(), seq: 1, at: NOW, revoked }
}

#[test]
fn what_is_not_in_order_is_refused() {
    let trust = first().document;
    let sign = |list: &TokenAllowlist, seed| signed::sign(list, &[&key(seed)]).unwrap();
    assert_eq!(open::<TokenAllowlist>(&sign(&allowlist(1), 1), &trust).unwrap(), allowlist(1));
    let refusal = |document| open::<TokenAllowlist>(&document, &trust).unwrap_err();
    for other in [2, 3] {
        let refused = refusal(sign(&allowlist(1), other));
        assert_eq!(refused, ListRefusal::Signature(VerifyError::Untrusted));
    }
    let mut elsewhere = allowlist(1);
    elsewhere.fleet = "acme-2".parse().unwrap();
    assert!(matches!(refusal(sign(&elsewhere, 1)), ListRefusal::OtherFleet { .. }));
    let mut many = allowlist(1);
    many.tokens = (0..=MAX_LISTED).map(|n| (format!("{n}"), NOW)).collect();
    assert!(matches!(refusal(sign(&many, 1)), ListRefusal::Malformed(_)));
    many.tokens.remove("0");
    assert!(open::<TokenAllowlist>(&sign(&many, 1), &trust).is_ok(), "as many as may be fit in its bytes");
    let mut nameless = allowlist(1);
    nameless.tokens = BTreeMap::from([(String::new(), NOW)]);
    assert!(matches!(refusal(sign(&nameless, 1)), ListRefusal::Malformed(_)));
    // One sort of list is no other.
    let revocations = signed::sign(&set(NOW), &[&key(1)]).unwrap();
    assert!(open::<RevocationSet>(&revocations, &trust).is_ok());
    assert_eq!(refusal(revocations), ListRefusal::Signature(VerifyError::Untrusted));
    let ahead = set(NOW.plus(Duration::from_secs(61)));
    let ahead = signed::sign(&ahead, &[&key(1)]).unwrap();
    assert!(matches!(open::<RevocationSet>(&ahead, &trust), Err(ListRefusal::Malformed(_))));
}

/// Each bound as it stands, and one beyond.
#[test]
fn bounds_are_kept_to_the_last() {
    for (nonce, is_wrong) in [("n".repeat(MAX_NONCE), false), ("n".repeat(MAX_NONCE + 1), true)] {
        let list = TokenAllowlist { tokens: BTreeMap::from([(nonce, NOW)]), ..allowlist(1) };
        assert_eq!(list.fault().is_some(), is_wrong);
    }
    for (length, says) in [(MAX_WHY, ""), (MAX_WHY + 1, "the reason of web-1")] {
        let mut set = set(NOW);
        set.revoked.values_mut().for_each(|one| one.why = Some("w".repeat(length)));
        let found = set.fault().unwrap_or_default();
        assert_eq!((found.is_empty(), found.starts_with(says)), (says.is_empty(), true), "{found}");
    }
    for (count, is_wrong) in [(MAX_LISTED, false), (MAX_LISTED + 1, true)] {
        let one = Revocation { not_before: NOW, why: None };
        let revoked = (0..count).map(|n| (format!("web-{n}").parse().unwrap(), one.clone())).collect();
        assert_eq!(RevocationSet { revoked, ..set(NOW) }.fault().is_some(), is_wrong, "{count}");
    }
    assert!(set(NOW.plus(Duration::from_secs(60))).fault().is_none(), "with the slack of every deadline");
}

#[test]
fn its_number_only_rises() {
    let list = allowlist(5);
    let digest = signed::digest(&signed::sign(&list, &[&key(1)]).unwrap());
    let other = signed::digest(&signed::sign(&allowlist(6), &[&key(1)]).unwrap());
    let next = |held: Option<(u64, _)>| {
        follows(&list, &digest, held.map(|(seq, digest)| HeldList { seq, digest }), NOW)
    };
    assert_eq!(next(None), Ok(ListSuccession::Follows));
    assert_eq!(next(Some((4, other))), Ok(ListSuccession::Follows));
    assert_eq!(next(Some((5, digest))), Ok(ListSuccession::Same));
    for held in [5, 6] {
        assert_eq!(next(Some((held, other))), Err(ListRefusal::Older { seq: 5, held }));
    }
    let early = NOW.minus(Duration::from_secs(61));
    assert!(matches!(follows(&list, &digest, None, early), Err(ListRefusal::Future { .. })));
    assert_eq!(
        follows(&list, &digest, None, NOW.minus(Duration::from_secs(60))),
        Ok(ListSuccession::Follows)
    );
}

/// Both lists go by the number and the date that they bear.
#[test]
fn revocations_rise_as_allowlists_do() {
    let set = RevocationSet { seq: 5, ..set(NOW) };
    let [digest, other] = [b"this", b"that"].map(|text| model::Digest::of(text));
    let next = |seq, now| follows(&set, &digest, Some(HeldList { seq, digest: other }), now);
    assert_eq!(next(4, NOW), Ok(ListSuccession::Follows));
    assert_eq!(next(5, NOW), Err(ListRefusal::Older { seq: 5, held: 5 }));
    let early = NOW.minus(Duration::from_secs(61));
    assert_eq!(next(4, early), Err(ListRefusal::Future { at: NOW, now: early }));
    let names = ListName::ALL.map(|name| (name.as_str(), ListName::named(name.as_str())));
    let want = [("allowlist", Some(ListName::Allowlist)), ("revocations", Some(ListName::Revocations))];
    assert_eq!((names, ListName::named("lists")), (want, None));
}

#[test]
fn a_retired_key_is_believed_for_what_is_held_and_a_rejected_one_is_not() {
    let first = first();
    let document = signed::sign(&allowlist(1), &[&key(1)]).unwrap();
    let replaced = |reject_before| {
        let change = SlotChange::Replace(key(9).public());
        let later = NOW.plus(Duration::from_secs(10));
        let next = chain::next_version(&first, SlotName::Release, change, reject_before, later).unwrap();
        first.follow(&chain::sign(&next, &key(2)).unwrap()).unwrap()
    };
    let kept = |newest: &ChainHead| open_kept::<TokenAllowlist>(&document, [newest, &first]);
    let retired = replaced(None);
    assert!(kept(&retired).is_ok());
    assert!(open::<TokenAllowlist>(&document, &retired.document).is_err(), "a new one needs a key of today");
    let limit = NOW.plus(Duration::from_secs(1));
    let rejected = ListRefusal::Signature(VerifyError::RejectedBefore(limit));
    assert_eq!(kept(&replaced(Some(limit))), Err(rejected));
    assert!(kept(&replaced(Some(NOW))).is_ok(), "what was signed from then on counts");
    // The other list goes by its own date.
    let revocations = signed::sign(&set(NOW), &[&key(1)]).unwrap();
    assert!(open_kept::<RevocationSet>(&revocations, [&replaced(Some(NOW)), &first]).is_ok());
    assert!(open_kept::<RevocationSet>(&revocations, [&replaced(Some(limit)), &first]).is_err());
    // What was kept is of this fleet and within its bounds all the same.
    let elsewhere = TokenAllowlist { fleet: "acme-2".parse().unwrap(), ..allowlist(1) };
    let elsewhere = signed::sign(&elsewhere, &[&key(1)]).unwrap();
    let refused = open_kept::<TokenAllowlist>(&elsewhere, [&retired, &first]);
    assert!(matches!(refused, Err(ListRefusal::OtherFleet { .. })), "{refused:?}");
    let stranger = signed::sign(&allowlist(1), &[&key(7)]).unwrap();
    let refused = open_kept::<TokenAllowlist>(&stranger, [&retired, &first]);
    assert_eq!(refused, Err(ListRefusal::Signature(VerifyError::Untrusted)));
}
