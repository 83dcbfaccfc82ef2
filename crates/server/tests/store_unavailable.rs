//! SCL-3, ENR-7: while the database cannot be written, unchanged check-ins are answered, what
//! needs it is told to come back, nothing is acknowledged, and nothing is lost by it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::{Method, header};
use model::condition::SyncState;
use model::exchange::{Acked, CheckIn, Report, TraitReport};
use model::log::{Fact, FactBody};
use model::replication::Mode;
use model::status::Overall;
use model::{Action, Digest, ResourceReport, RunCounts, RunReport};
use rusqlite::Connection;
use serde_json::json;
use server::api::objects::{ObjectResults, SyncView, SyncsView};
use test_support::fleet::link::{handler, linked, publish_mode};
use test_support::fleet::{Fleet, Member, new_key, now, plain, quiet, refuses};
use test_support::wait::until;
use wire::enroll::EnrollRequest;
use wire::{Code, Problem, body, route};

/// Holds the database as another program would that writes to it and does not end.
struct HeldDatabase(Connection);

impl HeldDatabase {
    fn take(fleet: &Fleet) -> HeldDatabase {
        let connection = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
        connection.busy_timeout(test_support::fleet::PATIENCE).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        HeldDatabase(connection)
    }

    fn release(self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

fn fact(seq: u64) -> Fact {
    Fact { seq, at: now(), body: FactBody::Repaired { message: format!("fact {seq}") } }
}

fn report(facts: Vec<Fact>) -> Report {
    Report { incarnation: "i1".parse().unwrap(), facts }
}

/// What is told to a node whose request could not be stored: come back.
fn told_to_come_back<T: std::fmt::Debug>(result: Result<T, Problem>) {
    let problem = result.expect_err("what is not stored is not acknowledged");
    let codes = [Code::Busy, Code::StoreUnavailable].map(Code::as_str);
    assert!(codes.contains(&problem.code.as_str()), "{problem}");
    assert!(problem.status == 503 && problem.retry_after_secs.is_some(), "{problem:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_that_are_not_stored_are_not_acknowledged() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    node.survives().await;
    let held = HeldDatabase::take(&fleet);
    told_to_come_back(node.post::<_, Acked>(route::REPORT, &report(vec![fact(1), fact(2)])).await);
    node.survives().await;
    held.release();
    // The node kept them, and sends them again.
    let acked: Acked = node.post(route::REPORT, &report(vec![fact(1), fact(2)])).await.unwrap();
    assert_eq!(acked.acked.seq, 2);
}

/// ENR-7: the first use of a certificate spends its token; it counts from the request that was
/// answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_use_that_is_not_stored_is_the_first_again() {
    let mut fleet = Fleet::start().await;
    let (token, key) = (fleet.token("web-1"), new_key());
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    let mut node = fleet.member("web-1", key, &answer);
    let held = HeldDatabase::take(&fleet);
    told_to_come_back(node.check_in(&quiet()).await);
    held.release();
    node.survives().await;
    fleet.stop().await;
    fleet.start_again().await;
    refuses(fleet.enroll(&token, "web-1", &node.key).await, Code::TokenUsed);
    node.url = fleet.url();
    node.survives().await;
}

/// What the store did not take for another reason than its own is said again, and stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traits_beside_what_is_not_stored_are_stored_later() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let traits = TraitReport::whole(Digest::of(b"traits"), json!({"os": "x"}));
    let first = CheckIn { traits: Some(traits.clone()), ..quiet() };
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    database.busy_timeout(test_support::fleet::PATIENCE).unwrap();
    let refuse = |column: &str| {
        let sql = format!(
            "CREATE TRIGGER refuse BEFORE UPDATE OF {column} ON node BEGIN SELECT RAISE(ABORT, 'not now'); END"
        );
        database.execute_batch(&sql).unwrap();
    };
    refuse("cert_used");
    assert!(node.check_in(&first).await.is_err(), "the first use of the certificate is not stored");
    database.execute_batch("DROP TRIGGER refuse").unwrap();
    node.check_in(&first).await.unwrap();
    let stored: Option<TraitReport> = fleet.operator().await.get("/v1/nodes/web-1/traits").await.unwrap();
    assert_eq!(stored, Some(traits));
}

/// More enrollments at once than are worked on: the others are told to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enrollments_beyond_the_bound_are_told_to_come_back() {
    const BOUND: usize = 32;
    const ASKED: usize = BOUND + 8;
    let fleet = Fleet::start().await;
    let held = HeldDatabase::take(&fleet);
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..ASKED {
        let host = format!("web-{n}");
        let csr_pem = net::issue::node_request(&new_key(), &host.parse().unwrap()).unwrap();
        let message = EnrollRequest { token: Some(fleet.token(&host)), hostname: host, csr_pem };
        let request = plain(&fleet.url(), route::ENROLL, body::encode(&message).unwrap());
        let mut client = fleet.anonymous().await;
        asked.spawn(async move {
            client.call(request, test_support::fleet::LIMIT, test_support::fleet::PATIENCE).await.unwrap()
        });
    }
    // Those beyond the bound are answered at once, while the others wait.
    for _ in BOUND..ASKED {
        let response = asked.join_next().await.unwrap().unwrap();
        let problem = test_support::fleet::refused(&response, Code::Busy);
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key(header::RETRY_AFTER), "{problem}");
    }
    held.release();
    let enrolled =
        asked.join_all().await.into_iter().filter(|response| response.status().is_success()).count();
    assert_eq!(enrolled, BOUND, "what was accepted is done");
    assert_eq!(fleet.operator().await.status().await.nodes, BOUND);
    fleet.node("late-1").await.survives().await;
}

/// A node that hangs up before the answer: its facts are stored or not, but never stored
/// without being counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_whose_sender_hung_up_count_all_the_same() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    node.survives().await;
    let failed = RunReport {
        started: now(),
        duration_ms: 1,
        seq: 1,
        root: Digest::of(b"root"),
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts { failed: 1, ..RunCounts::default() },
        items: vec![ResourceReport {
            resource: "base/file:/etc/motd".to_owned(),
            action: Action::Failed,
            edit: None,
            reason: Some("disk full".to_owned()),
            cause: None,
            duration_ms: 1,
        }],
    };
    let facts = vec![Fact { seq: 1, at: now(), body: FactBody::Run(failed) }];
    hangs_up(&fleet, &node, CheckIn { facts, ..quiet() }).await;
    test_support::wait::until("the fact is stored", || async {
        let facts: serde_json::Value = fleet.operator().await.get("/v1/nodes/web-1/facts").await.unwrap();
        (!facts.as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    let view = test_support::wait::until("the failure is counted", || async {
        Some(fleet.operator().await.node("web-1").await).filter(|view| view.counts.is_some())
    })
    .await;
    assert_eq!(view.counts.unwrap().failed, 1);
    assert!([Overall::Failed, Overall::Unassigned].contains(&view.state), "{view:?}");
}

/// What a check-in says is stored whole: a node asks for nothing, and is asked for nothing, a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traits_whose_sender_hung_up_are_stored_all_the_same() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let traits = TraitReport::whole(Digest::of(b"traits"), json!({"os": "x"}));
    // The first use of the certificate is stored before them.
    hangs_up(&fleet, &node, CheckIn { traits: Some(traits.clone()), ..quiet() }).await;
    let stored = until("the traits are stored", async || {
        fleet.operator().await.get::<Option<TraitReport>>("/v1/nodes/web-1/traits").await.unwrap()
    });
    assert_eq!(stored.await, traits);
}

/// A node checks in while nothing can be stored, and hangs up before the answer.
async fn hangs_up(fleet: &Fleet, node: &Member, message: CheckIn) {
    let before = fleet.operator().await.node("web-1").await.last_seen;
    let held = HeldDatabase::take(fleet);
    let request = node.signed(Method::POST, route::CHECKIN, body::encode(&message).unwrap());
    let mut client = node.dial().await;
    let call = tokio::spawn(async move { client.call(request, 1024, test_support::fleet::PATIENCE).await });
    until("the request has arrived", async || {
        fleet.operator().await.node("web-1").await.last_seen.filter(|seen| Some(*seen) > before)
    })
    .await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    for _ in 0..5 {
        node.survives().await;
    }
    held.release();
}

/// SYN-4, CNV-3: how far a node is, and what the comparison of its sets came to, is persisted once it can be: the
/// node says it no second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursors_and_conditions_that_are_not_stored_are_stored_later() {
    let mut fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    publish_mode(&fleet, &["web-1"], Mode::Managed, 1).await;
    node.survives().await;
    let manifest = json!({"apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": "a"}, "spec": {}});
    let apply = json!({"manifests": [manifest], "node": "web-1"});
    let _: ObjectResults = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    database.busy_timeout(test_support::fleet::PATIENCE).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF acked_rev, condition ON sync
        BEGIN SELECT RAISE(ABORT, 'not now'); END";
    database.execute_batch(refuse).unwrap();
    let link = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    until("the sets are equal", async || {
        let view = view(&fleet).await;
        (view.condition.state == SyncState::InSync && view.behind == 0).then_some(())
    })
    .await;
    // Contacts are persisted after cursors, whatever came of these.
    let contact = || {
        database
            .query_row("SELECT max(last_seen) FROM contact", [], |row| row.get::<_, Option<i64>>(0))
            .unwrap()
    };
    let called = now().0;
    node.survives().await;
    until("a flush is over", async || contact().filter(|seen| *seen >= called)).await;
    database.execute_batch("DROP TRIGGER refuse").unwrap();
    link.stop().await;
    // It flushes once more.
    fleet.stop().await;
    fleet.start_again().await;
    let view = view(&fleet).await;
    assert_eq!(view.behind, 0, "{view:?}");
    assert_eq!(view.condition.reason, "not-compared-since-restart", "{view:?}");
}

/// How synchronization of the one node stands.
async fn view(fleet: &Fleet) -> SyncView {
    let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
    page.nodes.into_iter().next().unwrap()
}
