//! IDN-1, WIR-1: identifiers are checked when they are made; instants are RFC 3339 UTC.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::{Channel, Digest, Hostname, NodeId, ObjectKey, Timestamp};

#[test]
fn hostnames() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    for good in ["a", "edge-7", "web.eu.example", "7", &label, &longest] {
        assert_eq!(good.parse::<Hostname>().unwrap().as_str(), good);
    }
    let (long_label, long) = ("a".repeat(64), format!("{longest}a"));
    for bad in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "-a",
        "a-",
        "a.-b",
        "A",
        "a_b",
        "a b",
        "a/b",
        "ä",
        "a\n",
        "a\0",
        &long_label,
        &long,
    ] {
        assert!(bad.parse::<Hostname>().is_err(), "{bad:?}");
        assert!(serde_json::from_value::<Hostname>(bad.into()).is_err(), "{bad:?}");
    }
    let wild = "é".repeat(100_000);
    assert!(wild.parse::<Hostname>().unwrap_err().to_string().len() < 2000, "an error repeats little");
}

#[test]
fn names() {
    for (text, good) in [
        ("main", true),
        ("eu_2-b", true),
        ("2", true),
        (&*"a".repeat(100), true),
        (&*"a".repeat(101), false),
        ("", false),
        ("-a", false),
        ("_a", false),
        ("a.b", false),
        ("a/../b", false),
        ("Main", false),
    ] {
        assert_eq!(text.parse::<Channel>().is_ok(), good, "{text:?}");
    }
}

#[test]
fn a_node_id_is_its_keys() {
    let id = NodeId::of_key(&[7; 32]);
    assert_eq!(id.as_str().parse::<NodeId>().unwrap(), id);
    assert_ne!(id, NodeId::of_key(&[8; 32]));
    assert_eq!(id.as_str(), "n-9fc302282b8893e1551365423ed1d9b6", "ids are stored: they never change");
    for bad in [
        "",
        "n-",
        "n-12",
        &format!("N-{}", &id.as_str()[2..]),
        &format!("{id}0"),
        &id.as_str().to_uppercase(),
    ] {
        assert!(bad.parse::<NodeId>().is_err(), "{bad}");
    }
}

#[test]
fn digests() {
    let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(Digest::of(b"abc").to_string(), text);
    assert_eq!(Digest::of_parts([b"a".as_slice(), b"bc"]), text.parse().unwrap());
    for bad in ["", "ab", &text[1..], &text.to_uppercase(), &format!("{text}00"), &text.replace('b', "g")] {
        assert!(bad.parse::<Digest>().is_err(), "{bad}");
    }
}

#[test]
fn object_keys() {
    for text in ["Module//web", "Module/eu/web", "Params//a/b/c"] {
        assert_eq!(text.parse::<ObjectKey>().unwrap().to_string(), text);
    }
    for bad in ["", "Module", "Module/web", "//web", "Module//"] {
        assert!(bad.parse::<ObjectKey>().is_err(), "{bad}");
    }
}

#[test]
fn instants() {
    for (millis, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_248_000_123, "2026-11-21T08:00:00.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(Timestamp(millis).to_string(), text);
        assert_eq!(text.parse::<Timestamp>().unwrap(), Timestamp(millis));
        assert_eq!(serde_json::to_string(&Timestamp(millis)).unwrap(), format!("\"{text}\""));
    }
    assert_eq!("2026-11-21T09:00:00+01:00".parse::<Timestamp>().unwrap(), Timestamp(1_795_248_000_000));
    for bad in
        ["", "now", "2026-11-21", "2026-11-21T08:00:00", "2026-13-01T00:00:00Z", "99999-01-01T00:00:00Z"]
    {
        assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
    }
}

#[test]
fn a_wild_instant_prints_and_saturates() {
    for wild in [Timestamp(i64::MAX), Timestamp(i64::MIN), Timestamp::from_secs(1 << 40)] {
        assert_eq!(wild.to_string(), format!("{} ms from 1970", wild.0));
        assert!(serde_json::to_string(&wild).is_err());
    }
    let forever = Duration::MAX;
    assert_eq!(Timestamp(5).plus(forever), Timestamp(i64::MAX));
    assert_eq!(Timestamp(-5).minus(forever), Timestamp(i64::MIN));
    assert_eq!(Timestamp(i64::MIN).since(Timestamp(i64::MAX)), Duration::ZERO);
    assert_eq!(Timestamp(1500).since(Timestamp(500)), Duration::from_secs(1));
    assert_eq!((Timestamp(-1).secs(), Timestamp(1999).secs()), (-1, 1));
}
