//! ROL-7: a host gives up the release before once it hears that its rollout was through: of that rollout, or of a later one
//! that it waits in or was taken out of.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::rollouts::{acked, acknowledge, begun, dispatch, id_of, in_waves, prepare, proceeds, until};
use common::{Bench, Release, START, offering, report};
use model::exchange::Answer;
use model::rollout::{RolloutDispatch, RolloutTask};
use node::{HeldSettings, NodeEffect, NodeInput, TrialReport, TrialStage};
use trust::rollout_terms::OnFailure;

/// It is confirmed on release 2, whose rollout goes on.
fn confirmed(next: &Release) -> Bench {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    prepare(&mut bench, next, &["canary"]);
    acknowledge(&mut bench, next, 7);
    let request = begun(&proceeds(&mut bench, next, Some(7))).unwrap().clone();
    bench.give(NodeInput::Switch(Box::new(request.adoption)));
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    bench.trial(TrialStage::OnProbation);
    bench
}

#[test]
fn of_itself_or_of_a_later_one() {
    let (next, later) = (in_waves(2, &["b"], OnFailure::Rollback), in_waves(3, &["c"], OnFailure::Rollback));
    let mut bench = confirmed(&next);
    let over = NodeEffect::RolloutEnded(next.set.root());
    for (asked, task, through, is_over) in [
        (&next, RolloutTask::Proceed, None, false),
        (&next, RolloutTask::Proceed, Some(id_of(&next)), true),
        (&later, RolloutTask::Hold, None, false),
        (&later, RolloutTask::Hold, Some(id_of(&later)), false),
        (&later, RolloutTask::Hold, Some(id_of(&next)), true),
        (&later, until(&bench), Some(id_of(&next)), true),
    ] {
        let told = RolloutDispatch { through: through.clone(), ..dispatch(asked, task) };
        let answer = Answer { rollout: Some(told), ..offering(next.offer(Some(&next.set))) };
        let effects = bench.exchange(answer);
        assert_eq!(effects.contains(&over), is_over, "{task:?} {through:?}: {effects:?}");
    }
}

/// The same answer ends one rollout for a host and lets it begin the next: that takes the place of the one before, whose end
/// is no end of it, however late it is told.
#[test]
fn the_end_of_one_is_not_the_end_of_the_next() {
    let (next, later) = (in_waves(2, &["b"], OnFailure::Rollback), in_waves(3, &["c"], OnFailure::Rollback));
    let mut bench = confirmed(&next);
    prepare(&mut bench, &later, &["canary"]);
    acknowledge(&mut bench, &later, 9);
    let before = bench.requests;
    let told = RolloutDispatch { through: Some(id_of(&next)), ..dispatch(&later, RolloutTask::Proceed) };
    let answer =
        Answer { acked: Some(acked(9)), rollout: Some(told), ..offering(later.offer(Some(&next.set))) };
    let effects = bench.exchange(answer);
    let at = |wanted: &dyn Fn(&NodeEffect) -> bool| effects.iter().position(wanted).unwrap();
    let begins = at(&|effect| matches!(effect, NodeEffect::Activate(_)));
    let ends = at(&|effect| *effect == NodeEffect::RolloutEnded(next.set.root()));
    assert!(begins < ends, "its soak is over as the next begins: {effects:?}");

    for stage in [TrialStage::Settled, TrialStage::Returning] {
        bench.give(NodeInput::Trial(TrialReport { stage, heard: before }));
        assert_eq!(bench.node.rollout_part().unwrap().seq, 3, "{stage:?} was said of the one before");
    }
    bench.trial(TrialStage::OnProbation);
    let back = Answer { rollout: Some(dispatch(&later, RolloutTask::GoBack)), ..common::answer() };
    let effects = bench.exchange(back);
    assert!(effects.contains(&NodeEffect::GoBack(later.set.root())), "it can be called back: {effects:?}");
    bench.trial(TrialStage::Settled);
    assert_eq!(bench.node.rollout_part(), None);
}
