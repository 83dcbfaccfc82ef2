//! ROL-1, OPS-2: how a rollout stands is said by what became of it, in words and by the exit code: paused since the pause,
//! halted though a newer release took its place, aborted where nothing did; and an order says what it does not lift.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::clock::now;
use cli::exit::Exit;
use cli::rollout::{explained, line, show, stands, still_held};
use cli::screen::Screen;
use model::Timestamp;
use serde_json::{Value, json};
use server::api::StatusView;
use server::api::rollouts::{NodeRolloutView, RolloutTurn, RolloutView};

fn t(millis: i64) -> Value {
    json!(Timestamp(millis))
}

/// A rollout in a state, with more of its form.
fn view(state: &str, more: &Value) -> RolloutView {
    let mut form = json!({
        "id": "stable@4f1c2a9", "channel": "stable", "seq": 5, "published": t(0), "state": state, "since": t(0),
    });
    for (name, value) in more.as_object().unwrap() {
        form[name] = value.clone();
    }
    serde_json::from_value(form).unwrap()
}

fn shown(view: &RolloutView) -> String {
    show(view, Screen::of_process(false))
}

const NONE: Value = Value::Null;

fn halt() -> Value {
    json!({"halt": {"at": t(0), "cause": "1 failed", "goesBack": false}})
}

#[test]
fn it_ends_by_what_became_of_it() {
    let nothing = json!({});
    for (state, more, exit) in [
        ("Opening", &nothing, None),
        ("Converging", &nothing, None),
        ("Terminal", &nothing, Some(Exit::Ok)),
        ("Superseded", &nothing, Some(Exit::SomeFailed)),
        ("Superseded", &json!({"newer": {"seq": 6, "atOnce": true}}), Some(Exit::SomeFailed)),
        ("Superseded", &json!({"wasThrough": true}), Some(Exit::Ok)),
        ("Pruned", &json!({"wasThrough": true}), Some(Exit::Ok)),
        ("Failed", &halt(), Some(Exit::SomeFailed)),
        ("Superseded", &halt(), Some(Exit::SomeFailed)),
        ("Pruned", &halt(), Some(Exit::SomeFailed)),
    ] {
        assert_eq!(stands(&view(state, more)), exit, "{state} {more}");
    }
}

/// A channel whose rollout has so many nodes, of which so many are confirmed.
fn status(state: &str, confirmed: usize, nodes: usize) -> String {
    let at = t(now().0);
    let rollout = json!({
        "id": "stable@4f1c2a9", "seq": 5, "state": state, "since": at, "confirmed": confirmed, "nodes": nodes,
    });
    let channel = json!({
        "channel": "stable", "seq": 5, "signedAt": at, "freshUntil": at, "contactSecs": 60, "rollout": rollout,
    });
    let fleet: StatusView = serde_json::from_value(json!({
        "fleet": "acme-1", "posture": "sealed", "version": "1", "seq": 5, "channels": [channel], "nodes": nodes,
        "states": {}, "causes": [], "store": {"writable": true, "queueDepth": 0},
    }))
    .unwrap();
    cli::status::text(&fleet, Screen::of_process(false))
}

/// OPS-2: the fleet's status has a line of a rollout that is not through on all of its nodes, and none of one that is.
#[test]
fn the_fleet_s_status_has_a_line_of_what_is_not_through_on_all() {
    for (state, confirmed, nodes, words) in [
        ("Active", 1, 5, Some("under way")),
        ("Terminal", 4, 5, Some("through")),
        ("Terminal", 5, 5, None),
        ("Failed", 5, 5, Some("halted")),
    ] {
        let text = status(state, confirmed, nodes);
        let line = text.lines().find(|line| line.starts_with("rollout stable@4f1c2a9: "));
        let Some(words) = words else {
            assert_eq!(line, None, "{text}");
            continue;
        };
        let line = line.unwrap_or_else(|| panic!("{state}: {text}"));
        assert!(line.contains(&format!(": {words} since ")), "{line}");
        assert!(line.contains(&format!(", {confirmed} of {nodes} confirmed")), "{line}");
        assert!(line.contains("muster rollout show stable"), "{line}");
    }
}

#[test]
fn a_pause_is_counted_from_the_pause() {
    let at = Timestamp(now().0 - 5_000);
    let text = shown(&view("Active", &json!({"paused": {"by": "ada", "at": at}})));
    let seconds = text.split("it is paused since ").nth(1).unwrap().split(' ').collect::<Vec<_>>();
    assert!(seconds[1].starts_with('s') && seconds[0].parse::<u32>().unwrap() < 60, "{text}");
}

#[test]
fn what_is_newer_is_told_and_nothing_newer_is_an_abort() {
    let newer = |more: Value| {
        let mut form = json!({"seq": 6, "atOnce": false});
        form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "newer": form })
    };
    let by = json!({"halt": {"at": t(0), "cause": "ada aborted it", "goesBack": false, "wasThrough": false}});
    for (more, why) in [(&json!({}), ""), (&by, "because ada aborted it\n")] {
        let aborted = shown(&view("Superseded", more));
        assert!(aborted.contains("it is aborted since") && aborted.contains(why), "{aborted}");
    }
    let at_once = shown(&view("Superseded", &newer(json!({"atOnce": true}))));
    assert!(at_once.contains("it is superseded since"), "{at_once}");
    assert!(
        at_once.contains("release 6, the newest of the channel, goes to all its nodes at once"),
        "{at_once}"
    );
    let waits = newer(json!({"rollout": "stable@aaaaaaa", "state": "Opening", "waits": "5 runs"}));
    let waits = shown(&view("Active", &waits));
    assert!(waits.contains("release 6 (stable@aaaaaaa) waits to begin: 5 runs\n"), "{waits}");
}

#[test]
fn an_approval_says_what_it_does_not_lift() {
    let held =
        |state: &str, more: &Value| still_held(&view(state, more), RolloutTurn::Approve, Timestamp(1_000));
    let said = held("Opening", &json!({"waits": "channel edge goes first"})).unwrap();
    assert_eq!(said, "approved; what it waits for is not lifted by that: channel edge goes first");
    let paused = held("Active", &json!({"paused": {"by": "ada", "at": t(0)}})).unwrap();
    assert!(paused.ends_with("stable@4f1c2a9 is paused; muster rollout resume stable@4f1c2a9"), "{paused}");
    let wave = |not_before: i64| json!({"waves": [{"name": "rest", "notBefore": t(not_before), "soakSecs": 5, "nodes": {}}]});
    assert!(held("Active", &wave(2_000)).unwrap().contains("wave rest begins at "));
    assert_eq!(held("Active", &wave(500)), None);
    let frozen = json!({"frozen": {"window": "nights", "until": t(60_000)}});
    let said = held("Active", &frozen).unwrap();
    assert!(said.contains("the freeze window nights is open until 1970-01-01T00:01:00"), "{said}");
    let listed = line(&view("Active", &frozen));
    assert!(listed.contains("is under way: the freeze window nights is open until"), "{listed}");
    assert_eq!(still_held(&view("Active", &frozen), RolloutTurn::Pause, Timestamp(0)), None);
}

#[test]
fn a_silent_host_is_told_so() {
    let node = |state: &str, silent: Value| -> NodeRolloutView {
        let form = json!({
            "node": "n-0123456789abcdef0123456789abcdef", "hostname": "web-1", "rollout": "stable@4f1c2a9", "rolloutState": "Active",
            "wave": "canary", "state": state, "since": t(0), "cause": "it activates it", "silentSince": silent,
        });
        serde_json::from_value(form).unwrap()
    };
    let silent = t(now().0 - 120_000);
    let said = explained(&node("Activating", silent.clone()));
    assert!(said.ends_with("it activates it; nothing is heard of its host since 2 min\n"), "{said}");
    for view in [node("Activating", NONE), node("Pending", silent)] {
        assert!(!explained(&view).contains("nothing is heard"), "{view:?}");
    }
}

#[test]
fn a_node_is_explained_with_what_waits_behind() {
    let form = json!({
        "node": "n-0123456789abcdef0123456789abcdef", "hostname": "web-1", "rollout": "stable@4f1c2a9", "rolloutState": "Failed",
        "wave": "canary", "state": "Reverted", "since": t(0), "cause": "its probe web failed",
        "newer": {"seq": 3, "atOnce": false, "rollout": "stable@77aa01b", "state": "Opening", "waits": "release 2 halted"},
    });
    let said = explained(&serde_json::from_value(form).unwrap());
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].ends_with("its probe web failed"), "{said}");
    assert_eq!(lines[1..], ["release 3 (stable@77aa01b) waits to begin: release 2 halted"]);
}
