//! ROL-1: with real programs a rollout keeps its budgets, also one that two channels share, its edges, pins, freeze windows
//! and `notBefore`, goes after another channel's, and `rollout explain` says of each node what holds it. A node that is
//! removed in mid-wave holds nobody.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{SystemTime, UNIX_EPOCH};

use test_support::programs::repo::{code, err, out};
use test_support::programs::waves::{WaveFleet, WaveHost, fast};
use test_support::programs::{text, write};
use test_support::wait::until_blocking as until;

/// Nothing is confirmed until somebody makes the file.
const HELD: &str = "probes:
  ready: {command: [/bin/sh, -c, 'test -e $MUSTER_ROOT/ready'], every: 1s, timeout: 1s, grace: 1h}
";

fn slow(name: &'static str) -> WaveHost {
    WaveHost { name, channel: "slow", tier: "web" }
}

/// Today and tomorrow, as days of a window.
fn around_now() -> String {
    const DAYS: [&str; 7] = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"];
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let day = |after: u64| DAYS[usize::try_from((days + after) % 7).unwrap()];
    format!("{}, {}", day(0), day(1))
}

#[test]
fn a_budget_is_shared_and_a_removed_node_frees_it() {
    let fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web"), slow("web-3"), slow("web-4")]);
    let shared = "budgets: [{where: 'labels.tier == \"web\"', max: 1}]";
    let channel = |name: &str| {
        format!(
            "  {name}:\n    waves: [{{name: all, nodes: \"*\", gate: {{soak: 1s}}}}]\n    {shared}\n    confirm: {{window: 5m}}\n"
        )
    };
    fleet.rollouts(&format!("rollouts:\n{}{}{HELD}", channel("fast"), channel("slow")));
    fleet.publish("second");

    // At each look at most one host is on its way, over both channels.
    let channels = ["fast", "slow"];
    let names = ["web-1", "web-2", "web-3", "web-4"];
    let has_second = |name: &&&str| fleet.said(name) == "second";
    let mut done: Vec<&str> = Vec::new();
    while done.len() < 3 {
        let moving = until("the next one is on its way", || {
            let moved: Vec<&str> = names.iter().filter(has_second).copied().collect();
            assert!(moved.len() <= done.len() + 1, "{moved:?}, of which {done:?} are done");
            moved.into_iter().find(|name| !done.contains(name))
        });
        let waits = names.iter().copied().find(|name| *name != moving && !done.contains(name)).unwrap();
        fleet.until_explained(waits, "1 nodes are in flight, and at most 1 may be");
        let in_flight: u64 = channels
            .iter()
            .map(|channel| {
                let view = fleet.rollout(channel);
                fleet.count(&view, "Activating") + fleet.count(&view, "Soaking")
            })
            .sum();
        assert!(in_flight <= 1, "{in_flight}");
        match done.len() {
            // This one is removed while it is on its way: its place is free, and its rollout goes on.
            1 => drop(fleet.server.ok(&["node", "remove", moving, "--yes"])),
            _ => fleet.mark(moving, "/ready", true),
        }
        done.push(moving);
    }
    let last = names.into_iter().find(|name| !done.contains(name)).unwrap();
    fleet.until_says(last, "second");
    fleet.mark(last, "/ready", true);
    channels.iter().for_each(|channel| drop(fleet.until_state(channel, "Terminal")));
}

#[test]
fn edges_pins_windows_and_times_hold_their_nodes() {
    let fleet = WaveFleet::start(&[
        fast("db-1", "database"),
        fast("web-1", "web"),
        fast("web-2", "web"),
        fast("web-3", "web"),
    ]);
    let rollout = |rest: &str| format!("rollouts:\n  fast:\n    confirm: {{window: 5m}}\n{rest}{HELD}");

    // The database before the web, one host pinned, and one in a wave that opens a day later.
    fleet.rollouts(&rollout(
        "    waves:\n      - {name: now, nodes: [db-1, web-1, web-2], gate: {soak: 1s}}\n      \
         - {name: later, nodes: [web-3], notBefore: +24h}\n    edges: [{before: {nodes: db-1}, after: 'labels.tier == \"web\"'}]\n    \
         pins: [{nodes: [web-2], until: 2099-01-31, reason: ticket 812}]\n",
    ));
    fleet.publish("second");
    fleet.until_says("db-1", "second");
    fleet.until_explained("web-1", "go before it");
    fleet.until_explained("web-2", "it is pinned until 2099-01-31T00:00:00Z (ticket 812)");
    fleet.until_explained("web-3", "its wave is closed");
    assert_eq!(fleet.said("web-1"), "first");
    for name in ["db-1", "web-1"] {
        fleet.mark(name, "/ready", true);
    }
    fleet.until_says("web-1", "second");
    fleet.until_explained("web-3", "wave later begins at ");
    // An operator passes a gate, and never the time.
    let _ = fleet.server.muster(&["rollout", "approve", "fast"]);
    fleet.until_explained("web-3", "wave later begins at ");
    assert_eq!((fleet.said("web-2"), fleet.said("web-3")), ("first".to_owned(), "first".to_owned()));

    // A release whose rollout says nothing more takes its place, once that is ended; in a freeze window it starts nobody.
    fleet.server.ok(&["rollout", "abort", "fast"]);
    let fleet_yaml = fleet.repo.join("fleet.yaml");
    let text = std::fs::read_to_string(&fleet_yaml).unwrap();
    let window = format!(
        "windows:\n  audit: {{days: [{}], from: \"00:00\", to: \"24:00\", zone: UTC}}\n",
        around_now()
    );
    write(&fleet_yaml, &(text + &window));
    fleet.rollouts(&rollout("    freeze: [audit]\n"));
    fleet.publish("third");
    for name in ["web-1", "web-3"] {
        fleet.until_explained(name, "the freeze window audit is open");
    }
    assert_eq!(fleet.said("web-1"), "second");

    // What a moment ahead was not to be is begun once it is there, without anybody's word.
    fleet.server.ok(&["rollout", "abort", "fast"]);
    for name in ["web-2", "web-3"] {
        fleet.mark(name, "/ready", true);
    }
    fleet.rollouts(&rollout("    waves: [{name: soon, nodes: \"*\", notBefore: +5s, gate: {soak: 1s}}]\n"));
    fleet.publish("fourth");
    let published = std::time::Instant::now();
    fleet.until_explained("web-1", "wave soon begins at ");
    for name in ["db-1", "web-1", "web-2", "web-3"] {
        fleet.until_says(name, "fourth");
    }
    assert!(published.elapsed().as_secs() >= 4, "{:?}", published.elapsed());
    fleet.until_state("fast", "Terminal");
}

/// A channel goes after another one, whose release was halted: only one that is through lets it begin.
#[test]
fn a_channel_waits_for_one_that_was_halted() {
    let fleet = WaveFleet::start(&[fast("web-1", "web"), slow("web-2")]);
    let all = "waves: [{name: all, nodes: \"*\", gate: {soak: 1s}}]\n    confirm: {window: 5m}";
    let ready = HELD.replace("grace: 1h", "grace: 0s, sustained: 1s");
    fleet.rollouts(&format!(
        "rollouts:\n  fast:\n    {all}\n    onFailure: rollback\n  slow:\n    {all}\n    after: [fast]\n{ready}"
    ));
    fleet.publish("second");
    fleet.until_explained("web-2", "channel fast goes first, and its newest rollout is not through");
    fleet.until_state("fast", "Reverted");
    fleet.until_explained("web-2", "channel fast goes first, and its newest rollout is not through");
    assert_eq!(fleet.said("web-2"), "first");

    for name in ["web-1", "web-2"] {
        fleet.mark(name, "/ready", true);
    }
    fleet.publish("third");
    fleet.until_says("web-2", "third");
    assert_eq!(fleet.rollout("fast")["state"], "Terminal");
    fleet.until_state("slow", "Terminal");
}

/// The first release of a channel goes in waves as well: where it fails on the canary no other host gets it, and the canary is
/// as it was found.
#[test]
fn a_first_release_stops_at_its_canary() {
    let fleet = WaveFleet::joined(&[fast("web-1", "web"), fast("web-2", "web"), fast("web-3", "web")]);
    fleet.host("web-1").edit("/etc/hello", "as found\n");
    let ready = HELD.replace("grace: 1h", "grace: 0s, sustained: 1s");
    fleet.rollouts(&format!(
        "rollouts:\n  fast:\n    waves:\n      - {{name: canary, nodes: [web-1], gate: {{soak: 1s}}}}\n      \
         - {{name: rest, gate: {{soak: 1s}}}}\n    onFailure: rollback\n    confirm: {{window: 5m}}\n{ready}"
    ));
    fleet.publish("first");
    // It goes nowhere back: no host had a release before.
    fleet.until_state("fast", "Failed");
    until("the canary is back by itself, and nobody else began", || {
        let view = fleet.rollout("fast");
        (fleet.count(&view, "Reverted") == 1 && fleet.count(&view, "Pending") == 2).then_some(())
    });
    assert!(!fleet.server.muster(&["rollout", "rollback", "fast"]).status.success());
    fleet.until_says("web-1", "as found");
    fleet.until_explained("web-1", "the probe ready failed");
    for name in ["web-2", "web-3"] {
        fleet.until_explained(name, "the rollout starts nothing any more");
        assert!(!fleet.host(name).path("/etc/hello").exists(), "{name}");
    }
    until("the host says what it is", || {
        let status = text(&fleet.host("web-1").run(&["status"]).stdout);
        status.contains("this host is as it was found").then_some(())
    });

    // What differs is tried, and comes through.
    for name in ["web-1", "web-2", "web-3"] {
        fleet.mark(name, "/ready", true);
    }
    fleet.publish("second");
    fleet.until_state("fast", "Terminal");
    for name in ["web-1", "web-2", "web-3"] {
        fleet.until_says(name, "second");
    }
}

/// What could never be carried out is refused before it is signed, with its place.
#[test]
fn what_cannot_be_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let repo = temp.path();
    write(
        &repo.join("fleet.yaml"),
        "format: 1\nname: e2e\nchannels:\n  fast: {freshness: 24h}\ndefaults: {channel: fast}\n",
    );
    write(
        &repo.join("modules/hello/module.yaml"),
        "resources:\n  - file: /etc/hello\n    content: \"hello\\n\"\n",
    );
    write(&repo.join("nodes.yaml"), "nodes:\n  - match: [web-1, web-2]\n    modules: [hello]\n");
    let rows = [
        (
            "edges: [{before: {nodes: web-1}, after: {nodes: web-2}}, {before: {nodes: web-2}, after: {nodes: web-1}}]",
            "E114",
        ),
        ("waves: [{name: canary, nodes: []}]", "E110"),
        ("budgets: [{max: 0}]", "E113"),
        ("budgets: [{inFlight: 0%}]", "E113"),
    ];
    for (yaml, expected) in rows {
        write(&repo.join("rollouts.yaml"), &format!("rollouts:\n  fast:\n    {yaml}\n"));
        let mut command = std::process::Command::new(test_support::programs::muster());
        let checked = command.arg("check").arg(repo).output().unwrap();
        assert_eq!(code(&checked), 1, "{yaml}");
        let said = out(&checked) + &err(&checked);
        assert!(said.contains(expected) && said.contains("rollouts.yaml:3:"), "{yaml}: {said}");
    }
}
