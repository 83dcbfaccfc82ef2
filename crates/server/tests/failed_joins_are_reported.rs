//! ENR-4: a host tells why it could not join, under the same token while that is not used, bound to host and key, as
//! often as it likes within bounds; 204. Everything else is 400. What was told is kept and never rewritten.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use http::Response;
use rusqlite::Connection;
use serde_json::{Value, json};
use store::{FailedJoinRecord, JoinFailureKind, MAX_REPORTS_OF_TOKEN};
use test_support::fleet::{Fleet, body_of, call, new_key, plain, problem, refused};
use trust::SigningKey;
use wire::{Code, route};

fn report(token: &str, host: &str, key: &SigningKey) -> Value {
    let csr = net::issue::node_request(key, &host.parse().unwrap()).unwrap();
    json!({
        "token": token, "hostname": host, "csrPem": csr, "failure": "EnrollmentFailed",
        "code": "hostname-taken", "message": "the control plane refused", "agent": "0.1.0", "later": 1,
    })
}

async fn tell(fleet: &Fleet, report: &Value) -> Response<Bytes> {
    let request = plain(&fleet.url(), route::BOOTSTRAP_REPORT, body_of(report));
    call(&mut fleet.anonymous().await, request).await
}

async fn kept(fleet: &Fleet) -> Vec<FailedJoinRecord> {
    fleet.operator().await.get("/v1/failed-joins").await.unwrap()
}

#[tokio::test]
async fn a_failed_join_is_told_until_the_token_is_used() {
    let fleet = Fleet::start().await;
    let (token, key) = (fleet.token("web-1"), new_key());
    let told = report(&token, "web-1", &key);
    for _ in 0..2 {
        let response = tell(&fleet, &told).await;
        assert_eq!((response.status().as_u16(), response.body().len()), (204, 0));
    }
    let trust = json!({"failure": "TrustError", "message": "another\u{1b}[31m CA\nand more"});
    let mut second = told.clone();
    second.as_object_mut().unwrap().extend(trust.as_object().unwrap().clone());
    second.as_object_mut().unwrap().remove("code");
    assert_eq!(tell(&fleet, &second).await.status(), 204);

    let all = kept(&fleet).await;
    assert_eq!(all.len(), 3, "each is kept, the newest first");
    assert_eq!((all[0].join.failure, all[0].join.code.clone()), (JoinFailureKind::TrustError, None));
    assert!(!all[0].join.message.contains('\u{1b}'));
    let first = &all[2].join;
    assert_eq!((first.hostname.as_str(), first.code.as_deref()), ("web-1", Some("hostname-taken")));
    assert_eq!(first.fingerprint, key.public().fingerprint());
    let page: Vec<FailedJoinRecord> = fleet
        .operator()
        .await
        .get(&format!("/v1/failed-joins?limit=1&before={}", all[1].number))
        .await
        .unwrap();
    assert_eq!(page, vec![all[2].clone()]);

    // Joined, but its certificate is of no use to it: the same host may still say so.
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    assert_eq!(tell(&fleet, &told).await.status(), 204);
    refused(&tell(&fleet, &report(&token, "web-1", &new_key())).await, Code::ReportRefused);
    fleet.member("web-1", key, &answer).survives().await;
    let problem = refused(&tell(&fleet, &told).await, Code::ReportRefused);
    assert!(problem.detail.unwrap().contains("the token was used"));
    assert_eq!(kept(&fleet).await.len(), 4);
}

#[tokio::test]
async fn anything_else_is_refused_with_400() {
    let fleet = Fleet::start().await;
    let key = new_key();
    let mut claims = fleet.claims("web-1");
    claims.expected_pubkey_fingerprint = Some(key.public().fingerprint());
    let token = trust::token::mint(&claims, &fleet.root_key()).unwrap();
    let forged = trust::token::mint(&claims, &new_key()).unwrap();
    let good = report(&token, "web-1", &key);
    let with = |field: &str, value: Value| {
        let mut report = good.clone();
        report[field] = value;
        report
    };
    let cases = [
        report(&token, "web-2", &key),
        report(&token, "web-1", &new_key()),
        report(&forged, "web-1", &key),
        with("failure", json!("Started")),
        with("failure", Value::Null),
        with("csrPem", json!("no request")),
        with("token", json!("")),
        with("message", json!(7)),
        json!({}),
    ];
    for case in cases {
        let refusal = problem(&tell(&fleet, &case).await);
        assert_eq!(refusal.status, 400, "{case}: {refusal}");
    }
    assert!(kept(&fleet).await.is_empty());
    assert_eq!(tell(&fleet, &good).await.status(), 204);
}

#[tokio::test]
async fn what_is_told_is_bounded_and_stays_as_it_was_told() {
    let mut fleet = Fleet::start().await;
    let (token, key) = (fleet.token("web-1"), new_key());
    let mut told = report(&token, "web-1", &key);
    told["message"] = json!("é".repeat(4000));
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(tell(&fleet, &told).await.status().as_u16());
    }
    let taken = statuses.iter().filter(|status| **status == 204).count();
    assert_eq!(taken, MAX_REPORTS_OF_TOKEN, "of one token: {statuses:?}");
    assert!(statuses[taken..].iter().all(|status| *status == 503), "{statuses:?}");
    let all = kept(&fleet).await;
    assert!(all.len() == taken && all.iter().all(|one| one.join.message.len() <= 1024));
    told["message"] = json!("x".repeat(20_000));
    let status = tell(&fleet, &told).await.status().as_u16();
    assert!([413, 503].contains(&status), "{status}");
    fleet.stop().await;
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    let error = database.execute("UPDATE failed_join SET message = ''", []).unwrap_err();
    assert!(error.to_string().contains("never rewritten"), "{error}");
    drop(database);
    fleet.start_again().await;
    assert_eq!(kept(&fleet).await, all);
}
