//! ROL-4, IDN-8: a beacon counts when a key that may sign beacons signed it, for this release, and not in the future. A
//! beacon key signs beacons and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, FRESH, at, beacon, fallback, header, judged, key, offer, release_key, signed, trust};
use model::Timestamp;
use model::exchange::{Offer, Signed};
use model::time::SLACK;
use trust::beacon::{self, BeaconSubject};
use trust::signed::{digest, sign, verify};
use trust::{Beacon, BeaconRefusal, Floor, Freshness, Header, Slots, TrustDocument};

/// The key of the slot `beacon`.
const BEACON_KEY: u8 = 5;

fn with_slot() -> TrustDocument {
    TrustDocument { beacon: Some(Slots::of(key(BEACON_KEY).public())), ..trust() }
}

fn opened(document: &Signed, trust: &TrustDocument) -> &'static str {
    beacon::open(document, trust).map_or_else(|refusal| refusal.code(), |_| "believed")
}

#[test]
fn who_may_sign() {
    let of = |seed| sign(&beacon(&header(5), CREATED), &[&key(seed)]).unwrap();
    let rejecting = |of_beacon: bool| {
        let late = |slots: Slots| Slots { reject_before: Some(CREATED.plus(FRESH)), ..slots };
        let mut trust = with_slot();
        match of_beacon {
            true => trust.beacon = trust.beacon.map(late),
            false => trust.release = late(trust.release),
        }
        trust
    };
    for (what, document, trust, want) in [
        ("the release key, without a slot", of(1), trust(), "believed"),
        ("the release key, beside a slot", of(1), with_slot(), "believed"),
        ("the beacon key", of(BEACON_KEY), with_slot(), "believed"),
        ("the beacon key, where there is no slot", of(BEACON_KEY), trust(), "beacon-signature"),
        ("the root key", of(2), with_slot(), "beacon-signature"),
        ("a stranger", of(9), with_slot(), "beacon-signature"),
        ("the beacon key, of before its limit", of(BEACON_KEY), rejecting(true), "beacon-signature"),
        ("the release key, of before its limit", of(1), rejecting(false), "beacon-signature"),
    ] {
        assert_eq!(opened(&document, &trust), want, "{what}");
    }
}

#[test]
fn a_beacon_key_signs_nothing_else() {
    let by_beacon_key = sign(&header(5), &[&key(BEACON_KEY)]).unwrap();
    let trust = with_slot();
    assert!(verify::<Header>(&by_beacon_key, &trust.release).is_err());
    assert_eq!(opened(&by_beacon_key, &trust), "beacon-signature", "a header is no beacon");
    assert_eq!(opened(&sign(&header(5), &[&release_key()]).unwrap(), &trust), "beacon-signature");
}

#[test]
fn what_it_is_for() {
    let (subject, document) = (header(5), digest(&signed(&header(5))));
    let of = BeaconSubject { channel: &subject.channel, seq: 5, header: &document };
    let good = |at| beacon(&header(5), at);
    let edge = CREATED.plus(SLACK);
    for (what, beacon, want) in [
        ("this one", good(CREATED), "good"),
        ("within the slack", good(edge), "good"),
        ("beyond it", good(edge.plus(Duration::from_millis(1))), "beacon-future"),
        (
            "another channel",
            Beacon { channel: "lab".parse().unwrap(), ..good(CREATED) },
            "beacon-other-channel",
        ),
        ("another number", Beacon { seq: 4, ..good(CREATED) }, "beacon-other-release"),
        (
            "another header of the number",
            Beacon { header: digest(&signed(&header(6))), ..good(CREATED) },
            "beacon-other-release",
        ),
        ("another header", beacon(&header(6), CREATED), "beacon-other-release"),
    ] {
        let checked = beacon::check(&beacon, of, CREATED);
        assert_eq!(checked.map_or_else(|refusal| refusal.code(), |()| "good"), want, "{what}");
    }
    let foreign = Beacon { fleet: "rival-1".parse().unwrap(), ..good(CREATED) };
    assert_eq!(opened(&sign(&foreign, &[&release_key()]).unwrap(), &trust()), "beacon-other-fleet");
}

#[test]
fn only_a_later_one_says_more() {
    let of = |at: Timestamp| beacon::is_newer(&beacon(&header(5), at), CREATED);
    assert_eq!(of(CREATED.plus(SLACK)), Ok(true));
    assert_eq!(of(CREATED), Ok(false));
    assert!(matches!(of(CREATED.minus(SLACK)), Err(BeaconRefusal::Older { .. })));
}

/// By quarters of its window: signed anew, warned of, over.
#[test]
fn freshness_goes_by_quarters() {
    let fresh = Freshness::of(&header(5), None);
    let day = |quarters: u32| CREATED.plus(FRESH / 4 * quarters);
    assert_eq!((fresh.renews_at(), fresh.warns_at()), (day(1), day(3)));
    assert_eq!(fresh.ends_at(), day(4).plus(SLACK));
    assert!(!fresh.is_over(fresh.ends_at()) && fresh.is_over(fresh.ends_at().plus(Duration::from_millis(1))));
    let older = beacon(&header(5), CREATED.minus(FRESH));
    assert_eq!(Freshness::of(&header(5), Some(&older)), fresh, "an older beacon takes nothing away");
    let wild = Freshness { signed_at: CREATED, window_secs: u64::MAX };
    assert!(!wild.is_over(Timestamp(i64::MAX)), "no window wraps around");
}

/// What names a fallback vouches for it: it is as fresh as that, and no longer than either says.
#[test]
fn a_fallback_is_as_fresh_as_what_names_it() {
    let old =
        Header { created: CREATED.minus(FRESH * 400), freshness_secs: FRESH.as_secs() * 9, ..header(2) };
    let newest = Header { fallbacks: vec![fallback(&old)], ..header(5) };
    let beacon = sign(&beacon(&newest, CREATED.plus(FRESH)), &[&release_key()]).unwrap();
    let adopted =
        |offer: &Offer, floor: &Floor| judged(offer, "web-1", floor, at(CREATED.plus(FRESH))).unwrap();
    let first = adopted(&Offer { beacon: Some(beacon), ..offer(&newest, "web-1") }, &Floor::default());
    assert_eq!(first.freshness.signed_at, CREATED.plus(FRESH));
    let back = adopted(&offer(&old, "web-1"), &first.floor);
    let want = Freshness { signed_at: CREATED.plus(FRESH), window_secs: FRESH.as_secs() };
    assert_eq!((back.freshness, back.floor), (want, first.floor));
}
