//! ROL-1, ROL-5, ROL-7: a release whose header has rollout terms begins only after the control plane took the node's
//! acknowledgement, never before its wave's signed time, and goes back only as its terms say; whoever answers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use activation::{AfterConfirm, ContactRule};
use common::rollouts::{
    MINUTE, acked, acknowledge, asks, begun, dispatch, id_of, in_waves, of_groups, prepare, proceeds, said,
    terms, until,
};
use common::{Bench, Release, START, adoption_of, answer, offering, report, run_of, sent};
use model::exchange::Answer;
use model::log::Cursor;
use model::rollout::{RolloutDispatch, RolloutEventBody, RolloutTask};
use model::window::DeclaredWindow;
use model::{Digest, Pause, Timestamp};
use node::{CheckInWay, HeldSettings, NodeEffect, NodeInput, Restored, ReturnedRelease, TrialStage};
use trust::rollout_terms::{FreezeTerms, OnFailure, PinTerms, RolloutTerms, WaveMembers};

fn is_at_once(effects: &[NodeEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, NodeEffect::AdoptedAtOnce(_)))
}

#[test]
fn it_begins_once_the_acknowledgement_was_taken() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    for taken in [None, Some(6)] {
        let effects = proceeds(&mut bench, &next, taken);
        assert_eq!(begun(&effects), None, "taken up to {taken:?}");
        assert!(said(&effects).is_empty(), "and says nothing twice: {effects:?}");
    }
    // An acknowledgement of another log is none of this.
    let other = Cursor { incarnation: "i2".parse().unwrap(), seq: 9 };
    let answer = Answer { acked: Some(other), ..asks(&bench, &next, RolloutTask::Proceed) };
    assert_eq!(begun(&bench.exchange(answer)), None);
    assert_eq!(bench.node.adoption().unwrap().seq, 1, "nothing is adopted until then");

    let effects = proceeds(&mut bench, &next, Some(7));
    let request = begun(&effects).unwrap().clone();
    assert_eq!((request.part.seq, request.part.rollout), (2, id_of(&next)));
    assert_eq!((request.part.soak_secs, request.part.root), (120, next.set.root()), "by the signed gate");
    let terms = (request.terms.window.as_secs(), request.terms.tries, request.terms.contact);
    assert_eq!(terms, (90, 3, ContactRule::ProbesAlone));
    assert_eq!(request.terms.after_confirm, AfterConfirm::Stay);
    assert_eq!(begun(&proceeds(&mut bench, &next, Some(7))), None, "once");

    // The switch: adopted, a full run, and then it is over.
    let adoption = Box::new(request.adoption);
    let mut effects = bench.give(NodeInput::Switch(adoption));
    if adoption_of(&effects).is_none() {
        // A run of what is held before is under way, and ends first.
        effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    }
    assert_eq!(adoption_of(&effects).unwrap().seq, 2);
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(run_of(&effects).unwrap().root, next.set.root());
    assert!(!is_at_once(&effects), "it is on trial: {effects:?}");
    let effects = bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    assert!(effects.contains(&NodeEffect::Switched(Ok(()))), "{effects:?}");
    assert_eq!(bench.check_in().held.unwrap().seq, 2);
}

/// ROL-5: facts may be delivered outside of the answer that lets it begin.
#[test]
fn a_delivery_over_a_stream_counts() {
    let next = in_waves(1, &["b"], OnFailure::Halt);
    let mut bench = Bench::new();
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 3);
    bench.give(NodeInput::Delivered(acked(3)));
    let effects = proceeds(&mut bench, &next, None);
    assert_eq!(begun(&effects).unwrap().part.seq, 1, "and a host that holds nothing acknowledges too");
}

/// ROL-1: a host that holds nothing waits for its wave on the release of before, also where that went out in waves: nobody
/// asks for it any more. Its signed time counts all the same, and a host that holds a release stays on that.
#[test]
fn a_host_that_holds_nothing_waits_for_its_wave_on_the_release_of_before() {
    let (before, next) = (in_waves(2, &["a"], OnFailure::Halt), in_waves(3, &["b"], OnFailure::Halt));
    let other = Release::new(1, START, &["x"]);
    for (holds, groups, adopts) in
        [(None, ["canary"], true), (None, ["web"], false), (Some(&other), ["canary"], false)]
    {
        let mut bench = holds.map_or_else(Bench::new, Bench::holding);
        for turn in 0..3 {
            let held = bench.node.adoption().map(|held| held.set());
            let offer = offering(before.offer(held.as_ref()));
            let waits = Answer { rollout: Some(dispatch(&next, RolloutTask::Hold)), ..offer };
            bench.exchange(waits);
            bench.give(NodeInput::Fetched);
            let effects = bench.give(of_groups(&groups));
            let adopted = adoption_of(&effects).map(|adoption| adoption.seq);
            assert_eq!(adopted, adopts.then_some(2), "{groups:?} {turn}");
            assert!(
                !effects.contains(&NodeEffect::CollectTraits),
                "nothing is to be said at once: {groups:?}"
            );
            assert!(bench.wait().unwrap() > Duration::from_secs(1), "nor a second later: {groups:?} {turn}");
            if adopts {
                break;
            }
        }
    }
}

/// A control plane that was broken into, and an agent that starts anew, acknowledge first all the same.
#[test]
fn a_request_that_was_never_made_begins_nothing() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    let effects = proceeds(&mut bench, &next, Some(100));
    assert_eq!((begun(&effects), said(&effects)), (None, vec![&RolloutEventBody::DispatchAck]));
    assert_eq!(begun(&proceeds(&mut bench, &next, Some(100))), None, "its fact is not durable here yet");
    bench.give(NodeInput::DispatchReported(id_of(&next), acked(101)));
    assert_eq!(begun(&proceeds(&mut bench, &next, Some(100))), None);
    assert!(begun(&proceeds(&mut bench, &next, Some(101))).is_some());
}

#[test]
fn a_request_that_is_withdrawn_or_another_one_begins_nothing() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let other = in_waves(3, &["c"], OnFailure::Halt);
    type Withdrawal = fn(&Bench, &Release, &Release) -> Answer;
    let withdrawals: [(&str, Withdrawal); 3] = [
        ("held back", |bench, next, _| asks(bench, next, RolloutTask::Hold)),
        ("a task of a newer control plane", |bench, next, _| asks(bench, next, RolloutTask::Unknown)),
        ("another rollout", |bench, next, other| {
            let task = RolloutTask::Proceed;
            Answer { rollout: Some(dispatch(other, task)), ..asks(bench, next, task) }
        }),
    ];
    for (what, withdraws) in withdrawals {
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &["canary"]);
        acknowledge(&mut bench, &next, 7);
        let answer = Answer { acked: Some(acked(7)), ..withdraws(&bench, &next, &other) };
        assert_eq!(begun(&bench.exchange(answer)), None, "{what}");
        let effects = proceeds(&mut bench, &next, Some(7));
        assert_eq!(begun(&effects), None, "{what}: what was acknowledged before counts no more");
    }
    // An answer without a dispatch begins nothing either.
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let answer = Answer { acked: Some(acked(7)), ..offering(next.offer(Some(&held.set))) };
    assert_eq!(begun(&bench.exchange(answer)), None);
}

/// ROL-1: nobody, a stolen control plane neither, begins a wave before its signed time, with 60 s for clocks.
#[test]
fn no_wave_begins_before_its_signed_time() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["web"]);
    let refused = RolloutEventBody::DispatchReject { code: "not-before".to_owned() };
    let request = until(&bench);
    let answer = asks(&bench, &next, request);
    assert_eq!(said(&bench.exchange(answer)), [&refused]);
    let answer = asks(&bench, &next, request);
    assert!(said(&bench.exchange(answer)).is_empty(), "the same request is refused once");
    let effects = proceeds(&mut bench, &next, Some(100));
    assert_eq!((begun(&effects), said(&effects)), (None, vec![&refused]));
    for (early, begins) in [(Duration::from_secs(61 + 600), false), (Duration::from_secs(30), true)] {
        bench.now = START.plus(Duration::from_secs(86_400)).minus(early);
        let request = until(&bench);
        let answer = asks(&bench, &next, request);
        let effects = bench.exchange(answer);
        assert_eq!(said(&effects).contains(&&RolloutEventBody::DispatchAck), begins, "{early:?} early");
    }
}

/// ROL-1: whether a percent wave takes it a node finds itself (docs/protocol.md), whatever wave the control plane names.
#[test]
fn no_percent_wave_takes_a_node_that_it_does_not_draw() {
    let held = Release::new(1, START, &["a"]);
    let draw = |seed: &str| {
        let length = (seed.len() as u64).to_be_bytes();
        let hashed =
            [b"muster rollout draw\0".as_slice(), &length, seed.as_bytes(), common::HOST.as_bytes()].concat();
        let first: [u8; 8] = Digest::of(&hashed).as_bytes()[..8].try_into().unwrap();
        u64::from_be_bytes(first) % 10_000
    };
    assert_eq!([draw("stable"), draw("b")], [2430, 4681]);
    for (seed, percent, begins) in
        [("stable", 24, false), ("stable", 25, true), ("b", 46, false), ("b", 47, true)]
    {
        let mut drawn = terms(OnFailure::Halt);
        drawn.seed = seed.to_owned();
        drawn.waves[0].members = WaveMembers::Percent(percent);
        let mut next = in_waves(2, &["b"], OnFailure::Halt);
        next.header.rollout = Some(Arc::new(drawn));
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &["canary"]);
        let wanted = match begins {
            true => RolloutEventBody::DispatchAck,
            false => RolloutEventBody::DispatchReject { code: "not-before".to_owned() },
        };
        let answer = asks(&bench, &next, until(&bench));
        assert_eq!(said(&bench.exchange(answer)), [&wanted], "{percent} % of {seed}");
    }
}

/// ROL-1: the control plane's clock is not the host's. A stolen one that says a later time opens no wave with it.
#[test]
fn no_time_of_the_control_plane_opens_a_wave() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["web"]);
    bench.give(NodeInput::ServerTime(START.plus(Duration::from_secs(2 * 86_400))));
    let answer = asks(&bench, &next, until(&bench));
    let effects = bench.exchange(answer);
    let refused = RolloutEventBody::DispatchReject { code: "not-before".to_owned() };
    assert_eq!(said(&effects), [&refused]);
    let warned = common::warnings(&effects);
    assert!(warned.iter().any(|warning| warning.contains("ahead of this host's")), "{warned:?}");
}

/// A control plane that asks again and again, each time until another moment or after it held the node back, has it
/// write no more than a few facts a minute.
#[test]
fn a_flood_of_requests_is_answered_a_few_times() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    for groups in [["canary"], ["web"]] {
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &groups);
        let (began, mut facts) = (bench.now, 0);
        for more in 0..100 {
            let until = bench.now.plus(Duration::from_secs(more));
            let answer = asks(&bench, &next, RolloutTask::Acknowledge { until });
            let new = said(&bench.exchange(answer)).len() as u64;
            facts += new;
            if new > 0 {
                // It calls at once to say so.
                bench.give(NodeInput::DispatchReported(id_of(&next), acked(facts)));
            }
        }
        let minutes = bench.now.since(began).as_secs() / 60;
        assert!(facts > 0 && facts <= 10 * (minutes + 1), "{groups:?}: {facts} in {minutes} minutes");
    }
}

/// One that calls it back from one rollout after the other, none of which it began.
#[test]
fn a_flood_of_call_backs_is_answered_a_few_times() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let mut bench = Bench::holding(&held);
    let (began, mut facts) = (bench.now, 0);
    for number in 0..100 {
        let rollout = format!("main@{number:04x}").parse().unwrap();
        let back = RolloutDispatch { rollout, ..dispatch(&next, RolloutTask::GoBack) };
        // It calls again as soon as it may.
        let answer = Answer { next_checkin_secs: 1, rollout: Some(back), ..answer() };
        facts += said(&bench.exchange(answer)).len() as u64;
    }
    let minutes = bench.now.since(began).as_secs() / 60;
    assert!(facts > 0 && facts <= 10 * (minutes + 1), "{facts} in {minutes} minutes");
}

#[test]
fn a_paused_host_does_not_begin() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    let pause = paused(&bench);
    bench.give(pause);
    let answer = asks(&bench, &next, until(&bench));
    let refused = RolloutEventBody::DispatchReject { code: "paused".to_owned() };
    assert_eq!(said(&bench.exchange(answer)), [&refused]);
    bench.give(NodeInput::Resume);
    acknowledge(&mut bench, &next, 7);
}

fn paused(bench: &Bench) -> NodeInput {
    NodeInput::Pause(Pause { reason: "by hand".to_owned(), since: bench.now, until: None })
}

/// ROL-1, ROL-5: what came after its acknowledgement, and would have had the request refused, keeps it from beginning. It says
/// so, once for each request, and begins what it acknowledged anew.
#[test]
fn a_pause_after_its_acknowledgement_is_said() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let refused = RolloutEventBody::DispatchReject { code: "paused".to_owned() };
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    for fact in [7, 9] {
        acknowledge(&mut bench, &next, fact);
        let pause = paused(&bench);
        bench.give(pause);
        let effects = proceeds(&mut bench, &next, Some(fact));
        assert_eq!((begun(&effects), said(&effects)), (None, vec![&refused]), "of the request at {fact}");
        let effects = proceeds(&mut bench, &next, Some(fact));
        assert_eq!(
            (begun(&effects), said(&effects)),
            (None, vec![]),
            "the control plane does not have it yet"
        );
        bench.give(NodeInput::Resume);
    }
    acknowledge(&mut bench, &next, 11);
    assert!(begun(&proceeds(&mut bench, &next, Some(11))).is_some());
}

/// What could not be written to its log is said again.
#[test]
fn a_refusal_that_was_not_kept_is_said_again() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let pause = paused(&bench);
    bench.give(pause);
    assert_eq!(said(&proceeds(&mut bench, &next, Some(7))).len(), 1);
    bench.give(NodeInput::DispatchNotReported(id_of(&next)));
    assert_eq!(said(&proceeds(&mut bench, &next, Some(7))).len(), 1);
}

/// ROL-1: once it said that it waits its slot is another node's. An answer which was under way by then, and says to go on, lets
/// nothing begin, also where it acknowledged meanwhile as its pause is over.
#[test]
fn an_answer_of_before_its_refusal_begins_nothing() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let pause = paused(&bench);
    bench.give(pause);
    assert_eq!(said(&proceeds(&mut bench, &next, Some(7))).len(), 1);
    bench.give(NodeInput::Resume);
    // The control plane does not have the refusal yet, or did not take it.
    let effects = proceeds(&mut bench, &next, Some(7));
    assert_eq!(said(&effects), [&RolloutEventBody::DispatchAck]);
    bench.check_in();
    bench.give(NodeInput::DispatchReported(id_of(&next), acked(9)));
    bench.give(NodeInput::Delivered(acked(9)));
    let answer = asks(&bench, &next, RolloutTask::Proceed);
    let effects = bench.give(NodeInput::Answered(Box::new(answer)));
    assert_eq!(begun(&effects), None, "it was called before that was delivered");
    assert!(begun(&proceeds(&mut bench, &next, None)).is_some(), "as it did not take the refusal");
}

/// ROL-7: a stolen control plane goes back one generation, where the signed terms let it, and nowhere else; so does one that
/// does not know yet which release the host had, and points to an earlier one.
#[test]
fn it_goes_back_only_as_signed() {
    let held = Release::new(1, START, &["a"]);
    let stranger = Release::new(7, START, &["x"]);
    for (on_failure, pointed, goes) in [
        (OnFailure::Rollback, Some(&held), true),
        (OnFailure::Rollback, Some(&stranger), true),
        (OnFailure::Rollback, None, true),
        (OnFailure::Halt, Some(&held), false),
        (OnFailure::Halt, Some(&stranger), false),
    ] {
        let next = in_waves(2, &["b"], on_failure);
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &["canary"]);
        acknowledge(&mut bench, &next, 7);
        let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
        bench.give(NodeInput::Switch(Box::new(request.adoption)));
        bench.give(NodeInput::Adopted(HeldSettings::default()));
        bench.give(NodeInput::Ran(Box::new(report(1, 0))));
        bench.trial(TrialStage::OnProbation);
        // It is asked whether it will, as any other node that is confirmed.
        let asked = Answer {
            offer: pointed.map(|release| release.offer(Some(&next.set))),
            rollout: Some(dispatch(&next, until(&bench))),
            ..answer()
        };
        let effects = bench.exchange(asked.clone());
        assert_eq!(said(&effects), [&RolloutEventBody::DispatchAck], "{effects:?}");
        assert!(common::warnings(&effects).is_empty(), "the release before is no offer: {effects:?}");
        let back = Answer { rollout: Some(dispatch(&next, RolloutTask::GoBack)), ..asked };
        let effects = bench.exchange(back);
        let wanted = NodeEffect::GoBack(next.set.root());
        assert_eq!(effects.contains(&wanted), goes, "{on_failure:?} {effects:?}");
        let takes = |effect: &NodeEffect| matches!(effect, NodeEffect::Fetch { .. } | NodeEffect::Adopt(_));
        assert!(!effects.iter().any(takes), "and takes nothing that is pointed to: {effects:?}");
        assert_eq!(bench.node.adoption().unwrap().seq, 2);
        let other = RolloutDispatch { seq: 9, ..dispatch(&next, RolloutTask::GoBack) };
        let effects = bench.exchange(Answer { rollout: Some(other), ..answer() });
        assert!(!effects.contains(&wanted), "of another release: {effects:?}");
    }
}

/// ROL-5: a node that is called back after its acknowledgement was taken, and before it began, begins nothing and says that
/// it is on what it had; or it would keep its slot of a budget. An agent that started anew meanwhile does the same.
#[test]
fn it_says_that_it_did_not_begin() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    for starts_anew in [false, true] {
        let mut bench = Bench::holding(&held);
        if !starts_anew {
            prepare(&mut bench, &next, &["canary"]);
            acknowledge(&mut bench, &next, 7);
        }
        let back = Answer {
            acked: Some(acked(7)),
            rollout: Some(dispatch(&next, RolloutTask::GoBack)),
            ..offering(held.offer(Some(&held.set)))
        };
        let effects = bench.exchange(back.clone());
        assert_eq!(said(&effects), [&RolloutEventBody::RollbackComplete { release: 1 }], "{effects:?}");
        assert!(bench.wait().unwrap() <= Duration::from_secs(2), "it says so soon");
        assert!(said(&bench.exchange(back.clone())).is_empty(), "it is said once");
        bench.give(NodeInput::DispatchNotReported(id_of(&next)));
        assert_eq!(said(&bench.exchange(back)).len(), 1, "what could not be kept is said again");
        let effects = proceeds(&mut bench, &next, Some(7));
        assert_eq!(begun(&effects), None, "what was acknowledged before counts no more");
    }
}

/// A release that failed after it was confirmed stays, where its terms say `halt`; the control plane holds the node and points
/// it to the release before, which is no offer, so that nothing is refused.
#[test]
fn a_release_that_failed_and_stays_is_not_taken_back_by_a_hold() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Halt));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
    bench.give(NodeInput::Switch(Box::new(request.adoption)));
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    bench.trial(TrialStage::OnProbation);
    let held_back =
        Answer { rollout: Some(dispatch(&next, RolloutTask::Hold)), ..offering(held.offer(Some(&next.set))) };
    let effects = bench.exchange(held_back);
    assert!(common::warnings(&effects).is_empty(), "{effects:?}");
    assert_eq!(bench.node.unadopted(), None, "it is not told that something is refused");
    assert_eq!(bench.node.adoption().unwrap().seq, 2);
}

/// ROL-7: no run begins while the host goes back, and what it holds then is what it says.
#[test]
fn a_host_that_goes_back_runs_nothing_else() {
    let held = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&held);
    let before = bench.node.adoption().cloned();
    assert!(run_of(&bench.give(NodeInput::RunNow(Default::default()))).is_some());
    let effects = bench.trial(TrialStage::Returning);
    assert!(!effects.contains(&NodeEffect::HostIsFree), "a run is under way: {effects:?}");
    let effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert!(effects.contains(&NodeEffect::HostIsFree), "{effects:?}");
    let effects = bench.give(NodeInput::RunNow(Default::default()));
    assert_eq!(run_of(&effects), None);
    let returned = ReturnedRelease { adoption: before, settings: HeldSettings::default(), last_run: None };
    bench.give(NodeInput::Returned(Box::new(returned)));
    bench.trial(TrialStage::Settled);
    assert_eq!(bench.check_in().held.unwrap().seq, 1);
    assert!(run_of(&bench.give(NodeInput::RunNow(Default::default()))).is_some());
}

/// ROL-7: a try to confirm is a check-in that was made after it was asked for, over a connection of its own: one that was
/// open before the switch outlives what cuts the host off.
#[test]
fn an_answer_of_before_confirms_nothing() {
    let tried = |effects: &[NodeEffect]| {
        effects.iter().find_map(|effect| match effect {
            NodeEffect::ConfirmTried(outcome) => Some(outcome.clone()),
            _ => None,
        })
    };
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.check_in();
    let effects = bench.give(NodeInput::TryConfirm);
    assert!(effects.contains(&NodeEffect::HurryCheckIn), "it may hang: {effects:?}");
    let effects = bench.give(NodeInput::Answered(Box::new(answer())));
    assert_eq!(tried(&effects), None, "it was made before");
    assert!(effects.contains(&NodeEffect::CollectTraits), "the next one is made at once");
    assert_eq!(bench.ways.last(), Some(&CheckInWay::AnyConnection), "it was made before");
    assert_eq!(tried(&bench.exchange(answer())), Some(Ok(())));
    assert_eq!(bench.ways.last(), Some(&CheckInWay::NewConnection));
    assert_eq!(tried(&bench.exchange(answer())), None, "once");
    assert_eq!(bench.ways.last(), Some(&CheckInWay::AnyConnection));
    let effects = bench.give(NodeInput::TryConfirm);
    assert!(!effects.contains(&NodeEffect::HurryCheckIn), "none is under way: {effects:?}");
    bench.check_in();
    // The turn of the next try comes: the one that is asked was dialled after the switch too, and goes on.
    let effects = bench.give(NodeInput::TryConfirm);
    assert!(!effects.contains(&NodeEffect::HurryCheckIn), "its answer counts: {effects:?}");
    assert_eq!(tried(&bench.give(NodeInput::Unreachable("cut".to_owned()))), Some(Err("cut".to_owned())));
}

/// Nothing changes for a channel without rollouts, nor for a node that holds the release.
#[test]
fn a_release_without_terms_is_adopted_at_once() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    let second = Release::new(2, START, &["b"]);
    let effects = bench.adopt(&second);
    assert!(run_of(&effects).is_some());
    assert!(effects.contains(&NodeEffect::AdoptedAtOnce(second.set.root())), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, NodeEffect::Prepare(_))), "{effects:?}");
    // One that comes while another one is tried waits.
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    let held = bench.node.adoption().unwrap().set();
    bench.trial(TrialStage::UnderWay);
    let third = Release::new(3, START, &["c"]);
    let effects = bench.exchange(offering(third.offer(Some(&held))));
    assert!(!effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. })), "{effects:?}");
    bench.trial(TrialStage::Settled);
    bench.adopt(&third);
    assert_eq!(bench.node.adoption().unwrap().seq, 3);
}

/// An agent that starts in mid-trial goes on with it, and takes no other release.
#[test]
fn a_start_in_mid_trial_goes_on() {
    let next = in_waves(2, &["b"], OnFailure::Rollback);
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
    let restored = Restored {
        adoption: Some(request.adoption),
        rollout: Some(request.part),
        trial: TrialStage::UnderWay,
        ..Restored::default()
    };
    let mut bench = Bench::restored_at(restored, Timestamp(bench.now.0));
    bench.check_in();
    let third = Release::new(3, START, &["c"]);
    let effects = bench.give(NodeInput::Answered(Box::new(offering(third.offer(Some(&next.set))))));
    assert!(!effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. })), "{effects:?}");
    let before = Release::new(1, START, &["a"]);
    let offer = Some(before.offer(Some(&next.set)));
    let back = Answer { offer, rollout: Some(dispatch(&next, RolloutTask::GoBack)), ..answer() };
    assert!(bench.exchange(back).contains(&NodeEffect::GoBack(next.set.root())));
    assert!(sent(&bench.pass(MINUTE * 60)).is_none());
}

/// ROL-1: freezes and pins are signed as times are. A control plane that does not mind them begins nothing, with 60 s for
/// clocks.
#[test]
fn nothing_begins_in_a_signed_freeze_or_under_a_pin() {
    let (held, plain) = (Release::new(1, START, &["a"]), terms(OnFailure::Halt));
    // START is within the window, whose end follows.
    let of_day = |at: Timestamp| at.to_string().chars().skip(11).take(5).collect::<String>();
    let (from, to) = (START.minus(10 * MINUTE), START.plus(30 * MINUTE));
    let window = DeclaredWindow {
        days: Vec::new(),
        from: of_day(from),
        to: of_day(to),
        zone: "UTC".to_owned(),
        rules: None,
    };
    let freeze = vec![FreezeTerms { name: "quiet".to_owned(), window }];
    let frozen = RolloutTerms { freeze, ..plain.clone() };
    let hostname = common::HOST.parse().unwrap();
    let pin = PinTerms { nodes: vec![hostname], until: to, reason: "ticket".to_owned() };
    let pinned = RolloutTerms { pins: vec![pin], ..plain };
    for (terms, code) in [(frozen, "frozen"), (pinned, "pinned")] {
        let mut next = in_waves(2, &["b"], OnFailure::Halt);
        next.header.rollout = Some(Arc::new(terms));
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &["canary"]);
        let refused = RolloutEventBody::DispatchReject { code: code.to_owned() };
        let answer = asks(&bench, &next, until(&bench));
        assert_eq!(said(&bench.exchange(answer)), [&refused]);
        let effects = proceeds(&mut bench, &next, Some(100));
        assert_eq!(begun(&effects), None);
        bench.now = to.plus(2 * MINUTE);
        let answer = asks(&bench, &next, until(&bench));
        assert_eq!(said(&bench.exchange(answer)), [&RolloutEventBody::DispatchAck], "{code} is over");
    }
}
