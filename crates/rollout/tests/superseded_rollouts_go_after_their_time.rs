//! ROL-3: a rollout that another one took the place of is kept for 30 days, at most eight of a channel; and longer while a node
//! is on its way in it.

use std::time::Duration;

use ::model::Channel;
use ::model::status::Contact;
use rollout::{
    HeadKind, HeadStep, MAX_SUPERSEDED, MemberFailure, RETENTION, RolloutChange, RolloutCommand,
    RolloutEffect, RolloutEventBody, RolloutInput, RolloutKey, RolloutState, RolloutStep,
};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::model::driven::{Driven, joining, release};
use crate::model::terms::wave;

fn all_at_once() -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 60, 100)], ..RolloutTerms::default() }
}

fn publish(world: &mut Driven, channel: &Channel, seq: u64) {
    let nodes = vec![joining("a", &[], Some(40))];
    assert_eq!(world.publish(release(channel, seq, all_at_once(), nodes)), Ok(()));
}

fn state(world: &Driven, channel: &Channel, seq: u64) -> Option<RolloutState> {
    let key = RolloutKey { channel: channel.clone(), seq };
    world.rollouts.document(&key).map(|document| document.state)
}

fn tick(world: &mut Driven) -> RolloutStep {
    world.rollouts.handle(RolloutInput::Tick, world.now)
}

/// A rollout whose only node is away, so that it is through, with a newer one in its place.
fn superseded() -> Driven {
    let mut world = Driven::new(all_at_once(), &[]);
    world.contact("a", Contact::Offline);
    let channel = world.key.channel.clone();
    world.give(RolloutInput::Joined { channel: channel.clone(), node: joining("a", &[], Some(40)) });
    publish(&mut world, &channel, 42);
    assert_eq!(state(&world, &channel, 41), Some(RolloutState::Superseded));
    assert_eq!(state(&world, &channel, 42), Some(RolloutState::Terminal));
    world
}

#[test]
fn its_members_go_after_thirty_days() {
    let mut world = superseded();
    let (key, ends) = (world.key.clone(), world.now.plus(RETENTION));
    assert_eq!(RETENTION, Duration::from_secs(30 * 24 * 3600));
    assert_eq!(world.rollouts.next_deadline(), Some(ends), "nothing else is due");

    world.now = ends.minus(Duration::from_secs(1));
    assert_eq!(tick(&mut world).commit, None);
    assert_eq!((world.rollouts.members(&key).count(), world.rollouts.next_deadline()), (1, Some(ends)));

    world.now = ends;
    let step = tick(&mut world);
    let [RolloutChange { document, members, drops_members, .. }] = &step.commit.unwrap().rollouts[..] else {
        panic!("one rollout changes")
    };
    assert_eq!((&document.key, document.state, document.since), (&key, RolloutState::Pruned, ends));
    assert!(members.is_empty() && *drops_members);
    let notes: Vec<String> = step
        .effects
        .iter()
        .map(|effect| match effect {
            RolloutEffect::Note { rollout, note } => format!("{rollout}: {note}"),
            RolloutEffect::Wake(node) => panic!("{node} has nothing to hear"),
        })
        .collect();
    assert_eq!(notes, ["release 41 in channel stable: the rollout is kept as a document"]);
    assert!(world.rollouts.document(&key).is_none(), "what is left of it is in the store");
    assert_eq!((world.rollouts.members(&key).count(), world.rollouts.next_deadline()), (0, None));
    assert_eq!(tick(&mut world).commit, None, "once");
}

#[test]
fn it_stays_while_a_node_is_on_its_way_in_it() {
    let mut world = Driven::new(all_at_once(), &[("a", &[])]);
    let channel = world.key.channel.clone();
    world.say("a", RolloutEventBody::DispatchAck);
    world.command(RolloutCommand::Abort);
    world.contact("a", Contact::Offline);
    publish(&mut world, &channel, 42);
    assert_eq!(state(&world, &channel, 41), Some(RolloutState::Superseded));
    world.wait(3 * 3600);
    assert!(matches!(world.member("a").failure, Some(MemberFailure::Silent { .. })));
    world.now = world.now.plus(RETENTION);
    assert_eq!(tick(&mut world).commit, None);
    assert_eq!(world.rollouts.next_deadline(), None, "time alone does not end it");
    world.contact("a", Contact::Unreachable);
    assert_eq!(state(&world, &channel, 41), Some(RolloutState::Superseded), "nor does what is heard of it");
    world.back("a");
    assert_eq!(state(&world, &channel, 41), None, "it goes with the node");
}

/// What a channel points to is known however old it is: its rollout would begin anew, over what is stored of it.
#[test]
fn the_newest_of_a_channel_stays_known() {
    let mut world = Driven::new(all_at_once(), &[("a", &[])]);
    let channel = world.key.channel.clone();
    publish(&mut world, &channel, 42);
    let head = RolloutKey { channel: channel.clone(), seq: 42 };
    let (rollout, by, command) = (head.clone(), "ada".to_owned(), RolloutCommand::Abort);
    world.give(RolloutInput::Command { rollout, by, command });
    assert_eq!(state(&world, &channel, 42), Some(RolloutState::Superseded));
    world.now = world.now.plus(RETENTION);
    tick(&mut world);
    let follow = |world: &Driven| world.rollouts.follow_head(&head, HeadKind::InRollout);
    assert!(matches!(follow(&world), HeadStep::Known), "its rollout began once");
    assert!(world.rollouts.next_deadline().is_none_or(|at| at > world.now), "nothing is due for it");

    // A release for all at once, which has no rollout, keeps the document alone.
    world.give(RolloutInput::AtOnce { head: RolloutKey { channel: channel.clone(), seq: 43 } });
    world.now = world.now.plus(RETENTION);
    tick(&mut world);
    assert_eq!(
        (state(&world, &channel, 41), state(&world, &channel, 42)),
        (None, Some(RolloutState::Superseded))
    );

    publish(&mut world, &channel, 44);
    assert_eq!(state(&world, &channel, 42), None, "it is past its time");
}

#[test]
fn of_more_than_eight_the_oldest_goes_before_its_time() {
    let mut world = superseded();
    let channel = world.key.channel.clone();
    let other: Channel = "other".parse().unwrap();
    assert!(other < channel, "what is of it comes first");
    publish(&mut world, &other, 41);
    publish(&mut world, &other, 42);
    let most = MAX_SUPERSEDED as u64;
    for seq in 43..=41 + most {
        publish(&mut world, &channel, seq);
    }
    let superseded = |world: &Driven, seqs: std::ops::Range<u64>| {
        seqs.filter(|seq| state(world, &channel, *seq) == Some(RolloutState::Superseded)).count() as u64
    };
    assert_eq!(superseded(&world, 41..41 + most), most);
    publish(&mut world, &channel, 42 + most);
    assert_eq!(state(&world, &channel, 41), None, "the oldest");
    assert_eq!(superseded(&world, 42..42 + most), most, "and no other");
    assert_eq!(state(&world, &other, 41), Some(RolloutState::Superseded), "that channel has one");
}
