//! ENR-9: a group token is for so many hosts of a pattern, who wait for an operator unless it says otherwise; each use
//! counts once, and a retry none.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::KeyConfirmation;
use serde_json::{Value, json};
use test_support::fleet::{Fleet, new_key, refuses};
use trust::group_token::{self, GroupAdmission, GroupClaims};
use wire::Code;

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_a_group_wait_and_no_more_than_it_is_for() {
    let fleet = Fleet::start().await;
    let token = group_token::mint(&fleet.group_claims("web-*", 2), &fleet.root_key()).unwrap();
    let (one, two, three) = (new_key(), new_key(), new_key());
    refuses(fleet.enroll(&token, "web-1", &one).await, Code::JoinPending);
    refuses(fleet.enroll(&token, "web-1", &one).await, Code::JoinPending);
    refuses(fleet.enroll(&token, "web-2", &two).await, Code::JoinPending);
    let problem = refuses(fleet.enroll(&token, "web-3", &three).await, Code::GroupTokenSpent);
    assert!(problem.detail.unwrap().contains("2 hosts"));
    let mut operator = fleet.operator().await;
    let _: Value = operator.post("/v1/joins/web-1/approve", &json!({})).await.unwrap();
    let answer = fleet.enroll(&token, "web-1", &one).await.unwrap();
    fleet.member("web-1", one, &answer).survives().await;
    refuses(fleet.enroll(&token, "web-2", &two).await, Code::JoinPending);
    refuses(fleet.enroll(&token, "web-3", &three).await, Code::GroupTokenSpent);
    assert_eq!(operator.status().await.nodes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_admits_lets_so_many_in_and_none_of_them_to_secrets() {
    let fleet = Fleet::start().await;
    let claims = GroupClaims {
        admission: GroupAdmission::ByToken,
        labels: [("pool".to_owned(), "web".to_owned())].into(),
        ..fleet.group_claims("web-*", 2)
    };
    let token = group_token::mint(&claims, &fleet.root_key()).unwrap();
    let one = new_key();
    fleet.enroll(&token, "web-1", &one).await.unwrap();
    let answer = fleet.enroll(&token, "web-1", &one).await.expect("the reply was lost");
    let node = fleet.member("web-1", one, &answer);
    node.survives().await;
    let two = new_key();
    fleet.enroll(&token, "web-2", &two).await.unwrap();
    refuses(fleet.enroll(&token, "web-3", &new_key()).await, Code::GroupTokenSpent);
    // Its key is a node's by now: the token says nothing new of it.
    refuses(fleet.enroll(&token, "web-1", &node.key).await, Code::KeyTaken);
    refuses(fleet.enroll(&token, "web-1", &new_key()).await, Code::HostnameTaken);
    let view = fleet.operator().await.node("web-1").await;
    assert_eq!(view.key_confirmation, Some(KeyConfirmation::None));
    assert_eq!(view.join_labels, claims.labels);
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_group_token_is_refused_by_name_and_used_by_nobody() {
    let fleet = Fleet::start().await;
    let (root, key) = (fleet.root_key(), new_key());
    let good = GroupClaims { admission: GroupAdmission::ByToken, ..fleet.group_claims("web-*", 1) };
    let mint = |claims: &GroupClaims| group_token::mint(claims, &root).unwrap();
    let token = mint(&good);
    let expired = GroupClaims {
        issued_at: good.issued_at.minus(Duration::from_secs(7200)),
        expires_at: good.issued_at.minus(Duration::from_secs(61)),
        ..good.clone()
    };
    let elsewhere = GroupClaims { fleet: "elsewhere-1".parse().unwrap(), ..good.clone() };
    // Put together as a changed program would.
    let unminted = |claims: &GroupClaims| {
        let bytes = model::canonical::to_bytes(claims).unwrap();
        let signature = root.sign(&trust::signed::message("group-token", &bytes));
        let code = data_encoding::BASE64URL_NOPAD;
        format!("muster-group1.{}.{}", code.encode(&bytes), code.encode(&signature))
    };
    let endless = GroupClaims { uses: 1_000_000, ..good.clone() };
    let label = GroupClaims { labels: [("a b".to_owned(), "c".to_owned())].into(), ..good.clone() };
    let long = GroupClaims { expires_at: good.issued_at.plus(trust::token::MAX_LIFE * 2), ..good.clone() };
    for wrong in [&endless, &label, &long] {
        assert!(group_token::mint(wrong, &root).is_err());
    }
    for (token, host, code, says) in [
        (token.clone(), "db-1", Code::TokenOtherHost, "for hosts of \"web-*\", not for db-1"),
        (token.clone(), "web-1.example.com", Code::TokenOtherHost, "for hosts of"),
        (mint(&expired), "web-1", Code::TokenExpired, "expired at"),
        (mint(&elsewhere), "web-1", Code::TokenForged, "another fleet"),
        (group_token::mint(&good, &new_key()).unwrap(), "web-1", Code::TokenForged, "root key"),
        (unminted(&endless), "web-1", Code::TokenForged, "1 to 10000 hosts"),
        (unminted(&label), "web-1", Code::TokenForged, "is no label"),
        (unminted(&long), "web-1", Code::TokenForged, "30 days"),
        (token[..token.len() - 9].to_owned(), "web-1", Code::TokenMalformed, "copy it whole"),
    ] {
        let problem = refuses(fleet.enroll(&token, host, &key).await, code);
        assert!(problem.detail.as_ref().unwrap().contains(says), "{problem}");
    }
    // What an earlier agent or control plane makes of it: no token.
    let plain = trust::token::peek(&token).unwrap_err();
    assert_eq!(plain, trust::token::TokenError::NotAToken);
    fleet.enroll(&token, "web-1", &key).await.unwrap();
}
