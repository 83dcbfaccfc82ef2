//! ROL-5, ROL-12: a node that was told to begin what its host refuses (it returned from it before) says so once, and begins
//! it no more until it is asked anew, whatever the control plane makes of what it said.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::rollouts::{
    acked, acknowledge, asks, begun, id_of, in_waves, of_groups, prepare, proceeds, said, until,
};
use common::{Bench, Release, START};
use model::exchange::Answer;
use model::rollout::RolloutEventBody;
use node::{NodeEffect, NodeInput, TrialStage};
use trust::rollout_terms::OnFailure;

/// How often a control plane says `proceed`, which takes everything that the log holds and changes its mind for none of it.
const TIMES: u64 = 20;

/// What a release that is pointed to leads to, while the host refuses it each time: how often it is begun.
fn begun_in_vain(bench: &mut Bench, next: &Release, first: u64) -> u64 {
    let mut times = 0;
    for number in first..first + TIMES {
        let effects = proceeds(bench, next, Some(number));
        for effect in &effects {
            match effect {
                NodeEffect::ReportDispatch(rollout, RolloutEventBody::DispatchAck) => {
                    bench.give(NodeInput::DispatchReported(rollout.clone(), acked(number)));
                }
                NodeEffect::Fetch { .. } => {
                    bench.give(NodeInput::Fetched);
                    bench.give(of_groups(&["canary"]));
                }
                // It is in quarantine: nothing is switched, and the owner of activations says so.
                NodeEffect::Activate(_) => {
                    times += 1;
                    bench.trial(TrialStage::Settled);
                }
                _ => {}
            }
        }
    }
    times
}

#[test]
fn a_release_that_is_refused_is_begun_once() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 1);
    assert_eq!(begun_in_vain(&mut bench, &next, 1), 1);
    assert_eq!(bench.node.rollout_part(), None);

    // Whoever asks anew is answered, and told what it comes to: a control plane that was restored knows nothing of it.
    let again = Answer { acked: Some(acked(50)), ..asks(&bench, &next, until(&bench)) };
    assert_eq!(said(&bench.exchange(again)), [&RolloutEventBody::DispatchAck]);
    bench.give(NodeInput::DispatchReported(id_of(&next), acked(51)));
    assert_eq!(begun_in_vain(&mut bench, &next, 51), 1, "asked once more, begun once more");

    // The release that follows is another one.
    let mended = in_waves(3, &["c"], OnFailure::Rollback);
    prepare(&mut bench, &mended, &["canary"]);
    acknowledge(&mut bench, &mended, 90);
    assert_eq!(begun(&proceeds(&mut bench, &mended, Some(90))).unwrap().part.rollout, id_of(&mended));
}

/// The host left it by itself after its rollout counted it as confirmed, and the control plane did not take that: it hears
/// once more that the host refuses the release.
#[test]
fn a_release_that_was_left_is_refused_once() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 1);
    assert!(begun(&proceeds(&mut bench, &next, Some(1))).is_some());
    for stage in [TrialStage::OnProbation, TrialStage::Returning, TrialStage::Settled] {
        bench.trial(stage);
    }
    assert_eq!(begun_in_vain(&mut bench, &next, 2), 1);
}
