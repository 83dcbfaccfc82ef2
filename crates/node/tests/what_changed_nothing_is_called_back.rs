//! ROL-5, ROL-7: a node that is called back from a release that changed nothing on its host says that it is on what it had:
//! one that gave it the set that it had before, or that it did not begin, also where it held nothing. One that has given up
//! what it had says that.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::rollouts::{
    acked, acknowledge, asks, begun, dispatch, id_of, in_waves, prepare, proceeds, said, until,
};
use common::{Bench, Release, START, adoption_of, answer, offering, report};
use model::exchange::Answer;
use model::rollout::{RolloutEventBody, RolloutTask};
use node::{HeldSettings, NodeEffect, NodeInput, Restored, TrialStage};
use trust::rollout_terms::OnFailure;

fn back_on(release: u64) -> RolloutEventBody {
    RolloutEventBody::RollbackComplete { release }
}

fn called_back(bench: &mut Bench, from: &Release, to: Option<&Release>) -> Vec<NodeEffect> {
    let held = bench.node.adoption().map(|held| held.set());
    let pointed = to.map_or_else(answer, |to| offering(to.offer(held.as_ref())));
    let effects = bench.exchange(Answer { rollout: Some(dispatch(from, RolloutTask::GoBack)), ..pointed });
    let goes_back = |effect: &NodeEffect| matches!(effect, NodeEffect::GoBack(_));
    assert!(!effects.iter().any(goes_back), "there is no way back: {effects:?}");
    effects
}

/// A host that runs the release, which gave it the set that it had.
fn running(held: &Release, next: &Release) -> Bench {
    let mut bench = Bench::holding(held);
    prepare(&mut bench, next, &["canary"]);
    acknowledge(&mut bench, next, 7);
    let request = begun(&proceeds(&mut bench, next, Some(7))).unwrap().clone();
    let mut effects = bench.give(NodeInput::Switch(Box::new(request.adoption)));
    if adoption_of(&effects).is_none() {
        effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    }
    assert_eq!(adoption_of(&effects).unwrap().same_as, Some(1));
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    bench.trial(TrialStage::OnProbation);
    bench
}

/// While its probes are asked, once it converged and its part is over, and after a start.
#[test]
fn a_release_with_the_same_set_is_left_without_a_return() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["a"], OnFailure::Rollback));
    for (what, is_over, starts_anew) in
        [("soaks", false, false), ("converged", true, false), ("started anew", true, true)]
    {
        let mut bench = running(&held, &next);
        if is_over {
            bench.trial(TrialStage::Settled);
        }
        if starts_anew {
            let restored = Restored { adoption: bench.node.adoption().cloned(), ..Restored::default() };
            bench = Bench::restored_at(restored, bench.now);
        }
        assert_eq!(said(&called_back(&mut bench, &next, Some(&held))), [&back_on(1)], "{what}");
        for _ in 0..3 {
            assert!(said(&called_back(&mut bench, &next, Some(&held))).is_empty(), "{what}: once");
        }
        bench.give(NodeInput::DispatchNotReported(id_of(&next)));
        assert_eq!(said(&called_back(&mut bench, &next, None)), [&back_on(1)], "{what}: it was not kept");
    }
}

/// A control plane that was restored lost that its rollout was through, and calls back who gave up the release before, as
/// `through` said: silence would keep its slot, and say no reason.
#[test]
fn a_host_that_has_nothing_to_go_back_to_says_so() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
    let effects = bench.give(NodeInput::Switch(Box::new(request.adoption)));
    if adoption_of(&effects).is_none() {
        bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    }
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    for stage in [TrialStage::OnProbation, TrialStage::Settled] {
        bench.trial(stage);
    }
    let effects = called_back(&mut bench, &next, Some(&held));
    let heard = said(&effects);
    let [RolloutEventBody::Failed { message }] = heard[..] else { unreachable!("{effects:?}") };
    assert!(message.contains("nothing to go back to"), "{message}");
    assert!(said(&called_back(&mut bench, &next, Some(&held))).is_empty(), "once");
    bench.give(NodeInput::DispatchNotReported(id_of(&next)));
    assert_eq!(said(&called_back(&mut bench, &next, None)).len(), 1, "it was not kept");
}

/// An operator has it tried again, and it is called back again.
#[test]
fn it_says_so_each_time_that_it_is_asked() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["a"], OnFailure::Rollback));
    let mut bench = running(&held, &next);
    for number in 0..3 {
        assert_eq!(said(&called_back(&mut bench, &next, Some(&held))), [&back_on(1)]);
        bench.pass(10 * common::rollouts::MINUTE);
        let asked = asks(&bench, &next, until(&bench));
        assert_eq!(said(&bench.exchange(asked)), [&RolloutEventBody::DispatchAck]);
        bench.give(NodeInput::DispatchReported(id_of(&next), acked(20 + number)));
    }
}

/// ROL-1: one that held nothing is pointed to nothing until its wave opens; then it is asked as any other, and says that it
/// holds nothing where it is called back before it began.
#[test]
fn a_host_that_holds_nothing_is_asked_and_called_back_as_any_other() {
    let next = in_waves(2, &["a"], OnFailure::Rollback);
    let mut bench = Bench::new();
    for _ in 0..3 {
        let waits = Answer { rollout: Some(dispatch(&next, RolloutTask::Hold)), ..answer() };
        let effects = bench.exchange(waits);
        assert!(said(&effects).is_empty() && bench.node.unadopted().is_none(), "{effects:?}");
    }
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    assert_eq!(said(&called_back(&mut bench, &next, None)), [&back_on(0)]);
    assert!(said(&called_back(&mut bench, &next, None)).is_empty(), "once");
    assert_eq!(
        begun(&proceeds(&mut bench, &next, Some(7))),
        None,
        "what was acknowledged before counts no more"
    );
}
