//! SYN-1, WIR-2: whatever is refused on a stream is refused with a go-away and its code, and with a
//! status of gRPC or a close of the WebSocket that gives the same reason. What is not taken is not
//! answered with ok, and a method that is not there is unimplemented.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::replication::Mode;
use net::client::{Http1, Upgraded};
use net::stream::{BodyFrame, Receiver, Stream};
use net::websocket::{Received, SocketBounds, WebSocketError};
use rustls_pki_types::ServerName;
use sync::Frame;
use sync::frame::{GoAway, Ping};
use test_support::fleet::link::{hello, publish_mode};
use test_support::fleet::{Fleet, Member, plain, quiet, refused};

use test_support::wait::{DEADLINE, soon};
use tokio::net::TcpStream;
use wire::cloudevents::{MAX_DOWN, MAX_UP, Origin, PRINCIPAL, protobuf};
use wire::grpc::{self, GrpcDecoder, GrpcStatus, StatusCode};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::{Code, route};

async fn fleet() -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    (fleet, node)
}

/// A frame as the node, or somebody else, sends it.
pub(crate) fn message(frame: &Frame, hostname: &str) -> Vec<u8> {
    let mut origin = Origin::agent(&hostname.parse().unwrap(), "test");
    let mut out = Vec::new();
    grpc::append(&mut out, false, |out| protobuf::encode(&mut origin, frame, out)).unwrap();
    out
}

/// A hello of the node `edge-1` as it travels.
pub(crate) fn greeting() -> Vec<u8> {
    message(&Frame::Hello(Box::new(hello(Mode::Managed, "one"))), "edge-1")
}

/// A request for a call of gRPC.
pub(crate) fn call(node: &Member, path: &str) -> Request<()> {
    let mut request = Request::post(format!("{}{path}", node.url)).body(()).unwrap();
    grpc::announce(request.headers_mut(), true);
    request.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    request
}

/// What a call came to: the messages of its answer, and its status.
async fn outcome(response: response::Parts, mut receiver: Receiver) -> (Vec<Bytes>, GrpcStatus) {
    assert_eq!(response.status, 200, "gRPC says in its own way what is wrong");
    if let Some(status) = GrpcStatus::read(&response.headers) {
        return (Vec::new(), status);
    }
    let mut decoder = GrpcDecoder::new(MAX_DOWN, true);
    let mut messages = Vec::new();
    let mut trailers = HeaderMap::new();
    let read = async {
        while let Some(piece) = receiver.next().await.expect("the stream ends in order") {
            match piece {
                BodyFrame::Data(data) => {
                    decoder.push(data);
                    while let Some(message) = decoder.next().unwrap() {
                        messages.push(message);
                    }
                }
                BodyFrame::Trailers(found) => trailers = found,
            }
        }
    };
    soon(read).await;
    (messages, GrpcStatus::read(&trailers).expect("a status"))
}

/// Opens a stream, says this, and gives the go-away and the status that come back.
async fn told(node: &Member, said: Vec<u8>) -> (GoAway, GrpcStatus) {
    let mut client = node.dial().await;
    let stream = client.open_stream(call(node, route::SUBSCRIBE), said.into(), DEADLINE).await.unwrap();
    // The way up stays open: it is the control plane that ends this.
    let Stream { response, sender: _open, receiver } = stream;
    let (messages, status) = outcome(response, receiver).await;
    let frames = messages.iter().map(|message| protobuf::decode(message, Some(PRINCIPAL), MAX_DOWN).unwrap());
    let away = frames.last();
    let Some(Frame::GoAway(away)) = away else { panic!("no go-away: {away:?}, {status}") };
    (away, status)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_told_with_a_code() {
    let (_fleet, node) = fleet().await;
    let ping = Frame::Ping(Ping::default());
    let too_long = [&[0][..], &(MAX_UP as u32 + 1).to_be_bytes()].concat();
    for (what, bad, code, number) in [
        ("no protobuf", b"\0\0\0\0\x03abc".to_vec(), "unreadable", StatusCode::INVALID_ARGUMENT),
        ("no gzip", b"\x01\0\0\0\x03abc".to_vec(), "unreadable", StatusCode::INVALID_ARGUMENT),
        ("another source", message(&ping, "edge-2"), "unreadable", StatusCode::INVALID_ARGUMENT),
        ("too long", too_long, "too-large", StatusCode::RESOURCE_EXHAUSTED),
    ] {
        // As the first word, and after a hello.
        for before in [Vec::new(), greeting()] {
            let (away, status) = told(&node, [before, bad.clone()].concat()).await;
            assert_eq!((away.code.as_str(), status.code), (code, number), "{what}: {status}");
            assert_eq!(status.reason.as_deref(), Some(code), "{what}");
            assert!(status.message.contains(&away.message), "{what}: {status}");
        }
    }
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_stops_is_unavailable() {
    let (mut fleet, node) = fleet().await;
    let mut client = node.dial().await;
    let stream = client.open_stream(call(&node, route::SUBSCRIBE), greeting().into(), DEADLINE).await;
    let Stream { response, sender: _open, receiver } = stream.unwrap();
    let ((), (messages, status)) = tokio::join!(fleet.stop(), outcome(response, receiver));
    assert_eq!(status.code, StatusCode::UNAVAILABLE, "{status}");
    assert_eq!(status.reason.as_deref(), Some("shutdown"));
    assert!(!messages.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_closed_with_the_code() {
    let (_fleet, node) = fleet().await;
    let bounds = SocketBounds { read: MAX_DOWN, write: 2 * MAX_UP };
    let too_long = format!("[{}]", " ".repeat(MAX_UP));
    for (bad, close) in [("nothing of JSON".to_owned(), 1007), ("{}".to_owned(), 1007), (too_long, 1009)] {
        let http1 = Http1::dial(&node.url, &node.tls).await.unwrap();
        let request = Request::get(route::STREAM).header(PROTOCOL_HEADER, PROTOCOL).body(()).unwrap();
        let Upgraded::Socket(socket) = http1.upgrade(request, bounds, DEADLINE).await.unwrap() else {
            panic!("no socket")
        };
        let (mut sender, mut receiver) = socket.split();
        // A message that is too long may be refused before it is sent to its end.
        let _ = sender.send(bad.into_bytes(), false).await;
        let closed = loop {
            match soon(receiver.recv()).await {
                Ok(Received::Close(code, reason)) => break (code, reason),
                Ok(_) => {}
                Err(WebSocketError::Closed) => panic!("closed without a word"),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(closed.0, close, "{closed:?}");
        assert!(
            closed.1.starts_with(if close == 1009 { "too-large: " } else { "unreadable: " }),
            "{closed:?}"
        );
    }
}

/// A call whose request is there as a whole: the messages of its answer, and its status.
async fn whole(node: &Member, request: Request<()>, body: Vec<u8>) -> (Vec<Bytes>, GrpcStatus) {
    let tcp = TcpStream::connect(node.url.authority()).await.unwrap();
    let name = ServerName::try_from(node.url.host().to_owned()).unwrap();
    let tls = tokio_rustls::TlsConnector::from(node.tls.clone()).connect(name, tcp).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut send, connection) = builder.handshake::<_, Full<Bytes>>(TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    let response = soon(send.send_request(request.map(|()| body.into()))).await.unwrap();
    assert_eq!(response.status(), 200, "gRPC says in its own way what is wrong");
    let at_once = GrpcStatus::read(response.headers());
    let collected = soon(response.into_body().collect()).await.expect("it ends in order");
    let status = at_once.or_else(|| GrpcStatus::read(collected.trailers()?)).expect("a status");
    let mut decoder = GrpcDecoder::new(MAX_DOWN, true);
    decoder.push(collected.to_bytes());
    let mut messages = Vec::new();
    while let Some(message) = decoder.next().unwrap() {
        messages.push(message);
    }
    (messages, status)
}

/// A push of these messages.
pub(crate) async fn push(node: &Member, body: Vec<u8>) -> (Vec<Bytes>, GrpcStatus) {
    whole(node, call(node, route::PUSH), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_ok_only_when_all_was_taken() {
    let (_fleet, node) = fleet().await;
    let ping = message(&Frame::Ping(Ping::default()), "edge-1");
    for (what, body, code) in [
        ("nothing", Vec::new(), "no-hello"),
        ("no hello", ping.clone(), "no-hello"),
        ("no frame", [greeting(), b"\0\0\0\0\x03abc".to_vec()].concat(), "unreadable"),
    ] {
        let (messages, status) = push(&node, body).await;
        assert_eq!((messages.len(), status.code), (0, StatusCode::INVALID_ARGUMENT), "{what}: {status}");
        assert_eq!(status.reason.as_deref(), Some(code), "{what}");
    }
    // A client that says nothing on a stream hears the same.
    let (messages, status) = whole(&node, call(&node, route::SUBSCRIBE), Vec::new()).await;
    assert_eq!((messages.len(), status.code), (1, StatusCode::INVALID_ARGUMENT), "{status}");
    assert_eq!(status.reason.as_deref(), Some("no-hello"));
    let (messages, status) = push(&node, [greeting(), ping].concat()).await;
    assert_eq!(status.code, StatusCode::OK, "{status}");
    let summary: wire::rpc::PushSummary = wire::rpc::read(&messages[0]).unwrap();
    assert_eq!((summary.result.as_str(), summary.received, summary.processed), ("ok", 2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_method_is_unimplemented() {
    let (_fleet, node) = fleet().await;
    for path in ["/muster.v1.EventStream/Teleport", "/muster.v2.EventStream/Subscribe", "/a.B/C"] {
        let mut request = call(&node, path);
        // A client that knows nothing of Muster gets the same answer.
        request.headers_mut().remove(PROTOCOL_HEADER);
        let mut client = node.dial().await;
        let stream = client.open_stream(request, Bytes::new(), DEADLINE).await.unwrap();
        assert!(GrpcStatus::read(&stream.response.headers).is_some(), "headers alone");
        let (_, status) = outcome(stream.response, stream.receiver).await;
        assert_eq!(status.code, StatusCode::UNIMPLEMENTED, "{path}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_request_is_named() {
    let (_fleet, node) = fleet().await;
    let post = |path: &str, bytes: Vec<u8>| node.signed(Method::POST, path, bytes);
    let answer = node.send(post("/v1/agent/checkin?wait=abc", test_support::fleet::body_of(&quiet()))).await;
    refused(&answer, Code::BadQuery);
    for (path, limit) in [(route::CHECKIN, 1024 * 1024), (route::EVENTS, wire::batch::MAX_REQUEST)] {
        let problem = refused(&node.send(post(path, vec![b' '; limit + 1])).await, Code::BodyTooLarge);
        assert!(problem.detail.unwrap().contains(&limit.to_string()), "{path} names its bound");
    }
    let mut old = post(route::CHECKIN, b"{}".to_vec());
    old.headers_mut().insert("muster-agent-version", HeaderValue::from_static("0.0.9"));
    let problem = refused(&node.send(old).await, Code::AgentTooOld);
    assert!(problem.detail.unwrap().contains("0.1.0"), "the oldest that is served");
    let missing = refused(&node.send(plain(&node.url, route::CHECKIN, b"{}".to_vec())).await, Code::Unsigned);
    assert!(missing.detail.unwrap().contains("has no `Signature-Input`"));
    let mut other = post(route::CHECKIN, b"{}".to_vec());
    let input = other.headers()["signature-input"].to_str().unwrap().replace("muster=", "sig1=");
    other.headers_mut().insert("signature-input", input.parse().unwrap());
    let form = refused(&node.send(other).await, Code::Unsigned);
    assert!(form.detail.unwrap().contains("label `muster`"));
}

/// Sends one message to a service that any gRPC client knows, without a header of Muster.
async fn standard(node: &Member, path: &str, message: &[u8]) -> (Vec<Bytes>, GrpcStatus) {
    let mut request = call(node, path);
    request.headers_mut().remove(PROTOCOL_HEADER);
    whole(node, request, framed(message)).await
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()], message].concat()
}

/// A field of protobuf that holds a text.
fn named(number: u8, text: &str) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_needs_nothing_of_muster() {
    let (_fleet, node) = fleet().await;
    for service in ["", "muster.v1.EventStream"] {
        let (messages, status) = standard(&node, route::HEALTH_CHECK, &named(1, service)).await;
        assert_eq!(status.code, StatusCode::OK, "{status}");
        assert_eq!(messages[0][..], [8, 1], "{service:?} is serving");
    }
    let (_, status) = standard(&node, route::HEALTH_CHECK, &named(1, "muster.v1.Tea")).await;
    assert_eq!(status.code, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_needs_nothing_of_muster() {
    let (_fleet, node) = fleet().await;
    for path in [route::REFLECTION, route::REFLECTION_ALPHA] {
        let (messages, status) = standard(&node, path, &named(7, "")).await;
        assert_eq!(status.code, StatusCode::OK, "{status}");
        let text = String::from_utf8_lossy(&messages[0]).into_owned();
        for service in ["muster.v1.EventStream", "muster.v1.Version", "grpc.health.v1.Health"] {
            assert!(text.contains(service), "{path}: {text}");
        }
        let (messages, _) = standard(&node, path, &named(4, "muster.v1.EventStream.Push")).await;
        let text = String::from_utf8_lossy(&messages[0]).into_owned();
        for file in ["muster/v1/muster.proto", "io/cloudevents/v1/cloudevents.proto"] {
            assert!(text.contains(file), "{path}: the file and what it imports");
        }
    }
}
