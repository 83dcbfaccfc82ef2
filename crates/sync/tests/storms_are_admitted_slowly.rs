//! SYN-6, SYN-11, SYN-13: resyncs and connections of a whole fleet are admitted at a bounded
//! rate; waits have jitter and bounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::time::Duration;

use model::Timestamp;
use sync::admission::{PERMIT_KEPT, RateLimiter, ResyncAdmission, TURN_KEPT};
use sync::backoff::{
    BACK_WITHIN, Backoff, LONGEST_ASKED, LinkEnd, POLL_WITHOUT_STREAM, ReconnectPolicy, poll_at,
};

#[test]
fn permits_go_in_the_order_of_asking() {
    let mut admission = ResyncAdmission::new(2);
    let now = Timestamp(0);
    let asked: Vec<bool> = (0..5).map(|who| admission.request(&who, now).is_ok()).collect();
    assert_eq!(asked, [true, true, false, false, false]);
    assert_eq!(admission.request(&0, now), Ok(()), "who holds one has it");
    admission.give_back(&0);
    assert!(
        matches!(admission.request(&4, now), Err(wait) if wait >= Duration::from_secs(1)),
        "not before 2"
    );
    assert_eq!(admission.request(&2, now), Ok(()));
    assert_eq!((admission.held(), admission.waiting()), (2, 2));
    // Who does not come back loses the turn.
    let later = now.plus(TURN_KEPT);
    admission.give_back(&1);
    assert_eq!(admission.request(&9, later), Ok(()));
    assert_eq!(admission.waiting(), 0);
}

#[test]
fn permits_are_taken_back() {
    let mut admission = ResyncAdmission::new(1);
    assert_eq!(admission.request(&1, Timestamp(0)), Ok(()));
    // Asking again is no way to keep it for longer.
    let late = Timestamp(0).plus(PERMIT_KEPT - Duration::from_secs(1));
    assert_eq!(admission.request(&1, late), Ok(()));
    assert!(admission.request(&2, late).is_err());
    assert_eq!(admission.request(&2, late.plus(Duration::from_secs(1))), Ok(()));
    assert_eq!(admission.held(), 1);
}

#[test]
fn nobody_is_kept_away_for_ever() {
    let mut backoff = Backoff::new(1);
    for asked in [u64::MAX, 7200, 3601] {
        assert_eq!(backoff.failed(Some(Duration::from_secs(asked))), LONGEST_ASKED);
    }
}

#[test]
fn connections_take_tokens() {
    let mut pace = RateLimiter::new(100, 5, Timestamp(0));
    let admitted = (0..20).filter(|_| pace.take(Timestamp(0)).is_ok()).count();
    assert_eq!(admitted, 5);
    assert_eq!(pace.take(Timestamp(0)), Err(Duration::from_millis(10)));
    assert_eq!(pace.take(Timestamp(10)), Ok(()));
    let admitted = (0..10_000).filter(|ms| pace.take(Timestamp(10 + ms)).is_ok()).count();
    assert!((990..=1005).contains(&admitted), "{admitted} in 10 s");
    assert!(pace.take(Timestamp(0)).is_err(), "a clock that goes back fills nothing");
}

#[test]
fn waits_double_from_one_second_to_sixty_with_a_quarter_of_jitter() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut backoff = Backoff::new(seed);
        for full in [1_u64, 2, 4, 8, 16, 32, 60, 60, 60] {
            let wait = backoff.failed(None);
            let reach = Duration::from_millis(full * 250);
            let full = Duration::from_secs(full);
            assert!(wait >= full - reach && wait <= full + reach, "{wait:?} of {full:?}");
            seen.insert(wait);
        }
        backoff.succeeded();
        assert!(backoff.failed(None) <= Duration::from_millis(1250));
        assert!(backoff.failed(Some(Duration::from_secs(3600))) >= Duration::from_secs(3600));
    }
    assert!(seen.len() > 1000, "spread");
}

#[test]
fn who_lost_theirs_together_come_back_one_by_one() {
    let now = Timestamp(0);
    let wait = |seed| {
        let mut reconnect = ReconnectPolicy::new(seed);
        reconnect.ended(now, LinkEnd::SentAway, None);
        reconnect.not_before().since(now)
    };
    let waits: Vec<Duration> = (0..9_000).map(wait).collect();
    assert!(waits.iter().all(|wait| *wait <= BACK_WITHIN));
    // In each second about as many as in any other.
    for second in 0..BACK_WITHIN.as_secs() {
        let now = waits.iter().filter(|wait| wait.as_secs() == second).count();
        assert!((600..900).contains(&now), "{now} in second {second}");
    }
}

#[test]
fn who_lost_a_link_alone_comes_back_after_a_second() {
    for seed in 0..1000 {
        let (now, mut reconnect) = (Timestamp(0), ReconnectPolicy::new(seed));
        let mut wait = |how| {
            reconnect.ended(now, how, None);
            reconnect.not_before().since(now)
        };
        let first = wait(LinkEnd::Lost);
        assert!((Duration::from_millis(750)..=Duration::from_millis(1250)).contains(&first), "{first:?}");
        assert!(wait(LinkEnd::Lost) >= Duration::from_millis(1500), "then twice as long");
        reconnect.worked();
        reconnect.ended(now, LinkEnd::Refused, Some(Duration::from_secs(5)));
        let refused = reconnect.not_before().since(now);
        let asked = Duration::from_secs(5);
        assert!((asked..=asked + BACK_WITHIN).contains(&refused), "{refused:?}");
    }
}

#[test]
fn who_was_away_long_comes_back_soon_after_the_other_side_is_there_again() {
    let hour = Some(Duration::from_secs(3600));
    for seed in 0..200 {
        let mut reconnect = ReconnectPolicy::new(seed);
        let mut now = Timestamp(0);
        for _ in 0..10 {
            reconnect.ended(now, LinkEnd::Unreached, None);
            now = reconnect.not_before();
        }
        reconnect.ended(now, LinkEnd::Unreached, None);
        assert!(reconnect.not_before() >= now.plus(Duration::from_secs(45)), "it waits long by now");
        reconnect.reached(now);
        assert!(reconnect.not_before() <= now.plus(BACK_WITHIN), "a call came through");
        reconnect.reached(now.plus(BACK_WITHIN));
        assert!(reconnect.not_before() <= now.plus(BACK_WITHIN), "that counts once");

        // Links alone may be what does not come through: then the waits stay long.
        reconnect.ended(now, LinkEnd::Unreached, None);
        reconnect.reached(now);
        assert!(reconnect.not_before() >= now.plus(Duration::from_secs(45)));
        reconnect.worked();
        reconnect.ended(now, LinkEnd::Unreached, None);
        reconnect.reached(now);
        assert!(reconnect.not_before() <= now.plus(BACK_WITHIN));

        // Who was asked to stay away, or does not come through, stays away.
        reconnect.ended(now, LinkEnd::Lost, hour);
        reconnect.reached(now);
        assert!(reconnect.not_before() >= now.plus(Duration::from_secs(3600)));
        reconnect.ended(now, LinkEnd::SentAway, hour);
        assert!(reconnect.not_before() >= now.plus(Duration::from_secs(3600) - BACK_WITHIN));
        reconnect.ended(now, LinkEnd::SentAway, None);
        assert!(reconnect.not_before() <= now.plus(BACK_WITHIN));
        reconnect.at_once(now);
        assert_eq!(reconnect.not_before(), now);
    }
}

#[test]
fn without_a_stream_a_node_polls() {
    let (lost, interval) = (Timestamp(0), Duration::from_secs(60));
    assert_eq!(poll_at(lost, None, interval), lost.plus(POLL_WITHOUT_STREAM));
    let last = lost.plus(Duration::from_secs(400));
    assert_eq!(poll_at(lost, Some(last), interval), last.plus(interval));
}
