//! ROL-1: what operators say takes effect or is refused in the words that `show` uses, and what is refused changes
//! nothing.

use rollout::{CommandRefusal, EventAnswer, RolloutAnswer, RolloutCommand, RolloutState};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::model::driven::{Driven, Labels};
use crate::model::terms::wave;

const WEB: Labels<'static> = &[("tier", "web")];

fn all_at_once() -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 60, 100)], ..RolloutTerms::default() }
}

fn refusal(answer: RolloutAnswer) -> String {
    match answer {
        RolloutAnswer::Command(Err(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_that_is_through_is_not_paused() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    world.activate("a");
    world.pass("a");
    world.wait(60);
    assert_eq!(world.converged("a", 60), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Terminal);
    let said = refusal(world.command(RolloutCommand::Pause));
    assert_eq!(said, "the rollout is through, and this asks for one that goes on");
    assert!(world.rollouts.document(&world.key).unwrap().paused.is_none());
}

#[test]
fn a_resume_that_is_refused_changes_nothing() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    assert_eq!(world.command(RolloutCommand::Pause), RolloutAnswer::Command(Ok(())));
    assert_eq!(world.command(RolloutCommand::Abort), RolloutAnswer::Command(Ok(())));
    let before = world.rollouts.document(&world.key).unwrap().clone();
    let said = refusal(world.command(RolloutCommand::Resume));
    assert_eq!(
        said,
        "the rollout is halted, and this asks for one that is paused or halted, and does not go back"
    );
    assert_eq!(
        *world.rollouts.document(&world.key).unwrap(),
        before,
        "the pause stays, and nothing is stored"
    );
}

#[test]
fn a_resume_ends_a_pause_and_a_halt_at_once() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB), ("b", WEB)]);
    world.activate("a");
    world.command(RolloutCommand::Pause);
    world.fail("a");
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(world.command(RolloutCommand::Resume), RolloutAnswer::Command(Ok(())));
    let document = world.rollouts.document(&world.key).unwrap();
    assert!(document.paused.is_none() && document.halt.is_none());
    assert!(world.is_asked("b"));
    let refused = Err(CommandRefusal::OtherState {
        state: RolloutState::Converging,
        wanted: "is paused or halted, and does not go back",
    });
    assert_eq!(world.command(RolloutCommand::Resume), RolloutAnswer::Command(refused));
}
