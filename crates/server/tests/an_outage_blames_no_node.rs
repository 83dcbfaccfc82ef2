//! LIF-1: a control plane that was away for long starts with the states of before: its own absence is no silence of its
//! nodes. A node that was offline before stays so.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::status::Overall;
use rusqlite::Connection;
use test_support::fleet::{Fleet, now, quiet};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn only_who_was_silent_before_is_offline_after_it() {
    let mut fleet = Fleet::start().await;
    for hostname in ["web-1", "gone-1"] {
        fleet.node(hostname).await.check_in(&quiet()).await.unwrap();
    }
    fleet.stop().await;
    // As if it had stopped an hour ago, and the one had gone an hour before.
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    for (hostname, hours) in [("web-1", 1), ("gone-1", 2)] {
        let seen = now().minus(HOUR * hours);
        let changed = database
            .execute(
                "UPDATE contact SET last_seen = ?1 WHERE node = (SELECT no FROM node WHERE hostname = ?2)",
                rusqlite::params![seen.0, hostname],
            )
            .unwrap();
        assert_eq!(changed, 1, "{hostname}");
    }
    drop(database);
    fleet.start_again().await;
    let mut operator = fleet.operator().await;
    let web = operator.node("web-1").await;
    assert_eq!(web.state, Overall::Unassigned, "{web:?}");
    assert!(now().since(web.last_seen.unwrap()) >= HOUR, "when it was heard of stays true: {web:?}");
    assert_eq!(operator.node("gone-1").await.state, Overall::Offline);
    let silent: usize = operator
        .status()
        .await
        .causes
        .iter()
        .filter(|line| line.state == Overall::Offline)
        .map(|line| line.count)
        .sum();
    assert_eq!(silent, 1);
}

/// A host that enrolled and never called is no host that is reached: its silence counts from when it enrolled.
#[tokio::test]
async fn who_enrolled_and_never_called_is_offline() {
    let mut fleet = Fleet::start().await;
    fleet.node("web-1").await.check_in(&quiet()).await.unwrap();
    fleet.node("off-1").await;
    fleet.stop().await;
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    let enrolled = now().minus(HOUR);
    let sql = "UPDATE node SET cert_not_before = ?1 WHERE hostname = 'off-1'";
    assert_eq!(database.execute(sql, [enrolled.0]).unwrap(), 1);
    drop(database);
    fleet.start_again().await;
    let mut operator = fleet.operator().await;
    let off = operator.node("off-1").await;
    assert_eq!((off.state, off.last_seen), (Overall::Offline, None), "{off:?}");
    let status = operator.status().await;
    let told = status.causes.iter().find(|line| line.state == Overall::Offline).unwrap();
    assert_eq!(told.cause, "joined, and has not called yet", "{told:?}");
}
