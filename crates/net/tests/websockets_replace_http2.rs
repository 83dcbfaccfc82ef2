//! SYN-1, WIR-6: where HTTP/2 does not get through, frames go over a WebSocket; it is bounded, counted, and ends with the server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use net::accept::{AcceptLimits, Connection};
use net::client::{Client, ClientError, Http1, Upgraded};
use net::websocket::{self, Received, SocketBounds, SocketReceiver, SocketSender, WebSocketError};
use test_support::tls_server::TlsServer;
use test_support::wait::{DEADLINE, soon};
use wire::Code;

const BOUNDS: SocketBounds = SocketBounds { read: 64 * 1024, write: 64 * 1024 };

/// Sends back what comes, and says goodbye when the connection is to end.
async fn echo(mut tx: SocketSender, mut rx: SocketReceiver, connection: Connection) {
    loop {
        let received = tokio::select! {
            received = rx.recv() => received,
            () = connection.closing() => {
                let _ = tx.close(1001, "the server stops").await;
                // The other side answers, or time is over.
                while rx.recv().await.is_ok() {}
                return;
            }
        };
        match received {
            Ok(Received::Json(json)) => {
                let gzip = json.len() > 10_000;
                if tx.send(json.to_vec(), gzip).await.is_err() {
                    return;
                }
            }
            Ok(Received::Pong) => {}
            Ok(Received::Close(..)) | Err(WebSocketError::Closed | WebSocketError::Io(_)) => return,
            Err(WebSocketError::TooLarge { .. }) => {
                let _ = tx.close(1009, "too large").await;
                return;
            }
            Err(_) => {
                let _ = tx.close(1002, "wrong").await;
                return;
            }
        }
    }
}

/// Over HTTP/1.1 only an upgrade is answered.
async fn handle(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let connection = request.extensions().get::<Connection>().unwrap().clone();
    if !connection.http1 {
        return Response::new(Full::new(Bytes::from_static(b"h2")));
    }
    match websocket::accept(&mut request, BOUNDS) {
        Ok((response, upgrade)) => {
            tokio::spawn(async move {
                let (tx, rx) = upgrade.socket().await.unwrap().split();
                echo(tx, rx, connection).await;
            });
            response.map(|()| Full::default())
        }
        Err(error) => {
            let mut response = Response::new(Full::new(Bytes::from(error.to_string())));
            *response.status_mut() = StatusCode::from_u16(Code::UpgradeRequired.status()).unwrap();
            response
        }
    }
}

fn request() -> Request<()> {
    Request::get("/v1/agent/stream").body(()).unwrap()
}

async fn dial(server: &TlsServer, node: u8) -> Result<(SocketSender, SocketReceiver), ClientError> {
    let client = Http1::dial(&server.url, &server.node(node)).await?;
    match client.upgrade(request(), BOUNDS, DEADLINE).await? {
        Upgraded::Socket(socket) => Ok(socket.split()),
        Upgraded::Refused(response) => panic!("{response:?}"),
    }
}

#[tokio::test]
async fn messages_go_both_ways_packed_or_not() {
    let server = TlsServer::start(AcceptLimits::default(), true, handle).await;
    let (mut tx, mut rx) = dial(&server, 1).await.unwrap();
    for (size, gzip) in [(2, false), (2, true), (5000, true), (60_000, true), (60_000, false)] {
        let json = format!("\"{}\"", "x".repeat(size)).into_bytes();
        soon(tx.send(json.clone(), gzip)).await.unwrap();
        assert_eq!(soon(rx.recv()).await.unwrap(), Received::Json(json.into()), "{size} {gzip}");
    }
    tx.ping().await.unwrap();
    assert_eq!(soon(rx.recv()).await.unwrap(), Received::Pong);
    tx.close(1000, &"done ".repeat(100)).await.unwrap();
    match soon(rx.recv()).await {
        Ok(Received::Close(1000, _)) | Err(WebSocketError::Closed) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn messages_are_bounded_both_ways_and_as_unpacked() {
    let server = TlsServer::start(AcceptLimits::default(), true, handle).await;
    let client = Http1::dial(&server.url, &server.node(1)).await.unwrap();
    let wide = SocketBounds { write: 1024 * 1024, ..BOUNDS };
    let Upgraded::Socket(socket) = client.upgrade(request(), wide, DEADLINE).await.unwrap() else {
        panic!("refused")
    };
    let (mut tx, mut rx) = socket.split();
    let refused = tx.send(vec![b' '; wide.write + 1], false).await.unwrap_err();
    assert!(matches!(refused, WebSocketError::TooLarge { .. }), "{refused:?}");
    // Small as sent, too large as unpacked.
    soon(tx.send(vec![b' '; wide.write], true)).await.unwrap();
    assert_eq!(soon(rx.recv()).await.unwrap(), Received::Close(1009, "too large".to_owned()));
    // Too large as sent.
    let client = Http1::dial(&server.url, &server.node(3)).await.unwrap();
    let Upgraded::Socket(socket) = client.upgrade(request(), wide, DEADLINE).await.unwrap() else {
        panic!("refused")
    };
    let (mut tx, mut rx) = socket.split();
    soon(tx.send(vec![b' '; BOUNDS.read + 1], false)).await.unwrap();
    assert_eq!(soon(rx.recv()).await.unwrap(), Received::Close(1009, "too large".to_owned()));
    let (mut tx, mut rx) = dial(&server, 2).await.unwrap();
    tx.send(vec![b' '; BOUNDS.read + 1], false).await.unwrap_err();
    tx.ping().await.unwrap();
    assert_eq!(soon(rx.recv()).await.unwrap(), Received::Pong, "what was refused here was not sent");
}

#[tokio::test]
async fn http1_answers_nothing_but_the_upgrade() {
    let server = TlsServer::start(AcceptLimits::default(), true, handle).await;
    for (method, path) in [("GET", "/v1/agent/stream"), ("POST", "/v1/agent/checkin")] {
        // The headers of an upgrade are put in; POST cannot have one, and GET without a key neither.
        let client = Http1::dial(&server.url, &server.node(1)).await.unwrap();
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let came = client.upgrade(request, BOUNDS, DEADLINE).await.unwrap();
        match (method, came) {
            ("GET", Upgraded::Socket(_)) => {}
            ("POST", Upgraded::Refused(response)) => {
                assert_eq!(response.status().as_u16(), Code::UpgradeRequired.status());
            }
            (_, other) => panic!("{method}: {other:?}"),
        }
    }
    // HTTP/2 is still preferred by who speaks both.
    let mut client = Client::dial(&server.url, server.node(2)).await.unwrap();
    let ask = Request::get(format!("{}/", server.url)).body(Full::default()).unwrap();
    assert_eq!(client.call(ask, 1024, DEADLINE).await.unwrap().into_body(), "h2");
}

#[tokio::test]
async fn without_the_offer_there_is_no_http1() {
    let server = TlsServer::start(AcceptLimits::default(), false, handle).await;
    let refused = Http1::dial(&server.url, &server.node(1)).await.unwrap_err();
    assert!(matches!(refused, ClientError::Handshake { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_socket_counts_as_a_connection_of_its_node_until_it_ends() {
    let limits = AcceptLimits { per_peer: 1, ..AcceptLimits::default() };
    let server = TlsServer::start(limits, true, handle).await;
    let (tx, rx) = dial(&server, 1).await.unwrap();
    assert!(dial(&server, 1).await.is_err(), "the node has its connection");
    let other = dial(&server, 2).await;
    assert!(other.is_ok(), "another node is let in");
    drop((tx, rx));
    let began = Instant::now();
    while dial(&server, 1).await.is_err() {
        assert!(began.elapsed() < DEADLINE, "the place of a closed socket is not given back");
    }
}

#[tokio::test]
async fn a_socket_is_told_when_the_server_stops_and_when_it_is_old() {
    let server = TlsServer::start(AcceptLimits::default(), true, handle).await;
    let (_tx, mut rx) = dial(&server, 1).await.unwrap();
    server.stop.send_replace(true);
    assert_eq!(soon(rx.recv()).await.unwrap(), Received::Close(1001, "the server stops".to_owned()));
    let old = AcceptLimits { age: Duration::from_millis(200), ..AcceptLimits::default() };
    let server = TlsServer::start(old, true, handle).await;
    let (_tx, mut rx) = dial(&server, 1).await.unwrap();
    assert_eq!(soon(rx.recv()).await.unwrap(), Received::Close(1001, "the server stops".to_owned()));
}

/// A handler that does not look at the time, and a client that reads nothing.
#[tokio::test]
async fn a_socket_that_does_not_end_by_itself_is_cut() {
    let short = Duration::from_millis(200);
    let limits = AcceptLimits { per_peer: 1, age: short, ending: short, ..AcceptLimits::default() };
    let server = TlsServer::start(limits, true, |mut request: Request<Incoming>| async move {
        let (response, upgrade) = websocket::accept(&mut request, BOUNDS).unwrap();
        tokio::spawn(async move {
            let (_tx, mut rx) = upgrade.socket().await.unwrap().split();
            while rx.recv().await.is_ok() {}
        });
        response.map(|()| Full::<Bytes>::default())
    })
    .await;
    let (_tx, mut rx) = dial(&server, 1).await.unwrap();
    assert!(soon(rx.recv()).await.is_err(), "it is cut");
    let began = Instant::now();
    while dial(&server, 1).await.is_err() {
        assert!(began.elapsed() < DEADLINE, "its place is not given back");
    }
}
