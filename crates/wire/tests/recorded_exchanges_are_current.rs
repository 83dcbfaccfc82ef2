//! WIR-5, SYN-2: docs/exchanges shows what is on the wire, so that a client can be written from it; MUSTER_BLESS=1 writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fmt::Write;
use std::path::Path;

use bytes::Bytes;
use model::chunk::LeafChunk;
use model::exchange::{Answer, CheckIn};
use model::{Digest, ObjectKey, SectionKey, Stub, TrieNode};
use support::{cursor, hello, put};
use sync::frame::{
    Ack, Checkpoint, Event, GoAway, Have, Interop, InventoryItem, Op, Ping, PingOrder, Pong, Refused,
    ResyncRequest, ResyncResponse,
};
use sync::{Frame, Role};
use wire::batch::{self, FrameBatch};
use wire::cloudevents::{MAX_DOWN, Origin, json, protobuf};
use wire::{grpc, sse};

/// Who says what, and why.
type Said = (Role, &'static str, Frame);

const SITE: &[u8] = br#"{"host":"www.example.org","root":"/srv/www"}"#;

fn changed(event: Event, change: impl FnOnce(&mut Event)) -> Frame {
    let mut event = event;
    change(&mut event);
    Frame::Event(Box::new(event))
}

fn hello_with(role: Role, change: impl FnOnce(&mut sync::frame::Hello)) -> Frame {
    let Frame::Hello(mut said) = hello(role) else { unreachable!() };
    change(&mut said);
    Frame::Hello(said)
}

fn section() -> SectionKey {
    put("index", b"").key.section
}

/// A managed node connects anew, gets what changed, and says how it fares.
fn stream() -> Vec<Said> {
    let empty = Digest::of(b"a root");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned();
    let status = |event: &mut Event| {
        event.key = sync::object::status_key(&event.key);
        (event.rev, event.upto) = (4, sync::Position::at(4));
    };
    vec![
        (
            Role::Agent,
            "It has the principal's feed up to 6.",
            hello_with(Role::Agent, |said| {
                said.head = cursor("a1", 3);
                said.instance = "p-agent".to_owned();
                said.have = Some(Have { cursor: cursor("i1", 6), root: empty });
            }),
        ),
        (
            Role::Principal,
            "Its feed is at 9; it has all of the node's.",
            hello_with(Role::Principal, |said| {
                said.instance = "p-plane".to_owned();
                said.have = Some(Have { cursor: cursor("a1", 3), root: empty });
            }),
        ),
        (
            Role::Principal,
            "An object came into being.",
            changed(put("index", SITE), |event| {
                (event.rev, event.upto) = (7, sync::Position::at(7));
                event.trace = Some(trace);
                let Op::Put { created, .. } = &mut event.op else { unreachable!() };
                *created = true;
            }),
        ),
        (
            Role::Principal,
            "An object is like this; its content is no JSON.",
            changed(put("motd", b"Hello.\n"), |event| {
                (event.seq, event.rev, event.upto) = (2, 8, sync::Position::at(8));
            }),
        ),
        (
            Role::Principal,
            "An object is gone.",
            changed(put("old", b""), |event| {
                (event.seq, event.rev, event.upto) = (3, 9, sync::Position::at(9));
                event.op = Op::Delete { uid: "u-0".into() };
            }),
        ),
        (
            Role::Principal,
            "That is all.",
            Frame::Checkpoint(Checkpoint { seq: 3, cursor: cursor("i1", 9), root: empty }),
        ),
        (
            Role::Agent,
            "All three are durable.",
            Frame::Ack(Ack { seq: 3, cursor: Some(cursor("i1", 9)), refused: 1, compared: false }),
        ),
        (
            Role::Agent,
            "Or two of three, in the middle of a pass.",
            Frame::Ack(Ack { seq: 2, cursor: Some(in_pass()), refused: 0, compared: true }),
        ),
        (
            Role::Agent,
            "One of them will never be applied.",
            Frame::Refused(Box::new(Refused {
                rev: 8,
                key: put("motd", b"").key,
                code: "kind-not-allowed".to_owned(),
                message: "the release does not synchronize this kind".to_owned(),
            })),
        ),
        (Role::Agent, "A status.", changed(put("index", br#"{"ready":true}"#), status)),
        (
            Role::Principal,
            "It is durable.",
            Frame::Ack(Ack { seq: 1, cursor: Some(cursor("a1", 4)), refused: 0, compared: true }),
        ),
        (
            Role::Principal,
            "Work for the node.",
            changed(put("restart-1", br#"{"do":"restart"}"#), |event| {
                event.key = ObjectKey::of("Action", "restart-1");
                (event.seq, event.rev, event.upto) = (4, 10, sync::Position::at(10));
            }),
        ),
        (Role::Agent, "Are you there?", Frame::Ping(Ping { number: 1, head: 4, order: PingOrder::Any })),
        (Role::Principal, "Yes.", Frame::Pong(Pong { number: 1, head: 10 })),
        (
            Role::Agent,
            "A check-in.",
            Frame::CheckIn(Box::new(CheckIn {
                held: None,
                incarnation: "i1".parse().unwrap(),
                facts: vec![],
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
            })),
        ),
        (
            Role::Principal,
            "Its answer.",
            Frame::Answer(Box::new(Answer {
                next_checkin_secs: 300,
                acked: None,
                offer: None,
                beacon: None,
                run_request: None,
                tagged_run: None,
                rollout: None,
                stream_requested: false,
                want_traits: false,
                want_seen: false,
                want_header: false,
                want_run: false,
                unassigned: false,
                same_cause: Default::default(),
                server_time: Some("2026-11-24T08:00:00Z".parse().unwrap()),
                trust_links: Vec::new(),
                renew_certificate: false,
                want_capabilities: false,
                identity_copied: false,
            })),
        ),
        (Role::Principal, "Something changed: check in now.", Frame::StateUpdated),
        (
            Role::Principal,
            "Goodbye.",
            Frame::GoAway(GoAway {
                code: "stopping".to_owned(),
                message: "the control plane stops".to_owned(),
                retry_after: Some(5),
            }),
        ),
    ]
}

/// Everything up to 6 is durable, and of the pass from 6 to 9 all up to change 8 of rank 0.
fn in_pass() -> sync::FeedCursor {
    let order = sync::cursor::KindOrder::of(&[model::Kind::new("Site")]);
    let pass = sync::PassPosition { to: 9, rank: 0, revision: 8, order };
    sync::FeedCursor { pass: Some(pass), ..cursor("i1", 6) }
}

/// The replica's root differs: it compares the tries, and asks for what it lacks.
fn resync() -> Vec<Said> {
    let stub = Stub { uid: "u-1".into(), ..Stub::of(SITE) };
    let ask = |ask| Frame::ResyncRequest(Box::new(ask));
    let tell = |tell| Frame::ResyncResponse(Box::new(tell));
    let tops = vec![
        (vec![10], TrieNode::Bucket(vec![LeafChunk { name: "index".into(), stub }])),
        (vec![11], TrieNode::Branch(Box::new([Digest::ZERO; 16]))),
    ];
    vec![
        (Role::Agent, "Which sections are there?", ask(ResyncRequest::Sections)),
        (
            Role::Principal,
            "One, as of 9.",
            tell(ResyncResponse::Sections {
                cursor: cursor("i1", 9),
                sections: vec![(section(), Digest::of(b"section"))],
                proof: None,
            }),
        ),
        (
            Role::Agent,
            "What is at these places?",
            ask(ResyncRequest::Tops { section: section(), paths: vec![vec![10], vec![11]] }),
        ),
        (Role::Principal, "A bucket and a branch.", tell(ResyncResponse::Tops { section: section(), tops })),
        (Role::Agent, "Send this object.", ask(ResyncRequest::Objects(vec![put("index", b"").key]))),
        (
            Role::Principal,
            "Here it is, outside the numbers.",
            changed(put("index", SITE), |event| event.seq = 0),
        ),
        (Role::Principal, "That was one.", tell(ResyncResponse::Objects(1))),
        (Role::Agent, "Done: go on after 9.", ask(ResyncRequest::Done { from: cursor("i1", 9) })),
        (Role::Principal, "Or: not now.", tell(ResyncResponse::Wait(30))),
    ]
}

/// The resync of the source document, for peers without the trie resync.
fn interop() -> Vec<Said> {
    let resource = |checksum| InventoryItem {
        name: "guestbook".to_owned(),
        namespace: "argocd".to_owned(),
        uid: "b2c4".to_owned(),
        kind: "Application".to_owned(),
        checksum,
    };
    let say = |interop| Frame::Interop(Box::new(interop));
    vec![
        (Role::Principal, "Begin a resync.", say(Interop::RequestResync)),
        (
            Role::Agent,
            "The checksum of all that it has.",
            say(Interop::RequestList { checksum: Digest::of(b"inventory") }),
        ),
        (
            Role::Agent,
            "Send this one if it differs.",
            say(Interop::RequestUpdate(resource(Some(Digest::of(b"spec"))))),
        ),
        (Role::Principal, "One that the source has.", say(Interop::Listed(resource(None)))),
    ]
}

struct Origins {
    agent: Origin,
    principal: Origin,
}

impl Origins {
    fn new() -> Origins {
        let agent = Origin::agent(&"web-1".parse().unwrap(), "p-agent-1");
        Origins { agent, principal: Origin::principal("p-plane-1") }
    }

    fn of(&mut self, role: Role) -> &mut Origin {
        match role {
            Role::Agent => &mut self.agent,
            Role::Principal => &mut self.principal,
        }
    }
}

fn arrow(role: Role) -> &'static str {
    match role {
        Role::Agent => "agent -> principal",
        Role::Principal => "principal -> agent",
    }
}

fn in_json(all: &[Said]) -> String {
    let (mut origins, mut text) = (Origins::new(), String::new());
    for (role, why, frame) in all {
        let mut out = Vec::new();
        json::encode(origins.of(*role), frame, &mut out).unwrap();
        assert_eq!(&json::decode(&out.clone().into(), None, MAX_DOWN).unwrap(), frame);
        writeln!(text, "# {}: {why}\n{}\n", arrow(*role), String::from_utf8(out).unwrap()).unwrap();
    }
    text
}

/// gRPC messages with their prefix, as hex with the text beside it.
fn in_protobuf(all: &[Said]) -> String {
    let (mut origins, mut text) = (Origins::new(), String::new());
    for (role, why, frame) in all {
        let mut out = Vec::new();
        grpc::append(&mut out, false, |out| protobuf::encode(origins.of(*role), frame, out)).unwrap();
        let bare = Bytes::copy_from_slice(&out[grpc::PREFIX..]);
        assert_eq!(&protobuf::decode(&bare, None, MAX_DOWN).unwrap(), frame);
        writeln!(text, "# {}: {why}", arrow(*role)).unwrap();
        for (at, line) in out.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let plain = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
            let shown: String = line.iter().map(plain).collect();
            writeln!(text, "{:04x}  {:<47}  {shown}", at * 16, hex.join(" ")).unwrap();
        }
        text.push('\n');
    }
    text
}

fn in_sse(all: &[Said]) -> String {
    let (mut origin, mut out) = (Origin::principal("p-plane-1"), Vec::new());
    sse::retry(1000, &mut out);
    for (_, _, frame) in all.iter().filter(|(role, ..)| *role == Role::Principal) {
        sse::encode(&mut origin, frame, &mut out).unwrap();
    }
    sse::keepalive(&mut out);
    String::from_utf8(out).unwrap()
}

fn in_poll(all: &[Said]) -> String {
    let mut text = String::new();
    let mut origins = Origins::new();
    for role in [Role::Agent, Role::Principal] {
        let said = all.iter().filter(|(by, ..)| *by == role).map(|(.., frame)| frame.clone());
        let batch = FrameBatch { frames: said.take(3).collect(), more: role == Role::Principal };
        let body = String::from_utf8(batch::encode(origins.of(role), &batch).unwrap()).unwrap();
        let line = if role == Role::Agent { "POST /v1/agent/events" } else { "200" };
        writeln!(text, "# {}\n{line}\n{body}\n", arrow(role)).unwrap();
    }
    text
}

#[test]
fn what_is_recorded_is_what_is_sent() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exchanges");
    for (name, text) in [
        ("stream.json.txt", in_json(&stream())),
        ("stream.protobuf.txt", in_protobuf(&stream())),
        ("stream.sse.txt", in_sse(&stream())),
        ("poll.json.txt", in_poll(&stream())),
        ("resync.json.txt", in_json(&resync())),
        ("resync.protobuf.txt", in_protobuf(&resync())),
        ("interop.json.txt", in_json(&interop())),
        ("interop.protobuf.txt", in_protobuf(&interop())),
    ] {
        let path = dir.join(name);
        if std::env::var_os("MUSTER_BLESS").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let recorded = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            recorded == text,
            "{name} is not current; MUSTER_BLESS=1 writes it, and the change is one of the protocol"
        );
    }
}
