//! ROL-1: a channel has one rollout at a time, and what waits to begin waits for what it is to wait for.

use std::time::Duration;

use ::model::Channel;
use ::model::status::Contact;
use rollout::{
    ApprovedGate, BeginWait, EventAnswer, RolloutCommand, RolloutEventBody, RolloutInput, RolloutKey,
    RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::OnFailure;

use crate::model::driven::{Driven, joining, node_id, release};
use crate::waiting_has_a_cause::{WEB, all_at_once, through};

/// A channel is not through for others while nodes of it wait for their boot.
#[test]
fn who_waits_for_its_boot_holds_the_channel_that_goes_after() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    world.say("a", RolloutEventBody::DispatchAck);
    world.say("a", RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() });
    assert_eq!(world.state(), RolloutState::Terminal);
    let late: Channel = "late".parse().unwrap();
    let terms = RolloutTerms { after: vec![world.key.channel.clone()], ..all_at_once() };
    assert_eq!(world.publish(release(&late, 41, terms, vec![joining("b", WEB, Some(40))])), Ok(()));
    world.contact("b", Contact::Online);
    assert!(world.why("b").ends_with("channel stable goes first, and its newest rollout is not through"));
    world.say("a", RolloutEventBody::ActivationComplete { release: 41, boot: "boot-1".to_owned() });
    world.pass("a");
    world.wait(60);
    assert_eq!(world.converged("a", 60), EventAnswer::Accepted);
    assert!(world.why("b").contains("was asked"), "{}", world.why("b"));
}

#[test]
fn one_rollout_of_a_channel_at_a_time_and_the_newest_waits() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let channel = world.key.channel.clone();
    for seq in [42, 43] {
        let new = release(&channel, seq, all_at_once(), vec![joining("a", WEB, Some(40))]);
        assert_eq!(world.publish(new), Ok(()));
    }
    let state = |world: &Driven, seq| {
        world.rollouts.document(&RolloutKey { channel: channel.clone(), seq }).map(|document| document.state)
    };
    assert_eq!(state(&world, 42), Some(RolloutState::Superseded));
    assert_eq!(state(&world, 43), Some(RolloutState::Opening));
    world.activate("a");
    world.fail("a");
    assert_eq!(state(&world, 43), Some(RolloutState::Opening), "it waited when the halt came");
    let approve = RolloutCommand::Approve(ApprovedGate::Newest);
    let rollout = RolloutKey { channel: channel.clone(), seq: 43 };
    world.give(RolloutInput::Command { rollout, by: "ada".to_owned(), command: approve });
    assert_eq!(state(&world, 43), Some(RolloutState::Converging));
    assert_eq!(state(&world, 41), Some(RolloutState::Superseded));
}

/// What waited when the halt came begins by itself neither before all is back nor after.
#[test]
fn what_waits_goes_on_waiting_when_the_one_before_is_back() {
    let mut world =
        Driven::new(RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() }, &[("a", WEB)]);
    let channel = world.key.channel.clone();
    let waits = RolloutKey { channel: channel.clone(), seq: 42 };
    assert_eq!(
        world.publish(release(&channel, 42, all_at_once(), vec![joining("a", WEB, Some(40))])),
        Ok(())
    );
    world.activate("a");
    world.fail("a");
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Reverted);
    assert_eq!(world.rollouts.waits_to_begin(&waits), Some(BeginWait::Halted(41)));
    assert!(!world.is_asked("a"));
    world.wait(1);
    let fix = release(&channel, 43, all_at_once(), vec![joining("a", WEB, Some(40))]);
    assert_eq!(world.publish(fix), Ok(()));
    let began = RolloutKey { channel, seq: 43 };
    assert_eq!(world.rollouts.document(&began).unwrap().state, RolloutState::Converging);
}

/// A clock that is set back leaves what was published before a halt before it.
#[test]
fn a_clock_set_back_lets_nothing_begin_that_waits_behind_a_halt() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let (channel, published) = (world.key.channel.clone(), world.now);
    let waits = RolloutKey { channel: channel.clone(), seq: 42 };
    let new = release(&channel, 42, all_at_once(), vec![joining("a", WEB, Some(40))]);
    assert_eq!(world.publish(new), Ok(()));
    world.activate("a");
    world.wait(1200);
    world.fail("a");
    world.wait(8 * 3600);
    world.now = published.plus(Duration::from_secs(600));
    world.give(RolloutInput::Tick);
    assert_eq!(world.rollouts.waits_to_begin(&waits), Some(BeginWait::Halted(41)));
}

#[test]
fn a_channel_goes_after_another() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let late: Channel = "late".parse().unwrap();
    let terms = RolloutTerms { after: vec![world.key.channel.clone()], ..all_at_once() };
    assert_eq!(world.publish(release(&late, 41, terms, vec![joining("b", WEB, Some(40))])), Ok(()));
    world.contact("b", Contact::Online);
    assert!(world.why("b").ends_with("channel stable goes first, and its newest rollout is not through"));
    through(&mut world, "a");
    assert!(world.why("b").contains("was asked"), "{}", world.why("b"));
}

/// Releases of one publish are known before any begins: whichever channel's name comes first.
#[test]
fn a_channel_goes_after_another_of_the_same_publish() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let stable = world.key.channel.clone();
    for name in ["edge", "zone"] {
        // The one before is through, and would let it go.
        through(&mut world, "a");
        let seq = world.key.seq + 1;
        let terms = RolloutTerms { after: vec![stable.clone()], ..all_at_once() };
        let newer = release(&stable, seq, all_at_once(), vec![joining("a", WEB, Some(seq - 1))]);
        let other = release(&name.parse().unwrap(), seq, terms, vec![joining(name, WEB, Some(40))]);
        (world.key, world.id) = (newer.key.clone(), newer.id.clone());
        let waits = other.key.clone();
        assert_eq!(world.publish_together(vec![other, newer]), Ok(()));
        world.contact(name, Contact::Online);
        assert_eq!(world.rollouts.waits_to_begin(&waits), Some(BeginWait::Channel(stable.clone())), "{name}");
        assert!(world.rollouts.member(&waits, &node_id(name)).unwrap().asked.is_none(), "{name}");
    }
}

/// A halt is no end: whoever goes after it waits until an operator lets it go on.
#[test]
fn a_channel_waits_for_one_that_was_halted() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB), ("b", WEB)]);
    let late: Channel = "late".parse().unwrap();
    let terms = RolloutTerms { after: vec![world.key.channel.clone()], ..all_at_once() };
    assert_eq!(world.publish(release(&late, 41, terms, vec![joining("c", WEB, Some(40))])), Ok(()));
    world.contact("c", Contact::Online);
    world.activate("a");
    world.fail("a");
    world.back("a");
    assert_eq!(world.state(), RolloutState::Failed);
    for _ in 0..2 {
        assert!(world.why("c").ends_with("channel stable goes first, and its newest rollout is not through"));
        world.wait(86_400);
    }
    world.command(RolloutCommand::Resume);
    through(&mut world, "b");
    assert!(world.why("c").contains("was asked"), "{}", world.why("c"));
}

/// One after the other, and nobody where they would wait for one another.
#[test]
fn channels_go_one_after_the_other_and_circles_hold_nobody() {
    let after = |channel: &str| RolloutTerms { after: vec![channel.parse().unwrap()], ..all_at_once() };
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    for (channel, before, node) in [("mid", "stable", "m"), ("late", "mid", "l")] {
        let nodes = vec![joining(node, WEB, Some(40))];
        assert_eq!(world.publish(release(&channel.parse().unwrap(), 41, after(before), nodes)), Ok(()));
        world.contact(node, Contact::Online);
        let waits = format!("channel {before} goes first, and its newest rollout is not through");
        assert!(world.why(node).ends_with(&waits), "{}", world.why(node));
    }
    // The next release of the first one would wait for the last.
    let stable = world.key.channel.clone();
    let nodes = vec![joining("a", WEB, Some(40))];
    assert_eq!(world.publish(release(&stable, 42, after("late"), nodes)), Ok(()));
    assert!(world.is_asked("a"), "what runs goes on");
    assert!(world.why("l").contains("was asked"), "{}", world.why("l"));
    assert!(world.why("m").ends_with("channel stable goes first, and its newest rollout is not through"));
}
