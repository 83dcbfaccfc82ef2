//! SYN-3: a control plane that pushes more contents than a node may hold, and never the ping that ends
//! them, loses its stream of server-sent events.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use http::StatusCode;
use model::replication::{Mode, TransportPolicy};
use model::{ObjectKey, Stub};
use spool::Disk;
use sync::frame::{Event, Op};
use sync::object::MAX_CONTENT;
use sync::{Frame, Position};
use test_support::agent_links::{Node, item, policy};
use test_support::scripted::{ScriptedControl, hello, reply, said};
use test_support::wait::eventually;
use wire::cloudevents::Origin;
use wire::{route, sse};

/// So many objects of the largest size, one after the other.
fn pushed(count: u64) -> Vec<u8> {
    let (mut origin, mut out) = (Origin::principal("c"), Vec::new());
    let content = Bytes::from(vec![0; MAX_CONTENT]);
    for number in 1..=count {
        let stub = Stub { uid: "u".into(), ..Stub::of(&content) };
        let key: ObjectKey = item(&format!("n{number}"));
        let op = Op::Put { stub, content: content.clone(), created: true };
        let event = Event {
            seq: number,
            rev: number,
            upto: Position::at(number),
            key,
            op,
            trace: None,
            at: 0,
            proof: None,
        };
        sse::encode(&mut origin, &Frame::Event(Box::new(event)), &mut out).unwrap();
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_too_much_before_a_ping_is_given_up() {
    let endless = pushed(8);
    let control = ScriptedControl::start(&["127.0.0.1"], move |head, _| match head.uri.path() {
        route::STREAM => reply(StatusCode::OK, sse::CONTENT, endless.clone()),
        _ => said(vec![hello()]),
    })
    .await;
    let temp = tempfile::tempdir().unwrap();
    let node = Node::start(temp.path(), Disk::new(), policy(Mode::Managed, None), Vec::new());
    let links = node.links(&control, TransportPolicy::Sse);
    let ended = || node.view.shown().ended.unwrap_or_default();
    eventually("the stream is given up", || ended().contains("larger than")).await;
    links.stop().await;
}
