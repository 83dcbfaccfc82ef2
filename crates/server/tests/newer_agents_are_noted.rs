//! WIR-1: an agent of a later version than the control plane is served, and noted: as one cause in `status` for all such
//! nodes of one version, until they say another version.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::CheckIn;
use model::{AgentCapabilities, AgentInstance};
use serde_json::Value;
use test_support::fleet::{Fleet, Member, quiet};
use test_support::wait::until;

fn of_version(node: &Member, version: &str) -> CheckIn {
    let capabilities = AgentCapabilities {
        version: version.to_owned(),
        checksum: None,
        builtins: Vec::new(),
        hooks: Default::default(),
        sealing_key: None,
    };
    let instance = AgentInstance { id: format!("i{}", node.hostname), after: None };
    CheckIn { instance: Some(instance), capabilities: Some(Box::new(capabilities)), ..quiet() }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_for_all_of_one_version() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let nodes = [fleet.node("web-1").await, fleet.node("web-2").await];
    for node in &nodes {
        node.check_in(&of_version(node, "99.1.0")).await.expect("it is served");
        node.survives().await;
    }
    let newer = |status: &Value| -> Vec<Value> {
        let all = status["causes"].as_array().cloned().unwrap_or_default();
        all.into_iter()
            .filter(|cause| cause.to_string().contains("is newer than the control plane"))
            .collect()
    };
    let told = until("both are counted", async || {
        let status: Value = operator.get("/v1/status").await.unwrap();
        let told = newer(&status);
        told.first().is_some_and(|cause| cause["count"] == 2).then_some(told)
    })
    .await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].to_string().contains("its agent 99.1.0"), "{told:?}");
    assert!(told[0].to_string().contains("upgrade the control plane first"), "{told:?}");
    for node in &nodes {
        node.check_in(&of_version(node, env!("CARGO_PKG_VERSION"))).await.unwrap();
    }
    until("it is over", async || {
        let status: Value = operator.get("/v1/status").await.unwrap();
        newer(&status).is_empty().then_some(())
    })
    .await;
}
