//! IDN-2: docs/exchanges/renew.txt shows a renewal as it travels, so that a client can be written from it;
//! MUSTER_BLESS=1 writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use model::{CertificateValidity, Timestamp};
use net::issue::{Ca, CertificateRequest, node_request, node_validity, pkcs8};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose, PKCS_ED25519};
use rustls_pki_types::PrivatePkcs8KeyDer;
use trust::SigningKey;
use wire::enroll::{RenewAnswer, RenewRequest};
use wire::headers::{CONTENT_DIGEST, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT};
use wire::signature::{self, SignedTarget};
use wire::{Code, Problem, body, route};

const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

/// A CA that is the same each time.
fn ca() -> Ca {
    let der = pkcs8(&SigningKey::from_seed(&[7; 32]));
    let der = PrivatePkcs8KeyDer::from(der.as_slice());
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "acme-1 node-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2026, 11, 1), rcgen::date_time_ymd(2036, 11, 1));
    let cert = params.self_signed(&key).unwrap();
    Ca::load(&cert.pem(), &key.serialize_pem()).unwrap()
}

fn text<T: serde::Serialize>(value: &T) -> String {
    String::from_utf8(body::encode(value).unwrap()).unwrap()
}

fn request(path: &str, key: &SigningKey, message: &RenewRequest, number: u64) -> String {
    let body = text(message);
    let target = SignedTarget { method: "POST", path, query: "", body: body.as_bytes(), last_event_id: None };
    let (fleet, node) = ("acme-1".parse().unwrap(), key.public().node_id());
    let signed = signature::sign(target, &fleet, &node, key, AT, number);
    let digest = signed.content_digest.unwrap();
    format!(
        "POST {path}\n{PROTOCOL_HEADER}: {PROTOCOL}\ncontent-type: application/json\n{CONTENT_DIGEST}: {digest}\n\
         {SIGNATURE_INPUT}: {}\n{SIGNATURE}: {}\n\n{body}\n\n",
        signed.input, signed.signature
    )
}

fn recorded() -> String {
    let (ca, key) = (ca(), SigningKey::from_seed(&[42; 32]));
    let hostname = "web-1".parse().unwrap();
    let csr_pem = node_request(&key, &hostname).unwrap();
    let issue = |validity: CertificateValidity| {
        let csr = CertificateRequest::read(&csr_pem).unwrap();
        let id = key.public().node_id();
        let cert_pem = ca.issue_node(&csr, &id, &hostname, [5; 16], validity).unwrap();
        RenewAnswer::of(cert_pem)
    };
    let message = RenewRequest::of(csr_pem.clone());
    let number = 1_800_000_000_000_000;
    let refused = Problem { request_id: Some("5e0f2a11-7".to_owned()), ..Problem::from(Code::RecoveryOff) };
    [
        "# The node, whose key is ed25519 of the seed 2a2a..., renews its certificate on a connection with it.\n",
        &request(route::RENEW, &key, &message, number),
        "# The control plane.\n200\n\n",
        &text(&issue(node_validity(AT))),
        "\n\n# Its certificate has ended: it asks by its key alone, on a connection without a certificate.\n",
        &request(route::RECOVER, &key, &message, number + 1),
        "# Where the policy does not allow that.\n403\n\n",
        &text(&refused),
        "\n",
    ]
    .concat()
}

#[test]
fn what_is_recorded_is_what_is_sent() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exchanges/renew.txt");
    let recorded = recorded();
    assert_eq!(recorded, self::recorded(), "it is the same each time");
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &recorded).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, recorded, "MUSTER_BLESS=1 writes docs/exchanges/renew.txt anew");
}
