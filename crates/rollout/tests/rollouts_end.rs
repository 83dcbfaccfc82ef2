//! ROL-1, ROL-8: a rollout comes to its end without an operator: nodes that call seldom are asked when they call, one
//! that failed within its gate and stays leaves its slot, and one that waits for its boot holds its slot for a day.

use std::time::Duration;

use ::model::share::Share;
use ::model::status::Contact;
use rollout::member::{ASK_LEASE, ASK_REACH, DEFER_LIMIT, DEFER_SLOT, FAILED_SLOT_LIMIT, MAX_ATTEMPTS};
use rollout::{
    EventAnswer, MemberFailure, NextCall, NodeRolloutState, RolloutEventBody, RolloutInput, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::{NodeEdge, OnFailure, WaveMembers};

use crate::model::driven::{Driven, Labels};
use crate::model::terms::{budget, selector, wave};

const DB: Labels<'static> = &[("tier", "db")];
const WEB: Labels<'static> = &[("tier", "web")];

/// One node at a time, of which half may fail.
fn one_at_a_time() -> RolloutTerms {
    RolloutTerms {
        waves: vec![wave("rest", WaveMembers::Rest, 60, 50)],
        budgets: vec![budget("*", Some(Share::Count(1)), None)],
        ..RolloutTerms::default()
    }
}

fn through(world: &mut Driven, name: &str) {
    world.activate(name);
    world.pass(name);
    world.wait(60);
    assert_eq!(world.converged(name, 60), EventAnswer::Accepted);
}

/// Who was asked first, and the other one.
fn in_turn(world: &Driven) -> (&'static str, &'static str) {
    if world.is_asked("a") { ("a", "b") } else { ("b", "a") }
}

/// A node says once that it converged: where the clock here was set back in mid-soak, by how much is not known exactly, and the
/// node's own clock counts.
#[test]
fn a_clock_set_back_in_mid_soak_refuses_no_soak_that_is_over() {
    let mut driven = Driven::new(RolloutTerms::default(), &[("a", &[])]);
    driven.wait(60);
    driven.activate("a");
    driven.pass("a");
    driven.wait(10);
    // Five minutes later nobody has looked, and the clock is set back.
    driven.now = driven.now.plus(Duration::from_secs(300)).minus(Duration::from_secs(5000));
    driven.give(RolloutInput::Tick);
    assert_eq!(driven.converged("a", 310), EventAnswer::Accepted, "{}", driven.why("a"));
}

#[test]
fn a_node_that_calls_seldom_is_asked_when_it_calls() {
    let mut world = Driven::new(one_at_a_time(), &[("a", WEB), ("b", WEB)]);
    let (first, second) = in_turn(&world);
    through(&mut world, first);
    assert!(world.is_asked(second));
    // It is idle, and calls once a day.
    let mut world = Driven::new(one_at_a_time(), &[]);
    let channel = world.key.channel.clone();
    world.call("slow", Contact::Online, NextCall::within(Duration::from_secs(24 * 3600)));
    world.give(rollout::RolloutInput::Joined {
        channel,
        node: crate::model::driven::joining("slow", WEB, Some(40)),
    });
    assert!(!world.is_asked("slow"), "a request would lapse before it is heard");
    assert!(world.why("slow").ends_with("it calls seldom, and is asked once it called"));
    world.wait(23 * 3600);
    assert_eq!((world.member("slow").attempts, world.member("slow").first_asked), (0, None));
    world.call("slow", Contact::Online, NextCall::within(Duration::from_secs(60)));
    assert!(world.is_asked("slow"));
    through(&mut world, "slow");
}

#[test]
fn a_request_that_lapses_before_a_node_calls_counts_for_nothing() {
    let mut world = Driven::new(one_at_a_time(), &[("a", WEB)]);
    assert!(world.is_asked("a"));
    world.call("a", Contact::Online, NextCall::Later);
    world.wait(ASK_LEASE.as_secs() + 60);
    assert!(!world.is_asked("a"));
    assert_eq!((world.member("a").attempts, world.member("a").retry_at), (0, None));
    world.call("a", Contact::Online, NextCall::Soon);
    assert!(world.is_asked("a"));
    // One that calls and does not answer is put off, and fails at last.
    for attempt in 1..=u32::from(MAX_ATTEMPTS) {
        world.wait(ASK_LEASE.as_secs() + 60 * 2u64.pow(attempt));
    }
    assert_eq!(world.member("a").failure, Some(MemberFailure::Unanswered));
}

#[test]
fn how_soon_a_node_calls_has_a_bound() {
    assert_eq!(NextCall::within(ASK_REACH), NextCall::Soon);
    assert_eq!(NextCall::within(ASK_REACH + Duration::from_millis(1)), NextCall::Later);
    assert!(ASK_REACH * 2 <= ASK_LEASE, "it has as long for its answer");
}

#[test]
fn a_node_that_failed_within_its_gate_and_stays_leaves_its_slot() {
    let mut world = Driven::new(one_at_a_time(), &[("a", WEB), ("b", WEB)]);
    let (first, second) = in_turn(&world);
    world.activate(first);
    world.fail(first);
    assert_eq!(world.state(), RolloutState::Converging, "half of the wave may fail");
    world.wait(FAILED_SLOT_LIMIT.as_secs() - 60);
    assert!(!world.is_asked(second), "it may be on its way back");
    assert!(world.why(first).ends_with("it failed: it says: probe web failed"), "{}", world.why(first));
    world.wait(60);
    assert!(world.is_asked(second), "{}", world.why(second));
    through(&mut world, second);
    assert_eq!(world.state(), RolloutState::Terminal);
    let why = world.why(first);
    let stays =
        "it failed and stays on the release, within what its gate lets fail: it says: probe web failed";
    assert!(why.ends_with(stays), "{why}");
    // What it says later still counts.
    assert_eq!(world.back(first), EventAnswer::Accepted);
    assert_eq!(world.member(first).state, NodeRolloutState::Reverted);
}

#[test]
fn a_node_that_failed_and_stays_holds_nobody_by_an_edge() {
    let edge = NodeEdge { before: selector("tier=db"), after: selector("tier=web") };
    let terms = RolloutTerms { budgets: Vec::new(), edges: vec![edge], ..one_at_a_time() };
    let mut world = Driven::new(terms, &[("db", DB), ("web", WEB)]);
    world.activate("db");
    world.fail("db");
    assert!(world.why("web").ends_with("1 nodes of `tier=db` go before it"));
    world.wait(FAILED_SLOT_LIMIT.as_secs());
    assert!(world.is_asked("web"), "{}", world.why("web"));
}

#[test]
fn a_node_that_is_to_return_keeps_its_slot_until_it_is_back() {
    let terms = RolloutTerms { on_failure: OnFailure::Rollback, ..one_at_a_time() };
    let mut world = Driven::new(terms, &[("a", WEB), ("b", WEB)]);
    let (first, second) = in_turn(&world);
    world.activate(first);
    world.fail(first);
    world.wait(FAILED_SLOT_LIMIT.as_secs() * 2);
    assert!(!world.is_asked(second));
    world.back(first);
    assert!(world.is_asked(second));
}

#[test]
fn who_fell_silent_keeps_its_slot_until_it_is_heard_of() {
    let mut world = Driven::new(one_at_a_time(), &[("a", WEB), ("b", WEB)]);
    let (first, second) = in_turn(&world);
    world.activate(first);
    world.wait(3 * 3600);
    assert!(matches!(world.member(first).failure, Some(MemberFailure::Silent { .. })));
    world.wait(3 * 3600);
    assert!(!world.is_asked(second), "nobody knows what it is at");
}

#[test]
fn a_node_that_waits_for_its_boot_holds_its_slot_for_a_day() {
    let mut world = Driven::new(one_at_a_time(), &[("a", WEB), ("b", WEB)]);
    let (first, second) = in_turn(&world);
    world.say(first, RolloutEventBody::DispatchAck);
    let component = "kernel".to_owned();
    assert_eq!(world.say(first, RolloutEventBody::ActivationDeferred { component }), EventAnswer::Accepted);
    world.wait(DEFER_SLOT.as_secs() - 60);
    assert!(!world.is_asked(second));
    world.wait(60);
    assert!(world.is_asked(second), "{}", world.why(second));
    assert_eq!(world.member(first).state, NodeRolloutState::Deferred, "it is waited for");
    // It boots at last, and takes nobody's slot.
    let complete = RolloutEventBody::ActivationComplete { release: world.key.seq, boot: "boot-2".to_owned() };
    assert_eq!(world.say(first, complete), EventAnswer::Accepted);
    assert!(world.is_asked(second));
    through(&mut world, second);

    let mut world = Driven::new(one_at_a_time(), &[("a", WEB)]);
    world.say("a", RolloutEventBody::DispatchAck);
    world.say("a", RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() });
    world.wait(DEFER_LIMIT.as_secs());
    assert_eq!(world.member("a").failure, Some(MemberFailure::Silent { was: NodeRolloutState::Deferred }));
}
