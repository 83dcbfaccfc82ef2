//! WIR-1, design section 2: signed bytes have one reading; what could have two is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::canonical::{self, CanonicalError, MAX_DEPTH};
use proptest::prelude::*;
use serde_json::{Value, json};

fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn what_no_document_may_hold() {
    let too_deep = nested(MAX_DEPTH + 1);
    for (text, why) in [
        (r#"{"a":1,"a":2}"#, "duplicate key"),
        (r#"{"a":1,"\u0061":2}"#, "duplicate key"),
        (r#"{"x":{"b":true,"b":true}}"#, "duplicate key"),
        ("null", "null"),
        (r#"{"a":null}"#, "null"),
        ("[1,null]", "null"),
        ("1.5", "floating point"),
        ("1.0", "floating point"),
        ("1e3", "floating point"),
        ("-0", "floating point"),
        ("9007199254740992", "2^53"),
        ("-9007199254740992", "2^53"),
        ("18446744073709551615", "2^53"),
        ("123456789012345678901234567890", "floating point"),
        (too_deep.as_str(), "nested deeper"),
        ("{} {}", "trailing"),
        ("", "EOF"),
        ("{\"a\"", "EOF"),
        ("\"\\ud800\"", "hex escape"),
        ("[1,]", "trailing comma"),
    ] {
        for read in [canonical::parse::<Value>, canonical::parse_canonical::<Value>] {
            let Err(CanonicalError::NotAllowed(message)) = read(text.as_bytes()) else {
                panic!("{text} was not refused");
            };
            assert!(message.contains(why), "{text}: {message}");
        }
    }
    assert!(canonical::parse::<Value>(b"\"\xff\"").is_err(), "not UTF-8");
}

#[test]
fn depth_beyond_any_stack_is_refused() {
    let text = "[".repeat(200_000);
    assert!(canonical::parse::<Value>(text.as_bytes()).is_err());
}

#[test]
fn the_edges_are_within() {
    for text in ["9007199254740991", "-9007199254740991", "0", "true", "\"\"", "{}", "[]", &nested(MAX_DEPTH)]
    {
        let value: Value = canonical::parse_canonical(text.as_bytes()).unwrap();
        assert_eq!(canonical::to_bytes(&value).unwrap(), text.as_bytes());
    }
}

#[test]
fn another_form_of_the_same_is_not_canonical() {
    for text in [
        r#"{"b":1,"a":2}"#,
        r#"{"a": 1}"#,
        " {}",
        "{}\n",
        r#""\u0061""#,
        r#""\/""#,
        // RFC 8785 sorts by UTF-16 code units: U+1F600 begins with a surrogate, so it comes first.
        "{\"\u{fb33}\":1,\"\u{1f600}\":2}",
    ] {
        assert!(canonical::parse::<Value>(text.as_bytes()).is_ok(), "{text}");
        assert_eq!(
            canonical::parse_canonical::<Value>(text.as_bytes()).unwrap_err(),
            CanonicalError::NotCanonical,
            "{text}"
        );
    }
}

#[test]
fn a_value_without_canonical_form_is_refused() {
    for value in [json!(null), json!({"a": null}), json!(0.5), json!(1_u64 << 53), json!(i64::MIN)] {
        assert!(matches!(canonical::to_bytes(&value), Err(CanonicalError::NotAllowed(_))), "{value}");
    }
}

#[test]
fn another_shape_is_refused() {
    assert!(canonical::parse::<Vec<u8>>(b"{}").is_err());
    assert!(canonical::parse_canonical::<Vec<u8>>(b"{}").is_err());
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-9007199254740991_i64..=9007199254740991).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_bytes_read_back_and_are_the_only_form(value in values()) {
        let bytes = canonical::to_bytes(&value).unwrap();
        prop_assert_eq!(&canonical::parse_canonical::<Value>(&bytes).unwrap(), &value);
        let pretty = serde_json::to_vec_pretty(&value).unwrap();
        prop_assert_eq!(&canonical::parse::<Value>(&pretty).unwrap(), &value);
        prop_assert_eq!(canonical::parse_canonical::<Value>(&pretty).is_ok(), pretty == bytes);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = canonical::parse_canonical::<Value>(&bytes);
    }
}
