//! SCL-3, WIR-6: an answer that its reader does not take in is not held for as long as its connection lives, and
//! a connection has a bound of what waits on it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use net::accept::AcceptLimits;
use rustls_pki_types::ServerName;
use test_support::tls_server::TlsServer;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3600);
/// Less than what gives a second more.
const ANSWER: usize = 7 * 1024;

/// A server whose connections live long.
async fn server(answer: Duration, unread: usize) -> TlsServer {
    let short = Duration::from_millis(50);
    let limits = AcceptLimits { answer, unread, age: LONG, ending: short, ..AcceptLimits::default() };
    TlsServer::start(limits, false, |_| async { Response::new(Full::new(Bytes::from(vec![b'x'; ANSWER]))) })
        .await
}

/// A connection that takes in so many bytes of a stream unread, and its end.
async fn connect(server: &TlsServer, window: u32) -> (SendRequest<Empty<Bytes>>, JoinHandle<()>) {
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let tls = tokio_rustls::TlsConnector::from(server.node(1)).connect(name, tcp).await.unwrap();
    let http = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .initial_connection_window_size(16 * 1024 * 1024)
        .handshake(TokioIo::new(tls))
        .await
        .unwrap();
    let (send, connection) = http;
    (send, tokio::spawn(async move { drop(connection.await) }))
}

fn ask() -> Request<Empty<Bytes>> {
    Request::get("https://127.0.0.1/").body(Empty::new()).unwrap()
}

#[tokio::test]
async fn one_that_is_not_read_closes_its_connection() {
    for window in [0, 1, 5 * 1024] {
        let server = server(Duration::from_millis(100), usize::MAX).await;
        let (mut send, ended) = connect(&server, window).await;
        // Held, and not read.
        let answer = send.send_request(ask()).await.unwrap();
        tokio::time::timeout(PATIENCE, ended).await.expect("the server closes it").unwrap();
        drop(answer);
    }
}

#[tokio::test]
async fn more_than_may_wait_closes_the_connection() {
    let server = server(LONG, 2 * ANSWER).await;
    let (mut send, ended) = connect(&server, 1).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(send.send_request(ask()).await.unwrap());
    }
    assert!(!ended.is_finished(), "two may wait");
    // The third is refused or its connection ends.
    let third = send.send_request(ask()).await;
    tokio::time::timeout(PATIENCE, ended).await.expect("the server closes it").unwrap();
    drop((third, held));
}

#[tokio::test]
async fn answers_that_are_read_are_whole_and_stay_within_the_bounds() {
    let server = server(LONG, 2 * ANSWER).await;
    let (mut send, ended) = connect(&server, 64 * 1024).await;
    for _ in 0..8 {
        let answer = send.send_request(ask()).await.unwrap();
        assert_eq!(answer.headers()["content-length"], ANSWER.to_string());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, vec![b'x'; ANSWER]);
    }
    assert!(!ended.is_finished());
}
