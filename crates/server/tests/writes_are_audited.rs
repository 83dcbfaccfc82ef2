//! OPS-5: every write has an author and a request id in the audit log, whose chain holds; what was refused is there too,
//! at a bounded rate; no secret is in it, and none in the database.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::Timestamp;
use serde_json::{Value, json};
use server::api::operators::{AuditPage, IssuedCredential};
use server::api::rollouts::RolloutView;
use server::api::work::TaskView;
use store::OperatorRole;
use store::audit::{AuditEntry, AuditHead, AuditVerifier};
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::synced::{manifest, one_managed};
use test_support::fleet::{Fleet, Operator, refuses};
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use wire::Code;

/// The whole log from the oldest entry on, verified.
async fn log(admin: &mut Operator) -> Vec<AuditEntry> {
    let (mut verifier, mut entries) = (AuditVerifier::default(), Vec::new());
    loop {
        let path = format!("/v1/audit?limit=7&after={}", verifier.head().number);
        let page: AuditPage = admin.get(&path).await.unwrap();
        if page.entries.is_empty() {
            assert_eq!(verifier.end().unwrap(), page.head);
            return entries;
        }
        entries.extend(page.entries.iter().map(|row| verifier.take(row).unwrap()));
    }
}

/// The entries since an entry.
async fn since(admin: &mut Operator, number: usize) -> Vec<AuditEntry> {
    log(admin).await.split_off(number)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_has_one_entry_with_author_and_request() {
    let (fleet, mut admin, _node) = one_managed().await;
    fleet.node("web-2").await;
    let published = log(&mut admin).await;
    assert_eq!(published.len(), 1, "staged chunks have none: {published:?}");
    assert_eq!(
        (published[0].by.as_str(), published[0].operation.as_str()),
        ("operator", "POST /v1/releases")
    );
    let mut olga = fleet.operator_with("olga", OperatorRole::Operator, None).await;

    let _: Value = olga.post("/v1/run-requests", &json!({"nodes": ["web-1", "web-2"]})).await.unwrap();
    let tagged = json!({"nodes": ["web-1"], "tags": ["db"]});
    let _: Value = olga.post("/v1/tagged-run-requests", &tagged).await.unwrap();
    olga.apply(vec![manifest("web-1", "shop", 1), manifest("web-1", "cart", 1)]).await;
    let mut dry = test_support::fleet::synced::apply(vec![manifest("web-1", "shop", 2)]);
    dry.dry_run = true;
    let _: Value = olga.post("/v1/objects", &dry).await.unwrap();
    let task: TaskView = olga.begin("web-1", &["/bin/true"]).await;
    let _: Value = olga.post(&format!("/v1/tasks/{}/cancel", task.id), &json!({})).await.unwrap();
    let _: Value = olga.post("/v1/resyncs", &json!({"nodes": ["web-1"]})).await.unwrap();
    let _: Value = admin.delete("/v1/nodes/web-2").await.unwrap();
    let _: Value = admin.delete("/v1/operators/olga").await.unwrap();
    for _ in 0..2 {
        fleet.revoke(1, &[("web-9", Timestamp(1))]).await.ok();
    }

    let entries = since(&mut admin, 1).await;
    let told: Vec<(&str, &str)> =
        entries.iter().map(|entry| (entry.by.as_str(), entry.operation.as_str())).collect();
    let expected = [
        ("operator", "POST /v1/operators"),
        ("olga", "POST /v1/run-requests"),
        ("olga", "POST /v1/tagged-run-requests"),
        ("olga", "POST /v1/objects"),
        ("olga", "POST /v1/tasks"),
        ("olga", "POST /v1/tasks/{id}/cancel"),
        ("olga", "POST /v1/resyncs"),
        ("operator", "DELETE /v1/nodes/{node}"),
        ("operator", "DELETE /v1/operators/{name}"),
        ("operator", "POST /v1/lists"),
        ("operator", "POST /v1/lists"),
    ];
    assert_eq!(told, expected, "one each, and none for what would only be done");
    assert_eq!((entries[1].nodes.clone(), entries[1].node_count), (vec!["web-1".into(), "web-2".into()], 2));
    assert!(entries[2].what.as_ref().unwrap().contains("db"));
    assert!(entries[5].what.as_ref().unwrap().contains(&task.id));
    assert_eq!(entries[9].what.as_deref(), Some("revocations 1 of 1 hosts"));
    assert_eq!(entries[9].nodes, ["web-9"]);
    // One of the same number, which was signed later.
    assert_eq!(entries[10].refused.as_deref(), Some("list-older"));
    assert!(entries.iter().all(|entry| !entry.request.is_empty()));
    assert!(entries[..10].iter().all(|entry| entry.refused.is_none()));
    let requests: std::collections::BTreeSet<_> = entries.iter().map(|entry| &entry.request).collect();
    assert_eq!(requests.len(), entries.len(), "each its own request");

    // It is found by author, node and time; what a node's last change was is shown with the node.
    let of = |page: AuditPage| -> Vec<u64> { page.entries.iter().map(|row| row.number).collect() };
    assert_eq!(of(admin.get("/v1/audit?author=olga&limit=2").await.unwrap()), [8, 7]);
    assert_eq!(of(admin.get("/v1/audit?author=olga&before=7&limit=1").await.unwrap()), [6]);
    assert_eq!(of(admin.get("/v1/audit?node=web-2").await.unwrap()), [9, 3]);
    let at = entries[8].at.to_string();
    assert!(of(admin.get(&format!("/v1/audit?since={at}")).await.unwrap()).contains(&10));
    assert!(of(admin.get("/v1/audit?since=2999-01-01T00:00:00Z").await.unwrap()).is_empty());
    let change = admin.node("web-1").await.last_change.unwrap();
    assert_eq!((change.by.as_str(), change.operation.as_str()), ("olga", "POST /v1/resyncs"));
    assert_eq!(admin.status().await.channels[0].by.as_deref(), Some("operator"));
}

/// An order to a rollout says which rollout and what, and one that takes a node out names it.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_to_a_rollout_has_its_entry() {
    let fleet = Fleet::start().await;
    let mut admin = fleet.operator().await;
    fleet.node("web-1").await;
    for seq in [1, 2] {
        let gate = GateTerms { soak_secs: 0, success: 100 };
        let wave = WaveTerms { name: "all".to_owned(), members: WaveMembers::Rest, not_before: None, gate };
        let terms = Arc::new(RolloutTerms { waves: vec![wave], ..RolloutTerms::default() });
        let plan = Plan::new(&fleet.enroll_info().fleet, seq).node("web-1", &[params(&seq.to_string())]);
        let plan = Plan { rollout: (seq == 2).then_some(terms), ..plan };
        admin.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    }
    let mut olga = fleet.operator_with("olga", OperatorRole::Operator, None).await;
    let mut eve = fleet.operator_with("eve", OperatorRole::Viewer, None).await;
    let before = log(&mut admin).await.len();
    let paused: RolloutView = olga.post("/v1/rollouts/stable/pause", &json!({})).await.unwrap();
    assert_eq!(paused.paused.unwrap().by, "olga");
    refuses(eve.post::<_, Value>("/v1/rollouts/stable/resume", &json!({})).await, Code::RoleRequired);
    // The signed terms say that what was started stays.
    refuses(olga.post::<_, Value>("/v1/rollouts/stable/rollback", &json!({})).await, Code::WrongPhase);
    let _: Value = olga.post("/v1/rollouts/stable/skip", &json!({"node": "web-1"})).await.unwrap();

    let entries = since(&mut admin, before).await;
    assert!(
        entries.iter().all(|entry| entry.operation == "POST /v1/rollouts/{rollout}/{turn}"),
        "{entries:?}"
    );
    let what = |turn: &str| Some(format!("rollout {}: {turn}", paused.id));
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry.by.as_str(), entry.what.clone(), entry.refused.as_deref()))
        .collect();
    let expected = [
        ("olga", what("pause"), None),
        ("eve", None, Some(Code::RoleRequired.as_str())),
        ("olga", what("rollback"), Some(Code::WrongPhase.as_str())),
        ("olga", what("skip"), None),
    ];
    assert_eq!(told, expected);
    assert_eq!((entries[3].nodes.clone(), entries[3].node_count), (vec!["web-1".to_owned()], 1));
    let change = admin.node("web-1").await.last_change.unwrap();
    assert_eq!((change.by.as_str(), change.what), ("olga", what("skip")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_is_there_at_a_bounded_rate() {
    let fleet = Fleet::start().await;
    fleet.node("web-1").await;
    let mut admin = fleet.operator().await;
    let mut viewer = fleet.operator_with("eve", OperatorRole::Viewer, None).await;
    let run = json!({"nodes": ["web-1"]});
    refuses(viewer.post::<_, Value>("/v1/run-requests", &run).await, Code::RoleRequired);
    refuses(admin.delete::<Value>("/v1/nodes/nobody").await, Code::NotFound);
    // A question that is refused is no write.
    refuses(admin.get::<Value>("/v1/nodes/nobody").await, Code::NotFound);
    let mut nobody = fleet.operator_by_token("x").await;
    refuses(nobody.get::<Value>("/v1/status").await, Code::OperatorRefused);
    let told: Vec<_> =
        since(&mut admin, 1).await.into_iter().map(|entry| (entry.by, entry.refused)).collect();
    let refused_as = |by: &str, code: Code| (by.to_owned(), Some(code.as_str().to_owned()));
    assert_eq!(
        told,
        [
            refused_as("eve", Code::RoleRequired),
            refused_as("operator", Code::NotFound),
            refused_as("?", Code::OperatorRefused)
        ]
    );
    for _ in 0..100 {
        refuses(viewer.post::<_, Value>("/v1/run-requests", &run).await, Code::RoleRequired);
    }
    let entries = since(&mut admin, 1).await;
    let of_eve = entries.iter().filter(|entry| entry.by == "eve");
    // A minute may begin meanwhile, and then another.
    assert!((20..=60).contains(&of_eve.count()), "{}", entries.len());
    // Others are heard all the same.
    let _: Value = admin.post("/v1/run-requests", &run).await.unwrap();
    assert_eq!(log(&mut admin).await.last().unwrap().by, "operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_log_or_in_the_database() {
    let mut fleet = Fleet::start().await;
    let mut admin = fleet.operator().await;
    let added = admin.add("ci", OperatorRole::Operator, None).await.unwrap();
    let IssuedCredential::Token { token } = added.issued else { panic!() };
    let secret = token.strip_prefix("muster-operator1.").unwrap().to_owned();
    let mut ci = fleet.operator_by_token(&token).await;
    ci.status().await;
    // A token that is wrong may be another fleet's.
    let mut wrong = fleet.operator_by_token(&format!("{token}x")).await;
    refuses(wrong.get::<Value>("/v1/status").await, Code::OperatorRefused);
    drop((admin, ci, wrong));
    fleet.stop().await;
    for entry in std::fs::read_dir(fleet.dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
    }
    let head = store::backup::verify_audit(&fleet.dir.path().join("muster.db"), vec![AuditHead::default()]);
    assert!(head.unwrap().unwrap().number >= 2, "and the log is whole without the control plane");
}
