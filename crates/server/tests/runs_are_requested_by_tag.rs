//! CFG-7, DLT-5: a request for a run by tag reaches each node until that confirms it, over a restart too; the tags
//! of a second one join those that wait. What cannot be a tag is refused, and a node whose agent does not know runs
//! by tag is named and not asked.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use model::Digest;
use model::exchange::{Answer, CheckIn, HeldRelease, NODE_FEATURES, TraitReport};
use model::tags::{MAX_RUN_TAGS, TaggedRun};
use server::api::{RunRequest, RunRequested, TaggedRunRequest, TaggedRunRequested};
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, quiet, refuses};
use wire::{Code, Problem};

fn set(tags: &[&str]) -> BTreeSet<String> {
    tags.iter().map(|tag| (*tag).to_owned()).collect()
}

async fn request(
    fleet: &Fleet,
    nodes: &[&str],
    tags: BTreeSet<String>,
) -> Result<TaggedRunRequested, Problem> {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    fleet.operator().await.post("/v1/tagged-run-requests", &TaggedRunRequest { nodes, tags }).await
}

async fn publish(fleet: &Fleet, names: &[&str]) -> HeldRelease {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, 1);
    for name in names {
        plan = plan.node(name, &[params("a")]);
    }
    let made = make(&plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    made.held(names[0])
}

fn holds(held: &HeldRelease) -> CheckIn {
    CheckIn { held: Some(held.clone()), ..quiet() }
}

/// Traits of an agent that names these features.
fn traits(features: &[&str]) -> TraitReport {
    let values = serde_json::json!({ "agent": { "version": "0.1.0", "features": features } });
    TraitReport::whole(Digest::of(values.to_string().as_bytes()), values)
}

#[tokio::test]
async fn it_waits_for_the_node_and_is_done_when_that_confirms_it() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let held = publish(&fleet, &["web-1"]).await;
    assert_eq!(node.check_in(&holds(&held)).await.unwrap().tagged_run, None);
    let first = request(&fleet, &["web-1"], set(&["web"])).await.unwrap();
    assert_eq!((first.nodes, first.too_old), (1, vec![]));
    // A second one takes in what waits, under a number of its own.
    let second = request(&fleet, &["web-1"], set(&["db"])).await.unwrap();
    assert!(second.number > first.number);
    let run = Some(TaggedRun { number: second.number, tags: set(&["db", "web"]) });
    assert_eq!(fleet.operator().await.node("web-1").await.tagged_run, run);
    // A full one stands beside it, and takes the set along.
    let full = RunRequest { nodes: vec!["web-1".to_owned()] };
    let full: RunRequested = fleet.operator().await.post("/v1/run-requests", &full).await.unwrap();
    // Not lost when the control plane starts anew.
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let answered = node.check_in(&holds(&held)).await.unwrap();
    assert_eq!((answered.tagged_run, answered.run_request), (run.clone(), Some(full.number)));
    let confirms =
        |full, tagged| CheckIn { run_confirmed: full, tagged_run_confirmed: tagged, ..holds(&held) };
    // The confirmation of an earlier request confirms nothing.
    let answered = node.check_in(&confirms(Some(full.number), Some(first.number))).await.unwrap();
    assert_eq!((answered.tagged_run, answered.run_request), (run, None));
    assert_eq!(answered.offer, None, "a run by tag is made of what is held");
    let answered = node.check_in(&confirms(None, Some(second.number))).await.unwrap();
    assert_eq!(answered.tagged_run, None);
    assert_eq!(fleet.operator().await.node("web-1").await.tagged_run, None);
    fleet.stop().await;
    fleet.start_again().await;
    assert_eq!(fleet.operator().await.node("web-1").await.tagged_run, None, "durably");
}

#[tokio::test]
async fn what_cannot_be_a_tag_is_refused_for_all() {
    let fleet = Fleet::start().await;
    let _nodes = (fleet.node("web-1").await, fleet.node("web-2").await);
    let many = |count: usize| (0..count).map(|n| format!("t{n}")).collect::<BTreeSet<_>>();
    for (tags, why) in [
        (set(&[]), "no tag is named"),
        (set(&["web", "Not A Tag"]), "`Not A Tag` cannot be a tag"),
        (many(MAX_RUN_TAGS + 1), "33 tags are named"),
    ] {
        let problem = refuses(request(&fleet, &["web-1"], tags).await, Code::RunRefused);
        assert!(problem.detail.as_deref().unwrap().contains(why), "{problem:?}");
    }
    refuses(request(&fleet, &["web-2", "web-9"], set(&["web"])).await, Code::NotFound);
    assert_eq!(fleet.operator().await.node("web-2").await.tagged_run, None);
}

#[tokio::test]
async fn one_that_never_answers_is_named_and_holds_up_no_other() {
    let fleet = Fleet::start().await;
    let _nodes = (fleet.node("web-1").await, fleet.node("web-2").await);
    let many: BTreeSet<String> = (0..MAX_RUN_TAGS).map(|n| format!("t{n}")).collect();
    for _ in 0..2 {
        let requested = request(&fleet, &["web-1"], many.clone()).await.unwrap();
        assert_eq!((requested.nodes, requested.too_many_tags), (1, vec![]));
    }
    let requested = request(&fleet, &["web-2", "web-1"], set(&["web"])).await.unwrap();
    assert_eq!((requested.nodes, requested.too_many_tags), (1, vec!["web-1".parse().unwrap()]));
    let mut operator = fleet.operator().await;
    let tags = async |operator: &mut test_support::fleet::Operator, node: &str| {
        operator.node(node).await.tagged_run.unwrap().tags
    };
    assert_eq!(tags(&mut operator, "web-2").await, set(&["web"]));
    assert_eq!(tags(&mut operator, "web-1").await, many, "what stands stays as it is");
}

#[tokio::test]
async fn an_agent_that_does_not_know_it_is_named_and_not_asked() {
    let fleet = Fleet::start().await;
    let names = ["new-1", "old-1", "silent-1"];
    let (new, old, _silent) =
        (fleet.node("new-1").await, fleet.node("old-1").await, fleet.node("silent-1").await);
    for (node, features) in [(&new, NODE_FEATURES), (&old, &["from-yesterday"])] {
        node.check_in(&CheckIn { traits: Some(traits(features)), ..quiet() }).await.unwrap();
    }
    let requested = request(&fleet, &names, set(&["web"])).await.unwrap();
    assert_eq!((requested.nodes, requested.too_old), (2, vec!["old-1".parse().unwrap()]));
    let mut operator = fleet.operator().await;
    let mut asked = Vec::new();
    for name in names {
        asked.push(operator.node(name).await.tagged_run.is_some());
    }
    // One that has not called yet is asked: it says so when it calls.
    assert_eq!(asked, [true, false, true]);
    // Once its agent is a newer one it can be.
    old.check_in(&CheckIn { traits: Some(traits(NODE_FEATURES)), ..quiet() }).await.unwrap();
    assert_eq!(request(&fleet, &["old-1"], set(&["web"])).await.unwrap().too_old, vec![]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_is_answered_with_it() {
    let fleet = Fleet::start().await;
    let node = std::sync::Arc::new(fleet.node("web-1").await);
    let held = publish(&fleet, &["web-1"]).await;
    let waiting = {
        let (node, held) = (node.clone(), held.clone());
        tokio::spawn(async move {
            node.post::<_, Answer>("/v1/agent/checkin?wait=25", &holds(&held)).await.unwrap()
        })
    };
    test_support::wait::until("its call has arrived", || async {
        fleet.operator().await.node("web-1").await.last_seen
    })
    .await;
    let requested = request(&fleet, &["web-1"], set(&["web"])).await.unwrap();
    let run = waiting.await.unwrap().tagged_run;
    assert_eq!(run.map(|run| run.number), Some(requested.number));
}
