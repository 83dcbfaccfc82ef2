//! ROL-1: what waits for a time goes on at that second, a clock that is set back moves what was noted by exactly so much, and
//! time in which nobody could be heard is nobody's silence.

use std::time::Duration;

use ::model::Timestamp;
use ::model::window::DeclaredWindow;
use rollout::{
    ApprovedGate, BeginRefusal, CLOCK_BACK, MAX_STARTS, Placement, RolloutCommand, RolloutEventBody,
    RolloutInput, RolloutRules, RolloutState, STEP_GAP,
};
use trust::RolloutTerms;
use trust::rollout_terms::{FreezeTerms, WaveMembers};

use crate::model::driven::{Driven, joining, release};
use crate::model::terms::{selector, wave};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn two_waves(not_before: Option<Timestamp>) -> RolloutTerms {
    let first = WaveMembers::Where(selector("a"));
    let mut waves = vec![wave("first", first, 0, 100), wave("rest", WaveMembers::Rest, 0, 100)];
    waves[1].not_before = not_before;
    RolloutTerms { waves, ..RolloutTerms::default() }
}

fn tick(world: &mut Driven) {
    world.give(RolloutInput::Tick);
}

/// The first wave is through, and the second one has its time.
fn waiting() -> (Driven, Timestamp) {
    let at = Timestamp::from_secs(1_800_000_000 + 3600);
    let mut world = Driven::new(two_waves(Some(at)), &[("a", &[]), ("b", &[])]);
    world.activate("a");
    world.pass("a");
    world.converged("a", 0);
    assert!(!world.is_asked("b"));
    (world, at)
}

#[test]
fn a_wave_opens_at_its_second() {
    let (mut world, at) = waiting();
    assert_eq!(world.rollouts.next_deadline(), Some(at));
    world.now = at.minus(SECOND);
    tick(&mut world);
    assert!(!world.is_asked("b"));
    world.now = at;
    tick(&mut world);
    assert!(world.is_asked("b"));
}

#[test]
fn nothing_is_due_where_no_wave_may_open() {
    for command in [RolloutCommand::Pause, RolloutCommand::Abort] {
        let (mut world, at) = waiting();
        world.command(command);
        assert_eq!(world.rollouts.next_deadline(), None);
        world.now = at;
        tick(&mut world);
        assert!(!world.is_asked("b"));
    }
}

#[test]
fn a_clock_that_is_set_back_moves_what_was_noted() {
    let back = |by: Duration| {
        let mut world = Driven::new(two_waves(None), &[("a", &[]), ("b", &[])]);
        world.say("a", RolloutEventBody::DispatchAck);
        world.command(RolloutCommand::Approve(ApprovedGate::Newest));
        world.command(RolloutCommand::Pause);
        world.command(RolloutCommand::Abort);
        let (noted, began) = (world.member("a").deadline.unwrap(), world.now);
        world.now = began.minus(by);
        tick(&mut world);
        let document = world.rollouts.document(&world.key).unwrap();
        let deadline = noted.since(world.member("a").deadline.unwrap());
        let (paused, halt) = (document.paused.as_ref().unwrap().at, document.halt.as_ref().unwrap().at);
        let noted = [document.published, document.since, document.opened[0], document.opened[1]];
        let noted = noted.into_iter().chain([document.approvals[0].at, paused, halt]);
        let moved: Vec<Duration> = noted.map(|at| began.since(at)).chain([deadline]).collect();
        moved
    };
    assert_eq!(back(CLOCK_BACK), [Duration::ZERO; 8], "clocks differ by so much");
    let more = CLOCK_BACK + SECOND;
    assert_eq!(back(more), [more; 8]);
    assert_eq!(back(HOUR), [HOUR; 8]);
}

/// A halt by a clock that was a day ahead keeps no release waiting that comes after it.
#[test]
fn a_release_after_a_halt_begins_also_where_the_clock_was_set_back() {
    let mut world = Driven::new(two_waves(None), &[("a", &[]), ("b", &[])]);
    world.activate("a");
    world.fail("a");
    assert_eq!(world.state(), RolloutState::Failed);
    world.now = world.now.minus(HOUR * 24);
    tick(&mut world);
    world.now = world.now.plus(Duration::from_secs(60));
    let nodes = vec![joining("a", &[], Some(40)), joining("b", &[], Some(40))];
    let next = release(&world.key.channel.clone(), 42, two_waves(None), nodes);
    let key = next.key.clone();
    world.publish(next).unwrap();
    assert_eq!(world.rollouts.document(&key).unwrap().state, RolloutState::Active);
}

#[test]
fn time_without_a_step_is_added_to_what_is_waited_for() {
    let added = |gap: Duration| {
        let mut world = Driven::new(two_waves(None), &[("a", &[]), ("b", &[])]);
        world.say("a", RolloutEventBody::DispatchAck);
        let noted = world.member("a").deadline.unwrap();
        world.now = world.now.plus(gap);
        tick(&mut world);
        world.member("a").deadline.unwrap().since(noted)
    };
    assert_eq!(added(STEP_GAP), Duration::ZERO);
    assert_eq!(added(STEP_GAP + SECOND), STEP_GAP + SECOND);
}

#[test]
fn one_step_asks_so_many_and_the_next_the_others() {
    let names: Vec<String> = (0..=MAX_STARTS).map(|number| format!("h{number}")).collect();
    let nodes: Vec<(&str, &[(&str, &str)])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let mut world = Driven::new(RolloutTerms::default(), &nodes);
    world.command(RolloutCommand::Pause);
    let asked = |world: &Driven| names.iter().filter(|name| world.is_asked(name)).count();
    assert_eq!(asked(&world), 0);
    world.command(RolloutCommand::Resume);
    assert_eq!((asked(&world), world.rollouts.next_deadline()), (MAX_STARTS, Some(world.now)));
    tick(&mut world);
    assert_eq!(asked(&world), MAX_STARTS + 1);
}

/// What a node checks for itself, with a minute between the clocks.
#[test]
fn a_node_refuses_by_its_own_clock() {
    let minute = Duration::from_secs(60);
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let window = DeclaredWindow {
        days: Vec::new(),
        from: "06:00".to_owned(),
        to: "09:00".to_owned(),
        zone: "UTC".to_owned(),
        rules: None,
    };
    let terms = RolloutTerms {
        freeze: vec![FreezeTerms { name: "mornings".to_owned(), window }],
        ..two_waves(Some(at("2027-01-15T12:00:00Z")))
    };
    let rules = RolloutRules::new(std::sync::Arc::new(terms));
    let until = at("2027-01-15T15:00:00Z");
    let first = Placement::default();
    let rest = Placement { wave: 1, ..first };
    let pinned = Placement { pinned: Some(until), ..rest };
    for (placement, now, refusal) in [
        (rest, at("2027-01-15T11:00:00Z"), Some(BeginRefusal::NotBefore)),
        (rest, at("2027-01-15T11:59:00Z"), None),
        (first, at("2027-01-15T07:00:00Z"), Some(BeginRefusal::Frozen)),
        (first, at("2027-01-15T06:00:30Z"), None),
        (first, at("2027-01-15T11:00:00Z"), None),
        (pinned, until.minus(minute).minus(SECOND), Some(BeginRefusal::Pinned)),
        (pinned, until.minus(minute), None),
        (pinned, until, None),
    ] {
        assert_eq!(rules.refusal(&placement, now), refusal, "{placement:?} at {now}");
    }
}

#[test]
fn a_pause_is_no_end() {
    let (mut world, at) = waiting();
    world.command(RolloutCommand::Pause);
    world.now = at;
    tick(&mut world);
    world.command(RolloutCommand::Resume);
    assert!(world.is_asked("b"));
    assert_eq!(world.state(), RolloutState::Converging);
}
