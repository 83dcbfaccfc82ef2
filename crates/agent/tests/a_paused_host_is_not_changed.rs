//! CNV-6: a pause holds every change of the host, over restarts, until it is resumed or its time is
//! over; who looks sees why, on the host and at the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::{Child, Stdio};

use model::replication::{Mode, TransportPolicy};
use server::api::StatusView;
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_pair::{Pair, says};
use test_support::agent_state::{file, module};
use test_support::wait::{until, until_blocking};

fn host() -> LocalHost {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", "hello\n")];
    LocalHost::new(vec![base])
}

#[test]
fn runs_only_observe_until_it_is_resumed() {
    let mut host = host();
    host.start();
    let (code, paused) = printed(&host.agent(&["pause", "--reason", "kernel debugging"]));
    assert_eq!(code, Some(0), "{paused}");
    host.write("etc/motd", "by hand\n");
    let (code, refused) = printed(&host.agent(&["apply"]));
    assert_eq!(code, Some(5), "{refused}");
    assert!(refused.contains("kernel debugging") && refused.contains(" resume ends the pause"), "{refused}");
    let (_, status) = printed(&host.agent(&["status"]));
    assert!(status.contains("PAUSED") && status.contains("kernel debugging"), "{status}");
    host.kill();
    let (code, refused) = printed(&host.agent(&["apply", "--once"]));
    assert_eq!(code, Some(5), "a pause holds without the daemon too: {refused}");
    // It outlives the restart: the first run of the next daemon only observes.
    host.start();
    until_blocking("the next daemon observes the difference", || {
        let last = host.json(&["status"])["lastRun"].clone();
        (last["paused"]["reason"] == "kernel debugging" && last["counts"]["wouldChange"] == 1).then_some(())
    });
    assert_eq!(host.read("etc/motd").unwrap(), "by hand\n", "a paused host was changed");
    let (code, resumed) = printed(&host.agent(&["resume"]));
    assert_eq!(code, Some(0), "{resumed}");
    until_blocking("the host is made as declared at once", || {
        (host.read("etc/motd").as_deref() == Some("hello\n")).then_some(())
    });
    assert_eq!(printed(&host.agent(&["resume"])).1, "this host is not paused\n");
}

#[test]
fn it_ends_by_itself() {
    let mut host = host();
    host.start();
    let paused = host.json(&["pause", "--reason", "a moment", "--for", "2s"]);
    assert!(paused["pause"]["until"].is_string(), "{paused}");
    host.write("etc/motd", "by hand\n");
    until_blocking("the pause ends", || (host.read("etc/motd").as_deref() == Some("hello\n")).then_some(()));
    assert!(host.json(&["status"])["paused"].is_null());
}

/// The word that the host is paused comes when a repair that began before is over, and changes nothing any more.
#[test]
fn the_answer_waits_for_a_repair_under_way() {
    let mut base = module("base");
    let mut motd = file("/etc/motd", "hello\n");
    let script = "! test -e $MUSTER_ROOT/hold || touch $MUSTER_ROOT/repairs; while test -e $MUSTER_ROOT/hold; do sleep 0.05; done";
    motd.attributes.insert("validate".to_owned(), vec!["sh", "-c", script].into());
    base.resources = vec![motd];
    let mut host = LocalHost::new(vec![base]);
    host.start();
    host.write("hold", "");
    host.write("etc/motd", "by hand\n");
    until_blocking("a repair is under way", || host.read("repairs").map(drop));
    let mut pausing = host.command(&["pause", "--reason", "looking"]);
    let pausing = pausing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_blocking("the daemon heard of the pause", || {
        host.json(&["status"])["paused"]["reason"].is_string().then_some(())
    });
    assert!(!is_over(&pausing), "the host is called paused while a repair is under way");
    std::fs::remove_file(host.root().join("hold")).unwrap();
    let (code, said) = printed(&pausing.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(host.read("etc/motd").unwrap(), "hello\n", "the repair is over");
    assert!(!said.contains("goes on to its end"), "{said}");
}

/// Whether a process ended; it stays to be waited for.
fn is_over(child: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}

/// A new pause keeps nothing of the one before but its beginning, and says so.
#[test]
fn a_pause_without_an_end_takes_the_place_of_one_with_an_end() {
    let mut host = host();
    for with_daemon in [false, true] {
        if with_daemon {
            host.start();
        }
        let bounded = host.json(&["pause", "--reason", "a while", "--for", "2h"]);
        let until = bounded["pause"]["until"].as_str().unwrap();
        let (code, said) = printed(&host.agent(&["pause", "--reason", "longer"]));
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(&format!("it does not end by itself any more, as it did at {until}")),
            "{said}"
        );
        let again = host.json(&["pause", "--reason", "longer still"]);
        assert!(again["pause"]["until"].is_null(), "{again}");
        let (_, said) = printed(&host.agent(&["pause", "--reason", "once more"]));
        assert!(!said.contains("any more"), "{said}");
    }
}

#[test]
fn a_pause_needs_a_reason_and_bounds() {
    let host = host();
    for wrong in [
        &["pause"][..],
        &["pause", "--reason", " "],
        &["pause", "--reason", "two\nlines"],
        &["pause", "--reason", "x", "--for", "soon"],
        &["pause", "--reason", "x", "--for", "0s"],
        &["pause", "--reason", "x", "--for", "9999d"],
    ] {
        assert_eq!(host.agent(wrong).status.code(), Some(1), "{wrong:?}");
    }
    // Without a daemon it is noted for the next one.
    assert_eq!(host.agent(&["pause", "--reason", "first boot"]).status.code(), Some(0));
    assert_eq!(host.json(&["status"])["paused"]["reason"], "first boot");
    assert_eq!(host.agent(&["resume"]).status.code(), Some(0));
    assert!(host.json(&["status"])["paused"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_shows_it_with_its_reason() {
    let mut pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let daemon = pair.daemon();
    let status = async |pair: &mut Pair| pair.operator.get::<StatusView>("/v1/status").await.unwrap();
    until("it is converged", async || {
        let view = status(&mut pair).await;
        view.states.keys().any(|state| state.to_string() == "converged").then_some(())
    })
    .await;
    let paused = tokio::task::block_in_place(|| pair.agent(&["pause", "--reason", "disk swap"]));
    assert!(paused.status.success(), "{paused:?}");
    let cause = until("the control plane hears of it", async || {
        let view = status(&mut pair).await;
        view.causes.into_iter().find(|cause| cause.state.to_string() == "paused")
    })
    .await;
    assert!(cause.cause.contains("disk swap") && cause.since.is_some(), "{cause:?}");
    assert!(cause.next.contains("muster-agent") && cause.next.ends_with(" resume"), "{cause:?}");
    let resumed = tokio::task::block_in_place(|| pair.agent(&["resume"]));
    assert!(resumed.status.success(), "{resumed:?}");
    until("the control plane hears of its end", async || {
        let view = status(&mut pair).await;
        view.states.keys().any(|state| state.to_string() == "converged").then_some(())
    })
    .await;
    drop(daemon);
}
