//! ROL-4, IDN-11: a node adopts what is signed, fresh, its own and not older; nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{
    CREATED, FRESH, at, beacon, fallback, header, judged, key, offer, release_key, selection, signed,
};
use model::exchange::Offer;
use model::time::SLACK;
use model::{Digest, Timestamp};
use trust::adopt::{Judge, judge, takes};
use trust::clock::{self, TrustTime};
use trust::feature::{Feature, ROLLOUT_FEATURE};
use trust::release::Fallback;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use trust::signed::{digest, sign};
use trust::{Adopted, Floor, Header, Refusal, RolloutTerms};

/// What the node says to a header offered to web-1 at a time.
fn to_web(header: &Header, floor: &Floor, now: Timestamp) -> Result<Adopted, Refusal> {
    judged(&offer(header, "web-1"), "web-1", floor, at(now))
}

fn code(verdict: Result<Adopted, Refusal>) -> &'static str {
    verdict.err().map_or("adopted", |refusal| refusal.code())
}

/// The floor of a node that adopted this header.
fn floor_of(header: &Header) -> Floor {
    to_web(header, &Floor::default(), header.created).unwrap().floor
}

#[test]
fn an_honest_offer_is_adopted() {
    for hostname in ["web-1", "db-1", "edge-3"] {
        let adopted = judged(&offer(&header(5), hostname), hostname, &Floor::default(), at(CREATED)).unwrap();
        assert_eq!(adopted.header, header(5));
        assert_eq!(adopted.digest, digest(&signed(&header(5))));
        assert_eq!(adopted.root, selection().entry(hostname, &trust::adopt::takes).unwrap().root);
        assert_eq!((adopted.floor.seq, adopted.floor.newest_signature), (5, CREATED));
    }
}

#[test]
fn who_signed() {
    let mut unsigned = offer(&header(5), "web-1");
    unsigned.header.signatures.clear();
    let mut other_key = offer(&header(5), "web-1");
    other_key.header = sign(&header(5), &[&key(9)]).unwrap();
    let mut claims_to_be = other_key.clone();
    claims_to_be.header.signatures[0].key = release_key().public().id();
    let mut one_of_two = offer(&header(5), "web-1");
    one_of_two.header = sign(&header(5), &[&key(9), &release_key()]).unwrap();
    let mut too_many = one_of_two.clone();
    too_many.header.signatures = vec![too_many.header.signatures[1].clone(); 9];
    let mut root_key = other_key.clone();
    root_key.header = sign(&header(5), &[&key(2)]).unwrap();
    for (what, offer, want) in [
        ("unsigned", unsigned, "release-unsigned"),
        ("another key", other_key, "release-signature"),
        ("another key under our key's id", claims_to_be, "release-signature"),
        ("the root key, which signs tokens only", root_key, "release-signature"),
        ("nine signatures", too_many, "release-signature"),
        ("one good signature of two", one_of_two, "adopted"),
    ] {
        assert_eq!(code(judged(&offer, "web-1", &Floor::default(), at(CREATED))), want, "{what}");
    }
}

#[test]
fn whose_it_is() {
    let other_fleet = Header { fleet: "rival-1".parse().unwrap(), ..header(5) };
    let other_channel = Header { channel: "lab".parse().unwrap(), ..header(5) };
    let other_selection = Header { selection: Digest::of(b"other"), ..header(5) };
    let none = Floor::default();
    assert_eq!(code(to_web(&other_fleet, &none, CREATED)), "release-other-fleet");
    assert_eq!(code(to_web(&other_channel, &none, CREATED)), "release-other-channel");
    assert_eq!(code(to_web(&other_selection, &none, CREATED)), "release-proof");
    for (proof_of, at_node) in
        [("db-1", "web-1"), ("web-1", "db-1"), ("edge-3", "web-1"), ("edge-3", "edge-9")]
    {
        let verdict = judged(&offer(&header(5), proof_of), at_node, &none, at(CREATED));
        assert_eq!(code(verdict), "release-proof", "{proof_of}'s proof at {at_node}");
    }
    let mut other_entry = offer(&header(5), "web-1");
    other_entry.entry.root = offer(&header(5), "db-1").entry.root;
    assert_eq!(code(judged(&other_entry, "web-1", &none, at(CREATED))), "release-proof");
}

#[test]
fn numbers_only_rise() {
    let floor = floor_of(&header(5));
    let same_number = Header { label: Some("another".to_owned()), ..header(5) };
    for (what, header, want) in [
        ("newer", header(6), "adopted"),
        ("much newer", header(9000), "adopted"),
        ("the same", header(5), "adopted"),
        ("older", header(4), "release-older"),
        ("zero", header(0), "release-older"),
        ("the same number, another header", same_number, "release-two-headers"),
    ] {
        assert_eq!(code(to_web(&header, &floor, CREATED)), want, "{what}");
    }
}

#[test]
fn a_named_fallback_may_be_older_and_stale() {
    let old = Header { created: CREATED.minus(FRESH * 400), ..header(2) };
    let twin = Header { label: Some("not the one named".to_owned()), ..old.clone() };
    let newest = Header { fallbacks: vec![fallback(&old)], ..header(5) };
    let floor = floor_of(&newest);
    assert_eq!(code(to_web(&old, &floor, CREATED)), "adopted");
    assert_eq!(code(to_web(&twin, &floor, CREATED)), "release-older");
    assert_eq!(code(to_web(&header(3), &floor, CREATED)), "release-older");
    let back = to_web(&old, &floor, CREATED).unwrap();
    assert_eq!((back.header.seq, &back.floor), (2, &floor), "going back does not lower the floor");
    // From there the named fallback, the newest and newer ones are open; others are not.
    assert_eq!(code(to_web(&newest, &back.floor, CREATED)), "adopted");
    assert_eq!(code(to_web(&header(4), &back.floor, CREATED)), "release-older");
    assert_eq!(code(to_web(&old, &floor_of(&header(6)), CREATED)), "release-older", "6 names no fallback");
    let future = Header { created: CREATED.plus(FRESH), ..old };
    let floor = floor_of(&Header { fallbacks: vec![fallback(&future)], ..header(5) });
    assert_eq!(code(to_web(&future, &floor, CREATED)), "release-future");
}

/// The header that names a fallback vouches for it past all freshness, by number and content; nothing may be asked by it.
#[test]
fn a_fallback_is_named_by_number_and_content_and_never_too_late() {
    let old = Header { created: CREATED.minus(FRESH * 400), ..header(2) };
    let floor = floor_of(&Header { fallbacks: vec![fallback(&old)], ..header(5) });
    let late = CREATED.plus(FRESH * 3);
    let back = to_web(&old, &floor, late).unwrap();
    assert!(back.freshness.is_over(late));
    let other_number = Fallback { seq: 3, ..fallback(&old) };
    let floor = floor_of(&Header { fallbacks: vec![other_number], ..header(5) });
    assert_eq!(code(to_web(&old, &floor, CREATED)), "release-older");
    // A floor that an earlier agent kept learns the freshness from the release that it is of.
    let kept = Floor { freshness_secs: None, ..floor_of(&header(5)) };
    let again = to_web(&header(5), &kept, CREATED).unwrap();
    assert_eq!(again.floor.freshness_secs, Some(FRESH.as_secs()));
}

/// IDN-11: only these may be for a clock that is wrong.
#[test]
fn refusals_for_the_time_are_told_apart() {
    let (plain, late) = (offer(&header(5), "web-1"), CREATED.plus(FRESH * 3));
    let beaconed = |of: &Header, at| Offer {
        beacon: Some(sign(&beacon(of, at), &[&release_key()]).unwrap()),
        ..plain.clone()
    };
    let mut unsigned = plain.clone();
    unsigned.header.signatures.clear();
    for (offer, now, want) in [
        (&plain, late, ("release-stale", true)),
        (&plain, CREATED.minus(FRESH), ("release-future", true)),
        (&beaconed(&header(5), late.plus(FRESH)), late, ("beacon-future", true)),
        (&beaconed(&header(6), CREATED), CREATED, ("beacon-other-release", false)),
        (&unsigned, CREATED, ("release-unsigned", false)),
    ] {
        let refusal = judged(offer, "web-1", &Floor::default(), at(now)).unwrap_err();
        assert_eq!((refusal.code(), refusal.is_of_time()), want);
    }
}

#[test]
fn what_a_pattern_takes() {
    for (pattern, except, hostname, want) in [
        ("edge-*", "", "edge-1", true),
        ("edge-*", "", "web-1", false),
        ("edge-*", "edge-9", "edge-9", false),
        ("edge-*", "edge-9", "edge-8", true),
        // One that this version cannot read takes every name, and excepts none.
        ("edge 1", "", "web-1", true),
        ("edge-*", "edge 1", "edge-1", true),
    ] {
        let except: Vec<String> = except.split_terminator(',').map(str::to_owned).collect();
        assert_eq!(takes(pattern, &except, hostname), want, "{pattern} but {except:?}: {hostname}");
    }
}

#[test]
fn only_so_many_fallbacks_are_kept() {
    let named = (1..100).map(|seq| fallback(&header(seq))).collect();
    let floor = floor_of(&Header { fallbacks: named, ..header(500) });
    assert_eq!(floor.fallbacks.len(), trust::release::MAX_FALLBACKS);
}

#[test]
fn freshness_is_the_header_s_or_a_later_beacon_s() {
    let late = CREATED.plus(FRESH * 3);
    let fresh_at = |at: Timestamp| Some(sign(&beacon(&header(5), at), &[&release_key()]).unwrap());
    let of_other = Some(sign(&beacon(&header(6), late), &[&release_key()]).unwrap());
    let by_other = Some(sign(&beacon(&header(5), late), &[&key(9)]).unwrap());
    let edge = CREATED.plus(FRESH).plus(SLACK);
    for (what, beacon, now, want) in [
        ("just fresh", None, edge, "adopted"),
        ("just stale", None, edge.plus(Duration::from_millis(1)), "release-stale"),
        ("long stale", None, late, "release-stale"),
        ("a fresh beacon", fresh_at(late), late, "adopted"),
        ("a stale beacon", fresh_at(CREATED.plus(FRESH)), late, "release-stale"),
        ("a beacon older than the header", fresh_at(CREATED.minus(FRESH)), CREATED, "adopted"),
        ("a beacon of another release", of_other, late, "beacon-other-release"),
        ("a beacon of another key", by_other, late, "beacon-signature"),
        ("a future beacon", fresh_at(late.plus(FRESH)), late, "beacon-future"),
    ] {
        let offer = Offer { beacon, ..offer(&header(5), "web-1") };
        assert_eq!(code(judged(&offer, "web-1", &Floor::default(), at(now))), want, "{what}");
    }
}

#[test]
fn a_header_is_no_beacon_and_a_beacon_no_header() {
    let mut twice = offer(&header(5), "web-1");
    twice.beacon = Some(twice.header.clone());
    assert_eq!(code(judged(&twice, "web-1", &Floor::default(), at(CREATED))), "beacon-signature");
    let mut swapped = offer(&header(5), "web-1");
    swapped.header = sign(&beacon(&header(5), CREATED), &[&release_key()]).unwrap();
    assert_eq!(code(judged(&swapped, "web-1", &Floor::default(), at(CREATED))), "release-signature");
}

#[test]
fn a_future_date_is_refused_beyond_the_slack() {
    let ahead = |by: Duration| code(to_web(&header(5), &Floor::default(), CREATED.minus(by)));
    assert_eq!(ahead(SLACK), "adopted");
    assert_eq!(ahead(SLACK + Duration::from_millis(1)), "release-future");
    assert_eq!(ahead(FRESH * 400), "release-future");
}

#[test]
fn a_slow_clock_locks_no_node_out() {
    let clock = Timestamp::from_secs(0);
    let newer = Header { created: CREATED.plus(FRESH * 30), ..header(6) };
    let built = |built: Timestamp| TrustTime { clock, built, ..TrustTime::default() };
    let floor = floor_of(&header(5));
    let remembers = TrustTime { newest_signature: floor.newest_signature, ..TrustTime::default() };
    let told = TrustTime { control_plane: newer.created, ..remembers };
    for (what, header, time, want) in [
        ("by the time it was built", header(5), built(CREATED), "adopted"),
        ("by the newest signature", header(5), remembers, "adopted"),
        ("by the control plane's time", newer.clone(), told, "adopted"),
        // Without any of these the date cannot be told from a mistaken one.
        ("by nothing", newer, remembers, "release-future"),
    ] {
        assert_eq!(code(judged(&offer(&header, "web-1"), "web-1", &floor, time)), want, "{what}");
    }
}

#[test]
fn a_slow_clock_makes_nothing_fresh() {
    let floor = Floor { newest_signature: CREATED.plus(FRESH * 9), ..floor_of(&header(5)) };
    let time = TrustTime { newest_signature: floor.newest_signature, ..at(CREATED) };
    assert_eq!(code(judged(&offer(&header(6), "web-1"), "web-1", &floor, time)), "release-stale");
}

/// A control plane and who holds a beacon key move a node's time by nothing that stays, and date no beacon for good.
#[test]
fn only_the_host_and_the_release_key_move_the_time_that_is_remembered() {
    let year = clock::MAX_BEACON_AHEAD;
    let told = |clock: Timestamp, control_plane: Timestamp| TrustTime { clock, control_plane, ..at(clock) };
    let slow = Timestamp::from_secs(0);
    for (what, host, beacon_at, control_plane, want) in [
        (
            "both are right",
            CREATED.plus(FRESH),
            CREATED.plus(FRESH),
            CREATED.plus(FRESH),
            Ok(CREATED.plus(FRESH)),
        ),
        ("a slow host", slow, CREATED.plus(FRESH * 300), CREATED.plus(FRESH * 300), Ok(CREATED)),
        ("as far as it goes", CREATED, CREATED.plus(year), CREATED.plus(year), Ok(CREATED)),
        (
            "for good",
            CREATED,
            CREATED.plus(FRESH * 26_000),
            CREATED.plus(FRESH * 26_000),
            Err("beacon-future"),
        ),
        (
            "for good, to a slow host",
            slow,
            CREATED.plus(year * 2),
            CREATED.plus(year * 2),
            Err("beacon-future"),
        ),
        ("past the control plane's own", slow, CREATED.plus(FRESH), CREATED, Err("beacon-future")),
    ] {
        let mut offer = offer(&header(5), "web-1");
        offer.beacon = Some(sign(&beacon(&header(5), beacon_at), &[&release_key()]).unwrap());
        let adopted = judged(&offer, "web-1", &Floor::default(), told(host, control_plane));
        let newest = adopted.map(|adopted| adopted.floor.newest_signature).map_err(|refusal| refusal.code());
        assert_eq!(newest, want, "{what}");
    }
    // What the release key dates is believed by the control plane's clock, and remembered.
    let newer = Header { created: CREATED.plus(FRESH * 30), ..header(6) };
    let verdict = judged(&offer(&newer, "web-1"), "web-1", &Floor::default(), told(slow, newer.created));
    assert_eq!(verdict.unwrap().floor.newest_signature, newer.created);
}

#[test]
fn a_fast_clock_adopts_nothing_and_does_no_lasting_harm() {
    let floor = floor_of(&header(5));
    let fast = CREATED.plus(FRESH * 3650);
    let refusal = to_web(&header(6), &floor, fast).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "release 6 was last signed for at 2027-01-15T08:00:00Z, which is past its freshness of 86400 s, as it \
         is 2037-01-12 by this node's time"
    );
    // The clock is put right, and all is as it was.
    assert_eq!(code(to_web(&header(6), &floor, CREATED)), "adopted");
    assert_eq!(floor_of(&header(6)).newest_signature, CREATED, "the clock raises no floor");
}

/// Every byte of an offer with everything in it, in every bit.
#[test]
fn one_flipped_bit_never_adopts_anything_else() {
    let old = Header { created: CREATED.minus(FRESH), ..header(2) };
    let newest = Header { fallbacks: vec![fallback(&old)], ..header(5) };
    for hostname in ["web-1", "edge-3"] {
        let mut whole = offer(&newest, hostname);
        whole.beacon = Some(sign(&beacon(&newest, CREATED), &[&release_key()]).unwrap());
        let honest = judged(&whole, hostname, &Floor::default(), at(CREATED)).unwrap();
        let bytes = serde_json::to_vec(&whole).unwrap();
        let mut adopted = 0;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok(offer) = serde_json::from_slice::<Offer>(&flipped) else { continue };
            if let Ok(verdict) = judged(&offer, hostname, &Floor::default(), at(CREATED)) {
                adopted += 1;
                let same = (&verdict.header, verdict.digest, verdict.root)
                    == (&honest.header, honest.digest, honest.root);
                assert!(same, "{hostname}: bit {bit} of the offer leads to something else");
            }
        }
        // Only the name of the beacon's field can go: then there is no beacon.
        assert!(adopted <= "beacon".len() * 8, "{hostname}: {adopted} flips were not noticed");
    }
}

#[test]
fn what_it_requires() {
    const KNOWN: &[Feature] = &[Feature { name: "waves", resource_types: &[], ..Feature::NONE }];
    let requiring = |names: &[&str]| {
        let requires = names.iter().map(|name| (*name).to_owned()).collect();
        offer(&Header { requires, ..header(5) }, "web-1")
    };
    let verdict = |names: &[&str]| judged_with(&requiring(names), KNOWN);
    assert_eq!(code(verdict(&[])), "adopted");
    assert_eq!(code(verdict(&["waves"])), "adopted");
    let refusal = verdict(&["mesh", "waves", "gates"]).unwrap_err();
    assert_eq!(refusal.code(), "release-requires");
    assert!(refusal.to_string().contains("requires mesh, gates, which"), "{refusal}");
    let many: Vec<String> = (0..65).map(|number| format!("f{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(code(verdict(&many)), "release-malformed");
    // Long lists are cut where people read them.
    let refusal = verdict(&many[..64]).unwrap_err().to_string();
    assert!(refusal.contains("f7 and 56 more"), "{refusal}");
    // Nothing of it may be read before: not the beacon, not the proof.
    let mut odd = requiring(&["mesh"]);
    odd.entry.root = Digest::of(b"another");
    assert_eq!(code(judged_with(&odd, KNOWN)), "release-requires");
}

/// ROL-1, ROL-2: agents that know no waves refuse a header with a rollout, and nobody takes terms that cannot be kept.
#[test]
fn what_its_rollout_says() {
    let terms = |waves: &[&str]| {
        let of = |name: &&str| WaveTerms {
            name: (*name).to_owned(),
            members: WaveMembers::Where(lang::Selector::parse("*").unwrap()),
            not_before: None,
            gate: GateTerms::default(),
        };
        Some(Arc::new(RolloutTerms { waves: waves.iter().map(of).collect(), ..RolloutTerms::default() }))
    };
    let required = vec![ROLLOUT_FEATURE.to_owned()];
    let good = Header { rollout: terms(&["canary"]), requires: required.clone(), ..header(5) };
    let adopted = to_web(&good, &Floor::default(), CREATED).unwrap();
    assert_eq!(adopted.header.rollout, terms(&["canary"]));
    assert_eq!(code(judged_with(&offer(&good, "web-1"), &[])), "release-requires", "an agent of before");
    let not_required = Header { rollout: terms(&["canary"]), ..header(5) };
    let refusal = to_web(&not_required, &Floor::default(), CREATED).unwrap_err();
    assert_eq!(refusal.code(), "release-malformed");
    assert!(refusal.to_string().contains("does not require the feature `rollout`"), "{refusal}");
    let twice = Header { rollout: terms(&["canary", "canary"]), requires: required, ..header(5) };
    let refusal = to_web(&twice, &Floor::default(), CREATED).unwrap_err();
    assert_eq!(refusal.code(), "release-malformed");
    assert!(refusal.to_string().contains("two waves are called `canary`"), "{refusal}");
    // Without a rollout the signed bytes are those of before.
    let plain = serde_json::to_value(header(5)).unwrap();
    assert_eq!((plain.get("rollout"), plain.get("requires")), (None, None));
}

fn judged_with(offer: &Offer, features: &[Feature]) -> Result<Adopted, Refusal> {
    let (trust, hostname) = (common::trust(), "web-1".parse().unwrap());
    let (floor, time) = (Floor::default(), at(CREATED));
    let matches = &trust::adopt::takes;
    judge(offer, Judge { trust: &trust, hostname: &hostname, floor: &floor, time, matches, features })
}
