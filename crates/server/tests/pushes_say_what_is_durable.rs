//! SYN-1, SYN-4: a `Push` is answered with ok when all of its events are durable, and only then: not when
//! the link has no room for more, the control plane has to compare first, or an object is refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::replication::Mode;
use model::{Digest, Stub};
use rusqlite::Connection;
use server::api::objects::SyncsView;
use sync::frame::{Capabilities, Event, Hello, Interop, Op, Ping, PingOrder};
use sync::{FeedCursor, Frame, Position};
use test_support::fleet::link::{hello, item, publish_mode};
use test_support::fleet::{Fleet, Member};
use wire::grpc::{GrpcStatus, StatusCode};
use wire::rpc::{self, PushSummary};

use crate::refusals_name_their_reason::{message, push};

async fn fleet(mode: Mode) -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], mode, 1).await;
    (fleet, node)
}

/// Of a feed of this incarnation.
fn greeting(incarnation: &str) -> Hello {
    Hello { head: FeedCursor::at(incarnation.parse().unwrap(), 9), ..hello(Mode::Autonomous, "one") }
}

/// The event of this number, which makes an object.
fn event(number: u64) -> Frame {
    let content = format!("{{\"n\":{number}}}").into_bytes();
    let stub = Stub { uid: format!("u{number}").into(), ..Stub::of(&content) };
    let op = Op::Put { stub, content: content.into(), created: true };
    let (key, upto) = (item(&format!("i{number}")), Position::at(number));
    Frame::Event(Box::new(Event { seq: number, rev: number, upto, key, op, trace: None, at: 1, proof: None }))
}

/// A push of these frames behind a hello: its summary, or why there is none.
async fn pushed(node: &Member, hello: Hello, frames: Vec<Frame>) -> Result<PushSummary, GrpcStatus> {
    let frames = std::iter::once(Frame::Hello(Box::new(hello))).chain(frames);
    let body: Vec<u8> = frames.flat_map(|frame| message(&frame, "edge-1")).collect();
    let (messages, status) = push(node, body).await;
    if status.code == StatusCode::OK { Ok(rpc::read(&messages[0]).unwrap()) } else { Err(status) }
}

/// How many objects of the node the control plane has.
async fn objects(fleet: &Fleet) -> u64 {
    let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
    page.nodes[0].up
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_was_pushed_is_durable() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    let summary = pushed(&node, greeting("n1"), (1..=3).map(event).collect()).await.unwrap();
    assert_eq!((summary.result.as_str(), summary.received, summary.processed), ("ok", 4, 3));
    assert_eq!(objects(&fleet).await, 3);
}

/// A list that has to wait holds up the pongs behind it; with so many of them the link takes nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_link_has_no_room_for_is_not_ok() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    let capabilities = Capabilities { trie_resync: false, ..Capabilities::ALL };
    let list = Frame::Interop(Box::new(Interop::RequestList { checksum: Digest::ZERO }));
    let ping = |number| Frame::Ping(Ping { number, head: 0, order: PingOrder::Barrier });
    let mut frames = vec![event(1), list.clone(), list];
    frames.extend((1..=5000).map(ping));
    frames.push(event(2));
    let pushed = pushed(&node, Hello { capabilities, ..greeting("n1") }, frames).await;
    let there = objects(&fleet).await;
    assert_eq!(pushed.is_ok(), there == 2, "{there} of 2 objects are there: {pushed:?}");
}

/// An event that the store does not take would be tried again, and the push does not wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_is_not_ok() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    pushed(&node, greeting("n1"), vec![event(1)]).await.unwrap();
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON object BEGIN SELECT RAISE(ABORT, 'not now'); END";
    database.execute_batch(refuse).unwrap();
    let status = pushed(&node, greeting("n1"), vec![event(1), event(2)]).await.unwrap_err();
    assert_eq!(status.reason.as_deref(), Some("busy"), "{status}");
    database.execute_batch("DROP TRIGGER refuse").unwrap();
    assert_eq!(objects(&fleet).await, 1);
    pushed(&node, greeting("n1"), vec![event(1), event(2)]).await.unwrap();
    assert_eq!(objects(&fleet).await, 2);
}

/// Over a set of another incarnation nothing is taken before both are compared, which a push cannot.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_another_incarnation_is_not_ok() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    pushed(&node, greeting("n1"), vec![event(1)]).await.unwrap();
    let status = pushed(&node, greeting("n2"), vec![event(1), event(2)]).await.unwrap_err();
    assert_eq!(status.reason.as_deref(), Some("out-of-order"), "{status}");
    assert_eq!(objects(&fleet).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_not_ok() {
    let (_fleet, node) = fleet(Mode::Managed).await;
    let greeting = Hello { mode: Mode::Managed, ..greeting("n1") };
    let status = pushed(&node, greeting, vec![event(1)]).await.unwrap_err();
    assert_eq!((status.code, status.reason.as_deref()), (StatusCode::ABORTED, Some("wrong-side")));
    assert!(status.message.contains("Item/web/i1"), "{status}");
}
