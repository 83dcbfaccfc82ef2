//! IDN-4: a stream lives on a TLS session whose client certificate carries the node's key, and
//! needs no signature. The key is compared with the stored one at each request, on a connection
//! that is open already too. The request for server-sent events is signed as every other one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use model::replication::Mode;
use net::client::Client;
use streams::TransportError;
use sync::Frame;
use test_support::fleet::link::{Sse, dialer, grpc, handler, linked, publish_mode, websocket};
use test_support::fleet::{Fleet, Member, call, new_key, plain, refused};
use wire::{Code, route};

async fn fleet() -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    (fleet, node)
}

/// The code with which a gRPC stream is refused on this connection.
async fn refusal(node: &Member, client: &mut Client) -> String {
    match dialer(node, "late").grpc(client).await {
        Err(TransportError::Problem(problem)) => problem.code,
        other => panic!("not refused: {:?}", other.map(|_| ())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_alone_opens_a_stream() {
    let (_fleet, node) = fleet().await;
    grpc(&node, &mut node.dial().await).await.expect("gRPC");
    websocket(&node).await.expect("a WebSocket");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_the_nodes_certificate_opens_none() {
    let (fleet, node) = fleet().await;
    let mut anonymous = fleet.anonymous().await;
    assert_eq!(refusal(&node, &mut anonymous).await, Code::CertificateRequired.as_str());
    // A signature does not stand in for it.
    let signed = node.signed(Method::GET, route::STREAM, Vec::new());
    refused(&call(&mut fleet.anonymous().await, signed).await, Code::CertificateRequired);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_compared_at_each_request_of_a_connection() {
    let (fleet, node) = fleet().await;
    let mut client = node.dial().await;
    grpc(&node, &mut client).await.expect("it is enrolled");
    let _: server::api::NodeView = fleet.operator().await.delete("/v1/nodes/edge-1").await.unwrap();
    assert_eq!(refusal(&node, &mut client).await, Code::UnknownNode.as_str(), "it was removed");
    // The host joins anew with another key; what was open stays of no use.
    let key = new_key();
    let answer = fleet.enroll(&fleet.token("edge-1"), "edge-1", &key).await.unwrap();
    let anew = fleet.member("edge-1", key, &answer);
    grpc(&anew, &mut anew.dial().await).await.expect("the new key opens streams");
    assert_eq!(refusal(&node, &mut client).await, Code::UnknownNode.as_str());
    let read = node.signed(Method::GET, route::STATE, Vec::new());
    refused(&call(&mut client, read).await, Code::UnknownNode);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_for_server_sent_events_is_signed() {
    let (_fleet, node) = fleet().await;
    let mut request = plain(&node.url, route::STREAM, Vec::new());
    *request.method_mut() = Method::GET;
    refused(&node.send(request).await, Code::Unsigned);
    let mut events = Sse::open(&node, "one").await.expect("it is signed");
    events.hears(|frame| matches!(frame, Frame::Hello(_))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_names_another_node_is_refused() {
    let (fleet, node) = fleet().await;
    let other = fleet.node("edge-2").await;
    let path = format!("/v1/nodes/{}/stream", other.id);
    let request = node.signed(Method::GET, &path, Vec::new());
    refused(&node.send(request).await, Code::OtherNode);
}

/// A connection at its end of life, and a control plane that stops, close streams alike.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_a_go_away_before_its_connection_does() {
    let (mut fleet, node) = fleet().await;
    let handler = handler("n1");
    let link = linked(&node, Mode::Managed, "one", &handler).await;
    test_support::wait::until("the link is up", async || (*handler.seen().borrow() > 0).then_some(())).await;
    fleet.stop().await;
    let ended =
        tokio::time::timeout(test_support::wait::DEADLINE, link.ended).await.expect("it ends").unwrap();
    assert!(ended.message.starts_with("shutdown"), "{ended:?}");
}
