//! ROL-12: what a host returned from is never adopted at once, whatever the control plane points it to: not by a host that is
//! back as it was found, which has the header of that release still, and not as the release of before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use activation::ReturnCause;
use common::rollouts::{
    acked, acknowledge, asks, begun, dispatch, in_waves, of_groups, of_groups_in_quarantine, prepare,
    proceeds, said, until,
};
use common::{Bench, Release, START, adoption_of, offering, report, warnings};
use model::Digest;
use model::exchange::Answer;
use model::rollout::{RolloutEventBody, RolloutTask};
use model::unadopted::UnadoptedCause;
use node::{Adoption, HeldSettings, NodeEffect, NodeInput, Restored, ReturnedRelease, TrialStage};
use trust::rollout_terms::OnFailure;

/// As the agent leaves the host: the header of what failed, for its floor, with a set of no object.
fn as_found(failed: &Adoption) -> Adoption {
    Adoption { root: Digest::ZERO, objects: Default::default(), ..failed.clone() }
}

/// A host that held nothing began a release, left it, and is as it was found.
fn returned_from(failed: &Release) -> Bench {
    let mut bench = Bench::new();
    prepare(&mut bench, failed, &["canary"]);
    acknowledge(&mut bench, failed, 7);
    let request = begun(&proceeds(&mut bench, failed, Some(7))).unwrap().clone();
    bench.give(NodeInput::Switch(Box::new(request.adoption)));
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    bench.trial(TrialStage::Returning);
    let adoption = Some(as_found(bench.node.adoption().unwrap()));
    let returned = ReturnedRelease { adoption, settings: HeldSettings::default(), last_run: None };
    bench.give(NodeInput::Returned(Box::new(returned)));
    bench.trial(TrialStage::Settled);
    bench
}

/// The agent starts anew, which makes no difference.
fn started_anew(bench: &Bench) -> Bench {
    let restored = Restored { adoption: bench.node.adoption().cloned(), ..Restored::default() };
    Bench::restored_at(restored, bench.now)
}

fn in_quarantine(groups: &[&str]) -> NodeInput {
    of_groups_in_quarantine(groups, Some(ReturnCause::NotConfirmed))
}

/// Everything of what is pointed to comes here; what the last step leads to.
fn fetched(bench: &mut Bench, answer: Answer, prepared: NodeInput) -> Vec<NodeEffect> {
    let effects = bench.exchange(answer);
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. })), "{effects:?}");
    let effects = bench.give(NodeInput::Fetched);
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::Prepare(_))), "{effects:?}");
    bench.give(prepared)
}

#[test]
fn a_host_that_is_as_it_was_found_waits_to_be_asked() {
    let failed = in_waves(1, &["a"], OnFailure::Rollback);
    let later = in_waves(2, &["b"], OnFailure::Rollback);
    type Pointing = fn(&Release, &Release) -> Answer;
    let pointed: [(&str, Pointing); 3] = [
        ("by nothing but the pointer", |failed, _| offering(failed.offer(None))),
        ("held in its rollout", |failed, _| Answer {
            rollout: Some(dispatch(failed, RolloutTask::Hold)),
            ..offering(failed.offer(None))
        }),
        ("as the release of before", |failed, later| Answer {
            rollout: Some(dispatch(later, RolloutTask::Hold)),
            ..offering(failed.offer(None))
        }),
    ];
    for (how, points) in pointed {
        for starts_anew in [false, true] {
            let mut bench = returned_from(&failed);
            if starts_anew {
                bench = started_anew(&bench);
            }
            let effects = fetched(&mut bench, points(&failed, &later), in_quarantine(&["canary"]));
            assert_eq!(adoption_of(&effects), None, "{how} {starts_anew}");
            assert_eq!(bench.node.adoption().unwrap().root, Digest::ZERO, "{how}");
            let unadopted = bench.node.unadopted().unwrap();
            assert_eq!(unadopted.cause, UnadoptedCause::Other, "{how}");
            assert!(unadopted.reason.contains("returned from it"), "{how}: {unadopted:?}");
            assert_eq!(warnings(&effects).len(), 1, "{how}: {effects:?}");
        }
    }
}

/// Nothing that was said of it says more than once, and what follows is adopted as by any host that holds nothing.
#[test]
fn it_is_said_once_and_another_release_is_adopted() {
    let failed = in_waves(2, &["a"], OnFailure::Rollback);
    let (before, later) =
        (in_waves(3, &["b"], OnFailure::Rollback), in_waves(4, &["c"], OnFailure::Rollback));
    let mut bench = returned_from(&failed);
    let held_back = |release: &Release| Answer {
        rollout: Some(dispatch(&later, RolloutTask::Hold)),
        ..offering(release.offer(None))
    };
    let since = bench.now;
    for turn in 0..3 {
        let effects = fetched(&mut bench, held_back(&failed), in_quarantine(&["canary"]));
        assert_eq!(warnings(&effects).len(), usize::from(turn == 0), "{effects:?}");
    }
    assert!(bench.node.unadopted().unwrap().since <= bench.now && bench.now > since);
    let effects = fetched(&mut bench, held_back(&before), of_groups(&["canary"]));
    assert_eq!(adoption_of(&effects).map(|adoption| adoption.seq), Some(3));
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert!(effects.contains(&NodeEffect::AdoptedAtOnce(before.set.root())), "{effects:?}");
    assert_eq!(bench.node.unadopted(), None);
}

/// A switch that failed before its release was adopted leaves a host that holds nothing at all.
#[test]
fn a_host_that_never_adopted_it_does_not_either() {
    let (before, later) = (in_waves(2, &["a"], OnFailure::Halt), in_waves(3, &["b"], OnFailure::Halt));
    let answer =
        || Answer { rollout: Some(dispatch(&later, RolloutTask::Hold)), ..offering(before.offer(None)) };
    let mut bench = Bench::new();
    let effects = fetched(&mut bench, answer(), in_quarantine(&["canary"]));
    assert_eq!((adoption_of(&effects), bench.node.adoption()), (None, None));
    let effects = fetched(&mut bench, answer(), of_groups(&["canary"]));
    assert_eq!(
        adoption_of(&effects).map(|adoption| adoption.seq),
        Some(2),
        "an operator lets it be tried again"
    );
}

/// Asked for it is begun as what it is, with its own set, and its activation refuses it: the rollout hears why.
#[test]
fn asked_for_it_is_begun_for_its_activation_to_refuse() {
    let failed = in_waves(1, &["a"], OnFailure::Rollback);
    let mut bench = returned_from(&failed);
    let asked = asks(&bench, &failed, until(&bench));
    let effects = fetched(&mut bench, asked, in_quarantine(&["canary"]));
    assert!(said(&effects).is_empty(), "{effects:?}");
    let asked = asks(&bench, &failed, until(&bench));
    assert_eq!(said(&bench.exchange(asked)), [&RolloutEventBody::DispatchAck]);
    bench.give(NodeInput::DispatchReported(common::rollouts::id_of(&failed), acked(9)));
    let request = begun(&proceeds(&mut bench, &failed, Some(9))).unwrap().clone();
    assert_eq!(request.part.root, failed.set.root(), "and not the set of no object");
}

/// A person who has a release go to all hosts at once decides over what each of them returned from.
#[test]
fn a_release_without_terms_is_adopted_whatever_it_holds() {
    let failed = in_waves(1, &["a"], OnFailure::Rollback);
    let mut bench = returned_from(&failed);
    let same = Release::new(2, START, &["a"]);
    let effects = bench.adopt(&same);
    assert!(effects.contains(&NodeEffect::AdoptedAtOnce(same.set.root())), "{effects:?}");
}

/// Who is root at the host lets it be tried again: what waits is read anew, and nothing stands against it any more.
#[test]
fn what_is_lifted_at_the_host_is_read_anew() {
    let failed = in_waves(1, &["a"], OnFailure::Rollback);
    let mut bench = returned_from(&failed);
    let is_read = |effects: &[NodeEffect]| matches!(effects, [NodeEffect::Prepare(_)]);
    assert!(!is_read(&bench.give(NodeInput::QuarantineLifted)), "nothing waits");
    fetched(&mut bench, offering(failed.offer(None)), in_quarantine(&["canary"]));
    assert!(bench.node.unadopted().is_some());
    assert!(is_read(&bench.give(NodeInput::QuarantineLifted)));
    assert!(!is_read(&bench.give(NodeInput::QuarantineLifted)), "it is being read");
    bench.give(of_groups(&["canary"]));
    assert_eq!(bench.node.unadopted(), None);
    assert!(!is_read(&bench.give(NodeInput::QuarantineLifted)), "it is not held back");
}
