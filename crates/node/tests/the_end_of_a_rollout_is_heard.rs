//! ROL-7: a host gives up the release before once it hears that its rollout was through: of that rollout, or of a later one
//! that it waits in or was taken out of.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::rollouts::{acknowledge, begun, dispatch, id_of, in_waves, prepare, proceeds, until};
use common::{Bench, Release, START, offering, report};
use model::exchange::Answer;
use model::rollout::{RolloutDispatch, RolloutTask};
use node::{HeldSettings, NodeEffect, NodeInput, TrialStage};
use trust::rollout_terms::OnFailure;

#[test]
fn of_itself_or_of_a_later_one() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let later = in_waves(3, &["c"], OnFailure::Rollback);
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
    bench.give(NodeInput::Switch(Box::new(request.adoption)));
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    bench.give(NodeInput::Trial(TrialStage::OnProbation));
    let over = NodeEffect::RolloutEnded(next.set.root());
    for (asked, task, through, is_over) in [
        (&next, RolloutTask::Proceed, None, false),
        (&next, RolloutTask::Proceed, Some(id_of(&next)), true),
        (&later, RolloutTask::Hold, None, false),
        (&later, RolloutTask::Hold, Some(id_of(&held)), false),
        (&later, RolloutTask::Hold, Some(id_of(&next)), true),
        (&later, until(&bench), Some(id_of(&next)), true),
    ] {
        let told = RolloutDispatch { through: through.clone(), ..dispatch(asked, task) };
        let answer = Answer { rollout: Some(told), ..offering(next.offer(Some(&next.set))) };
        let effects = bench.exchange(answer);
        assert_eq!(effects.contains(&over), is_over, "{task:?} {through:?}: {effects:?}");
    }
}
