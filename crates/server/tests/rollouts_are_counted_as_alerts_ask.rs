//! OPS-4, ROL-1: the control plane counts rollouts, their nodes and events under the names and labels that the alerts of
//! docs/rollouts.md ask for, and has each of those series from its start: an increase is seen from the first event on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use model::rollout::RolloutEventBody;
use serde_json::json;
use server::api::rollouts::RolloutView;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator};
use test_support::wait::until;
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};

const PAGE: &str = include_str!("../../../docs/rollouts.md");

/// Every series of an expression, as it is exposed: `name{label=~"one\|other"}` in a table is two.
fn series_of(expressions: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in expressions.match_indices("muster_") {
        let text = &expressions[at..];
        let end = text.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_').unwrap();
        let (name, rest) = text.split_at(end);
        let Some((label, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            found.push(name.to_owned());
            continue;
        };
        let (label, values) = label.split_once('=').unwrap();
        let values = values.trim_start_matches('~').trim_matches('"').replace("\\|", "|");
        found.extend(values.split('|').map(|value| format!("{name}{{{label}=\"{value}\"}}")));
    }
    found
}

/// What the metrics say, by series.
async fn counted(operator: &mut Operator) -> BTreeMap<String, u64> {
    let metrics = operator.raw(Method::GET, "/metrics", Vec::new()).await;
    let text = String::from_utf8(metrics.body().to_vec()).unwrap();
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(value).collect()
}

/// Waits until these series have these values: rollouts are left as they were while a decision is being made durable.
async fn until_counted(operator: &mut Operator, expected: &[(&str, u64)]) {
    until(&format!("{expected:?}"), async || {
        let counted = counted(operator).await;
        expected.iter().all(|(series, value)| counted.get(*series) == Some(value)).then_some(())
    })
    .await;
}

fn release(fleet: &Fleet, seq: u64, rollout: Option<Arc<RolloutTerms>>) -> Made {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in ["web-1", "web-2"] {
        plan = plan.node(node, &[params(&seq.to_string())]);
    }
    make(&Plan { rollout, ..plan }, &fleet.release_key())
}

#[tokio::test]
async fn each_series_of_an_alert_is_there_from_the_start() {
    let (_, alerts) = PAGE.split_once("## What to alert on").expect("the page has a part of that name");
    let asked = series_of(alerts);
    for series in [
        "muster_rollout_halts_total",
        "muster_rollout_nodes{state=\"failed\"}",
        "muster_rollouts{state=\"active\"}",
        "muster_rollouts{state=\"converging\"}",
        "muster_rollout_events_total{outcome=\"taken\"}",
        "muster_rollout_events_total{outcome=\"forged\"}",
    ] {
        assert!(asked.iter().any(|asked| asked == series), "{series} is not in {asked:?}");
    }
    let fleet = Fleet::start().await;
    let counted = counted(&mut fleet.operator().await).await;
    for series in asked {
        assert_eq!(counted.get(&series), Some(&0), "{series}");
    }
}

#[tokio::test]
async fn what_alerts_ask_for_is_counted() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1, None);
    operator.publish(&first).await.unwrap();
    let mut nodes = Vec::new();
    for name in ["web-1", "web-2"] {
        let mut node = RolloutNode::new(fleet.node(name).await);
        node.holds(&first);
        node.check_in(Vec::new(), 0).await.unwrap();
        nodes.push(node);
    }
    let wave = |name: &str, members| WaveTerms {
        name: name.to_owned(),
        members,
        not_before: None,
        gate: GateTerms { soak_secs: 0, success: 100 },
    };
    let canary = WaveMembers::Where(lang::Selector::parse("web-1").unwrap());
    let waves = vec![wave("canary", canary), wave("rest", WaveMembers::Rest)];
    let second = release(&fleet, 2, Some(Arc::new(RolloutTerms { waves, ..RolloutTerms::default() })));
    operator.publish(&second).await.unwrap();
    let active = [("muster_rollouts{state=\"active\"}", 1), ("muster_rollout_nodes{state=\"pending\"}", 2)];
    until_counted(&mut operator, &active).await;

    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    nodes[0].activates(&rollout, &second).await;
    nodes[0].say(&rollout, RolloutEventBody::Failed { message: "nginx does not answer".into() }).await;
    let halted = [
        ("muster_rollouts{state=\"active\"}", 0),
        ("muster_rollouts{state=\"failed\"}", 1),
        ("muster_rollout_nodes{state=\"failed\"}", 1),
        ("muster_rollout_nodes{state=\"pending\"}", 1),
        ("muster_rollout_halts_total", 1),
        ("muster_rollout_events_total{outcome=\"taken\"}", 5),
    ];
    until_counted(&mut operator, &halted).await;

    // In spite of the one that failed, the last wave opens.
    let _: RolloutView = operator.post("/v1/rollouts/stable/resume", &json!({})).await.unwrap();
    until_counted(&mut operator, &[("muster_rollouts{state=\"converging\"}", 1)]).await;
    let _: RolloutView = operator.post("/v1/rollouts/stable/abort", &json!({})).await.unwrap();
    until_counted(&mut operator, &[("muster_rollout_halts_total", 2)]).await;
}
