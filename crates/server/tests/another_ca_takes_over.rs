//! IDN-8: the control plane certifies with the CA that the trust document names, and with the one before while that counts.
//! A node gets a certificate of the new one when it says that it believes it, and by its key alone once the CA of its own
//! counts no more. Who knows a trust document gets those after it, without showing who it is. A document that names a CA
//! which is not here is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use http::StatusCode;
use model::exchange::CheckIn;
use net::BelievedAuthority;
use net::issue::node_request;
use net::trust_links::{self, FetchLinksError};
use server::api::authority::StagedAuthority;
use server::api::{AddTrust, TrustView};
use test_support::fleet::{Fleet, Member, call, decoded, new_key, now, quiet, refuses};
use test_support::wait::until;
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::{PublicKey, Slots};
use wire::enroll::{RenewAnswer, RenewRequest};
use wire::{Code, Problem, body, route};

async fn view(fleet: &Fleet) -> TrustView {
    fleet.operator().await.get("/v1/trust").await.unwrap()
}

async fn newest(fleet: &Fleet) -> ChainHead {
    let newest = view(fleet).await.versions.pop().unwrap();
    ChainHead { document: newest.document, digest: newest.digest }
}

async fn stage(fleet: &Fleet) -> StagedAuthority {
    let asked = serde_json::json!({});
    fleet.operator().await.post("/v1/certificate-authorities", &asked).await.unwrap()
}

/// Adds the version after the newest; `current` is the CA of a fleet whose documents name none yet.
async fn add(fleet: &Fleet, current: PublicKey, change: SlotChange) -> Result<u64, Problem> {
    let mut head = newest(fleet).await;
    head.document.certificate_authority.get_or_insert(Slots::of(current));
    let next = chain::next_version(&head, SlotName::CertificateAuthority, change, None, now()).unwrap();
    let link = chain::sign(&next, &fleet.root_key()).unwrap();
    fleet.operator().await.post("/v1/trust", &AddTrust { link }).await
}

fn request(node: &Member, believed: &[PublicKey]) -> RenewRequest {
    let authorities = believed.iter().map(ToString::to_string).collect();
    RenewRequest { csr_pem: node_request(&node.key, &node.hostname).unwrap(), authorities }
}

async fn renewed(node: &Member, believed: &[PublicKey]) -> String {
    let answer: Result<RenewAnswer, Problem> = node.post(route::RENEW, &request(node, believed)).await;
    answer.unwrap().cert_pem
}

fn is_of(cert_pem: &str, key: PublicKey) -> bool {
    BelievedAuthority::named(Slots::of(key)).certifies(cert_pem).unwrap()
}

#[tokio::test]
async fn nodes_get_certificates_of_the_ca_that_they_believe() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let StagedAuthority { current, next } = stage(&fleet).await;
    assert_eq!(stage(&fleet).await.next, next, "the same until it counts");
    refuses(add(&fleet, current, SlotChange::Rotate(new_key().public())).await, Code::TrustRefused);
    assert_eq!(add(&fleet, current, SlotChange::Rotate(next)).await.unwrap(), 2);
    assert!(is_of(&renewed(&node, &[]).await, current), "of an agent of before");
    assert!(is_of(&renewed(&node, &[next, current]).await, next));
    assert!(is_of(&renewed(&node, &[]).await, current));
    // It is asked to renew once it says that it goes by the new one, and not again.
    let wants = async |said: CheckIn| node.check_in(&said).await.unwrap().renew_certificate;
    let head = newest(&fleet).await;
    let goes_by_it = || CheckIn { trust: Some(head.held()), ..quiet() };
    assert!(!wants(quiet()).await);
    assert!(wants(goes_by_it()).await);
    let counts = view(&fleet).await.certificates.unwrap();
    assert_eq!((counts.current, counts.of_before, counts.nodes.len()), (next, 1, 1));
    renewed(&node, &[next, current]).await;
    assert!(!wants(goes_by_it()).await);
    assert_eq!(view(&fleet).await.certificates.unwrap().of_before, 0);
    // Who joins now is believed, and gets one that everybody believes.
    let joined = fleet.node("web-2").await;
    assert!(is_of(&joined.cert_pem, current));
    joined.survives().await;
}

#[tokio::test]
async fn a_key_is_enough_where_the_ca_counts_no_more() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let StagedAuthority { current, next } = stage(&fleet).await;
    let link = SlotChange::Replace(next);
    let root = fleet.root_key();
    let mut head = newest(&fleet).await;
    head.document.certificate_authority.get_or_insert(Slots::of(current));
    let version = chain::next_version(&head, SlotName::CertificateAuthority, link, None, now()).unwrap();
    for key in ["release.key", "root.key"] {
        std::fs::remove_file(fleet.dir.path().join(key)).unwrap();
    }
    let recover = async |request: RenewRequest| -> Result<RenewAnswer, Problem> {
        let signed = node.signed(Method::POST, route::RECOVER, body::encode(&request).unwrap());
        decoded(&call(&mut fleet.anonymous().await, signed).await)
    };
    refuses(recover(request(&node, &[])).await, Code::RecoveryOff);
    let link = chain::sign(&version, &root).unwrap();
    let added: u64 = fleet.operator().await.post("/v1/trust", &AddTrust { link }).await.unwrap();
    assert_eq!(added, 2);
    // The ports take the new CA up at once, beside this.
    until("the server shows the new CA", async || {
        let tls = net::tls::client_without_certificate(
            BelievedAuthority::named(Slots::of(next)),
            trust::token::TlsTermination::ControlPlane,
        );
        net::client::Client::dial(&fleet.url(), tls.unwrap()).await.ok()
    })
    .await;
    // Its own certificate opens no session any more, also where the server is believed.
    let key = net::tls::ClientKey::Node(&node.key);
    let believing = BelievedAuthority::named(Slots::of(next));
    let tls = net::tls::client_believing(believing, &node.cert_pem, key).unwrap();
    let refused = async {
        let mut client = net::client::Client::dial(&fleet.url(), tls).await?;
        client
            .call(node.signed(Method::GET, route::STATE, Vec::new()), 1 << 20, test_support::wait::DEADLINE)
            .await
    };
    assert!(refused.await.is_err());
    let answer = recover(request(&node, &[next])).await.unwrap();
    assert!(is_of(&answer.cert_pem, next));
    refuses(recover(request(&node, &[next])).await, Code::RecoveryOff);
}

#[tokio::test]
async fn who_knows_a_trust_document_gets_those_after_it() {
    let fleet = Fleet::start().await;
    let first = newest(&fleet).await;
    let StagedAuthority { current, next } = stage(&fleet).await;
    add(&fleet, current, SlotChange::Rotate(next)).await.unwrap();
    add(&fleet, current, SlotChange::Retire).await.unwrap();
    for url in [fleet.url(), fleet.operator_url()] {
        let answer = trust_links::fetch(&url, &first.digest).await.unwrap();
        assert_eq!((&answer.document, answer.links.len()), (&first.document, 2));
        let walk = chain::walk(&first, &answer.links);
        assert_eq!(walk.head.document.certificate_authority, Some(Slots::of(next)));
        let refused = trust_links::fetch(&url, &model::Digest::of(b"a guess")).await;
        assert!(matches!(refused, Err(FetchLinksError::Refused(StatusCode::NOT_FOUND))), "{refused:?}");
    }
}
