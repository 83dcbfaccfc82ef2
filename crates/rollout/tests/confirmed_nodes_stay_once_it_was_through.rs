//! ROL-1, ROL-7: a node keeps its generation of before until its rollout was through, and then gives it up: nobody who is
//! confirmed is sent back any more. What is on its way still goes back, and its slots become free.

use std::sync::Arc;

use ::model::Channel;
use ::model::rollout::RolloutTask;
use ::model::share::Share;
use ::model::status::Contact;
use rollout::{
    BudgetVersions, CommandRefusal, EventAnswer, MemberGoal, NodeRolloutState, RolloutAnswer, RolloutCommand,
    RolloutDocument, RolloutEventBody, RolloutInput, RolloutState, Rollouts, StoredRollout,
};
use trust::RolloutTerms;
use trust::rollout_terms::{OnFailure, WaveMembers};

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{budget, wave};

const WEB: Labels<'static> = &[("tier", "web")];
/// Nodes that are away while the others are confirmed.
const LATE: [&str; 4] = ["fails", "soaks", "boots", "begins"];

/// As many at once as there are late ones; one failure halts it, and it goes back.
fn terms() -> RolloutTerms {
    RolloutTerms {
        waves: vec![wave("rest", WaveMembers::Rest, 60, 100)],
        budgets: vec![budget("*", Some(Share::Count(4)), None)],
        on_failure: OnFailure::Rollback,
        ..RolloutTerms::default()
    }
}

fn confirm(world: &mut Driven, name: &str) {
    world.activate(name);
    world.pass(name);
    world.wait(60);
    assert_eq!(world.converged(name, 60), EventAnswer::Accepted);
}

/// It is through with `a` and `b`; the late ones are back, and asked.
fn through() -> Driven {
    let mut world = Driven::new(terms(), &[("a", WEB), ("b", WEB)]);
    for name in LATE {
        let node = joining(name, WEB, Some(40));
        world.give(RolloutInput::Joined { channel: world.key.channel.clone(), node });
        world.contact(name, Contact::Offline);
    }
    confirm(&mut world, "a");
    confirm(&mut world, "b");
    assert_eq!(world.state(), RolloutState::Terminal);
    for name in LATE {
        world.contact(name, Contact::Online);
        assert!(world.is_asked(name), "{}", world.why(name));
    }
    world
}

/// One of the late ones fails, while the others are on their way.
fn halted() -> Driven {
    let mut world = through();
    world.activate("fails");
    world.activate("soaks");
    for name in ["boots", "begins"] {
        assert_eq!(world.say(name, RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    }
    let component = "kernel".to_owned();
    assert_eq!(world.say("boots", RolloutEventBody::ActivationDeferred { component }), EventAnswer::Accepted);
    world.fail("fails");
    assert_eq!(world.state(), RolloutState::Failed);
    world
}

fn assert_confirmed(world: &Driven) {
    for name in ["a", "b"] {
        let member = world.member(name);
        assert_eq!((member.state, member.goal), (NodeRolloutState::Converged, MemberGoal::Target), "{name}");
        assert!(!world.is_asked(name), "{name} gave up its way back");
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (Some(41), RolloutTask::Proceed), "{name}");
        assert!(pointer.dispatch.is_through(), "{name}");
        assert!(world.why(name).contains("is confirmed on"), "{}", world.why(name));
    }
}

/// The control plane starts anew, with what it had stored.
fn restart(world: &mut Driven) {
    let stored = serde_json::to_string(world.rollouts.document(&world.key).unwrap()).unwrap();
    let document: RolloutDocument = serde_json::from_str(&stored).unwrap();
    let members: Vec<_> = world.rollouts.members(&world.key).cloned().collect();
    let names: Vec<String> = members.iter().map(|member| member.hostname.to_string()).collect();
    world.rollouts = Rollouts::new();
    let stored = StoredRollout { document, terms: Arc::new(terms()), members };
    world.rollouts.reload(vec![stored], &[], BudgetVersions::default());
    for name in names {
        world.contact(&name, Contact::Online);
    }
}

#[test]
fn a_late_failure_sends_back_only_what_is_on_its_way() {
    let mut world = halted();
    assert_confirmed(&world);
    for name in LATE {
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (Some(40), RolloutTask::GoBack), "{name}");
        assert!(!pointer.dispatch.is_through(), "{name} is to keep its way back");
    }
    for name in LATE {
        assert_eq!(world.state(), RolloutState::Failed, "{name} is not back");
        assert_eq!(world.back(name), EventAnswer::Accepted);
    }
    assert_eq!(world.state(), RolloutState::Reverted);
    world.wait(3600);
    assert_confirmed(&world);

    // Every slot is free, and who waits for the budget elsewhere is asked.
    let other: Channel = "other".parse().unwrap();
    let names = ["w", "x", "y", "z"];
    let nodes = names.iter().map(|name| joining(name, WEB, Some(40))).collect();
    assert_eq!(world.publish(release(&other, 41, terms(), nodes)), Ok(()));
    for name in names {
        world.contact(name, Contact::Online);
        assert!(world.why(name).contains("was asked"), "{}", world.why(name));
    }
}

#[test]
fn a_rollback_is_refused_once_it_was_through() {
    let back = |world: &mut Driven| {
        for name in LATE {
            assert_eq!(world.back(name), EventAnswer::Accepted);
        }
        assert_eq!(world.state(), RolloutState::Reverted);
    };
    let mut reverted = halted();
    back(&mut reverted);
    for mut world in [through(), halted(), reverted] {
        let before = world.rollouts.document(&world.key).unwrap().clone();
        let members: Vec<_> = world.rollouts.members(&world.key).cloned().collect();
        let (rollout, by) = (world.key.clone(), "ada".to_owned());
        let order = RolloutInput::Command { rollout, by, command: RolloutCommand::Rollback };
        let step = world.rollouts.handle(order, world.now);
        assert_eq!(step.answer, RolloutAnswer::Command(Err(CommandRefusal::Through)), "{}", before.state);
        assert_eq!((step.commit, step.effects), (None, Vec::new()), "{}", before.state);
        assert_eq!(*world.rollouts.document(&world.key).unwrap(), before);
        assert!(world.rollouts.members(&world.key).eq(&members));
    }
    assert_eq!(
        CommandRefusal::Through.to_string(),
        "the rollout was through, and its nodes gave up the release of before; publish that once more: `muster release \
         rollback NUMBER`"
    );
}

/// That it was through is stored: an abort after a restart sends back nobody else.
#[test]
fn a_restart_does_not_forget_that_it_was_through() {
    let mut world = through();
    let stored = serde_json::to_value(world.rollouts.document(&world.key).unwrap()).unwrap();
    assert_eq!(stored.get("wasThrough"), None, "the state says so, also in what an earlier version stored");
    restart(&mut world);
    world.activate("fails");
    world.fail("fails");
    assert_confirmed(&world);
    restart(&mut world);
    assert_confirmed(&world);
    assert_eq!(world.command(RolloutCommand::Abort), RolloutAnswer::Command(Ok(())));
    assert_confirmed(&world);
    assert_eq!(world.command(RolloutCommand::Rollback), RolloutAnswer::Command(Err(CommandRefusal::Through)));
}

/// Until then the way back is kept, and asked for.
#[test]
fn a_rollback_before_it_was_through_sends_back_who_is_confirmed() {
    let mut world = Driven::new(terms(), &[("a", WEB), ("b", WEB)]);
    confirm(&mut world, "a");
    assert!(!world.rollouts.pointer(&node_id("a")).unwrap().dispatch.is_through());
    assert_eq!(world.command(RolloutCommand::Rollback), RolloutAnswer::Command(Ok(())));
    assert!(world.is_asked("a"));
    let pointer = world.rollouts.pointer(&node_id("a")).unwrap();
    assert_eq!((pointer.release, pointer.dispatch.is_through()), (Some(40), false));
    assert_eq!(world.member("b").goal, MemberGoal::Target, "it did not begin");
}

#[test]
fn who_is_on_its_way_is_told_of_the_end_once_it_is_confirmed() {
    let mut world = through();
    let ended = |world: &Driven| world.rollouts.pointer(&node_id("soaks")).unwrap().dispatch.is_through();
    world.activate("soaks");
    world.pass("soaks");
    world.wait(60);
    assert!(!ended(&world), "it may be sent back still");
    assert_eq!(world.converged("soaks", 60), EventAnswer::Accepted);
    assert!(ended(&world));
    world.activate("fails");
    world.fail("fails");
    assert!(ended(&world) && !world.is_asked("soaks"), "and it never is");
}

/// Whoever was not reached between the end of one rollout and the beginning of the next hears of that end in the next one:
/// while it waits there, and where it was taken out of it.
#[test]
fn the_next_rollout_tells_who_is_confirmed_in_the_one_before() {
    let through =
        |world: &Driven, name: &str| world.rollouts.pointer(&node_id(name)).unwrap().dispatch.through;
    let terms =
        RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 60, 100)], ..RolloutTerms::default() };
    let mut world = Driven::new(terms.clone(), &[("a", WEB), ("b", WEB), ("c", WEB)]);
    let first = world.id.clone();
    confirm(&mut world, "a");
    confirm(&mut world, "b");
    world.contact("c", Contact::Offline);
    world.wait(60);
    assert_eq!(world.state(), RolloutState::Terminal);

    let nodes = vec![joining("a", WEB, Some(41)), joining("b", WEB, Some(41)), joining("c", WEB, Some(40))];
    let next = release(&world.key.channel, 42, terms, nodes);
    (world.key, world.id) = (next.key.clone(), next.id.clone());
    assert_eq!(world.publish(next), Ok(()));
    assert_eq!(world.command(RolloutCommand::Skip(node_id("b"))), RolloutAnswer::Command(Ok(())));
    for name in ["a", "b"] {
        assert_eq!(through(&world, name).as_ref(), Some(&first), "{name}");
    }
    assert_eq!(through(&world, "c"), None, "it is confirmed in none");

    // Confirmed in the next one, it has its way back in that one, whose end comes later.
    world.contact("c", Contact::Online);
    confirm(&mut world, "a");
    assert_eq!(through(&world, "a"), None);
    confirm(&mut world, "c");
    assert_eq!(world.state(), RolloutState::Terminal);
    assert_eq!(through(&world, "a").as_ref(), Some(&world.id));
    assert_eq!(through(&world, "b").as_ref(), Some(&first), "taken out, it stays on what it has, for good");
}

/// A rollout that was halted before it was through ends for nobody as the next one begins.
#[test]
fn a_halted_rollout_was_not_through() {
    let mut world = Driven::new(terms(), &[("a", WEB), ("b", WEB)]);
    confirm(&mut world, "a");
    assert_eq!(world.command(RolloutCommand::Abort), RolloutAnswer::Command(Ok(())));
    let nodes = vec![joining("a", WEB, Some(41)), joining("b", WEB, Some(40))];
    let next = release(&world.key.channel, 42, terms(), nodes);
    let id = next.id.clone();
    assert_eq!(world.publish(next), Ok(()));
    let dispatch = world.rollouts.pointer(&node_id("a")).unwrap().dispatch;
    assert_eq!((dispatch.rollout, dispatch.through), (id, None));
}
