//! ROL-1, ROL-5: a node that is on its way in a rollout is pointed by that one until a newer one asks it, counts in the newer one
//! from its beginning there on, and takes along what it was confirmed on meanwhile.

use ::model::status::Contact;
use rollout::{
    EventAnswer, EventRefusal, JoiningNode, NodeRolloutState, RolloutCommand, RolloutEvent, RolloutEventBody,
    RolloutInput, RolloutKey, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::model::driven::{Driven, joining, node_id, release};
use crate::model::terms::{selector, wave};

/// The node `first` goes before all others.
fn terms() -> RolloutTerms {
    let first = WaveMembers::Where(selector("first"));
    let waves = vec![wave("first", first, 0, 100), wave("rest", WaveMembers::Rest, 0, 100)];
    RolloutTerms { waves, ..RolloutTerms::default() }
}

fn all_at_once() -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 0, 100)], ..RolloutTerms::default() }
}

fn key(world: &Driven, seq: u64) -> RolloutKey {
    RolloutKey { channel: world.key.channel.clone(), seq }
}

fn publish(world: &mut Driven, seq: u64, terms: RolloutTerms, nodes: Vec<JoiningNode>) {
    let channel = world.key.channel.clone();
    assert_eq!(world.publish(release(&channel, seq, terms, nodes)), Ok(()));
}

/// An event of `a` in the rollout of another release.
fn say_in(world: &mut Driven, rollout: u64, seq: u64, body: RolloutEventBody) -> EventAnswer {
    let id = world.rollouts.document(&key(world, rollout)).unwrap().id.clone();
    let event = RolloutEvent { rollout: id, ..world.event("a", "log1", seq, body) };
    world.send(event)
}

/// `a` soaks in rollout 41, which was aborted.
fn soaking() -> Driven {
    let mut world = Driven::new(all_at_once(), &[("a", &[])]);
    world.activate("a");
    world.pass("a");
    assert_eq!(world.command(RolloutCommand::Abort), rollout::RolloutAnswer::Command(Ok(())));
    world
}

fn pointed(world: &Driven) -> (u64, Option<u64>) {
    let pointer = world.rollouts.pointer(&node_id("a")).unwrap();
    (pointer.rollout.seq, pointer.release)
}

#[test]
fn the_one_that_it_is_in_points_it_until_another_asks() {
    let mut world = soaking();
    let nodes = vec![joining("first", &[], Some(40)), joining("a", &[], Some(40))];
    publish(&mut world, 42, terms(), nodes);
    world.contact("first", Contact::Online);
    assert_eq!(pointed(&world), (41, Some(41)), "its wave is closed");
    assert_eq!(world.rollouts.document(&key(&world, 41)).unwrap().state, RolloutState::Superseded);
    world.contact("first", Contact::Offline);
    let asked = || RolloutInput::Command {
        rollout: RolloutKey { channel: "stable".parse().unwrap(), seq: 42 },
        by: "ada".to_owned(),
        command: RolloutCommand::Skip(node_id("first")),
    };
    world.give(asked());
    assert_eq!(pointed(&world), (42, Some(42)), "it is asked");
    assert!(world.member("a").in_flight(), "and counts where it is on its way");
    assert!(!world.member("a").passed_on);
    assert_eq!(say_in(&mut world, 42, 1, RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    assert!(world.member("a").in_flight() && !world.member("a").passed_on, "it did not begin there yet");
    assert_eq!(say_in(&mut world, 42, 2, RolloutEventBody::ActivationStarted), EventAnswer::Accepted);
    assert!(world.member("a").passed_on && !world.member("a").in_flight(), "it counts in the newer one");
    let newer = world.rollouts.member(&key(&world, 42), &node_id("a")).unwrap();
    assert!(newer.in_flight() && newer.state == NodeRolloutState::Activating);
}

#[test]
fn a_refusal_leaves_it_where_it_is() {
    let mut world = soaking();
    publish(&mut world, 42, all_at_once(), vec![joining("a", &[], Some(40))]);
    assert_eq!(pointed(&world), (42, Some(42)));
    let code = "not-before".to_owned();
    assert_eq!(say_in(&mut world, 42, 1, RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
    assert_eq!((pointed(&world), world.member("a").passed_on), ((41, Some(41)), false));
    // So does one that follows its acknowledgement.
    world.wait(60);
    assert_eq!(say_in(&mut world, 42, 2, RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    assert_eq!(pointed(&world), (42, Some(42)));
    let code = "paused".to_owned();
    assert_eq!(say_in(&mut world, 42, 3, RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
    assert_eq!((pointed(&world), world.member("a").in_flight()), ((41, Some(41)), true));
    // An acknowledgement of what it is not asked for any more.
    let answer = say_in(&mut world, 42, 4, RolloutEventBody::DispatchAck);
    assert_eq!(answer, EventAnswer::Refused(EventRefusal::NotAsked));
    assert_eq!((pointed(&world), world.member("a").passed_on), ((41, Some(41)), false));
}

/// Its slots are held for the earlier rollout: that is a ground of asking it, so that the decision holds only with it.
#[test]
fn asking_it_rests_on_the_one_that_it_is_in() {
    let mut world = soaking();
    world.contact("a", Contact::Offline);
    publish(&mut world, 42, all_at_once(), vec![joining("a", &[], Some(40))]);
    let (contact, next_call) = (Contact::Online, rollout::NextCall::Soon);
    let input = RolloutInput::Contact { node: node_id("a"), contact, next_call };
    let commit = world.rollouts.handle(input, world.now).commit.unwrap();
    let changed: Vec<(u64, usize)> =
        commit.rollouts.iter().map(|change| (change.document.key.seq, change.members.len())).collect();
    assert_eq!(changed, [(41, 0), (42, 1)]);
}

#[test]
fn what_it_is_confirmed_on_meanwhile_is_what_it_has() {
    let mut world = soaking();
    let nodes = vec![joining("first", &[], Some(40)), joining("a", &[], Some(40))];
    publish(&mut world, 42, terms(), nodes);
    let before = |world: &Driven| world.rollouts.member(&key(world, 42), &node_id("a")).unwrap().before;
    assert_eq!(before(&world), Some(40));
    assert_eq!(world.converged("a", 0), EventAnswer::Accepted);
    assert_eq!((before(&world), pointed(&world)), (Some(41), (42, Some(41))));
}

#[test]
fn what_it_was_confirmed_on_before_is_what_it_has() {
    let mut world = Driven::new(all_at_once(), &[("a", &[])]);
    world.activate("a");
    world.pass("a");
    assert_eq!(world.converged("a", 0), EventAnswer::Accepted);
    publish(&mut world, 42, all_at_once(), vec![joining("a", &[], Some(40))]);
    assert_eq!(world.rollouts.member(&key(&world, 42), &node_id("a")).unwrap().before, Some(41));
}

/// A node that had nothing is on its way as any other: a newer rollout waits for it, and leads from what it was confirmed on.
#[test]
fn who_had_nothing_is_on_its_way_too() {
    let mut world = Driven::new(all_at_once(), &[]);
    publish(&mut world, 42, all_at_once(), vec![joining("a", &[], None)]);
    let first = world.rollouts.document(&key(&world, 42)).unwrap().clone();
    (world.key, world.id) = (first.key, first.id);
    world.contact("a", Contact::Online);
    world.activate("a");
    world.pass("a");
    publish(&mut world, 43, all_at_once(), vec![joining("a", &[], None)]);
    let newer = |world: &Driven| world.rollouts.member(&key(world, 43), &node_id("a")).unwrap().clone();
    assert_eq!((newer(&world).asked, newer(&world).before), (None, None));
    assert_eq!(world.converged("a", 0), EventAnswer::Accepted);
    assert_eq!((newer(&world).asked.is_some(), newer(&world).before), (true, Some(42)));
}

/// Who publishes decides over the newest rollout of the channel; of the first one, over that there is none.
#[test]
fn a_release_rests_on_what_the_channel_had() {
    let mut world = Driven::new(all_at_once(), &[("a", &[])]);
    let publish = |world: &mut Driven, channel: &str, seq| {
        let new = release(&channel.parse().unwrap(), seq, all_at_once(), Vec::new());
        world.rollouts.handle(RolloutInput::Published(vec![new]), world.now).commit.unwrap()
    };
    let commit = publish(&mut world, "stable", 42);
    let changed: Vec<(u64, u64, u64)> = commit
        .rollouts
        .iter()
        .map(|change| (change.document.key.seq, change.expected, change.document.version))
        .collect();
    let known = world.rollouts.document(&world.key).unwrap().version;
    assert_eq!(changed, [(41, known - 1, known), (42, 0, 1)]);
    assert!(commit.budgets.is_empty());
    let commit = publish(&mut world, "other", 1);
    let guard = commit.budgets.first().unwrap();
    assert_eq!(guard.budget, "first rollout of channel other");
    assert_eq!((guard.expected, guard.next), (0, 1));
}

/// After a decision was lost the nodes are woken that are pointed otherwise than was known here.
#[test]
fn what_is_loaded_wakes_those_whom_it_points_otherwise() {
    let mut world = Driven::new(terms(), &[("first", &[]), ("a", &[])]);
    let mut held = world.rollouts.clone();
    world.activate("first");
    world.pass("first");
    assert_eq!(world.converged("first", 0), EventAnswer::Accepted);
    assert!(world.is_asked("a"));
    let stored = rollout::StoredRollout {
        document: world.rollouts.document(&world.key).unwrap().clone(),
        terms: std::sync::Arc::new(terms()),
        members: world.rollouts.members(&world.key).cloned().collect(),
    };
    let loaded = || vec![stored.clone()];
    let wakes = held.reload(loaded(), &[], Default::default());
    let mut woken: Vec<_> = wakes.iter().map(|effect| format!("{effect:?}")).collect();
    let mut all = [node_id("a"), node_id("first")].map(|node| format!("Wake({node:?})"));
    woken.sort();
    all.sort();
    assert_eq!(woken, all, "one is asked, and the other is not any more");
    assert_eq!(held.reload(loaded(), &[], Default::default()), [], "nothing is new");
}
