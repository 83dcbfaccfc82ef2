//! IDN-2, IDN-7, IDN-11: a node asks for its next certificate from half of validity on, at a time of its own; with
//! the control plane's word for it at once; after a sleep at the first contact; after failures ever later, within a
//! bound; and by its key alone only when the certificate has ended and a contact failed. A clock that jumps or is ahead
//! leads to neither.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::*;
use model::exchange::Answer;
use model::{CertificateValidity, Timestamp};
use node::{NodeEffect, NodeInput, RenewalProof, Restored};
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

fn days(from: Timestamp, days: u32) -> CertificateValidity {
    CertificateValidity { from, until: from.plus(DAY * days) }
}

fn certified(validity: CertificateValidity) -> Bench {
    Bench::restored(Restored { certificate: Some(validity), ..Restored::default() })
}

fn proof(effects: &[NodeEffect]) -> Option<RenewalProof> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::Renew(proof) => Some(*proof),
        _ => None,
    })
}

/// Lets time pass, every contact answered, until a certificate is asked for.
fn until_asked(bench: &mut Bench, answer: impl Fn() -> Answer) -> RenewalProof {
    for _ in 0..50_000 {
        let (at, _) = bench.node.next_deadline().expect("something is due");
        bench.now = bench.now.max(at);
        let mut effects = bench.give(NodeInput::Tick);
        if effects.contains(&NodeEffect::CollectTraits) {
            effects.extend(bench.give(observed(&traits("debian"))));
            effects.extend(bench.give(NodeInput::Answered(Box::new(answer()))));
        }
        if let Some(proof) = proof(&effects) {
            return proof;
        }
    }
    panic!("no certificate is asked for");
}

#[test]
fn at_half_of_validity_at_the_node_s_own_time() {
    let validity = days(START, 30);
    let mut bench = certified(validity);
    let answer = || Answer { next_checkin_secs: 3600, ..answer() };
    assert_eq!(until_asked(&mut bench, answer), RenewalProof::Certificate);
    let due = validity.renew_at(HOST);
    assert_eq!(bench.now, due, "not only at the next check-in");
    assert!(due >= START.plus(DAY * 15) && due <= START.plus(DAY * 18), "{due}");
    // One at a time.
    bench.check_in();
    bench.now = bench.now.plus(DAY);
    assert_eq!(proof(&bench.give(NodeInput::Answered(Box::new(answer())))), None);
    let next = days(bench.now, 30);
    bench.give(NodeInput::Renewed(next));
    assert_eq!(until_asked(&mut bench, answer), RenewalProof::Certificate);
    assert_eq!(bench.now, next.renew_at(HOST));
}

#[test]
fn at_the_first_contact_after_a_sleep_and_not_before() {
    // It slept for 20 days, and wakes up without a network.
    let mut bench = Bench::restored_at(
        Restored { certificate: Some(days(START, 30)), ..Restored::default() },
        START.plus(DAY * 20),
    );
    for _ in 0..20 {
        bench.check_in();
        assert_eq!(proof(&bench.give(NodeInput::Unreachable("no route".into()))), None);
        assert_eq!(proof(&bench.pass(Duration::from_secs(1))), None);
    }
    assert_eq!(proof(&bench.exchange(answer())), Some(RenewalProof::Certificate));
}

#[test]
fn when_the_control_plane_wants_it_but_not_again_and_again() {
    let mut bench = certified(days(START, 30));
    let wants = || Answer { renew_certificate: true, ..answer() };
    assert_eq!(proof(&bench.exchange(wants())), Some(RenewalProof::Certificate));
    let renewed = bench.now;
    bench.give(NodeInput::Renewed(days(renewed, 30)));
    assert_eq!(until_asked(&mut bench, wants), RenewalProof::Certificate);
    let again = bench.now.since(renewed);
    assert!(again >= node::backoff::LONGEST, "a control plane that wants it in each answer: {again:?}");

    // An hour of validity has some of them.
    let hour = |from| CertificateValidity { from, until: from.plus(Duration::from_secs(3600)) };
    let mut bench = certified(hour(START));
    let effects = bench.exchange(wants());
    assert_eq!((proof(&effects), warnings(&effects)), (Some(RenewalProof::Certificate), vec![]));
    let renewed = bench.now;
    bench.give(NodeInput::Renewed(hour(renewed)));
    until_asked(&mut bench, wants);
    let again = bench.now.since(renewed).as_secs();
    assert!((3600 / 32..3600 / 8).contains(&again), "{again}");
}

/// A request that failed is made again in time, by whatever clock.
#[test]
fn a_clock_that_is_set_back_holds_no_renewal_up() {
    let mut bench = certified(days(START, 30));
    let wants = || Answer { renew_certificate: true, ..answer() };
    bench.exchange(wants());
    bench.give(NodeInput::RenewalFailed("the store is busy".into()));
    bench.now = bench.now.minus(DAY * 365);
    let from = bench.now;
    bench.give(NodeInput::Tick);
    until_asked(&mut bench, wants);
    let wait = bench.now.since(from);
    assert!(wait <= node::backoff::LONGEST, "{wait:?}");
}

/// Whoever heard that something failed hears soon that nothing does any more; else a renewal hurries no contact.
#[test]
fn a_renewal_is_told_where_something_failed() {
    let wants = || Answer { renew_certificate: true, ..answer() };
    let soon = |bench: &mut Bench| {
        let at = bench.now;
        bench.give(NodeInput::Renewed(days(at, 30)));
        bench.check_in();
        bench.now.since(at) <= Duration::from_secs(2)
    };
    let mut plain = certified(days(START, 30));
    plain.exchange(wants());
    assert!(!soon(&mut plain), "nothing failed");

    let mut renewal = certified(days(START, 30));
    renewal.exchange(wants());
    renewal.give(NodeInput::RenewalFailed("the store is busy".into()));
    assert!(soon(&mut renewal), "a renewal failed");

    let mut contact = certified(days(START.minus(DAY * 31), 30));
    contact.check_in();
    let effects = contact.give(NodeInput::Unreachable("certificate expired".into()));
    assert_eq!(proof(&effects), Some(RenewalProof::Key));
    assert!(soon(&mut contact), "a contact failed");
}

#[test]
fn failures_are_tried_again_ever_later_told_once_and_carried_up() {
    let mut bench = certified(days(START, 30));
    until_asked(&mut bench, answer);
    let mut told = 0;
    let mut last = Duration::ZERO;
    for failure in 0..40 {
        let before = bench.now;
        let effects = bench.give(NodeInput::RenewalFailed("the store is busy".into()));
        told += warnings(&effects).len();
        assert_eq!(bench.node.renewal_failure(), Some("the store is busy"));
        until_asked(&mut bench, answer);
        let wait = bench.now.since(before);
        assert!(wait <= node::backoff::LONGEST, "failure {failure}: {wait:?}");
        last = wait;
    }
    assert_eq!(told, 1, "the same reason is told once");
    assert!(last >= node::backoff::LONGEST / 2, "{last:?}");
    bench.give(NodeInput::RenewalFailed("the store is busy".into()));
    assert_eq!(bench.check_in().renewal_failure.as_deref(), Some("the store is busy"));
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.give(NodeInput::Renewed(days(bench.now, 30)));
    assert_eq!(bench.check_in().renewal_failure, None);
}

/// IDN-7, IDN-11: what has ended is known by the time of trust, and only a contact that fails for it leads to the
/// key; contacts come first, as a clock may be wrong.
#[test]
fn by_its_key_alone_once_the_certificate_has_ended_and_a_contact_failed() {
    let ended = days(START.minus(DAY * 31), 30);
    let mut bench = certified(ended);
    bench.check_in();
    let effects = bench.give(NodeInput::Unreachable("certificate expired".into()));
    assert_eq!(proof(&effects), Some(RenewalProof::Key));
    assert!(warnings(&effects)[0].contains("by the node's key"), "{effects:?}");
    bench.give(NodeInput::RenewalFailed("refused".into()));
    let (before, mut told) = (bench.now, 0);
    let (at, why) = bench.node.next_deadline().unwrap();
    assert!(at > before, "{why} at {at}");
    let mut next = None;
    for _ in 0..10 {
        let (at, _) = bench.node.next_deadline().unwrap();
        bench.now = bench.now.max(at);
        let effects = bench.give(NodeInput::Tick);
        next = next.or(proof(&effects));
        told += warnings(&effects).iter().filter(|text| text.contains("by the node's key")).count();
        if effects.contains(&NodeEffect::CollectTraits) {
            bench.give(observed(&traits("debian")));
            bench.give(NodeInput::Unreachable("certificate expired".into()));
        }
    }
    assert_eq!((next, told), (Some(RenewalProof::Key), 0), "it is tried again, and not told again");
    bench.give(NodeInput::Renewed(days(bench.now, 30)));
    let (at, _) = bench.node.next_deadline().unwrap();
    assert!(at.since(bench.now) <= Duration::from_secs(2), "the contact is made again at once");

    // Within the slack it still opens sessions, to its last moment.
    for (past, want) in [(0, None), (1, Some(RenewalProof::Key))] {
        let mut bench = certified(days(START, 30));
        bench.check_in();
        bench.now = days(START, 30).until.plus(model::time::SLACK).plus(Duration::from_millis(past));
        assert_eq!(proof(&bench.give(NodeInput::Unreachable("no route".into()))), want, "{past} ms");
    }

    // A host whose clock is slow is told by the control plane.
    let mut bench = certified(days(START, 30));
    bench.check_in();
    bench.give(NodeInput::CertificateEnded);
    let effects = bench.give(NodeInput::Unreachable("certificate expired".into()));
    assert_eq!(proof(&effects), Some(RenewalProof::Key));
}

/// A certificate with which a contact was answered has not ended, whatever was said before.
#[test]
fn an_answer_takes_back_that_the_certificate_has_ended() {
    let mut bench = certified(days(START, 30));
    bench.check_in();
    bench.give(NodeInput::CertificateEnded);
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.check_in();
    assert_eq!(proof(&bench.give(NodeInput::Unreachable("no route".into()))), None);
}

/// By the control plane's clock, as far as it is known: a host whose clock is a year ahead renews no more often.
#[test]
fn a_clock_that_is_wrong_renews_no_sooner() {
    let year = DAY * 365;
    let mut bench = Bench::restored_at(
        Restored { certificate: Some(days(START, 30)), ..Restored::default() },
        START.plus(year),
    );
    bench.check_in();
    bench.give(NodeInput::ServerTime(START));
    assert_eq!(proof(&bench.give(NodeInput::Answered(Box::new(answer())))), None);
    until_asked(&mut bench, answer);
    assert_eq!(bench.now, days(START, 30).renew_at(HOST).plus(year));
}

/// IDN-11: a clock that jumps between two contacts is compared before anything is renewed by it.
#[test]
fn a_clock_that_jumps_renews_nothing() {
    let mut bench = certified(days(START, 30));
    bench.give(NodeInput::ServerTime(START));
    assert_eq!(proof(&bench.exchange(answer())), None);
    let compared = bench.now;

    bench.now = START.plus(DAY * 365 * 14);
    let effects = bench.give(NodeInput::Tick);
    assert_eq!(proof(&effects), None);
    assert!(effects.contains(&NodeEffect::CollectTraits), "a contact goes first: {effects:?}");
    let at = bench.node.next_deadline().map(|(at, _)| at);
    assert!(at.is_none_or(|at| at > bench.now), "and is waited for");
    let mut effects = bench.give(observed(&traits("debian")));
    effects.extend(bench.give(NodeInput::ServerTime(compared)));
    effects.extend(bench.give(NodeInput::Answered(Box::new(answer()))));
    assert_eq!(proof(&effects), None);

    // By the control plane's clock it is asked for in time.
    assert_eq!(until_asked(&mut bench, answer), RenewalProof::Certificate);
    let ahead = START.plus(DAY * 365 * 14).since(compared);
    assert_eq!(bench.now, days(START, 30).renew_at(HOST).plus(ahead));
}

/// IDN-11: where the control plane's own certificate has ended by the clock, the clock says nothing of the node's.
#[test]
fn a_clock_that_ends_the_server_s_certificate_recovers_nothing() {
    let mut bench = certified(days(START.minus(DAY * 31), 30));
    for _ in 0..3 {
        bench.check_in();
        bench.give(NodeInput::ServerCertificateEnded);
        let effects = bench.give(NodeInput::Unreachable("is the clock right?".into()));
        assert_eq!((proof(&effects), warnings(&effects)), (None, vec![]));
    }
    // The control plane's word counts more.
    bench.check_in();
    assert_eq!(proof(&bench.give(NodeInput::CertificateEnded)), Some(RenewalProof::Key));
    bench.give(NodeInput::Unreachable("certificate expired".into()));
    bench.give(NodeInput::RenewalFailed("busy".into()));
    assert_eq!(proof(&bench.give(NodeInput::ServerCertificateEnded)), None);
    assert_eq!(proof(&bench.pass(node::backoff::LONGEST)), Some(RenewalProof::Key), "also after that");
}

#[test]
fn behind_a_proxy_nothing_is_renewed() {
    let mut bench = Bench::new();
    assert_eq!(proof(&bench.exchange(Answer { renew_certificate: true, ..answer() })), None);
    bench.check_in();
    bench.give(NodeInput::CertificateEnded);
    assert_eq!(proof(&bench.give(NodeInput::Unreachable("no route".into()))), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// However contacts, requests and the clock go: one request at a time, none before its time, and a bounded
    /// number of them.
    #[test]
    fn requests_are_bounded_whatever_happens(
        steps in proptest::collection::vec((0_u8..6, 0_u64..20_000), 1..200),
        minutes in 10_u64..60_000,
    ) {
        let span = Duration::from_secs(minutes * 60);
        let mut validity = CertificateValidity { from: START, until: START.plus(span) };
        let mut bench = certified(validity);
        let (mut under_way, mut asked, mut wanted) = (false, 0_u64, false);
        for (step, secs) in steps {
            let input = match step {
                0 => NodeInput::Tick,
                1 => NodeInput::Unreachable("no route".into()),
                2 | 3 => {
                    wanted |= step == 3;
                    NodeInput::Answered(Box::new(Answer { renew_certificate: step == 3, ..answer() }))
                }
                4 if under_way => NodeInput::RenewalFailed("no".into()),
                5 if under_way => {
                    validity = CertificateValidity { from: bench.now, until: bench.now.plus(span) };
                    wanted = false;
                    NodeInput::Renewed(validity)
                }
                _ => NodeInput::Tick,
            };
            under_way &= step < 4;
            bench.now = bench.now.plus(Duration::from_secs(secs));
            let mut effects = bench.give(input);
            if effects.contains(&NodeEffect::CollectTraits) {
                effects.extend(bench.give(observed(&traits("debian"))));
            }
            if let Some(proof) = proof(&effects) {
                prop_assert!(!under_way, "one at a time");
                match proof {
                    RenewalProof::Certificate => prop_assert!(wanted || bench.now >= validity.half()),
                    RenewalProof::Key => prop_assert!(bench.now > validity.until),
                }
                under_way = true;
                asked += 1;
            }
        }
        let wait = (span / 32).clamp(node::backoff::FIRST, node::backoff::LONGEST) / 2;
        prop_assert!(u128::from(asked) <= 20 + bench.now.since(START).as_millis() / wait.as_millis());
    }
}

/// IDN-8: a certificate of a CA that counts no more opens no session. Another one is requested by the node's key at once,
/// and again until there is one, also while answers come over what is open.
#[test]
fn a_certificate_of_a_ca_that_counts_no_more_is_recovered_at_once() {
    let mut bench = certified(days(START, 30));
    let effects = bench.give(NodeInput::CertificateRejected);
    assert_eq!(proof(&effects), Some(RenewalProof::Key));
    assert!(warnings(&effects)[0].contains("counts no more"), "{effects:?}");
    bench.give(NodeInput::RenewalFailed("busy".into()));
    bench.check_in();
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert_eq!(until_asked(&mut bench, answer), RenewalProof::Key);
    bench.give(NodeInput::Renewed(days(bench.now, 30)));
    assert_eq!(until_asked(&mut bench, answer), RenewalProof::Certificate);
    assert!(bench.now > START.plus(DAY * 15), "in its time");
}
