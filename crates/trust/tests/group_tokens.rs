//! ENR-9: what a group token may say, whom it lets ask, and that it is taken for nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::{Digest, Timestamp};
use trust::group_token::{
    GroupAdmission, GroupClaims, GroupTermsError, MAX_GROUP_LABELS, MAX_GROUP_USES, MAX_LABEL_NAME,
    MAX_LABEL_VALUE, is_group_token, label, mint, peek, verify,
};
use trust::token::{self, KeySource, MAX_LIFE, TokenError};
use trust::{SigningKey, Slots};

const ISSUED: Timestamp = Timestamp::from_secs(1_800_000_000);

fn root() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}

fn slots() -> Slots {
    Slots::of(root().public())
}

fn claims() -> GroupClaims {
    GroupClaims {
        fleet: "acme-1".parse().unwrap(),
        pattern: "web-*".to_owned(),
        uses: 3,
        admission: GroupAdmission::ByOperator,
        labels: [("pool".to_owned(), "web".to_owned())].into(),
        key: KeySource::Own,
        issued_at: ISSUED,
        expires_at: ISSUED.plus(Duration::from_secs(3600)),
        nonce: "0f".repeat(16),
        servers: vec!["https://control.example.com:8443".to_owned()],
        ca: Digest::of(b"ca"),
        trust: Digest::of(b"trust"),
    }
}

#[test]
fn it_is_read_back_for_hosts_of_its_pattern() {
    let token = mint(&claims(), &root()).unwrap();
    assert!(is_group_token(&token) && is_group_token(&format!("\n{token}")));
    assert_eq!(peek(&token).unwrap(), claims());
    for (host, at, want) in [
        ("web-1", ISSUED, Ok(claims())),
        ("web-1", ISSUED.plus(Duration::from_secs(3660)), Ok(claims())),
        ("db-1", ISSUED, Err(TokenError::OtherGroup { pattern: "web-*".to_owned(), got: "db-1".to_owned() })),
        (
            "web-1.example.com",
            ISSUED,
            Err(TokenError::OtherGroup { pattern: "web-*".to_owned(), got: "web-1.example.com".to_owned() }),
        ),
    ] {
        assert_eq!(verify(&token, &slots(), host, at), want, "{host}");
    }
    let late = ISSUED.plus(Duration::from_secs(3661));
    assert!(matches!(verify(&token, &slots(), "web-1", late), Err(TokenError::Expired { .. })));
    let other = Slots::of(SigningKey::from_seed(&[2; 32]).public());
    assert_eq!(verify(&token, &other, "web-1", ISSUED), Err(TokenError::Forged));
    let rejecting = Slots { reject_before: Some(ISSUED.plus(Duration::from_secs(1))), ..slots() };
    assert_eq!(verify(&token, &rejecting, "web-1", ISSUED), Err(TokenError::Forged));
}

/// A pattern may match what is no hostname; a token of a changed program counts no more than one that is minted.
#[test]
fn a_signature_alone_is_not_enough() {
    let token = mint(&GroupClaims { pattern: "*".to_owned(), ..claims() }, &root()).unwrap();
    for odd in ["", "web_1", "-web", "WEB-1", "web-1\n"] {
        assert!(
            matches!(verify(&token, &slots(), odd, ISSUED), Err(TokenError::OtherGroup { .. })),
            "{odd:?}"
        );
    }
    let unminted = |claims: &GroupClaims| {
        let bytes = model::canonical::to_bytes(claims).unwrap();
        let signature = root().sign(&trust::signed::message("group-token", &bytes));
        let code = data_encoding::BASE64URL_NOPAD;
        format!("muster-group1.{}.{}", code.encode(&bytes), code.encode(&signature))
    };
    assert_eq!(verify(&unminted(&claims()), &slots(), "web-1", ISSUED), Ok(claims()));
    for uses in [0, MAX_GROUP_USES + 1] {
        let verified = verify(&unminted(&GroupClaims { uses, ..claims() }), &slots(), "web-1", ISSUED);
        assert_eq!(verified, Err(TokenError::Group(GroupTermsError::Uses)));
    }
    let long = GroupClaims { expires_at: ISSUED.plus(MAX_LIFE + Duration::from_secs(1)), ..claims() };
    assert_eq!(verify(&unminted(&long), &slots(), "web-1", ISSUED), Err(TokenError::TooLong));
}

/// Each bound as it stands is minted.
#[test]
fn terms_at_their_bounds_are_minted() {
    let many = (0..MAX_GROUP_LABELS).map(|n| (format!("l{n}"), String::new())).collect();
    let longest = [("n".repeat(MAX_LABEL_NAME), "v".repeat(MAX_LABEL_VALUE))].into();
    for labels in [many, longest] {
        mint(&GroupClaims { labels, uses: MAX_GROUP_USES, ..claims() }, &root()).unwrap();
    }
    let long = GroupClaims { uses: 1, expires_at: ISSUED.plus(MAX_LIFE), ..claims() };
    mint(&long, &root()).unwrap();
}

/// The claims are signed as what they are: put behind the other prefix they are forged.
#[test]
fn neither_sort_of_token_passes_for_the_other() {
    let group = mint(&claims(), &root()).unwrap();
    assert_eq!(token::peek(&group), Err(TokenError::NotAToken));
    let behind = group.replacen("muster-group1.", "muster1.", 1);
    assert!(token::peek(&behind).is_err());
    assert_eq!(peek("muster1.e30.AAAA"), Err(TokenError::NotAToken));
    for cut in ["m", "muster-", "muster-group1"] {
        assert_eq!(peek(cut), Err(TokenError::Truncated), "{cut}");
    }
}

#[test]
fn terms_beyond_their_bounds_are_not_minted() {
    let mint = |claims: &GroupClaims| mint(claims, &root()).unwrap_err();
    let labelled = |name: &str, value: &str| GroupClaims {
        labels: [(name.to_owned(), value.to_owned())].into(),
        ..claims()
    };
    for uses in [0, MAX_GROUP_USES + 1] {
        assert_eq!(mint(&GroupClaims { uses, ..claims() }), TokenError::Group(GroupTermsError::Uses));
    }
    for (name, value) in
        [("", "x"), ("a b", "x"), ("a", "x\ny"), (&"n".repeat(64), "x"), ("a", &"v".repeat(257))]
    {
        let refused = mint(&labelled(name, value));
        assert!(matches!(refused, TokenError::Group(GroupTermsError::Label(_))), "{name}: {refused}");
    }
    let many = (0..33).map(|number| (format!("l{number}"), String::new())).collect();
    assert_eq!(mint(&GroupClaims { labels: many, ..claims() }), TokenError::Group(GroupTermsError::Labels));
    let pattern = mint(&GroupClaims { pattern: "web 1".to_owned(), ..claims() });
    assert!(matches!(pattern, TokenError::Group(GroupTermsError::Pattern(_))), "{pattern}");
    let long = GroupClaims { expires_at: ISSUED.plus(MAX_LIFE + Duration::from_secs(1)), ..claims() };
    assert_eq!(mint(&long), TokenError::TooLong);
}

/// What a token leaves out means what it meant before the word was there.
#[test]
fn only_what_differs_is_written() {
    let admission = |admission| {
        let claims = GroupClaims { admission, ..claims() };
        serde_json::to_value(&claims).unwrap().get("admission").cloned()
    };
    assert_eq!(admission(GroupAdmission::ByOperator), None);
    assert_eq!(admission(GroupAdmission::ByToken), Some("by-token".into()));
    let read: GroupClaims = serde_json::from_value(serde_json::to_value(claims()).unwrap()).unwrap();
    assert_eq!(read, claims());
    for other in ["", "muster1.e30.AAAA", "group", "muster-group"] {
        assert!(!is_group_token(other), "{other}");
    }
}

#[test]
fn labels_are_read_as_they_are_typed() {
    assert_eq!(label("a.b_c-d/9=x"), Ok(("a.b_c-d/9".to_owned(), "x".to_owned())));
    assert_eq!(label("pool=web"), Ok(("pool".to_owned(), "web".to_owned())));
    assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
    for wrong in ["pool", "=web", "a b=c", "a=b\u{7}"] {
        assert_eq!(label(wrong), Err(GroupTermsError::Label(wrong.to_owned())));
    }
}
