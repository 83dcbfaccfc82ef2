//! IDN-4: every unary request is signed; whatever is covered and was changed is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use model::{FleetId, NodeId, Timestamp};
use trust::{KeyAlgorithm, SigningKey};
use wire::headers::{CONTENT_DIGEST, SIGNATURE, SIGNATURE_INPUT};
use wire::signature::{SignatureError, SignatureHeaders, SignedTarget, parse, sign};
use wire::sse::LAST_EVENT_ID;

const NOW: Timestamp = Timestamp(1_800_000_000_400);
const CHECKIN: SignedTarget<'_> = SignedTarget {
    method: "POST",
    path: "/v1/agent/checkin",
    query: "wait=30",
    body: b"{\"incarnation\":\"i1\"}",
    last_event_id: None,
};
const BLOB: SignedTarget<'_> =
    SignedTarget { method: "GET", path: "/v1/blobs/ab", query: "", body: b"", last_event_id: None };

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

fn fleet() -> FleetId {
    "demo".parse().unwrap()
}

fn node() -> NodeId {
    key().public().node_id()
}

fn signed(target: SignedTarget<'_>) -> SignatureHeaders {
    sign(target, &fleet(), &node(), &key(), NOW, 42)
}

fn headers(signed: &SignatureHeaders) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert(SIGNATURE_INPUT, HeaderValue::from_str(&signed.input).unwrap());
    map.insert(SIGNATURE, HeaderValue::from_str(&signed.signature).unwrap());
    if let Some(digest) = &signed.content_digest {
        map.insert(CONTENT_DIGEST, HeaderValue::from_str(digest).unwrap());
    }
    map
}

fn verified(
    signed: &SignatureHeaders,
    target: SignedTarget<'_>,
    now: Timestamp,
) -> Result<(), SignatureError> {
    under(&headers(signed), target, &key(), now)
}

fn under(
    headers: &HeaderMap,
    target: SignedTarget<'_>,
    key: &SigningKey,
    now: Timestamp,
) -> Result<(), SignatureError> {
    let uri = format!("{}?{}", target.path, target.query).parse().unwrap();
    let method = target.method.parse().unwrap();
    parse(headers)?.verify(&method, &uri, &fleet(), &key.public(), now)?.holds(target.body)
}

#[test]
fn with_and_without_a_body() {
    for target in [CHECKIN, BLOB, SignedTarget { query: "", ..CHECKIN }] {
        let signed = signed(target);
        assert_eq!(verified(&signed, target, NOW), Ok(()));
        assert_eq!(signed.content_digest.is_some(), !target.body.is_empty());
        let map = headers(&signed);
        let parsed = parse(&map).unwrap();
        assert_eq!((parsed.node, parsed.nonce), (node().as_str(), 42));
        assert_eq!(parsed.created, Timestamp::from_secs(NOW.secs()));
    }
}

/// The texts of RFC 9421 section 2.5, written out; other implementations can follow them.
#[test]
fn the_signature_base_to_the_letter() {
    let (node, signed) = (node(), signed(CHECKIN));
    let digest = "sha-256=:djRCZ/Bkum9LWW9RHJ0HpalJNVOQmTjphpxlc3wSxbI=:";
    let params = format!(
        r#"("@method" "@path" "@query" "content-digest");created=1800000000;nonce="000000000000002a";keyid="{node}";alg="ed25519";tag="demo""#
    );
    assert_eq!(signed.content_digest.as_deref(), Some(digest));
    assert_eq!(signed.input, format!("muster={params}"));
    let base = format!(
        "\"@method\": POST\n\"@path\": /v1/agent/checkin\n\"@query\": ?wait=30\n\"content-digest\": {digest}\n\"@signature-params\": {params}"
    );
    let signature = signed.signature.strip_prefix("muster=:").unwrap().strip_suffix(':').unwrap();
    let signature = data_encoding::BASE64.decode(signature.as_bytes()).unwrap();
    assert!(key().public().verifies(base.as_bytes(), &signature), "the base is another one:\n{base}");
    let bare = sign(BLOB, &fleet(), &node, &key(), NOW, u64::MAX);
    let params = format!(
        r#"("@method" "@path" "@query");created=1800000000;nonce="ffffffffffffffff";keyid="{node}";alg="ed25519";tag="demo""#
    );
    assert_eq!((bare.content_digest, bare.input), (None, format!("muster={params}")));
}

#[test]
fn every_covered_part_counts() {
    let signed = signed(CHECKIN);
    for (what, target, want) in [
        ("method", SignedTarget { method: "PUT", ..CHECKIN }, SignatureError::Signature),
        ("path", SignedTarget { path: "/v1/agent/report", ..CHECKIN }, SignatureError::Signature),
        ("query", SignedTarget { query: "wait=31", ..CHECKIN }, SignatureError::Signature),
        ("no query", SignedTarget { query: "", ..CHECKIN }, SignatureError::Signature),
        (
            "query moved into the path",
            SignedTarget { path: "/v1/agent/checkin%3Fwait=30", query: "", ..CHECKIN },
            SignatureError::Signature,
        ),
        ("body", SignedTarget { body: b"{\"incarnation\":\"i2\"}", ..CHECKIN }, SignatureError::Digest),
        ("body cut", SignedTarget { body: &CHECKIN.body[1..], ..CHECKIN }, SignatureError::Digest),
        ("no body", SignedTarget { body: b"", ..CHECKIN }, SignatureError::Coverage),
    ] {
        assert_eq!(verified(&signed, target, NOW), Err(want), "{what}");
    }
    let with_body = SignedTarget { body: b"smuggled", ..BLOB };
    assert_eq!(
        verified(&self::signed(BLOB), with_body, NOW),
        Err(SignatureError::Coverage),
        "a body that is not covered"
    );
}

#[test]
fn every_parameter_counts() {
    let good = signed(CHECKIN);
    let change =
        |from: &str, to: &str| SignatureHeaders { input: good.input.replacen(from, to, 1), ..good.clone() };
    let other_body = SignedTarget { body: b"other", ..CHECKIN };
    let other_digest = SignatureHeaders { content_digest: signed(other_body).content_digest, ..good.clone() };
    assert_eq!(verified(&other_digest, other_body, NOW), Err(SignatureError::Signature), "body and digest");
    let none = SignatureHeaders { content_digest: None, ..good.clone() };
    assert_eq!(verified(&none, CHECKIN, NOW), Err(SignatureError::Digest));
    for (what, changed, want) in [
        ("time", change("created=1800000000", "created=1800000001"), SignatureError::Signature),
        ("nonce", change("2a\"", "2b\""), SignatureError::Signature),
        ("node", change("keyid=\"n-", "keyid=\"m-"), SignatureError::Signature),
        ("algorithm", change("ed25519", "hmac-sha256"), SignatureError::Form),
        ("fewer parts", change(" \"content-digest\"", ""), SignatureError::Signature),
        ("other parts", change("@query", "@target-uri"), SignatureError::Form),
        ("another fleet", change("tag=\"demo", "tag=\"other"), SignatureError::Signature),
        ("no fleet", change(";tag=\"demo\"", ""), SignatureError::Form),
        ("another label", change("muster=", "sig1="), SignatureError::Form),
        ("short nonce", change("000000000000002a", "2a"), SignatureError::Form),
        ("no number", change("1800000000", "soon"), SignatureError::Form),
        ("a wild time", change("1800000000", "99999999999999999"), SignatureError::Form),
        (
            "something after",
            SignatureHeaders { input: format!("{};x=1", good.input), ..good.clone() },
            SignatureError::Form,
        ),
    ] {
        assert_eq!(verified(&changed, CHECKIN, NOW), Err(want), "{what}");
    }
}

/// One key may be in two fleets: what it signed for one is nothing to the other.
#[test]
fn a_request_to_another_fleet_is_refused() {
    let other = sign(CHECKIN, &"other".parse().unwrap(), &node(), &key(), NOW, 42);
    assert_eq!(verified(&other, CHECKIN, NOW), Err(SignatureError::Fleet));
}

/// Where a stream goes on is the node's word, and not that of a proxy between.
#[test]
fn the_last_event_id_counts() {
    let stream = SignedTarget { last_event_id: Some("i1.5"), ..BLOB };
    let (with, without) = (signed(stream), signed(BLOB));
    let sent = |signed: &SignatureHeaders, id: Option<&str>| {
        let mut map = headers(signed);
        id.map(|id| map.insert(LAST_EVENT_ID, HeaderValue::from_str(id).unwrap()));
        under(&map, BLOB, &key(), NOW)
    };
    assert_eq!(sent(&with, Some("i1.5")), Ok(()));
    assert_eq!(sent(&with, Some("i1.6")), Err(SignatureError::Signature), "another");
    assert_eq!(sent(&with, None), Err(SignatureError::Coverage), "taken away");
    assert_eq!(sent(&without, Some("i1.5")), Err(SignatureError::Coverage), "put in");
    let long = format!("i1.{}5", "0".repeat(2000));
    assert_eq!(sent(&without, Some(&long)), Err(SignatureError::Form), "put in, too long to be read");
    assert_eq!(sent(&without, None), Ok(()));
}

#[test]
fn another_key_s_signature_is_refused() {
    let signed = sign(CHECKIN, &fleet(), &node(), &SigningKey::from_seed(&[8; 32]), NOW, 42);
    assert_eq!(verified(&signed, CHECKIN, NOW), Err(SignatureError::Signature));
}

#[test]
fn every_flipped_bit_of_the_signature_is_refused() {
    let good = signed(CHECKIN);
    for bit in 0..good.signature.len() * 8 {
        let mut bytes = good.signature.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut map = headers(&good);
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { continue };
        map.insert(SIGNATURE, value);
        assert!(under(&map, CHECKIN, &key(), NOW).is_err(), "bit {bit}");
    }
}

#[test]
fn sixty_seconds_of_skew_and_no_more() {
    let signed = signed(CHECKIN);
    for (secs, good) in [(0, true), (59, true), (60, true), (61, false), (3600, false)] {
        let off = Duration::from_secs(secs);
        for now in [NOW.plus(off), NOW.minus(off)] {
            let created = Timestamp::from_secs(NOW.secs());
            let want = if good { Ok(()) } else { Err(SignatureError::Skew { created, now }) };
            assert_eq!(verified(&signed, CHECKIN, now), want, "{secs} s");
        }
    }
}

#[test]
fn a_wild_time_under_a_good_signature_is_only_refused() {
    for created in [1 << 40, -(1 << 40), i64::from(i32::MAX)] {
        let signed = sign(CHECKIN, &fleet(), &node(), &key(), Timestamp::from_secs(created), 1);
        let refused = verified(&signed, CHECKIN, NOW).unwrap_err();
        // The message is made for the problem that goes back.
        assert!(refused.to_string().contains("more than 60 s"), "{refused}");
    }
}

#[test]
fn missing_or_overlong_headers_are_no_signature() {
    let good = headers(&signed(CHECKIN));
    assert_eq!(parse(&HeaderMap::new()).err(), Some(SignatureError::Missing));
    for name in [SIGNATURE, SIGNATURE_INPUT] {
        let mut map = good.clone();
        map.remove(name);
        assert_eq!(parse(&map).err(), Some(SignatureError::Missing), "without {name}");
        let long = format!("{}{}", good[name].to_str().unwrap(), " ".repeat(2000));
        map.insert(name, HeaderValue::from_str(&long).unwrap());
        assert_eq!(parse(&map).err(), Some(SignatureError::Form), "a long {name}");
        map.insert(name, HeaderValue::from_bytes(b"muster=\xff").unwrap());
        assert_eq!(parse(&map).err(), Some(SignatureError::Form), "{name} that is no text");
    }
}

/// IDN-1: the key on record says which algorithm counts; `alg` must agree and chooses nothing.
#[test]
fn either_algorithm_but_only_the_key_s_own() {
    let other = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[7; 32]).unwrap();
    let signed = sign(CHECKIN, &fleet(), &node(), &other, NOW, 42);
    assert!(signed.input.ends_with(";alg=\"ecdsa-p256-sha256\";tag=\"demo\""), "{}", signed.input);
    let verdict = |signed: &SignatureHeaders, key: &SigningKey| under(&headers(signed), CHECKIN, key, NOW);
    assert_eq!(verdict(&signed, &other), Ok(()));
    assert_eq!(verdict(&signed, &key()), Err(SignatureError::Signature), "under the other key's id");
    let mut renamed = signed.clone();
    renamed.input = renamed.input.replace("ecdsa-p256-sha256", "ed25519");
    assert_eq!(verdict(&renamed, &other), Err(SignatureError::Signature));
    assert_eq!(verdict(&renamed, &key()), Err(SignatureError::Signature));
    for alg in ["rsa-pss-sha512", "ecdsa-p256", "", "ed25519\";x=\"1"] {
        let mut odd = signed.clone();
        odd.input = odd.input.replace("ecdsa-p256-sha256", alg);
        assert_eq!(verdict(&odd, &other), Err(SignatureError::Form), "{alg}");
    }
}
