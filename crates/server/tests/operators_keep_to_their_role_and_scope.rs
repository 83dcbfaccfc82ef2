//! OPS-5, IDN-5: a viewer changes nothing, an operator with a scope sees and changes its nodes alone, and each route of
//! the operator port says who may ask for it: the table in docs/operators.md is made of them (MUSTER_BLESS=1).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use http::Method;
use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use model::{Digest, RunCounts, RunReport, Timestamp};
use serde_json::{Value, json};
use server::api::objects::{ObjectResults, ObjectsView, SyncsView};
use server::api::operation::{OperationEffect, OperationReach};
use server::api::operators::CallerView;
use server::api::work::{Selected, TaskView};
use server::api::{NodeView, NodesView, RunRequested, StatusView};
use store::OperatorRole;
use test_support::fleet::release::Objects;
use test_support::fleet::synced::{declared, managed, manifest, publish};
use test_support::fleet::{Fleet, Member, now, problem, quiet, refused, refuses};
use wire::Code;

const ABOUT_ROUTES: [&str; 2] = ["<!-- routes -->\n", "<!-- end of routes -->"];

#[test]
fn every_route_says_who_may_ask_for_it() {
    let mut table = "| request | role | with a scope | effect |\n| --- | --- | --- | --- |\n".to_owned();
    for access in server::route_access() {
        let reach = match access.reach {
            OperationReach::WholeFleet => "no",
            OperationReach::NodesInScope => "yes",
        };
        let effect = match access.effect {
            OperationEffect::Reads => "reads",
            OperationEffect::Stages => "stages",
            OperationEffect::Writes => "writes",
        };
        table += &format!("| `{} {}` | {} | {reach} | {effect} |\n", access.method, access.path, access.role);
        // What is no `GET` and may be done by a viewer changes nothing, but for the certificate of who asks.
        let is_viewers = access.role == OperatorRole::Viewer && access.path != OWN_CERTIFICATE;
        assert_eq!(is_viewers, access.effect == OperationEffect::Reads, "{access:?}");
        assert!(access.method != Method::GET || access.effect == OperationEffect::Reads, "{access:?}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(ABOUT_ROUTES[0]).unwrap();
    let (kept, after) = rest.split_once(ABOUT_ROUTES[1]).unwrap();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        let [begin, end] = ABOUT_ROUTES;
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert!(
        kept == table,
        "the table in docs/operators.md is not current; MUSTER_BLESS=1 writes it:\n{table}"
    );
}

/// Each operator may have his own certificate renewed.
const OWN_CERTIFICATE: &str = "/v1/operator/certificate";

/// A path with something in each of its places.
fn filled(path: &str) -> String {
    path.replace("{node}", "web-1").replace("{turn}", "abort").replace(['{', '}'], "")
}

#[tokio::test]
async fn a_viewer_sees_and_writes_nothing() {
    let fleet = Fleet::start().await;
    fleet.node("web-1").await;
    let mut viewer = fleet.operator_with("eve", OperatorRole::Viewer, None).await;
    assert_eq!(viewer.status().await.nodes, 1);
    let caller: CallerView = viewer.get("/v1/operator").await.unwrap();
    assert_eq!((caller.name.as_str(), caller.role, caller.nodes), ("eve", OperatorRole::Viewer, None));
    let writes = server::route_access().into_iter().filter(|route| route.effect != OperationEffect::Reads);
    for route in writes.filter(|route| route.path != OWN_CERTIFICATE) {
        let bytes = if route.method == Method::POST { b"{}".to_vec() } else { Vec::new() };
        let response = viewer.raw(route.method.clone(), &filled(route.path), bytes).await;
        let told = refused(&response, Code::RoleRequired).detail.unwrap();
        assert!(told.contains("eve is viewer, and this needs"), "{told}");
    }
    // Contents are no JSON, and are staged too.
    refused(&viewer.raw(Method::POST, "/v1/contents", Vec::new()).await, Code::RoleRequired);
    assert_eq!(fleet.operator().await.status().await.nodes, 1, "nothing was changed");

    let mut operator = fleet.operator_with("olga", OperatorRole::Operator, None).await;
    for route in server::route_access().into_iter().filter(|route| route.role == OperatorRole::Admin) {
        let response = operator.raw(route.method.clone(), &filled(route.path), Vec::new()).await;
        refused(&response, Code::RoleRequired);
    }
    let asked = json!({"nodes": ["web-1"]});
    let _: RunRequested = operator.post("/v1/run-requests", &asked).await.unwrap();
}

/// Three nodes, of which two are in the group `eu`; each has an object.
async fn fleet_of_three() -> (Fleet, Vec<Member>) {
    let fleet = Fleet::start().await;
    let mut members = Vec::new();
    for name in ["eu-1", "eu-2", "us-1"] {
        members.push(fleet.node(name).await);
    }
    let of = |group: &str| -> Objects {
        let node = json!({"groups": [group], "labels": {}});
        managed().into_iter().chain([declared(&node)]).collect()
    };
    let mut admin = fleet.operator().await;
    publish(&fleet, &mut admin, &[("eu-1", of("eu")), ("eu-2", of("eu")), ("us-1", of("us"))]).await;
    for member in &members {
        let facts = vec![Fact { seq: 1, at: now(), body: FactBody::Run(run()) }];
        member.check_in(&CheckIn { facts, ..quiet() }).await.unwrap();
    }
    for node in ["eu-1", "us-1"] {
        let applied = admin.apply(vec![manifest(node, "shop", 1)]).await;
        assert!(applied.results.iter().all(|result| result.why.is_none()), "{applied:?}");
    }
    (fleet, members)
}

fn run() -> RunReport {
    RunReport {
        started: now(),
        duration_ms: 1,
        seq: 1,
        root: Digest::ZERO,
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts::default(),
        items: vec![],
    }
}

fn outside<T: std::fmt::Debug>(answer: Result<T, wire::Problem>) {
    let told = refuses(answer, Code::OutsideScope).detail.unwrap();
    assert!(told.contains("\"@eu\""), "the refusal names the scope: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_a_scope_sees_its_nodes_alone() {
    let (fleet, members) = fleet_of_three().await;
    let mut scoped = fleet.operator_with("erik", OperatorRole::Viewer, Some("@eu")).await;
    let caller: CallerView = scoped.get("/v1/operator").await.unwrap();
    assert_eq!(caller.nodes.as_deref(), Some("@eu"));
    // Lists and totals.
    let names = |page: &NodesView| -> Vec<String> {
        page.nodes.iter().map(|node| node.hostname.to_string()).collect()
    };
    for query in ["", "?match=*", "?match=%2A-1,eu-2", "?match=@eu"] {
        let page: NodesView = scoped.get(&format!("/v1/nodes{query}")).await.unwrap();
        let expected: &[&str] = &["eu-1", "eu-2"];
        assert_eq!(names(&page), expected, "{query}");
    }
    let page: NodesView = scoped.get("/v1/nodes?match=us-1").await.unwrap();
    assert!(page.nodes.is_empty());
    let status: StatusView = scoped.get("/v1/status").await.unwrap();
    assert_eq!((status.nodes, status.states.values().sum::<usize>()), (2, 2));
    assert!(status.causes.iter().all(|cause| cause.nodes.iter().all(|node| node.as_str() != "us-1")));
    let selected: Selected = scoped.post("/v1/selections", &json!({"selector": "*"})).await.unwrap();
    assert_eq!(selected.count, 2);
    let sync: SyncsView = scoped.get("/v1/sync").await.unwrap();
    assert_eq!((sync.nodes.len(), sync.states.values().sum::<usize>()), (2, 2));
    for query in ["", "?match=*"] {
        let page: ObjectsView = scoped.get(&format!("/v1/objects{query}")).await.unwrap();
        let nodes: Vec<&str> = page.objects.iter().map(|object| object.node.as_str()).collect();
        assert_eq!(nodes, ["eu-1"], "{query}");
    }
    for path in ["/v1/runs", "/v1/runs?limit=2", "/v1/runs?limit=1"] {
        let runs: Vec<Value> = scoped.get(path).await.unwrap();
        let nodes: Vec<&str> = runs.iter().map(|run| run["node"].as_str().unwrap()).collect();
        let newest = members[..2].iter().rev().map(|member| member.id.as_str());
        let most = if path.ends_with('1') { 1 } else { 2 };
        assert_eq!(nodes, newest.take(most).collect::<Vec<_>>(), "{path}");
    }
    // By name: one that is outside as one that there is not.
    let _: NodeView = scoped.get("/v1/nodes/eu-1").await.unwrap();
    for name in ["us-1", "nobody"] {
        for path in ["", "/traits", "/facts"] {
            outside(scoped.get::<Value>(&format!("/v1/nodes/{name}{path}")).await);
        }
        outside(scoped.get::<Value>(&format!("/v1/runs?node={name}")).await);
        outside(scoped.get::<Value>(&format!("/v1/entries/{name}")).await);
        outside(scoped.get::<Value>(&format!("/v1/objects/{name}/Application/{name}/shop")).await);
    }
    // Whatever route names a node, today or later; the task of the last one is refused first.
    let of_node = server::route_access()
        .into_iter()
        .filter(|route| route.reach == OperationReach::NodesInScope && route.path.contains("{node}"));
    for route in of_node.filter(|route| !route.path.starts_with("/v1/tasks/")) {
        let path = route.path.replace("{node}", "us-1").replace("{incarnation}", "i1").replace("{seq}", "1");
        let response = scoped.raw(route.method.clone(), &path.replace(['{', '}'], ""), Vec::new()).await;
        let told = problem(&response).code;
        let is_viewers = route.effect == OperationEffect::Reads;
        let expected = if is_viewers { Code::OutsideScope } else { Code::RoleRequired };
        assert_eq!(told, expected.as_str(), "{route:?}");
    }
    // What belongs to no node is of the whole fleet.
    let fleetwide = server::route_access()
        .into_iter()
        .filter(|route| route.reach == OperationReach::WholeFleet && route.effect == OperationEffect::Reads);
    for route in fleetwide {
        let response = scoped.raw(route.method.clone(), &filled(route.path), Vec::new()).await;
        refused(&response, Code::OutsideScope);
    }
    for path in ["/metrics", "/v1/contents/0"] {
        refused(&scoped.raw(Method::GET, path, Vec::new()).await, Code::OutsideScope);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_a_scope_writes_nothing_outside_it() {
    let (fleet, _members) = fleet_of_three().await;
    let mut scoped = fleet.operator_with("erik", OperatorRole::Admin, Some("@eu")).await;
    for nodes in [json!(["us-1"]), json!(["eu-1", "us-1"]), json!(["nobody"])] {
        outside(scoped.post::<_, Value>("/v1/run-requests", &json!({"nodes": nodes})).await);
        outside(scoped.post::<_, Value>("/v1/resyncs", &json!({"nodes": nodes})).await);
        let tagged = json!({"nodes": nodes, "tags": ["web"]});
        outside(scoped.post::<_, Value>("/v1/tagged-run-requests", &tagged).await);
    }
    outside(scoped.delete::<Value>("/v1/nodes/us-1").await);
    let task = |selector: &str| json!({"selector": selector, "work": {"kind": "command", "argv": ["/bin/true"]}, "timeoutSecs": 60});
    outside(scoped.post::<_, Value>("/v1/tasks", &task("*")).await);
    outside(scoped.post::<_, Value>("/v1/tasks", &task("us-*,eu-1")).await);
    let applied: ObjectResults = scoped.apply(vec![manifest("us-1", "a", 1), manifest("eu-1", "a", 1)]).await;
    let why: Vec<_> = applied.results.iter().map(|result| result.why.clone()).collect();
    assert!(why[0].as_ref().unwrap().starts_with("outside-scope: "), "{why:?}");
    assert_eq!(why[1], None);
    // Nobody makes himself an operator of more.
    let fleetwide = server::route_access()
        .into_iter()
        .filter(|route| route.reach == OperationReach::WholeFleet && route.effect != OperationEffect::Reads);
    for route in fleetwide {
        let response = scoped.raw(route.method.clone(), &filled(route.path), Vec::new()).await;
        assert_eq!(problem(&response).code, Code::OutsideScope.as_str(), "{route:?}");
    }
    let mut admin = fleet.operator().await;
    assert_eq!(admin.node("us-1").await.run_request, None);
    assert!(admin.objects("match=us-1&name=a").await.is_empty());

    // Inside it may. The task of another is not shown.
    let _: RunRequested = scoped.post("/v1/run-requests", &json!({"nodes": ["eu-1"]})).await.unwrap();
    let own: TaskView = scoped.post("/v1/tasks", &task("@eu")).await.unwrap();
    let others: TaskView = admin.post("/v1/tasks", &task("@eu")).await.unwrap();
    let listed: Vec<TaskView> = scoped.get("/v1/tasks").await.unwrap();
    assert_eq!(listed.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), [own.id.as_str()]);
    for path in ["", "/nodes", "/output/eu-1"] {
        refuses(scoped.get::<Value>(&format!("/v1/tasks/{}{path}", others.id)).await, Code::NotFound);
    }
    refuses(
        scoped.post::<_, Value>(&format!("/v1/tasks/{}/cancel", others.id), &json!({})).await,
        Code::NotFound,
    );
    let _: TaskView = scoped.post(&format!("/v1/tasks/{}/cancel", own.id), &json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_goes_by_nothing_that_nodes_say() {
    let fleet = Fleet::start().await;
    let mut admin = fleet.operator().await;
    for bad in ["where:os.family == \"debian\"", "web-*,where:true", "", "!web-1", "@Not A Name"] {
        refuses(admin.add("erik", OperatorRole::Viewer, Some(bad)).await, Code::BadSelector);
    }
    for bad in ["", "Erik", "a:b", "a/b", &"x".repeat(65)] {
        refuses(admin.add(bad, OperatorRole::Viewer, None).await, Code::BadBody);
    }
    let added = admin.add("erik", OperatorRole::Viewer, Some("@none")).await.unwrap();
    assert!(added.expires > Timestamp(0));
    // Another role or scope under the same name is another operator: the credentials of before would have it too.
    refuses(admin.add("erik", OperatorRole::Admin, Some("@none")).await, Code::OperatorTaken);
    refuses(admin.add("erik", OperatorRole::Viewer, None).await, Code::OperatorTaken);
    admin.add("erik", OperatorRole::Viewer, Some("@none")).await.unwrap();
}
