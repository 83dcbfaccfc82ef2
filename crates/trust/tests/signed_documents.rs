//! IDN-8, ROL-2: a document counts under a key in its slots, as the sort that was signed, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, beacon, header, key, release_key, signed};
use model::Timestamp;
use model::exchange::{Signature, Signed};
use serde::{Deserialize, Serialize};
use trust::signed::{
    Document, MAX_DOCUMENT, MAX_SIGNATURES, UnsignedDocument, VerifyError, message, sign, signature, signers,
    verify,
};
use trust::{Beacon, Header, KeyAlgorithm, PublicKey, Slots};

fn slots() -> Slots {
    Slots::of(release_key().public())
}

/// Bytes of our choice under a good signature.
fn signed_bytes(kind: &str, payload: &str) -> Signed {
    let sig = data_encoding::BASE64.encode(&release_key().sign(&message(kind, payload.as_bytes())));
    Signed {
        payload: payload.to_owned(),
        signatures: vec![Signature { key: release_key().public().id(), sig }],
    }
}

#[test]
fn what_was_signed_is_what_is_read() {
    assert_eq!(verify::<Header>(&signed(&header(5)), &slots()).unwrap(), header(5));
}

/// A document that reads exactly as a header does, and is of another sort.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Lookalike(Header);

impl Document for Lookalike {
    const TYPE: &'static str = "release-headers";

    fn signed_at(&self) -> Timestamp {
        self.0.created
    }
}

#[test]
fn one_sort_never_passes_for_another() {
    let lookalike = sign(&Lookalike(header(5)), &[&release_key()]).unwrap();
    assert_eq!(lookalike.payload, signed(&header(5)).payload);
    assert!(verify::<Lookalike>(&lookalike, &slots()).is_ok());
    assert_eq!(verify::<Header>(&lookalike, &slots()), Err(VerifyError::Untrusted));
    let beacon = sign(&beacon(&header(5), CREATED), &[&release_key()]).unwrap();
    assert_eq!(verify::<Header>(&beacon, &slots()), Err(VerifyError::Untrusted));
    assert_eq!(verify::<Beacon>(&signed(&header(5)), &slots()), Err(VerifyError::Untrusted));
    // Without lengths, "ab" + "c" would be "a" + "bc".
    assert_ne!(message("ab", b"c"), message("a", b"bc"));
}

#[test]
fn slots_say_whose_signature_counts() {
    let (old, new, other) = (release_key(), key(3), key(9));
    let slots = |previous: bool, reject_before| Slots {
        current: new.public(),
        previous: previous.then(|| old.public()),
        reject_before,
    };
    let by = |keys: &[_]| sign(&header(5), keys).unwrap();
    let second = Duration::from_secs(1);
    for (what, document, slots, want) in [
        ("the current key", by(&[&new]), slots(false, None), None),
        ("the previous key", by(&[&old]), slots(true, None), None),
        ("a key that was let go", by(&[&old]), slots(false, None), Some(VerifyError::Untrusted)),
        ("an unknown key", by(&[&other]), slots(true, None), Some(VerifyError::Untrusted)),
        ("an unknown one and a good one", by(&[&other, &old]), slots(true, None), None),
        ("signed at the limit", by(&[&new]), slots(true, Some(CREATED)), None),
        (
            "signed before the limit",
            by(&[&new, &old]),
            slots(true, Some(CREATED.plus(second))),
            Some(VerifyError::RejectedBefore(CREATED.plus(second))),
        ),
        ("nobody", by(&[]), slots(true, None), Some(VerifyError::Unsigned)),
    ] {
        assert_eq!(verify::<Header>(&document, &slots).err(), want, "{what}");
    }
}

#[test]
fn a_good_signature_over_bad_bytes() {
    let good = signed(&header(5)).payload;
    let spaced = good.replacen(':', ": ", 1);
    let twice = good.replacen('{', r#"{"seq":9,"#, 1);
    let long = format!("\"{}\"", "a".repeat(MAX_DOCUMENT));
    for (what, payload) in [
        ("spaces", &*spaced),
        ("a key twice", &*twice),
        ("no header", "{}"),
        ("no JSON", "{"),
        ("nothing", ""),
    ] {
        let verdict = verify::<Header>(&signed_bytes("release-header", payload), &slots());
        assert!(matches!(verdict, Err(VerifyError::Malformed(_))), "{what}: {verdict:?}");
    }
    let verdict = verify::<Header>(&signed_bytes("release-header", &long), &slots());
    assert_eq!(verdict, Err(VerifyError::TooLarge));
}

/// Each bound as it stands.
#[test]
fn bounds_are_kept_to_the_last() {
    let longest = format!("\"{}\"", "a".repeat(MAX_DOCUMENT - 2));
    let verdict = verify::<Header>(&signed_bytes("release-header", &longest), &slots());
    assert!(matches!(verdict, Err(VerifyError::Malformed(_))), "{verdict:?}");
    let mut many = signed(&header(5));
    many.signatures = vec![many.signatures[0].clone(); MAX_SIGNATURES];
    assert_eq!(verify::<Header>(&many, &slots()), Ok(header(5)));
    many.signatures.push(many.signatures[0].clone());
    assert_eq!(verify::<Header>(&many, &slots()), Err(VerifyError::TooLarge));
}

/// A signature that was made elsewhere is taken only if the key made it.
#[test]
fn signatures_are_put_together_by_who_made_them() {
    let (key, unsigned) = (release_key(), UnsignedDocument::of(&header(5)).unwrap());
    let sig = key.sign(unsigned.message());
    assert_eq!(signature(&common::key(9).public(), unsigned.message(), &sig), None);
    let made = signature(&key.public(), unsigned.message(), &sig).unwrap();
    let document = unsigned.signed(vec![made]);
    assert_eq!(document, signed(&header(5)));
    assert_eq!(signers::<Header>(&document, &slots()), [&key.public()]);
    assert_eq!(signers::<Beacon>(&document, &slots()), Vec::<&PublicKey>::new());
    assert_eq!(signers::<Header>(&document, &Slots::of(common::key(9).public())), Vec::<&PublicKey>::new());
}

#[test]
fn a_later_version_s_fields_do_not_break_the_signature() {
    let payload = signed(&header(5)).payload;
    let newer = payload.replacen(",\"ref\"", ",\"notYetKnown\":{\"a\":[1]},\"ref\"", 1);
    assert_ne!(payload, newer);
    assert_eq!(verify::<Header>(&signed_bytes("release-header", &newer), &slots()), Ok(header(5)));
}

/// The order of the curve's base point, little endian.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

#[test]
fn a_malleable_signature_is_refused() {
    let key = release_key();
    let mut signature = key.sign(b"message");
    assert!(key.public().verifies(b"message", &signature));
    // s + the group's order satisfies the bare equation as s does.
    let mut carry = 0;
    for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    assert!(!key.public().verifies(b"message", &signature));
}

#[test]
fn weak_and_malformed_keys_are_refused() {
    let mut identity = [0; 32];
    identity[0] = 1;
    let mut order_four = [0; 32];
    order_four[31] = 0x80;
    for (what, bytes) in [
        ("the identity", identity),
        ("of order two", minus_one()),
        ("of order four", [0; 32]),
        ("of order four", order_four),
        ("not on the curve", [2; 32]),
    ] {
        assert!(PublicKey::from_raw(KeyAlgorithm::Ed25519, &bytes).is_err(), "{what}");
        let text = format!("ed25519:{}", data_encoding::BASE64.encode(&bytes));
        assert!(text.parse::<PublicKey>().is_err(), "{what}");
    }
    let good = release_key().public();
    assert_eq!(good.to_string().parse::<PublicKey>().unwrap(), good);
    let text = good.to_string();
    for bad in ["", "ed25519:", "rsa:AAAA", &text[8..], &text[..text.len() - 1], &format!("{text}=")] {
        assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
    }
}

fn minus_one() -> [u8; 32] {
    let mut bytes = [0xff; 32];
    (bytes[0], bytes[31]) = (0xec, 0x7f);
    bytes
}

#[test]
fn signatures_of_any_length_are_only_refused() {
    let key = release_key();
    let good = key.sign(b"message");
    for length in 0..=128 {
        let mut signature = good.to_vec();
        signature.resize(length, 0);
        assert_eq!(key.public().verifies(b"message", &signature), length == 64);
    }
}
