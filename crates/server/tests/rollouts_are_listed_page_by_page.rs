//! ROL-1, OPS-1: operators list rollouts and the nodes of each page by page, by channel and by how nodes stand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::rollout::RolloutId;
use rollout::{NodeRolloutState, RolloutState};
use server::api::rollouts::{RolloutNodesView, RolloutView};
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator};
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};

/// The nodes, in the order of their names.
const NODES: [&str; 5] = ["web-1", "web-2", "web-3", "web-4", "web-5"];

fn release(fleet: &Fleet, seq: u64) -> Made {
    let gate = GateTerms { soak_secs: 0, success: 100 };
    let wave = |name: &str, members| WaveTerms { name: name.to_owned(), members, not_before: None, gate };
    let canary = WaveMembers::Where(lang::Selector::parse("web-4").unwrap());
    let waves = vec![wave("canary", canary), wave("rest", WaveMembers::Rest)];
    let terms = Arc::new(RolloutTerms { waves, ..RolloutTerms::default() });
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in NODES {
        plan = plan.node(node, &[params(&seq.to_string())]);
    }
    make(&Plan { rollout: (seq > 1).then_some(terms), ..plan }, &fleet.release_key())
}

/// The numbers of the releases of a list, with how each stands.
async fn listed(operator: &mut Operator, query: &str) -> Vec<(u64, RolloutState)> {
    let rollouts: Vec<RolloutView> = operator.get(&format!("/v1/rollouts{query}")).await.unwrap();
    rollouts.into_iter().map(|rollout| (rollout.seq, rollout.state)).collect()
}

/// The hostnames of a page, and with which one the next page begins.
async fn page(operator: &mut Operator, rollout: &RolloutId, query: &str) -> (Vec<String>, Option<String>) {
    let path = format!("/v1/rollouts/{rollout}/nodes{query}");
    let page: RolloutNodesView = operator.get(&path).await.unwrap();
    let names = page.nodes.iter().map(|node| node.hostname.to_string()).collect();
    (names, page.next.map(|next| next.to_string()))
}

#[tokio::test]
async fn the_newest_first_and_nodes_by_name() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1);
    operator.publish(&first).await.unwrap();
    let mut nodes = Vec::new();
    for name in NODES {
        let mut node = RolloutNode::new(fleet.node(name).await);
        node.holds(&first);
        node.check_in(Vec::new(), 0).await.unwrap();
        nodes.push(node);
    }
    // The first rollout is under way, the second gave way to the third, and that one waits.
    for seq in 2..=4 {
        operator.publish(&release(&fleet, seq)).await.unwrap();
    }
    let rollout = nodes[3].until_asked().await;
    nodes[3].begins(&rollout).await;

    let (under_way, gone, waits) =
        ((2, RolloutState::Active), (3, RolloutState::Superseded), (4, RolloutState::Opening));
    for (query, expected) in [
        ("", &[waits, gone, under_way][..]),
        ("?limit=2", &[waits, gone]),
        ("?limit=2&before=3", &[under_way]),
        ("?before=2", &[]),
        ("?channel=stable&limit=1", &[waits]),
        ("?channel=edge", &[]),
    ] {
        assert_eq!(listed(&mut operator, query).await, expected, "{query:?}");
    }
    let newest: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    assert!(newest.waits.as_ref().unwrap().contains("release 2"), "{newest:?}");

    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (query, expected, next) in [
        ("", &NODES[..], None),
        ("?limit=2", &["web-1", "web-2"], Some("web-3")),
        ("?limit=2&from=web-3", &["web-3", "web-4"], Some("web-5")),
        ("?limit=2&from=web-5", &["web-5"], None),
        ("?from=web-6", &[], None),
        ("?state=Activating", &["web-4"], None),
        ("?state=Pending", &["web-1", "web-2", "web-3", "web-5"], None),
        ("?state=Pending&limit=2&from=web-2", &["web-2", "web-3"], Some("web-5")),
        ("?state=Converged", &[], None),
    ] {
        let expected = (names(expected), next.map(str::to_owned));
        assert_eq!(page(&mut operator, &rollout, query).await, expected, "{query:?}");
    }
    let path = format!("/v1/rollouts/{rollout}/nodes?state=Activating");
    let page: RolloutNodesView = operator.get(&path).await.unwrap();
    let node = &page.nodes[0];
    assert_eq!(
        (&node.rollout, node.wave.as_str(), node.state),
        (&rollout, "canary", NodeRolloutState::Activating)
    );
}
