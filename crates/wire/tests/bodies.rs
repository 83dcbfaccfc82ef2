//! WIR-1, WIR-6: bodies are bounded, whatever they unpack to; unknown fields are ignored, absent is not null.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::exchange::{Answer, CheckIn, HeldRelease, RunNote, TraitReport};
use model::log::{Cursor, Fact, FactBody};
use model::rollout::{RolloutDispatch, RolloutTask};
use model::tags::TaggedRun;
use model::{Action, Digest, ResourceReport, RunCounts, RunReport, Timestamp};
use proptest::option;
use proptest::prelude::*;
use wire::BodyError;
use wire::body::{COMPRESS_FROM, GZIP, MAX_NODE_BODY, compress, decode, encode, unpack};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_bound_holds_as_sent_and_as_unpacked() {
    for size in [0, 1, 4096, 4097, 100_000] {
        let plain = vec![b'x'; size];
        let want = if size <= 4096 { Ok(plain.clone()) } else { Err(BodyError::TooLarge { limit: 4096 }) };
        assert_eq!(unpack(plain.clone(), None, 4096), want, "{size} plain");
        assert_eq!(unpack(plain.clone(), Some("identity"), 4096), want, "{size} identity");
        assert_eq!(unpack(gzip(&plain), Some(GZIP), 4096), want, "{size} packed");
    }
    let hundred_mib = vec![b' '; 100 * 1024 * 1024];
    assert_eq!(unpack(hundred_mib, None, MAX_NODE_BODY), Err(BodyError::TooLarge { limit: MAX_NODE_BODY }));
}

#[test]
fn a_bomb_costs_no_more_than_the_bound() {
    let bomb = gibibyte_of_zeros();
    assert!(bomb.len() < 2 * 1024 * 1024, "{}", bomb.len());
    // A bound that cannot hold more than it allows: reading on would allocate, and take long.
    for limit in [0, 1000, MAX_NODE_BODY] {
        let refused = unpack(bomb.clone(), Some(GZIP), limit);
        assert_eq!(refused, Err(BodyError::TooLarge { limit }));
    }
    // Packed once more it is a few KiB; a coding is undone once, not for as long as it unpacks.
    let twice = gzip(&bomb);
    assert!(twice.len() < 32 * 1024, "{}", twice.len());
    assert_eq!(unpack(twice, Some(GZIP), 2 * 1024 * 1024).unwrap(), bomb);
}

/// A piece that unpacks to a MiB of zeros after zeros, a thousand times over.
fn gibibyte_of_zeros() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1024 * 1024];
    let mut write = || {
        encoder.write_all(&zeros).unwrap();
        encoder.flush().unwrap();
        encoder.get_ref().len()
    };
    let (first, second) = (write(), write());
    let bytes = encoder.get_ref();
    [&bytes[..first], &bytes[first..second].repeat(1023)].concat()
}

#[test]
fn cut_off_or_not_gzip() {
    let whole = gzip(&vec![b'x'; 5000]);
    for length in 0..whole.len() {
        assert_eq!(
            unpack(whole[..length].to_vec(), Some(GZIP), MAX_NODE_BODY),
            Err(BodyError::Compression),
            "{length}"
        );
    }
    assert_eq!(unpack(b"{}".to_vec(), Some(GZIP), MAX_NODE_BODY), Err(BodyError::Compression));
    let mut flipped = whole.clone();
    let last = flipped.len() - 5;
    flipped[last] ^= 1;
    assert_eq!(
        unpack(flipped, Some(GZIP), MAX_NODE_BODY),
        Err(BodyError::Compression),
        "the checksum counts"
    );
}

#[test]
fn other_codings_are_named() {
    for coding in ["br", "zstd", "deflate", "gzip, gzip", "GZIP ", ""] {
        assert_eq!(unpack(b"{}".to_vec(), Some(coding), 100), Err(BodyError::Coding(coding.to_owned())));
    }
    let long = "x".repeat(10_000);
    assert_eq!(unpack(vec![], Some(&long), 100), Err(BodyError::Coding("x".repeat(40))));
}

#[test]
fn small_bodies_are_not_packed() {
    assert_eq!(compress(&vec![b'x'; COMPRESS_FROM - 1]), None);
    let long = vec![b'x'; COMPRESS_FROM];
    assert_eq!(unpack(compress(&long).unwrap(), Some(GZIP), COMPRESS_FROM), Ok(long.clone()));
    let noise: Vec<u8> = (0..200_u32).flat_map(|i| Digest::of(&i.to_be_bytes()).0).collect();
    assert_eq!(compress(&noise), None, "what does not get shorter is sent as it is");
}

#[test]
fn truncated_json_is_refused_at_every_length() {
    let whole = encode(&check_in()).unwrap();
    for length in 0..whole.len() {
        assert!(matches!(decode::<CheckIn>(&whole[..length]), Err(BodyError::Json(_))), "{length}");
    }
    assert!(matches!(decode::<CheckIn>(&"[".repeat(100_000).into_bytes()), Err(BodyError::Json(_))));
}

fn check_in() -> CheckIn {
    CheckIn {
        held: None,
        incarnation: "i1".parse().unwrap(),
        facts: vec![Fact { seq: 1, at: Timestamp(0), body: FactBody::Repaired { message: "x".to_owned() } }],
        run: None,
        unmade_run: None,
        freshness: None,
        running_since: None,
        traits: None,
        full: false,
        run_confirmed: None,
        tagged_run_confirmed: None,
        seen: None,
        header: None,
        acked: None,
        trust: None,
        renewal_failure: None,
        unadopted: None,
        instance: None,
        capabilities: None,
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let text = r#"{"incarnation":"i1","facts":[{"seq":1,"at":"1970-01-01T00:00:00Z","new":{"a":[null]},
        "body":{"kind":"repaired","message":"x","since":3}}],"later":null}"#;
    assert_eq!(decode::<CheckIn>(text.as_bytes()).unwrap(), check_in());
    assert_eq!(
        String::from_utf8(encode(&check_in()).unwrap()).unwrap(),
        r#"{"incarnation":"i1","facts":[{"seq":1,"at":"1970-01-01T00:00:00Z","body":{"kind":"repaired","message":"x"}}]}"#
    );
}

fn digests() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn instants() -> impl Strategy<Value = Timestamp> {
    (0..4_000_000_000_000_i64).prop_map(Timestamp)
}

fn reports() -> impl Strategy<Value = RunReport> {
    let item = (option::of(".{0,20}"), any::<u64>()).prop_map(|(reason, duration_ms)| ResourceReport {
        resource: "web/file:/etc/motd".to_owned(),
        action: Action::Failed,
        edit: None,
        reason,
        cause: None,
        duration_ms,
    });
    let items = (prop::collection::vec(item, 0..3), prop::collection::vec("[a-z]{1,9}", 0..3));
    (instants(), any::<u64>(), digests(), any::<bool>(), items).prop_map(
        |(started, seq, root, intended, (items, unknown_tags))| RunReport {
            started,
            duration_ms: 1,
            seq,
            root,
            intended,
            paused: None,
            partial: None,
            unknown_tags,
            unswitched: Vec::new(),
            counts: RunCounts::default(),
            items,
        },
    )
}

fn facts() -> impl Strategy<Value = Fact> {
    let body = prop_oneof![
        reports().prop_map(FactBody::Run),
        (any::<u64>(), digests(), digests()).prop_map(|(seq, header, root)| FactBody::Adopted {
            seq,
            header,
            root
        }),
        (".{0,9}", ".{0,20}").prop_map(|(code, message)| FactBody::Refused { code, message }),
        (".{0,9}", ".{0,20}").prop_map(|(version, boot_id)| FactBody::Started {
            version,
            boot_id,
            invocation: None,
            cut_off_run: None,
        }),
        ".{0,20}".prop_map(|message| FactBody::Repaired { message }),
        (".{0,9}", ".{0,20}").prop_map(|(reason, window)| FactBody::Rebooting { reason, window }),
        ".{0,20}".prop_map(|reason| FactBody::NotRebooted { reason }),
    ];
    (any::<u64>(), instants(), body).prop_map(|(seq, at, body)| Fact { seq, at, body })
}

fn check_ins() -> impl Strategy<Value = CheckIn> {
    let held = (any::<u64>(), digests(), digests()).prop_map(|(seq, header, root)| HeldRelease {
        channel: "main".parse().unwrap(),
        seq,
        header,
        root,
    });
    let run = (instants(), digests()).prop_map(|(at, outcome)| RunNote { at, outcome });
    let traits = digests()
        .prop_map(|digest| TraitReport::whole(digest, serde_json::json!({"os": {"family": "debian"}})));
    let rest = (any::<bool>(), option::of(any::<u64>()), option::of(any::<u64>()));
    (option::of(held), prop::collection::vec(facts(), 0..4), option::of(run), option::of(traits), rest)
        .prop_map(|(held, facts, run, traits, (full, run_confirmed, tagged_run_confirmed))| CheckIn {
            held,
            facts,
            run,
            traits,
            full,
            run_confirmed,
            tagged_run_confirmed,
            ..check_in()
        })
}

fn answers() -> impl Strategy<Value = Answer> {
    let acked = any::<u64>().prop_map(|seq| Cursor { incarnation: "i1".parse().unwrap(), seq });
    let tags = prop::collection::btree_set("[a-z0-9_-]{1,9}", 1..4);
    let tagged = (any::<u64>(), tags).prop_map(|(number, tags)| TaggedRun { number, tags });
    let requests = (option::of(any::<u64>()), option::of(tagged));
    (any::<u64>(), option::of(acked), requests, any::<bool>(), any::<bool>()).prop_map(
        |(next_checkin_secs, acked, (run_request, tagged_run), stream_requested, want_traits)| Answer {
            want_seen: !want_traits,
            want_header: false,
            want_run: false,
            unassigned: false,
            same_cause: Default::default(),
            server_time: want_traits.then_some(model::Timestamp::from_secs(1_800_000_000)),
            renew_certificate: want_traits,
            want_capabilities: want_traits,
            identity_copied: want_traits,
            next_checkin_secs,
            acked,
            offer: None,
            beacon: None,
            run_request,
            tagged_run,
            rollout: run_request.map(dispatch),
            stream_requested,
            want_traits,
            trust_links: Vec::new(),
        },
    )
}

fn dispatch(number: u64) -> RolloutDispatch {
    let until = model::Timestamp::from_secs((number % 4_000_000_000).cast_signed());
    let tasks =
        [RolloutTask::Hold, RolloutTask::Acknowledge { until }, RolloutTask::Proceed, RolloutTask::GoBack];
    let at = usize::try_from(number % 4).unwrap();
    RolloutDispatch {
        rollout: "stable@4f1c2a9".parse().unwrap(),
        seq: number,
        wave: "canary".to_owned(),
        task: tasks[at],
        soak_secs: number % 1_000,
        through: number.is_multiple_of(2).then(|| "stable@4f1c2a8".parse().unwrap()),
    }
}

fn holds_null(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::Array(items) => items.iter().any(holds_null),
        serde_json::Value::Object(map) => map.values().any(holds_null),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_back_and_hold_no_null(check_in in check_ins(), answer in answers()) {
        let (up, down) = (encode(&check_in).unwrap(), encode(&answer).unwrap());
        prop_assert_eq!(decode::<CheckIn>(&up).unwrap(), check_in);
        prop_assert_eq!(decode::<Answer>(&down).unwrap(), answer);
        for bytes in [up, down] {
            prop_assert!(!holds_null(&decode(&bytes).unwrap()), "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = unpack(bytes.clone(), Some(GZIP), 1000);
        let _ = decode::<CheckIn>(&bytes);
    }
}
