//! IDN-6: a host that is revoked is out at once: its long poll is answered, its stream and its connections are cut, its
//! certificate is refused in TLS and in each request, and nothing is given to it. It says so on both sides, outlives a
//! restart, is not undone by a renewal or an older set, and ends with a token that is minted afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use http::Method;
use model::exchange::CheckIn;
use net::client::{Client, ClientError};
use server::api::NodeView;
use sync::Frame;
use test_support::fleet::link::Sse;
use test_support::fleet::lists::{revocations, sign};
use test_support::fleet::release::{Plan, make};
use test_support::fleet::synced::managed;
use test_support::fleet::{
    Fleet, LIMIT, Member, PATIENCE, body_of, call, new_key, now, quiet, refused, refuses,
};
use test_support::wait::{eventually, until};
use trust::lists::Revocation;
use wire::enroll::{RenewAnswer, RenewRequest};
use wire::{Code, route};

/// What a node gets over a connection that is open: the refusal, or nothing as it was cut.
async fn is_cut(node: &Member, client: &mut Client, path: &str, method: Method) -> bool {
    let bytes = if method == Method::POST { body_of(&quiet()) } else { Vec::new() };
    match client.call(node.signed(method, path, bytes), LIMIT, PATIENCE).await {
        Ok(response) => {
            refused(&response, Code::Revoked);
            true
        }
        Err(ClientError::Exchange { .. } | ClientError::CertificateRevoked { .. }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// Certificates know whole seconds: what is issued afterwards is of a later one.
async fn another_second() {
    let begun = now();
    eventually("the clock shows another second", || now().secs() > begun.secs()).await;
}

async fn tls_refuses(node: &Member) {
    let mut client = match Client::dial(&node.url, node.tls.clone()).await {
        Ok(client) => client,
        Err(error) => return assert!(matches!(error, ClientError::CertificateRevoked { .. }), "{error:?}"),
    };
    // With TLS 1.3 the client learns it from the first thing that it reads.
    let asked = node.signed(Method::POST, route::CHECKIN, body_of(&quiet()));
    let error = client.call(asked, LIMIT, PATIENCE).await.expect_err("no session");
    assert!(matches!(error, ClientError::CertificateRevoked { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_open_is_cut_and_nothing_opens_again() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("edge-1").await;
    let mut other = fleet.node("edge-2").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("edge-1", &managed()).node("edge-2", &managed());
    let made = make(&plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    another_second().await;
    let held = CheckIn { held: Some(made.held("edge-1")), ..quiet() };
    let mut idle = node.dial().await;
    call(&mut idle, node.signed(Method::POST, route::CHECKIN, body_of(&held))).await;
    let mut events = Sse::open(&node, "one").await.unwrap();
    events.hears(|frame| matches!(frame, Frame::Hello(_))).await;
    let path = format!("{}?wait=60", route::CHECKIN);
    let poll = node.signed(Method::POST, &path, body_of(&held));
    let mut polling = node.dial().await;
    let poll = tokio::spawn(async move { polling.call(poll, LIMIT, PATIENCE).await });
    until("the poll is held", async || {
        (fleet.operator().await.node("edge-1").await.promised_secs > 300).then_some(())
    })
    .await;

    let added = fleet.revoke(1, &[("edge-1", now())]).await.unwrap();
    assert_eq!((added.count, added.cut), (1, vec!["edge-1".parse().unwrap()]));

    match poll.await.unwrap() {
        Ok(response) => drop(refused(&response, Code::Revoked)),
        Err(error) => assert!(
            matches!(error, ClientError::Exchange { .. } | ClientError::CertificateUnknown { .. }),
            "{error:?}"
        ),
    }
    let Frame::GoAway(away) = events.hears(|frame| matches!(frame, Frame::GoAway(_))).await else { panic!() };
    assert_eq!(away.code, "revoked");
    until("the idle connection is cut", async || idle.is_closed().then_some(())).await;
    tls_refuses(&node).await;
    // Nor by its key alone.
    let mut anonymous = fleet.anonymous().await;
    let csr_pem = net::issue::node_request(&node.key, &node.hostname).unwrap();
    let recover = node.signed(Method::POST, route::RECOVER, body_of(&RenewRequest::of(csr_pem)));
    let problem = refused(&call(&mut anonymous, recover).await, Code::Revoked);
    assert!(problem.detail.unwrap().contains("counts no more: stolen"));

    let shown: NodeView = fleet.operator().await.node("edge-1").await;
    assert_eq!((shown.state.to_string().as_str(), shown.revoked.is_some()), ("revoked", true));
    let cause = shown.cause.unwrap();
    assert!(cause.starts_with("revoked: ") && cause.ends_with(": stolen"), "{cause}");
    let status = fleet.operator().await.status().await;
    assert!(status.causes.iter().any(|cause| cause.cause.starts_with("revoked: ")), "{:?}", status.causes);
    other.survives().await;

    fleet.stop().await;
    fleet.start_again().await;
    (node.url, other.url) = (fleet.url(), fleet.url());
    tls_refuses(&node).await;
    other.survives().await;
    assert_eq!(fleet.operator().await.node("edge-1").await.state.to_string(), "revoked");

    // A token of afterwards lets it in again, with a certificate of its own.
    let answer = fleet.enroll(&fleet.token("edge-1"), "edge-1", &node.key).await.unwrap();
    let node = fleet.member("edge-1", node.key, &answer);
    node.survives().await;
    assert_eq!(fleet.operator().await.node("edge-1").await.revoked, None::<Revocation>);
}

/// A renewal comes of the certificate that is revoked: also one between the decision and its publication.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_saves_nobody() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    node.survives().await;
    let decided = now();
    let csr_pem = net::issue::node_request(&node.key, &node.hostname).unwrap();
    let request = RenewRequest::of(csr_pem);
    another_second().await;
    let renewed: RenewAnswer = node.post(route::RENEW, &request).await.unwrap();
    fleet.revoke(1, &[("web-1", decided)]).await.unwrap();
    let key = net::tls::ClientKey::Node(&node.key);
    let tls = net::tls::client(fleet.node_ca().cert_pem(), &renewed.cert_pem, key).unwrap();
    let later = Member { tls, cert_pem: renewed.cert_pem, key: node.key, ..node };
    // TLS lets a certificate of afterwards in; who it is of is asked for in each request.
    refuses(later.check_in(&quiet()).await, Code::Revoked);
    refuses(later.post::<_, RenewAnswer>(route::RENEW, &request).await, Code::Revoked);
    let mut open = later.dial().await;
    assert!(is_cut(&later, &mut open, route::STATE, Method::GET).await);
}

/// A token of before the revocation lets nobody in, and is not burned by being refused.
#[tokio::test]
async fn a_token_of_before_opens_nothing() {
    let fleet = Fleet::start().await;
    let (token, key) = (fleet.token("web-1"), new_key());
    fleet.revoke(1, &[("web-1", now().plus(Duration::from_millis(1)))]).await.unwrap();
    refuses(fleet.enroll(&token, "web-1", &key).await, Code::Revoked);
    // No longer revoked: the set is whole each time.
    fleet.revoke(2, &[]).await.unwrap();
    fleet.enroll(&token, "web-1", &key).await.unwrap();
}

#[tokio::test]
async fn a_set_that_is_not_in_order_changes_nothing() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let (id, key) = (fleet.enroll_info().fleet, fleet.release_key());
    let mut operator = fleet.operator().await;
    fleet.revoke(5, &[("db-1", now())]).await.unwrap();
    let at = now();
    let web = [("web-1", at)];
    let elsewhere = "elsewhere-1".parse().unwrap();
    let mut early = revocations(&id, 9, &web);
    early.at = at.plus(Duration::from_secs(120));
    let mut ahead = revocations(&id, 9, &web);
    ahead.revoked.values_mut().for_each(|one| one.not_before = at.plus(Duration::from_secs(3600)));
    let mut wordy = revocations(&id, 9, &web);
    wordy.revoked.values_mut().for_each(|one| one.why = Some("x".repeat(241)));
    let cases = [
        (sign(&revocations(&id, 9, &web), &new_key()), Code::ListSignature, "no trusted key signed it"),
        (sign(&revocations(&id, 9, &web), &fleet.root_key()), Code::ListSignature, "no trusted key"),
        (sign(&revocations(&elsewhere, 9, &web), &key), Code::ListOtherFleet, "of fleet elsewhere-1"),
        (sign(&early, &key), Code::ListFuture, "dated"),
        (sign(&ahead, &key), Code::ListMalformed, "after the set was signed"),
        (sign(&wordy, &key), Code::ListMalformed, "more than 240 bytes"),
        (sign(&revocations(&id, 4, &web), &key), Code::ListOlder, "its number is 4, and number 5 is held"),
        (sign(&revocations(&id, 5, &web), &key), Code::ListOlder, "number 5 is held"),
    ];
    for (document, code, says) in cases {
        let problem = refuses(operator.add_revocations(document).await, code);
        assert!(problem.detail.as_ref().unwrap().contains(says), "{problem}");
    }
    // An allowlist is no set of revocations, whoever signed it.
    let other = sign(&test_support::fleet::lists::allowlist(&id, 9, &[]), &key);
    refuses(operator.add_revocations(other).await, Code::ListSignature);
    node.survives().await;
    // The one that is held is no mistake.
    let held: server::api::lists::ListsView = operator.get("/v1/lists").await.unwrap();
    assert_eq!(operator.add_revocations(held.revocations.unwrap()).await.unwrap().count, 0);
    node.survives().await;
    assert_eq!(fleet.revoke(6, &web).await.unwrap().count, 1, "a host that joined before is cut");
}
