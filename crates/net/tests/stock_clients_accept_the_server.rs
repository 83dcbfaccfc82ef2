//! SYN-1: the control plane's own certificate is one that a stock client takes. BoringSSL, which
//! gRPC's clients link, refuses a server whose key is ed25519; the CA above it may have one, so
//! that pins and trust stay as they are.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::{Digest, Timestamp};
use net::issue::Ca;
use x509_parser::prelude::*;

/// ecPublicKey, its curve P-256, and ed25519.
const EC: &str = "1.2.840.10045.2.1";
const P256: &str = "1.2.840.10045.3.1.7";
const ED25519: &str = "1.3.101.112";

fn der(pem: &str) -> Vec<u8> {
    net::tls::certificates(pem).unwrap().remove(0).to_vec()
}

#[test]
fn the_server_has_an_ecdsa_key_under_an_ed25519_ca() {
    let now = Timestamp::from_secs(1_795_248_000);
    let (ca, files) = Ca::generate("test", now).unwrap();
    let own = ca.issue_server(&["localhost".to_owned()], [7; 16], net::issue::own_validity(now)).unwrap();
    let (leaf, root) = (der(&own.cert_pem), der(&files.cert_pem));
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    let algorithm = &leaf.public_key().algorithm;
    assert_eq!(algorithm.algorithm.to_id_string(), EC);
    assert_eq!(algorithm.parameters.as_ref().unwrap().as_oid().unwrap().to_id_string(), P256);
    assert_eq!(leaf.signature_algorithm.algorithm.to_id_string(), ED25519, "the CA signs it");
    let (_, read) = X509Certificate::from_der(&root).unwrap();
    assert_eq!(read.public_key().algorithm.algorithm.to_id_string(), ED25519);
    assert_eq!(ca.digest(), Digest::of(&root), "what tokens pin is the CA's certificate");
}
