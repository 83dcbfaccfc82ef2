//! SYN-1: a request's body goes on while its response comes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use net::accept::{AcceptLimits, Connection};
use net::client::Client;
use net::stream::BodyFrame;
use test_support::tls_server::TlsServer;
use test_support::wait::{DEADLINE, soon};

type Answer = Response<BoxBody<Bytes, std::convert::Infallible>>;

/// Everything comes back as it came, with trailers.
async fn echo(request: Request<Incoming>) -> Answer {
    let connection = request.extensions().get::<Connection>().unwrap().clone();
    assert!(!connection.http1);
    let pieces = futures_util::stream::unfold(Some(request.into_body()), |body| async {
        let mut body = body?;
        match body.frame().await {
            Some(Ok(frame)) => Some((Ok(Frame::data(frame.into_data().unwrap_or_default())), Some(body))),
            Some(Err(_)) => None,
            None => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                Some((Ok(Frame::trailers(trailers)), None))
            }
        }
    });
    Response::new(BodyExt::boxed(StreamBody::new(
        Box::pin(pieces) as std::pin::Pin<Box<dyn futures_util::Stream<Item = _> + Send + Sync>>
    )))
}

fn request(server: &TlsServer, path: &str) -> Request<()> {
    Request::post(format!("{}{path}", server.url)).body(()).unwrap()
}

#[tokio::test]
async fn chunks_and_trailers_come_while_the_body_goes_on() {
    let server = TlsServer::start(AcceptLimits::default(), false, echo).await;
    let mut client = Client::dial(&server.url, server.node(1)).await.unwrap();
    let first = Bytes::from_static(b"first");
    let mut stream = client.open_stream(request(&server, "/"), first.clone(), DEADLINE).await.unwrap();
    assert_eq!(stream.response.status, 200);
    assert_eq!(soon(stream.receiver.next()).await.unwrap(), Some(BodyFrame::Data(first)));
    for count in 0..200_u32 {
        let chunk = Bytes::from(vec![count as u8; 1000]);
        soon(stream.sender.put(chunk.clone())).await.unwrap();
        let mut found = Vec::new();
        while found.len() < chunk.len() {
            match soon(stream.receiver.next()).await.unwrap() {
                Some(BodyFrame::Data(data)) => found.extend_from_slice(&data),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(found, chunk);
    }
    drop(stream.sender);
    match soon(stream.receiver.next()).await.unwrap() {
        Some(BodyFrame::Trailers(trailers)) => assert_eq!(trailers["grpc-status"], "0"),
        other => panic!("{other:?}"),
    }
    assert_eq!(soon(stream.receiver.next()).await.unwrap(), None);
}

#[tokio::test]
async fn a_sender_waits_while_nobody_reads() {
    let server = TlsServer::start(AcceptLimits::default(), false, |request: Request<Incoming>| async move {
        // The body is held, never read.
        let held = request.into_body();
        let pieces = futures_util::stream::once(async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok(Frame::data(Bytes::new()))
        });
        Response::new(StreamBody::new(Box::pin(pieces)))
    })
    .await;
    let mut client = Client::dial(&server.url, server.node(1)).await.unwrap();
    let mut stream = client.open_stream(request(&server, "/"), Bytes::new(), DEADLINE).await.unwrap();
    let mut sent = 0_usize;
    let chunk = Bytes::from(vec![b'x'; 16 * 1024]);
    let patience = std::time::Duration::from_millis(500);
    while tokio::time::timeout(patience, stream.sender.put(chunk.clone())).await.is_ok() {
        sent += chunk.len();
        assert!(sent < 2 * 1024 * 1024, "nothing holds the sender back");
    }
}
