//! IDN-1, IDN-8: a key is ed25519 or ECDSA P-256, and a signature counts under its own key alone:
//! no name that travels with it chooses the algorithm.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{header, name};
use data_encoding::{BASE64, HEXLOWER};
use model::Timestamp;
use trust::document::Slots;
use trust::key::SIGNATURE_LEN;
use trust::signed::{self, VerifyError};
use trust::token::{self, Claims, KeySource, TokenError};
use trust::{Header, KeyAlgorithm, PublicKey, SigningKey};

fn p256(secret: u8) -> SigningKey {
    SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[secret; 32]).unwrap()
}

fn ed25519(secret: u8) -> SigningKey {
    SigningKey::from_seed(&[secret; 32])
}

/// RFC 6979 appendix A.2.5, message "sample" with SHA-256.
#[test]
fn p256_signatures_are_those_of_rfc_6979() {
    let secret = "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721";
    let point = "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6\
                 7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299";
    let signature = "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716\
                     f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8";
    let secret: [u8; 32] = HEXLOWER.decode(secret.as_bytes()).unwrap().try_into().unwrap();
    let key = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &secret).unwrap();
    assert_eq!(HEXLOWER.encode(&key.public().raw()), point);
    assert_eq!(HEXLOWER.encode(&key.sign(b"sample")), signature);
    assert!(key.public().verifies(b"sample", &key.sign(b"sample")));
    assert!(!key.public().verifies(b"Sample", &key.sign(b"sample")));
}

#[test]
fn both_sorts_are_written_and_read() {
    for key in [ed25519(1), p256(1)] {
        let public = key.public();
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        assert_eq!(PublicKey::from_raw(key.algorithm(), &public.raw()).unwrap(), public);
        let json = serde_json::to_string(&public).unwrap();
        assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), public);
        let again = SigningKey::from_file(&key.to_file()).unwrap();
        assert_eq!((again.public(), again.algorithm()), (public, key.algorithm()));
        assert!(public.to_string().starts_with(key.algorithm().as_str()));
        assert!(public.fingerprint().starts_with("SHA256:") && public.id().len() == 16);
    }
    // The same 32 secret bytes are two keys, two nodes.
    let (one, other) = (ed25519(1).public(), p256(1).public());
    assert_ne!(one, other);
    assert_ne!((one.id(), one.node_id()), (other.id(), other.node_id()));
}

#[test]
fn a_signature_counts_under_no_key_of_the_other_algorithm() {
    let (ed, ec) = (ed25519(1), p256(1));
    for (signer, other) in [(&ed, &ec), (&ec, &ed)] {
        let signature = signer.sign(b"message");
        assert!(signer.public().verifies(b"message", &signature));
        assert!(!other.public().verifies(b"message", &signature));
        // Under the other's id, in a document that trusts only the other.
        let mut document = signed::sign(&header(5), &[signer]).unwrap();
        let trusted = Slots::of(other.public());
        let verdict = signed::verify::<Header>(&document, &trusted);
        assert_eq!(verdict.unwrap_err(), VerifyError::Untrusted);
        document.signatures[0].key = other.public().id();
        let verdict = signed::verify::<Header>(&document, &trusted);
        assert_eq!(verdict.unwrap_err(), VerifyError::Untrusted);
        // A slot of each: whoever signed is found by the key, not by its place.
        let both = Slots { previous: Some(signer.public()), ..trusted };
        let document = signed::sign(&header(5), &[signer]).unwrap();
        assert_eq!(signed::verify::<Header>(&document, &both).unwrap(), header(5));
    }
}

#[test]
fn tokens_are_signed_by_and_bound_to_either() {
    let at = Timestamp::from_secs(1_800_000_000);
    for (root, node) in [(ed25519(2), p256(3)), (p256(2), ed25519(3))] {
        let claims = Claims {
            fleet: "acme-1".parse().unwrap(),
            hostname: name("web-1"),
            expected_pubkey_fingerprint: Some(node.public().fingerprint()),
            key: KeySource::SshHostEcdsa,
            issued_at: at,
            expires_at: at.plus(std::time::Duration::from_secs(60)),
            nonce: "n".to_owned(),
            servers: vec![],
            tls_termination: Default::default(),
            ca: model::Digest::ZERO,
            trust: model::Digest::ZERO,
            replaces: None,
        };
        let text = token::mint(&claims, &root).unwrap();
        let slots = Slots::of(root.public());
        assert_eq!(token::verify(&text, &slots, "web-1", &node.public(), at).unwrap(), claims);
        let twin = SigningKey::from_secret(root.algorithm(), &[3; 32]).unwrap();
        let refused = token::verify(&text, &slots, "web-1", &twin.public(), at).unwrap_err();
        assert_eq!(refused, TokenError::OtherKey, "the same secret in the other algorithm");
        let other = Slots::of(node.public());
        assert_eq!(
            token::verify(&text, &other, "web-1", &node.public(), at).unwrap_err(),
            TokenError::Forged
        );
    }
}

#[test]
fn malformed_p256_keys_and_signatures_are_refused() {
    let key = p256(1);
    let raw = key.public().raw();
    let mut off_curve = raw.to_vec();
    off_curve[64] ^= 1;
    let mut compressed = raw[..33].to_vec();
    compressed[0] = 2 + (raw[64] & 1);
    let mut hybrid = raw.to_vec();
    hybrid[0] = 6 + (raw[64] & 1);
    let identity = vec![0];
    let mut zeros = vec![0; 65];
    zeros[0] = 4;
    let too_long = [&raw[..], &[0]].concat();
    for bad in [off_curve, compressed, hybrid, identity, zeros, too_long, raw[1..].to_vec(), vec![]] {
        assert!(PublicKey::from_raw(KeyAlgorithm::EcdsaP256, &bad).is_err(), "{bad:?}");
        let text = format!("ecdsa-p256:{}", BASE64.encode(&bad));
        assert!(text.parse::<PublicKey>().is_err(), "{text}");
    }
    // The raw form of one algorithm under the name of the other.
    assert!(PublicKey::from_raw(KeyAlgorithm::Ed25519, &raw).is_err());
    assert!(PublicKey::from_raw(KeyAlgorithm::EcdsaP256, &ed25519(1).public().raw()).is_err());
    for secret in [[0; 32], [0xff; 32]] {
        assert!(SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &secret).is_err());
    }
    let good = key.sign(b"message");
    let (zero, max) = ([0; SIGNATURE_LEN], [0xff; SIGNATURE_LEN]);
    for bad in [&zero[..], &max, &good[..63], &[&good[..], &[0]].concat(), &[]] {
        assert!(!key.public().verifies(b"message", bad));
    }
}
