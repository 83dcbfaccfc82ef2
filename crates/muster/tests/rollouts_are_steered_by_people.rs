//! ROL-1, OPS-1: with real programs an operator pauses, resumes, approves, skips, aborts and sends back, each takes effect
//! on nodes that did not begin, `rollout watch` says each change in one line and by its exit code how it ended, and
//! `rollout list` says why each stands.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::text;
use test_support::programs::waves::{WaveFleet, fast};
use test_support::wait::until_blocking as until;

/// The first host of each wave passes once its file is there.
const TERMS: &str = "rollouts:
  fast:
    waves:
      - {name: canary, nodes: [web-1], gate: {soak: 1s}}
      - {name: second, nodes: [web-2], gate: {soak: 1s}}
      - {name: rest, gate: {soak: 1s}}
    onFailure: ROLLBACK
    confirm: {window: 5m}
probes:
  ready: {command: [/bin/sh, -c, 'test -e $MUSTER_ROOT/ready'], every: 1s, timeout: 1s, grace: GRACE, sustained: 1s}
";

fn terms(on_failure: &str, grace: &str) -> String {
    TERMS.replace("ROLLBACK", on_failure).replace("GRACE", grace)
}

#[test]
fn by_each_of_their_words() {
    let fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web"), fast("web-3", "web")]);
    let word = |verb: &str| fleet.server.ok(&["rollout", verb, "fast"]);

    // Paused before the next wave opens: nobody of it begins until it is resumed.
    fleet.rollouts(&terms("halt", "1h"));
    fleet.publish("second");
    fleet.until_says("web-1", "second");
    word("pause");
    fleet.mark("web-1", "/ready", true);
    fleet.until_explained("web-1", "is confirmed");
    fleet.until_explained("web-2", "paused the rollout");
    assert_eq!(fleet.said("web-2"), "first");
    let mut watch = fleet.server.begin("watch", &["rollout", "watch", "fast"]);
    until("the pause is said", || watch.log().contains(" is paused: ").then_some(()));
    word("resume");
    until("so is its end", || (watch.log().lines().count() > 1).then_some(()));
    fleet.until_says("web-2", "second");

    // The second wave's node is not confirmed, and somebody lets the next one open all the same.
    fleet.until_explained("web-3", "its wave is closed");
    word("approve");
    fleet.until_says("web-3", "second");
    for name in ["web-2", "web-3"] {
        fleet.mark(name, "/ready", true);
    }
    fleet.until_state("fast", "Terminal");
    until("watching ends", || (!watch.is_there()).then_some(()));
    let log = watch.log();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("rollout fast@")), "each change is one line: {log}");
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "and only a change is said: {log}");
    let (paused, resumed) = (lines[0], lines[1]);
    assert!(paused.ends_with(" is paused: operator paused it; 2 pending, 1 confirmed"), "{log}");
    assert!(resumed.contains(" is under way; "), "{log}");
    let said = watch.out_at_end(0);
    assert!(said.contains("it is through"), "{said}");
    let refused = fleet.server.muster(&["rollout", "rollback", "fast"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("publish that once more: `muster release rollback"), "{said}");

    // A host that is taken out holds up nobody, and stays on what it has.
    fleet.mark("web-1", "/ready", false);
    fleet.publish("third");
    fleet.until_says("web-1", "third");
    fleet.server.ok(&["rollout", "skip", "fast", "web-2"]);
    fleet.mark("web-1", "/ready", true);
    fleet.until_says("web-3", "third");
    fleet.until_explained("web-2", "took it out of the rollout");
    assert_eq!(fleet.said("web-2"), "second");
    fleet.until_through("fast");
    fleet.until_listed("web-2", "operator took it out of the rollout of release ");

    // Aborted: what began stays where it is, and nobody else begins.
    fleet.mark("web-1", "/ready", false);
    fleet.publish("fourth");
    fleet.until_says("web-1", "fourth");
    word("abort");
    let watched = fleet.server.muster(&["rollout", "watch", "fast"]);
    assert_eq!(watched.status.code(), Some(3));
    fleet.mark("web-1", "/ready", true);
    fleet.until_explained("web-1", "is confirmed");
    fleet.until_explained("web-3", "starts nothing any more");
    assert_eq!(fleet.said("web-3"), "third");

    // Sent back: the host that was confirmed goes back to what it had.
    fleet.rollouts(&terms("rollback", "1h"));
    fleet.publish("fifth");
    fleet.until_says("web-2", "fifth");
    let watch = fleet.server.begin("watch-back", &["rollout", "watch", "fast"]);
    word("rollback");
    for name in ["web-1", "web-2"] {
        fleet.until_explained(name, "it is back on the release that it had");
    }
    assert_eq!((fleet.said("web-1"), fleet.said("web-2")), ("fourth".to_owned(), "second".to_owned()));
    watch.out_at_end(3);
    for name in ["web-1", "web-2"] {
        fleet.until_listed(name, "went back from release ");
    }

    // Halted by itself, and resumed in spite of what failed: the next one that fails halts it again.
    for name in ["web-1", "web-2", "web-3"] {
        let _ = std::fs::remove_file(fleet.host(name).path("/ready"));
    }
    fleet.mark("web-2", "/ready", true);
    fleet.rollouts(&terms("halt", "0s"));
    fleet.publish("sixth");
    fleet.until_state("fast", "Failed");
    fleet.until_explained("web-2", "starts nothing any more");
    fleet.server.begin("watch-halted", &["rollout", "watch", "fast"]).out_at_end(3);
    is_listed(&fleet);
    word("resume");
    fleet.until_says("web-2", "sixth");
}

/// `rollout watch` goes on over a restart of the control plane, and ends as the rollout does.
#[test]
fn watching_goes_on_over_a_restart_of_the_control_plane() {
    let mut fleet = WaveFleet::start(&[fast("web-1", "web"), fast("web-2", "web")]);
    fleet.rollouts(&terms("halt", "1h"));
    fleet.publish("second");
    fleet.until_says("web-1", "second");
    let mut watch = fleet.server.begin("watch", &["rollout", "watch", "fast"]);
    let says = |what: &str| until(what, || watch.log().contains(what).then_some(()));
    says(" is under way; ");
    fleet.control.end();
    says("the control plane does not answer; it is asked again");
    fleet.control = fleet.server.start();
    says("the control plane answers again");
    assert!(watch.is_there());
    for name in ["web-1", "web-2"] {
        fleet.mark(name, "/ready", true);
    }
    let said = watch.out_at_end(0);
    assert!(said.contains("it is through"), "{said}");
}

/// Rollouts are listed, the newest first, and each that stands says why.
fn is_listed(fleet: &WaveFleet) {
    let list = |more: &[&str]| fleet.server.ok(&[&["rollout", "list"][..], more].concat());
    let releases = |table: &str| -> Vec<String> {
        table.lines().skip(1).map(|row| row.split_whitespace().nth(1).unwrap().to_owned()).collect()
    };
    let all = list(&[]);
    let (head, rows) = all.split_once('\n').unwrap();
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns, ["ROLLOUT", "RELEASE", "STATE", "SINCE", "NODES", "WHY"]);
    assert_eq!(releases(&all), ["6", "5", "4", "3", "2"], "{all}");
    let (newest, cause) = (rows.lines().next().unwrap(), fleet.rollout("fast")["halt"]["cause"].clone());
    assert!(newest.contains(" halted ") && newest.contains(" 2 pending"), "{all}");
    assert!(newest.ends_with(cause.as_str().unwrap()), "{cause} is not in {all}");
    assert_eq!(releases(&list(&["--limit", "2"])), ["6", "5"]);
    assert_eq!(releases(&list(&["--channel", "fast"])), releases(&all));
    assert!(releases(&list(&["--channel", "slow"])).is_empty());
}
