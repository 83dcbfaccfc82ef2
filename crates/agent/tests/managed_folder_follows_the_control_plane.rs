//! SYN-5, SYN-7, SYN-9: in managed mode a watched folder is as the control plane wants it:
//! local edits are reverted, local deletes are recreated, a user's own files stay, half-written
//! manifests are named and mended, and statuses go up.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use model::replication::{Mode, TransportPolicy};
use serde_json::json;
use test_support::agent_pair::{Daemon, Pair, files, item, says};
use test_support::wait::{eventually, until};

const FOLDER: &str = "/srv/manifests";

/// A node with objects `a` and `b` in its folder; gives the file of `a`.
async fn pair() -> (Pair, Daemon, PathBuf) {
    let mut pair = Pair::new(&says(Mode::Managed, Some(FOLDER), TransportPolicy::Grpc)).await;
    std::fs::create_dir_all(pair.root().join("srv/manifests")).unwrap();
    std::fs::write(pair.root().join("srv/manifests/own.yaml"), OWN).unwrap();
    std::fs::write(pair.root().join("srv/manifests/README"), "not a manifest").unwrap();
    let daemon = pair.daemon();
    pair.apply(vec![item("a", "one"), item("b", "two")]).await;
    let file = pair.root().join("srv/manifests/item/web/a.yaml");
    eventually("the object is a file", || file.exists()).await;
    eventually("so is the other one", || pair.root().join("srv/manifests/item/web/b.yaml").exists()).await;
    (pair, daemon, file)
}

const OWN: &str =
    "apiVersion: test/v1\nkind: Item\nmetadata: {namespace: web, name: own}\nspec: {text: mine}\n";

fn own_file(pair: &Pair) -> String {
    std::fs::read_to_string(pair.root().join("srv/manifests/own.yaml")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn local_edits_are_reverted_and_local_deletes_are_recreated() {
    let (pair, daemon, file) = pair().await;
    let wanted = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, wanted.replace("one", "by hand")).unwrap();
    eventually("the edit is reverted", || std::fs::read_to_string(&file).unwrap_or_default() == wanted).await;
    std::fs::remove_file(&file).unwrap();
    eventually("the file is recreated", || std::fs::read_to_string(&file).unwrap_or_default() == wanted)
        .await;
    // Half of it, as of an editor that died.
    std::fs::write(&file, &wanted[..wanted.len() / 2]).unwrap();
    eventually("half a manifest is mended", || std::fs::read_to_string(&file).unwrap_or_default() == wanted)
        .await;
    assert_eq!(own_file(&pair), OWN);
    assert!(daemon.end().await.success());
    // What was edited while the agent was away is reverted too.
    std::fs::write(&file, wanted.replace("one", "by night")).unwrap();
    let daemon = pair.daemon();
    eventually("the edit is reverted", || std::fs::read_to_string(&file).unwrap_or_default() == wanted).await;
    assert!(daemon.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn unmanaged_files_stay_and_deletes_take_only_what_was_put() {
    let (mut pair, _daemon, file) = pair().await;
    pair.delete("a").await;
    eventually("the file is gone", || !file.exists()).await;
    assert_eq!(own_file(&pair), OWN);
    assert!(pair.root().join("srv/manifests/README").exists());
    assert_eq!(files(&pair.root().join("srv/manifests")).len(), 3);
    // A node that leaves managed mode keeps its files as they are.
    pair.publish(&says(Mode::Off, None, TransportPolicy::Grpc)).await;
    until("the node is off", async || (pair.status()["mode"] == "off").then_some(())).await;
    until("nothing of the control plane's is kept", async || {
        (pair.status()["replicaObjects"] == 0).then_some(())
    })
    .await;
    assert_eq!(files(&pair.root().join("srv/manifests")).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leave_that_cannot_be_read_is_none() {
    let (mut pair, daemon, file) = pair().await;
    let mut unreadable = says(Mode::Managed, Some(FOLDER), TransportPolicy::Grpc);
    unreadable.unreadable = true;
    pair.publish(&unreadable).await;
    until("the node is off and says why", async || {
        let status = pair.status();
        let why = status["problems"]["release, sync"].as_str()?;
        (status["mode"] == "off" && why.contains("nothing is synchronized")).then_some(())
    })
    .await;
    assert!(daemon.end().await.success());
    // The agent begins with it as well.
    let daemon = pair.daemon();
    pair.publish(&says(Mode::Managed, Some(FOLDER), TransportPolicy::Grpc)).await;
    until("the node is managed again", async || {
        let status = pair.status();
        (status["mode"] == "managed" && status["problems"].as_object()?.is_empty()).then_some(())
    })
    .await;
    assert!(file.exists());
    assert!(daemon.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_go_up() {
    let (mut pair, _daemon, file) = pair().await;
    let status = file.with_file_name("a.yaml.status.json");
    std::fs::write(&status, json!({"health": "good"}).to_string()).unwrap();
    until("the status is at the control plane", async || {
        let object = pair.object("a").await?;
        (object.status.as_ref()?["health"] == "good").then_some(())
    })
    .await;
    std::fs::remove_file(&status).unwrap();
    until("it is gone there", async || pair.object("a").await?.status.is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_replica_a_node_removes_nothing() {
    let (mut pair, daemon, file) = pair().await;
    assert!(daemon.end().await.success());
    std::fs::remove_dir_all(pair.state().join("objects")).unwrap();
    pair.fleet.stop().await;
    let daemon = pair.daemon();
    // By then the folder was looked at, by a node that does not know what is wanted.
    until("it has no link", async || daemon.log().contains("no link").then_some(())).await;
    assert!(file.exists(), "what the control plane put is gone with the node's memory of it");
    assert!(daemon.end().await.success());
}

/// Files that an agent wrote and was killed before it knew of them are the control plane's all the
/// same: they stay. Those that the control plane does not have go, once that is known.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_when_the_agent_was_killed_is_not_taken_away() {
    let (mut pair, daemon, file) = pair().await;
    assert!(daemon.end().await.success());
    let a = pair.object("a").await.unwrap();
    pair.apply(vec![item("c", "three")]).await;
    let c = pair.object("c").await.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&a.uid), "the uid is in the file: {text}");
    let of = |name: &str, uid: &str, said: &str| {
        text.replace(&a.uid, uid).replace("name: a", &format!("name: {name}")).replace("one", said)
    };
    let (came, orphan) = (file.with_file_name("c.yaml"), file.with_file_name("z.yaml"));
    std::fs::write(&came, of("c", &c.uid, "three")).unwrap();
    std::fs::write(&orphan, of("z", "of-nobody", "no more")).unwrap();
    let inode = |path: &PathBuf| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = inode(&came);
    // One file more keeps the old inode from being given again.
    std::fs::write(file.with_file_name("taken"), "").unwrap();
    let daemon = pair.daemon();
    eventually("what nobody wants is gone", || !orphan.exists()).await;
    assert_eq!(inode(&came), before, "it was never taken away");
    assert!(daemon.end().await.success());
}
