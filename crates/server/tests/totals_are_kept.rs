//! What status and the listing of synchronization count is kept as nodes change, and is what counting every node
//! would come to (CNV-3, SCL-1).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use model::replication::Mode;
use model::status::Overall;
use server::api::objects::SyncsView;
use server::api::{NodesView, StatusView};
use test_support::fleet::link::publish_mode;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::{Fleet, Member, Operator, now, quiet};

/// What is kept is what there is to count.
async fn agrees(operator: &mut Operator) -> StatusView {
    let status = operator.status().await;
    let nodes: NodesView = operator.get("/v1/nodes").await.unwrap();
    let (mut states, mut causes) = (BTreeMap::new(), BTreeMap::new());
    for node in &nodes.nodes {
        *states.entry(node.state).or_default() += 1;
        if let Some(cause) = &node.cause {
            causes.entry((node.state, cause.clone())).or_insert_with(Vec::new).push(node.hostname.clone());
        }
    }
    assert_eq!((status.nodes, &status.states), (nodes.nodes.len(), &states));
    let kept = status.causes.iter().map(|line| ((line.state, line.cause.clone()), line.nodes.clone()));
    assert_eq!(kept.collect::<BTreeMap<_, _>>(), causes);
    assert!(status.causes.iter().all(|line| line.count == line.nodes.len()));
    let sync: SyncsView = operator.get("/v1/sync").await.unwrap();
    let mut states = BTreeMap::new();
    sync.nodes.iter().for_each(|node| *states.entry(node.condition.state).or_default() += 1);
    assert_eq!(sync.states, states);
    status
}

async fn holds(node: &Member, made: &Made, facts: Vec<Fact>) {
    let held = Some(made.held(node.hostname.as_str()));
    node.check_in(&CheckIn { held, facts, ..quiet() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn through_all_that_a_node_goes_through() {
    let mut fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    assert_eq!(agrees(&mut operator).await.nodes, 0);
    let mut nodes = Vec::new();
    for name in ["web-1", "web-2", "web-3"] {
        nodes.push(fleet.node(name).await);
        agrees(&mut operator).await;
    }
    for node in &nodes {
        node.check_in(&quiet()).await.unwrap();
    }
    assert_eq!(agrees(&mut operator).await.states, BTreeMap::from([(Overall::Unassigned, 3)]));
    let (key, id) = (fleet.release_key(), fleet.enroll_info().fleet);
    let of = |seq, text| {
        let plan = Plan::new(&id, seq).node("web-1", &[params(text)]).node("web-2", &[params(text)]);
        make(&plan, &key)
    };
    let first = of(1, "a");
    operator.publish(&first).await.unwrap();
    let behind = agrees(&mut operator).await.states;
    assert_eq!(behind, BTreeMap::from([(Overall::Changing, 2), (Overall::Unassigned, 1)]));
    holds(&nodes[0], &first, vec![]).await;
    agrees(&mut operator).await;
    operator.publish(&of(2, "b")).await.unwrap();
    agrees(&mut operator).await;
    // Another cause of the same state, and back again.
    let body = FactBody::Refused { code: "no".to_owned(), message: "it does not fit".to_owned() };
    holds(&nodes[0], &first, vec![Fact { seq: 1, at: now(), body }]).await;
    assert_eq!(agrees(&mut operator).await.causes.len(), 3);
    let model::exchange::HeldRelease { header, root, .. } = first.held("web-1");
    let body = FactBody::Adopted { seq: 1, header, root };
    holds(&nodes[0], &first, vec![Fact { seq: 2, at: now(), body }]).await;
    assert_eq!(agrees(&mut operator).await.causes.len(), 2);
    publish_mode(&fleet, &["web-1", "web-2"], Mode::Managed, 3).await;
    agrees(&mut operator).await;
    operator.delete::<serde_json::Value>("/v1/nodes/web-2").await.unwrap();
    assert_eq!(agrees(&mut operator).await.nodes, 2);
    nodes[1] = fleet.node("web-2").await;
    agrees(&mut operator).await;
    fleet.stop().await;
    fleet.start_again().await;
    assert_eq!(agrees(&mut fleet.operator().await).await.nodes, 3);
}
