//! ROL-4, CNV-4, IDN-11: what counts of the freshness of what is held while releases follow each other, hosts go back,
//! agents start again and clocks are set back; and when a node asks for a full answer, which confirms what it holds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{
    Bench, FRESH, Release, START, adoption_of, answer, facts, offering, release_key, report, warnings,
};
use model::exchange::{Answer, Signed};
use model::log::FactBody;
use model::{Digest, Timestamp};
use node::{Adoption, FreshnessRecord, HeldSettings, NodeEffect, NodeInput, Restored, ReturnedRelease};
use trust::release::Fallback;
use trust::signed::{digest, sign};
use trust::{Beacon, Freshness};

const HOUR: Duration = Duration::from_secs(3600);
/// The channel's `bundle_max_age` where the release says nothing of it.
const MAX_AGE: Duration = Duration::from_secs(86_400);

fn beacon(release: &Release, at: Timestamp) -> Beacon {
    let header = digest(&sign(&release.header, &[&release_key()]).unwrap());
    let (fleet, channel) = (release.header.fleet.clone(), release.header.channel.clone());
    Beacon { fleet, channel, seq: release.header.seq, header, at }
}

fn signed(beacon: &Beacon) -> Signed {
    sign(beacon, &[&release_key()]).unwrap()
}

fn with_beacon(beacon: Signed) -> Answer {
    Answer { beacon: Some(beacon), ..answer() }
}

/// Confirms what is held by a beacon of now; its date.
fn confirm(bench: &mut Bench, release: &Release) -> Timestamp {
    let at = bench.now;
    bench.exchange(with_beacon(signed(&beacon(release, at))));
    at
}

fn record(bench: &Bench) -> &FreshnessRecord {
    bench.node.freshness_record().unwrap()
}

fn saved(effects: &[NodeEffect]) -> Option<&FreshnessRecord> {
    effects.iter().rev().find_map(|effect| match effect {
        NodeEffect::SaveFreshness(record) => Some(record),
        _ => None,
    })
}

/// The host is back on what it kept.
fn go_back(bench: &mut Bench, kept: &Adoption) {
    let adoption = kept.clone().returned_to(bench.node.adoption().unwrap(), record(bench));
    let settings = HeldSettings::default();
    let returned = ReturnedRelease { adoption: Some(adoption), settings, last_run: None };
    bench.give(NodeInput::Returned(Box::new(returned)));
    assert_eq!(bench.node.adoption().unwrap().seq, kept.seq);
}

fn is_told(effects: &[NodeEffect]) -> bool {
    facts(effects).into_iter().any(|fact| matches!(fact, FactBody::Freshness { .. }))
}

/// Answers that confirm nothing, until the node asks for a full one; how long that took.
fn until_full(bench: &mut Bench) -> Duration {
    let from = bench.now;
    while !bench.check_in().full {
        bench.give(NodeInput::Answered(Box::new(answer())));
        assert!(bench.now.since(from) < MAX_AGE * 2, "none is asked for");
    }
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.now.since(from)
}

#[test]
fn a_beacon_of_one_release_says_nothing_of_the_next() {
    let first = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&first);
    bench.now = START.plus(HOUR * 20);
    let at = confirm(&mut bench, &first);
    assert_eq!((record(&bench).freshness.signed_at, record(&bench).newest_signature), (at, at));
    let next = Release::new(2, START.plus(HOUR * 19), &["b"]);
    let held = bench.node.adoption().map(Adoption::set);
    bench.exchange(offering(next.offer(held.as_ref())));
    let effects = bench.give(NodeInput::Fetched);
    assert_eq!(
        adoption_of(&effects).unwrap().floor.newest_signature,
        at,
        "what it is adopted with remembers"
    );
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(saved(&effects), None, "it is in the adoption");
    let held = record(&bench);
    assert_eq!((held.freshness.signed_at, held.newest_signature), (next.header.created, at));
}

#[test]
fn the_release_that_is_held_comes_again() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    let again = |bench: &mut Bench, beacon| {
        let offer = model::exchange::Offer { beacon, ..release.offer(Some(&release.set)) };
        bench.exchange(offering(offer));
        bench.give(NodeInput::Fetched);
        bench.give(NodeInput::Adopted(HeldSettings::default()))
    };
    // With a newer beacon, and without the one that is known.
    bench.now = START.plus(HOUR * 20);
    let at = bench.now;
    again(&mut bench, Some(signed(&beacon(&release, at))));
    assert_eq!(record(&bench).freshness.signed_at, at);
    let effects = again(&mut bench, None);
    assert_eq!(saved(&effects).map(|record| record.freshness.signed_at), Some(at), "no signature goes back");
    // Past all freshness it is nothing new.
    bench.now = at.plus(FRESH + HOUR);
    bench.give(NodeInput::Tick);
    assert!(record(&bench).not_fresh_since.is_some());
    // Its clock is set back to when it was fresh.
    bench.now = at;
    let effects = again(&mut bench, None);
    assert!(!is_told(&effects), "{effects:?}");
    assert!(record(&bench).not_fresh_since.is_some());
}

/// ROL-7: at once, and not with the next full answer, which says the same. One that no header names, and that is past its
/// own freshness, is not fresh, or a host that was made to fail would spend what the failed release withdrew.
#[test]
fn a_host_that_goes_back_is_as_fresh_as_the_header_that_names_it() {
    let first = Release::new(1, START, &["a"]);
    for is_named in [true, false] {
        let mut next = Release::new(2, START.plus(HOUR * 20), &["b"]);
        if is_named {
            let header = digest(&sign(&first.header, &[&release_key()]).unwrap());
            next.header.fallbacks = vec![Fallback { seq: 1, header }];
        }
        let mut bench = Bench::holding(&first);
        let kept = bench.node.adoption().unwrap().clone();
        bench.now = next.header.created;
        bench.adopt(&next);
        bench.give(NodeInput::Ran(Box::new(report(1, 0))));
        bench.now = START.plus(FRESH + HOUR);
        let at = confirm(&mut bench, &next);
        go_back(&mut bench, &kept);
        bench.give(NodeInput::Tick);
        if !is_named {
            assert_eq!(record(&bench).not_fresh_since, Some(kept.freshness.unwrap().ends_at()));
            continue;
        }
        let inherited = Freshness { signed_at: at, window_secs: FRESH.as_secs() };
        assert_eq!((record(&bench).freshness, record(&bench).not_fresh_since), (inherited, None));
        bench.exchange(offering(first.offer(Some(&first.set))));
        bench.give(NodeInput::Fetched);
        bench.give(NodeInput::Adopted(HeldSettings::default()));
        assert_eq!((record(&bench).header, record(&bench).freshness), (kept.digest, inherited));
        bench.now = inherited.ends_at();
        bench.give(NodeInput::Tick);
        assert_eq!(record(&bench).not_fresh_since, None);
        bench.pass(Duration::from_millis(1));
        assert_eq!(record(&bench).not_fresh_since, Some(inherited.ends_at()));
    }
}

/// What is kept of a release when the host leaves it has the beacons that came since it was adopted.
#[test]
fn a_host_that_goes_back_counts_the_beacons_of_what_it_kept() {
    let first = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&first);
    bench.now = START.plus(HOUR * 10);
    let at = confirm(&mut bench, &first);
    let kept = bench.node.adoption().unwrap().clone().fresh_as(record(&bench));
    let next = Release::new(2, bench.now, &["b"]);
    bench.adopt(&next);
    bench.now = START.plus(FRESH + HOUR);
    go_back(&mut bench, &kept);
    bench.give(NodeInput::Tick);
    assert_eq!((record(&bench).freshness.signed_at, record(&bench).not_fresh_since), (at, None));
}

#[test]
fn a_start_takes_up_what_was_kept() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    bench.now = START.plus(HOUR * 20);
    let at = confirm(&mut bench, &release);
    let (kept, adoption) = (record(&bench).clone(), bench.node.adoption().unwrap().clone());
    let started = |now| {
        let (adoption, freshness) = (Some(adoption.clone()), Some(kept.clone()));
        Bench::restored_at(Restored { adoption, freshness, ..Restored::default() }, now)
    };
    let later = started(bench.now.plus(HOUR));
    assert_eq!((record(&later).newest_signature, record(&later).confirmed_at), (at, kept.confirmed_at));
    // Its clock was set back while it was down.
    assert_eq!(record(&started(START)).confirmed_at, START);
    // What was kept of another release makes this one neither stale nor confirmed less.
    let stale = FreshnessRecord { stale_since: Some(START), ..kept };
    let other = FreshnessRecord { header: Digest::of(b"another"), ..stale.clone() };
    assert_eq!(FreshnessRecord::restored(&adoption, Some(&stale)).stale_since, Some(START));
    assert_eq!(FreshnessRecord::restored(&adoption, Some(&other)).stale_since, None);
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_younger() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    let confirmed = record(&bench).confirmed_at;
    bench.now = confirmed.plus(HOUR * 12);
    bench.give(NodeInput::Tick);
    bench.now = bench.now.minus(MAX_AGE * 365);
    bench.give(NodeInput::Tick);
    bench.pass(HOUR * 12);
    assert!(!bench.node.is_stale(bench.now), "it is its age");
    let effects = bench.pass(Duration::from_millis(1));
    assert!(bench.node.is_stale(bench.now));
    assert!(warnings(&effects).iter().any(|text| text.starts_with("stale: ")), "{effects:?}");
    // What was asked for before is asked for again in time.
    until_full(&mut bench);
    bench.now = bench.now.minus(MAX_AGE * 365);
    bench.give(NodeInput::Tick);
    assert!(until_full(&mut bench) <= MAX_AGE / 8);
}

/// A publish confirms all nodes at once: they ask at times of their own, each time others.
#[test]
fn a_full_answer_is_asked_for_between_three_quarters_and_seven_eighths() {
    let (mut release, mut seq) = (Release::new(1, START, &["a"]), 1);
    let mut bench = Bench::holding(&release);
    let waits = |bench: &mut Bench, confirm: &mut dyn FnMut(&mut Bench)| {
        let mut found = Vec::new();
        for _ in 0..5 {
            confirm(bench);
            let wait = until_full(bench);
            assert!(wait >= MAX_AGE / 4 * 3 && wait <= MAX_AGE / 8 * 7 + HOUR / 6, "{wait:?}");
            found.push(wait);
        }
        let (least, most) = (found.iter().min().unwrap(), found.iter().max().unwrap());
        assert!(*most - *least > HOUR / 2, "{found:?}");
    };
    waits(&mut bench, &mut |bench: &mut Bench| {
        confirm(bench, &release);
    });
    waits(&mut bench, &mut |bench: &mut Bench| {
        seq += 1;
        release = Release::new(seq, bench.now, &["a"]);
        bench.adopt(&release);
    });
}

#[test]
fn a_beacon_that_is_refused_is_told_again_after_a_good_one() {
    let release = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&release);
    bench.now = START.plus(HOUR);
    let bad = signed(&Beacon { seq: 8, ..beacon(&release, bench.now) });
    let told = |bench: &mut Bench| {
        let effects = bench.exchange(with_beacon(bad.clone()));
        warnings(&effects).iter().any(|text| text.contains("sends: the beacon is refused: "))
    };
    assert_eq!([told(&mut bench), told(&mut bench)], [true, false]);
    confirm(&mut bench, &release);
    assert_eq!([told(&mut bench), told(&mut bench)], [true, false]);
}
