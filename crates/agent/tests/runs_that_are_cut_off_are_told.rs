//! CNV-2, FCT-1: a run that a kill cut off leaves a trace in `muster-agent status`, in the journal and in the
//! facts; `status` names the last run that succeeded beside one that did not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agent::state::StateDir;
use model::log::FactBody;
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{module, resource};
use test_support::wait::until_blocking;

/// A host whose one resource is slow where `slow` is, and fails where `broken` is.
fn host() -> LocalHost {
    let script = "test ! -e $MUSTER_ROOT/etc/slow || exec sleep 20; test ! -e $MUSTER_ROOT/etc/broken";
    let mut base = module("base");
    base.resources = vec![resource("exec", "looks", &[("command", vec!["sh", "-c", script].into())])];
    LocalHost::new(vec![base])
}

#[test]
fn a_killed_run_is_told_until_another_one_ended() {
    let mut host = host();
    host.start();
    assert!(!printed(&host.agent(&["status"])).1.contains("CUT OFF"));
    host.write("etc/slow", "");
    let mut apply = host.command(&["apply"]).spawn().unwrap();
    until_blocking("the run is under way", || {
        let status = host.json(&["status"]);
        (status["daemon"]["runningSince"].is_string() && host.state().join("run.json").exists()).then_some(())
    });
    host.kill();
    apply.wait().unwrap();
    let (_, status) = printed(&host.agent(&["status"]));
    assert!(status.contains("CUT OFF        the run that began 2"), "without a daemon: {status}");

    std::fs::remove_file(host.root().join("etc/slow")).unwrap();
    host.start();
    assert!(host.log().contains("the last run was cut off"), "{}", host.log());
    let (_, status) = printed(&host.agent(&["status"]));
    assert!(!status.contains("CUT OFF"), "another run ended: {status}");
    host.kill();
    let durable = StateDir::create(&host.state()).unwrap().open().unwrap();
    let cut_off = durable
        .first_facts()
        .unwrap()
        .facts
        .into_iter()
        .filter(|fact| matches!(fact.body, FactBody::Started { cut_off_run: Some(_), .. }));
    assert_eq!(cut_off.count(), 1, "one start says so");
}

#[test]
fn the_last_success_is_named_beside_a_failure() {
    let mut host = host();
    host.start();
    let started =
        |host: &LocalHost, of: &str| host.json(&["status"])["lastRun"][of].as_str().map(str::to_owned);
    let success = started(&host, "started");
    assert!(success.is_some() && started(&host, "succeeded") == success);
    host.write("etc/broken", "");
    let (code, _) = printed(&host.agent(&["apply"]));
    assert_eq!(code, Some(3));
    assert_eq!(started(&host, "succeeded"), success);
    let (code, status) = printed(&host.agent(&["status"]));
    assert_eq!(code, Some(3), "{status}");
    assert!(status.contains("last success   2"), "{status}");
}
