//! ROL-1: what a budget lets begin follows the nodes that come and go, and a node begins without a slot of its own only while
//! it holds one elsewhere.

use ::model::Channel;
use ::model::share::Share;
use ::model::status::Contact;
use rollout::{
    EventAnswer, NextCall, RolloutCommand, RolloutEventBody, RolloutInput, RolloutKey, RolloutState,
    StoredRollout,
};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{budget, wave};

fn all_at_once() -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 0, 100)], ..RolloutTerms::default() }
}

/// By two budgets.
fn one_at_a_time() -> RolloutTerms {
    let budgets = vec![budget("*", None, Some(1)), budget("*", Some(Share::Count(1)), None)];
    RolloutTerms { budgets, ..all_at_once() }
}

fn asked_in(world: &Driven, key: &RolloutKey) -> usize {
    world.rollouts.members(key).filter(|member| member.asked.is_some()).count()
}

#[test]
fn a_share_is_of_the_nodes_that_there_are() {
    let (db, web): (Labels<'static>, Labels<'static>) = (&[("tier", "db")], &[("tier", "web")]);
    let budgets = vec![
        budget("tier=db", Some(Share::Percent(50)), None),
        budget("tier=web", Some(Share::Percent(50)), None),
    ];
    let terms = RolloutTerms { budgets, ..all_at_once() };
    let nodes = [("d1", db), ("d2", db), ("w1", web), ("w2", web), ("w3", web), ("w4", web)];
    let mut world = Driven::new(terms, &nodes);
    let asked = |world: &Driven, of: &str| {
        let members = world.rollouts.members(&world.key);
        members.filter(|member| member.asked.is_some() && member.hostname.as_str().starts_with(of)).count()
    };
    assert_eq!((asked(&world, "d"), asked(&world, "w")), (1, 2));
    let channel = world.key.channel.clone();
    for name in ["w5", "w6"] {
        world.give(RolloutInput::Joined { channel: channel.clone(), node: joining(name, web, Some(40)) });
        world.contact(name, Contact::Online);
    }
    assert_eq!((asked(&world, "d"), asked(&world, "w")), (1, 3));
    // Those that wait go, so that the half is less.
    let waiting: Vec<String> = ["w1", "w2", "w3", "w4", "w5", "w6"]
        .into_iter()
        .filter(|name| !world.is_asked(name))
        .map(str::to_owned)
        .collect();
    for name in waiting.iter().take(2) {
        world.give(RolloutInput::Removed { channel: channel.clone(), node: node_id(name) });
    }
    let busy: Vec<&str> = ["w1", "w2", "w3", "w4", "w5", "w6"]
        .into_iter()
        .filter(|name| !waiting.iter().any(|other| other == name) && world.is_asked(name))
        .collect();
    world.activate(busy[0]);
    world.pass(busy[0]);
    world.converged(busy[0], 0);
    assert_eq!(asked(&world, "w"), 2, "two of four are on their way");
}

/// The node came back in the rollout whose slot it held, or that is gone: in the other one it needs one of its own.
#[test]
fn a_slot_that_is_held_elsewhere_is_held_no_longer() {
    let comes_back = |world: &mut Driven| drop(world.back("a"));
    let is_gone = |world: &mut Driven| {
        let gone = [world.key.clone()];
        drop(world.rollouts.reload(Vec::new(), &gone, Default::default()));
    };
    holds_no_longer(comes_back);
    holds_no_longer(is_gone);
}

fn holds_no_longer(what: impl Fn(&mut Driven)) {
    let mut world = Driven::new(one_at_a_time(), &[("a", &[])]);
    world.activate("a");
    world.command(RolloutCommand::Abort);
    world.contact("a", Contact::Offline);
    let channel = world.key.channel.clone();
    let nodes = vec![joining("a", &[], Some(40)), joining("b", &[], Some(40))];
    assert_eq!(world.publish(release(&channel, 42, one_at_a_time(), nodes)), Ok(()));
    let newer = RolloutKey { channel, seq: 42 };
    let order = |command| RolloutInput::Command { rollout: newer.clone(), by: "ada".to_owned(), command };
    world.give(order(RolloutCommand::Pause));
    world.contact("a", Contact::Online);
    world.contact("b", Contact::Online);
    what(&mut world);
    world.give(order(RolloutCommand::Resume));
    assert_eq!(asked_in(&world, &newer), 1);
}

/// The same of a node that moves to another channel.
#[test]
fn a_slot_is_not_taken_along_to_another_channel() {
    let mut world = Driven::new(one_at_a_time(), &[("a", &[])]);
    world.activate("a");
    let other: Channel = "other".parse().unwrap();
    let nodes = vec![joining("b", &[], Some(40))];
    assert_eq!(world.publish(release(&other, 41, one_at_a_time(), nodes)), Ok(()));
    let key = RolloutKey { channel: other.clone(), seq: 41 };
    let order = |command| RolloutInput::Command { rollout: key.clone(), by: "ada".to_owned(), command };
    world.give(order(RolloutCommand::Pause));
    world.contact("b", Contact::Online);
    world.give(RolloutInput::Joined { channel: other, node: joining("a", &[], Some(40)) });
    world.give(RolloutInput::Removed { channel: world.key.channel.clone(), node: node_id("a") });
    world.give(order(RolloutCommand::Resume));
    assert_eq!(asked_in(&world, &key), 1);
}

/// What is loaded took no slot: the next decision does not rest on that.
#[test]
fn what_is_loaded_takes_no_slot_again() {
    let mut world = Driven::new(one_at_a_time(), &[("a", &[])]);
    let stored = StoredRollout {
        document: world.rollouts.document(&world.key).unwrap().clone(),
        terms: std::sync::Arc::new(one_at_a_time()),
        members: world.rollouts.members(&world.key).cloned().collect(),
    };
    world.rollouts.reload(vec![stored], &[], Default::default());
    let (rollout, by, command) = (world.key.clone(), "ada".to_owned(), RolloutCommand::Pause);
    let step = world.rollouts.handle(RolloutInput::Command { rollout, by, command }, world.now);
    assert_eq!(step.commit.unwrap().budgets, []);
}

/// Hosts that their administrators paused are asked again and again: they hold a slot meanwhile, and take it before nobody who
/// begins; nor do they keep a gate shut.
#[test]
fn who_said_why_it_does_not_begin_is_asked_last() {
    let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    let nodes: Vec<(&str, &[(&str, &str)])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    // Whoever is asked says that it is paused, until each of them is to be asked again.
    let all_say_so = |world: &mut Driven| {
        let mut said = Vec::new();
        while let Some(name) = names.iter().find(|name| world.is_asked(name)) {
            world.say(name, RolloutEventBody::DispatchReject { code: "paused".to_owned() });
            said.push(name.clone());
        }
        said
    };
    // By wave and name this one is asked last.
    let well = all_say_so(&mut Driven::new(one_at_a_time(), &nodes)).pop().unwrap();
    let well = well.as_str();
    let mut world = Driven::new(one_at_a_time(), &nodes);
    world.call(well, Contact::Online, NextCall::Later);
    assert_eq!(all_say_so(&mut world).len(), 19);
    world.command(RolloutCommand::Pause);
    world.wait(120);
    world.contact(well, Contact::Online);
    world.command(RolloutCommand::Resume);
    assert!(world.is_asked(well), "{}", world.why(well));
    world.activate(well);
    world.pass(well);
    assert_eq!(world.converged(well, 0), EventAnswer::Accepted);
    assert!(names.iter().any(|name| world.is_asked(name)), "they are asked again");
    assert_eq!(world.state(), RolloutState::Terminal, "and their gate passed all the same");
}

/// Who calls seldom is not asked before it calls, and takes no slot.
#[test]
fn who_calls_later_holds_no_slot() {
    let mut world = Driven::new(one_at_a_time(), &[("a", &[])]);
    world.call("a", Contact::Online, NextCall::Later);
    world.command(RolloutCommand::Pause);
    world.command(RolloutCommand::Resume);
    assert!(!world.is_asked("a") && !world.member("a").in_flight());
    world.call("a", Contact::Online, NextCall::Soon);
    assert!(world.member("a").in_flight());
    let refused = RolloutEventBody::DispatchReject { code: "frozen".to_owned() };
    world.say("a", refused);
    assert!(!world.member("a").in_flight());
}
