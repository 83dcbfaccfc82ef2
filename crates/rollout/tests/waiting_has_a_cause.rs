//! ROL-1: every node that has not changed yet has a cause that a person can read, and each bound of a rollout
//! holds in the plainest case.

use std::time::Duration;

use ::model::share::Share;
use ::model::status::Contact;
use ::model::window::DeclaredWindow;
use ::model::{Channel, Timestamp};
use rollout::member::{MAX_ATTEMPTS, MAX_WAITED_TIMES};
use rollout::{
    ApprovedGate, BeginRefusal, CommandRefusal, EventAnswer, HaltCause, MemberFailure, NodeRolloutState,
    RolloutAnswer, RolloutCommand, RolloutEffect, RolloutEventBody, RolloutInput, RolloutState, WaitCause,
};
use trust::RolloutTerms;
use trust::rollout_terms::{FreezeTerms, NodeEdge, OnFailure, PinTerms, WaveMembers};

use crate::model::driven::{Driven, Labels, joining, node_id, release};
use crate::model::terms::{budget, selector, wave};

pub(crate) const DB: Labels<'static> = &[("tier", "db"), ("ring", "0")];
pub(crate) const WEB: Labels<'static> = &[("tier", "web"), ("ring", "1")];

pub(crate) fn canary_first() -> RolloutTerms {
    let canary = WaveMembers::Where(selector("ring=0"));
    let waves = vec![wave("canary", canary, 60, 100), wave("rest", WaveMembers::Rest, 60, 100)];
    RolloutTerms { waves, ..RolloutTerms::default() }
}

pub(crate) fn all_at_once() -> RolloutTerms {
    RolloutTerms { waves: vec![wave("rest", WaveMembers::Rest, 60, 100)], ..RolloutTerms::default() }
}

pub(crate) fn through(world: &mut Driven, name: &str) {
    world.activate(name);
    confirm(world, name);
}

pub(crate) fn confirm(world: &mut Driven, name: &str) {
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

/// Who was asked and goes offline before it answers is waited for no longer than anybody who is offline. Its slot stays its own
/// until the request is over, as it may have answered.
#[test]
fn who_goes_offline_while_it_is_asked_holds_up_nobody() {
    let terms =
        RolloutTerms { budgets: vec![budget("ring=0", Some(Share::Count(1)), None)], ..canary_first() };
    let mut world = Driven::new(terms, &[("db", DB), ("web", WEB)]);
    world.contact("db", Contact::Unreachable);
    assert!(world.is_asked("db") && !world.is_asked("web"), "it may answer still");
    world.contact("db", Contact::Offline);
    assert!(world.is_asked("web") && world.member("db").in_flight());
    through(&mut world, "web");
    assert_eq!(world.state(), RolloutState::Terminal);
    world.contact("db", Contact::Online);
    through(&mut world, "db");
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

/// A clock that does not run holds its wave for a day.
#[test]
fn who_is_kept_by_its_clock_is_waited_for_no_longer_than_a_day() {
    let mut world = Driven::new(canary_first(), &[("db", DB), ("web", WEB)]);
    let began = world.now;
    for _ in 1..MAX_WAITED_TIMES {
        assert!(world.is_asked("db"));
        // It acknowledges in between, and says so again: that makes it begin anew with nothing.
        assert_eq!(world.say("db", RolloutEventBody::DispatchAck), EventAnswer::Accepted);
        let code = BeginRefusal::Frozen.code().to_owned();
        assert_eq!(world.say("db", RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
        assert!(!world.is_asked("web"), "{}", world.why("web"));
        while !world.is_asked("db") {
            world.wait(60);
        }
    }
    let code = BeginRefusal::Frozen.code().to_owned();
    assert_eq!(world.say("db", RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
    assert!(world.is_asked("web"));
    assert!(world.now.since(began) > Duration::from_secs(24 * 3600));
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
