//! SYN-2, SYN-5, SYN-6: the name of every event, which side may say it in which mode, and the
//! inventory checksum of the source document.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use bytes::Bytes;
use model::{Digest, ObjectKey, Stub};
use sync::events::{self, may_say, name_of};
use sync::frame::{Ack, Event, Interop, Op, Ping, Pong};
use sync::interop::inventory_checksum;
use sync::{Frame, Mode, Role};

fn event(kind: &str, op: &str) -> Frame {
    let op = match op {
        "delete" => Op::Delete { uid: "u".into() },
        made => Op::Put { stub: Stub::of(b""), content: Bytes::new(), created: made == "create" },
    };
    Frame::Event(Box::new(Event {
        seq: 1,
        rev: 1,
        upto: sync::Position::at(1),
        key: ObjectKey::of(kind, "x"),
        op,
        trace: None,
        at: 0,
    }))
}

#[test]
fn names() {
    use Mode::{Autonomous, Managed, Off};
    use Role::{Agent, Principal};
    let cases: &[(Frame, Role, Mode, Option<&str>)] = &[
        (event("Application", "create"), Principal, Managed, Some("create")),
        (event("Application", "update"), Principal, Managed, Some("spec-update")),
        (event("Application", "delete"), Principal, Managed, Some("delete")),
        (event("Application", "create"), Agent, Managed, None),
        (event("Application", "create"), Agent, Autonomous, Some("create")),
        (event("Application", "delete"), Principal, Autonomous, None),
        (event("Application", "update"), Principal, Off, None),
        (event("Application:status", "create"), Agent, Managed, Some("status-update")),
        (event("Application:status", "delete"), Agent, Autonomous, Some("status-update")),
        (event("Application:status", "update"), Principal, Managed, None),
        (event("Action", "create"), Principal, Off, Some("action-request")),
        (event("Action", "create"), Agent, Autonomous, None),
        (event("Peer", "create"), Principal, Managed, Some("peer-added")),
        (event("Peer", "update"), Principal, Managed, Some("peer-updated")),
        (event("Peer", "delete"), Principal, Managed, Some("peer-removed")),
        (event("Policy", "update"), Principal, Managed, Some("policy-updated")),
        (Frame::Ack(Ack { seq: 1, cursor: None, refused: 0 }), Agent, Managed, Some("processed")),
        (Frame::Ping(Ping::default()), Agent, Off, Some("ping")),
        (Frame::Pong(Pong::default()), Principal, Off, Some("pong")),
        (Frame::StateUpdated, Principal, Managed, Some("state-updated")),
        (Frame::StateUpdated, Agent, Managed, None),
        (Frame::Approve, Principal, Managed, Some("approve-deletions")),
        (Frame::Approve, Agent, Managed, None),
        (
            Frame::Interop(Box::new(Interop::RequestResync)),
            Principal,
            Managed,
            Some("request-resource-resync"),
        ),
        (
            Frame::Interop(Box::new(Interop::RequestList { checksum: Digest::ZERO })),
            Agent,
            Managed,
            Some("request-synced-resource-list"),
        ),
        (Frame::Unknown("mesh-moved".to_owned()), Agent, Managed, Some("mesh-moved")),
    ];
    for (frame, from, mode, expected) in cases {
        assert_eq!(name_of(frame, *from, *mode), *expected, "{frame:?} {from:?} {mode:?}");
        assert!(expected.is_none_or(|name| events::ALL.contains(&name) || name == "mesh-moved"));
    }
    assert!(may_say("rotate-keys", Principal, Off) && !may_say("rotate-keys", Agent, Off));
}

#[test]
fn the_inventory_checksum_is_over_sorted_kind_name_uid() {
    let keys = [ObjectKey::of("B", "b"), "A/somewhere/a".parse().unwrap()];
    let checksum = inventory_checksum(keys.iter().zip(["2", "1"]));
    assert_eq!(checksum, Digest::of(b"A/a/1B/b/2"), "sorted, joined, without the namespace");
    assert_eq!(inventory_checksum(std::iter::empty()), Digest::of(b""));
}
