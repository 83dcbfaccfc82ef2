//! IDN-8: the control plane certifies with the CA that the trust document names, and with the one before while that counts.
//! A node gets a certificate of the new one when it says that it believes it, and by its key alone once the CA of its own
//! counts no more, or issued it before the time from which certificates count. Who knows a trust document gets those after
//! it, without showing who it is. A document that names a CA which is not here is refused, and one by which no certificate
//! counts yet. An agent of the release before, and a node behind a proxy, go on as long as they are promised to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use http::StatusCode;
use model::exchange::CheckIn;
use net::BelievedAuthority;
use net::client::{Client, ClientError};
use net::issue::{issued_at, node_request};
use net::tls::{self, ClientKey};
use net::trust_links::{self, FetchLinksError};
use server::api::authority::StagedAuthority;
use server::api::{AddTrust, TrustView};
use test_support::fleet::proxy::Forwarder;
use test_support::fleet::{Fleet, Member, call, decoded, new_key, now, quiet, refuses};
use test_support::wait::until;
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::token::TlsTermination;
use trust::{PublicKey, SigningKey, Slots, TrustDocument};
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

/// The version after the newest; `current` is the CA of a fleet whose documents name none yet.
async fn next_version(fleet: &Fleet, current: PublicKey, change: SlotChange) -> TrustDocument {
    let mut head = newest(fleet).await;
    head.document.certificate_authority.get_or_insert(Slots::of(current));
    chain::next_version(&head, SlotName::CertificateAuthority, change, None, now()).unwrap()
}

async fn add_signed(fleet: &Fleet, next: &TrustDocument, root: &SigningKey) -> Result<u64, Problem> {
    let link = chain::sign(next, root).unwrap();
    fleet.operator().await.post("/v1/trust", &AddTrust { link }).await
}

async fn add(fleet: &Fleet, current: PublicKey, change: SlotChange) -> Result<u64, Problem> {
    let next = next_version(fleet, current, change).await;
    add_signed(fleet, &next, &fleet.root_key()).await
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

/// A session of a node that shows this certificate to a server that it believes by these keys.
async fn opens(fleet: &Fleet, node: &Member, cert_pem: &str, believed: Slots) -> Result<(), ClientError> {
    let tls = tls::client_believing(BelievedAuthority::named(believed), cert_pem, ClientKey::Node(&node.key));
    let mut client = Client::dial(&fleet.url(), tls.unwrap()).await?;
    let request = node.signed(Method::GET, route::STATE, Vec::new());
    client.call(request, 1 << 20, test_support::wait::DEADLINE).await.map(drop)
}

async fn recovered(fleet: &Fleet, node: &Member, believed: &[PublicKey]) -> Result<String, Problem> {
    let asked = body::encode(&request(node, believed)).unwrap();
    let signed = node.signed(Method::POST, route::RECOVER, asked);
    let answer: RenewAnswer = decoded(&call(&mut anonymous_of(fleet, believed).await, signed).await)?;
    Ok(answer.cert_pem)
}

/// A connection without a certificate, to a server of one of these CAs.
async fn anonymous_of(fleet: &Fleet, believed: &[PublicKey]) -> Client {
    let slots = Slots { previous: believed.get(1).copied(), ..Slots::of(believed[0]) };
    let tls = tls::client_without_certificate(BelievedAuthority::named(slots), TlsTermination::ControlPlane)
        .unwrap();
    until("a server of these CAs", async || Client::dial(&fleet.url(), tls.clone()).await.ok()).await
}

/// `--reject-before`, where the keys of intent lie elsewhere: what was issued before counts no more, whichever CA issued it,
/// and a key is enough. What is made from then on counts.
#[tokio::test]
async fn what_was_issued_before_a_time_is_recovered_by_the_key() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let issued = issued_at(net::identity::validity(node.cert_pem.as_bytes()).unwrap());
    let StagedAuthority { current, next } = stage(&fleet).await;
    let root = fleet.root_key();
    for key in ["release.key", "root.key"] {
        std::fs::remove_file(fleet.dir.path().join(key)).unwrap();
    }
    let believed = [next, current];
    refuses(recovered(&fleet, &node, &believed).await, Code::RecoveryOff);
    // Certificates know whole seconds.
    let limit = until("the next second", async || Some(now()).filter(|now| now.secs() > issued.secs())).await;
    let mut version = next_version(&fleet, current, SlotChange::Rotate(next)).await;
    let slots = version.certificate_authority.as_mut().unwrap();
    slots.reject_before = Some(limit);
    let slots = slots.clone();
    assert_eq!(add_signed(&fleet, &version, &root).await.unwrap(), 2);
    // The control plane has another one by then, of the CA before, which everybody believes still.
    until("the server's own is new", async || {
        let anonymous = tls::client_without_certificate(
            BelievedAuthority::named(slots.clone()),
            TlsTermination::ControlPlane,
        );
        Client::dial(&fleet.url(), anonymous.unwrap()).await.ok()
    })
    .await;
    assert!(opens(&fleet, &node, &node.cert_pem, slots.clone()).await.is_err(), "it was issued too early");
    let cert_pem = recovered(&fleet, &node, &believed).await.unwrap();
    assert!(is_of(&cert_pem, next));
    opens(&fleet, &node, &cert_pem, slots).await.unwrap();
    refuses(recovered(&fleet, &node, &believed).await, Code::RecoveryOff);
}

/// Nobody could be certified until then.
#[tokio::test]
async fn a_document_by_which_no_certificate_counts_yet_is_refused() {
    let fleet = Fleet::start().await;
    let StagedAuthority { current, next } = stage(&fleet).await;
    let mut version = next_version(&fleet, current, SlotChange::Rotate(next)).await;
    let day = std::time::Duration::from_secs(24 * 3600);
    version.certificate_authority.as_mut().unwrap().reject_before = Some(now().plus(day));
    let refused = refuses(add_signed(&fleet, &version, &fleet.root_key()).await, Code::TrustRefused);
    let said = refused.detail.unwrap_or_default();
    assert!(said.contains("can make none yet") && said.contains("--reject-before"), "{said}");
    assert_eq!(newest(&fleet).await.document.version, 1);
    fleet.node("web-1").await.survives().await;
}

/// It says nothing of CAs, and knows the one that it joined with by its certificate.
#[tokio::test]
async fn an_agent_of_the_release_before_goes_on_until_its_ca_counts_no_more() {
    let fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let first = fleet.node_ca();
    let StagedAuthority { current, next } = stage(&fleet).await;
    add(&fleet, current, SlotChange::Rotate(next)).await.unwrap();
    let held = newest(&fleet).await.held();
    let says = || {
        let trust = Some(model::exchange::HeldTrust { authority: None, ..held.clone() });
        CheckIn { trust, ..quiet() }
    };
    // It follows the document, is not asked to renew, and renews under the CA that it knows.
    let answer = node.check_in(&says()).await.unwrap();
    assert!(!answer.renew_certificate);
    node.cert_pem = renewed(&node, &[]).await;
    assert!(is_of(&node.cert_pem, current));
    node.tls = tls::client(first.cert_pem(), &node.cert_pem, ClientKey::Node(&node.key)).unwrap();
    node.survives().await;
    let counts = view(&fleet).await.certificates.unwrap();
    assert_eq!(
        (counts.of_before, counts.nodes),
        (1, vec![node.hostname.clone()]),
        "named before the retirement"
    );
    // From the retirement on it reaches nobody, and comes back by its key once it is upgraded.
    add(&fleet, current, SlotChange::Retire).await.unwrap();
    let shut_out = until("the server shows the new CA alone", async || {
        Client::dial(&fleet.url(), node.tls.clone()).await.err()
    })
    .await;
    assert!(matches!(shut_out, ClientError::ForeignServer { .. }), "{shut_out:?}");
    let cert_pem = recovered(&fleet, &node, &[next]).await.unwrap();
    assert!(is_of(&cert_pem, next));
    opens(&fleet, &node, &cert_pem, Slots::of(next)).await.unwrap();
    assert_eq!(view(&fleet).await.certificates.unwrap().of_before, 0);
}

/// A proxy's certificate is of the CA before until another one is issued to it, and ends with that CA; its nodes show none.
#[tokio::test]
async fn a_proxy_needs_another_certificate_before_the_ca_of_its_own_counts_no_more() {
    let fleet = Fleet::start().await;
    let before = Forwarder::start(&fleet).await;
    let mut node = before.node(&fleet, "web-1").await;
    let StagedAuthority { current, next } = stage(&fleet).await;
    add(&fleet, current, SlotChange::Rotate(next)).await.unwrap();
    // Each session is of its own.
    node.survives().await;
    assert!(view(&fleet).await.certificates.unwrap().nodes.is_empty(), "it has none to renew");
    let after = Forwarder::start(&fleet).await;
    let by = |slots: Slots| {
        let believed = BelievedAuthority::named(slots);
        tls::client_without_certificate(believed, TlsTermination::Proxy).unwrap()
    };
    let old = node.url.clone();
    (node.url, node.tls) = (after.url.clone(), by(Slots { previous: Some(current), ..Slots::of(next) }));
    node.survives().await;
    add(&fleet, current, SlotChange::Retire).await.unwrap();
    node.tls = by(Slots::of(next));
    // The proxy believes the control plane by either CA, which is taken up beside this.
    node.survives().await;
    let refused = Client::dial(&old, node.tls.clone()).await.err();
    assert!(matches!(refused, Some(ClientError::ForeignServer { .. })), "{refused:?}");
    // Also where somebody believes it still: the control plane does not.
    node.tls = by(Slots { previous: Some(current), ..Slots::of(next) });
    node.url = old;
    until("the control plane takes no connection of the proxy before", async || {
        let mut client = Client::dial(&node.url, node.tls.clone()).await.ok()?;
        let asked = node.signed(Method::POST, route::CHECKIN, body::encode(&quiet()).unwrap());
        client.call(asked, 1 << 20, test_support::wait::DEADLINE).await.err()
    })
    .await;
}
