//! CFG-3: node-side predicates are asked in the run: of the host, of the run's own time, or of
//! what notified the resource; one that cannot be answered fails, and is never false.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use converge::{Job, JobDone, JobWork, Ledger, Pending, Run, RunMode, RunOptions};
use lang::Probe;
use model::{Action, Timestamp};
use serde_json::{Value, json};

use crate::common::{Host, Node, Set, action, apply, lines, options, plan, set};

fn when(source: &str) -> Set {
    set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/a", "when": source, "attributes": {"content": "x"}},
    ]}]))
}

/// Whether the resource is wanted at an instant, so many seconds east of UTC.
fn wanted_at(set: &Set, now: &str, east_secs: i32) -> Result<bool, String> {
    let now: Timestamp = now.parse().unwrap();
    let options = RunOptions { east_secs, started: now, ..options() };
    let mut run = Run::new(set.bind(), Ledger::default(), Pending::default(), RunMode::Plan, options);
    match run.ready(now).as_slice() {
        [Job { what: JobWork::Check { .. }, .. }] => Ok(true),
        [] => {
            let item = run.finish().unwrap().report.items.remove(0);
            if item.action == Action::Skipped { Ok(false) } else { Err(item.reason.unwrap()) }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_host_answers_about_itself() {
    let mut host = Host::default();
    host.write("/there", "");
    host.nodes.insert("/dir".into(), Node::Directory);
    for (source, expected) in [
        ("file_exists(\"/there\") and not file_exists(\"/not\")", true),
        ("dir_exists(\"/dir\")", true),
        ("dir_exists(\"/there\") or dir_exists(\"/not\")", false),
        ("command_succeeds([\"true\"]) and not command_succeeds([\"false\"])", true),
        ("process_running(\"nginx\") and not process_running(\"apache2\")", true),
        ("port_listening(80) and not port_listening(81)", true),
    ] {
        let report = apply(&mut host.clone(), &when(source));
        let found = action(&report, "m/file:/a") == Action::Changed;
        assert_eq!(found, expected, "{source}");
    }
}

#[test]
fn a_question_that_cannot_be_answered_fails_and_is_not_false() {
    let mut host = Host::default();
    host.broken.insert("gone".into());
    let source = "not command_succeeds([\"gone\"])";
    let report = apply(&mut host, &when(source));
    assert_eq!(
        lines(&report),
        ["m/file:/a failed: when: command_succeeds([\"gone\"]): gone cannot be started"]
    );
    let mut module = when("true");
    module.edit("m", |module| module.when = Some(source.into()));
    let report = apply(&mut host, &module);
    assert_eq!(lines(&report), ["m failed: when: command_succeeds([\"gone\"]): gone cannot be started"]);
    // Where no command may run, what waits for one is skipped.
    host.rooted = true;
    assert_eq!(lines(&apply(&mut host, &when(source))), ["m/file:/a skipped: rooted"]);
    assert_eq!(lines(&apply(&mut host, &module)), ["m skipped: rooted"]);
}

#[test]
fn a_plan_knows_which_directories_would_be_there() {
    let module = |first: Value, source: &str| {
        set(json!([{"name": "m", "resources": [
            first,
            {"type": "file", "name": "/a", "when": source, "attributes": {"content": "x"}},
        ]}]))
    };
    let mut host = Host::default();
    let made = module(json!({"type": "directory", "name": "/srv"}), "dir_exists(\"/srv\")");
    assert_eq!(action(&plan(&mut host, &made), "m/file:/a"), Action::WouldChange);
    host.nodes.insert("/srv".into(), Node::Directory);
    let gone = module(
        json!({"type": "directory", "name": "/srv", "attributes": {"state": "absent"}}),
        "dir_exists(\"/srv\")",
    );
    assert_eq!(action(&plan(&mut host, &gone), "m/file:/a"), Action::Skipped);
}

#[test]
fn time_is_the_runs_own_and_the_clock_the_hosts() {
    // 2026-11-23 is a Monday.
    let night = when("hour_range(22, 4)");
    assert_eq!(wanted_at(&night, "2026-11-23T22:30:00Z", 0), Ok(true));
    assert_eq!(wanted_at(&night, "2026-11-23T21:30:00Z", 0), Ok(false));
    assert_eq!(wanted_at(&night, "2026-11-23T21:30:00Z", 3600), Ok(true));
    assert_eq!(wanted_at(&when("hour_range(22, 4, \"UTC\")"), "2026-11-23T21:30:00Z", 3600), Ok(false));
    assert_eq!(wanted_at(&when("day_of_week(\"mon\")"), "2026-11-23T23:30:00Z", 3600), Ok(false));
    let tuesday = when("day_of_week([\"tue\"], \"+01:00\")");
    assert_eq!(wanted_at(&tuesday, "2026-11-23T23:30:00Z", 0), Ok(true));
}

#[test]
fn windows_come_with_the_params() {
    let mut set = when("in_window(\"nights\") and not in_window(\"days\")");
    set.params.windows = serde_json::from_value(json!({
        "nights": {"days": ["mon-fri"], "from": "22:00", "to": "04:00", "zone": "Europe/Berlin",
            "rules": "CET-1CEST,M3.5.0,M10.5.0/3"},
        "days": {"from": "08:00", "to": "17:00", "zone": "UTC"},
        "broken": {"from": "8", "to": "17:00", "zone": "UTC"},
    }))
    .unwrap();
    assert_eq!(wanted_at(&set, "2026-11-23T21:30:00Z", 0), Ok(true));
    assert_eq!(wanted_at(&set, "2026-11-23T20:30:00Z", 0), Ok(false));
    let ask = |name: &str| {
        let mut asks = set.clone();
        asks.edit("m", |module| module.resources[0].when = Some(format!("in_window(\"{name}\")")));
        wanted_at(&asks, "2026-11-23T21:30:00Z", 0).unwrap_err()
    };
    assert_eq!(ask("other"), "when: there is no window `other`");
    assert_eq!(
        ask("broken"),
        "when: window `broken`: `8` is no time of the day; write one such as \"22:00\""
    );
}

#[test]
fn a_question_is_asked_once() {
    let set = when("port_listening(80) and (port_listening(80) or true)");
    let mut run = Run::new(set.bind(), Ledger::default(), Pending::default(), RunMode::Apply, options());
    let job = run.ready(Timestamp(1)).remove(0);
    assert!(matches!(job.what, JobWork::Probe(Probe::PortListening(80))));
    run.done(job.id, Ok(JobDone::Probed(true)), Timestamp(1));
    assert!(matches!(run.ready(Timestamp(1)).remove(0).what, JobWork::Check { .. }));
}
