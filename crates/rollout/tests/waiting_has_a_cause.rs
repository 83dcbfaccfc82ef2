//! ROL-1: every node that has not changed yet has a cause that a person can read, and each bound of a rollout
//! holds in the plainest case.

use std::time::Duration;

use ::model::rollout::RolloutTask;
use ::model::share::Share;
use ::model::status::Contact;
use ::model::window::DeclaredWindow;
use ::model::{Channel, Timestamp};
use rollout::member::MAX_ATTEMPTS;
use rollout::{
    ApprovedGate, BeginRefusal, BeginWait, CommandRefusal, EventAnswer, HaltCause, MemberFailure,
    NodeRolloutState, RolloutAnswer, RolloutCommand, RolloutEffect, RolloutEventBody, RolloutInput,
    RolloutKey, RolloutState, WaitCause,
};
use trust::RolloutTerms;
use trust::rollout_terms::{FreezeTerms, NodeEdge, OnFailure, PinTerms, WaveMembers};

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{budget, selector, wave};

const DB: Labels<'static> = &[("tier", "db"), ("ring", "0")];
const WEB: Labels<'static> = &[("tier", "web"), ("ring", "1")];

fn canary_first() -> RolloutTerms {
    let canary = WaveMembers::Where(selector("ring=0"));
    let waves = vec![wave("canary", canary, 60, 100), wave("rest", WaveMembers::Rest, 60, 100)];
    RolloutTerms { waves, ..RolloutTerms::default() }
}

fn all_at_once() -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 60, 100)], ..RolloutTerms::default() }
}

fn through(world: &mut Driven, name: &str) {
    world.activate(name);
    confirm(world, name);
}

fn confirm(world: &mut Driven, name: &str) {
    world.pass(name);
    world.wait(60);
    assert_eq!(world.converged(name, 60), EventAnswer::Accepted);
}

#[test]
fn a_wave_waits_for_the_gate_before_it() {
    let mut world = Driven::new(canary_first(), &[("db", DB), ("web", WEB)]);
    assert!(world.why("db").contains("was asked at 2027-"), "{}", world.why("db"));
    assert!(world.why("web").ends_with(
        "(wave rest): its wave is closed: of wave canary 0 did not begin, 1 are on their way and 0 failed"
    ));
    world.activate("db");
    assert!(world.why("db").ends_with("it soaks, and no probes were declared"), "{}", world.why("db"));
    world.pass("db");
    assert!(world.why("db").ends_with("its probes pass, and it soaks"));
    world.wait(60);
    assert_eq!(world.converged("db", 60), EventAnswer::Accepted);
    assert!(world.why("db").contains("is confirmed on stable@"));
    assert!(world.is_asked("web"));
    let notes: Vec<String> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            RolloutEffect::Note { note, .. } => Some(note.to_string()),
            RolloutEffect::Wake(_) => None,
        })
        .collect();
    assert_eq!(
        notes,
        [
            "wave rest opened: of the wave before 1 are confirmed, 0 failed, 0 are offline, paused, pinned or taken out",
            "web is asked to be on release 41"
        ]
    );
    assert_eq!(world.state(), RolloutState::Converging);
    through(&mut world, "web");
    assert_eq!(world.state(), RolloutState::Terminal);
}

#[test]
fn a_failure_halts_the_rest_of_the_same_wave() {
    let terms = RolloutTerms { budgets: vec![budget("*", Some(Share::Count(1)), None)], ..all_at_once() };
    let mut world = Driven::new(terms, &[("a", WEB), ("b", WEB)]);
    let (first, second) = if world.is_asked("a") { ("a", "b") } else { ("b", "a") };
    assert!(world.why(second).ends_with("of `*` 1 nodes are in flight, and at most 1 may be"));
    world.activate(first);
    world.fail(first);
    assert_eq!(world.state(), RolloutState::Failed);
    assert!(world.why(first).ends_with("it failed: it says: probe web failed"));
    world.back(first);
    assert!(!world.is_asked(second), "a halted rollout starts nothing");
    let why = world.why(second);
    assert!(
        why.contains("starts nothing any more: 1 of the nodes in wave rest failed, 0 may; one is "),
        "{why}"
    );
    world.command(RolloutCommand::Resume);
    assert!(world.is_asked(second), "an operator lets it go on");
    through(&mut world, second);
    assert_eq!(world.state(), RolloutState::Terminal);
}

#[test]
fn a_failed_node_that_is_not_back_is_in_flight() {
    let mut waves = all_at_once().waves;
    waves[0].gate.success = 50;
    let budgets = vec![budget("*", Some(Share::Count(1)), None)];
    let mut world =
        Driven::new(RolloutTerms { waves, budgets, ..RolloutTerms::default() }, &[("a", WEB), ("b", WEB)]);
    let (first, second) = if world.is_asked("a") { ("a", "b") } else { ("b", "a") };
    world.activate(first);
    world.fail(first);
    assert!(!world.is_asked(second));
    world.back(first);
    assert!(world.is_asked(second));
}

#[test]
fn rollback_takes_back_what_was_started_under_the_same_budget() {
    let mut terms = all_at_once();
    terms.on_failure = OnFailure::Rollback;
    terms.budgets = vec![budget("*", Some(Share::Count(1)), None)];
    let mut world = Driven::new(terms, &[("a", WEB), ("b", WEB), ("c", WEB)]);
    let asked = |world: &Driven| ["a", "b", "c"].into_iter().find(|name| world.is_asked(name));
    let first = asked(&world).unwrap();
    through(&mut world, first);
    let second = asked(&world).unwrap();
    through(&mut world, second);
    let third = asked(&world).unwrap();
    world.activate(third);
    world.fail(third);
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(asked(&world), None, "the failed one holds the slot");
    assert_eq!(world.back(third), EventAnswer::Accepted);
    for _ in 0..2 {
        let back = asked(&world).unwrap();
        assert_eq!(world.state(), RolloutState::Failed);
        assert_eq!(world.say(back, RolloutEventBody::DispatchAck), EventAnswer::Accepted);
        assert!(world.why(back).ends_with("it goes back to the release that it had"));
        assert_eq!(world.rollouts.pointer(&node_id(back)).unwrap().release, Some(40));
        assert_eq!(world.back(back), EventAnswer::Accepted);
    }
    assert_eq!(world.state(), RolloutState::Reverted);
    let refused = Err(CommandRefusal::NoRollback);
    let mut halting = Driven::new(all_at_once(), &[("a", WEB)]);
    assert_eq!(halting.command(RolloutCommand::Rollback), RolloutAnswer::Command(refused));
}

#[test]
fn edges_pins_freezes_and_times_are_named() {
    let mut terms = all_at_once();
    terms.edges = vec![NodeEdge { before: selector("tier=db"), after: selector("tier=web") }];
    let until = ::model::Timestamp::from_secs(1_800_086_400);
    let pin = PinTerms { nodes: vec!["pinned".parse().unwrap()], until, reason: "ticket 812".to_owned() };
    terms.pins = vec![pin];
    let mut world = Driven::new(terms, &[("db", DB), ("web", WEB), ("pinned", &[])]);
    assert!(world.why("web").ends_with("1 nodes of `tier=db` go before it"), "{}", world.why("web"));
    assert!(world.why("pinned").ends_with("it is pinned until 2027-01-16T08:00:00Z (ticket 812)"));
    world.contact("db", Contact::Unreachable);
    world.wait(700);
    assert!(world.why("db").ends_with("it is not reached at the moment"));
    assert!(!world.is_asked("web"));
    world.contact("db", Contact::Offline);
    assert!(world.is_asked("web"), "who is offline holds nobody");
    through(&mut world, "web");
    assert_eq!(world.state(), RolloutState::Terminal, "offline and pinned nodes hold no wave");
    world.contact("db", Contact::Online);
    assert!(world.is_asked("db"), "who returns is taken along");
    through(&mut world, "db");
    world.wait(86_400);
    assert!(world.is_asked("pinned"), "a pin ends");
}

/// What holds others back is not the cause of one that waits for something else. One that has nothing yet waits as any other.
#[test]
fn an_edge_holds_those_alone_whom_it_names() {
    let mut terms = all_at_once();
    terms.edges = vec![
        NodeEdge { before: selector("tier=mail"), after: selector("tier=news") },
        NodeEdge { before: selector("tier=db"), after: selector("tier=web") },
    ];
    terms.budgets = vec![budget("ring=2", None, Some(1))];
    let (two, db): (Labels<'static>, Labels<'static>) = (&[("ring", "2")], &[("tier", "db"), ("ring", "2")]);
    let mut world = Driven::new(terms, &[("db", db), ("web", WEB), ("two", two)]);
    assert!(world.is_asked("db"));
    assert!(world.why("web").ends_with("1 nodes of `tier=db` go before it"), "{}", world.why("web"));
    let why = world.why("two");
    assert!(why.ends_with("of `ring=2` 1 nodes are in flight, and at most 1 may be"), "{why}");
    let channel = world.key.channel.clone();
    world.give(RolloutInput::Joined { channel, node: joining("new", WEB, None) });
    world.contact("new", Contact::Online);
    assert!(world.why("new").ends_with("1 nodes of `tier=db` go before it"), "{}", world.why("new"));
}

/// A circle holds nobody while somebody closes it.
#[test]
fn a_circle_of_edges_ends_with_the_last_who_closes_it() {
    let mut terms = all_at_once();
    let edge = |before: &str, after: &str| NodeEdge { before: selector(before), after: selector(after) };
    terms.edges = vec![edge("tier=db", "tier=web"), edge("ring=0", "tier=db")];
    let (db, web): (Labels<'static>, Labels<'static>) = (&[("tier", "db")], &[("tier", "web")]);
    let both: Labels<'static> = &[("tier", "web"), ("ring", "0")];
    for (removed, is_asked) in [(0, true), (1, true), (2, false)] {
        let mut world = Driven::new(terms.clone(), &[]);
        let channel = world.key.channel.clone();
        for (name, labels) in [("db", db), ("web", web), ("both1", both), ("both2", both)] {
            let node = joining(name, labels, Some(40));
            world.give(RolloutInput::Joined { channel: channel.clone(), node });
        }
        for name in ["both1", "both2"].into_iter().take(removed) {
            world.give(RolloutInput::Removed { channel: channel.clone(), node: node_id(name) });
        }
        world.contact("web", Contact::Online);
        assert_eq!(world.is_asked("web"), is_asked, "without {removed}: {}", world.why("web"));
    }
}

#[test]
fn a_pin_without_a_reason_has_none() {
    let until = ::model::Timestamp::from_secs(1_800_086_400);
    let pins = vec![PinTerms { nodes: vec!["a".parse().unwrap()], until, reason: String::new() }];
    let world = Driven::new(RolloutTerms { pins, ..all_at_once() }, &[("a", WEB)]);
    assert!(world.why("a").ends_with("it is pinned until 2027-01-16T08:00:00Z"), "{}", world.why("a"));
}

/// A channel is not through for others while nodes of it wait for their boot.
#[test]
fn who_waits_for_its_boot_holds_the_channel_that_goes_after() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    world.say("a", RolloutEventBody::DispatchAck);
    world.say("a", RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() });
    assert_eq!(world.state(), RolloutState::Terminal);
    let late: Channel = "late".parse().unwrap();
    let terms = RolloutTerms { after: vec![world.key.channel.clone()], ..all_at_once() };
    assert_eq!(world.publish(release(&late, 41, terms, vec![joining("b", WEB, Some(40))])), Ok(()));
    world.contact("b", Contact::Online);
    assert!(world.why("b").ends_with("channel stable goes first, and its newest rollout is not through"));
    world.say("a", RolloutEventBody::ActivationComplete { release: 41, boot: "boot-1".to_owned() });
    world.pass("a");
    world.wait(60);
    assert_eq!(world.converged("a", 60), EventAnswer::Accepted);
    assert!(world.why("b").contains("was asked"), "{}", world.why("b"));
}

#[test]
fn nothing_starts_in_a_freeze_or_before_its_time() {
    let mut terms = canary_first();
    let all_day = |from: &str, to: &str| DeclaredWindow {
        days: Vec::new(),
        from: from.to_owned(),
        to: to.to_owned(),
        zone: "UTC".to_owned(),
        rules: None,
    };
    // 2027-01-15T08:00:00Z.
    terms.freeze = vec![FreezeTerms { name: "mornings".to_owned(), window: all_day("06:00", "09:00") }];
    let at = ::model::Timestamp::from_secs(1_800_000_000 + 3 * 3600);
    terms.waves[1].not_before = Some(at);
    let mut world = Driven::new(terms, &[("db", DB), ("web", WEB)]);
    assert!(world.why("db").ends_with("the freeze window mornings is open"), "{}", world.why("db"));
    let thaw = world.rollouts.next_deadline().unwrap();
    assert_eq!(thaw, world.now.plus(Duration::from_secs(3600)));
    world.wait(3600);
    assert!(world.is_asked("db"));
    through(&mut world, "db");
    assert!(
        world.why("web").contains("wave rest begins at 2027-01-15T11:00:00Z (in "),
        "{}",
        world.why("web")
    );
    world.command(RolloutCommand::Approve(ApprovedGate::Newest));
    assert!(!world.is_asked("web"), "an operator passes a gate, never the time");
    assert_eq!(world.rollouts.next_deadline(), Some(at));
    world.wait(2 * 3600);
    assert!(world.is_asked("web"), "{}", world.why("web"));
}

#[test]
fn one_rollout_of_a_channel_at_a_time_and_the_newest_waits() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let channel = world.key.channel.clone();
    for seq in [42, 43] {
        let new = release(&channel, seq, all_at_once(), vec![joining("a", WEB, Some(40))]);
        assert_eq!(world.publish(new), Ok(()));
    }
    let state = |world: &Driven, seq| {
        world.rollouts.document(&RolloutKey { channel: channel.clone(), seq }).map(|document| document.state)
    };
    assert_eq!(state(&world, 42), Some(RolloutState::Superseded));
    assert_eq!(state(&world, 43), Some(RolloutState::Opening));
    world.activate("a");
    world.fail("a");
    assert_eq!(state(&world, 43), Some(RolloutState::Opening), "it waited when the halt came");
    let approve = RolloutCommand::Approve(ApprovedGate::Newest);
    let rollout = RolloutKey { channel: channel.clone(), seq: 43 };
    world.give(RolloutInput::Command { rollout, by: "ada".to_owned(), command: approve });
    assert_eq!(state(&world, 43), Some(RolloutState::Converging));
    assert_eq!(state(&world, 41), Some(RolloutState::Superseded));
}

/// What waited when the halt came begins by itself neither before all is back nor after.
#[test]
fn what_waits_goes_on_waiting_when_the_one_before_is_back() {
    let mut world =
        Driven::new(RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() }, &[("a", WEB)]);
    let channel = world.key.channel.clone();
    let waits = RolloutKey { channel: channel.clone(), seq: 42 };
    assert_eq!(
        world.publish(release(&channel, 42, all_at_once(), vec![joining("a", WEB, Some(40))])),
        Ok(())
    );
    world.activate("a");
    world.fail("a");
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Reverted);
    assert_eq!(world.rollouts.waits_to_begin(&waits), Some(BeginWait::Halted(41)));
    assert!(!world.is_asked("a"));
    world.wait(1);
    let fix = release(&channel, 43, all_at_once(), vec![joining("a", WEB, Some(40))]);
    assert_eq!(world.publish(fix), Ok(()));
    let began = RolloutKey { channel, seq: 43 };
    assert_eq!(world.rollouts.document(&began).unwrap().state, RolloutState::Converging);
}

/// Who was asked and goes offline before it answers is waited for no longer than anybody who is offline.
#[test]
fn who_goes_offline_while_it_is_asked_holds_up_nobody() {
    let terms = RolloutTerms { budgets: vec![budget("*", Some(Share::Count(1)), None)], ..all_at_once() };
    let mut world = Driven::new(terms, &[("a", WEB), ("b", WEB)]);
    let (first, second) = if world.is_asked("a") { ("a", "b") } else { ("b", "a") };
    world.contact(first, Contact::Unreachable);
    assert!(world.is_asked(first) && !world.is_asked(second), "it may answer still");
    world.contact(first, Contact::Offline);
    assert!(!world.is_asked(first) && world.is_asked(second));
    // What it said before it fell silent begins nothing.
    assert_eq!(
        world.say(first, RolloutEventBody::DispatchAck),
        EventAnswer::Refused(rollout::EventRefusal::NotAsked)
    );
    through(&mut world, second);
    assert_eq!(world.state(), RolloutState::Terminal);
    world.contact(first, Contact::Online);
    assert!(world.is_asked(first));
}

/// A clock that is set back leaves what was published before a halt before it.
#[test]
fn a_clock_set_back_lets_nothing_begin_that_waits_behind_a_halt() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let (channel, published) = (world.key.channel.clone(), world.now);
    let waits = RolloutKey { channel: channel.clone(), seq: 42 };
    let new = release(&channel, 42, all_at_once(), vec![joining("a", WEB, Some(40))]);
    assert_eq!(world.publish(new), Ok(()));
    world.activate("a");
    world.wait(1200);
    world.fail("a");
    world.wait(8 * 3600);
    world.now = published.plus(Duration::from_secs(600));
    world.give(RolloutInput::Tick);
    assert_eq!(world.rollouts.waits_to_begin(&waits), Some(BeginWait::Halted(41)));
}

/// A channel's first release halts and goes nowhere back, whatever its terms say: its nodes had none before.
#[test]
fn a_first_release_is_halted_and_nobody_can_take_it_back() {
    let mut world = Driven::new(RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() }, &[]);
    let channel = world.key.channel.clone();
    for name in ["a", "b"] {
        world.give(RolloutInput::Joined { channel: channel.clone(), node: joining(name, WEB, None) });
        world.contact(name, Contact::Online);
        world.activate(name);
    }
    let refused = RolloutAnswer::Command(Err(CommandRefusal::NoEarlierRelease));
    assert_eq!(world.command(RolloutCommand::Rollback), refused);
    world.fail("a");
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    confirm(&mut world, "b");
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(world.command(RolloutCommand::Rollback), refused);
    assert_eq!(world.command(RolloutCommand::Resume), RolloutAnswer::Command(Ok(())));
}

/// Nobody sends back a host that had no release, so the rollout is not back while one is on its way.
#[test]
fn a_rollout_is_back_when_nobody_is_on_its_way() {
    let terms = RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() };
    let mut world = Driven::new(terms, &[("before", &[])]);
    let channel = world.key.channel.clone();
    for name in ["a", "b"] {
        world.give(RolloutInput::Joined { channel: channel.clone(), node: joining(name, WEB, None) });
        world.contact(name, Contact::Online);
        world.activate(name);
    }
    world.fail("a");
    assert_eq!(world.state(), RolloutState::Failed);
    assert_eq!(world.back("a"), EventAnswer::Accepted);
    assert_eq!(world.state(), RolloutState::Failed, "the other one soaks");
    confirm(&mut world, "b");
    assert_eq!(world.state(), RolloutState::Reverted);
    assert_eq!(world.member("b").state, NodeRolloutState::Converged, "it has nothing to go back to");
}

#[test]
fn a_channel_goes_after_another() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let late: Channel = "late".parse().unwrap();
    let terms = RolloutTerms { after: vec![world.key.channel.clone()], ..all_at_once() };
    assert_eq!(world.publish(release(&late, 41, terms, vec![joining("b", WEB, Some(40))])), Ok(()));
    world.contact("b", Contact::Online);
    assert!(world.why("b").ends_with("channel stable goes first, and its newest rollout is not through"));
    through(&mut world, "a");
    assert!(world.why("b").contains("was asked"), "{}", world.why("b"));
}

/// Releases of one publish are known before any begins: whichever channel's name comes first.
#[test]
fn a_channel_goes_after_another_of_the_same_publish() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let stable = world.key.channel.clone();
    for name in ["edge", "zone"] {
        // The one before is through, and would let it go.
        through(&mut world, "a");
        let seq = world.key.seq + 1;
        let terms = RolloutTerms { after: vec![stable.clone()], ..all_at_once() };
        let newer = release(&stable, seq, all_at_once(), vec![joining("a", WEB, Some(seq - 1))]);
        let other = release(&name.parse().unwrap(), seq, terms, vec![joining(name, WEB, Some(40))]);
        (world.key, world.id) = (newer.key.clone(), newer.id.clone());
        let waits = other.key.clone();
        assert_eq!(world.publish_together(vec![other, newer]), Ok(()));
        world.contact(name, Contact::Online);
        assert_eq!(world.rollouts.waits_to_begin(&waits), Some(BeginWait::Channel(stable.clone())), "{name}");
        assert!(world.rollouts.member(&waits, &node_id(name)).unwrap().asked.is_none(), "{name}");
    }
}

/// A halt is no end: whoever goes after it waits until an operator lets it go on.
#[test]
fn a_channel_waits_for_one_that_was_halted() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB), ("b", WEB)]);
    let late: Channel = "late".parse().unwrap();
    let terms = RolloutTerms { after: vec![world.key.channel.clone()], ..all_at_once() };
    assert_eq!(world.publish(release(&late, 41, terms, vec![joining("c", WEB, Some(40))])), Ok(()));
    world.contact("c", Contact::Online);
    world.activate("a");
    world.fail("a");
    world.back("a");
    assert_eq!(world.state(), RolloutState::Failed);
    for _ in 0..2 {
        assert!(world.why("c").ends_with("channel stable goes first, and its newest rollout is not through"));
        world.wait(86_400);
    }
    world.command(RolloutCommand::Resume);
    through(&mut world, "b");
    assert!(world.why("c").contains("was asked"), "{}", world.why("c"));
}

/// One after the other, and nobody where they would wait for one another.
#[test]
fn channels_go_one_after_the_other_and_circles_hold_nobody() {
    let after = |channel: &str| RolloutTerms { after: vec![channel.parse().unwrap()], ..all_at_once() };
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    for (channel, before, node) in [("mid", "stable", "m"), ("late", "mid", "l")] {
        let nodes = vec![joining(node, WEB, Some(40))];
        assert_eq!(world.publish(release(&channel.parse().unwrap(), 41, after(before), nodes)), Ok(()));
        world.contact(node, Contact::Online);
        let waits = format!("channel {before} goes first, and its newest rollout is not through");
        assert!(world.why(node).ends_with(&waits), "{}", world.why(node));
    }
    // The next release of the first one would wait for the last.
    let stable = world.key.channel.clone();
    let nodes = vec![joining("a", WEB, Some(40))];
    assert_eq!(world.publish(release(&stable, 42, after("late"), nodes)), Ok(()));
    assert!(world.is_asked("a"), "what runs goes on");
    assert!(world.why("l").contains("was asked"), "{}", world.why("l"));
    assert!(world.why("m").ends_with("channel stable goes first, and its newest rollout is not through"));
}

/// Nobody is waited for who did not begin.
#[test]
fn who_refused_for_good_is_back_at_once() {
    let mut world =
        Driven::new(RolloutTerms { on_failure: OnFailure::Rollback, ..all_at_once() }, &[("a", WEB)]);
    for attempt in 0..5 {
        let code = "proof".to_owned();
        assert_eq!(world.say("a", RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
        if attempt < 4 {
            world.wait(60 << attempt);
        }
    }
    assert_eq!(world.state(), RolloutState::Reverted, "{}", world.why("a"));
}

#[test]
fn two_rollouts_share_a_budget() {
    let shared = || RolloutTerms { budgets: vec![budget("*", None, Some(1))], ..all_at_once() };
    let mut world = Driven::new(shared(), &[("a", WEB)]);
    let late: Channel = "late".parse().unwrap();
    assert_eq!(world.publish(release(&late, 41, shared(), vec![joining("b", WEB, Some(40))])), Ok(()));
    world.contact("b", Contact::Online);
    assert!(world.why("b").ends_with("of `*` 1 nodes are in flight, and at most 1 may be"));
    through(&mut world, "a");
    assert!(world.why("b").contains("was asked"));
}

#[test]
fn a_slot_that_a_halt_frees_is_taken_in_the_same_step() {
    let shared = || RolloutTerms { budgets: vec![budget("*", None, Some(2))], ..all_at_once() };
    let mut world = Driven::new(shared(), &[("a", WEB), ("b", WEB)]);
    let late: Channel = "late".parse().unwrap();
    assert_eq!(world.publish(release(&late, 41, shared(), vec![joining("c", WEB, Some(40))])), Ok(()));
    world.contact("c", Contact::Online);
    assert!(world.why("c").ends_with("of `*` 2 nodes are in flight, and at most 2 may be"));
    world.activate("a");
    world.fail("a");
    assert!(!world.is_asked("b"), "what was asked and did not begin is called off");
    assert!(world.why("c").contains("was asked"), "{}", world.why("c"));
}

/// A node that had no release waits for its wave as any other, and is pointed to nothing until then.
#[test]
fn who_joins_is_in_its_wave_whether_it_had_a_release_or_none() {
    let mut world = Driven::new(canary_first(), &[("db", DB)]);
    let channel = world.key.channel.clone();
    for (name, before) in [("late", Some(40)), ("new", None)] {
        world.give(RolloutInput::Joined { channel: channel.clone(), node: joining(name, WEB, before) });
        world.contact(name, Contact::Online);
    }
    for (name, before) in [("late", Some(40)), ("new", None)] {
        assert!(world.why(name).contains("its wave is closed"), "{}", world.why(name));
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (before, RolloutTask::Hold), "{name}");
    }
    world.activate("db");
    world.give(RolloutInput::Removed { channel, node: node_id("db") });
    assert!(world.is_asked("late") && world.is_asked("new"), "who is removed in mid-wave holds nobody");
    assert!(world.why("db").is_empty());
}

/// The first release of a channel goes through its waves: one that fails there halts it, and nobody else gets it. The host goes
/// back to how it was found.
#[test]
fn a_first_release_goes_wave_by_wave() {
    let mut world = Driven::new(all_at_once(), &[]);
    let channel: Channel = "new".parse().unwrap();
    let nodes = vec![joining("db", DB, None), joining("web", WEB, None)];
    let first = release(&channel, 42, canary_first(), nodes);
    (world.key, world.id) = (first.key.clone(), first.id.clone());
    assert_eq!(world.publish(first), Ok(()));
    for name in ["db", "web"] {
        world.contact(name, Contact::Online);
    }
    assert!(world.is_asked("db") && !world.is_asked("web"));
    assert_eq!(world.state(), RolloutState::Active, "nobody is confirmed");
    world.activate("db");
    world.fail("db");
    assert_eq!(world.state(), RolloutState::Failed);
    assert!(world.member("db").in_flight(), "until it is back");
    let back = RolloutEventBody::RollbackComplete { release: 0 };
    assert_eq!(world.say("db", back), EventAnswer::Accepted);
    assert!(!world.member("db").in_flight() && world.member("db").state == NodeRolloutState::Reverted);
    for name in ["db", "web"] {
        let pointer = world.rollouts.pointer(&node_id(name)).unwrap();
        assert_eq!((pointer.release, pointer.dispatch.task), (None, RolloutTask::Hold), "{name}");
    }
    world.give(RolloutInput::Joined { channel, node: joining("late", DB, None) });
    world.contact("late", Contact::Online);
    assert!(!world.is_asked("late"), "behind a halt who comes gets nothing");
}

#[test]
fn who_refuses_is_asked_again_and_then_no_more() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    for attempt in 1..=5 {
        assert!(world.is_asked("a"), "{}", world.why("a"));
        let code = "proof".to_owned();
        assert_eq!(world.say("a", RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
        if attempt < 5 {
            assert!(world.why("a").contains(&format!("({attempt} times), and is asked again at")));
            world.wait(60 << (attempt - 1));
        }
    }
    assert_eq!(world.member("a").state, NodeRolloutState::Failed);
    assert!(world.why("a").ends_with("it failed: it refuses the release: proof"));
}

/// Its administrator paused it, or its clock says otherwise: that says nothing against the release, however long it lasts.
/// Who is paused or pinned holds up nobody. Whom its clock keeps is waited for: else a control plane whose clock is ahead would
/// open wave after wave with nobody in it.
#[test]
fn who_says_why_it_does_not_begin_yet_is_asked_again_and_holds_its_wave_by_its_clock_alone() {
    let words = [
        (BeginRefusal::NotBefore, "its wave has not begun by its own clock", true),
        (BeginRefusal::Frozen, "a freeze window is open by its own clock", true),
        (BeginRefusal::Pinned, "it is pinned by its own clock", false),
        (BeginRefusal::Paused, "its administrator paused it", false),
    ];
    for (why, words, is_waited_for) in words {
        let mut world = Driven::new(canary_first(), &[("db", DB), ("web", WEB)]);
        let reject = || RolloutEventBody::DispatchReject { code: why.code().to_owned() };
        for time in 1..=3 * u32::from(MAX_ATTEMPTS) {
            assert!(world.is_asked("db"), "{}", world.why("db"));
            assert_eq!(world.say("db", reject()), EventAnswer::Accepted);
            assert_eq!(world.member("db").attempts, 0);
            let said =
                format!("db is pending in {} (wave canary): {words}, so it is asked again at ", world.id);
            assert!(world.why("db").starts_with(&said), "{}", world.why("db"));
            assert!(!world.is_asked("db"));
            match time {
                1 if !is_waited_for => through(&mut world, "web"),
                _ => world.wait(60 * 2u64.pow(time.min(5) - 1)),
            }
            assert!(!is_waited_for || !world.is_asked("web"), "{why}: nobody is confirmed yet");
        }
        let expected = if is_waited_for { RolloutState::Active } else { RolloutState::Terminal };
        assert_eq!(world.state(), expected, "{why}");
        // It may begin at last.
        through(&mut world, "db");
        assert_eq!(world.member("db").held_off, None);
        assert_eq!(world.is_asked("web"), is_waited_for, "{why}");
    }
}

/// Other words, and silence, count from then on: what it said before is no excuse.
#[test]
fn who_was_held_off_fails_as_any_other_once_it_refuses() {
    let mut world = Driven::new(all_at_once(), &[("a", WEB)]);
    let reject = |code: &str| RolloutEventBody::DispatchReject { code: code.to_owned() };
    world.say("a", reject(BeginRefusal::Paused.code()));
    world.wait(60);
    assert_eq!(world.state(), RolloutState::Terminal, "nobody else is waited for");
    for attempt in 1..=u32::from(MAX_ATTEMPTS) {
        assert!(world.is_asked("a"), "{}", world.why("a"));
        world.say("a", reject("proof"));
        assert_eq!((world.member("a").held_off, u32::from(world.member("a").attempts)), (None, attempt));
        world.wait(60 << (attempt - 1));
    }
    assert_eq!(world.member("a").failure, Some(MemberFailure::Refused { code: "proof".to_owned() }));
}

/// Nodes and control planes have one list of codes, and it is what is stored.
#[test]
fn each_reason_has_a_code() {
    for why in BeginRefusal::ALL {
        assert_eq!(BeginRefusal::of_code(why.code()), Some(why));
        assert_eq!(serde_json::to_value(why).unwrap(), why.code());
    }
    assert_eq!(BeginRefusal::of_code("proof"), None);
}

/// OPS-5: for who may see one node alone.
#[test]
fn what_is_told_of_one_node_has_no_names_or_numbers_of_others() {
    let by = || "ada".to_owned();
    let example = "web-17".parse().unwrap();
    let gate = HaltCause::Gate { wave: "canary".to_owned(), failed: 3, allowed: 2, example };
    let of = || "tier=db".to_owned();
    for cause in [
        WaitCause::Halted(Some(gate)),
        WaitCause::Halted(Some(HaltCause::Aborted { by: by() })),
        WaitCause::Halted(Some(HaltCause::RolledBack { by: by() })),
        WaitCause::Halted(Some(HaltCause::ReplacedAtOnce { seq: 43 })),
        WaitCause::Paused { by: by(), at: Timestamp::default() },
        WaitCause::Gate { wave: "canary".to_owned(), open: 5, moving: 6, failed: 7 },
        WaitCause::Edge { before: of(), count: 8 },
        WaitCause::Budget { selector: of(), in_flight: 9, limit: 4 },
    ] {
        let (whole, told) = (cause.to_string(), cause.without_others());
        let told = told.replace(&Timestamp::default().to_string(), "");
        assert!(!told.contains("web-17") && !told.contains("ada"), "{told}");
        assert!(!told.contains(|letter: char| letter.is_ascii_digit()), "{told}");
        assert_ne!(whole, told);
    }
    let own = WaitCause::Deferred;
    assert_eq!(own.without_others(), own.to_string(), "it is of the node itself");
}

#[test]
fn a_wake_is_for_the_node_that_it_concerns() {
    let mut world = Driven::new(canary_first(), &[("db", DB), ("web", WEB), ("mail", WEB)]);
    world.activate("db");
    let woken = |world: &Driven| {
        let wakes = world.effects.iter().filter_map(|effect| match effect {
            RolloutEffect::Wake(node) => Some(node.clone()),
            RolloutEffect::Note { .. } => None,
        });
        wakes.collect::<Vec<_>>()
    };
    assert!(woken(&world).is_empty());
    world.fail("db");
    assert_eq!(woken(&world), [node_id("db")]);
}

#[test]
fn a_hundred_thousand_nodes_are_planned_and_one_event_is_looked_at_alone() {
    let names: Vec<String> = (0..100_000).map(|number| format!("h{number}")).collect();
    let nodes: Vec<(&str, Labels<'_>)> = names.iter().map(|name| (name.as_str(), WEB)).collect();
    let mut terms = all_at_once();
    terms.budgets = vec![budget("*", Some(Share::Percent(1)), None)];
    let mut world = Driven::new(terms, &nodes);
    let asked: Vec<&str> = names.iter().map(String::as_str).filter(|name| world.is_asked(name)).collect();
    assert_eq!(asked.len(), 1000);
    let (began, asked) = (std::time::Instant::now(), asked);
    for name in &asked {
        world.activate(name);
        world.fail_softly(name);
    }
    println!("{} events in {:?}", asked.len() * 3, began.elapsed());
}
