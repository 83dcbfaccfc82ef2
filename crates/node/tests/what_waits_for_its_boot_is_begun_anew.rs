//! ROL-5, ROL-7: a host waits for the boot that a release asked for, and the next one comes. With the same set it is that one's
//! part from then on; with another, what waits is left first, and its part is what it says that of.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::rollouts::{acknowledge, begun, id_of, in_waves, of_groups, prepare, proceeds};
use common::{Bench, Release, START, adoption_of, report};
use node::{Adoption, HeldSettings, NodeEffect, NodeInput, TrialStage};
use trust::rollout_terms::OnFailure;

/// The host is switched to a release, and waits for its boot.
fn switches(bench: &mut Bench, adoption: Adoption) {
    let seq = adoption.seq;
    let mut effects = bench.give(NodeInput::Switch(Box::new(adoption)));
    bench.trial(TrialStage::WaitsForBoot);
    if adoption_of(&effects).is_none() {
        // Whatever runs already ends first.
        effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    }
    assert_eq!(adoption_of(&effects).unwrap().seq, seq);
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    let effects = bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    assert!(effects.contains(&NodeEffect::Switched(Ok(()))), "{effects:?}");
    assert_eq!(bench.node.adoption().unwrap().seq, seq);
}

#[test]
fn the_part_is_of_the_next_release_with_the_same_set() {
    for (modules, is_same, is_late) in [(["b"], true, false), (["b"], true, true), (["c"], false, false)] {
        let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
        let third = in_waves(3, &modules, OnFailure::Rollback);
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &["canary"]);
        acknowledge(&mut bench, &next, 7);
        let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
        switches(&mut bench, request.adoption);

        prepare(&mut bench, &third, &["canary"]);
        acknowledge(&mut bench, &third, 8);
        let request = begun(&proceeds(&mut bench, &third, Some(8))).unwrap().clone();
        let part = bench.node.rollout_part().unwrap();
        let expected = if is_same { &third } else { &next };
        assert_eq!(part.rollout, id_of(expected), "{modules:?}");
        if !is_same {
            continue;
        }
        if is_late {
            // Its owner has a full disk, and the release is offered again meanwhile.
            bench.trial(TrialStage::WaitsForBoot);
            proceeds(&mut bench, &third, Some(8));
            bench.give(NodeInput::Fetched);
            bench.give(of_groups(&["canary"]));
        }
        // Its owner has the host hold it, while it waits on.
        switches(&mut bench, request.adoption);
        assert_eq!(begun(&proceeds(&mut bench, &third, Some(8))), None, "once");
    }
}
