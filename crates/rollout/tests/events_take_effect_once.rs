//! ROL-5: each event of a node takes effect once, in the node's order, and what it says is checked: bad input
//! is named.

use std::time::Duration;

use ::model::status::Contact;
use rollout::event::{DeclaredProbe, ProbeMode, ProbeOutcome};
use rollout::{
    EventAnswer, EventRefusal, NodeRolloutState, PublishRefusal, RolloutCommand, RolloutEffect,
    RolloutEventBody, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::model::driven::{Driven, joining, node_id, release};
use crate::model::terms::wave;

fn soaking(secs: u64) -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, secs, 100)], ..RolloutTerms::default() }
}

fn refused(refusal: EventRefusal) -> EventAnswer {
    EventAnswer::Refused(refusal)
}

#[test]
fn twice_out_of_order_and_unknown() {
    let mut world = Driven::new(soaking(0), &[("h1", &[])]);
    let ack = world.event("h1", "log1", 1, RolloutEventBody::DispatchAck);
    let started = world.event("h1", "log1", 3, RolloutEventBody::ActivationStarted);
    assert_eq!(world.send(started.clone()), EventAnswer::ReplayFrom(1));
    assert_eq!(world.send(ack.clone()), EventAnswer::Accepted);
    assert_eq!(world.send(ack), EventAnswer::Duplicate);
    assert_eq!(world.send(started), EventAnswer::ReplayFrom(2));
    assert_eq!(world.member("h1").state, NodeRolloutState::Activating);

    let mut other = world.event("h1", "log1", 2, RolloutEventBody::ActivationStarted);
    other.rollout = "stable@ff".parse().unwrap();
    assert_eq!(world.send(other), EventAnswer::UnknownRollout);
    let stranger = world.event("h9", "log1", 1, RolloutEventBody::DispatchAck);
    assert_eq!(world.send(stranger), EventAnswer::UnknownNode);
}

#[test]
fn what_a_node_has_no_more_is_counted_as_lost() {
    let mut world = Driven::new(soaking(0), &[("h1", &[])]);
    world.send(world.event("h1", "log1", 1, RolloutEventBody::DispatchAck));
    let mut late = world.event("h1", "log1", 5, RolloutEventBody::ActivationStarted);
    late.oldest = 4;
    assert_eq!(world.send(late.clone()), EventAnswer::ReplayFrom(4));
    late.oldest = 5;
    assert_eq!(world.send(late), EventAnswer::Accepted);
    assert_eq!(world.member("h1").cursor.lost, 3);
    let notes: Vec<String> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            RolloutEffect::Note { note, .. } => Some(note.to_string()),
            RolloutEffect::Wake(_) => None,
        })
        .collect();
    assert_eq!(notes, ["h1 has 3 events no more that were not received"]);
}

#[test]
fn another_log_begins_anew_and_an_earlier_one_is_over() {
    let mut world = Driven::new(soaking(0), &[("h1", &[])]);
    world.send(world.event("h1", "log1", 1, RolloutEventBody::DispatchAck));
    let complete = RolloutEventBody::ActivationComplete { release: 41, boot: "b".to_owned() };
    assert_eq!(world.send(world.event("h1", "log2", 1, complete.clone())), EventAnswer::Accepted);
    assert_eq!(world.send(world.event("h1", "log1", 2, complete)), EventAnswer::Duplicate);
}

#[test]
fn an_acknowledgement_that_was_taken_is_taken_again_of_another_log() {
    let mut world = Driven::new(RolloutTerms::default(), &[("a", &[])]);
    assert_eq!(world.say("a", RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    let again = world.event("a", "log2", 1, RolloutEventBody::DispatchAck);
    assert_eq!(world.send(again), EventAnswer::Accepted);
    assert_eq!(world.member("a").state, NodeRolloutState::Activating);
}

#[test]
fn nobody_begins_that_is_not_asked() {
    let mut world = Driven::new(soaking(0), &[("h1", &[])]);
    assert!(world.is_asked("h1"));
    world.command(RolloutCommand::Pause);
    assert!(!world.is_asked("h1"), "what was not begun is called off");
    assert_eq!(world.say("h1", RolloutEventBody::DispatchAck), refused(EventRefusal::NotAsked));
    world.command(RolloutCommand::Resume);
    assert!(world.is_asked("h1"));
    assert_eq!(world.say("h1", RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    let complete = RolloutEventBody::ActivationComplete { release: 40, boot: "b".to_owned() };
    assert_eq!(world.say("h1", complete), refused(EventRefusal::OtherRelease { got: 40, want: 41 }));
}

#[test]
fn a_probe_counts_once_it_is_declared_after_the_activation() {
    let mut world = Driven::new(soaking(60), &[("h1", &[])]);
    let boot = || "boot-1".to_owned();
    let result =
        |probe: &str, outcome, boot| RolloutEventBody::ProbeResult { probe: probe.to_owned(), outcome, boot };
    let declare = |name: &str, mode| {
        let probes = vec![DeclaredProbe { name: name.to_owned(), mode }];
        RolloutEventBody::ProbeTopologyDeclared { probes }
    };
    world.say("h1", RolloutEventBody::DispatchAck);
    let early = world.say("h1", result("web", ProbeOutcome::Pass, boot()));
    assert_eq!(early, refused(EventRefusal::OtherState { state: NodeRolloutState::Activating }));
    world.say("h1", RolloutEventBody::ActivationComplete { release: 41, boot: boot() });
    assert_eq!(world.say("h1", result("web", ProbeOutcome::Pass, boot())), refused(EventRefusal::NoTopology));
    world.wait(120);
    assert_eq!(world.converged("h1", 100), refused(EventRefusal::NoTopology));
    let lacks = world.say("h1", declare("web", ProbeMode::Observe));
    assert_eq!(lacks, refused(EventRefusal::LacksProbe("web".to_owned())));
    assert_eq!(world.say("h1", declare("web", ProbeMode::Enforce)), EventAnswer::Accepted);
    let undeclared = world.say("h1", result("db", ProbeOutcome::Pass, boot()));
    assert_eq!(undeclared, refused(EventRefusal::UndeclaredProbe("db".to_owned())));
    let other_boot = world.say("h1", result("web", ProbeOutcome::Pass, "boot-0".to_owned()));
    assert_eq!(other_boot, refused(EventRefusal::OtherBoot));
    assert_eq!(world.converged("h1", 100), refused(EventRefusal::ProbeNotPassed("web".to_owned())));
    world.say("h1", result("web", ProbeOutcome::Pass, boot()));
    world.say("h1", result("web", ProbeOutcome::Fail, boot()));
    assert_eq!(world.converged("h1", 100), refused(EventRefusal::ProbeNotPassed("web".to_owned())));
    world.say("h1", result("web", ProbeOutcome::Pass, boot()));
    assert_eq!(world.converged("h1", 59), refused(EventRefusal::SoakNotOver { left_secs: 1 }));
    let wrong = RolloutEventBody::Converged { release: 41, boot: "boot-0".to_owned(), soaked_secs: 100 };
    assert_eq!(world.say("h1", wrong), refused(EventRefusal::OtherBoot));
    assert_eq!(world.converged("h1", 60), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Terminal);
}

/// A node that was broken into is pointed to no release that its rollout does not give it yet, and one that was never
/// on a release to none.
#[test]
fn a_return_to_a_later_release_or_to_none_moves_no_pointer() {
    for (said, before) in [(39, 39), (42, 40), (u64::MAX, 40), (0, 40)] {
        let mut world = Driven::new(soaking(60), &[("h1", &[])]);
        world.activate("h1");
        let back = RolloutEventBody::RollbackComplete { release: said };
        assert_eq!(world.say("h1", back), EventAnswer::Accepted, "{said}");
        assert_eq!(world.member("h1").state, NodeRolloutState::Reverted);
        let pointer = world.rollouts.pointer(&node_id("h1")).unwrap();
        assert_eq!(pointer.release, Some(before), "it says that it is back on {said}");
    }
}

#[test]
fn a_node_cannot_have_soaked_longer_than_it_was_asked() {
    let mut world = Driven::new(soaking(3600), &[("h1", &[])]);
    world.activate("h1");
    world.pass("h1");
    assert_eq!(world.converged("h1", 1_000_000), refused(EventRefusal::SoakNotOver { left_secs: 3540 }));
    world.wait(3600);
    assert_eq!(world.converged("h1", 3600), EventAnswer::Accepted);
}

#[test]
fn a_clock_set_back_in_mid_soak_strands_nobody() {
    let mut world = Driven::new(soaking(3600), &[("h1", &[])]);
    world.activate("h1");
    world.pass("h1");
    world.wait(1800);
    world.now = world.now.minus(Duration::from_secs(30 * 24 * 3600));
    world.wait(1800);
    assert_eq!(world.converged("h1", 3600), EventAnswer::Accepted);
}

#[test]
fn time_without_a_step_is_no_silence() {
    let mut world = Driven::new(soaking(60), &[("h1", &[])]);
    world.activate("h1");
    world.now = world.now.plus(Duration::from_secs(7 * 24 * 3600));
    world.wait(60);
    assert_eq!(world.member("h1").state, NodeRolloutState::Soaking, "the control plane was down");
    world.wait(3 * 3600);
    assert_eq!(world.member("h1").state, NodeRolloutState::Failed);
    world.pass("h1");
    assert_eq!(world.member("h1").state, NodeRolloutState::Soaking, "it is heard of again");
}

#[test]
fn a_release_that_is_not_newer_or_has_a_node_twice_begins_nothing() {
    let mut world = Driven::new(soaking(60), &[("h1", &[])]);
    let channel = world.key.channel.clone();
    let again = world.publish(release(&channel, 41, soaking(0), Vec::new()));
    assert_eq!(again, Err(PublishRefusal::NotNewer { channel: channel.clone(), known: 41, seq: 41 }));
    let nodes = vec![joining("h1", &[], None), joining("h1", &[], None)];
    let twice = world.publish(release(&channel, 42, soaking(0), nodes));
    assert_eq!(twice, Err(PublishRefusal::NodeTwice(node_id("h1"))));
}

#[test]
fn what_is_not_acknowledged_in_time_is_called_off() {
    let mut world = Driven::new(soaking(60), &[("h1", &[])]);
    world.contact("h1", Contact::Unreachable);
    world.wait(660);
    assert!(!world.is_asked("h1"));
    assert_eq!(world.say("h1", RolloutEventBody::DispatchAck), refused(EventRefusal::NotAsked));
    world.contact("h1", Contact::Online);
    assert!(world.is_asked("h1"));
}
