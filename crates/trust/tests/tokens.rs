//! ENR-1, ENR-9: a token admits one key under one hostname for its time; all else is refused by name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{key, name};
use model::time::SLACK;
use model::{Digest, Timestamp};
use proptest::prelude::*;
use trust::token::{
    Claims, KeySource, MAX_LIFE, MAX_TOKEN, MAX_UNBOUND_LIFE, TlsTermination, TokenError, mint, peek, verify,
    verify_for_report,
};
use trust::{PublicKey, SigningKey, Slots};

const ISSUED: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn root() -> SigningKey {
    key(2)
}

fn node() -> PublicKey {
    key(7).public()
}

fn claims() -> Claims {
    Claims {
        fleet: "acme-1".parse().unwrap(),
        hostname: name("web-1"),
        expected_pubkey_fingerprint: Some(node().fingerprint()),
        key: KeySource::SshHost,
        issued_at: ISSUED,
        expires_at: ISSUED.plus(HOUR),
        nonce: "n0123456789abcdef".to_owned(),
        servers: vec!["https://muster.example:7443".to_owned()],
        tls_termination: Default::default(),
        ca: Digest::of(b"ca"),
        trust: Digest::of(b"trust"),
        replaces: None,
    }
}

fn token() -> String {
    mint(&claims(), &root()).unwrap()
}

fn verified(token: &str, now: Timestamp) -> Result<Claims, TokenError> {
    verify(token, &Slots::of(root().public()), "web-1", &node(), now)
}

#[test]
fn a_good_token_says_what_was_minted() {
    assert_eq!(verified(&token(), ISSUED).unwrap(), claims());
    assert_eq!(verified(&format!("  {}\n", token()), ISSUED).unwrap(), claims(), "as pasted");
    assert!(!token().contains(char::is_whitespace), "it is one line");
}

#[test]
fn wrong_host_and_wrong_key() {
    let roots = Slots::of(root().public());
    let host = |hostname| verify(&token(), &roots, hostname, &node(), ISSUED).err();
    for other in ["web-2", "web-1.example", "", "WEB-1"] {
        let expected = name("web-1");
        assert_eq!(host(other), Some(TokenError::OtherHost { expected, got: other.to_owned() }));
    }
    let other = verify(&token(), &roots, "web-1", &key(8).public(), ISSUED);
    assert_eq!(other.err(), Some(TokenError::OtherKey));
}

#[test]
fn its_time() {
    let end = claims().expires_at;
    let ms = Duration::from_millis(1);
    for (now, want) in [
        (ISSUED, None),
        (end.plus(SLACK), None),
        (end.plus(SLACK).plus(ms), Some(TokenError::Expired { at: end, now: end.plus(SLACK).plus(ms) })),
        (ISSUED.minus(SLACK), None),
        (
            ISSUED.minus(SLACK).minus(ms),
            Some(TokenError::FutureDated { at: ISSUED, now: ISSUED.minus(SLACK).minus(ms) }),
        ),
    ] {
        assert_eq!(verified(&token(), now).err(), want, "at {now}");
    }
    let backwards = Claims { expires_at: ISSUED.minus(HOUR), ..claims() };
    let token = mint(&backwards, &root()).unwrap();
    assert!(matches!(verified(&token, ISSUED), Err(TokenError::Expired { .. })));
}

#[test]
fn who_minted_it() {
    let forged = mint(&claims(), &key(9)).unwrap();
    let release = mint(&claims(), &key(1)).unwrap();
    for token in [forged, release] {
        assert_eq!(verified(&token, ISSUED), Err(TokenError::Forged));
    }
    let slots =
        |reject_before| Slots { current: key(9).public(), previous: Some(root().public()), reject_before };
    let by_slots = |slots: Slots| verify(&token(), &slots, "web-1", &node(), ISSUED).err();
    assert_eq!(by_slots(slots(None)), None, "the previous root key counts during a change");
    assert_eq!(by_slots(slots(Some(ISSUED))), None);
    assert_eq!(by_slots(slots(Some(ISSUED.plus(HOUR)))), Some(TokenError::Forged));
}

#[test]
fn claims_changed_after_signing_are_forged() {
    let token = token();
    let mut parts = token.split('.');
    let (prefix, signature) = (parts.next().unwrap(), parts.nth(1).unwrap());
    let other = Claims { hostname: name("db-1"), ..claims() };
    let other = mint(&other, &key(9)).unwrap();
    let spliced = format!("{prefix}.{}.{signature}", other.split('.').nth(1).unwrap());
    let verdict = verify(&spliced, &Slots::of(root().public()), "db-1", &node(), ISSUED);
    assert_eq!(verdict, Err(TokenError::Forged));
    assert_eq!(peek(&spliced).unwrap().hostname, name("db-1"), "peek reads, and believes nothing");
}

#[test]
fn truncated_at_every_length() {
    let token = token();
    assert_eq!(verified("", ISSUED), Err(TokenError::NotAToken));
    for length in 1..token.len() {
        let cut = &token[..length];
        assert_eq!(verified(cut, ISSUED), Err(TokenError::Truncated), "{length} of {}", token.len());
        assert_eq!(peek(cut), Err(TokenError::Truncated), "{length} of {}", token.len());
    }
}

#[test]
fn what_is_no_token() {
    let long = format!("muster1.{}", "a".repeat(MAX_TOKEN));
    for text in ["hello", "eyJhbGciOi.a.b", "Muster1.a.b", "muster2.a.b", &long] {
        assert_eq!(verified(text, ISSUED), Err(TokenError::NotAToken), "{text:.20}");
    }
    // As long as one may be it is looked at.
    let (longest, longer) = (MAX_TOKEN - "muster1.".len(), MAX_TOKEN + 1 - "muster1.".len());
    assert_eq!(peek(&format!("muster1.{}", "a".repeat(longest))), Err(TokenError::Truncated));
    assert_eq!(peek(&format!("muster1.{}", "a".repeat(longer))), Err(TokenError::NotAToken));
}

/// IDN-4: behind a proxy a token names its key, as the proxy could put one of its own in.
#[test]
fn one_that_leads_through_a_proxy_names_its_key() {
    let proxied = Claims { tls_termination: TlsTermination::Proxy, ..claims() };
    let token = mint(&proxied, &root()).unwrap();
    assert_eq!(verified(&token, ISSUED), Ok(proxied.clone()));
    let unbound = Claims { expected_pubkey_fingerprint: None, ..proxied };
    assert_eq!(mint(&unbound, &root()), Err(TokenError::Unbound));
    assert_eq!(verified(&resigned(&unbound), ISSUED), Err(TokenError::Unbound));
}

/// What a token leaves out means what it meant before the word was there.
#[test]
fn only_what_differs_is_written() {
    let written = |claims: &Claims| {
        let json = serde_json::to_value(claims).unwrap();
        (json.get("tlsTermination").cloned(), json.get("key").cloned())
    };
    let plain = Claims { key: KeySource::Own, ..claims() };
    assert_eq!(written(&plain), (None, None));
    let other = Claims { tls_termination: TlsTermination::Proxy, ..claims() };
    assert_eq!(written(&other), (Some("proxy".into()), Some("ssh-host".into())));
}

/// ENR-4: what joins fail for, its time, keeps nobody from telling that; all else holds.
#[test]
fn a_failed_join_is_told_under_a_token_that_ended() {
    let roots = Slots::of(root().public());
    let told = |hostname: &str, key: &PublicKey, after: Timestamp| {
        verify_for_report(&token(), &roots, hostname, key, after)
    };
    let end = claims().expires_at;
    for after in [ISSUED.minus(HOUR * 9), end] {
        assert_eq!(told("web-1", &node(), after), Ok(claims()));
    }
    let later = end.plus(Duration::from_millis(1));
    assert_eq!(told("web-1", &node(), later), Err(TokenError::Expired { at: end, now: later }));
    assert_eq!(told("web-1", &key(8).public(), end), Err(TokenError::OtherKey));
    assert!(matches!(told("web-2", &node(), end), Err(TokenError::OtherHost { .. })));
    let others = Slots::of(key(9).public());
    assert_eq!(verify_for_report(&token(), &others, "web-1", &node(), end), Err(TokenError::Forged));
}

#[test]
fn its_life_has_a_bound() {
    let bound = |life| Claims { expires_at: ISSUED.plus(life), ..claims() };
    let unbound = |life| Claims { expected_pubkey_fingerprint: None, ..bound(life) };
    let second = Duration::from_secs(1);
    for (claims, good) in [
        (bound(MAX_LIFE), true),
        (bound(MAX_LIFE + second), false),
        (unbound(MAX_UNBOUND_LIFE), true),
        (unbound(MAX_UNBOUND_LIFE + second), false),
    ] {
        assert_eq!(mint(&claims, &root()).is_ok(), good, "{claims:?}");
    }
    // Another program may mint without asking; the control plane looks at it too.
    let sneaky = resigned(&unbound(MAX_UNBOUND_LIFE * 2));
    assert_eq!(verified(&sneaky, ISSUED), Err(TokenError::TooLong));
    assert_eq!(
        TokenError::TooLong.to_string(),
        "a token may live for at most 30 days, and for at most 3600 s if it names no key"
    );
}

#[test]
fn without_a_fingerprint_any_key_may_come() {
    let token = mint(&Claims { expected_pubkey_fingerprint: None, ..claims() }, &root()).unwrap();
    assert!(verify(&token, &Slots::of(root().public()), "web-1", &key(8).public(), ISSUED).is_ok());
}

/// Mints without the checks of [`mint`].
fn resigned(claims: &Claims) -> String {
    let bytes = model::canonical::to_bytes(claims).unwrap();
    let signature = root().sign(&trust::signed::message("bootstrap-token", &bytes));
    let encode = |bytes: &[u8]| data_encoding::BASE64URL_NOPAD.encode(bytes);
    format!("muster1.{}.{}", encode(&bytes), encode(&signature))
}

#[test]
fn every_flipped_bit_is_refused() {
    let token = token().into_bytes();
    for bit in 0..token.len() * 8 {
        let mut flipped = token.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(text) = String::from_utf8(flipped) else { continue };
        assert!(verified(&text, ISSUED).is_err(), "bit {bit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}", body in "[A-Za-z0-9_-]{0,200}\\.[A-Za-z0-9_-]{0,90}") {
        prop_assert!(verified(&text, ISSUED).is_err());
        let token = format!("muster1.{body}");
        prop_assert!(verified(&token, ISSUED).is_err() && peek(&token).is_err());
    }
}
