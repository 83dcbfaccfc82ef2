//! ROL-1: the first release of a channel goes through its waves, and has nothing to go back to.

use ::model::Channel;
use ::model::rollout::RolloutTask;
use ::model::status::Contact;
use rollout::{
    CommandRefusal, EventAnswer, NodeRolloutState, RolloutAnswer, RolloutCommand, RolloutEventBody,
    RolloutInput, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::OnFailure;

use crate::model::driven::{Driven, joining, node_id, release};
use crate::waiting_has_a_cause::{DB, WEB, all_at_once, canary_first, confirm};

/// A channel's first release halts and goes nowhere back, whatever its terms say: its nodes had none before.
#[test]
fn a_first_release_is_halted_and_nobody_can_take_it_back() {
    let mut world = Driven::new(all_at_once(), &[]);
    let terms = RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() };
    let nodes = vec![joining("a", WEB, None), joining("b", WEB, None)];
    let first = release(&"new".parse().unwrap(), 42, terms, nodes);
    (world.key, world.id) = (first.key.clone(), first.id.clone());
    assert_eq!(world.publish(first), Ok(()));
    for name in ["a", "b"] {
        world.contact(name, Contact::Online);
        world.activate(name);
    }
    let refused = RolloutAnswer::Command(Err(CommandRefusal::NoEarlierRelease));
    assert_eq!(world.command(RolloutCommand::Rollback), refused);
    world.fail("a");
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    confirm(&mut world, "b");
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(world.command(RolloutCommand::Rollback), refused);
    assert_eq!(world.command(RolloutCommand::Resume), RolloutAnswer::Command(Ok(())));
}

/// Nobody sends back a host that had no release, so the rollout is not back while one is on its way.
#[test]
fn a_rollout_is_back_when_nobody_is_on_its_way() {
    let terms = RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() };
    let mut world = Driven::new(terms, &[("before", &[])]);
    let channel = world.key.channel.clone();
    for name in ["a", "b"] {
        world.give(RolloutInput::Joined { channel: channel.clone(), node: joining(name, WEB, None) });
        world.contact(name, Contact::Online);
        world.activate(name);
    }
    world.fail("a");
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Failed, "the other one soaks");
    confirm(&mut world, "b");
    assert_eq!(world.state(), RolloutState::Reverted);
    assert_eq!(world.member("b").state, NodeRolloutState::Converged, "it has nothing to go back to");
}

/// The first release of a channel goes through its waves: one that fails there halts it, and nobody else gets it. The host goes
/// back to how it was found.
#[test]
fn a_first_release_goes_wave_by_wave() {
    let mut world = Driven::new(all_at_once(), &[]);
    let channel: Channel = "new".parse().unwrap();
    let nodes = vec![joining("db", DB, None), joining("web", WEB, None)];
    let first = release(&channel, 42, canary_first(), nodes);
    (world.key, world.id) = (first.key.clone(), first.id.clone());
    assert_eq!(world.publish(first), Ok(()));
    for name in ["db", "web"] {
        world.contact(name, Contact::Online);
    }
    assert!(world.is_asked("db") && !world.is_asked("web"));
    assert_eq!(world.state(), RolloutState::Active, "nobody is confirmed");
    world.activate("db");
    world.fail("db");
    assert_eq!(world.state(), RolloutState::Failed);
    assert!(world.member("db").in_flight(), "until it is back");
    let back = RolloutEventBody::RollbackComplete { release: 0 };
    assert_eq!(world.say("db", back), EventAnswer::Accepted);
    assert!(!world.member("db").in_flight() && world.member("db").state == NodeRolloutState::Reverted);
    for name in ["db", "web"] {
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (None, RolloutTask::Hold), "{name}");
    }
    world.give(RolloutInput::Joined { channel, node: joining("late", DB, None) });
    world.contact("late", Contact::Online);
    assert!(!world.is_asked("late"), "behind a halt who comes gets nothing");
}

/// A node that had no release waits for its wave as any other, and is pointed to nothing until then.
#[test]
fn who_joins_is_in_its_wave_whether_it_had_a_release_or_none() {
    let mut world = Driven::new(canary_first(), &[("db", DB)]);
    let channel = world.key.channel.clone();
    for (name, before) in [("late", Some(40)), ("new", None)] {
        world.give(RolloutInput::Joined { channel: channel.clone(), node: joining(name, WEB, before) });
        world.contact(name, Contact::Online);
    }
    for (name, before) in [("late", Some(40)), ("new", None)] {
        assert!(world.why(name).contains("its wave is closed"), "{}", world.why(name));
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (before, RolloutTask::Hold), "{name}");
    }
    world.activate("db");
    world.give(RolloutInput::Removed { channel, node: node_id("db") });
    assert!(world.is_asked("late") && world.is_asked("new"), "who is removed in mid-wave holds nobody");
    assert!(world.why("db").is_empty());
}
