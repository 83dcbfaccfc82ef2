//! IDN-3, WIR-6: no peer holds a connection beyond its age, whatever it leaves undone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::Timestamp;
use net::accept::{AcceptLimits, serve};
use net::issue::Ca;
use net::tls::{self, ClientAuth};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;

/// More than any of these tests takes, and less than anybody waits.
const PATIENCE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);
/// More than the flow control window that the hanging client gives.
const ANSWER: usize = 1024 * 1024;

/// A server with room for one connection, on which one without a certificate is soon old.
struct Server {
    at: std::net::SocketAddr,
    ca: Ca,
    stop: watch::Sender<bool>,
}

impl Server {
    async fn start() -> Server {
        let now = today();
        let (ca, _) = Ca::generate("test", now).unwrap();
        let own = ca.issue_server(&["localhost".to_owned()], [7; 16], net::issue::own_validity(now)).unwrap();
        let config =
            tls::server(&own.cert_pem, &own.key_pem, ca.cert_pem(), ca.cert_pem(), ClientAuth::Optional);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let stop = watch::Sender::new(false);
        let limits =
            AcceptLimits { connections: 1, anonymous_age: SHORT, ending: SHORT, ..AcceptLimits::default() };
        let tls = watch::Sender::new(config.unwrap());
        let shutdown = stop.subscribe();
        tokio::spawn(async move {
            serve(listener, tls.subscribe(), limits, shutdown, |_| async {
                Response::new(Full::new(Bytes::from(vec![b'x'; ANSWER])))
            })
            .await;
        });
        Server { at, ca, stop }
    }

    /// A connection that came through its handshake, for which there must be room.
    async fn connect(&self) -> TlsStream<TcpStream> {
        let connector = tokio_rustls::TlsConnector::from(
            tls::client_pinned(self.ca.digest(), Default::default()).unwrap(),
        );
        let stream = TcpStream::connect(self.at).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        tokio::time::timeout(PATIENCE, connector.connect(name, stream)).await.expect("there is room").unwrap()
    }
}

fn today() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

fn request() -> Request<Empty<Bytes>> {
    Request::get("https://localhost/").body(Empty::new()).unwrap()
}

/// OPS-1: people read what happened, and no address of a library's manual.
#[tokio::test]
async fn one_that_is_gone_in_mid_session_is_told_in_words() {
    let now = today();
    let (ca, _) = Ca::generate("test", now).unwrap();
    let own = ca.issue_server(&["localhost".to_owned()], [7; 16], net::issue::own_validity(now)).unwrap();
    let config = tls::server(&own.cert_pem, &own.key_pem, ca.cert_pem(), ca.cert_pem(), ClientAuth::Optional);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut session = tokio_rustls::TlsAcceptor::from(config.unwrap()).accept(stream).await.unwrap();
        session.get_mut().0.shutdown().await.unwrap();
        std::future::pending::<()>().await;
    });
    let client = tls::client_pinned(ca.digest(), Default::default()).unwrap();
    let mut client = net::client::Client::dial(&url, client).await.unwrap();
    let request = Request::get("https://localhost/").body(Full::default()).unwrap();
    let error = client.call(request, 1024, PATIENCE).await.unwrap_err();
    let told = model::text::chain(&error);
    assert!(!told.contains("https://docs"), "{told}");
    assert!(told.contains("without ending the TLS session"), "{told}");
}

#[tokio::test]
async fn one_that_never_speaks_http_makes_room() {
    let server = Server::start().await;
    let mut silent = server.connect().await;
    let closed = tokio::time::timeout(PATIENCE, async { while silent.read_u8().await.is_ok() {} });
    closed.await.expect("the server closes it");
    server.connect().await;
    server.stop.send_replace(true);
}

#[tokio::test]
async fn one_that_never_reads_its_answer_makes_room() {
    let server = Server::start().await;
    let io = TokioIo::new(server.connect().await);
    let (mut send, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake(io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    // Held, and not read: the stream stays open.
    let answer = send.send_request(request()).await.unwrap();
    let _ = tokio::time::timeout(PATIENCE, connection).await.expect("the server closes it");
    server.connect().await;
    drop(answer);
    server.stop.send_replace(true);
}
