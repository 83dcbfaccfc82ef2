//! CNV-2, CNV-6: verbs on the host work while the daemon has the state, and say the same as without it;
//! each resource of a run is shown with its outcome, and a failed one with its cause.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use catalog::module::Module;
use serde_json::Value;
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{file, handler, module, resource};
use test_support::wait::until_blocking;

fn modules() -> Vec<Module> {
    let mut base = module("base");
    let mut secret = file("/etc/secret", "canary-content\n");
    secret.sensitive = true;
    let mut motd = file("/etc/motd", "hello\n");
    motd.notify = vec!["reload".to_owned()];
    let mut fails =
        resource("exec", "breaks", &[("command", vec!["sh", "-c", "echo why not; exit 7"].into())]);
    fails.attributes.insert("cwd".to_owned(), "/etc".into());
    base.resources = vec![motd, secret, fails];
    base.handlers = vec![handler("reload", "true")];
    vec![base]
}

/// A text without what differs each time: durations and times.
fn timeless(text: &str) -> String {
    text.lines()
        .map(|line| line.rsplit_once(", ").map_or(line, |(line, _)| line))
        .collect::<Vec<_>>()
        .join("\n")
}

fn outcome<'a>(status: &'a Value, resource: &str) -> &'a Value {
    let resources = status["lastRun"]["resources"].as_array().unwrap();
    resources.iter().find(|one| one["resource"] == resource).unwrap()
}

#[test]
fn plan_apply_and_status_say_the_same_with_and_without_it() {
    let mut host = LocalHost::new(modules());
    let (code, refused) = printed(&host.agent(&["apply"]));
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("no agent runs here") && refused.contains("apply --once"), "{refused}");
    let (code, without) = printed(&host.agent(&["plan"]));
    assert_eq!(code, Some(2), "{without}");
    let first = host.agent(&["apply", "--once"]);
    assert_eq!(first.status.code(), Some(3), "{first:?}");
    let (code, status) = printed(&host.agent(&["status"]));
    assert_eq!(code, Some(3), "resources failed: {status}");
    assert!(status.contains("daemon         does not run"), "{status}");
    assert!(status.contains("FAILED           base/exec:breaks"), "{status}");

    host.start();
    // Else it is put right at once.
    host.json(&["pause", "--reason", "a difference to look at"]);
    host.write("etc/motd", "by hand\n");
    let (code, with) = printed(&host.agent(&["plan"]));
    assert_eq!(code, Some(2), "{with}");
    host.kill();
    let (_, without) = printed(&host.agent(&["plan"]));
    assert_eq!(timeless(&with), timeless(&without));
    assert_eq!(host.read("etc/motd").unwrap(), "by hand\n", "a plan touches nothing");

    host.start();
    host.json(&["resume"]);
    let status = until_blocking("the difference is put right", || {
        let status = host.json(&["status"]);
        // The first try to reach a control plane may take longer than the run.
        let tried = status["daemon"]["contact"]["problem"].is_string();
        (tried && outcome(&status, "base/file:/etc/motd")["action"] == "changed").then_some(status)
    });
    assert_eq!(host.read("etc/motd").unwrap(), "hello\n");
    for (resource, action) in [
        ("base/file:/etc/motd", "changed"),
        ("base/file:/etc/secret", "ok"),
        ("base/exec:breaks", "failed"),
        ("base/shell:reload", "changed"),
    ] {
        assert_eq!(outcome(&status, resource)["action"], action, "{resource}");
        assert!(outcome(&status, resource)["durationMs"].is_u64());
    }
    let applied = host.agent(&["apply"]);
    assert_eq!(applied.status.code(), Some(3), "{applied:?}");
    assert!(status["daemon"]["factsWaiting"].as_u64() > Some(0));
    assert!(status["certificateEnds"].is_string());
    let (_, all) = printed(&host.agent(&["status", "--all"]));
    assert!(all.contains("ok               base/file:/etc/secret"), "{all}");
    let (_, notable) = printed(&host.agent(&["status"]));
    assert!(!notable.contains("base/file:/etc/secret"), "what is right is only counted: {notable}");
}

#[test]
fn a_failed_command_is_told_with_its_directory_and_output_once() {
    let mut host = LocalHost::new(modules());
    host.start();
    for _ in 0..2 {
        assert_eq!(host.agent(&["apply"]).status.code(), Some(3));
    }
    let (_, status) = printed(&host.agent(&["status"]));
    let cause = "`sh -c echo why not; exit 7` in /etc exited with 7: why not";
    assert!(status.contains(cause), "{status}");
    let log = host.log();
    let named: Vec<&str> = log.lines().filter(|line| line.contains("a resource failed")).collect();
    assert_eq!(named.len(), 1, "an unchanged failure is named once: {log}");
    assert!(named[0].contains("WARN") && named[0].contains("base/exec:breaks"), "{named:?}");
    assert!(named[0].contains("exited with 7"), "{named:?}");
}

#[test]
fn why_explains_a_resource() {
    let mut host = LocalHost::new(modules());
    host.start();
    let why = host.json(&["why", "/etc/motd"]);
    assert_eq!(why["resource"], "base/file:/etc/motd");
    assert_eq!(why["declared"]["content"], "hello\n");
    assert_eq!(why["notifies"], serde_json::json!(["base/shell:reload"]));
    assert_eq!(why["ledger"]["prior"], "nothing");
    assert!(why["outcome"]["changed"].is_string() && why["outcome"]["since"].is_string(), "{why}");
    let (code, secret) = printed(&host.agent(&["why", "base/file:/etc/secret"]));
    assert_eq!(code, Some(0), "{secret}");
    assert!(secret.contains("content: (hidden") && !secret.contains("canary"), "{secret}");
    assert_eq!(host.json(&["why", "motd"])["resource"], "base/file:/etc/motd", "an end that only one has");
    let handler = host.json(&["why", "reload"]);
    assert_eq!(handler["notifiedBy"], serde_json::json!(["base/file:/etc/motd"]));
    let (code, failed) = printed(&host.agent(&["why", "breaks"]));
    assert_eq!(code, Some(3));
    assert!(failed.contains("exited with 7"), "{failed}");
    let (code, near) = printed(&host.agent(&["why", "/etc/mtod"]));
    assert_eq!(code, Some(1));
    assert!(near.contains("did you mean base/file:/etc/motd?"), "{near}");
    host.kill();
    let offline = host.json(&["why", "/etc/motd"]);
    assert_eq!(offline["outcome"]["action"], why["outcome"]["action"], "the same without the daemon");
}

#[test]
fn a_run_by_tag_looks_at_nothing_else() {
    let mut tagged = modules();
    tagged[0].resources[0].tags = ["greeting".to_owned()].into();
    let mut host = LocalHost::new(tagged);
    host.start();
    let (code, unknown) = printed(&host.agent(&["apply", "--tags", "greetings"]));
    assert_eq!(code, Some(1));
    assert!(unknown.contains("did you mean `greeting`"), "{unknown}");
    let applied = host.json(&["apply", "--tags", "greeting"]);
    let counts = &applied["counts"];
    assert_eq!([&counts["ok"], &counts["changed"], &counts["failed"]], [1, 0, 0], "{applied}");
    let status = host.json(&["status"]);
    assert_eq!(outcome(&status, "base/exec:breaks")["action"], "failed", "what is known of the rest stays");
    assert_eq!(outcome(&status, "base/file:/etc/motd")["action"], "ok");
}

#[test]
fn an_agent_that_was_killed_leaves_its_socket_to_the_next() {
    let mut host = LocalHost::new(modules());
    host.start();
    host.kill();
    assert!(host.socket().exists(), "a killed agent cannot clean up");
    assert!(host.json(&["status"])["daemon"].is_null());
    host.start();
    assert!(host.json(&["status"])["daemon"].is_object());
    until_blocking("a run was made", || host.json(&["status"])["lastRun"].is_object().then_some(()));
}

/// Each exit code of `status` but those of contacts, which `status_names_contact_and_certificate` has.
#[test]
fn status_ends_with_what_is_the_matter() {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", "hello\n")];
    let mut host = LocalHost::new(vec![base]);
    let code = |host: &LocalHost, arguments: &[&str]| host.agent(arguments).status.code();
    assert_eq!(code(&host, &["apply", "--once"]), Some(0));
    assert_eq!(code(&host, &["status"]), Some(1), "all is as declared, and nothing keeps it so");
    host.start();
    until_blocking("the first contact failed: no control plane is there", || {
        (code(&host, &["status"]) == Some(4)).then_some(())
    });
}

/// What only observes and differs is told by `apply` as by `plan`.
#[test]
fn an_apply_over_what_only_observes_ends_with_differences() {
    let mut base = module("base");
    let mut motd = file("/etc/motd", "hello\n");
    motd.observe = true;
    base.resources = vec![motd];
    let host = LocalHost::new(vec![base]);
    for verb in [&["plan"][..], &["apply", "--once"]] {
        let (code, text) = printed(&host.agent(verb));
        assert_eq!(code, Some(2), "{verb:?}: {text}");
        assert!(text.contains("1 would change"), "{text}");
    }
    assert_eq!(host.read("etc/motd"), None);
}
