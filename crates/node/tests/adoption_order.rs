//! DLT-4, ROL-4: judged, fetched, durable, and only then converged on; a refusal changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, FRESH, Release, START, adoption_of, answer, facts, offering, run_of, warnings};
use model::exchange::Answer;
use model::log::FactBody;
use model::unadopted::UnadoptedCause;
use model::{Digest, Edit, ObjectSet, Stub};
use node::{HeldSettings, NodeEffect, NodeInput, Restored};

#[test]
fn step_by_step() {
    let release = Release::new(1, START, &["a", "b"]);
    let mut bench = Bench::new();
    let effects = bench.exchange(offering(release.offer(None)));
    let [NodeEffect::Fetch { contents, inline }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(contents, &["a", "b"].map(|text| Digest::of(text.as_bytes())).into());
    assert_eq!(inline, &["a", "b"]);
    assert_eq!(bench.node.adoption(), None, "offered is not adopted");

    let effects = bench.give(NodeInput::Fetched);
    let adoption = adoption_of(&effects).unwrap().clone();
    assert_eq!((effects.len(), adoption.seq, adoption.root), (1, 1, release.set.root()));
    assert_eq!(
        (adoption.floor.seq, adoption.floor.newest_signature),
        (1, START),
        "the floor is in the same write"
    );
    assert_eq!(adoption.set().root(), release.set.root());
    assert_eq!(bench.node.adoption(), None, "what is not durable is not held");

    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(bench.node.adoption(), Some(&adoption));
    let FactBody::Adopted { seq: 1, root, .. } = facts(&effects)[0] else { panic!("{effects:?}") };
    assert_eq!(*root, release.set.root());
    let order = run_of(&effects).unwrap();
    assert_eq!((order.seq, order.root, order.intended), (1, release.set.root(), true));
    assert_eq!(bench.check_in().held, Some(adoption.held()));
}

#[test]
fn a_failure_on_the_way_leaves_what_was_held() {
    let (held, next) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::holding(&held);
    let before = bench.node.adoption().cloned();
    bench.exchange(offering(next.offer(Some(&held.set))));
    let effects = bench.give(NodeInput::FetchFailed("cut off".to_owned()));
    assert_eq!(warnings(&effects), ["the release it is pointed to could not be fetched: cut off"]);
    assert_eq!(bench.node.adoption(), before.as_ref());
    bench.exchange(offering(next.offer(Some(&held.set))));
    bench.give(NodeInput::Fetched);
    let effects = bench.give(NodeInput::AdoptFailed("disk full".to_owned()));
    let kept = ["the release it is pointed to could not be written to its disk: disk full"];
    assert_eq!(warnings(&effects), kept);
    assert_eq!(bench.node.adoption(), before.as_ref());
    // And it is tried again. What is the same is not said again, and another cause is.
    for (why, said) in [("disk full", 0), ("read-only", 1), ("read-only", 0)] {
        bench.exchange(offering(next.offer(Some(&held.set))));
        bench.give(NodeInput::Fetched);
        assert_eq!(warnings(&bench.give(NodeInput::AdoptFailed(why.to_owned()))).len(), said, "{why}");
    }
    bench.adopt(&next);
    assert_eq!(bench.node.adoption().unwrap().seq, 2);
}

/// LIF-10: until the release is adopted, or another answer has none.
#[test]
fn why_a_release_is_not_adopted_is_told() {
    let (held, next) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::holding(&held);
    let told = |bench: &mut Bench| bench.check_in().unadopted.map(|it| (it.cause, it.reason));
    assert_eq!(told(&mut bench), None);
    bench.give(NodeInput::Answered(Box::new(offering(next.offer(Some(&held.set))))));
    bench.give(NodeInput::FetchFailed("cut off".to_owned()));
    assert_eq!(told(&mut bench), Some((UnadoptedCause::Fetch, "cut off".to_owned())));
    bench.give(NodeInput::Answered(Box::new(offering(next.offer(Some(&held.set))))));
    bench.give(NodeInput::Fetched);
    let since = bench.node.unadopted().unwrap().since;
    bench.give(NodeInput::AdoptFailed("disk full".to_owned()));
    assert_eq!(bench.node.unadopted().unwrap().since, since, "it counts from the first failure");
    assert_eq!(told(&mut bench), Some((UnadoptedCause::Keep, "disk full".to_owned())));
    bench.give(NodeInput::Answered(Box::new(offering(next.offer(Some(&held.set))))));
    bench.give(NodeInput::Fetched);
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(told(&mut bench), None);
}

/// LIF-10: a content that takes long to come stops neither check-ins nor runs, and what is offered
/// meanwhile begins no second change.
#[test]
fn check_ins_go_on_while_a_release_is_fetched_and_kept() {
    let (held, next) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::holding(&held);
    let effects = bench.exchange(offering(next.offer(Some(&held.set))));
    assert!(matches!(effects[..], [NodeEffect::Fetch { .. }]), "{effects:?}");
    for _ in 0..3 {
        assert!(bench.wait().is_some(), "the next contact has its time");
        let effects = bench.exchange(offering(next.offer(Some(&held.set))));
        assert!(!effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. })), "{effects:?}");
    }
    bench.give(NodeInput::Fetched);
    assert_eq!(bench.check_in().held.unwrap().seq, 1, "the release before, until the next one is durable");
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    // The answer to the check-in before the adoption: an offer that is held by now.
    let effects = bench.give(NodeInput::Answered(Box::new(offering(next.offer(Some(&held.set))))));
    assert_eq!((warnings(&effects), facts(&effects).len()), (vec![], 0), "{effects:?}");
    assert_eq!(bench.check_in().held.unwrap().seq, 2);
}

#[test]
fn a_move_of_the_pointer_alone_is_no_fact_and_fetches_nothing_new() {
    let (held, next) = (Release::new(1, START, &["a"]), Release::new(2, START, &["a"]));
    let mut bench = Bench::holding(&held);
    let effects = bench.adopt(&next);
    assert_eq!(facts(&effects), [] as [&FactBody; 0]);
    assert_eq!(bench.check_in().held.unwrap().seq, 2);
}

#[test]
fn a_refusal_is_one_fact_and_leaves_what_was_held() {
    let (old, held) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::holding(&held);
    let before = bench.node.adoption().cloned();
    for round in 0..5 {
        let effects = bench.exchange(offering(old.offer(Some(&held.set))));
        let refused = facts(&effects);
        match round {
            0 => {
                let FactBody::Refused { code, message } = refused[0] else { panic!("{refused:?}") };
                assert_eq!(code, "release-older");
                assert_eq!(message, "release 1 is older than release 2, which this node accepted before");
                assert_eq!(warnings(&effects).len(), 1);
            }
            _ => assert!(refused.is_empty() && warnings(&effects).is_empty(), "said again in round {round}"),
        }
        assert!(
            !effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. } | NodeEffect::Adopt(_)))
        );
        assert_eq!(bench.node.adoption(), before.as_ref());
    }
    // Another reason is another fact.
    let stale = Release::new(3, START.minus(FRESH * 2), &["c"]);
    let effects = bench.exchange(offering(stale.offer(Some(&held.set))));
    assert!(matches!(facts(&effects)[..], [FactBody::Refused { code, .. }] if code == "release-stale"));
    // After an adoption the old reason counts anew.
    bench.adopt(&Release::new(4, START, &["d"]));
    bench.give(NodeInput::Ran(Box::new(common::report(1, 1))));
    let effects = bench.exchange(offering(stale.offer(None)));
    assert!(matches!(facts(&effects)[..], [FactBody::Refused { code, .. }] if code == "release-older"));
}

#[test]
fn a_set_that_is_not_the_release_s_is_refused() {
    let (held, next) = (Release::new(1, START, &["a"]), Release::new(2, START, &["a", "b"]));
    let strange = ObjectSet::of([]);
    let honest = next.offer(Some(&held.set));
    let mut other_content = honest.clone();
    for edit in other_content.set.as_mut().unwrap().delta.edits.values_mut() {
        *edit = Edit::Add { to: Stub::of(b"evil") };
    }
    let mut no_set = honest.clone();
    no_set.set = None;
    for (what, offer, code) in [
        ("another content", other_content, "release-other-root"),
        ("no set, though it differs", no_set, "release-other-root"),
        ("from a set not held", next.offer(Some(&strange)), "release-malformed"),
    ] {
        let mut bench = Bench::holding(&held);
        let effects = bench.exchange(offering(offer));
        assert!(
            matches!(facts(&effects)[..], [FactBody::Refused { code: c, .. }] if c == code),
            "{what}: {effects:?}"
        );
        assert_eq!(bench.node.adoption().unwrap().seq, 1, "{what}");
        // It may be the held that is odd: the next time the whole set is asked for.
        assert!(bench.check_in().full, "{what}");
        bench.give(NodeInput::Answered(Box::new(offering(next.offer(None)))));
        bench.give(NodeInput::Fetched);
        bench.give(NodeInput::Adopted(HeldSettings::default()));
        assert_eq!(bench.node.adoption().unwrap().seq, 2, "{what}");
        bench.give(NodeInput::Ran(Box::new(common::report(1, 1))));
        assert!(!bench.check_in().full, "{what}");
    }
}

#[test]
fn the_floor_outlives_a_restart() {
    let (old, held) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let adoption = Bench::holding(&held).node.adoption().cloned();
    let mut bench = Bench::restored(Restored { adoption, ..Restored::default() });
    let effects = bench.exchange(offering(old.offer(Some(&held.set))));
    assert!(matches!(facts(&effects)[..], [FactBody::Refused { code, .. }] if code == "release-older"));
}

#[test]
fn a_host_s_slow_clock_locks_it_out_of_nothing() {
    let month = Duration::from_secs(30 * 86_400);
    let release = Release::new(1, START.plus(month), &["a"]);
    let mut bench = Bench::new();
    let effects = bench.exchange(offering(release.offer(None)));
    assert!(matches!(facts(&effects)[..], [FactBody::Refused { code, .. }] if code == "release-future"));
    bench.check_in();
    bench.give(NodeInput::ServerTime(bench.now.plus(month)));
    bench.give(NodeInput::Answered(Box::new(offering(release.offer(None)))));
    assert!(adoption_of(&bench.give(NodeInput::Fetched)).is_some());
}

#[test]
fn a_control_plane_that_lies_about_the_time_makes_nothing_fresh() {
    let stale = Release::new(1, START.minus(FRESH * 2), &["a"]);
    for theirs in [START.minus(FRESH * 2), START, START.plus(FRESH * 9)] {
        let mut bench = Bench::new();
        bench.give(NodeInput::ServerTime(theirs));
        let effects = bench.exchange(offering(stale.offer(None)));
        assert!(
            matches!(facts(&effects)[..], [FactBody::Refused { code, .. }] if code == "release-stale"),
            "{theirs}"
        );
    }
}

/// IDN-11: the refusal says whose clock is ahead, and by how much, in the journal and to the control plane.
#[test]
fn a_refusal_for_time_names_the_clock_that_is_ahead() {
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let past = Release::new(1, START.minus(days(40)), &["a"]);
    let future = Release::new(1, START.plus(days(40)), &["a"]);
    let ours = "; this host's clock is 40 days ahead of the control plane's";
    let theirs = "; the control plane's clock is 40 days ahead of this host's";
    for (what, release, server_time, code, clock) in [
        ("the host's is ahead", &past, START.minus(days(40)), "release-stale", ours),
        (
            "the control plane's is",
            &Release::new(1, START, &["a"]),
            START.plus(days(40)),
            "release-stale",
            theirs,
        ),
        ("they agree", &past, START.plus(Duration::from_secs(50)), "release-stale", "by this node's time"),
        (
            "the signer's is ahead of both",
            &future,
            START,
            "release-future",
            "40 days ahead of this node's time",
        ),
    ] {
        let mut bench = Bench::new();
        bench.give(NodeInput::ServerTime(server_time));
        let effects = bench.exchange(offering(release.offer(None)));
        let [FactBody::Refused { code: got, message }] = facts(&effects)[..] else {
            panic!("{what}: {effects:?}")
        };
        assert_eq!(got, code, "{what}");
        assert!(message.contains(clock), "{what}: {message}");
        assert_eq!(message.contains("; th"), clock.starts_with(';'), "{what}: {message}");
        assert!(warnings(&effects).iter().any(|warning| warning.contains(clock)), "{what}: {effects:?}");
    }
}

#[test]
fn inputs_that_nobody_waits_for_change_nothing() {
    let (held, next) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::holding(&held);
    let before = bench.node.adoption().cloned();
    let stray: [NodeInput; 4] = [
        NodeInput::Answered(Box::new(offering(next.offer(None)))),
        NodeInput::Fetched,
        NodeInput::Adopted(HeldSettings::default()),
        NodeInput::Ran(Box::new(common::report(9, 9))),
    ];
    for input in stray {
        assert_eq!(bench.give(input.clone()), [], "{input:?}");
    }
    assert_eq!(bench.node.adoption(), before.as_ref());
    assert_eq!(bench.exchange(Answer { want_traits: true, ..answer() }), []);
    assert!(bench.check_in().traits.is_some(), "what is asked for is sent again");
}
