//! CNV-4, SYN-13, ROL-8: intervals with jitter, backoff with bounds, and never a busy loop.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, Release, START, answer, observed, offering};
use model::exchange::Answer;
use model::policy::Policy;
use model::replication::TransportPolicy;
use node::backoff::{FIRST, LONGEST, Spread};
use node::step::{LONG_CONTACT, MIN_CONTACT};
use node::{HeldSettings, NodeInput, Restored};
use proptest::prelude::*;

#[test]
fn backoff_doubles_within_its_bounds() {
    let mut spread = Spread::new(1);
    let cap = Duration::from_secs(300);
    for failures in 0..60 {
        let full = FIRST.saturating_mul(1 << (failures.clamp(1, 20) - 1)).min(cap);
        for _ in 0..50 {
            let wait = spread.backoff(failures, cap);
            assert!(wait >= full / 2 && wait <= full, "{failures} failures: {wait:?} of {full:?}");
        }
    }
    assert!(spread.backoff(60, Duration::MAX) <= LONGEST);
    assert!(spread.backoff(60, Duration::ZERO) >= FIRST / 2, "a cap of nothing is no busy loop");
    assert!(spread.backoff(u32::MAX, Duration::MAX) >= LONGEST / 2);
}

#[test]
fn jitter_stays_within_its_share_and_uses_it() {
    let mut spread = Spread::new(1);
    let interval = Duration::from_secs(300);
    let waits: Vec<Duration> = (0..1000).map(|_| spread.jitter(interval, 20)).collect();
    assert!(waits.iter().all(|wait| (240..=360).contains(&wait.as_secs())));
    assert!(waits.iter().any(|wait| wait.as_secs() < 250) && waits.iter().any(|wait| wait.as_secs() > 350));
    assert_eq!(spread.jitter(interval, 0), interval);
    assert!(spread.jitter(interval, 255) <= interval * 2);
}

#[test]
fn the_same_seed_waits_alike_and_another_does_not() {
    let waits = |seed| {
        (0..20).map(|_| seed).scan(Spread::new(seed), |spread, _| Some(spread.number())).collect::<Vec<_>>()
    };
    assert_eq!(waits(7), waits(7));
    assert_ne!(waits(7), waits(8));
}

#[test]
fn without_an_answer_it_asks_ever_less_often() {
    let mut bench = Bench::new();
    let mut last = Duration::ZERO;
    for failures in 1..20 {
        bench.check_in();
        bench.give(NodeInput::Unreachable(String::new()));
        let wait = bench.wait().unwrap();
        let full = FIRST.saturating_mul(1 << (failures - 1)).min(Duration::from_secs(300));
        assert!(wait >= full / 2 && wait <= full, "after {failures}: {wait:?}");
        last = wait;
    }
    assert!(last >= Duration::from_secs(150));
    bench.exchange(answer());
    assert!(bench.wait().unwrap() >= Duration::from_secs(240), "an answer ends it");
    bench.check_in();
    bench.give(NodeInput::Unreachable(String::new()));
    assert!(bench.wait().unwrap() <= FIRST, "and the next failure begins anew");
}

/// ROL-8: after failures a node waits for its channel's own interval at most, whatever that is, and never for longer than
/// [`LONGEST`].
#[test]
fn without_an_answer_its_channel_s_interval_is_the_longest_wait() {
    let adoption = Bench::holding(&Release::new(1, START, &["a"])).node.adoption().cloned();
    for (contact_secs, longest) in [(20, 20), (150, 150), (600, 600), (7200, LONGEST.as_secs())] {
        let policy = Policy { contact_secs, ..Policy::default() };
        let settings = HeldSettings { policy, only_observes: false };
        let mut bench =
            Bench::restored(Restored { adoption: adoption.clone(), settings, ..Restored::default() });
        let longest = Duration::from_secs(longest);
        let mut most = Duration::ZERO;
        bench.check_in();
        for failures in 1..40_u32 {
            bench.give(NodeInput::Unreachable(String::new()));
            let failed = bench.now;
            bench.check_in();
            let wait = bench.now.since(failed);
            let full = FIRST.saturating_mul(1 << (failures - 1).min(20)).min(longest);
            assert!(wait >= full / 2 && wait <= full, "{contact_secs}: after {failures}: {wait:?}");
            most = most.max(wait);
        }
        assert!(most > longest * 3 / 4, "{contact_secs}: it is spread over the upper half: {most:?}");
    }
}

/// Good answers in between do not make it hammer for what it cannot get or keep.
#[test]
fn what_cannot_be_fetched_or_kept_is_tried_ever_less_often() {
    let release = Release::new(1, START, &["a"]);
    for kept in [false, true] {
        let mut bench = Bench::new();
        for failures in 1..16 {
            bench.exchange(offering(release.offer(None)));
            if kept {
                bench.give(NodeInput::Fetched);
                bench.give(NodeInput::AdoptFailed("disk full".to_owned()));
            } else {
                bench.give(NodeInput::FetchFailed("not there".to_owned()));
            }
            let wait = bench.wait().unwrap();
            let full = FIRST.saturating_mul(1 << (failures - 1)).min(Duration::from_secs(300));
            assert!(wait >= full / 2 && wait <= full, "after {failures}: {wait:?}");
        }
        bench.adopt(&release);
    }
}

#[test]
fn what_the_control_plane_asks_for_is_clamped() {
    for (asked, least, most) in [
        (0, Duration::ZERO, Duration::from_secs(2)),
        (60, Duration::from_secs(48), Duration::from_secs(72)),
        (u64::MAX, LONG_CONTACT - LONG_CONTACT / 5, LONG_CONTACT + LONG_CONTACT / 5),
    ] {
        let mut bench = Bench::new();
        bench.exchange(Answer { next_checkin_secs: asked, ..answer() });
        let wait = bench.wait().unwrap();
        assert!(wait >= least && wait <= most, "asked {asked}: {wait:?}");
    }
}

#[test]
fn a_clock_set_back_lengthens_no_wait() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.exchange(answer());
    let (wait, year) = (bench.wait().unwrap(), Duration::from_secs(365 * 86_400));
    bench.now = bench.now.minus(year);
    bench.give(NodeInput::Tick);
    assert_eq!(bench.wait(), Some(wait));
    assert!(!bench.node.is_stale(bench.now));
    bench.now = bench.now.plus(year);
    bench.give(NodeInput::Tick);
    assert!(!is_due_soon(&bench), "set forward, all is due at once, and under way");
}

#[test]
fn a_wild_policy_is_survived() {
    let release = Release::new(1, START, &["a"]);
    for secs in [0, 1, u64::MAX] {
        let adoption = Bench::holding(&release).node.adoption().cloned();
        let policy = Policy {
            probes: Vec::new(),
            contact_secs: secs,
            jitter_percent: 255,
            converge_secs: secs,
            bundle_max_age_secs: secs,
            offline_grace_secs: secs,
            metered: false,
            transport: TransportPolicy::default(),
            link: Default::default(),
            trait_ttl_secs: Default::default(),
            reboot: None,
            guard: Default::default(),
        };
        let mut bench = Bench::restored(Restored {
            adoption,
            settings: HeldSettings { policy, only_observes: false },
            ..Restored::default()
        });
        for _ in 0..20 {
            bench.check_in();
            bench.give(NodeInput::Unreachable(String::new()));
            bench.exchange(answer());
        }
    }
}

/// One run request after another, or acknowledgements that acknowledge nothing: the first hurries,
/// and then there is a second between two contacts.
#[test]
fn no_answer_makes_it_spin() {
    for requests in [false, true] {
        let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
        bench.check_in();
        let began = bench.now;
        for number in 0..20 {
            bench.give(NodeInput::Answered(Box::new(Answer {
                run_request: requests.then_some(number),
                ..answer()
            })));
            bench.give(if requests {
                NodeInput::Ran(Box::new(common::report(0, 1)))
            } else {
                NodeInput::FactsWait
            });
            bench.check_in();
        }
        assert!(bench.now.since(began) >= 19 * MIN_CONTACT, "run requests: {requests}");
    }
}

/// Something other than the end of freshness is due.
fn is_due_soon(bench: &Bench) -> bool {
    bench.wait().is_some_and(|wait| wait < Duration::from_secs(3600 * 12))
}

/// While something is under way, nothing that waits for it may be due.
#[test]
fn nothing_is_due_that_a_tick_cannot_start() {
    let release = Release::new(1, START, &["a"]);
    let adoption = Bench::holding(&release).node.adoption().cloned();
    let mut bench = Bench::restored(Restored { adoption, ..Restored::default() });
    bench.give(NodeInput::Tick);
    assert!(!is_due_soon(&bench), "traits are being collected; a run needs them");
    bench.give(observed(&bench.traits));
    assert!(!is_due_soon(&bench), "a check-in and a run are under way");
}

#[derive(Clone, Debug)]
enum Do {
    Wait(u16),
    Answer(Option<u64>),
    Offer(bool),
    Fail,
    Fetched,
    Adopted,
    Traits(u8),
    Ran(u8),
    RunFailed,
    Nudge,
}

fn doing() -> impl Strategy<Value = Do> {
    prop_oneof![
        4 => (0..2000_u16).prop_map(Do::Wait),
        3 => prop::option::of(0..3_u64).prop_map(Do::Answer),
        2 => any::<bool>().prop_map(Do::Offer),
        1 => Just(Do::Fail),
        2 => Just(Do::Fetched),
        2 => Just(Do::Adopted),
        3 => (0..3_u8).prop_map(Do::Traits),
        3 => (0..3_u8).prop_map(Do::Ran),
        1 => Just(Do::RunFailed),
        1 => Just(Do::Nudge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tick_at_the_deadline_starts_something(steps in prop::collection::vec(doing(), 1..80)) {
        let releases = [Release::new(1, START, &["a"]), Release::new(2, START, &["b"])];
        let mut bench = Bench::new();
        for step in steps {
            let input = match step {
                Do::Wait(secs) => {
                    bench.now = bench.now.plus(Duration::from_secs(u64::from(secs)));
                    NodeInput::Tick
                }
                Do::Answer(run_request) => NodeInput::Answered(Box::new(Answer { run_request, ..answer() })),
                Do::Offer(second) => NodeInput::Answered(Box::new(offering(releases[usize::from(second)].offer(None)))),
                Do::Fail => NodeInput::Unreachable(String::new()),
                Do::Fetched => NodeInput::Fetched,
                Do::Adopted => NodeInput::Adopted(HeldSettings::default()),
                Do::Traits(n) => observed(&common::traits(&n.to_string())),
                Do::Ran(changed) => NodeInput::Ran(Box::new(common::report(changed.into(), 1))),
                Do::RunFailed => NodeInput::RunFailed(node::RunFailure::other("")),
                Do::Nudge => NodeInput::Nudge,
            };
            bench.give(input);
            if let Some((at, why)) = bench.node.next_deadline() {
                let mut later = bench.now.max(at);
                std::mem::swap(&mut later, &mut bench.now);
                let effects = bench.give(NodeInput::Tick);
                prop_assert!(!effects.is_empty(), "{} was due and did nothing", why);
                bench.now = later.max(bench.now);
            }
        }
    }
}
