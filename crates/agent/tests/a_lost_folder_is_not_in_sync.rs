//! CNV-3, SYN-9: what a node knows of its folder reaches the control plane: a folder that is gone, a
//! mass of manifests that vanished, and a manifest that cannot be read are not in sync, and name the
//! cause, although the sets are equal.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::condition::{ConditionStatus, SyncState};
use model::replication::{Mode, TransportPolicy};
use server::api::objects::{ConditionView, SyncsView};
use test_support::agent_pair::{NODE, Pair, says};
use test_support::wait::until;

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: test/v1\nkind: Item\nmetadata: {{namespace: web, name: {name}}}\nspec: {{text: x}}\n"
    )
}

async fn becomes(pair: &mut Pair, reason: &str) -> ConditionView {
    until(reason, async || {
        let page: SyncsView = pair.operator.get(&format!("/v1/sync?match={NODE}")).await.unwrap();
        let condition = page.nodes[0].condition.clone();
        (condition.reason == reason).then_some(condition)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_folder_is_shown_until_it_is_right() {
    let says = says(Mode::Autonomous, Some("/srv/manifests"), TransportPolicy::Grpc);
    let mut pair = Pair::new(&says).await;
    let folder = pair.root().join("srv/manifests");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        std::fs::write(folder.join(format!("{name}.yaml")), manifest(name)).unwrap();
    }
    let _daemon = pair.daemon();
    becomes(&mut pair, "in-sync").await;

    let away = pair.root().join("srv/away");
    std::fs::rename(&folder, &away).unwrap();
    let lost = becomes(&mut pair, "folder-unusable").await;
    assert_eq!((lost.status, lost.state), (ConditionStatus::False, SyncState::OutOfSync), "{lost:?}");
    assert!(lost.message.contains("/srv/manifests") && lost.next_step.is_some(), "{lost:?}");
    std::fs::rename(&away, &folder).unwrap();
    becomes(&mut pair, "in-sync").await;

    std::fs::write(folder.join("broken.yaml"), "kind: [").unwrap();
    let broken = becomes(&mut pair, "manifests-unreadable").await;
    assert!(broken.message.contains("broken.yaml"), "{broken:?}");
    std::fs::remove_file(folder.join("broken.yaml")).unwrap();
    becomes(&mut pair, "in-sync").await;

    for name in ["a", "b", "c", "d"] {
        std::fs::remove_file(folder.join(format!("{name}.yaml"))).unwrap();
    }
    let held = becomes(&mut pair, "deletions-held-back").await;
    assert!(held.message.starts_with("4 of 5"), "{held:?}");
    assert!(held.next_step.unwrap().contains("--approve-deletions"));
}
