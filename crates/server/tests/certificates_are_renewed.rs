//! IDN-2, IDN-4, IDN-7: a node renews its certificate with the same key and name, as often as replies are lost; each
//! other request is refused with a code of its own. One whose certificate has ended proves its key alone, by policy.
//! The control plane renews its own certificate and ends no stream by that.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use http::Method;
use model::CertificateState;
use model::replication::Mode;
use net::issue::{NODE_LIFE, node_request};
use server::posture::Posture;
use server::{CertificateRecovery, CertificateSettings};
use test_support::fleet::link::{handler, linked, publish_mode};
use test_support::fleet::proxy::Forwarder;
use test_support::fleet::{Fleet, Member, call, decoded, new_key, now, number, quiet, refuses};
use test_support::wait::until;
use trust::{KeyAlgorithm, SigningKey};
use wire::enroll::{RenewAnswer, RenewRequest};
use wire::{Code, Problem, body, route};

type Renewed = Result<RenewAnswer, Problem>;

fn request(key: &SigningKey, hostname: &str) -> RenewRequest {
    RenewRequest::of(node_request(key, &hostname.parse().unwrap()).unwrap())
}

async fn renew(node: &Member) -> Renewed {
    node.post(route::RENEW, &request(&node.key, node.hostname.as_str())).await
}

/// A signed request on a connection without a certificate.
async fn recover(fleet: &Fleet, node: &Member, request: &RenewRequest) -> Renewed {
    let signed = node.signed(Method::POST, route::RECOVER, body::encode(request).unwrap());
    decoded(&call(&mut fleet.anonymous().await, signed).await)
}

/// The same node, calling with another certificate.
fn with(fleet: &Fleet, mut node: Member, answer: &RenewAnswer) -> Member {
    let key = net::tls::ClientKey::Node(&node.key);
    node.tls = net::tls::client(fleet.node_ca().cert_pem(), &answer.cert_pem, key).unwrap();
    node
}

fn until_of(pem: &str) -> model::Timestamp {
    net::identity::validity(pem.as_bytes()).unwrap().until
}

#[tokio::test]
async fn the_same_key_gets_another_certificate_again_and_again() {
    let mut fleet = Fleet::start().await;
    let token = fleet.token("web-1");
    let key = new_key();
    let enrolled = fleet.enroll(&token, "web-1", &key).await.unwrap();
    let old = fleet.member("web-1", key, &enrolled);
    // The reply is lost, and it asks again.
    let first = renew(&old).await.unwrap();
    let second = renew(&old).await.unwrap();
    assert_ne!(first.cert_pem, second.cert_pem);
    assert!(until_of(&second.cert_pem) >= now().plus(NODE_LIFE - Duration::from_secs(60)));
    old.survives().await;
    let id = old.id.clone();
    let before = fleet.operator().await.node("web-1").await;
    let node = with(&fleet, old, &first);
    node.survives().await;
    let mut node = with(&fleet, node, &second);
    node.survives().await;
    // What was answered is recorded, and the token is spent.
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    node.survives().await;
    let after = fleet.operator().await.node("web-1").await;
    assert_eq!(after.certificate_ends, before.certificate_ends);
    assert!(after.certificate_ends.unwrap().since(until_of(&second.cert_pem)) < Duration::from_secs(2));
    assert_eq!(after.certificate_state, Some(CertificateState::Valid));
    refuses(fleet.enroll(&token, "web-1", &node.key).await, Code::TokenUsed);
    // IDN-5: for itself.
    let answer: Renewed = node.post(&format!("/v1/nodes/{id}/renew"), &request(&node.key, "web-1")).await;
    answer.unwrap();
}

#[tokio::test]
async fn each_other_request_is_refused_by_name() {
    let fleet = Fleet::start().await;
    let (node, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let p256 = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[9; 32]).unwrap();
    let broken = |change: fn(&mut String)| {
        let mut good = request(&node.key, "web-1");
        change(&mut good.csr_pem);
        good
    };
    for (request, code) in [
        (request(&other.key, "web-1"), Code::CsrKey),
        (request(&p256, "web-1"), Code::CsrKey),
        (request(&node.key, "web-2"), Code::CsrHostname),
        (broken(|pem| pem.truncate(pem.len() / 2)), Code::BadCsr),
        (broken(String::clear), Code::BadCsr),
    ] {
        let renewed: Renewed = node.post(route::RENEW, &request).await;
        refuses(renewed, code);
        refuses(recover(&fleet, &node, &request).await, code);
    }
    let good = body::encode(&request(&node.key, "web-1")).unwrap();
    let for_other = format!("/v1/nodes/{}/renew", other.id);
    let sent = |request| async { decoded::<RenewAnswer>(&node.send(request).await) };
    refuses(sent(node.signed(Method::POST, &for_other, good.clone())).await, Code::OtherNode);
    let unsigned = test_support::fleet::plain(&node.url, route::RENEW, good.clone());
    refuses(sent(unsigned).await, Code::Unsigned);
    // Without a certificate there is no renewal, whatever the signature.
    let signed = node.signed(Method::POST, route::RENEW, good.clone());
    refuses(
        decoded::<RenewAnswer>(&call(&mut fleet.anonymous().await, signed).await),
        Code::CertificateRequired,
    );
    let _: server::api::NodeView = fleet.operator().await.delete("/v1/nodes/web-1").await.unwrap();
    refuses(renew(&node).await, Code::UnknownNode);
    refuses(recover(&fleet, &node, &request(&node.key, "web-1")).await, Code::UnknownNode);
    other.survives().await;
}

/// WIR-6: one node cannot keep the signer to itself, and the others renew meanwhile.
#[tokio::test]
async fn a_node_that_asks_for_ever_is_refused_as_busy() {
    let fleet = Fleet::start().await;
    let (node, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let mut got = 0;
    let refused = loop {
        match renew(&node).await {
            Ok(_) => got += 1,
            Err(problem) => break problem,
        }
        assert!(got < 50);
    };
    assert_eq!(refused.code, Code::Busy.as_str());
    assert!(got >= 4, "a few replies may be lost: {got}");
    assert!(refused.retry_after_secs.is_some());
    renew(&other).await.unwrap();
    node.survives().await;
}

#[tokio::test]
async fn a_key_alone_recovers_a_certificate_once_a_signature() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let good = request(&node.key, "web-1");
    let answer = recover(&fleet, &node, &good).await.unwrap();
    // The signature counts once, and only in its time.
    let bytes = body::encode(&good).unwrap();
    let number = number();
    let mut anonymous = fleet.anonymous().await;
    for want in [None, Some(Code::Replayed)] {
        let signed = node.signed_at(Method::POST, route::RECOVER, bytes.clone(), now(), number);
        let answer: Renewed = decoded(&call(&mut anonymous, signed).await);
        match want {
            None => drop(answer.unwrap()),
            Some(code) => drop(refuses(answer, code)),
        }
    }
    let late = now().minus(Duration::from_secs(120));
    let signed = node.signed_at(Method::POST, route::RECOVER, bytes.clone(), late, number + 9);
    refuses(decoded::<RenewAnswer>(&call(&mut anonymous, signed).await), Code::Skewed);
    // Signed with another key than the stored one, the request in the name of the node.
    let stranger = Member { key: new_key(), ..fleet.node("web-2").await };
    let stranger = Member { id: node.id.clone(), ..stranger };
    refuses(recover(&fleet, &stranger, &good).await, Code::BadSignature);
    with(&fleet, node, &answer).survives().await;
}

#[tokio::test]
async fn the_policy_says_who_may_recover() {
    let settings = |recovery| CertificateSettings {
        node_validity: Duration::from_secs(1),
        recovery: Some(recovery),
        ..CertificateSettings::default()
    };
    let off = settings(CertificateRecovery::Off);
    let mut fleet = Fleet::certifying(off).await;
    let mut node = fleet.node("web-1").await;
    let good = request(&node.key, "web-1");
    let refused = recover(&fleet, &node, &good).await.unwrap_err();
    assert_eq!(refused.code, Code::RecoveryOff.as_str());
    assert!(refused.help.unwrap().contains("muster token mint"));
    until("the certificate has ended", async || {
        let state = fleet.operator().await.node("web-1").await.certificate_state;
        (state == Some(CertificateState::Ended)).then_some(())
    })
    .await;
    for (recovery, code) in [
        (CertificateRecovery::Within(Duration::ZERO), Some(Code::RecoveryLate)),
        (CertificateRecovery::Within(Duration::from_secs(3600)), None),
    ] {
        fleet.stop().await;
        fleet.start_again_certifying(settings(recovery)).await;
        node.url = fleet.url();
        let answer = recover(&fleet, &node, &good).await;
        match code {
            Some(code) => drop(refuses(answer, code)),
            None => drop(answer.unwrap()),
        }
    }
}

/// By default a key is enough in lab posture: that ends when the keys are moved away, and not at the next start.
#[tokio::test]
async fn the_default_follows_the_posture() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let asked = request(&node.key, "web-1");
    recover(&fleet, &node, &asked).await.unwrap();
    assert_eq!(fleet.operator().await.status().await.posture, Posture::Lab);
    for key in ["release.key", "root.key"] {
        std::fs::remove_file(fleet.dir.path().join(key)).unwrap();
    }
    assert_eq!(fleet.operator().await.status().await.posture, Posture::Sealed);
    refuses(recover(&fleet, &node, &asked).await, Code::RecoveryOff);
}

/// CNV-3: what is said of an ended certificate follows the posture, though nothing is heard of the node.
#[tokio::test]
async fn the_cause_follows_the_posture() {
    let node_validity = Duration::from_secs(1);
    let fleet = Fleet::certifying(CertificateSettings { node_validity, ..Default::default() }).await;
    let _node = fleet.node("web-1").await;
    let told = async |words: &str| {
        let causes = fleet.operator().await.status().await.causes;
        causes.iter().any(|line| line.cause.contains(words)).then_some(())
    };
    until("it ended", async || told("its agent gets another one for its key").await).await;
    for key in ["release.key", "root.key"] {
        std::fs::rename(fleet.dir.path().join(key), fleet.dir.path().join(format!("{key}.away"))).unwrap();
    }
    assert_eq!(told("it has to join again").await, Some(()));
    std::fs::rename(fleet.dir.path().join("root.key.away"), fleet.dir.path().join("root.key")).unwrap();
    assert_eq!(told("its agent gets another one for its key").await, Some(()));
}

/// Where a proxy ends TLS a certificate opens nothing, so none is renewed.
#[tokio::test]
async fn behind_a_proxy_there_is_nothing_to_renew() {
    let fleet = Fleet::start().await;
    let proxy = Forwarder::start(&fleet).await;
    let node = proxy.node(&fleet, "web-1").await;
    for path in [route::RENEW, route::RECOVER] {
        let renewed: Renewed = node.post(path, &request(&node.key, "web-1")).await;
        refuses(renewed, Code::BehindProxy);
    }
    refuses(recover(&fleet, &node, &request(&node.key, "web-1")).await, Code::BehindProxy);
}

/// A control plane whose certificates count less from now on has those renewed that count longer.
#[tokio::test]
async fn a_validity_that_was_made_shorter_is_taken_up_at_the_next_contact() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    assert!(!node.check_in(&quiet()).await.unwrap().renew_certificate);
    fleet.stop().await;
    let node_validity = Duration::from_secs(7 * 24 * 3600);
    fleet.start_again_certifying(CertificateSettings { node_validity, ..Default::default() }).await;
    node.url = fleet.url();
    assert!(node.check_in(&quiet()).await.unwrap().renew_certificate);
    let renewed = renew(&node).await.unwrap();
    assert!(until_of(&renewed.cert_pem) <= now().plus(node_validity));
    assert!(!node.check_in(&quiet()).await.unwrap().renew_certificate);
}

/// What a node says of a renewal that fails is told to operators until it is over.
#[tokio::test]
async fn a_renewal_that_fails_is_told() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let failing = model::exchange::CheckIn { renewal_failure: Some("the disk is full".into()), ..quiet() };
    node.check_in(&failing).await.unwrap();
    let mut operator = fleet.operator().await;
    let told = operator.node("web-1").await;
    assert_eq!(told.renewal_failure.as_deref(), Some("the disk is full"));
    let cause = until("the status names it", async || {
        let status = operator.status().await;
        status.causes.into_iter().find(|cause| cause.cause.contains("its renewal fails: the disk is full"))
    })
    .await;
    assert!(cause.next.contains("status"), "{}", cause.next);
    renew(&node).await.unwrap();
    assert_eq!(operator.node("web-1").await.renewal_failure, None);
    until("it is over", async || {
        let status = operator.status().await;
        status.causes.iter().all(|cause| !cause.cause.contains("renewal")).then_some(())
    })
    .await;
}

/// The certificate that the control plane shows to who dials now.
async fn shown(fleet: &Fleet) -> Vec<u8> {
    let url = fleet.url();
    let tls = fleet.without_certificate(Default::default());
    let stream = tokio::net::TcpStream::connect(url.authority()).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from(url.host().to_owned()).unwrap();
    let session = tokio_rustls::TlsConnector::from(tls).connect(name, stream).await.unwrap();
    session.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_s_own_is_renewed_and_no_stream_ends() {
    let own_validity = Duration::from_secs(4);
    let fleet = Fleet::certifying(CertificateSettings { own_validity, ..Default::default() }).await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    let handler = handler("n1");
    let link = linked(&node, Mode::Managed, "one", &handler).await;
    until("the link is up", async || (*handler.seen().borrow() > 0).then_some(())).await;
    let mut open = node.dial().await;
    let first = shown(&fleet).await;
    let mut seen = vec![first];
    while seen.len() < 3 {
        let next = until("another certificate is shown", async || {
            let next = shown(&fleet).await;
            (!seen.contains(&next)).then_some(next)
        })
        .await;
        seen.push(next);
    }
    // Both were opened under the first, which has ended by now or is about to.
    let signed = node.signed(Method::POST, route::CHECKIN, body::encode(&quiet()).unwrap());
    let answer: Result<model::exchange::Answer, Problem> = decoded(&call(&mut open, signed).await);
    answer.unwrap();
    assert!(!link.ended.is_finished(), "the stream is open");
    node.survives().await;
}
