//! ROL-1, OPS-1: operators list rollouts and the nodes of each page by page, by channel and by how nodes stand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::rollout::RolloutId;
use rollout::{NodeRolloutState, RolloutState};
use serde_json::{Value, json};
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
    let shown: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!(shown.seq, 2, "a channel is the rollout of it that runs");
    let newer = shown.newer.unwrap();
    assert_eq!((newer.seq, newer.at_once, newer.state), (4, false, Some(RolloutState::Opening)));
    assert!(newer.waits.as_ref().unwrap().contains("release 2"), "{newer:?}");
    let status: Value = operator.get("/v1/status").await.unwrap();
    let line = &status["channels"][0]["rollout"];
    assert_eq!((&line["seq"], &line["next"]["seq"]), (&json!(2), &json!(4)), "{line}");

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

/// A release in waves whose label is a commit, by which its rollout is called.
fn labelled(fleet: &Fleet, seq: u64, commit: &str) -> Made {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in NODES {
        plan = plan.node(node, &[params(&seq.to_string())]);
    }
    let terms = Arc::new(RolloutTerms::default());
    make(&Plan { rollout: Some(terms), label: Some(commit.to_owned()), ..plan }, &fleet.release_key())
}

/// A channel means the rollout that an order can apply to, and the beginning of an id the only one that begins so.
#[tokio::test]
async fn a_channel_and_the_beginning_of_an_id_name_a_rollout() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1);
    operator.publish(&first).await.unwrap();
    let mut node = RolloutNode::new(fleet.node("web-1").await);
    node.holds(&first);
    node.check_in(Vec::new(), 0).await.unwrap();
    let commits = ["abcdef01".repeat(5), "abcdef02".repeat(5)];
    for (seq, commit) in [(2, &commits[0]), (3, &commits[1])] {
        operator.publish(&labelled(&fleet, seq, commit)).await.unwrap();
    }
    let rollout = node.until_asked().await;
    assert_eq!(rollout.as_str(), format!("stable@{}", commits[0]));

    for (name, seq) in [("stable@abcdef01", 2), ("stable@abcdef02ab", 3), ("stable", 2)] {
        let view: RolloutView = operator.get(&format!("/v1/rollouts/{name}")).await.unwrap();
        assert_eq!(view.seq, seq, "{name}");
    }
    for (name, said) in [
        ("stable@abcdef0", "may be stable@abcdef02"),
        ("stable@abcdef", "there is no rollout"),
        ("stable@abcdef03", "there is no rollout"),
        ("edge@abcdef01", "there is no rollout"),
    ] {
        let refused = operator.get::<RolloutView>(&format!("/v1/rollouts/{name}")).await.unwrap_err();
        assert_eq!(refused.code, "not-found", "{name}");
        assert!(refused.detail.as_ref().unwrap().contains(said), "{name}: {refused:?}");
    }

    // The one that runs is paused, by the channel's name, while another one waits behind it.
    let order = json!({});
    for turn in ["pause", "resume"] {
        let view: RolloutView = operator.post(&format!("/v1/rollouts/stable/{turn}"), &order).await.unwrap();
        assert_eq!(view.seq, 2, "{turn}");
    }
    let refused = operator.post::<_, RolloutView>("/v1/rollouts/stable/rollback", &order).await.unwrap_err();
    let said = refused.detail.unwrap();
    assert!(said.starts_with(&format!("stable@{}: ", commits[0])), "{said}");
    assert!(said.ends_with(&format!("; stable@{} is waiting to begin", commits[1])), "{said}");
    let stranger = json!({"node": "web-2"});
    fleet.node("web-2").await;
    let skipped = operator.post::<_, RolloutView>("/v1/rollouts/stable/skip", &stranger).await;
    if let Err(refused) = skipped {
        assert!(refused.detail.unwrap().contains("node web-2 is not in"), "a node is named by its hostname");
    }

    // Once the one that runs was aborted the next one begins; what is aborted before it began has no line of its own.
    let aborted: RolloutView = operator.post("/v1/rollouts/stable/abort", &order).await.unwrap();
    assert_eq!((aborted.seq, aborted.state), (2, RolloutState::Superseded), "the next one began");
    assert!(aborted.halt.is_some(), "and it is kept that this one was aborted");
}

/// A release without a rollout takes the place of one with, and who looks at the channel hears so.
#[tokio::test]
async fn a_release_that_goes_out_at_once_is_told() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    for seq in 1..=2 {
        operator.publish(&release(&fleet, seq)).await.unwrap();
    }
    let status: Value = operator.get("/v1/status").await.unwrap();
    assert!(status["channels"][0]["rollout"].is_null(), "a rollout without a node has no line: {status}");
    let mut plan = Plan::new(&fleet.enroll_info().fleet, 3);
    for node in NODES {
        plan = plan.node(node, &[params("3")]);
    }
    operator.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    let shown: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    let newer = shown.newer.unwrap();
    assert_eq!((shown.seq, newer.seq, newer.at_once), (2, 3, true));
}
