//! OPS-5: an entry of the audit log is in the transaction of the write that it is of, each names the digest of the one
//! before, and whatever is changed, taken out or cut off is found, and the first broken entry named.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;

use model::Digest;
use rusqlite::Connection;
use store::audit::{AuditBreakCause, AuditDraft, AuditFilter, AuditHead, AuditSubject, MAX_NAMED_NODES};
use store::{OperatorRecord, OperatorRole, Store, StoreError, TaskKind, TaskRecord, backup};

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::at;

fn draft(request: usize) -> AuditDraft {
    AuditDraft {
        at: at(request as i64),
        by: "alice".to_owned(),
        request: format!("r-{request}"),
        operation: "POST /v1/tasks".to_owned(),
        subject: AuditSubject::nodes(["web-1"]).and("a \"task\"\n\u{e9}"),
        refused: None,
        left_out: 0,
    }
}

fn task(id: &str) -> TaskRecord {
    let (id, by) = (id.to_owned(), "alice".to_owned());
    TaskRecord { id, kind: TaskKind::Task, created: at(0), by, document: "{}".to_owned(), finished: None }
}

/// A database with so many entries, closed.
async fn written(path: &Path, entries: usize) {
    let store = Store::open(path).unwrap();
    for n in 0..entries {
        store.recording(draft(n)).put_task(task(&format!("t{n}"))).await.unwrap();
    }
    close(store).await;
}

async fn close(store: Store) {
    let closed = store.closed();
    drop(store);
    closed.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_durable_with_its_write_and_only_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.db");
    let store = Arc::new(Store::open(&path).unwrap());
    // A write that fails leaves no entry, whether it is alone in its transaction or not.
    let many = (0..64).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let recording = store.recording(draft(n));
            match n % 2 {
                0 => recording.put_task(task(&format!("t{n}"))).await.unwrap(),
                _ => {
                    let refused = recording.put_task_nodes("none", Vec::new()).await;
                    assert!(matches!(refused, Err(StoreError::UnknownTask(_))), "{refused:?}");
                }
            }
        })
    });
    for one in many.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let filter = AuditFilter { limit: 1000, ..AuditFilter::default() };
    let entries = store.audit(filter.clone()).await.unwrap();
    assert_eq!(entries.len(), 32);
    // However many writes a request makes, and also at one time: one entry.
    let (recording, before) = (Arc::new(store.recording(draft(1000))), entries.len());
    let writes = (0..8).map(|n| {
        let recording = recording.clone();
        tokio::spawn(async move { recording.put_task(task(&format!("many{n}"))).await.unwrap() })
    });
    for one in writes.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    store.append_audit(draft(1000)).await.unwrap();
    assert_eq!(store.audit(filter.clone()).await.unwrap().len(), before + 1);
    // A refusal of the same request stands beside it.
    store.append_refusal(AuditDraft { refused: Some("busy".to_owned()), ..draft(1000) }).await.unwrap();
    let head = store.audit_head().await.unwrap();
    assert_eq!(head.number, 34);
    drop(recording);
    close(Arc::into_inner(store).unwrap()).await;
    assert_eq!(backup::verify_audit(&path, vec![head]).unwrap(), Ok(head));
}

/// Changes a closed database as somebody would who holds it.
fn tamper(path: &Path, sql: &str) {
    let db = Connection::open(path).unwrap();
    for guarded in ["UPDATE audit SET entry = '{}' WHERE number = 1", "DELETE FROM audit WHERE number = 1"] {
        let refused = db.execute(guarded, []).unwrap_err().to_string();
        assert!(refused.contains("append only"), "{refused}");
    }
    db.execute_batch("DROP TRIGGER audit_is_never_changed; DROP TRIGGER audit_is_never_shortened").unwrap();
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    db.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn whatever_is_changed_is_found_and_the_first_broken_entry_named() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good.db");
    written(&good, 6).await;
    let head = backup::audit_head(&good).unwrap().unwrap();
    assert_eq!(backup::verify_audit(&good, vec![head]).unwrap(), Ok(head));

    // The digest of an entry that was changed is made anew by whoever can write the file.
    let forged = {
        let db = Connection::open(&good).unwrap();
        let text: String =
            db.query_row("SELECT entry FROM audit WHERE number = 3", [], |row| row.get(0)).unwrap();
        text.replace("alice", "mallory")
    };
    let forged_digest = Digest::of(forged.as_bytes());
    let rewrite = format!("UPDATE audit SET entry = '{forged}' WHERE number = 3;");
    let consistently = format!("{rewrite} UPDATE audit SET digest = x'{forged_digest}' WHERE number = 3;");
    for (what, sql, number, why) in [
        ("an author", rewrite.as_str(), 3, AuditBreakCause::Changed),
        ("an author, and its digest", &consistently, 4, AuditBreakCause::Unchained),
        ("one taken out", "DELETE FROM audit WHERE number = 2", 2, AuditBreakCause::Missing),
        ("the first taken out", "DELETE FROM audit WHERE number = 1", 1, AuditBreakCause::Missing),
        ("cut off", "DELETE FROM audit WHERE number > 4", 5, AuditBreakCause::Missing),
        ("all taken out", "DELETE FROM audit", 1, AuditBreakCause::Missing),
        (
            "two exchanged",
            "UPDATE audit SET number = -1 WHERE number = 2; UPDATE audit SET number = 2 WHERE number = 3;
             UPDATE audit SET number = 3 WHERE number = -1",
            2,
            AuditBreakCause::Unchained,
        ),
        ("spaces", "UPDATE audit SET entry = entry || ' ' WHERE number = 6", 6, AuditBreakCause::Changed),
    ] {
        let path = directory.path().join(format!("{what}.db"));
        std::fs::copy(&good, &path).unwrap();
        tamper(&path, sql);
        let broken = backup::verify_audit(&path, vec![head]).unwrap().unwrap_err();
        assert_eq!((broken.number, broken.why), (number, why), "{what}");
    }

    // A log that was made anew as a whole holds by itself; a head that was noted elsewhere finds it.
    let anew = directory.path().join("anew.db");
    let store = Store::open(&anew).unwrap();
    for n in 0..9 {
        store.append_audit(AuditDraft { by: "mallory".to_owned(), ..draft(n) }).await.unwrap();
    }
    close(store).await;
    assert!(backup::verify_audit(&anew, Vec::new()).unwrap().is_ok());
    let broken = backup::verify_audit(&anew, vec![head]).unwrap().unwrap_err();
    assert_eq!((broken.number, broken.why), (6, AuditBreakCause::OtherHead));
}

#[tokio::test]
async fn entries_are_bounded_and_found_by_their_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("muster.db")).unwrap();
    let wide = AuditSubject::nodes((0..5000).map(|n| format!("web-{n}"))).and("x".repeat(100_000));
    assert_eq!((wide.nodes.len(), wide.node_count), (MAX_NAMED_NODES, 5000));
    store.append_audit(AuditDraft { subject: wide, ..draft(1) }).await.unwrap();
    store.append_audit(draft(2)).await.unwrap();
    let of = async |node: &str| {
        let filter = AuditFilter { node: Some(node.to_owned()), limit: 10, ..AuditFilter::default() };
        store.audit(filter).await.unwrap().iter().map(|row| row.number).collect::<Vec<_>>()
    };
    // What may be of a node is not kept back.
    assert_eq!((of("web-1").await, of("web-4999").await), (vec![2, 1], vec![1]));
    let rows = store.audit_after(0, 10).await.unwrap();
    assert!(rows[0].entry.len() < 16 * 1024);
    let head: AuditHead = format!("2:{}", rows[1].digest).parse().unwrap();
    assert_eq!(head, store.audit_head().await.unwrap());
    for bad in ["", "2", "x:y", "2:abc"] {
        assert!(bad.parse::<AuditHead>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn operators_are_kept_and_the_first_admin_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("muster.db")).unwrap();
    let founder = store.operators().await.unwrap();
    assert_eq!(founder.len(), 1);
    let first = (founder[0].name.as_str(), founder[0].role, founder[0].created);
    assert_eq!(first, ("operator", OperatorRole::Admin, model::Timestamp(0)));
    let credentials = ["b", "a"].map(|id| store::OperatorCredential {
        id: id.to_owned(),
        kind: store::CredentialKind::Token,
        created: at(5),
        expires: at(9),
    });
    let alice = OperatorRecord {
        name: "alice".to_owned(),
        role: OperatorRole::Viewer,
        nodes: Some("@eu".to_owned()),
        created: at(5),
        created_by: "operator".to_owned(),
        revoked: None,
        credentials: credentials.to_vec(),
    };
    store.put_operator(alice.clone()).await.unwrap();
    let mut kept = store.operators().await.unwrap().remove(0);
    kept.credentials.reverse();
    assert_eq!(kept, alice);
    let revoked =
        OperatorRecord { revoked: Some((at(7), "anna".to_owned())), credentials: Vec::new(), ..alice };
    store.put_operator(revoked.clone()).await.unwrap();
    assert_eq!(store.operators().await.unwrap().remove(0), revoked);
}
