//! SEC-1: a secret is sealed once, wrapped for each of its nodes, and opened by those alone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::Hostname;
use trust::sealing::{
    LocalVault, MAX_SECRET, OpenSecretError, SealError, SealedSecret, SealingKey, SecretKeys, SecretSealer,
    open,
};
use trust::{RecipientKey, SigningKey};

fn sealer(seed: u8) -> SecretSealer {
    SecretSealer::of(&SigningKey::from_seed(&[seed; 32]))
}

fn key(of: u8) -> SealingKey {
    SealingKey::from_secret(&[of; 32]).unwrap()
}

fn host(name: &str) -> Hostname {
    name.parse().unwrap()
}

fn sealed(name: &str, value: &[u8], node: &str, to: &RecipientKey) -> (SealedSecret, SecretKeys) {
    let in_hand = sealer(1).seal(name, value).unwrap();
    let wraps = BTreeMap::from([(name.to_owned(), in_hand.wrap(&host(node), to).unwrap())]);
    (in_hand.sealed().clone(), SecretKeys { node: host(node), recipient: *to, wraps })
}

#[test]
fn its_node_opens_it_whatever_its_bytes() {
    let key = key(3);
    for value in [&b""[..], b"x", b"hunter2\n", &[0xff, 0, 0xfe], &[7; MAX_SECRET]] {
        let (secret, keys) = sealed("retail/tls", value, "web-1", &key.public());
        let opened = open(&key, &host("web-1"), &secret, Some(&keys)).unwrap();
        assert_eq!(opened.as_slice(), value);
        let travels = serde_json::to_string(&(&secret, &keys)).unwrap();
        assert!(value.len() < 4 || !travels.contains(&*String::from_utf8_lossy(value)));
    }
    let too_large = sealer(1).seal("a", &[0; MAX_SECRET + 1]).err();
    assert_eq!(too_large, Some(SealError::TooLarge { name: "a".into(), size: MAX_SECRET + 1 }));
}

#[test]
fn what_did_not_change_is_the_same_bytes_and_no_other() {
    let (a, b) = (key(3).public(), key(4).public());
    let one = |name: &str, value: &[u8], node: &str, to: &RecipientKey| sealed(name, value, node, to);
    let first = one("a", b"x", "web-1", &a);
    assert_eq!(first, one("a", b"x", "web-1", &a));
    assert_ne!(first.0, one("a", b"y", "web-1", &a).0, "another value");
    assert_ne!(
        first.0.sealed,
        one("b", b"x", "web-1", &a).0.sealed,
        "equal values of two secrets are not told"
    );
    // A key seals one value of one secret, as its nonce is fixed.
    for (other, name, value) in [("value", "a", b"y"), ("secret", "b", b"x")] {
        let other_key = one(name, value, "web-1", &a).0.commitment;
        assert_ne!(first.0.commitment, other_key, "another {other}: another key");
    }
    assert_eq!(first.0, one("a", b"x", "web-2", &b).0, "all nodes share what is sealed");
    assert_ne!(first.1.wraps, one("a", b"x", "web-1", &b).1.wraps);
    assert_ne!(first.1.wraps, one("a", b"x", "web-2", &a).1.wraps);
    assert_ne!(first.0, sealer(2).seal("a", b"x").unwrap().sealed().clone(), "another publisher's key");
}

#[test]
fn a_wrap_that_was_moved_opens_nothing() {
    let (mine, other) = (key(3), key(4));
    let (secret, keys) = sealed("a", b"x", "web-1", &mine.public());
    let refused = |key: &SealingKey, node: &str, secret: &SealedSecret, keys: &SecretKeys| {
        open(key, &host(node), secret, Some(keys)).unwrap_err()
    };
    assert_eq!(open(&mine, &host("web-1"), &secret, None).unwrap_err(), OpenSecretError::NoKeys);
    assert_eq!(refused(&mine, "web-2", &secret, &keys), OpenSecretError::OtherNode);
    assert_eq!(refused(&other, "web-1", &secret, &keys), OpenSecretError::OtherKey);
    // A control plane that writes anew whose keys they are, or swaps the wraps of two nodes or of two secrets.
    let renamed = SecretKeys { node: host("web-2"), ..keys.clone() };
    assert_eq!(refused(&mine, "web-2", &secret, &renamed), OpenSecretError::Wrap);
    let given = SecretKeys { recipient: other.public(), ..keys.clone() };
    assert_eq!(refused(&other, "web-1", &secret, &given), OpenSecretError::Wrap);
    let (_, of_other) = sealed("a", b"x", "web-1", &other.public());
    let swapped = SecretKeys { wraps: of_other.wraps, ..keys.clone() };
    assert_eq!(refused(&mine, "web-1", &secret, &swapped), OpenSecretError::Wrap);
    let (b, b_keys) = sealed("b", b"y", "web-1", &mine.public());
    let crossed =
        SecretKeys { wraps: BTreeMap::from([("b".into(), keys.wraps["a"].clone())]), ..b_keys.clone() };
    assert_eq!(refused(&mine, "web-1", &b, &crossed), OpenSecretError::Wrap);
    let older = sealed("a", b"before", "web-1", &mine.public()).1;
    assert_eq!(refused(&mine, "web-1", &secret, &older), OpenSecretError::Wrap, "a wrap of the value before");
    let renamed = SealedSecret { name: "b".into(), ..secret.clone() };
    let both = SecretKeys { wraps: BTreeMap::from([("b".into(), keys.wraps["a"].clone())]), ..keys.clone() };
    assert_eq!(refused(&mine, "web-1", &renamed, &both), OpenSecretError::Wrap);
    assert_eq!(refused(&mine, "web-1", &b, &keys), OpenSecretError::NoWrap);
    let committed = SealedSecret { commitment: b.commitment, ..secret.clone() };
    assert_eq!(refused(&mine, "web-1", &committed, &keys), OpenSecretError::Sealed);
    for sealed in ["", "AAAA", "!"] {
        let damaged = SealedSecret { sealed: sealed.into(), ..secret.clone() };
        assert!(open(&mine, &host("web-1"), &damaged, Some(&keys)).is_err(), "{sealed}");
    }
    for wrap in ["", "AAAA", "!"] {
        let damaged = SecretKeys { wraps: BTreeMap::from([("a".into(), wrap.into())]), ..keys.clone() };
        assert_eq!(refused(&mine, "web-1", &secret, &damaged), OpenSecretError::Form, "{wrap}");
    }
}

#[test]
fn keys_have_age_s_text_forms_and_are_not_printed() {
    let key = key(3);
    let text = key.to_file();
    assert!(text.contains("\nAGE-SECRET-KEY-1") && key.public().to_string().starts_with("age1"));
    assert_eq!(SealingKey::from_file(&text).unwrap().public(), key.public());
    assert_eq!(key.public().to_string().parse::<RecipientKey>().unwrap(), key.public());
    let json = serde_json::to_string(&key.public()).unwrap();
    assert_eq!(serde_json::from_str::<RecipientKey>(&json).unwrap(), key.public());
    for wrong in ["", "age1", "age1qqqq", &key.public().to_string().to_uppercase(), &text] {
        assert!(wrong.parse::<RecipientKey>().is_err(), "{wrong}");
    }
    let secret = text.lines().last().unwrap();
    assert!(!format!("{key:?} {:?}", LocalVault::of(&key)).contains(secret));
    assert!(SealingKey::from_file("AGE-SECRET-KEY-1QQQ").is_err());
    assert!(SealingKey::from_file(&format!("{}{}", *text, *text)).is_err(), "one key is one");
}

#[test]
fn a_vault_opens_what_it_sealed_and_nothing_else() {
    let vault = LocalVault::of(&key(3));
    let sealed = vault.seal(b"hunter2").unwrap();
    assert!(LocalVault::begins(&sealed) && !sealed.windows(7).any(|part| part == b"hunter2"));
    assert_eq!(vault.open(&sealed).unwrap().as_slice(), b"hunter2");
    assert_eq!(vault.seal(b"hunter2").unwrap(), sealed, "so that its digest is a keyed one");
    assert_ne!(LocalVault::of(&key(4)).seal(b"hunter2").unwrap(), sealed);
    assert!(LocalVault::of(&key(4)).open(&sealed).is_none() && vault.open(b"hunter2").is_none());
    assert!(vault.open(&sealed[..sealed.len() - 1]).is_none());
}
