//! ROL-1, ROL-5: a node that acknowledged, and is kept from beginning by its own clock or by its administrator, says why. It
//! began nothing: it holds no slot, counts neither as silent nor as failed, and is asked anew.

use rollout::member::ACTIVATION_LIMIT;
use rollout::{
    BeginRefusal, EventAnswer, EventRefusal, MemberFailure, NodeRolloutState, RolloutCommand,
    RolloutEventBody, RolloutState, WaitCause,
};
use trust::RolloutTerms;
use trust::rollout_terms::{OnFailure, WaveMembers};

use crate::model::driven::{Driven, node_id};
use crate::model::terms::{budget, wave};

/// One node at a time; one that fails halts.
fn one_at_a_time() -> RolloutTerms {
    RolloutTerms {
        waves: vec![wave("rest", WaveMembers::Rest, 0, 100)],
        budgets: vec![budget("*", None, Some(1))],
        on_failure: OnFailure::Rollback,
        ..RolloutTerms::default()
    }
}

fn waits(why: BeginRefusal) -> RolloutEventBody {
    RolloutEventBody::DispatchReject { code: why.code().to_owned() }
}

/// Two nodes, of which the first one acknowledged.
fn acknowledged() -> (Driven, &'static str, &'static str) {
    let mut world = Driven::new(one_at_a_time(), &[("a", &[]), ("b", &[])]);
    let (first, second) = if world.is_asked("a") { ("a", "b") } else { ("b", "a") };
    assert_eq!(world.say(first, RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    (world, first, second)
}

#[test]
fn it_leaves_its_slot_and_is_asked_anew() {
    for why in BeginRefusal::ALL {
        let (mut world, first, second) = acknowledged();
        assert!(world.member(first).in_flight() && !world.is_asked(second));
        assert_eq!(world.say(first, waits(why)), EventAnswer::Accepted);
        let member = world.member(first);
        assert_eq!((member.state, member.in_flight()), (NodeRolloutState::Pending, false), "{why:?}");
        assert!(world.is_asked(second), "the slot is another one's: {}", world.why(second));
        let cause = world.rollouts.explain(&node_id(first)).unwrap().cause;
        assert!(matches!(cause, Some(WaitCause::HeldOff { why: said, .. }) if said == why), "{cause:?}");
        // Said once more, as after an answer that was lost, it changes nothing.
        let again = world.say(first, waits(why));
        assert_eq!(again, EventAnswer::Refused(EventRefusal::NotAsked));

        world.activate(second);
        world.pass(second);
        assert_eq!(world.converged(second, 0), EventAnswer::Accepted);
        // Who is kept by its clock is waited for.
        let expected = match why {
            BeginRefusal::NotBefore | BeginRefusal::Frozen => RolloutState::Converging,
            BeginRefusal::Pinned | BeginRefusal::Paused => RolloutState::Terminal,
        };
        assert_eq!(world.state(), expected, "{why:?}");
        // It says the same each time, for longer than a node may be silent.
        let until = world.now.plus(ACTIVATION_LIMIT * 3);
        while world.now < until {
            world.wait(60);
            if world.is_asked(first) {
                assert_eq!(world.say(first, RolloutEventBody::DispatchAck), EventAnswer::Accepted);
                assert_eq!(world.say(first, waits(why)), EventAnswer::Accepted);
            }
            let member = world.member(first);
            assert_eq!((&member.failure, member.attempts), (&None, 0));
        }
        assert_eq!(world.state(), expected);
        while !world.is_asked(first) {
            world.wait(60);
        }
        world.activate(first);
        assert_eq!(world.member(first).held_off, None);
    }
}

/// A host that slept through its time says it once it is awake: that it was silent is forgotten, as it is of any that is heard.
#[test]
fn one_that_was_silent_says_so_late() {
    let mut terms = one_at_a_time();
    terms.waves[0].gate.success = 0;
    let mut world = Driven::new(terms, &[("a", &[])]);
    assert_eq!(world.say("a", RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    world.wait((ACTIVATION_LIMIT * 2).as_secs());
    assert!(matches!(world.member("a").failure, Some(MemberFailure::Silent { .. })));
    assert_eq!(world.say("a", waits(BeginRefusal::Frozen)), EventAnswer::Accepted);
    let member = world.member("a");
    assert_eq!((member.state, &member.failure), (NodeRolloutState::Pending, &None));
    assert_eq!((member.in_flight(), member.deadline), (false, None));
}

/// What began is not taken back by a word, and other refusals are none that it may give then.
#[test]
fn one_that_began_does_not_wait() {
    let (mut world, first, second) = acknowledged();
    let refused = EventAnswer::Refused(EventRefusal::NotAsked);
    let code = "proof".to_owned();
    assert_eq!(world.say(first, RolloutEventBody::DispatchReject { code }), refused);
    assert_eq!(world.say(first, RolloutEventBody::ActivationStarted), EventAnswer::Accepted);
    assert_eq!(world.say(first, waits(BeginRefusal::Paused)), refused);
    assert!(world.member(first).in_flight() && !world.is_asked(second));
    assert_eq!(world.member(first).state, NodeRolloutState::Activating);
}

/// What it waited for before is no excuse for silence once it acknowledged anew.
#[test]
fn it_counts_as_silent_once_it_acknowledged_anew() {
    let mut world = Driven::new(one_at_a_time(), &[("a", &[])]);
    world.say("a", RolloutEventBody::DispatchAck);
    world.say("a", waits(BeginRefusal::Paused));
    world.wait(60);
    assert_eq!(world.say("a", RolloutEventBody::DispatchAck), EventAnswer::Accepted);
    world.wait((ACTIVATION_LIMIT * 2).as_secs());
    assert!(matches!(world.member("a").failure, Some(MemberFailure::Silent { .. })));
}

/// A halted rollout, and one that is paused, ask it no more; nobody waits for it to go back.
#[test]
fn a_halt_and_a_pause_leave_it_where_it_is() {
    let (mut world, first, _) = acknowledged();
    world.command(RolloutCommand::Pause);
    assert!(world.member(first).in_flight(), "its acknowledgement stands");
    world.say(first, waits(BeginRefusal::Paused));
    world.wait(3600);
    assert!(!world.is_asked(first));
    assert_eq!(world.command(RolloutCommand::Rollback), rollout::RolloutAnswer::Command(Ok(())));
    assert_eq!(world.state(), RolloutState::Reverted, "{}", world.why(first));
    // One that is called back meanwhile says that it did not begin, as before.
    let (mut world, first, _) = acknowledged();
    world.command(RolloutCommand::Rollback);
    let refused = EventAnswer::Refused(EventRefusal::NotAsked);
    assert_eq!(world.say(first, waits(BeginRefusal::Frozen)), refused);
    assert_eq!(world.back(first), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Reverted);
}
