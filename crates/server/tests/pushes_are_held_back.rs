//! SYN-3, SYN-4: of a push no more is read than the control plane takes. What a node asks for meanwhile holds
//! back what follows; where it has to wait the push ends as busy, and nothing piles up.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::replication::Mode;
use model::{Digest, Kind, ObjectKey, Stub};
use serde_json::json;
use server::api::objects::ObjectResults;
use sync::Frame;
use sync::frame::{Capabilities, Event, Hello, Interop, InventoryItem, MAX_REQUESTED, Op, ResyncRequest};
use test_support::fleet::Fleet;
use test_support::fleet::link::{hello, item, publish_mode};
use test_support::wait::{DEADLINE, soon};
use wire::grpc::{GrpcStatus, StatusCode};
use wire::route;

use crate::refusals_name_their_reason::{call, message, push};

/// More answers than wait to be sent.
const REQUESTS: usize = 8192 / MAX_REQUESTED;

fn body(frames: impl IntoIterator<Item = Frame>) -> Vec<u8> {
    frames.into_iter().flat_map(|frame| message(&frame, "edge-1")).collect()
}

/// The node's status of its object.
fn status() -> Frame {
    let (content, key) = (bytes::Bytes::from_static(b"{}"), item("one"));
    let stub = Stub { uid: "s".into(), ..Stub::of(&content) };
    let op = Op::Put { stub, content, created: true };
    let section = model::SectionKey { kind: Kind::new("Item:status"), ..key.section };
    let (key, upto) = (ObjectKey { section, name: key.name }, sync::Position::at(10));
    Frame::Event(Box::new(Event { seq: 1, rev: 10, upto, key, op, trace: None, at: 1, proof: None }))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_requests_is_taken_behind_them() {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    let manifest = json!({"apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": "one"}, "spec": {"text": "x"}});
    let apply = json!({"manifests": [manifest], "node": "edge-1"});
    let _: ObjectResults = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
    let request = ResyncRequest::Objects(vec![item("one"); MAX_REQUESTED]);
    let requests = vec![Frame::ResyncRequest(Box::new(request)); REQUESTS];
    let greeting = Frame::Hello(Box::new(hello(Mode::Managed, "one")));
    let (messages, status) =
        push(&node, body([greeting].into_iter().chain(requests).chain([status()]))).await;
    assert_eq!(status.code, StatusCode::OK, "{status}");
    let summary: wire::rpc::PushSummary = wire::rpc::read(&messages[0]).unwrap();
    assert_eq!((summary.received, summary.processed), (REQUESTS as u64 + 2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_cannot_be_taken_now_is_not_read_on() {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    let (kind, namespace, name) = ("Item".to_owned(), "web".to_owned(), "none".to_owned());
    let asked = InventoryItem { name, namespace, uid: String::new(), kind, checksum: None };
    // The second list waits, and what is asked for behind it with it.
    let lists =
        [Interop::RequestList { checksum: Digest::ZERO }, Interop::RequestList { checksum: Digest::ZERO }];
    let requests = lists.into_iter().chain(vec![Interop::RequestUpdate(asked); 5000]);
    let old = Hello {
        capabilities: Capabilities { trie_resync: false, ..Capabilities::ALL },
        ..hello(Mode::Managed, "one")
    };
    let requests = requests.map(|request| Frame::Interop(Box::new(request)));
    let said = body([Frame::Hello(Box::new(old))].into_iter().chain(requests).chain([status()]));
    let mut client = node.dial().await;
    // The way up stays open: it is the control plane that ends this.
    let stream = client.open_stream(call(&node, route::PUSH), said.into(), DEADLINE);
    let status = GrpcStatus::read(&soon(stream).await.unwrap().response.headers).expect("headers alone");
    assert_eq!(status.reason.as_deref(), Some("busy"), "{status}");
}
