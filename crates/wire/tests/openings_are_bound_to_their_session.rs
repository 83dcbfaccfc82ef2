//! IDN-4: a signed opening of a stream counts in the TLS session that it was signed for, and only there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use model::{NodeId, Timestamp};
use trust::SigningKey;
use wire::headers::{CHANNEL_BINDING, CONTENT_DIGEST, SIGNATURE, SIGNATURE_INPUT};
use wire::signature::{OpeningHeaders, SignatureError, Target, parse, sign, sign_opening};

const NOW: Timestamp = Timestamp(1_800_000_000_400);
const OPENING: Target<'_> = Target { method: "GET", path: "/v1/agent/stream", query: "", body: b"" };
const SESSION: [u8; 32] = [3; 32];

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

fn node() -> NodeId {
    key().public().node_id()
}

fn headers(signed: &OpeningHeaders) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in
        [(CHANNEL_BINDING, &signed.binding), (SIGNATURE_INPUT, &signed.input), (SIGNATURE, &signed.signature)]
    {
        map.insert(name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn opening() -> HeaderMap {
    headers(&sign_opening(OPENING, &SESSION, &node(), &key(), NOW, 42))
}

fn verified(headers: &HeaderMap, target: Target<'_>, session: [u8; 32]) -> Result<(), SignatureError> {
    parse(headers)?.verify_opening(target, &session, &key().public(), NOW)
}

#[test]
fn it_holds_in_its_session() {
    let headers = opening();
    let parsed = parse(&headers).unwrap();
    assert_eq!((parsed.node, parsed.nonce), (node().as_str(), 42));
    assert_eq!(verified(&headers, OPENING, SESSION), Ok(()));
    // What flows afterwards is not covered.
    assert_eq!(verified(&headers, Target { body: b"frames", ..OPENING }, SESSION), Ok(()));
}

#[test]
fn it_holds_in_no_other_session() {
    let mut headers = opening();
    for byte in 0..32 {
        let mut other = SESSION;
        other[byte] ^= 1;
        assert_eq!(verified(&headers, OPENING, other), Err(SignatureError::Binding), "{byte}");
        // Naming the other session does not help: the name is signed.
        let named = data_encoding::BASE64.encode(&other);
        headers.insert(CHANNEL_BINDING, HeaderValue::from_str(&named).unwrap());
        assert_eq!(verified(&headers, OPENING, other), Err(SignatureError::Signature), "{byte}");
        headers = opening();
    }
    headers.remove(CHANNEL_BINDING);
    assert_eq!(verified(&headers, OPENING, SESSION), Err(SignatureError::Binding));
}

#[test]
fn what_it_covers_cannot_be_changed() {
    let headers = opening();
    for target in [
        Target { method: "POST", ..OPENING },
        Target { path: "/v1/agent/events", ..OPENING },
        Target { query: "x=1", ..OPENING },
    ] {
        assert_eq!(verified(&headers, target, SESSION), Err(SignatureError::Signature), "{target:?}");
    }
    let late = parse(&headers).unwrap().verify_opening(
        OPENING,
        &SESSION,
        &key().public(),
        NOW.plus(Duration::from_secs(61)),
    );
    assert!(matches!(late, Err(SignatureError::Skew { .. })), "{late:?}");
}

#[test]
fn neither_form_stands_in_for_the_other() {
    let headers = opening();
    let as_request = parse(&headers).unwrap().verify(OPENING, &key().public(), NOW);
    assert_eq!(as_request, Err(SignatureError::Missing), "an opening is no request");
    let signed = sign(OPENING, &node(), &key(), NOW, 42);
    let mut headers = HeaderMap::new();
    headers.insert(SIGNATURE_INPUT, HeaderValue::from_str(&signed.input).unwrap());
    headers.insert(SIGNATURE, HeaderValue::from_str(&signed.signature).unwrap());
    headers.insert(CHANNEL_BINDING, opening()[CHANNEL_BINDING].clone());
    assert_eq!(verified(&headers, OPENING, SESSION), Err(SignatureError::Missing), "a request opens nothing");
    assert!(!headers.contains_key(CONTENT_DIGEST));
}
