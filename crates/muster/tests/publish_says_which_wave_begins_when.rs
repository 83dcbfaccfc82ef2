//! ROL-1, ROL-2: a publish says which wave begins when and with how many nodes, whom no wave takes, and what the rollout is
//! called; a policy that changed is shown by `diff` and published, though no node gets anything else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::Signed;
use serde_json::{Value, json};
use test_support::programs::repo::{Control, app_module, code, fleet_yaml, muster, out, write};
use trust::rollout_terms::OnFailure;
use trust::{Header, signed};

const COMMIT: &str = "4f1c2a94f1c2a94f1c2a94f1c2a94f1c2a94f1c2";
const WAVES: &str = "rollouts:
  stable:
    waves:
      - {name: canary, where: 'labels.ring == \"0\"', gate: {soak: 30m}}
      - {name: data, nodes: \"db-*.test\", notBefore: +24h}
    onFailure: rollback
probes:
  web: {http: \"http://localhost/health\"}
";

fn repo(rollouts: &str) -> Vec<(&'static str, String)> {
    let nodes = "nodes:\n  - match: [web-1.test]\n    modules: [app]\n    labels: {ring: \"0\"}\n  \
                 - match: [web-2.test, db-1.test]\n    modules: [app]\n";
    vec![
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        ("nodes.yaml", nodes.to_owned()),
        ("rollouts.yaml", rollouts.to_owned()),
    ]
}

/// `muster VERB` over the fleet repo of a directory, with the exit code and what it printed.
async fn run(control: &Control, dir: &std::path::Path, args: &[&str]) -> (i32, String) {
    let operator = control.operator_file();
    let operator = operator.to_str().unwrap();
    let done = muster(dir, &[args, &["--operator", operator]].concat()).await;
    (code(&done), out(&done))
}

#[tokio::test(flavor = "multi_thread")]
async fn in_words_and_as_json() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    write(dir.path(), &repo(WAVES));
    let (_, text) = run(&control, dir.path(), &["publish", "--dry-run"]).await;
    for line in [
        "rollout in channel stable:\n  canary  1 node, at once\n  data    1 node, after 100 % of canary confirmed it and soaked 30m, not before ",
        "\n  rest    1 node, after 100 % of data confirmed it and soaked 5m, not before ",
        "; no wave takes web-2.test\n  none of its nodes is enrolled by now: it is through as soon as its last wave may begin, and a \
         host that joins later takes the release at once, whatever its wave\n",
        "when more fail than a gate allows, it stops by itself, and the nodes that began go back to the release before, if they had one\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let (_, text) = run(&control, dir.path(), &["--json", "publish", "--yes", "--ref", COMMIT]).await;
    let published: Value = serde_json::from_str(&text).unwrap();
    let rollout = &published["plannedRollouts"][0];
    assert_eq!(rollout["id"], format!("stable@{COMMIT}"));
    assert_eq!(rollout["waves"][2]["takenByNoWave"], json!(["web-2.test"]));
    assert_eq!(rollout["waves"][0]["nodes"], 1);
    assert_eq!(rollout["waves"][0]["awaited"], 0, "nobody is enrolled");
    let header = header(&control).await;
    assert_eq!(header.requires, ["rollout"]);
    assert_eq!(header.rollout.as_ref().unwrap().waves.len(), 2);
    assert!(header.fallbacks.is_empty(), "there was no release before");

    // The commit is taken: the rollout is called by the header's digest.
    write(dir.path(), &repo(&WAVES.replace("30m", "1h")));
    let (differs, text) = run(&control, dir.path(), &["diff"]).await;
    assert_eq!(differs, 2, "{text}");
    assert!(text.contains("3 same, 0 change") && text.contains("stable: wave canary"), "{text}");
    assert!(text.contains("soak: 30m -> 1h"), "{text}");
    assert!(
        !text.contains("wave data"),
        "a time that is counted from the signature is no difference: {text}"
    );
    let (_, text) = run(&control, dir.path(), &["publish", "--yes", "--ref", COMMIT]).await;
    assert!(text.contains("published release 2"), "{text}");
    assert!(text.contains("rollout stable@") && !text.contains(COMMIT), "{text}");
    assert!(text.contains(&by_digest(&control).await), "{text}");
    let second = self::header(&control).await;
    assert_eq!(second.rollout.as_ref().unwrap().on_failure, OnFailure::Rollback);
    assert_eq!(second.fallbacks.iter().map(|fallback| fallback.seq).collect::<Vec<_>>(), [1]);
    let (same, text) = run(&control, dir.path(), &["publish", "--dry-run", "--ref", COMMIT]).await;
    assert_eq!(same, 0, "{text}");

    // What an earlier release held goes out by the waves that it had.
    write(dir.path(), &[("modules/app/module.yaml", app_module("another"))]);
    let (_, text) = run(&control, dir.path(), &["publish", "--yes"]).await;
    assert!(text.contains("published release 3"), "{text}");
    assert!(text.contains(&by_digest(&control).await), "no commit is named: {text}");
    let (_, text) = run(&control, dir.path(), &["release", "rollback", "1", "--yes"]).await;
    let fourth = self::header(&control).await;
    assert_eq!(fourth.seq, 4, "{text}");
    assert_eq!(fourth.rollout, header.rollout);
    assert_eq!(fourth.fallbacks.iter().map(|fallback| fallback.seq).max(), Some(3));
}

/// All that a fleet repo can say of rollouts.
const POLICIES: &str = "rollouts:
  stable:
    waves:
      - {name: canary, where: 'labels.ring == \"0\"', gate: {soak: 30m, success: 90%}}
      - {name: tenth, percent: 10, notBefore: +24h}
      - {name: rest}
    budgets: [{nodes: \"db-*.test\", inFlight: 5%, max: 3}]
    edges: [{before: {nodes: \"db-*.test\"}, after: {nodes: \"web-*.test\"}}]
    after: [edge]
    onFailure: rollback
    confirm: {window: 10m, tries: 3, offline: return}
    seed: one
    freeze: [nights]
    pins: [{nodes: [web-2.test], until: 2099-01-01, reason: audit}]
probes:
  web: {http: \"http://localhost/health\", nodes: \"web-*.test\", every: 10s}
";

/// Each policy that changes is shown by `diff`, whatever else stays: nothing of it is signed unseen.
#[tokio::test(flavor = "multi_thread")]
async fn each_policy_that_changes_is_shown() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    let fleet = "format: 1\nname: acme\nchannels: {stable: {freshness: 24h}, edge: {freshness: 24h}}\n\
                 defaults: {channel: stable}\nwindows: {nights: {from: \"22:00\", to: \"04:00\", zone: UTC}}\n";
    let files = |fleet: &str, rollouts: &str| {
        let mut files = repo(rollouts);
        files[0].1 = fleet.to_owned();
        files
    };
    write(dir.path(), &files(fleet, POLICIES));
    let (code, text) = run(&control, dir.path(), &["publish", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    let (code, text) = run(&control, dir.path(), &["diff"]).await;
    assert_eq!(code, 0, "{text}");
    for (policy, other, shown) in [
        ("ring == \"0\"", "ring == \"1\"", "stable: wave canary"),
        ("soak: 30m", "soak: 1h", "soak: 30m -> 1h"),
        ("success: 90%", "success: 95%", "success: 90% -> 95%"),
        ("percent: 10", "percent: 20", "nodes: 10% of the channel -> 20% of the channel"),
        ("notBefore: +24h", "notBefore: +48h", "notBefore: +1d -> +2d"),
        ("name: tenth", "name: some", "stable: wave some"),
        ("inFlight: 5%", "inFlight: 6%", "inFlight: 5% -> 6%"),
        ("max: 3", "max: 4", "max: 3 -> 4"),
        ("{nodes: \"db-*.test\", inFlight", "{nodes: \"d*.test\", inFlight", "stable: budget of d*.test"),
        (
            "before: {nodes: \"db-*.test\"}",
            "before: {nodes: \"d*.test\"}",
            "stable: d*.test before web-*.test",
        ),
        ("    after: [edge]\n", "", "after: edge"),
        ("onFailure: rollback", "onFailure: halt", "onFailure: rollback -> halt"),
        ("window: 10m", "window: 20m", "within 10m, 3 tries, back when offline -> within 20m, 3 tries"),
        ("tries: 3", "tries: 2", "2 tries"),
        ("offline: return", "offline: confirm", "by its probes when offline"),
        ("seed: one", "seed: two", "seed: one -> two"),
        (
            "from: \"22:00\"",
            "from: \"23:00\"",
            "freeze: nights (22:00-04:00 UTC) -> nights (23:00-04:00 UTC)",
        ),
        ("    freeze: [nights]\n", "", "freeze: nights (22:00-04:00 UTC)"),
        ("until: 2099-01-01", "until: 2098-01-01", "until: 2099-01-01T00:00:00Z -> 2098-01-01T00:00:00Z"),
        ("nodes: [web-2.test]", "nodes: [web-1.test]", "stable: pin of web-1.test"),
        ("reason: audit", "reason: vendor", "reason: audit -> vendor"),
        ("every: 10s", "every: 20s", "every 10 s"),
        ("nodes: \"web-*.test\", every", "nodes: \"w*.test\", every", "of w*.test"),
        ("localhost/health", "localhost/ready", "http://localhost/ready answers 200"),
    ] {
        let (in_fleet, in_rollouts) = (fleet.replacen(policy, other, 1), POLICIES.replacen(policy, other, 1));
        assert!(in_fleet != fleet || in_rollouts != POLICIES, "{policy}");
        write(dir.path(), &files(&in_fleet, &in_rollouts));
        let (code, text) = run(&control, dir.path(), &["diff"]).await;
        assert_eq!(code, 2, "{policy}: {text}");
        assert!(text.contains(shown), "{policy}: {shown:?} is not in\n{text}");
    }
}

/// A wave that people keep where it is holds nothing up, and the publish says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_wave_that_is_pinned_is_told() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    let pinned =
        "    onFailure: rollback\n    pins: [{nodes: [web-1.test], until: 2099-01-01, reason: audit}]\n";
    write(dir.path(), &repo(&WAVES.replace("    onFailure: rollback\n", pinned)));
    let (_, text) = run(&control, dir.path(), &["publish", "--dry-run"]).await;
    let want = "  canary  1 node, at once; its node is pinned, so it holds nothing up\n";
    assert!(text.contains(want), "{text}");
}

/// What shows only beside the time publishes nothing, and `check` says it with its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_is_past_is_refused() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    write(dir.path(), &repo(&WAVES.replace("+24h", "2020-01-01")));
    for verb in [&["publish", "--yes"][..], &["publish", "--dry-run"]] {
        let (code, text) = run(&control, dir.path(), verb).await;
        assert_eq!(code, 1, "{text}");
    }
    let checked = muster(dir.path(), &["check"]).await;
    assert_eq!(code(&checked), 1);
    assert!(out(&checked).contains("rollouts.yaml:5:53  E112"), "{}", out(&checked));
}

/// A policy alone is published for the same content; waves that nobody declares are all nodes; and what goes out without a
/// rollout any more is told before it is published.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_the_waves_is_told() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    let says = async |args: &[&str], said: &str| {
        let (_, text) = run(&control, dir.path(), args).await;
        assert!(text.contains(said), "{args:?}: {said:?} is not in\n{text}");
        text
    };
    let (publish, dry) = (["publish", "--yes"], ["publish", "--dry-run"]);
    write(dir.path(), &repo(WAVES));
    says(&publish, "published release 1").await;
    write(dir.path(), &repo(&WAVES.replace("30m", "1h")));
    let same = "the content of each is what it was (of 3 named nodes and 0 patterns now), and the release goes through its \
                waves all the same";
    says(&dry, same).await;
    says(&publish, same).await;

    write(dir.path(), &repo("rollouts: {stable: {}}\n"));
    let text = says(&dry, "rollout in channel stable:\n  all nodes (3), at once\n").await;
    assert!(!text.contains("no wave takes"), "{text}");

    std::fs::remove_file(dir.path().join("rollouts.yaml")).unwrap();
    let at_once = "channel stable declares no rollout any more: this release goes to all its nodes at once";
    says(&dry, at_once).await;
    says(&publish, at_once).await;

    // What an earlier release held goes through the waves of then.
    let waves = "rollout in channel stable:\n  canary  at once\n  data    after 100 % of canary confirmed it and soaked 30m";
    write(dir.path(), &[("modules/app/module.yaml", app_module("another"))]);
    says(&publish, "published release 4").await;
    let text = says(&["release", "rollback", "1", "--dry-run"], waves).await;
    assert!(
        text.contains("stable: wave canary"),
        "that there were no waves in between is a difference: {text}"
    );
}

async fn signed_header(control: &Control) -> Signed {
    let head =
        control.operator().await.call(&server::api::HEAD, server::api::operation::Empty {}).await.unwrap();
    head.headers.into_values().next().unwrap()
}

/// What names the newest rollout where no commit does.
async fn by_digest(control: &Control) -> String {
    format!("rollout stable@{}", signed::digest(&signed_header(control).await))
}

async fn header(control: &Control) -> Header {
    serde_json::from_str(&signed_header(control).await.payload).unwrap()
}
