//! CNV-12: a host on which a reboot is required reboots in its channel's window, once while that is open,
//! at a time of its own, and never without a window, in a run or while it is paused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, HOST, Release, START, facts, observed, report, run_of, warnings};
use model::exchange::TraitReport;
use model::log::FactBody;
use model::policy::{Policy, RebootPolicy};
use model::window::DeclaredWindow;
use model::{Digest, Pause, Timestamp};
use node::reboot::{
    GOES_DOWN_WITHIN, MAX_REBOOT_CLOCK_DIFFERENCE, MAX_REBOOT_TRIES, REBOOT_RETRY, REBOOT_SPREAD,
};
use node::{HeldSettings, NodeEffect, NodeInput, RebootMark, RebootPlan, Restored};

/// 08:00 UTC, where [`START`] is.
const EIGHT: Timestamp = START;
const HOUR: Duration = Duration::from_secs(3600);

fn at(hours: u32) -> Timestamp {
    EIGHT.minus(HOUR * 8).plus(HOUR * hours)
}

fn policy(from: &str, to: &str) -> Policy {
    let (from, to, zone) = (from.to_owned(), to.to_owned(), "UTC".to_owned());
    let window = DeclaredWindow { days: vec![], from, to, zone, rules: None };
    Policy { reboot: Some(RebootPolicy { name: "nights".to_owned(), window }), ..Policy::default() }
}

fn required(packages: &[&str]) -> TraitReport {
    let kernel = serde_json::json!({ "reboot_required": true, "reboot_packages": packages });
    TraitReport::whole(Digest::of(b"required"), serde_json::json!({ "kernel": kernel }))
}

/// A reboot for `libc6`, at a time that counts.
fn mark(at: Timestamp) -> RebootMark {
    let (reason, window) = ("libc6".to_owned(), "nights".to_owned());
    RebootMark { at, reason, window, boot: String::new(), kernel: None }
}

/// What a host shows that asks for a reboot for these packages and this kernel, so long after it booted.
fn required_since_boot(packages: &[&str], newer: &str, boot: &str, uptime: Duration) -> TraitReport {
    let mut traits = required(packages);
    traits.values["kernel"]["newer"] = newer.into();
    traits.values["uptime"] = serde_json::json!({ "seconds": uptime.as_secs(), "boot_id": boot });
    traits
}

/// A host that converged under this policy at a time, with the mark that was left before. Its clock is right.
fn host(policy: Policy, now: Timestamp, last_reboot: Option<RebootMark>) -> Bench {
    let mut bench = host_alone(policy, now, last_reboot);
    bench.give(NodeInput::ServerTime(now));
    bench
}

/// The same, which no control plane has answered.
fn host_alone(policy: Policy, now: Timestamp, last_reboot: Option<RebootMark>) -> Bench {
    let adoption = Bench::holding(&Release::new(1, START, &["base"])).node.adoption().cloned();
    let restored = Restored {
        adoption,
        settings: HeldSettings { policy, only_observes: false },
        last_reboot,
        ..Restored::default()
    };
    let mut bench = Bench::restored_at(restored, now);
    let ran = run_of(&bench.give(observed(&bench.traits.clone()))).is_some();
    assert!(ran, "it makes its first run");
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    bench
}

/// The host shows these traits, and the run is made to which they lead. What comes of both.
fn show(bench: &mut Bench, traits: &TraitReport) -> Vec<NodeEffect> {
    bench.traits = traits.clone();
    let mut effects = bench.give(observed(traits));
    if run_of(&effects).is_some() {
        effects.extend(bench.give(NodeInput::Ran(Box::new(report(0, 1)))));
    }
    effects
}

/// Passes the time in steps of a minute, with quick runs, after the host showed these traits, which it shows
/// after each reboot again: when it rebooted.
fn reboots_over(mut bench: Bench, policy: &Policy, traits: &TraitReport, time: Duration) -> Vec<RebootMark> {
    let end = bench.now.plus(time);
    let mut marks = Vec::new();
    let mut effects = show(&mut bench, traits);
    while bench.now < end {
        if let Some(mark) = reboot_of(&effects) {
            let up = bench.now.plus(Duration::from_secs(60));
            bench = host(policy.clone(), up, Some(mark.clone()));
            marks.push(mark);
            effects = show(&mut bench, traits);
            continue;
        }
        effects = bench.pass(Duration::from_secs(60));
        if run_of(&effects).is_some() {
            effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
    }
    marks
}

fn reboot_of(effects: &[NodeEffect]) -> Option<RebootMark> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::Reboot(mark) => Some(mark.clone()),
        _ => None,
    })
}

#[test]
fn a_newer_kernel_is_named_before_packages() {
    for (newer, packages, reason) in [
        ("6.1.0-28-amd64", &[][..], "the newer kernel 6.1.0-28-amd64"),
        ("6.1.0-28-amd64", &["libc6"], "the newer kernel 6.1.0-28-amd64, libc6"),
        ("", &["libc6"], "libc6"),
        ("", &[], "a package that left no name"),
    ] {
        let mut traits = required(packages);
        traits.values["kernel"]["newer"] = newer.into();
        let mut bench = host(Policy::default(), EIGHT, None);
        let effects = show(&mut bench, &traits);
        let told = warnings(&effects).join("\n");
        assert!(told.contains(&format!("a reboot is required by {reason};")), "{told}");
    }
}

#[test]
fn the_hours_of_these_tests_are_those_of_utc() {
    assert_eq!(START.0.rem_euclid(86_400_000), 8 * 3_600_000);
}

#[test]
fn only_what_is_required_and_only_in_the_window() {
    for (name, policy, required_traits, hours) in [
        ("no window is declared", Policy::default(), required(&["libc6"]), 0..0),
        ("nothing requires it", policy("22:00", "04:00"), common::traits("other"), 0..0),
        ("over midnight", policy("22:00", "04:00"), required(&["libc6"]), 22..28),
        ("in the morning", policy("09:00", "10:00"), required(&["libc6"]), 9..10),
        ("it is open", policy("00:00", "00:00"), required(&["libc6"]), 8..9),
    ] {
        let bench = host(policy.clone(), EIGHT, None);
        let marks = reboots_over(bench, &policy, &required_traits, HOUR * 16);
        assert_eq!(marks.len(), usize::from(!hours.is_empty()), "{name}: {marks:?}");
        for mark in marks {
            assert!(at(hours.start) <= mark.at && mark.at < at(hours.end), "{name}: {mark:?}");
            assert_eq!((&*mark.reason, &*mark.window), ("libc6", "nights"));
            let FactBody::Rebooting { reason, window } = mark.fact() else { panic!("another fact") };
            assert_eq!((reason, window), (mark.reason, mark.window));
        }
    }
}

#[test]
fn hosts_spread_over_the_beginning_of_the_window_and_stay_inside() {
    for (from, to, length) in [("22:00", "04:00", HOUR * 6), ("22:00", "22:10", Duration::from_secs(600))] {
        let mut bench = host(policy(from, to), at(21), None);
        show(&mut bench, &required(&[]));
        let Some(RebootPlan::Due { at: due, .. }) = bench.node.reboot().map(|outlook| outlook.plan) else {
            panic!("no plan")
        };
        let spread = REBOOT_SPREAD.min(length / 2);
        assert!(at(22) <= due && due < at(22).plus(spread), "{from}: {due}");
        assert_ne!(due, at(22), "{HOST} has a place of its own");
    }
}

#[test]
fn it_waits_for_the_end_of_the_run_and_nothing_begins_after_it() {
    let mut bench = host(policy("00:00", "00:00"), at(12), None);
    assert!(run_of(&bench.give(NodeInput::RunNow(Default::default()))).is_some());
    bench.traits = required(&["libc6"]);
    let effects = bench.give(observed(&bench.traits.clone()));
    assert!(warnings(&effects).iter().any(|text| text.contains("required by libc6")), "{effects:?}");
    assert_eq!(reboot_of(&effects), None, "a run is under way");
    let mut effects = bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    if run_of(&effects).is_some() {
        // The changed traits led to another one.
        effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    }
    let mark = reboot_of(&effects).expect("it reboots");
    assert_eq!(mark.at, bench.now);
    for _ in 0..9 {
        let effects = bench.pass(Duration::from_secs(60));
        assert!(run_of(&effects).is_none() && reboot_of(&effects).is_none(), "{effects:?}");
    }
    assert!(matches!(bench.node.reboot().unwrap().plan, RebootPlan::GoesDown { .. }));
}

#[test]
fn a_mark_that_stays_is_not_rebooted_for_again_before_the_window_opens_anew() {
    for (from, to) in [("22:00", "04:00"), ("07:00", "07:00"), ("09:00", "09:05")] {
        let policy = policy(from, to);
        let bench = host(policy.clone(), EIGHT, None);
        let marks = reboots_over(bench, &policy, &required(&["libc6"]), HOUR * 24 * 3 - HOUR * 2);
        assert_eq!(marks.len(), 3, "once in each of three days: {marks:?}");
        let apart = marks.windows(2).map(|two| two[1].at.since(two[0].at));
        assert!(apart.into_iter().all(|apart| apart >= HOUR * 22), "{marks:?}");
    }
    let mark = mark(START);
    let mut bench = host(policy("07:00", "12:00"), START.plus(HOUR), Some(mark.clone()));
    let effects = show(&mut bench, &required(&["libc6"]));
    assert!(warnings(&effects).iter().any(|text| text.contains("required")), "it is told");
    let outlook = bench.node.reboot().unwrap();
    assert_eq!(outlook.last, Some(mark));
    assert!(matches!(outlook.plan, RebootPlan::Due { at: due, .. } if due >= at(31)), "{outlook:?}");
}

/// It tells of a reboot that was made before this boot, however often the agent started since.
#[test]
fn a_mark_of_a_clock_that_was_ahead_counts_for_the_window_of_the_boot() {
    let ahead = mark(at(24 * 400));
    let policy = policy("22:00", "04:00");
    for (what, booted, first, last) in [
        ("before the window", at(20), at(22), at(23)),
        ("in the window", at(22).plus(HOUR / 2), at(46), at(47)),
    ] {
        let (mut now, mut rebooted) = (booted, None);
        while rebooted.is_none() && now < at(60) {
            // The agent starts anew every few minutes.
            let mut bench = host(policy.clone(), now, Some(ahead.clone()));
            let traits = required_since_boot(&["libc6"], "", "b1", now.since(booted));
            rebooted = reboot_of(&show(&mut bench, &traits)).map(|mark| mark.at);
            now = now.plus(HOUR / 12);
        }
        assert!(rebooted.is_some_and(|at| first <= at && at < last), "{what}: {rebooted:?}");
    }
}

/// A host that came up with the kernel, and that somebody booted another one on by hand, is asked anew.
#[test]
fn a_kernel_that_the_host_came_up_with_once_asks_again() {
    let policy = policy("00:00", "00:00");
    let up = Duration::from_secs(60);
    let rebooted =
        RebootMark { boot: "b1".to_owned(), kernel: Some("6.2".to_owned()), ..mark(at(12).minus(HOUR)) };
    let mut bench = host(policy.clone(), at(12), Some(rebooted));
    let mut came_up = required_since_boot(&[], "", "b2", up);
    came_up.values["kernel"]["reboot_required"] = false.into();
    came_up.values["kernel"]["release"] = "6.2".into();
    let saved = show(&mut bench, &came_up).into_iter().find_map(|effect| match effect {
        NodeEffect::SaveReboot(mark) => Some(mark),
        _ => None,
    });
    let saved = saved.expect("what the next start of the agent is to know");
    assert_eq!(saved.kernel, None);
    let mut bench = host(policy, at(12 + 48), Some(saved));
    let mark = reboot_of(&show(&mut bench, &required_since_boot(&[], "6.2", "b3", up)));
    assert_eq!(mark.and_then(|mark| mark.kernel).as_deref(), Some("6.2"));
}

/// A boot loader that does not take the newer kernel would have the host rebooted in each window.
#[test]
fn a_kernel_that_the_host_did_not_come_up_with_asks_once() {
    let policy = policy("00:00", "00:00");
    let up = Duration::from_secs(60);
    let mut bench = host(policy.clone(), at(12), None);
    let mark = reboot_of(&show(&mut bench, &required_since_boot(&[], "6.2", "b1", up))).unwrap();
    assert_eq!((mark.kernel.as_deref(), &*mark.boot), (Some("6.2"), "b1"));
    for (what, packages, newer, boot, asks) in [
        ("the same kernel again", &[][..], "6.2", "b2", false),
        ("a kernel after it", &[], "6.3", "b2", true),
        ("a package", &["libc6"], "6.2", "b2", true),
        ("it was not rebooted yet", &[], "6.2", "b1", true),
    ] {
        let mut bench = host(policy.clone(), at(12 + 48), Some(mark.clone()));
        let effects = show(&mut bench, &required_since_boot(packages, newer, boot, up));
        let next = reboot_of(&effects);
        assert_eq!(next.is_some(), asks, "{what}");
        let Some(next) = next else {
            let told = warnings(&effects).join("\n");
            assert!(told.contains("came up with another kernel"), "{told}");
            assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::NotAgain, "{what}");
            continue;
        };
        assert_eq!(next.kernel.as_deref(), Some(newer), "{what}");
    }
    // A reboot for something else forgets nothing.
    let mut bench = host(policy.clone(), at(12 + 48), Some(mark));
    let next = reboot_of(&show(&mut bench, &required_since_boot(&["libc6"], "", "b2", up))).unwrap();
    let mut bench = host(policy, at(12 + 96), Some(next));
    assert_eq!(reboot_of(&show(&mut bench, &required_since_boot(&[], "6.2", "b3", up))), None);
}

#[test]
fn nothing_reboots_before_the_clock_was_compared_since_the_start() {
    let mut bench = host_alone(policy("00:00", "00:00"), at(12), None);
    let mut effects = show(&mut bench, &required(&["libc6"]));
    while bench.now < at(20) {
        assert_eq!(reboot_of(&effects), None, "at {}", bench.now);
        effects = bench.pass(HOUR / 12);
        if run_of(&effects).is_some() {
            effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
    }
    assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::ClockNotCompared);
    bench.give(NodeInput::Unreachable("no route".to_owned()));
    assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::ClockNotCompared, "nobody answered");
    let effects = bench.give(NodeInput::ServerTime(bench.now));
    assert!(reboot_of(&effects).is_some(), "{effects:?}");
}

/// What was learned of the clocks counts for the clock as it was then.
#[test]
fn a_clock_that_is_set_back_differs_by_so_much_more() {
    let minute = Duration::from_secs(60);
    for (what, before, back, held) in [
        ("it was right", Duration::ZERO, HOUR, true),
        ("it was an hour ahead", HOUR, HOUR, false),
        ("it was a little ahead", minute, minute * 2, false),
    ] {
        // So late that the clock is not behind the release afterwards.
        let mut bench = host_alone(policy("00:00", "00:00"), at(12), None);
        bench.give(NodeInput::ServerTime(at(12).minus(before)));
        bench.now = at(12).minus(back);
        bench.give(NodeInput::Tick);
        show(&mut bench, &required(&["libc6"]));
        assert_eq!(bench.node.reboot().unwrap().plan == RebootPlan::ClockWrong, held, "{what}");
    }
}

/// A host without a clock of its own starts long ago, and hears the time a minute later: its window counts by
/// the true time, and once is once.
#[test]
fn a_clock_that_starts_long_ago_does_not_reboot_twice_in_one_window() {
    let long_ago = Timestamp::default().plus(HOUR * 30);
    let policy = policy("07:00", "12:00");
    let mark = mark(at(9));
    let mut bench = host_alone(policy.clone(), long_ago, Some(mark));
    let effects = show(&mut bench, &required(&["libc6"]));
    assert_eq!(reboot_of(&effects), None, "the clock is behind what was verified");
    assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::ClockWrong);
    bench.now = at(9).plus(Duration::from_secs(120));
    let mut effects = bench.give(NodeInput::ServerTime(bench.now));
    while bench.now < at(12) {
        assert_eq!(reboot_of(&effects), None, "at {}", bench.now);
        effects = bench.pass(Duration::from_secs(60));
        if run_of(&effects).is_some() {
            effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
    }
    assert!(matches!(bench.node.reboot().unwrap().plan, RebootPlan::Due { at: due, .. } if due >= at(31)));
}

#[test]
fn a_clock_that_differs_from_the_control_planes_reboots_nothing() {
    let just_over = MAX_REBOOT_CLOCK_DIFFERENCE + Duration::from_secs(1);
    for (server, held) in [
        (at(12).plus(just_over), true),
        (at(12).minus(just_over), true),
        (at(12).plus(MAX_REBOOT_CLOCK_DIFFERENCE), false),
        (at(12).minus(MAX_REBOOT_CLOCK_DIFFERENCE), false),
    ] {
        let mut bench = host(policy("00:00", "00:00"), at(12), None);
        bench.give(NodeInput::ServerTime(server));
        let effects = show(&mut bench, &required(&["libc6"]));
        assert_eq!(reboot_of(&effects).is_none(), held, "{server}");
        assert_eq!(bench.node.reboot().unwrap().plan == RebootPlan::ClockWrong, held, "{server}");
    }
}

#[test]
fn what_only_observes_is_not_rebooted_and_says_so() {
    let adoption = Bench::holding(&Release::new(1, START, &["base"])).node.adoption().cloned();
    let settings = HeldSettings { policy: policy("00:00", "00:00"), only_observes: true };
    let mut bench = Bench::restored_at(Restored { adoption, settings, ..Restored::default() }, at(12));
    let effects = show(&mut bench, &required(&["libc6"]));
    assert_eq!(reboot_of(&effects), None);
    assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::OnlyObserves);
}

fn no_reboot_in_an_hour(bench: &mut Bench) {
    for _ in 0..60 {
        let mut effects = bench.pass(Duration::from_secs(60));
        if run_of(&effects).is_some() {
            effects.extend(bench.give(NodeInput::Ran(Box::new(report(0, 1)))));
        }
        assert_eq!(reboot_of(&effects), None);
    }
}

#[test]
fn a_paused_host_stays_up() {
    let mut bench = host(policy("00:00", "00:00"), at(12), None);
    let pause = Pause { reason: "debugging".to_owned(), since: bench.now, until: None };
    bench.give(NodeInput::Pause(pause));
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    show(&mut bench, &required(&[]));
    no_reboot_in_an_hour(&mut bench);
    assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::Paused);
    bench.give(NodeInput::Resume);
    let effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert!(reboot_of(&effects).is_some(), "after the pause: {effects:?}");
}

/// CNV-11: a boot would undo what a contact is to follow.
#[test]
fn it_waits_for_the_contact_that_is_to_follow_a_guarded_change() {
    let mut bench = host(policy("00:00", "00:00"), at(12), None);
    bench.give(NodeInput::AwaitsContact(true));
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    show(&mut bench, &required(&[]));
    no_reboot_in_an_hour(&mut bench);
    assert_eq!(bench.node.reboot().unwrap().plan, RebootPlan::AwaitsContact);
    let mut effects = bench.give(NodeInput::AwaitsContact(false));
    effects.extend(bench.give(NodeInput::Ran(Box::new(report(0, 1)))));
    assert!(reboot_of(&effects).is_some(), "after the contact: {effects:?}");
}

#[test]
fn a_failure_is_tried_again_with_a_bound_and_the_host_is_kept_meanwhile() {
    let mut bench = host(policy("00:00", "00:00"), at(12), None);
    let first = show(&mut bench, &required(&["libc6"]));
    let (mut tries, mut runs) = (Vec::new(), 0);
    for minute in 0..10 * 60 {
        let mut effects = if minute == 0 { first.clone() } else { bench.pass(Duration::from_secs(60)) };
        if minute > 0 && run_of(&effects).is_some() {
            runs += 1;
            effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
        if let Some(mark) = reboot_of(&effects) {
            tries.push(mark.at);
            // The last try is accepted, and the host does not go down.
            if tries.len() < MAX_REBOOT_TRIES as usize {
                let effects = bench.give(NodeInput::RebootFailed("no bus".to_owned()));
                assert!(warnings(&effects).iter().any(|text| text.contains("no bus")), "{effects:?}");
                let told = facts(&effects);
                assert!(matches!(told[..], [FactBody::NotRebooted { .. }]), "{told:?}");
            }
        }
        assert!(bench.wait().is_some(), "minute {minute}");
    }
    assert_eq!(tries.len(), MAX_REBOOT_TRIES as usize, "{tries:?}");
    assert!(tries.windows(2).all(|two| two[1].since(two[0]) >= REBOOT_RETRY), "{tries:?}");
    assert!(runs > 50, "only {runs} runs in 10 h, of which {GOES_DOWN_WITHIN:?} were waited for");
}

#[test]
fn it_is_told_once_and_known_since_then() {
    let mut bench = host(policy("22:00", "04:00"), EIGHT, None);
    let told = |effects: &[NodeEffect]| warnings(effects).iter().any(|text| text.contains("is required by"));
    assert!(told(&show(&mut bench, &required(&["libc6"]))));
    let since = bench.now;
    bench.pass(Duration::from_secs(60));
    assert!(!told(&show(&mut bench, &required(&["libc6", "systemd"]))));
    let outlook = bench.node.reboot().unwrap();
    assert_eq!((outlook.since, &*outlook.reason), (since, "libc6, systemd"));
    // It was rebooted by hand.
    let kernel = serde_json::json!({ "kernel": { "reboot_required": false } });
    show(&mut bench, &TraitReport::whole(Digest::of(b"rebooted"), kernel));
    assert_eq!(bench.node.reboot(), None);
}

#[test]
fn the_reason_names_some_packages_and_counts_the_rest() {
    let names: Vec<String> = (1..=12).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (packages, reason) in [
        (&names[..0], "a package that left no name"),
        (&names[..10], "p1, p2, p3, p4, p5, p6, p7, p8, p9, p10"),
        (&names[..], "p1, p2, p3, p4, p5, p6, p7, p8, p9, p10 and 2 more"),
    ] {
        let mut bench = host(policy("22:00", "04:00"), EIGHT, None);
        show(&mut bench, &required(packages));
        assert_eq!(bench.node.reboot().unwrap().reason, reason);
    }
}

#[test]
fn without_a_window_that_opens_it_is_left_to_people() {
    let nights = "nights".to_owned();
    for (policy, plan) in [
        (Policy::default(), RebootPlan::ByHand),
        (policy("25:00", "04:00"), RebootPlan::NeverOpens { window: nights }),
    ] {
        let mut bench = host(policy, EIGHT, None);
        show(&mut bench, &required(&["libc6"]));
        assert_eq!(bench.node.reboot().unwrap().plan, plan);
    }
}

#[test]
fn one_at_the_very_opening_of_the_window_counts_for_it() {
    let mark = mark(at(22));
    let mut bench = host(policy("22:00", "04:00"), at(22).plus(Duration::from_secs(120)), Some(mark));
    show(&mut bench, &required(&["libc6"]));
    let plan = bench.node.reboot().unwrap().plan;
    assert!(matches!(plan, RebootPlan::Due { at: due, .. } if due >= at(46)), "{plan:?}");
}

#[test]
fn each_opening_of_the_window_has_its_tries() {
    let mut bench = host(policy("22:00", "04:00"), at(20), None);
    let mut effects = show(&mut bench, &required(&["libc6"]));
    let mut tries = Vec::new();
    while bench.now < at(20 + 48) {
        if run_of(&effects).is_some() {
            effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        } else if let Some(mark) = reboot_of(&effects) {
            tries.push(mark.at);
            effects = bench.give(NodeInput::RebootFailed("no bus".to_owned()));
        } else {
            effects = bench.pass(Duration::from_secs(60));
        }
    }
    let first = tries.iter().filter(|tried| **tried < at(28)).count();
    let most = MAX_REBOOT_TRIES as usize;
    assert_eq!((first, tries.len()), (most, 2 * most), "{tries:?}");
}

#[test]
fn a_clock_that_is_set_back_puts_nothing_off() {
    let back = HOUR * 24 * 30;
    // So late that the clock is not behind the release afterwards.
    let at = |hours: u32| at(24 * 40 + hours);
    let all_day = || policy("00:00", "00:00");
    let plan = |bench: &Bench| bench.node.reboot().unwrap().plan;
    let set_back = |bench: &mut Bench| {
        bench.now = bench.now.minus(back);
        bench.give(NodeInput::ServerTime(bench.now));
    };
    // Since when it is known, and the reboot that was made in this window.
    let mark = mark(at(12));
    let mut bench = host(policy("09:00", "10:00"), at(13), Some(mark));
    show(&mut bench, &required(&["libc6"]));
    let since = bench.node.reboot().unwrap().since;
    set_back(&mut bench);
    assert_eq!(bench.node.reboot().unwrap().since, since.minus(back));
    let next = bench.now.plus(HOUR * 25);
    assert!(matches!(plan(&bench), RebootPlan::Due { at, .. } if at <= next), "{:?}", plan(&bench));
    // A try that failed.
    let mut bench = host(all_day(), at(12), None);
    assert!(reboot_of(&show(&mut bench, &required(&["libc6"]))).is_some());
    bench.give(NodeInput::RebootFailed("no bus".to_owned()));
    set_back(&mut bench);
    let next = bench.now.plus(REBOOT_RETRY.max(REBOOT_SPREAD));
    assert!(matches!(plan(&bench), RebootPlan::Due { at, .. } if at <= next), "{:?}", plan(&bench));
    // One that was ordered, and does not come.
    let mut bench = host(all_day(), at(12), None);
    assert!(reboot_of(&show(&mut bench, &required(&["libc6"]))).is_some());
    set_back(&mut bench);
    assert!(matches!(plan(&bench), RebootPlan::GoesDown { .. }));
    let effects = bench.pass(GOES_DOWN_WITHIN);
    assert!(warnings(&effects).iter().any(|text| text.contains("does not go down")), "{effects:?}");
}

#[test]
fn a_failure_of_nothing_is_no_try() {
    let mut bench = host(policy("00:00", "00:00"), at(12), None);
    for _ in 0..MAX_REBOOT_TRIES {
        bench.give(NodeInput::RebootFailed("late".to_owned()));
    }
    assert!(reboot_of(&show(&mut bench, &required(&["libc6"]))).is_some());
}
