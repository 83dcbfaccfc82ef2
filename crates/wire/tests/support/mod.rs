//! Frames of every sort, made at random, and a few fixed ones.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use bytes::Bytes;
use model::chunk::LeafChunk;
use model::exchange::{Answer, CheckIn, HeldRelease, Signature, Signed};
use model::log::{Cursor, Fact, FactBody};
use model::tags::TaggedRun;
use model::{Digest, Kind, ObjectKey, SectionKey, Stub, Timestamp, TrieNode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sync::frame::{
    Ack, Capabilities, Checkpoint, Event, GoAway, Have, Hello, Interop, InventoryItem, Op, Ping, PingOrder,
    Pong, Refused, ResyncRequest, ResyncResponse,
};
use sync::object::MAX_CONTENT;
use sync::{FeedCursor, Frame, Mode, PassPosition, Position, Role};
use wire::cloudevents::MAX_NUMBER;

pub fn cursor(incarnation: &str, revision: u64) -> FeedCursor {
    FeedCursor::at(incarnation.parse().unwrap(), revision)
}

pub fn put(name: &str, content: &[u8]) -> Event {
    let stub = Stub { uid: "u-1".into(), ..Stub::of(content) };
    Event {
        seq: 1,
        rev: 7,
        upto: Position::at(9),
        key: ObjectKey {
            section: SectionKey { kind: Kind::new("Site"), namespace: "web".into() },
            name: name.into(),
        },
        op: Op::Put { stub, content: Bytes::copy_from_slice(content), created: false },
        trace: None,
        at: 1_800_000_000_000,
        proof: None,
    }
}

pub fn hello(role: Role) -> Frame {
    Frame::Hello(Box::new(Hello {
        versions: sync::frame::VERSIONS,
        capabilities: Capabilities::ALL,
        role,
        mode: Mode::Managed,
        instance: "p1".to_owned(),
        head: cursor("i1", 9),
        have: None,
        after: None,
    }))
}

fn digests() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

/// What is read of numbers.
fn numbers() -> impl Strategy<Value = u64> + Clone {
    0..=MAX_NUMBER
}

fn positions() -> impl Strategy<Value = Position> {
    let place = (numbers(), any::<u32>(), numbers(), any::<u32>()).prop_map(|(to, rank, revision, order)| {
        PassPosition { to, rank, revision, order: sync::cursor::KindOrder(order) }
    });
    (numbers(), option::of(place)).prop_map(|(revision, pass)| Position { revision, pass })
}

pub fn cursors() -> impl Strategy<Value = FeedCursor> {
    (log_cursors(), positions()).prop_map(|(cursor, position)| FeedCursor::new(cursor.incarnation, position))
}

fn log_cursors() -> impl Strategy<Value = Cursor> {
    ("[a-z0-9][a-z0-9_-]{0,20}", numbers())
        .prop_map(|(incarnation, seq)| Cursor { incarnation: incarnation.parse().unwrap(), seq })
}

/// Texts without a slash, of any characters that JSON and protobuf have.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z][a-z0-9.-]{0,12}", "[^/]{1,12}", Just("\"\\\u{1}\u{7f}\u{10ffff}é".to_owned())]
}

fn keys() -> impl Strategy<Value = ObjectKey> {
    let kinds = prop_oneof![
        Just("Site".to_owned()),
        Just("Site:status".to_owned()),
        Just("Action".to_owned()),
        Just("Policy".to_owned()),
        Just("Peer".to_owned()),
        texts()
    ];
    (kinds, option::of(texts()), texts(), any::<bool>()).prop_map(|(kind, namespace, name, slash)| {
        ObjectKey {
            section: SectionKey { kind: Kind::new(&kind), namespace: namespace.unwrap_or_default().into() },
            name: if slash { format!("{name}/x").into() } else { name.into() },
        }
    })
}

fn sections() -> impl Strategy<Value = SectionKey> {
    keys().prop_map(|key| key.section)
}

pub fn json_values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Into::into),
        ".{0,12}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Canonical JSON, JSON that is not, and bytes that are no text.
pub fn contents() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        json_values().prop_map(|value| serde_json_canonicalizer::to_vec(&value).unwrap().into()),
        json_values().prop_map(|value| serde_json::to_vec_pretty(&value).unwrap().into()),
        json_values().prop_map(|value| serde_json::to_vec(&value).unwrap().into()),
        vec(any::<u8>(), 0..200).prop_map(Bytes::from),
        Just(Bytes::from_static(b"{\"b\":1,\"a\":2}")),
        Just(Bytes::from_static(b"{\"a\":1,\"a\":2}")),
        Just(Bytes::from_static(b" 1 ")),
        Just(Bytes::from_static(b"1.0")),
        Just(Bytes::from_static(b"-0")),
        Just(Bytes::from_static(b"1e3")),
        Just(Bytes::from_static(b"12345678901234567890")),
        Just(Bytes::from_static(b"\"\\u00e9\"")),
        Just(Bytes::from_static(b"\"\\/\"")),
    ]
}

fn events() -> impl Strategy<Value = Frame> {
    let op = prop_oneof![
        4 => (texts(), contents(), any::<bool>()).prop_map(|(uid, content, created)| {
            let stub = Stub { uid: uid.into(), ..Stub::of(&content) };
            Op::Put { stub, content, created }
        }),
        1 => texts().prop_map(|uid| Op::Delete { uid: uid.into() }),
    ];
    let trace = option::of("00-[0-9a-f]{32}-[0-9a-f]{16}-01");
    let proof = option::of(vec(any::<u8>(), 0..=trust::feed_proof::MAX_PROOF).prop_map(Bytes::from));
    (numbers(), numbers(), positions(), keys(), op, trace, any::<i64>(), proof).prop_map(
        |(seq, rev, upto, key, op, trace, at, proof)| {
            Frame::Event(Box::new(Event { seq, rev, upto, key, op, trace, at, proof }))
        },
    )
}

fn hellos() -> impl Strategy<Value = Frame> {
    let modes = prop_oneof![Just(Mode::Off), Just(Mode::Managed), Just(Mode::Autonomous)];
    let roles = prop_oneof![Just(Role::Principal), Just(Role::Agent)];
    let capabilities = any::<[bool; 4]>().prop_map(|[trie_resync, gzip, checkin, compared]| Capabilities {
        trie_resync,
        gzip,
        checkin,
        compared,
    });
    let have = (cursors(), digests()).prop_map(|(cursor, root)| Have { cursor, root });
    (
        (any::<u32>(), any::<u32>()),
        capabilities,
        roles,
        modes,
        ".{0,20}",
        cursors(),
        option::of(have),
        option::of(cursors()),
    )
        .prop_map(|(versions, capabilities, role, mode, instance, head, have, after)| {
            Frame::Hello(Box::new(Hello { versions, capabilities, role, mode, instance, head, have, after }))
        })
}

fn paths() -> impl Strategy<Value = Vec<u8>> {
    vec(0..16_u8, 0..=64)
}

fn asks() -> impl Strategy<Value = ResyncRequest> {
    prop_oneof![
        Just(ResyncRequest::Sections),
        texts().prop_map(|challenge| ResyncRequest::ProvenSections { challenge }),
        (sections(), vec(paths(), 0..5)).prop_map(|(section, paths)| ResyncRequest::Tops { section, paths }),
        vec(keys(), 0..5).prop_map(ResyncRequest::Objects),
        cursors().prop_map(|from| ResyncRequest::Done { from }),
    ]
}

fn tells() -> impl Strategy<Value = ResyncResponse> {
    let leaf = (texts(), option::of(texts()), digests(), 0..=MAX_CONTENT as u64).prop_map(
        |(name, uid, digest, size)| {
            let stub = Stub { uid: uid.unwrap_or_default().into(), digest, size };
            LeafChunk { name: name.into(), stub }
        },
    );
    let branch =
        vec(digests(), 16).prop_map(|children| TrieNode::Branch(Box::new(children.try_into().unwrap())));
    let top = prop_oneof![branch, vec(leaf, 0..=8).prop_map(TrieNode::Bucket)];
    prop_oneof![
        (
            cursors(),
            vec((sections(), digests()), 0..4),
            option::of(vec(any::<u8>(), 0..80).prop_map(Bytes::from))
        )
            .prop_map(|(cursor, sections, proof)| ResyncResponse::Sections {
                cursor,
                sections,
                proof
            }),
        (sections(), vec((paths(), top), 0..3))
            .prop_map(|(section, tops)| ResyncResponse::Tops { section, tops }),
        numbers().prop_map(ResyncResponse::Objects),
        numbers().prop_map(ResyncResponse::Wait),
    ]
}

fn interops() -> impl Strategy<Value = Interop> {
    let resource = || {
        (texts(), option::of(texts()), option::of(texts()), texts(), option::of(digests())).prop_map(
            |(name, namespace, uid, kind, checksum)| InventoryItem {
                name,
                namespace: namespace.unwrap_or_default(),
                uid: uid.unwrap_or_default(),
                kind,
                checksum,
            },
        )
    };
    prop_oneof![
        Just(Interop::RequestResync),
        digests().prop_map(|checksum| Interop::RequestList { checksum }),
        resource().prop_map(Interop::Listed),
        resource().prop_map(Interop::RequestUpdate),
    ]
}

fn check_ins() -> impl Strategy<Value = Frame> {
    let held = (any::<u64>(), digests(), digests()).prop_map(|(seq, header, root)| HeldRelease {
        channel: "main".parse().unwrap(),
        seq,
        header,
        root,
    });
    let fact = (any::<u64>(), ".{0,20}").prop_map(|(seq, message)| Fact {
        seq,
        at: Timestamp(1_800_000_000_000),
        body: FactBody::Repaired { message },
    });
    (option::of(held), vec(fact, 0..3), any::<bool>(), option::of(any::<u64>())).prop_map(
        |(held, facts, full, run_confirmed)| {
            let incarnation = "i1".parse().unwrap();
            Frame::CheckIn(Box::new(CheckIn {
                held,
                incarnation,
                facts,
                run: None,
                unmade_run: None,
                freshness: None,
                running_since: None,
                traits: None,
                full,
                run_confirmed,
                tagged_run_confirmed: run_confirmed,
                seen: run_confirmed.map(signed),
                header: run_confirmed.map(signed),
                acked: run_confirmed,
                trust: None,
                renewal_failure: None,
                unadopted: None,
                instance: None,
                capabilities: None,
            }))
        },
    )
}

fn tagged(number: u64) -> TaggedRun {
    TaggedRun { number, tags: ["web".to_owned(), format!("t{number}")].into() }
}

fn signed(number: u64) -> Signed {
    let signature = Signature { key: "0123456789abcdef".to_owned(), sig: "AAAA".to_owned() };
    Signed { payload: format!("{{\"seq\":{number}}}"), signatures: vec![signature] }
}

fn answers() -> impl Strategy<Value = Frame> {
    (any::<u64>(), option::of(log_cursors()), option::of(any::<u64>()), any::<bool>(), any::<bool>())
        .prop_map(|(next_checkin_secs, acked, run_request, stream_requested, want_traits)| {
            let offer = None;
            Frame::Answer(Box::new(Answer {
                next_checkin_secs,
                acked,
                offer,
                beacon: None,
                run_request,
                tagged_run: run_request.map(tagged),
                rollout: None,
                stream_requested,
                want_traits,
                want_seen: !want_traits,
                want_header: false,
                want_run: false,
                unassigned: false,
                same_cause: Default::default(),
                server_time: None,
                trust_links: Vec::new(),
                renew_certificate: false,
                want_capabilities: false,
                identity_copied: false,
            }))
        })
}

/// Every sort of frame.
pub fn frames() -> impl Strategy<Value = Frame> {
    let order = prop_oneof![Just(PingOrder::Any), Just(PingOrder::Barrier)];
    let pings = (numbers(), numbers(), order).prop_map(|(number, head, order)| Ping { number, head, order });
    prop_oneof![
        6 => events(),
        1 => hellos(),
        1 => (numbers(), option::of(cursors()), numbers())
            .prop_map(|(seq, cursor, refused)| Frame::Ack(Ack { seq, cursor, refused, compared: refused == 0 })),
        1 => (numbers(), keys(), "[a-z_]{1,20}", ".{0,40}").prop_map(|(rev, key, code, message)| {
            Frame::Refused(Box::new(Refused { rev, key, code, message }))
        }),
        1 => (numbers(), digests(), cursors())
            .prop_map(|(seq, root, cursor)| Frame::Checkpoint(Checkpoint { seq, cursor, root })),
        1 => asks().prop_map(|ask| Frame::ResyncRequest(Box::new(ask))),
        1 => tells().prop_map(|tell| Frame::ResyncResponse(Box::new(tell))),
        1 => interops().prop_map(|interop| Frame::Interop(Box::new(interop))),
        1 => pings.prop_map(Frame::Ping),
        1 => (numbers(), numbers()).prop_map(|(number, head)| Frame::Pong(Pong { number, head })),
        1 => ("[a-z_]{1,20}", ".{0,40}", option::of(0..=3600_u64))
            .prop_map(|(code, message, retry_after)| Frame::GoAway(GoAway { code, message, retry_after })),
        1 => check_ins(),
        1 => answers(),
        1 => Just(Frame::StateUpdated),
        1 => Just(Frame::Approve),
        1 => "x-[a-z.-]{1,30}".prop_map(Frame::Unknown),
    ]
}
