//! WIR-1, WIR-2: every refusal has a stable code, a sane status and a way out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue};
use wire::headers::{AGENT_VERSION_HEADER, PROTOCOL_HEADER, VersionCheck, version};
use wire::problem::RETRY_AFTER_SECS;
use wire::{BodyError, Code, Problem};

#[test]
fn codes_are_unique_and_explained() {
    let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes.len(), Code::ALL.len());
    for code in Code::ALL {
        let text = code.as_str();
        assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !text.is_empty(), "{text}");
        assert!((400..=599).contains(&code.status()), "{text}: {}", code.status());
        assert!(http::StatusCode::from_u16(code.status()).unwrap().canonical_reason().is_some(), "{text}");
        assert!(code.title().len() > 10 && !code.title().ends_with('.'), "{text}: {}", code.title());
        assert!(code.help().len() > 20 && code.help().ends_with('.'), "{text}: {}", code.help());
    }
}

/// Codes are promised: this list only grows.
#[test]
fn codes_never_change_their_meaning() {
    let known: Vec<(&str, u16)> = Code::ALL.iter().map(|code| (code.as_str(), code.status())).collect();
    for promised in [
        ("protocol-version", 400),
        ("agent-too-old", 400),
        ("bad-body", 400),
        ("body-too-large", 413),
        ("media-type", 415),
        ("unsigned", 401),
        ("bad-signature", 401),
        ("bad-digest", 401),
        ("clock-skew", 401),
        ("replayed", 401),
        ("certificate-required", 401),
        ("operator-required", 401),
        ("operator-refused", 401),
        ("role-required", 403),
        ("outside-scope", 403),
        ("other-node", 403),
        ("not-found", 404),
        ("token-malformed", 400),
        ("token-forged", 401),
        ("token-expired", 401),
        ("token-other-host", 403),
        ("token-other-key", 403),
        ("token-unbound", 403),
        ("token-used", 409),
        ("own-name", 422),
        ("not-ready", 503),
        ("busy", 503),
    ] {
        assert!(known.contains(&promised), "{promised:?}");
    }
}

#[test]
fn a_problem_on_the_wire() {
    let mut problem = Problem::new(Code::TokenUsed, "burned at noon");
    problem.request_id = Some("r-1".to_owned());
    assert_eq!(
        serde_json::to_string(&problem).unwrap(),
        r#"{"title":"The token was used","status":409,"code":"token-used","detail":"burned at noon","help":"Each token enrolls one node once. Mint a new one. If it was not this host that used it, somebody else did: `muster node list` shows the node, `muster node revoke HOSTNAME` puts it out.","requestId":"r-1"}"#
    );
    assert_eq!(problem.to_string(), "The token was used (token-used): burned at noon");
    assert_eq!(Problem::from(Code::TokenUsed).to_string(), "The token was used (token-used)");
    let later =
        serde_json::from_str::<Problem>(r#"{"title":"New","status":418,"code":"not-known-yet","x":1}"#)
            .unwrap();
    assert_eq!(later.code, "not-known-yet");
}

#[test]
fn only_what_passes_says_when_to_retry() {
    for code in Code::ALL {
        let retry = Problem::from(*code).retry_after_secs;
        assert_eq!(retry, (code.status() == 503).then_some(RETRY_AFTER_SECS), "{}", code.as_str());
    }
}

#[test]
fn each_bad_body_and_token_has_its_code() {
    for (error, code) in [
        (BodyError::TooLarge { limit: 5 }, Code::BodyTooLarge),
        (BodyError::Compression, Code::BadBody),
        (BodyError::Coding("br".to_owned()), Code::MediaType),
        (BodyError::Json("line 1".to_owned()), Code::BadBody),
    ] {
        assert_eq!(Problem::from(error).code, code.as_str());
    }
    use trust::token::TokenError as E;
    let time = model::Timestamp(0);
    let other_host = E::OtherHost { expected: "web-1".parse().unwrap(), got: "db-1".to_owned() };
    for (error, code) in [
        (E::NotAToken, Code::TokenMalformed),
        (E::Truncated, Code::TokenMalformed),
        (E::Forged, Code::TokenForged),
        (E::TooLong, Code::TokenForged),
        (E::Expired { at: time, now: time }, Code::TokenExpired),
        (E::FutureDated { at: time, now: time }, Code::TokenExpired),
        (other_host, Code::TokenOtherHost),
        (E::OtherKey, Code::TokenOtherKey),
    ] {
        assert_eq!(Problem::from(error).code, code.as_str());
    }
}

#[test]
fn versions_that_fit() {
    for (protocol, agent, want) in [
        (Some("1"), Some("0.1.0"), VersionCheck::Fits),
        (Some("1"), Some("7.0.0-rc1+x"), VersionCheck::Fits),
        (Some("1"), None, VersionCheck::Fits),
        (Some("1"), Some("unreadable"), VersionCheck::Fits),
        (Some("1"), Some("0.0.9"), VersionCheck::TooOld),
        (Some("2"), Some("0.1.0"), VersionCheck::OtherProtocol),
        (Some(""), None, VersionCheck::OtherProtocol),
        (None, Some("0.1.0"), VersionCheck::OtherProtocol),
    ] {
        let mut headers = HeaderMap::new();
        for (name, value) in [(PROTOCOL_HEADER, protocol), (AGENT_VERSION_HEADER, agent)] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        assert_eq!(version(&headers), want, "{protocol:?} {agent:?}");
    }
}
