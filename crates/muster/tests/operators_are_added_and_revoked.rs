//! OPS-5, at the command line: a private key never leaves the machine that made it, a token is shown once, who is
//! revoked gets nothing more, and an audit log that was tampered with is found, over the control plane, without it and
//! in a backup.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;
use test_support::programs::repo::{Control, code, err, muster, out};

/// Runs `muster` as an operator.
async fn as_operator(dir: &Path, credentials: &Path, arguments: &[&str]) -> std::process::Output {
    let named = ["--operator", credentials.to_str().unwrap()];
    // Verbs have it behind their name.
    let (verb, rest) = arguments.split_first().unwrap();
    muster(dir, &[&[*verb], &named[..], rest].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_come_and_go() {
    let control = Control::start().await;
    let temp = tempfile::tempdir().unwrap();
    let (dir, admin) = (temp.path(), control.operator_file());
    let path = |name: &str| dir.join(name);

    let asked = muster(dir, &["operator", "request", "alice"]).await;
    assert_eq!(code(&asked), 0, "{}", err(&asked));
    let mode = std::fs::metadata(path("alice.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let added =
        as_operator(dir, &admin, &["operator", "add", "alice", "--role", "viewer", "--csr", "alice.csr"])
            .await;
    assert_eq!(code(&added), 0, "{}", err(&added));
    let sent = std::fs::read_to_string(path("alice.json")).unwrap();
    assert!(!sent.contains("PRIVATE KEY"), "{sent}");
    // What waits for its key says so.
    let early = as_operator(dir, &path("alice.json"), &["status"]).await;
    assert!(err(&early).contains("muster operator login"), "{}", err(&early));
    let login = muster(dir, &["operator", "login", "alice.json", "--key", "alice.key"]).await;
    assert_eq!(code(&login), 0, "{}", err(&login));
    assert!(out(&login).contains("alice, viewer of the whole fleet"), "{}", out(&login));
    let own = path("operator.json");
    assert_eq!(code(&as_operator(dir, &own, &["status"]).await), 0);

    // A viewer changes nothing: exit 5, with what it takes.
    let refused = as_operator(dir, &own, &["operator", "revoke", "operator", "--yes"]).await;
    assert_eq!(code(&refused), 5, "{}", err(&refused));
    assert!(err(&refused).contains("role-required"), "{}", err(&refused));

    let token =
        ["operator", "add", "ci", "--role", "operator", "--nodes", "web-*", "--token", "--out", "ci.json"];
    let added = as_operator(dir, &admin, &token).await;
    assert_eq!(code(&added), 0, "{}", err(&added));
    let credentials: Value = serde_json::from_slice(&std::fs::read(path("ci.json")).unwrap()).unwrap();
    let secret = credentials["token"].as_str().unwrap();
    assert!(!out(&added).contains(secret), "{}", out(&added));
    let whoami = as_operator(dir, &path("ci.json"), &["operator", "whoami"]).await;
    assert_eq!(out(&whoami), "ci, operator of web-*\n");
    // Nothing is written over.
    assert!(err(&as_operator(dir, &admin, &token).await).contains("is there already"));

    let revoked = as_operator(dir, &admin, &["operator", "revoke", "ci", "--yes"]).await;
    assert_eq!(code(&revoked), 0, "{}", err(&revoked));
    let refused = as_operator(dir, &path("ci.json"), &["status"]).await;
    assert_eq!(code(&refused), 5, "{}", err(&refused));
    let listed = out(&as_operator(dir, &admin, &["operator", "list"]).await);
    for expected in ["alice", "revoked by operator", "operator.json", "web-*"] {
        assert!(listed.contains(expected), "{expected}: {listed}");
    }
    assert!(!listed.contains(secret));

    let told = out(&as_operator(dir, &admin, &["audit", "list"]).await);
    for expected in ["POST /v1/operators", "DELETE /v1/operators/{name}", "refused: role-required", "head "] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let since =
        out(&as_operator(dir, &admin, &["audit", "list", "--since", "1h", "--author", "alice"]).await);
    assert!(since.contains("alice") && !since.contains("POST /v1/operators"), "{since}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tampered_log_is_found_online_offline_and_in_a_backup() {
    let control = Control::start().await;
    let temp = tempfile::tempdir().unwrap();
    let (dir, admin) = (temp.path(), control.operator_file());
    let data = admin.parent().unwrap().to_owned();
    let data_name = data.to_str().unwrap();
    for name in ["a", "b", "c"] {
        let add = ["operator", "add", name, "--role", "viewer", "--token"];
        assert_eq!(code(&as_operator(dir, &admin, &add).await), 0);
    }
    let verified = as_operator(dir, &admin, &["audit", "verify"]).await;
    assert_eq!(code(&verified), 0, "{}", err(&verified));
    let head = out(&verified).lines().find_map(|line| line.strip_prefix("head ").map(str::to_owned)).unwrap();
    let backup = ["backup", "--data", data_name, "good.backup"];
    assert_eq!(code(&muster(dir, &backup).await), 0);

    // Somebody who holds the database's file takes out the last entry, and leaves a chain that holds.
    let change = |sql: &str| {
        let db = Connection::open(data.join("muster.db")).unwrap();
        db.execute_batch("PRAGMA foreign_keys = OFF; DROP TRIGGER IF EXISTS audit_is_never_changed; DROP TRIGGER IF EXISTS audit_is_never_shortened").unwrap();
        db.execute_batch(sql).unwrap();
    };
    change("DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)");
    let online = as_operator(dir, &admin, &["audit", "verify"]).await;
    assert_eq!(code(&online), 1, "the head that was kept beside the credentials: {}", out(&online));
    assert!(err(&online).contains("it is missing"), "{}", err(&online));
    let offline = ["audit", "verify", "--data", data_name];
    assert_eq!(code(&muster(dir, &offline).await), 0, "without a head nobody can see it");
    assert_eq!(code(&muster(dir, &[&offline[..], &["--head", &head]].concat()).await), 1);
    let good = muster(dir, &["audit", "verify", "--backup", "good.backup", "--head", &head]).await;
    assert_eq!(code(&good), 0, "{}", err(&good));

    change(
        "UPDATE audit SET entry = replace(entry, '\"by\":\"operator\"', '\"by\":\"alice\"') WHERE number = 2",
    );
    for arguments in [vec!["audit", "verify", "--data", data_name], vec!["audit", "verify"]] {
        let found = as_operator(dir, &admin, &arguments).await;
        assert_eq!(code(&found), 1, "{}", out(&found));
        assert!(err(&found).contains("entry 2 of the audit log"), "{}", err(&found));
    }
    // A backup of it is no better.
    assert_eq!(code(&muster(dir, &["backup", "--data", data_name, "bad.backup"]).await), 0);
    assert_eq!(code(&muster(dir, &["audit", "verify", "--backup", "bad.backup"]).await), 1);
}
