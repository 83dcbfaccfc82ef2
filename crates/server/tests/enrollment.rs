//! ENR-1, ENR-2, ENR-7, ENR-8, IDN-1: a token and a signed request against a certificate.
//! Every bad token is refused with its own code, burns nothing, and the control plane goes on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SanType,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, new_key, now, quiet, refuses};
use trust::token::{self, MAX_UNBOUND_LIFE};
use trust::{Header, KeyAlgorithm, SigningKey, signed};
use wire::Code;
use x509_parser::prelude::*;

#[tokio::test]
async fn one_copied_token_enrolls_a_node() {
    let fleet = Fleet::start().await;
    let key = new_key();
    let mut claims = fleet.claims("web-1");
    claims.expected_pubkey_fingerprint = Some(key.public().fingerprint());
    let token = token::mint(&claims, &fleet.root_key()).unwrap();
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    assert_eq!(answer.node_id, key.public().node_id(), "the id is derived from the key");
    assert_eq!(answer.trust.digest().unwrap(), claims.trust, "the token names the trust document");
    fleet.member("web-1", key, &answer).survives().await;
    let status = fleet.operator().await.status().await;
    assert_eq!((status.nodes, status.posture), (1, server::Posture::Lab));
}

/// A host whose TPM or client has only P-256 is a node like any other (IDN-1).
#[tokio::test]
async fn a_p256_key_enrolls_checks_in_and_is_offered_its_release() {
    let mut fleet = Fleet::start().await;
    let key = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[9; 32]).unwrap();
    let mut claims = fleet.claims("web-1");
    claims.expected_pubkey_fingerprint = Some(key.public().fingerprint());
    let token = token::mint(&claims, &fleet.root_key()).unwrap();
    let twin = SigningKey::from_seed(&[9; 32]);
    refuses(fleet.enroll(&token, "web-1", &twin).await, Code::TokenOtherKey);
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    assert_eq!(answer.node_id, key.public().node_id());
    let mut node = fleet.member("web-1", key, &answer);
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    let offer = node.check_in(&quiet()).await.unwrap().offer.expect("its release");
    let header = signed::verify::<Header>(&offer.header, &answer.trust.release).unwrap();
    assert_eq!(header.seq, 1);
    // The stored key is read back after a restart.
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    node.survives().await;
    assert_eq!(fleet.operator().await.node("web-1").await.fingerprint, node.key.public().fingerprint());
    // The same certificate with a request that the other algorithm signed.
    node.key = twin;
    refuses(node.check_in(&quiet()).await, Code::BadSignature);
}

/// Everything that can be wrong with a token, with the code that says so.
#[tokio::test]
async fn a_bad_token_is_refused_by_name_and_not_burned() {
    let fleet = Fleet::start().await;
    let (root, key) = (fleet.root_key(), new_key());
    let bound = |host: &str| {
        let mut claims = fleet.claims(host);
        claims.expected_pubkey_fingerprint = Some(key.public().fingerprint());
        claims
    };
    let good = token::mint(&bound("web-1"), &root).unwrap();
    let other_key = {
        let mut claims = bound("web-1");
        claims.expected_pubkey_fingerprint = Some(new_key().public().fingerprint());
        token::mint(&claims, &root).unwrap()
    };
    let expired = {
        let mut claims = bound("web-1");
        claims.issued_at = now().minus(Duration::from_secs(7200));
        claims.expires_at = now().minus(Duration::from_secs(61));
        token::mint(&claims, &root).unwrap()
    };
    let early = {
        let mut claims = bound("web-1");
        claims.issued_at = now().plus(Duration::from_secs(120));
        token::mint(&claims, &root).unwrap()
    };
    let of_another_fleet = {
        let mut claims = bound("web-1");
        claims.fleet = "elsewhere-1".parse().unwrap();
        token::mint(&claims, &root).unwrap()
    };
    let forged = token::mint(&bound("web-1"), &new_key()).unwrap();
    // A good signature, over other claims than these.
    let changed = {
        let other = token::mint(&bound("web-2"), &root).unwrap();
        format!("{}.{}", other.rsplit_once('.').unwrap().0, good.rsplit_once('.').unwrap().1)
    };
    let cut = good[..good.len() - 10].to_owned();
    let cut_in_claims = good[..good.len() / 2].to_owned();
    let cases = [
        (&good, "web-2", Code::TokenOtherHost, "for web-1, not for web-2"),
        (&other_key, "web-1", Code::TokenOtherKey, "another key"),
        (&expired, "web-1", Code::TokenExpired, "expired at"),
        (&early, "web-1", Code::TokenExpired, "in the future"),
        (&of_another_fleet, "web-1", Code::TokenForged, "another fleet"),
        (&forged, "web-1", Code::TokenForged, "not signed by this fleet's root key"),
        (&changed, "web-2", Code::TokenForged, "not signed by this fleet's root key"),
        (&cut, "web-1", Code::TokenMalformed, "copy it whole"),
        (&cut_in_claims, "web-1", Code::TokenMalformed, "copy it whole"),
        (&"hello".to_owned(), "web-1", Code::TokenMalformed, "must begin with"),
    ];
    for (token, host, code, says) in cases {
        let problem = refuses(fleet.enroll(token, host, &key).await, code);
        assert!(problem.detail.as_ref().unwrap().contains(says), "{problem}");
    }
    assert_eq!(fleet.operator().await.status().await.nodes, 0);
    // None of it burned the good one.
    let answer = fleet.enroll(&good, "web-1", &key).await.unwrap();
    fleet.member("web-1", key, &answer).survives().await;
}

/// A root key that lies elsewhere may mint anything; the bounds on a token's lifetime hold all
/// the same (ENR-9), judged by the control plane.
#[tokio::test]
async fn a_token_that_lives_too_long_is_refused() {
    let fleet = Fleet::start().await;
    let mut claims = fleet.claims("web-1");
    claims.expires_at = claims.issued_at.plus(MAX_UNBOUND_LIFE + Duration::from_secs(1));
    // `mint` refuses it, so it is put together as a changed program would.
    assert!(token::mint(&claims, &fleet.root_key()).is_err());
    let bytes = model::canonical::to_bytes(&claims).unwrap();
    let signature = fleet.root_key().sign(&trust::signed::message("bootstrap-token", &bytes));
    let code = data_encoding::BASE64URL_NOPAD;
    let token = format!("muster1.{}.{}", code.encode(&bytes), code.encode(&signature));
    refuses(fleet.enroll(&token, "web-1", &new_key()).await, Code::TokenForged);
    fleet.node("web-1").await.survives().await;
}

#[tokio::test]
async fn a_used_token_is_refused_once_the_certificate_was_used() {
    let fleet = Fleet::start().await;
    let (token, key) = (fleet.token("web-1"), new_key());
    let first = fleet.enroll(&token, "web-1", &key).await.unwrap();
    // The reply was lost: the same token and key give the same node, as often as need be.
    let again = fleet.enroll(&token, "web-1", &key).await.unwrap();
    assert_eq!(first.node_id, again.node_id);
    assert_eq!(fleet.operator().await.status().await.nodes, 1);
    // Another key never does.
    refuses(fleet.enroll(&token, "web-1", &new_key()).await, Code::TokenUsed);
    let node = fleet.member("web-1", key, &again);
    node.survives().await;
    // The certificate was used: the token is spent, for its own node too.
    refuses(fleet.enroll(&token, "web-1", &node.key).await, Code::TokenUsed);
    node.survives().await;
}

#[tokio::test]
async fn a_spent_token_stays_spent_over_a_restart() {
    let mut fleet = Fleet::start().await;
    let (token, key) = (fleet.token("web-1"), new_key());
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    let mut node = fleet.member("web-1", key, &answer);
    node.survives().await;
    fleet.stop().await;
    fleet.start_again().await;
    refuses(fleet.enroll(&token, "web-1", &node.key).await, Code::TokenUsed);
    node.url = fleet.url();
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_enrolls_one_of_many_at_once() {
    let fleet = std::sync::Arc::new(Fleet::start().await);
    let token = fleet.token("web-1");
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (fleet, token) = (fleet.clone(), token.clone());
        tries.spawn(async move { fleet.enroll(&token, "web-1", &new_key()).await });
    }
    let results = tries.join_all().await;
    let enrolled = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(enrolled, 1, "{results:#?}");
    for problem in results.into_iter().filter_map(Result::err) {
        assert!(["token-used", "hostname-taken"].contains(&problem.code.as_str()), "{problem}");
    }
    assert_eq!(fleet.operator().await.status().await.nodes, 1);
}

#[tokio::test]
async fn a_hostname_and_a_key_belong_to_one_active_node() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    refuses(fleet.enroll(&fleet.token("web-1"), "web-1", &new_key()).await, Code::HostnameTaken);
    let problem = refuses(fleet.enroll(&fleet.token("web-2"), "web-2", &node.key).await, Code::KeyTaken);
    assert!(problem.detail.unwrap().contains("web-1"));
    node.survives().await;
    // Once it is removed, both are free again, and its certificate opens nothing.
    let _: server::api::NodeView = fleet.operator().await.delete("/v1/nodes/web-1").await.unwrap();
    refuses(node.check_in(&test_support::fleet::quiet()).await, Code::UnknownNode);
    fleet.enroll(&fleet.token("web-1"), "web-1", &new_key()).await.unwrap();
    fleet.enroll(&fleet.token("web-2"), "web-2", &node.key).await.unwrap();
}

/// A request that asks for everything gets its key certified, and nothing else of it.
#[tokio::test]
async fn the_wishes_of_a_request_are_not_granted() {
    let fleet = Fleet::start().await;
    let key = new_key();
    let pair = key_pair(&key);
    let mut wishes = CertificateParams::new(vec!["control.example".to_owned()]).unwrap();
    wishes.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wishes.distinguished_name.push(DnType::CommonName, "db-1");
    wishes.distinguished_name.push(DnType::OrganizationName, "root");
    let victim = net::identity::node_uri(&new_key().public().node_id());
    wishes.subject_alt_names.push(SanType::URI(victim.as_str().try_into().unwrap()));
    wishes.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    wishes.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    wishes.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let csr = wishes.serialize_request(&pair).unwrap().pem().unwrap();
    let answer = fleet.enroll_with(&fleet.token("web-1"), "web-1", &csr).await.unwrap();
    let (_, pem) = parse_x509_pem(answer.cert_pem.as_bytes()).unwrap();
    let cert = pem.parse_x509().unwrap();
    let names: Vec<_> = cert.subject().iter_attributes().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names, ["web-1"], "CN is the token's hostname, and there is nothing else");
    let alternative = cert.subject_alternative_name().unwrap().unwrap();
    let own = net::identity::node_uri(&answer.node_id);
    assert_eq!(
        alternative.value.general_names,
        [GeneralName::URI(own.as_str()), GeneralName::DNSName("web-1")]
    );
    let usage = cert.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && !usage.key_cert_sign());
    let extended = cert.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.client_auth && !extended.server_auth && !extended.any);
    assert!(cert.basic_constraints().unwrap().is_none_or(|found| !found.value.ca));
    let lifetime = cert.validity().not_after.timestamp() - now().secs();
    assert!((29 * 86_400..=30 * 86_400).contains(&lifetime), "30 days, not {lifetime} s (IDN-2)");
    fleet.member("web-1", key, &answer).survives().await;
}

/// Requests that cannot be used: another sort of key, another signer, no request at all.
#[tokio::test]
async fn a_request_that_cannot_be_used_burns_nothing() {
    let fleet = Fleet::start().await;
    let token = fleet.token("web-1");
    let params = || CertificateParams::new(vec![]).unwrap();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let p384 = params().serialize_request(&p384).unwrap().pem().unwrap();
    // A P-256 request whose key says that it lies on another curve (secp256k1 for prime256v1).
    let p256 = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut der = params().serialize_request(&p256).unwrap().der().to_vec();
    let curve = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    let at = der.windows(curve.len()).position(|bytes| bytes == curve).unwrap();
    der[at + curve.len() - 1] = 0x06;
    let other_curve = pem("CERTIFICATE REQUEST", &der);
    let good = params().serialize_request(&key_pair(&new_key())).unwrap();
    // The key inside did not sign it: one bit of the signature is another.
    let mut der = good.der().to_vec();
    *der.last_mut().unwrap() ^= 1;
    let unsigned = pem("CERTIFICATE REQUEST", &der);
    let certificate = fleet.node_ca().cert_pem().to_owned();
    for csr in [p384, other_curve, unsigned, certificate, String::new(), "x".repeat(10_000)] {
        let problem = refuses(fleet.enroll_with(&token, "web-1", &csr).await, Code::BadCsr);
        assert!(problem.help.unwrap().contains("ed25519"));
    }
    fleet.enroll_with(&token, "web-1", &good.pem().unwrap()).await.unwrap();
}

fn key_pair(key: &trust::SigningKey) -> KeyPair {
    let der = net::issue::pkcs8(key);
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der.as_slice()), &PKCS_ED25519).unwrap()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = data_encoding::BASE64.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
