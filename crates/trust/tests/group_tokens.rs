//! ENR-9: what a group token may say, whom it lets ask, and that it is taken for nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::{Digest, Timestamp};
use trust::group_token::{
    GroupAdmission, GroupClaims, GroupTermsError, MAX_GROUP_USES, is_group_token, label, mint, peek, verify,
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

#[test]
fn labels_are_read_as_they_are_typed() {
    assert_eq!(label("pool=web"), Ok(("pool".to_owned(), "web".to_owned())));
    assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
    for wrong in ["pool", "=web", "a b=c", "a=b\u{7}"] {
        assert_eq!(label(wrong), Err(GroupTermsError::Label(wrong.to_owned())));
    }
}
