//! ROL-1: of a superseded rollout that is past its time, or of which there are too many, nobody is kept but nodes in flight:
//! one dead host keeps its slot, and not a hundred thousand others.

use std::time::Duration;

use ::model::share::Share;
use ::model::status::Contact;
use rollout::member::DEFER_SLOT;
use rollout::{
    MAX_SUPERSEDED, MemberFailure, NodeRolloutState, RETENTION, RolloutChange, RolloutCommand, RolloutEffect,
    RolloutEventBody, RolloutInput, RolloutKey, RolloutState, Rollouts, StoredRollout,
};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{budget, wave};

const NONE: Labels<'static> = &[];
const NAMES: [&str; 4] = ["dead", "deferred", "c", "d"];

/// Each of them may be on its way.
fn terms() -> RolloutTerms {
    RolloutTerms {
        waves: vec![wave("rest", WaveMembers::Rest, 60, 100)],
        budgets: vec![budget("*", Some(Share::Count(4)), None)],
        ..RolloutTerms::default()
    }
}

/// A rollout that halted, as one of its nodes died in it, and that a newer one took the place of. Another one waits for its
/// boot, and left its slot.
fn with_a_dead_host() -> Driven {
    let mut driven = Driven::new(terms(), &NAMES.map(|name| (name, NONE)));
    driven.say("deferred", RolloutEventBody::DispatchAck);
    driven.say("deferred", RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() });
    driven.activate("dead");
    driven.contact("dead", Contact::Offline);
    driven.wait(DEFER_SLOT.as_secs());
    assert_eq!(driven.member("dead").failure, Some(MemberFailure::Silent { was: NodeRolloutState::Soaking }));
    begin_next(&mut driven, 42);
    assert_eq!(driven.state(), RolloutState::Superseded);
    assert_eq!(kept(&driven).len(), NAMES.len());
    driven
}

fn begin_next(driven: &mut Driven, seq: u64) {
    let nodes = NAMES.map(|name| joining(name, NONE, Some(40))).to_vec();
    driven.publish(release(&driven.key.channel.clone(), seq, terms(), nodes)).unwrap();
}

fn kept(driven: &Driven) -> Vec<String> {
    driven.rollouts.members(&driven.key).map(|member| member.hostname.to_string()).collect()
}

fn tick(driven: &mut Driven) -> Vec<RolloutChange> {
    let step = driven.rollouts.handle(RolloutInput::Tick, driven.now);
    driven.effects = step.effects;
    let changes = step.commit.map(|commit| commit.rollouts).unwrap_or_default();
    changes.into_iter().filter(|change| change.document.key == driven.key).collect()
}

#[test]
fn past_its_time_the_nodes_in_flight_are_left() {
    let mut driven = with_a_dead_host();
    let since = driven.rollouts.document(&driven.key).unwrap().since;
    driven.now = since.plus(RETENTION).minus(Duration::from_secs(1));
    tick(&mut driven);
    assert_eq!(kept(&driven).len(), NAMES.len());
    driven.now = since.plus(RETENTION);
    assert!(driven.rollouts.next_deadline().is_some_and(|at| at <= driven.now));
    let [change] = tick(&mut driven).try_into().unwrap();
    let woken = RolloutEffect::Wake(node_id("deferred"));
    assert!(driven.effects.contains(&woken), "this may have pointed it: {:?}", driven.effects);
    let stored: Vec<&str> = change.members.iter().map(|member| member.hostname.as_str()).collect();
    assert_eq!((change.drops_members, stored), (true, vec!["dead"]), "and they alone are stored");
    assert_eq!(change.document.state, RolloutState::Superseded);
    assert_eq!(kept(&driven), ["dead"]);
    assert!(driven.member("dead").in_flight(), "nobody knows what it is at");
    assert!(tick(&mut driven).is_empty(), "once");
    assert!(driven.rollouts.next_deadline().is_none_or(|at| at > driven.now));
    // What is stored comes to the same.
    let stored = StoredRollout { document: change.document, terms: terms().into(), members: change.members };
    let mut again = Rollouts::new();
    again.reload(vec![stored], &[], Default::default());
    assert!(again.handle(RolloutInput::Tick, driven.now).commit.is_none());
    // It is heard of, and is back.
    let dead = driven.key.clone();
    driven.back("dead");
    assert!(driven.rollouts.document(&dead).is_none(), "its document alone is stored");
}

#[test]
fn of_too_many_the_oldest_keep_the_nodes_in_flight() {
    let mut driven = with_a_dead_host();
    // With the one of the dead host these are as many as are kept, then one more, then two.
    let first_over = 42 + MAX_SUPERSEDED as u64;
    for seq in 43..=first_over + 1 {
        let rollout = RolloutKey { seq: seq - 1, ..driven.key.clone() };
        let (by, command) = ("ada".to_owned(), RolloutCommand::Abort);
        driven.give(RolloutInput::Command { rollout, by, command });
        begin_next(&mut driven, seq);
        assert_eq!(kept(&driven).len(), if seq < first_over { NAMES.len() } else { 1 }, "{seq}");
    }
    assert_eq!(kept(&driven), ["dead"]);
    let members = |seq| driven.rollouts.members(&RolloutKey { seq, ..driven.key.clone() }).count();
    assert_eq!(members(43), NAMES.len(), "the newer ones have all of theirs");
    assert!(driven.rollouts.document(&RolloutKey { seq: 42, ..driven.key.clone() }).is_none());
}
