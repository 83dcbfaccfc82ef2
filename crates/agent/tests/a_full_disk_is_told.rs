//! LIF-10, CNV-3: an agent whose disk is full keeps what it holds, and both sides name the path and what the disk says,
//! until there is room and it adopts the release by itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use model::replication::{Mode, TransportPolicy};
use server::api::StatusView;
use test_support::agent_pair::{Pair, Says, says};
use test_support::agent_state::{file, module};
use test_support::wait::until;

fn declared(text: &str) -> Says {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", text)];
    let mut says = says(Mode::Managed, None, TransportPolicy::Auto);
    says.modules = vec![base];
    says
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cause_is_at_both_sides_until_there_is_room() {
    let can_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: mounting needs root");
    }
    let mut pair = Pair::new(&declared("hello\n")).await;
    pair.isolate_mounts();
    let daemon = pair.daemon();
    let motd = pair.root().join("etc/motd");
    let holds = |text: &str| std::fs::read_to_string(&motd).is_ok_and(|it| it == text).then_some(());
    until("the first release is applied", async || holds("hello\n")).await;
    let sh = |script: String| {
        let target =
            ["--target", &daemon.pid().to_string(), "--mount", "sh", "-ec", &script].map(str::to_owned);
        assert!(Command::new("nsenter").args(target).status().unwrap().success(), "{script}");
    };
    // Where what is received lies until it is whole.
    let partial = pair.state().join("content/partial").display().to_string();
    sh(format!("mount -t tmpfs -o size=4k tmpfs {partial}; head -c 4096 /dev/zero > {partial}/fill"));
    pair.publish(&declared("good day\n")).await;

    let line = until("the control plane says why", async || {
        let status: StatusView = pair.operator.status().await;
        status.causes.into_iter().find(|line| line.cause.contains("No space left"))
    })
    .await;
    assert!(
        line.cause.contains("could not be written to its disk") && line.cause.contains(&partial),
        "{line:?}"
    );
    assert!(line.next.starts_with("on web-1: ") && line.next.ends_with(" doctor"), "{line:?}");
    let node = pair.operator.node("web-1").await;
    assert_eq!((node.cause, node.held.unwrap().seq), (Some(line.cause), 1));
    let output = tokio::task::block_in_place(|| pair.agent(&["status"]));
    assert_eq!(output.status.code(), Some(3), "not as it should be: {output:?}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let told =
        shown.lines().find(|line| line.starts_with("NOT ADOPTED")).unwrap_or_else(|| panic!("{shown}"));
    assert!(told.contains("No space left") && told.contains(&partial), "{told}");
    assert!(!told.contains("put-"), "a temporary name is no part of the cause: {told}");

    sh(format!("umount {partial}"));
    until("the release is adopted once there is room", async || holds("good day\n")).await;
    until("nothing is said any more", async || pair.operator.status().await.causes.is_empty().then_some(()))
        .await;
    let output = tokio::task::block_in_place(|| pair.agent(&["status"]));
    assert!(!String::from_utf8(output.stdout).unwrap().contains("NOT ADOPTED"));
}
