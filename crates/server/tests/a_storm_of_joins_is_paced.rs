//! ENR-9, WIR-6: joins are looked at so many a second; who is too many now is told when to come back, each another moment.
//! The decision with ten thousand hosts is `plane/tests/a_storm_of_joins_is_paced.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use plane::joining::{JOINS_AT_ONCE, MAX_JOIN_WAIT};
use test_support::fleet::{Fleet, body_of, new_key, plain, problem};
use wire::enroll::EnrollRequest;
use wire::route;

#[tokio::test(flavor = "multi_thread")]
async fn too_many_joins_come_back_later() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut client = fleet.anonymous().await;
    let csr_pem = net::issue::node_request(&new_key(), &"web-2".parse().unwrap()).unwrap();
    let message = EnrollRequest { token: None, hostname: "web-2".to_owned(), csr_pem };
    let (mut looked_at, mut waits) = (0, BTreeSet::new());
    // A connection of strangers ends after some requests.
    for _ in 0..20 * JOINS_AT_ONCE {
        let request = plain(&fleet.url(), route::ENROLL, body_of(&message));
        let response = match client.call(request, 64 * 1024, std::time::Duration::from_secs(10)).await {
            Ok(response) => response,
            Err(_) => {
                client = fleet.anonymous().await;
                continue;
            }
        };
        let problem = problem(&response);
        match problem.code.as_str() {
            "join-pending" => looked_at += 1,
            "busy" => {
                let wait = problem.retry_after_secs.unwrap();
                assert!(wait <= MAX_JOIN_WAIT.as_secs() + 1, "{problem:?}");
                assert_eq!(response.headers()["retry-after"], wait.to_string().as_str());
                waits.insert(wait);
            }
            other => panic!("{other}: {problem}"),
        }
        if waits.len() > 2 {
            break;
        }
    }
    assert!(looked_at >= JOINS_AT_ONCE, "{looked_at} were looked at");
    // How far they are spread depends on how fast this machine can ask; the decision's own test shows it.
    assert!(!waits.is_empty(), "nobody was told to come back");
    // Neither nodes nor hosts that have tokens notice anything of it.
    let key = new_key();
    let answer = fleet.enroll(&fleet.token("db-1"), "db-1", &key).await.expect("it is in another line");
    fleet.member("db-1", key, &answer).survives().await;
    node.survives().await;
}
