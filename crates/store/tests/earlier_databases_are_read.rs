//! LIF-4: what a control plane of format 1 wrote is read by this one and every later one: each table
//! has rows in `golden/format-1.sql`, or beside it where a migration made it later, and what they say is in `golden/format-1.txt`. `MUSTER_BLESS=1`
//! writes the second anew, and the first if it is not there. What is kept of a node's contentions (CNV-7)
//! is a part of its last run that may be absent: no migration, so the version before opens the database.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with the conformance tests")]
mod fixture;

use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fixture::{at, enrolled, incarnation, new_node, put, release, run, signed, started, tree};
use model::condition::{Difference, Direction, SyncCause, SyncCondition};
use model::exchange::{HeldRelease, RunNote, TraitReport};
use model::log::{Fact, FactBody};
use model::tags::TaggedRun;
use model::work::{ActionEvent, ActionFact, ActionOutcome, OutputStream};
use model::{Contention, Culprit, Digest, JoinDecision, JoinState, NodeId, ObjectKey, PendingJoin, Stub};
use rollout::{DecisionGuard, RolloutChange, RolloutCommit, RolloutDocument};
use rusqlite::Connection;
use store::audit::{AuditDraft, AuditFilter, AuditSubject};
use store::{
    CredentialKind, FailedJoin, FleetMeta, GroupUse, JoinFailureKind, KnownPrefix, NewNode, ObjectFilter,
    OperatorCredential, OperatorRecord, OperatorRole, ReportingToken, RolloutWrite, Store, StoredList,
    StoredMembers, SyncProgress, TaskKind, TaskNode, TaskRecord, Touch,
};
use sync::feed::ObjectState;
use sync::{Change, Content, FeedCursor, Side, Write};
use trust::ListName;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// All rows of all tables, as SQL.
fn rows(database: &Connection) -> String {
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = database.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'migration'
        ORDER BY name = 'sqlite_sequence', name";
    // Tables stand in the order of their names, whoever refers to them; the counters are set last.
    let mut out = "PRAGMA foreign_keys = OFF;\n".to_owned();
    for table in texts(tables) {
        let columns = texts(&format!("SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}')"));
        let values = columns.join(" || ', ' || ");
        let sql =
            format!("SELECT 'INSERT INTO {table} VALUES (' || {values} || ');' FROM {table} ORDER BY 1");
        let inserts = texts(&sql);
        assert!(!inserts.is_empty(), "{table} has no row: fill it");
        if table == "sqlite_sequence" {
            out.push_str("DELETE FROM sqlite_sequence;\n");
        }
        writeln!(out, "{}", inserts.join("\n")).unwrap();
    }
    out
}

fn content(text: &str) -> Content {
    Content { bytes: Bytes::from(text.to_owned()), trace: Some(format!("00-{text}")), at: 1234 }
}

fn live(rev: u64, name: &str) -> (Change, Option<Content>) {
    let stub = Stub { uid: "u".into(), ..Stub::of(name.as_bytes()) };
    let state = ObjectState::Live { stub, born: rev };
    (Change { rev, key: ObjectKey::of("Job", name), state }, Some(content(name)))
}

/// Puts something into every table.
async fn fill(store: &Store) {
    store.found_fleet(FleetMeta { fleet: "acme-1".parse().unwrap(), created: at(1) }).await.unwrap();
    store.open_epoch(at(2)).await.unwrap();
    store.open_incarnation(&incarnation("s1"), at(2)).await.unwrap();
    let (one, two) = (enrolled(store, 1).await, enrolled(store, 2).await);
    store.remove_node(&two, at(9)).await.unwrap();
    contact(store, &one).await;
    facts(store, &one).await;
    objects(store, &one).await;
    let tree = tree(2, "a");
    put(store, &tree, at(0)).await;
    store.commit_release(release(1, tree.root), None).await.unwrap();
    store.keep_node_header(2, signed("header"), &incarnation("s2"), at(2)).await.unwrap();
    assert!(store.put_beacon(&"stable".parse().unwrap(), 1, signed("beacon"), at(1)).await.unwrap());
    let task = TaskRecord {
        id: "t-1".into(),
        kind: TaskKind::Workflow,
        created: at(3),
        by: "ann".into(),
        document: r#"{"n":1}"#.into(),
        finished: Some(at(4)),
    };
    let subject = AuditSubject::nodes(["web-1"]).and("task t-1");
    let (came, by, request, operation) = (at(3), "ann".into(), "r-1".into(), "POST /v1/tasks".into());
    let draft = AuditDraft { at: came, by, request, operation, subject, refused: None, left_out: 0 };
    store.recording(draft).put_task(task).await.unwrap();
    let ann = OperatorRecord {
        name: "ann".into(),
        role: OperatorRole::Operator,
        nodes: Some("@eu".into()),
        created: at(3),
        created_by: "operator".into(),
        revoked: None,
        credentials: vec![OperatorCredential {
            id: "c1".into(),
            kind: CredentialKind::Token,
            created: at(3),
            expires: at(9),
        }],
    };
    store.put_operator(ann).await.unwrap();
    let list = StoredList { name: ListName::Revocations, seq: 3, document: signed("revocations") };
    store.put_lists(vec![list]).await.unwrap();
    let join = FailedJoin {
        hostname: "web-9".parse().unwrap(),
        fingerprint: "SHA256:x".into(),
        failure: JoinFailureKind::EnrollmentFailed,
        code: Some("token-expired".into()),
        message: "it ended".into(),
        agent: Some("0.1.0".into()),
    };
    let token = ReportingToken { nonce: "nonce-9".into(), node: new_node(9).node_id };
    store.report_failed_join(token, join, at(6)).await.unwrap();
    let target = TaskNode { node: one, action: "a-1".into(), state: r#"{"ended":true}"#.into() };
    store.put_task_nodes("t-1", vec![target]).await.unwrap();
    let prefix = KnownPrefix { prefix: "10.0.0.0/24".into(), authenticated: at(5) };
    store.keep_prefixes(vec![prefix], at(0), 9).await.unwrap();
    let NewNode { node_id, hostname, public_key, .. } = new_node(3);
    let join = PendingJoin {
        node_id,
        hostname,
        public_key,
        address: "10.0.0.9".into(),
        prefix: "10.0.0.0/24".into(),
        group: Some("g".into()),
        since: at(6),
        state: JoinState::Denied,
        decided: Some(JoinDecision { at: at(7), by: "ann".into() }),
    };
    let group = GroupUse { nonce: "g".into(), uses: 2, expires_at: at(9) };
    store.keep_waiting(join, Some(group)).await.unwrap();
    rollout(store).await;
}

/// A rollout with one member, as the core's golden files have them.
async fn rollout(store: &Store) {
    let document: RolloutDocument = first_line(include_str!("../../rollout/tests/golden/documents.jsonl"));
    let member = first_line(include_str!("../../rollout/tests/golden/members.jsonl"));
    let change = RolloutChange {
        expected: 0,
        document,
        members: vec![member],
        removed: Vec::new(),
        drops_members: false,
    };
    let budget = DecisionGuard { budget: "max=2 where *".into(), expected: 0, next: 1 };
    let commit = RolloutCommit { rollouts: vec![change], budgets: vec![budget] };
    let write = RolloutWrite { facts: Vec::new(), commits: vec![commit] };
    store.commit_rollouts(write, at(8)).await.unwrap();
}

fn first_line<T: serde::de::DeserializeOwned>(lines: &str) -> T {
    serde_json::from_str(lines.lines().next().unwrap()).unwrap()
}

async fn contact(store: &Store, node: &NodeId) {
    let held = HeldRelease {
        channel: "stable".parse().unwrap(),
        seq: 4,
        header: Digest::of(b"header"),
        root: Digest::of(b"root"),
    };
    let run = RunNote { at: at(9), outcome: Digest::of(b"outcome") };
    let (held, run) = (Some(held), Some(run));
    let touch = Touch {
        node: node.clone(),
        last_seen: at(10),
        held,
        run,
        promised_secs: 60,
        runs_heard: Default::default(),
        conditions: Default::default(),
        trust_version: 0,
    };
    store.touch(vec![touch]).await.unwrap();
    let values = serde_json::json!({ "os": { "name": "a" } });
    store.put_traits(node, TraitReport::whole(Digest::of(b"a"), values), at(1)).await.unwrap();
    store.put_seen(node, signed("seen"), at(2)).await.unwrap();
    store.request_run(vec![node.clone()], 7, at(2)).await.unwrap();
    let run = TaggedRun { number: 8, tags: ["db".to_owned(), "web".to_owned()].into() };
    store.request_tagged_runs(vec![(node.clone(), run)], at(2)).await.unwrap();
}

async fn facts(store: &Store, node: &NodeId) {
    let action = |seq, event| Fact {
        seq,
        at: at(100),
        body: FactBody::Action(ActionFact { id: "a-1".into(), event }),
    };
    let (stream, text) = (OutputStream::Stdout, "out".to_owned());
    let facts = vec![
        started(1),
        run(2, 3, true),
        action(3, ActionEvent::Started),
        action(4, ActionEvent::Output { stream, text, dropped: 2 }),
        action(5, ActionEvent::Ended { outcome: ActionOutcome::Exited { code: 1 }, duration_ms: 5 }),
    ];
    store.append_facts(node, &incarnation("one"), facts, at(1)).await.unwrap();
}

async fn objects(store: &Store, node: &NodeId) {
    let gone = ObjectState::Deleted { uid: "u".into() };
    let stub = Stub { uid: "s".into(), ..Stub::of(b"x") };
    let order = sync::cursor::KindOrder(0xfeed);
    let pass = sync::PassPosition { to: 9, rank: 3, revision: 4, order };
    let write = Write {
        begin: Some(incarnation("f1")),
        feed: vec![
            live(1, "a"),
            live(2, "b"),
            (Change { rev: 3, key: ObjectKey::of("Job", "a"), state: gone }, None),
        ],
        replica: vec![(ObjectKey::of("Job:status", "x"), Some((stub, 4, content("x"))))],
        cursor: Some(FeedCursor { pass: Some(pass), ..FeedCursor::at(incarnation("r1"), 2) }),
        ..Write::default()
    };
    store.sync_write(node, write, at(3)).await.unwrap();
    let difference = Difference::DeletionsUnconfirmed { kept: 3, of: 4 };
    let cause = SyncCause::OutOfSync { direction: Direction::Up, difference };
    let acked = Some(FeedCursor::at(incarnation("f1"), 2));
    let condition = Some(SyncCondition::new(cause, Some(at(5))));
    let progress = SyncProgress { node: node.clone(), acked, condition };
    store.sync_progress(vec![progress]).await.unwrap();
}

/// What there is to read.
async fn read(store: &Store) -> String {
    let mut out = String::new();
    let mut show = |what: &str, value: &dyn Debug| writeln!(out, "{what}: {value:#?}").unwrap();
    let (one, two) = (new_node(1).node_id, new_node(2).node_id);
    show("fleet", &store.fleet().await.unwrap());
    show("next epoch", &store.open_epoch(at(20)).await.unwrap());
    show("nodes", &store.nodes(None, 100).await.unwrap());
    show("removed node", &store.node(&two).await.unwrap());
    show("traits", &store.traits(&one).await.unwrap());
    show("facts", &store.facts(&one, None, 10).await.unwrap());
    show("ended actions", &store.ended_actions(&one, vec!["a-1".into()]).await.unwrap());
    show("sets", &store.sync_load(&one).await.unwrap());
    let of_feed = vec![ObjectKey::of("Job", "b")];
    show("content", &store.sync_contents(&one, Side::Feed, of_feed).await.unwrap());
    let of_replica = vec![ObjectKey::of("Job:status", "x")];
    show("replica's content", &store.sync_contents(&one, Side::Replica, of_replica).await.unwrap());
    show("synchronization", &store.sync_heads().await.unwrap());
    show("objects", &store.sync_objects(ObjectFilter::default(), None, 10).await.unwrap());
    show("tasks", &store.tasks(10, None).await.unwrap());
    show("targets", &store.task_nodes("t-1", None, 10).await.unwrap());
    show("heads", &store.heads().await.unwrap());
    show("beacon", &store.beacon(&"stable".parse().unwrap(), 1).await.unwrap());
    show("releases", &store.releases(10, None).await.unwrap());
    let tree = tree(2, "a");
    show("selection", &store.selection(&tree.root, None).await.unwrap().map(|found| found == tree.selection));
    for set in tree.sets.values() {
        show("set", &store.set(&set.root()).await.unwrap().map(|found| found == *set));
    }
    show("incarnation", &store.incarnation().await.unwrap());
    show("header of nodes", &store.node_header().await.unwrap());
    show("address prefixes", &store.prefixes().await.unwrap());
    show("hosts that ask to join", &store.pending_joins().await.unwrap());
    show("operators", &store.operators().await.unwrap());
    show("signed lists", &store.signed_lists().await.unwrap());
    show("failed joins", &store.failed_joins(10, None).await.unwrap());
    let of_node = AuditFilter { node: Some("web-1".into()), limit: 10, ..AuditFilter::default() };
    show("audit log", &store.audit(of_node).await.unwrap());
    show("head of the audit log", &store.audit_head().await.unwrap());
    show("rollouts", &store.rollouts(StoredMembers::OfLive).await.unwrap());
    show("content of a release", &store.content(&Digest::of(b"module 1"), None).await.unwrap());
    out
}

async fn close(store: Store) {
    let closed = store.closed();
    drop(store);
    closed.await;
}

#[tokio::test]
async fn rows_of_format_1_say_what_they_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    let store = Store::open(&path).unwrap();
    fill(&store).await;
    close(store).await;
    let written = rows(&Connection::open(&path).unwrap());
    let bless = std::env::var_os("MUSTER_BLESS").is_some();
    if bless && !golden("format-1.sql").exists() {
        let schema = std::fs::read_to_string(golden("schema.sql")).unwrap();
        std::fs::write(golden("format-1.sql"), format!("{schema}{written}")).unwrap();
    }
    let store = Store::open(&path).unwrap();
    let now = read(&store).await;
    close(store).await;
    if bless {
        std::fs::write(golden("format-1.txt"), &now).unwrap();
    }
    let said = std::fs::read_to_string(golden("format-1.txt")).unwrap();
    assert_eq!(now, said);

    let path = directory.path().join("kept.db");
    let kept = std::fs::read_to_string(golden("format-1.sql")).unwrap();
    Connection::open(&path).unwrap().execute_batch(&kept).unwrap();
    // Migrated, it has no rows of tables that came later: those are beside it.
    close(Store::open(&path).unwrap()).await;
    let later = std::fs::read_to_string(golden("format-1-later.sql")).unwrap();
    Connection::open(&path).unwrap().execute_batch(&later).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(read(&store).await, said);
    assert_eq!(store.integrity().await.unwrap(), Vec::<String>::new());
    close(store).await;
}

/// CNV-7: kept over a restart of the control plane, until the node says otherwise or its agent begins anew.
#[tokio::test]
async fn contentions_are_kept_beside_the_last_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    let contended = |seq, names: &[&str]| {
        let contention = |name: &&str| Contention {
            resource: (*name).to_owned(),
            since: at(5),
            corrections: 4,
            wait_secs: 1,
            culprit: Some(Culprit { pid: 7, program: Some("/usr/bin/fighter".into()), unit: None }),
            culprit_unknown: None,
        };
        let resources = names.iter().map(contention).collect();
        Fact { seq, at: at(100), body: FactBody::Contended { resources, more: 0 } }
    };
    let mut kept = Vec::new();
    let batches = [
        vec![run(1, 0, false), contended(2, &["m/file:/a"])],
        vec![run(3, 1, false)],
        vec![contended(4, &[])],
        vec![contended(5, &["m/file:/b"]), started(6)],
    ];
    let mut node = None;
    for facts in batches {
        let store = Store::open(&path).unwrap();
        let id = match node.clone() {
            Some(id) => id,
            None => enrolled(&store, 1).await,
        };
        store.append_facts(&id, &incarnation("one"), facts, at(1)).await.unwrap();
        node = Some(id);
        close(store).await;
        let store = Store::open(&path).unwrap();
        let contended = store.nodes(None, 100).await.unwrap()[0].contended.clone();
        kept.push(contended.iter().map(|one| one.resource.clone()).collect::<Vec<_>>());
        close(store).await;
    }
    assert_eq!(kept, [vec!["m/file:/a"], vec!["m/file:/a"], vec![], vec![]]);
}
