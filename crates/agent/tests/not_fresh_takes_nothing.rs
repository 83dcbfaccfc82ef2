//! ROL-4, CNV-4: a node that holds what is no longer fresh refuses actions, holds object changes back and keeps what it
//! holds; both sides say so. A newer beacon ends that, and what was held back is applied.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agent::state::StateDir;
use model::Timestamp;
use model::replication::{Mode, TransportPolicy};
use serde_json::{Value, json};
use server::api::Beacons;
use spool::Disk;
use test_support::agent_pair::{Pair, item, says};
use test_support::fleet::now;
use test_support::wait::{eventually, until};
use trust::{Beacon, Header, signed};

const FOLDER: &str = "/srv/manifests";
const TRUE: &[&str] = &["/bin/true"];

/// As if the freshness of what is held had ended an hour ago.
fn end_freshness(pair: &Pair) {
    let durable = StateDir::at(&pair.state(), Disk::new()).open().unwrap();
    let adoption = durable.adoption().unwrap().unwrap();
    let mut record = durable.freshness(&adoption).unwrap();
    record.not_fresh_since = Some(Timestamp(now().0 - 3_600_000));
    durable.save_freshness(&record).unwrap();
}

/// Signs that what is published still counts.
async fn sign_beacon(pair: &mut Pair) {
    let head: Value = pair.operator.get("/v1/head").await.unwrap();
    let document = serde_json::from_value(head["headers"]["stable"].clone()).unwrap();
    let key = pair.fleet.release_key();
    let slots = trust::Slots::of(key.public());
    let header: Header = signed::verify(&document, &slots).unwrap();
    let digest = signed::digest(&document);
    let beacon =
        Beacon { fleet: header.fleet, channel: header.channel, seq: header.seq, header: digest, at: now() };
    let beacons = Beacons { beacons: vec![signed::sign(&beacon, &[&key]).unwrap()] };
    let _: usize = pair.operator.post("/v1/beacons", &beacons).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn until_a_newer_beacon_comes() {
    let says = says(Mode::Managed, Some(FOLDER), TransportPolicy::Grpc).delegating(&[TRUE]);
    let mut pair = Pair::new(&says).await;
    let folder = pair.root().join("srv/manifests");
    std::fs::create_dir_all(&folder).unwrap();
    let daemon = pair.daemon();
    pair.apply(vec![item("a", "one")]).await;
    let (a, b) = (folder.join("item/web/a.yaml"), folder.join("item/web/b.yaml"));
    eventually("the object is a file", || a.exists()).await;
    assert!(daemon.end().await.success());

    end_freshness(&pair);
    let daemon = pair.daemon();
    pair.apply(vec![item("b", "two")]).await;
    let task = pair.begin(TRUE).await;
    pair.task_over(&task.id).await;
    let outcome = pair.outcome(&task.id).await;
    assert_eq!(
        (&outcome["outcome"], &outcome["code"]),
        (&json!("refused"), &json!("not-fresh")),
        "{outcome}"
    );
    assert!(!b.exists(), "an object that came before the action is held back");
    // What it holds is kept as ever.
    let wanted = std::fs::read_to_string(&a).unwrap();
    std::fs::write(&a, wanted.replace("one", "by hand")).unwrap();
    eventually("the edit is reverted", || std::fs::read_to_string(&a).unwrap_or_default() == wanted).await;
    let shown = String::from_utf8(pair.agent(&["status"]).stdout).unwrap();
    assert!(
        shown.contains("NOT FRESH      since ") && shown.contains("next: where the release key is"),
        "{shown}"
    );
    until("the control plane says so", async || {
        let node: Value = pair.operator.get("/v1/nodes/web-1").await.unwrap();
        let told = node["freshness"]["notFreshSince"].is_string();
        (told && node["status"]["release"] == "not-fresh").then_some(())
    })
    .await;
    let status: Value = pair.operator.get("/v1/status").await.unwrap();
    let causes = status["causes"].to_string();
    assert!(
        causes.contains("no release or beacon was signed since") && causes.contains("`muster beacon`"),
        "{status:#}"
    );
    assert!(!b.exists());

    sign_beacon(&mut pair).await;
    eventually("what was held back is applied", || b.exists()).await;
    let task = pair.begin(TRUE).await;
    pair.task_over(&task.id).await;
    assert_eq!(pair.outcome(&task.id).await["outcome"], "exited");
    let shown = String::from_utf8(pair.agent(&["status"]).stdout).unwrap();
    assert!(!shown.contains("NOT FRESH"), "{shown}");
    until("its facts say both", async || {
        let facts: Value = pair.operator.get("/v1/nodes/web-1/facts").await.unwrap();
        let text = facts.to_string();
        (text.matches("\"kind\":\"freshness\"").count() >= 1).then_some(())
    })
    .await;
    assert!(daemon.end().await.success());
}
