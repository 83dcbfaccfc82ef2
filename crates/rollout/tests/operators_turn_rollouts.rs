//! ROL-1: what operators say takes effect or is refused in the words that `show` uses, and what is refused changes
//! nothing.

use ::model::rollout::RolloutTask;
use ::model::status::Contact;
use rollout::{
    ApprovedGate, BeginWait, CommandRefusal, EventAnswer, RolloutAnswer, RolloutCommand, RolloutEffect,
    RolloutInput, RolloutKey, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::{OnFailure, WaveMembers};

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{selector, wave};

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
        "the rollout cannot be resumed (ada aborted it): what it brings comes with a newer release"
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
    let refused =
        Err(CommandRefusal::OtherState { state: RolloutState::Converging, wanted: "is paused or halted" });
    assert_eq!(world.command(RolloutCommand::Resume), RolloutAnswer::Command(refused));
}

/// `a` goes before `b`.
fn one_by_one() -> RolloutTerms {
    let first = WaveMembers::Where(selector("a"));
    let waves = vec![wave("first", first, 60, 100), wave("rest", WaveMembers::Rest, 60, 100)];
    RolloutTerms { waves, on_failure: OnFailure::Rollback, ..RolloutTerms::default() }
}

fn notes(world: &Driven) -> Vec<String> {
    let note = |effect: &RolloutEffect| match effect {
        RolloutEffect::Note { note, .. } => Some(note.to_string()),
        RolloutEffect::Wake(_) => None,
    };
    world.effects.iter().filter_map(note).collect()
}

#[test]
fn an_approval_opens_the_next_wave_and_is_kept_once() {
    let mut world = Driven::new(one_by_one(), &[("a", WEB), ("b", WEB)]);
    world.activate("a");
    world.command(RolloutCommand::Pause);
    let approved = |world: &mut Driven| {
        assert_eq!(
            world.command(RolloutCommand::Approve(ApprovedGate::Newest)),
            RolloutAnswer::Command(Ok(()))
        );
        let document = world.rollouts.document(&world.key).unwrap();
        document.approvals.iter().map(|approval| approval.wave).collect::<Vec<_>>()
    };
    assert_eq!((approved(&mut world), approved(&mut world)), (vec![Some(0)], vec![Some(0)]));
    assert!(!world.is_asked("b"), "it is paused");
    world.command(RolloutCommand::Resume);
    let opened = "wave rest opened: ada passed the gate of the wave before";
    assert_eq!(notes(&world), ["ada: resume", opened, "b is asked to be on release 41"]);
    assert_eq!(approved(&mut world), [Some(0), Some(1)]);
    assert_eq!(world.state(), RolloutState::Terminal, "there is none after it");
}

/// ROL-1: who repeats an approval, or comes late with it, opens no wave that he did not mean.
#[test]
fn an_approval_of_a_wave_opens_no_other_one() {
    let mut world = Driven::new(one_by_one(), &[("a", WEB), ("b", WEB)]);
    world.activate("a");
    let first = world.rollouts.rules(&world.key).unwrap().wave_name(0).to_owned();
    let approve = || RolloutCommand::Approve(ApprovedGate::Of(first.clone()));
    assert_eq!(world.command(approve()), RolloutAnswer::Command(Ok(())));
    assert!(world.is_asked("b"));
    let newest = Some(world.rollouts.rules(&world.key).unwrap().wave_name(1).to_owned());
    let refused = CommandRefusal::OtherWave { asked: first.clone(), newest };
    assert_eq!(world.command(approve()), RolloutAnswer::Command(Err(refused)));
    assert_eq!(world.state(), RolloutState::Converging, "the last gate is still to pass");
}

#[test]
fn a_second_pause_is_the_first_one_still() {
    let mut world = Driven::new(one_by_one(), &[("a", WEB), ("b", WEB)]);
    world.command(RolloutCommand::Pause);
    let at = world.now;
    world.wait(60);
    assert_eq!(world.command(RolloutCommand::Pause), RolloutAnswer::Command(Ok(())));
    let paused = world.rollouts.document(&world.key).unwrap().paused.clone();
    assert_eq!(paused.map(|paused| paused.at), Some(at));
}

#[test]
fn a_gate_that_passed_is_not_said_to_be_approved() {
    let mut world = Driven::new(one_by_one(), &[("a", WEB), ("b", WEB)]);
    world.activate("a");
    world.pass("a");
    world.command(RolloutCommand::Pause);
    world.wait(60);
    assert_eq!(world.converged("a", 60), EventAnswer::Accepted);
    world.command(RolloutCommand::Approve(ApprovedGate::Newest));
    world.command(RolloutCommand::Resume);
    let opened = "wave rest opened: of the wave before 1 are confirmed, 0 failed, 0 are";
    assert!(notes(&world).iter().any(|note| note.starts_with(opened)), "{:?}", notes(&world));
}

#[test]
fn who_is_taken_out_holds_up_nobody() {
    let mut world = Driven::new(one_by_one(), &[("a", WEB), ("b", WEB)]);
    assert_eq!(world.command(RolloutCommand::Skip(node_id("a"))), RolloutAnswer::Command(Ok(())));
    assert!(!world.is_asked("a") && world.is_asked("b"));
    assert!(world.why("a").ends_with("ada took it out of the rollout"), "{}", world.why("a"));
    let unknown = CommandRefusal::UnknownNode(node_id("z"));
    assert_eq!(world.command(RolloutCommand::Skip(node_id("z"))), RolloutAnswer::Command(Err(unknown)));
}

#[test]
fn one_that_waits_is_aborted_and_never_begins() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let channel = world.key.channel.clone();
    let new = release(&channel, 42, all_at_once(), vec![joining("a", WEB, Some(40))]);
    assert_eq!(world.publish(new), Ok(()));
    let rollout = RolloutKey { channel, seq: 42 };
    let order = |command| RolloutInput::Command { rollout: rollout.clone(), by: "ada".to_owned(), command };
    let wrong = CommandRefusal::OtherState { state: RolloutState::Opening, wanted: "began" };
    assert_eq!(world.give(order(RolloutCommand::Rollback)), RolloutAnswer::Command(Err(wrong)));
    assert_eq!(world.give(order(RolloutCommand::Abort)), RolloutAnswer::Command(Ok(())));
    let document = world.rollouts.document(&rollout).unwrap();
    assert_eq!((document.state, document.is_proven()), (RolloutState::Superseded, false));
    let halt = document.halt.as_ref().unwrap();
    assert_eq!((halt.cause.to_string().as_str(), halt.at), ("ada aborted it", world.now));
    assert_eq!(world.rollouts.members(&rollout).count(), 0);
    assert!(world.is_asked("a"), "the one that runs goes on");
    assert!(world.rollouts.rules(&rollout).is_some());
}

/// The release before went to all at once, and another channel goes first: nothing but this rollout says where nodes stay.
#[test]
fn one_that_waits_alone_is_aborted_and_its_nodes_stay() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let (first, channel) = (world.key.clone(), "edge".parse::<::model::Channel>().unwrap());
    let terms = RolloutTerms { after: vec![first.channel.clone()], ..all_at_once() };
    let new = release(&channel, 43, terms.clone(), vec![joining("e", WEB, Some(42))]);
    (world.key, world.id) = (new.key.clone(), new.id.clone());
    assert_eq!(world.publish(new), Ok(()));
    assert_eq!(world.state(), RolloutState::Opening);
    assert_eq!(world.command(RolloutCommand::Abort), RolloutAnswer::Command(Ok(())));
    assert_eq!(world.state(), RolloutState::Failed);
    world.give(RolloutInput::Joined { channel: channel.clone(), node: joining("f", WEB, Some(42)) });
    for name in ["e", "f"] {
        world.contact(name, Contact::Online);
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (Some(42), RolloutTask::Hold), "{name}");
        assert!(world.why(name).ends_with("the rollout starts nothing any more: ada aborted it"));
    }
    assert!(!world.rollouts.document(&world.key).unwrap().is_proven());

    // The next release waits for the other channel alone, and begins.
    let new = release(&channel, 44, terms, vec![joining("e", WEB, Some(42))]);
    let next = new.key.clone();
    assert_eq!(world.publish(new), Ok(()));
    assert_eq!(world.rollouts.waits_to_begin(&next), Some(BeginWait::Channel(first.channel.clone())));
    world.give(RolloutInput::AtOnce { head: RolloutKey { seq: 50, ..first } });
    assert_eq!(world.state(), RolloutState::Superseded);
    assert!(world.rollouts.member(&next, &node_id("e")).unwrap().asked.is_some(), "{}", world.why("e"));
}

/// An approval ahead of a halt would lift it: what waits for something else is refused, and begins after no halt by itself.
#[test]
fn an_approval_is_refused_where_nothing_waits_for_one() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let (first, late) = (world.key.clone(), "late".parse::<::model::Channel>().unwrap());
    let terms = RolloutTerms { after: vec![first.channel.clone()], ..all_at_once() };
    let next = |channel: &::model::Channel, seq, terms| {
        release(
            channel,
            seq,
            terms,
            vec![joining(if channel.as_str() == "late" { "b" } else { "a" }, WEB, Some(40))],
        )
    };
    assert_eq!(world.publish(next(&late, 41, terms)), Ok(()));
    assert_eq!(world.publish(next(&first.channel, 42, all_at_once())), Ok(()));
    let key = |channel: &::model::Channel, seq| RolloutKey { channel: channel.clone(), seq };
    let approve = |world: &mut Driven, rollout| {
        let (by, command) = ("ada".to_owned(), RolloutCommand::Approve(ApprovedGate::Newest));
        world.give(RolloutInput::Command { rollout, by, command })
    };
    for (rollout, wait, words) in [
        (
            key(&late, 41),
            BeginWait::Channel(first.channel.clone()),
            "channel stable goes first, and its newest rollout is not through",
        ),
        (
            key(&first.channel, 42),
            BeginWait::Running(41),
            "the rollout of release 41 runs, and this one is next",
        ),
    ] {
        let before = world.rollouts.document(&rollout).unwrap().clone();
        let refused = CommandRefusal::NotLifted(wait);
        assert_eq!(refused.to_string(), format!("an approval does not let the rollout begin: {words}"));
        assert_eq!(approve(&mut world, rollout.clone()), RolloutAnswer::Command(Err(refused)));
        assert_eq!(*world.rollouts.document(&rollout).unwrap(), before, "nothing is stored");
    }
    // The halt that comes keeps the next one waiting, until somebody who knows of it approves.
    world.activate("a");
    world.fail("a");
    assert_eq!(world.rollouts.waits_to_begin(&key(&first.channel, 42)), Some(BeginWait::Halted(41)));
    assert_eq!(approve(&mut world, key(&first.channel, 42)), RolloutAnswer::Command(Ok(())));
    assert!(world.rollouts.document(&key(&first.channel, 42)).unwrap().state.is_running());
}

/// A rollout that was aborted keeps what began; called back later, that goes back, but for who is offline.
#[test]
fn one_that_was_aborted_is_called_back() {
    let mut world = Driven::new(one_by_one(), &[("a", WEB), ("b", WEB)]);
    world.activate("a");
    world.pass("a");
    world.wait(60);
    assert_eq!(world.converged("a", 60), EventAnswer::Accepted);
    world.activate("b");
    assert_eq!(world.command(RolloutCommand::Abort), RolloutAnswer::Command(Ok(())));
    world.contact("a", Contact::Offline);
    assert!(!world.is_asked("a"));
    assert_eq!(world.command(RolloutCommand::Rollback), RolloutAnswer::Command(Ok(())));
    assert_eq!(world.state(), RolloutState::Failed);
    let task = |world: &Driven| world.rollouts.pointer(&node_id("b")).unwrap().dispatch.task;
    assert_eq!(task(&world), RolloutTask::GoBack);
    assert_eq!(world.back("b"), EventAnswer::Accepted);
    assert_eq!((task(&world), world.state()), (RolloutTask::Hold, RolloutState::Reverted));
    world.contact("a", Contact::Online);
    assert!(world.is_asked("a"), "it is asked once it is there");
}

/// Nobody is taken out of what is over: it would seem to have had an effect. Who is on its way in it holds a slot, and is.
#[test]
fn nobody_is_taken_out_of_what_is_over() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB), ("b", WEB)]);
    let before = world.key.clone();
    world.activate("a");
    assert_eq!(world.command(RolloutCommand::Abort), RolloutAnswer::Command(Ok(())));
    let nodes = vec![joining("a", WEB, Some(40)), joining("b", WEB, Some(40))];
    assert_eq!(world.publish(release(&before.channel, 42, all_at_once(), nodes)), Ok(()));
    assert_eq!(world.state(), RolloutState::Superseded);
    let said = refusal(world.command(RolloutCommand::Skip(node_id("b"))));
    assert_eq!(
        said,
        "the rollout is superseded, and b is not on its way in it: nothing is left that it could be taken out of"
    );
    assert_eq!(world.command(RolloutCommand::Skip(node_id("a"))), RolloutAnswer::Command(Ok(())));
}
