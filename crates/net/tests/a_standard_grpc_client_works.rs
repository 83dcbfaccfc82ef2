//! SYN-1, WIR-5: a client made from the protobuf files by a standard generator calls every method.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod generated;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use generated::io_cloudevents_v1::CloudEvent;
use generated::io_cloudevents_v1::cloud_event::Data;
use generated::muster_v1::event_stream_client::EventStreamClient;
use generated::muster_v1::version_client::VersionClient;
use generated::muster_v1::{Event, PingRequest, VersionRequest};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use hyper_util::rt::TokioIo;
use net::accept::AcceptLimits;
use rustls_pki_types::ServerName;
use sync::Frame;
use test_support::tls_server::TlsServer;
use test_support::wait::soon;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use wire::cloudevents::{MAX_UP, Origin, PREFIX, protobuf};
use wire::grpc::{self, GrpcDecoder, GrpcStatus};
use wire::rpc;
use wire::{Code, Problem, route};

type Pieces = Pin<Box<dyn Stream<Item = Result<BodyFrame<Bytes>, Infallible>> + Send>>;

fn frame_of(message: &[u8], gzip: bool) -> BodyFrame<Bytes> {
    let mut out = Vec::new();
    let write = |out: &mut Vec<u8>| {
        out.extend_from_slice(message);
        Ok::<_, Infallible>(())
    };
    grpc::append(&mut out, gzip, write).unwrap();
    BodyFrame::data(out.into())
}

/// What a control plane does with these routes, as simply as it can be done.
async fn handle(request: Request<Incoming>) -> Response<StreamBody<Pieces>> {
    let mut answer = Response::new(());
    let (parts, body) = request.into_parts();
    let pieces: Pieces = match grpc::agree(&parts.headers) {
        Err(problem) => ended(Vec::new(), &GrpcStatus::of(problem)),
        Ok(agreed) => {
            grpc::announce(answer.headers_mut(), agreed.outgoing_gzip);
            let decoder = GrpcDecoder::new(MAX_UP, agreed.incoming_gzip);
            match parts.uri.path() {
                route::SUBSCRIBE => subscribe(body, decoder, agreed.outgoing_gzip),
                path => match unary(path, body, decoder).await {
                    Ok(message) => ended(vec![frame_of(&message, agreed.outgoing_gzip)], &GrpcStatus::ok()),
                    Err(problem) => ended(Vec::new(), &GrpcStatus::of(problem)),
                },
            }
        }
    };
    answer.map(|()| StreamBody::new(pieces))
}

fn ended(mut frames: Vec<BodyFrame<Bytes>>, status: &GrpcStatus) -> Pieces {
    frames.push(BodyFrame::trailers(status.headers()));
    Box::pin(futures_util::stream::iter(frames.into_iter().map(Ok)))
}

async fn unary(path: &str, body: Incoming, mut decoder: GrpcDecoder) -> Result<Vec<u8>, Problem> {
    decoder.push(body.collect().await.unwrap().to_bytes());
    let mut messages = Vec::new();
    while let Some(message) = decoder.next().unwrap() {
        messages.push(message);
    }
    match path {
        route::PING => {
            let rpc::PingRequest { number } = rpc::read(&messages[0])?;
            Ok(rpc::write(&rpc::PongReply { number }))
        }
        route::VERSION => {
            let spoken = rpc::VersionResponse::own("1.2.3");
            let asked: rpc::VersionRequest = rpc::read(&messages[0])?;
            spoken.common(asked).ok_or_else(|| Problem::new(Code::ProtocolVersion, "50 % too new"))?;
            Ok(rpc::write(&spoken))
        }
        route::PUSH => {
            let read = messages.iter().map(|message| protobuf::decode(message, Some("web-1"), MAX_UP));
            let frames: Vec<Frame> = read.collect::<Result<_, _>>()?;
            let received = frames.len() as u64;
            Ok(rpc::write(&rpc::PushSummary { result: "ok".to_owned(), received, processed: received }))
        }
        _ => Err(Code::MethodNotAllowed.into()),
    }
}

/// Every ping is answered, and every other frame comes back.
fn subscribe(body: Incoming, decoder: GrpcDecoder, gzip: bool) -> Pieces {
    let state = (Some(body), decoder, Origin::principal("link-1"));
    Box::pin(futures_util::stream::unfold(state, move |(body, mut decoder, mut origin)| async move {
        let mut body = body?;
        let Some(frame) = body.frame().await else {
            let last = BodyFrame::trailers(GrpcStatus::ok().headers());
            return Some((Ok(last), (None, decoder, origin)));
        };
        if let Ok(Ok(data)) = frame.map(BodyFrame::into_data) {
            decoder.push(data);
        }
        let mut out = Vec::new();
        while let Some(message) = decoder.next().unwrap() {
            let answer = match protobuf::decode(&message, Some("web-1"), MAX_UP) {
                Ok(Frame::Ping(ping)) => {
                    Frame::Pong(sync::frame::Pong { number: ping.number, head: ping.head })
                }
                Ok(other) => other,
                Err(error) => {
                    let last = BodyFrame::trailers(GrpcStatus::of(error.into()).headers());
                    return Some((Ok(last), (None, decoder, origin)));
                }
            };
            grpc::append(&mut out, gzip, |out| protobuf::encode(&mut origin, &answer, out)).unwrap();
        }
        Some((Ok(BodyFrame::data(out.into())), (Some(body), decoder, origin)))
    }))
}

/// A standard channel over the node's TLS.
async fn channel(server: &TlsServer) -> Channel {
    let (tls, at) = (server.node(1), server.address);
    let connect = tower::service_fn(move |_: http::Uri| {
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls));
        async move {
            let stream = tokio::net::TcpStream::connect(at).await?;
            let name = ServerName::from(at.ip());
            connector.connect(name, stream).await.map(TokioIo::new)
        }
    });
    Endpoint::from_shared(format!("http://{at}")).unwrap().connect_with_connector(connect).await.unwrap()
}

fn event(name: &str, data: &str) -> Event {
    Event {
        event: Some(CloudEvent {
            id: "1".to_owned(),
            source: "web-1".to_owned(),
            spec_version: "1.0".to_owned(),
            r#type: format!("{PREFIX}{name}"),
            attributes: std::collections::HashMap::default(),
            data: (!data.is_empty()).then(|| Data::BinaryData(data.into())),
        }),
    }
}

#[tokio::test]
async fn version_and_ping() {
    let server = TlsServer::start(AcceptLimits::default(), false, handle).await;
    let channel = channel(&server).await;
    let mut version = VersionClient::new(channel.clone());
    let spoken = soon(version.version(VersionRequest { lowest: 1, highest: 7 })).await.unwrap().into_inner();
    assert_eq!((spoken.version.as_str(), spoken.lowest, spoken.highest), ("1.2.3", 2, 2));
    assert_eq!(spoken.capabilities, ["trie-resync", "gzip", "checkin", "compared"]);
    let refused = soon(version.version(VersionRequest { lowest: 3, highest: 7 })).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().ends_with("50 % too new"), "{}", refused.message());
    assert!(refused.metadata().get("muster-problem").is_some());
    let mut events = EventStreamClient::new(channel);
    let pong = soon(events.ping(PingRequest { number: 42 })).await.unwrap().into_inner();
    assert_eq!(pong.number, 42);
}

#[tokio::test]
async fn subscribe_both_ways_packed_or_not() {
    let server = TlsServer::start(AcceptLimits::default(), false, handle).await;
    for gzip in [false, true] {
        let mut events = EventStreamClient::new(channel(&server).await);
        if gzip {
            events = events
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let (tx, rx) = tokio::sync::mpsc::channel(1);
        let up =
            futures_util::stream::unfold(rx, |mut rx| async { rx.recv().await.map(|event| (event, rx)) });
        let mut down = soon(events.subscribe(up)).await.unwrap().into_inner();
        let message = "x".repeat(3000);
        let data = format!(r#"{{"code":"bye","message":"{message}"}}"#);
        let pong = r#"{"number":0,"head":0}"#;
        for (sent, carries, back, carried) in [
            ("ping", "", "pong", pong),
            ("go-away", &data[..], "go-away", &data[..]),
            ("not-known", "", "not-known", ""),
        ] {
            tx.send(event(sent, carries)).await.unwrap();
            let got = soon(down.message()).await.unwrap().unwrap().event.unwrap();
            assert_eq!(got.r#type, format!("{PREFIX}{back}"), "gzip {gzip}");
            assert_eq!(got.source, "principal");
            let want = (!carried.is_empty()).then(|| Data::BinaryData(carried.into()));
            assert_eq!(got.data, want);
        }
        drop(tx);
        assert!(soon(down.message()).await.unwrap().is_none(), "it ends with status 0");
    }
}

#[tokio::test]
async fn push_is_summed_up_and_a_bad_event_refused_by_name() {
    let server = TlsServer::start(AcceptLimits::default(), false, handle).await;
    let mut events = EventStreamClient::new(channel(&server).await);
    let good = futures_util::stream::iter([event("ping", ""), event("state-updated", ""), event("ping", "")]);
    let summary = soon(events.push(good)).await.unwrap().into_inner();
    assert_eq!((summary.result.as_str(), summary.received, summary.processed), ("ok", 3, 3));
    let refused = soon(events.push(futures_util::stream::iter([event("create", "{}")]))).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains("resourceid"), "{}", refused.message());
}
