//! ROL-1, ROL-5: a host keeps its way back until it hears that its rollout was through, and may go back by itself until then:
//! it counts as failed where it stands, its gate counts it, and nobody tells it to go on with what it left.

use ::model::rollout::RolloutTask;
use ::model::share::Share;
use rollout::member::{ASK_LEASE, MAX_ATTEMPTS};
use rollout::{
    EventAnswer, MemberFailure, NodeRolloutState, RolloutAnswer, RolloutCommand, RolloutEventBody,
    RolloutInput, RolloutKey, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::{OnFailure, WaveMembers};

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{budget, selector, wave};

const NONE: Labels<'static> = &[];

/// `a` goes first, the others a day later; one at a time, and what fails goes back.
fn terms() -> RolloutTerms {
    let first = WaveMembers::Where(selector("a"));
    let mut waves = vec![wave("canary", first, 60, 100), wave("rest", WaveMembers::Rest, 60, 100)];
    waves[1].not_before = Some(::model::Timestamp::from_secs(1_800_000_000 + 24 * 3600));
    RolloutTerms {
        waves,
        budgets: vec![budget("*", Some(Share::Count(1)), None)],
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

/// The canary is confirmed, and the second wave waits for its time.
fn canary_is_confirmed(terms: RolloutTerms) -> Driven {
    let mut world = Driven::new(terms, &[("a", NONE), ("b", NONE)]);
    confirm(&mut world, "a");
    assert_eq!((world.state(), world.is_asked("b")), (RolloutState::Active, false));
    world
}

/// All of them are confirmed.
fn through() -> Driven {
    let mut world = canary_is_confirmed(terms());
    world.wait(24 * 3600);
    confirm(&mut world, "b");
    assert_eq!(world.state(), RolloutState::Terminal);
    world
}

fn pointed(world: &Driven, name: &str) -> (Option<u64>, RolloutTask, bool) {
    let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
    (pointer.release, pointer.dispatch.task, pointer.dispatch.is_through())
}

#[test]
fn a_canary_that_goes_back_after_it_was_confirmed_halts_what_waits() {
    let mut world = canary_is_confirmed(terms());
    world.wait(2 * 3600);
    world.fail("a");
    assert_eq!(world.state(), RolloutState::Failed);
    assert!(world.member("a").in_flight(), "it is on its way, and nobody else begins");
    let cause = world.rollouts.document(&world.key).unwrap().halt.clone().unwrap().cause;
    assert_eq!(cause.to_string(), "1 of the nodes in wave canary failed, 0 may; one is a");
    assert!(world.why("a").ends_with("it failed: it says: probe web failed"), "{}", world.why("a"));
    assert_eq!(pointed(&world, "a"), (Some(40), RolloutTask::GoBack, false));
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    assert!(!world.member("a").in_flight());
    assert_eq!(pointed(&world, "a"), (Some(40), RolloutTask::Hold, false));
    assert_eq!(world.state(), RolloutState::Reverted, "and that is the end of it");
    world.wait(24 * 3600);
    assert!(!world.is_asked("a") && !world.is_asked("b"));
}

/// One whose log was lost in between, or whose watchdog took it back.
#[test]
fn who_only_says_that_it_is_back_counts_as_well() {
    let mut world = canary_is_confirmed(terms());
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    let member = world.member("a");
    assert_eq!((member.state, &member.failure), (NodeRolloutState::Reverted, &Some(MemberFailure::Returned)));
    assert_eq!(world.state(), RolloutState::Reverted, "its gate lets nobody fail");
    assert!(world.why("a").ends_with("it is back on the release that it had: it returned by itself"));
    assert_eq!(pointed(&world, "a"), (Some(40), RolloutTask::Hold, false), "it is not told to go on");
}

/// Where its terms say `halt` a host stays and says what its probes find.
#[test]
fn who_stays_counts_by_its_gate_and_leaves_its_slot() {
    let mut world = canary_is_confirmed(RolloutTerms { on_failure: OnFailure::Halt, ..terms() });
    world.fail("a");
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(pointed(&world, "a"), (Some(40), RolloutTask::Hold, false));
    assert!(world.member("a").in_flight());
    world.wait(3600);
    assert!(!world.member("a").in_flight(), "within what its gate lets fail");
}

/// Within its gate nobody is halted, and who waits for its slot waits until it is back.
#[test]
fn within_its_gate_the_others_wait_for_its_slot() {
    let mut lenient = terms();
    lenient.waves[0].gate.success = 0;
    let mut world = canary_is_confirmed(lenient);
    world.wait(24 * 3600 - 120);
    world.fail("a");
    world.wait(120);
    assert_eq!(world.state(), RolloutState::Converging);
    assert!(world.why("b").contains("1 nodes are in flight, and at most 1 may be"), "{}", world.why("b"));
    world.back("a");
    assert!(world.is_asked("b"), "{}", world.why("b"));
}

/// A host that heard nothing for a while goes back although its rollout was through: it failed, and nobody else is sent back.
#[test]
fn a_late_return_is_a_failure_of_that_node_alone() {
    let mut world = through();
    assert_eq!(pointed(&world, "b"), (Some(41), RolloutTask::Proceed, true));
    world.fail("b");
    assert_eq!(pointed(&world, "b"), (Some(40), RolloutTask::GoBack, false), "it has its way back");
    assert_eq!(pointed(&world, "a"), (Some(41), RolloutTask::Proceed, true), "and the other has none");
    assert_eq!(world.state(), RolloutState::Failed, "more failed than its gate allows");
    assert_eq!(world.back("b"), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Reverted);
    assert!(world.why("a").contains("is confirmed on") && !world.is_asked("a"));
    assert!(!world.member("b").in_flight());

    // A newer release reaches both, each from what it holds.
    world.wait(1);
    let nodes = vec![joining("a", NONE, Some(41)), joining("b", NONE, Some(40))];
    let waves = vec![wave("rest", WaveMembers::Rest, 60, 100)];
    let next =
        release(&world.key.channel.clone(), 42, RolloutTerms { waves, ..RolloutTerms::default() }, nodes);
    (world.key, world.id) = (next.key.clone(), next.id.clone());
    world.publish(next).unwrap();
    assert_eq!((world.member("a").before, world.member("b").before), (Some(41), Some(40)));
    confirm(&mut world, "b");
    assert_eq!(world.member("b").state, NodeRolloutState::Converged);
}

/// It was confirmed when the newer rollout began, so that one took its release for what the host holds.
#[test]
fn a_newer_rollout_leads_back_to_what_the_host_holds() {
    for says_first in [true, false] {
        let mut world = through();
        let older = world.id.clone();
        let nodes = vec![joining("a", NONE, Some(41)), joining("b", NONE, Some(41))];
        let mut later = terms();
        later.waves[1].not_before = None;
        let next = release(&world.key.channel.clone(), 42, later, nodes);
        let key = next.key.clone();
        world.publish(next).unwrap();
        let before = |world: &Driven| world.rollouts.member(&key, &node_id("b")).unwrap().before;
        assert_eq!(before(&world), Some(41));
        if says_first {
            world.fail("b");
            assert_eq!(pointed(&world, "b"), (Some(40), RolloutTask::Hold, false), "it is on its way there");
        }
        assert_eq!(world.back("b"), EventAnswer::Accepted);
        assert_eq!(before(&world), Some(40));
        let pointer = world.rollouts.pointer(&node_id("b")).unwrap();
        assert_eq!((pointer.rollout.seq, pointer.release), (42, Some(40)));
        assert_ne!(pointer.dispatch.rollout, older);
    }
}

/// One that is confirmed, is asked to go back and does not answer is given up as one that never began is: the rollout comes to
/// its end, and says so.
#[test]
fn who_never_answers_that_it_goes_back_holds_up_no_end() {
    let mut world = canary_is_confirmed(terms());
    assert_eq!(world.command(RolloutCommand::Rollback), RolloutAnswer::Command(Ok(())));
    for attempt in 1..u32::from(MAX_ATTEMPTS) {
        assert!(world.is_asked("a"), "{attempt}");
        world.wait(ASK_LEASE.as_secs());
        assert_eq!((world.state(), world.is_asked("a")), (RolloutState::Failed, false));
        world.wait(60 * 2u64.pow(attempt - 1));
    }
    world.wait(ASK_LEASE.as_secs());
    assert_eq!(world.state(), RolloutState::Reverted);
    assert!(!world.member("a").in_flight());
    assert!(world.why("a").ends_with("it failed: it is online and does not answer"), "{}", world.why("a"));
    assert_eq!(pointed(&world, "a").1, RolloutTask::Hold, "without a slot it is not sent back");
    // What it is on is what a newer release leads from.
    let next = release(
        &world.key.channel.clone(),
        42,
        RolloutTerms::default(),
        vec![joining("a", NONE, Some(41)), joining("b", NONE, Some(40))],
    );
    let key = next.key.clone();
    world.publish(next).unwrap();
    let before = |name| world.rollouts.member(&key, &node_id(name)).unwrap().before;
    assert_eq!((before("a"), before("b")), (Some(41), Some(40)));
    // It was back all along, and says so at last.
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    let before = |name| world.rollouts.member(&key, &node_id(name)).unwrap().before;
    assert_eq!(before("a"), Some(40));
}

/// A release that goes to all at once ends what is under way, also for who goes back later.
#[test]
fn an_end_for_all_frees_the_slot_of_who_goes_back_later() {
    let mut world = through();
    let head = RolloutKey { seq: 42, ..world.key.clone() };
    world.give(RolloutInput::AtOnce { head });
    assert_eq!(world.state(), RolloutState::Superseded);
    assert_eq!(
        world.say("b", RolloutEventBody::Failed { message: "late".to_owned() }),
        EventAnswer::Accepted
    );
    assert_eq!(world.back("b"), EventAnswer::Accepted);
    assert!(!world.member("b").in_flight());
}

/// What it is back on is what it says: the release that it had, also one of another channel, or none.
#[test]
fn it_is_told_what_a_host_is_back_on() {
    let (had, found) =
        ("it is back on the release that it had", "it is back as it was found, without a release");
    for (before, says, words) in [
        (Some(40), 40, had),
        // It is pointed to that one, and a host that holds none adopts it at once.
        (Some(40), 0, had),
        (None, 7, had),
        (None, 0, found),
    ] {
        let mut world = Driven::new(terms(), &[]);
        let first = release(&"new".parse().unwrap(), 41, terms(), vec![joining("a", NONE, before)]);
        (world.key, world.id) = (first.key.clone(), first.id.clone());
        assert_eq!(world.publish(first), Ok(()));
        world.contact("a", ::model::status::Contact::Online);
        world.activate("a");
        world.fail("a");
        let back = RolloutEventBody::RollbackComplete { release: says };
        assert_eq!(world.say("a", back), EventAnswer::Accepted);
        let said = format!("{words}: it says: probe web failed");
        assert!(world.why("a").ends_with(&said), "had {before:?}, says {says}: {}", world.why("a"));
    }
}
