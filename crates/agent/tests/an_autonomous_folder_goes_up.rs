//! SYN-5, SYN-6, SYN-9: in autonomous mode the folder is the truth: what is in it is at the
//! control plane, under one uid over restarts; a folder that vanished, or a mass of files that
//! did, deletes nothing until an operator at the node says that it is meant.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use model::replication::{Mode, TransportPolicy};
use test_support::agent_pair::{Daemon, Pair, says};
use test_support::wait::until;

fn manifest(name: &str, text: &str) -> String {
    format!(
        "apiVersion: test/v1\nkind: Item\nmetadata: {{namespace: web, name: {name}}}\nspec: {{text: {text}}}\n"
    )
}

async fn pair(transport: TransportPolicy, count: usize) -> (Pair, Daemon, PathBuf) {
    let mut pair = Pair::new(&says(Mode::Autonomous, Some("/srv/manifests"), transport)).await;
    let folder = pair.root().join("srv/manifests");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..count {
        let text = manifest(&format!("i{number}"), "first");
        std::fs::write(folder.join(format!("i{number}.yaml")), text).unwrap();
    }
    let daemon = pair.daemon();
    until_count(&mut pair, count).await;
    (pair, daemon, folder)
}

async fn until_count(pair: &mut Pair, count: usize) {
    until(&format!("{count} objects are at the control plane"), async || {
        (pair.objects().await.len() == count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_edited_and_deleted_goes_up() {
    let (mut pair, daemon, folder) = pair(TransportPolicy::Auto, 5).await;
    let uid = pair.object("i1").await.unwrap().uid;
    assert!(!uid.is_empty());
    std::fs::write(folder.join("i1.yaml"), manifest("i1", "second")).unwrap();
    until("the edit is up", async || {
        let object = pair.object("i1").await?;
        object.manifest.as_ref()?.to_string().contains("second").then_some(())
    })
    .await;
    std::fs::remove_file(folder.join("i2.yaml")).unwrap();
    until_count(&mut pair, 4).await;
    assert!(daemon.end().await.success());
    // While it is away one is edited and one is made; the uid is the same over the restart.
    std::fs::write(folder.join("i1.yaml"), manifest("i1", "third")).unwrap();
    std::fs::write(folder.join("new.yaml"), manifest("new", "new")).unwrap();
    let daemon = pair.daemon();
    until_count(&mut pair, 5).await;
    until("the other edit is up", async || {
        let object = pair.object("i1").await?;
        object.manifest.as_ref()?.to_string().contains("third").then_some(())
    })
    .await;
    assert_eq!(pair.object("i1").await.unwrap().uid, uid);
    assert!(daemon.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_folder_deletes_nothing_and_a_mass_waits_for_a_word() {
    let (mut pair, _daemon, folder) = pair(TransportPolicy::Grpc, 10).await;
    let away = pair.root().join("srv/away");
    std::fs::rename(&folder, &away).unwrap();
    until("the node says that its folder is gone", async || {
        let problems = pair.status()["problems"].clone();
        (!problems.as_object()?.is_empty()).then_some(())
    })
    .await;
    assert_eq!(pair.objects().await.len(), 10);
    std::fs::rename(&away, &folder).unwrap();
    until("it is there again", async || {
        let problems = pair.status()["problems"].clone();
        problems.as_object()?.is_empty().then_some(())
    })
    .await;
    for number in 0..8 {
        std::fs::remove_file(folder.join(format!("i{number}.yaml"))).unwrap();
    }
    until("the mass is held back", async || pair.status()["held"].as_str().map(drop)).await;
    assert_eq!(pair.objects().await.len(), 10);
    let approved = pair.agent(&["approve-deletes"]);
    assert!(approved.status.success(), "{approved:?}");
    until_count(&mut pair, 2).await;
    until("nothing is held any more", async || pair.status()["held"].is_null().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_vanish_one_after_the_other_are_one_mass() {
    let (mut pair, _daemon, folder) = pair(TransportPolicy::Grpc, 10).await;
    for number in 0..8 {
        std::fs::remove_file(folder.join(format!("i{number}.yaml"))).unwrap();
        // As a slow `rm` does: each is seen alone.
        let gone = std::time::Instant::now();
        until("half a second passed", async || (gone.elapsed().as_millis() > 500).then_some(())).await;
    }
    until("the mass is held back", async || pair.status()["held"].as_str().map(drop)).await;
    assert_eq!(pair.objects().await.len(), 10, "none of them went before");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_word_may_come_from_the_control_plane() {
    let (mut pair, _daemon, folder) = pair(TransportPolicy::Grpc, 10).await;
    let asked = serde_json::json!({"nodes": ["web-1"], "approveDeletions": true});
    // With nothing held back it is good for nothing.
    let _: serde_json::Value = pair.operator.post("/v1/resyncs", &asked).await.unwrap();
    for number in 0..8 {
        std::fs::remove_file(folder.join(format!("i{number}.yaml"))).unwrap();
    }
    until("the mass is held back", async || pair.status()["held"].as_str().map(drop)).await;
    assert_eq!(pair.objects().await.len(), 10);
    let plain = serde_json::json!({"nodes": ["web-1"]});
    let _: serde_json::Value = pair.operator.post("/v1/resyncs", &plain).await.unwrap();
    let _: serde_json::Value = pair.operator.post("/v1/resyncs", &asked).await.unwrap();
    until_count(&mut pair, 2).await;
    until("nothing is held any more", async || pair.status()["held"].is_null().then_some(())).await;
    assert!(!pair.state().join("approve-deletes").exists(), "the word is good for more than one time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_written_manifest_keeps_what_it_said() {
    let (mut pair, _daemon, folder) = pair(TransportPolicy::Grpc, 2).await;
    std::fs::write(folder.join("i1.yaml"), "apiVersion: test/v1\nkind: Item\nmetadata: {namespace: web, na")
        .unwrap();
    until("the node names the file", async || {
        let problems = pair.status()["problems"].clone();
        problems.as_object()?.keys().any(|place| place.contains("i1.yaml")).then_some(())
    })
    .await;
    assert_eq!(pair.objects().await.len(), 2);
    std::fs::write(folder.join("i1.yaml"), manifest("i1", "whole")).unwrap();
    until("it is whole", async || {
        let object = pair.object("i1").await?;
        object.manifest.as_ref()?.to_string().contains("whole").then_some(())
    })
    .await;
}
