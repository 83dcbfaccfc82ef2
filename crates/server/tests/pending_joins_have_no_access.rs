//! ENR-9, ENR-7: a host that joins without a token waits for an operator, without any access; what is decided is durable,
//! and takes no hostname from a node.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use model::{JoinState, KeyConfirmation};
use serde_json::{Value, json};
use server::api::NodeView;
use server::api::joins::{JoinView, JoinsView};
use test_support::fleet::release::{Plan, make, module, params};
use test_support::fleet::{Fleet, Member, Operator, new_key, plain, quiet, refused, refuses};
use trust::SigningKey;
use wire::{Code, route};

async fn pending(operator: &mut Operator) -> Vec<JoinView> {
    operator.get::<JoinsView>("/v1/joins").await.unwrap().joins
}

async fn approve(operator: &mut Operator, name: &str) -> Result<JoinView, wire::Problem> {
    operator
        .post(&format!("/v1/joins/{}/approve", name.replace('/', "%2F").replace('+', "%2B")), &json!({}))
        .await
}

/// A host that has the fleet's CA and its own key, and signs by hand: all that a pending host has.
fn stranger(fleet: &Fleet, hostname: &str, key: SigningKey) -> Member {
    Member {
        fleet: fleet.enroll_info().fleet,
        id: key.public().node_id(),
        hostname: hostname.parse().unwrap(),
        key,
        cert_pem: String::new(),
        tls: fleet.without_certificate(Default::default()),
        url: fleet.url(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_token_waits_and_nothing_answers_it_meanwhile() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let blob = b"content".as_slice();
    let plan =
        Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a"), module("m", "t", &[blob])]);
    let plan = Plan { blobs: vec![blob.to_vec()], ..plan };
    operator.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    let key = new_key();
    let problem = refuses(fleet.ask("web-1", &key).await, Code::JoinPending);
    assert!((15..=300).contains(&problem.retry_after_secs.unwrap()), "{problem:?}");
    assert!(problem.detail.unwrap().contains(&key.public().fingerprint()));
    refuses(fleet.ask("web-1", &key).await, Code::JoinPending);

    // It is no node: not in the status, not in lists, not found by its name.
    assert_eq!(operator.status().await.nodes, 0);
    refuses(operator.get::<NodeView>("/v1/nodes/web-1").await, Code::NotFound);
    let waiting = pending(&mut operator).await;
    assert_eq!(waiting.len(), 1, "a host that asks again is the same");
    assert_eq!((waiting[0].state, waiting[0].address.as_str()), (JoinState::Waiting, "127.0.0.1"));
    assert_eq!(waiting[0].fingerprint, key.public().fingerprint());

    // Each route of the node port, signed with its key: nothing answers it but enrollment. A report of a failed join is
    // heard under a token alone.
    let host = stranger(&fleet, "web-1", key);
    for route in
        route::ROUTES.iter().filter(|route| route.path.starts_with("/v1/") && route.path != route::ENROLL)
    {
        let path = route.path.replace("{digest}", &model::Digest::of(blob).to_string());
        let method: Method = route.method.parse().unwrap();
        let body = if method == Method::POST { b"{}".to_vec() } else { Vec::new() };
        let response = host.send(host.signed(method, &path, body)).await;
        let problem = test_support::fleet::problem(&response);
        let closed = match route.path {
            route::BOOTSTRAP_REPORT => vec![Code::BadBody],
            // Open to anybody who knows the digest of a trust document, which this is not.
            route::TRUST_LINKS => vec![Code::NotFound],
            _ => vec![Code::CertificateRequired, Code::UnknownNode, Code::UpgradeRequired],
        };
        let closed: Vec<&str> = closed.into_iter().map(Code::as_str).collect();
        assert!(closed.contains(&problem.code.as_str()), "{path}: {problem}");
    }
    for path in ["/v1/joins", "/v1/status"] {
        let mut request = plain(&fleet.url(), path, Vec::new());
        *request.method_mut() = Method::GET;
        refused(&host.send(request).await, Code::NotFound);
    }

    // Approved it is let in, when it asks again; its key counts for no secret by that.
    let approved = approve(&mut operator, "web-1").await.unwrap();
    assert_eq!((approved.state, approved.decided.unwrap().by.as_str()), (JoinState::Approved, "operator"));
    let answer = fleet.ask("web-1", &host.key).await.unwrap();
    let again = fleet.ask("web-1", &host.key).await.expect("the reply was lost");
    assert_eq!(answer.node_id, again.node_id);
    let node = fleet.member("web-1", host.key, &again);
    assert!(node.check_in(&quiet()).await.unwrap().offer.is_some());
    assert_eq!(pending(&mut operator).await.len(), 0);
    let view = operator.node("web-1").await;
    assert_eq!(view.key_confirmation, Some(KeyConfirmation::Operator));
    assert!(!KeyConfirmation::Operator.counts_for_secrets());
    // Its certificate was used: its key is a node's, and asks for nothing any more.
    refuses(fleet.ask("web-1", &node.key).await, Code::KeyTaken);
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_decided_outlives_a_restart() {
    let mut fleet = Fleet::start().await;
    let (approved, denied, waiting) = (new_key(), new_key(), new_key());
    for (host, key) in [("web-1", &approved), ("web-2", &denied), ("web-3", &waiting)] {
        refuses(fleet.ask(host, key).await, Code::JoinPending);
    }
    let mut operator = fleet.operator().await;
    approve(&mut operator, "web-1").await.unwrap();
    let _: JoinView = operator.post("/v1/joins/web-2/deny", &json!({})).await.unwrap();
    refuses(fleet.ask("web-2", &denied).await, Code::JoinDenied);
    fleet.stop().await;
    fleet.start_again().await;
    fleet.ask("web-1", &approved).await.unwrap();
    refuses(fleet.ask("web-2", &denied).await, Code::JoinDenied);
    // A denied key is denied whatever it calls itself, until it is forgotten.
    refuses(fleet.ask("web-9", &denied).await, Code::JoinDenied);
    refuses(fleet.ask("web-3", &waiting).await, Code::JoinPending);
    let mut operator = fleet.operator().await;
    let _: JoinView = operator.delete("/v1/joins/web-2").await.unwrap();
    refuses(fleet.ask("web-2", &denied).await, Code::JoinPending);
    let page: server::api::operators::AuditPage = operator.get("/v1/audit?node=web-2").await.unwrap();
    assert_eq!(page.entries.len(), 2, "deny and forget have an entry each");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hostname_is_taken_from_a_node_and_two_keys_are_told_apart() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let node = fleet.node("web-1").await;
    refuses(fleet.ask("web-1", &new_key()).await, Code::HostnameTaken);
    refuses(fleet.ask("web-2", &node.key).await, Code::KeyTaken);
    // Two hosts of one name: both are listed, and the name alone means neither.
    let (one, two) = (new_key(), new_key());
    refuses(fleet.ask("db-1", &one).await, Code::JoinPending);
    refuses(fleet.ask("db-1", &two).await, Code::JoinPending);
    let problem = refuses(approve(&mut operator, "db-1").await, Code::AmbiguousJoin);
    for key in [&one, &two] {
        assert!(problem.detail.as_ref().unwrap().contains(&key.public().fingerprint()), "{problem}");
    }
    refuses(approve(&mut operator, "nobody").await, Code::NotFound);
    approve(&mut operator, &one.public().fingerprint()).await.unwrap();
    approve(&mut operator, two.public().node_id().as_str()).await.unwrap();
    // The first one in has the name.
    fleet.ask("db-1", &one).await.unwrap();
    refuses(fleet.ask("db-1", &two).await, Code::HostnameTaken);
    // What is approved is a key under a name, not the key under any.
    let three = new_key();
    refuses(fleet.ask("db-3", &three).await, Code::JoinPending);
    approve(&mut operator, "db-3").await.unwrap();
    refuses(fleet.ask("db-4", &three).await, Code::JoinPending);
    node.survives().await;
}

/// A host that renames itself while an operator looks at it is not approved under the other name.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_approved_under_the_name_that_was_shown() {
    let fleet = Fleet::start().await;
    let key = new_key();
    refuses(fleet.ask("web-7", &key).await, Code::JoinPending);
    refuses(fleet.ask("db-1", &key).await, Code::JoinPending);
    let mut operator = fleet.operator().await;
    let shown = json!({ "fingerprint": key.public().fingerprint() });
    let problem =
        refuses(operator.post::<_, JoinView>("/v1/joins/web-7/approve", &shown).await, Code::NotFound);
    assert!(problem.detail.unwrap().contains("under another name"));
    refuses(fleet.ask("db-1", &key).await, Code::JoinPending);
    let _: JoinView = operator.post("/v1/joins/db-1/approve", &shown).await.unwrap();
    fleet.ask("db-1", &key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_of_one_network_wait() {
    let fleet = Fleet::start().await;
    for number in 0..plane::joining::MAX_PENDING_PER_PREFIX {
        refuses(fleet.ask(&format!("web-{number}"), &new_key()).await, Code::JoinPending);
    }
    let problem = refuses(fleet.ask("late", &new_key()).await, Code::TooManyJoins);
    assert!(problem.detail.unwrap().contains("of this network") && problem.retry_after_secs.is_some());
    // A token needs no place among them.
    fleet.node("db-1").await.survives().await;
    let _: Value = fleet.operator().await.post("/v1/joins/web-3/deny", &json!({})).await.unwrap();
    refuses(fleet.ask("late", &new_key()).await, Code::JoinPending);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_decide_is_refused() {
    let fleet = Fleet::start().await;
    refuses(fleet.ask("web-1", &new_key()).await, Code::JoinPending);
    let mut olga = fleet.operator_with("olga", store::OperatorRole::Operator, None).await;
    assert_eq!(pending(&mut olga).await.len(), 1);
    refuses(approve(&mut olga, "web-1").await, Code::RoleRequired);
    let mut eu = fleet.operator_with("eu", store::OperatorRole::Admin, Some("web-*")).await;
    refuses(eu.get::<JoinsView>("/v1/joins").await, Code::OutsideScope);
}
