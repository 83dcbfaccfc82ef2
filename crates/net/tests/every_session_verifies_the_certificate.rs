//! IDN-4, IDN-3: what flows on a stream counts as the node's by its TLS session alone. So no
//! session is resumed, none carries early data, and none lives for more than an hour: each begins
//! with the certificate and ends in order.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use net::accept::{AcceptLimits, Connection};
use net::client::Client;
use net::stream::BodyFrame;
use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind};
use rustls_pki_types::ServerName;
use test_support::tls_server::TlsServer;
use test_support::wait::{DEADLINE, soon};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// An answer that ends with the word `closing` once the connection is to end.
async fn until_closing(
    request: Request<Incoming>,
) -> Response<StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Unpin>> {
    let connection = request.extensions().get::<Connection>().unwrap().clone();
    let closing = futures_util::stream::once(async move {
        connection.closing().await;
        Ok(Frame::data(Bytes::from_static(b"closing")))
    });
    Response::new(StreamBody::new(Box::pin(closing)))
}

/// Connects, and reads on until the server has said what it has to say after the handshake.
async fn connect(server: &TlsServer, tls: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connector = tokio_rustls::TlsConnector::from(tls.clone());
    let mut session = soon(connector.connect(name, tcp)).await.unwrap();
    // The settings of HTTP/2 come after what belongs to TLS.
    let mut settings = [0; 9];
    soon(session.read_exact(&mut settings)).await.unwrap();
    session
}

#[tokio::test]
async fn no_session_is_resumed_and_none_carries_early_data() {
    let server = TlsServer::start(AcceptLimits::default(), false, until_closing).await;
    // A client that would like both.
    let mut tls = ClientConfig::clone(&server.node(1));
    tls.resumption = Resumption::in_memory_sessions(8);
    tls.enable_early_data = true;
    let tls = Arc::new(tls);
    for _ in 0..3 {
        let session = connect(&server, &tls).await;
        let session = session.get_ref().1;
        assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(session.tls13_tickets_received(), 0, "there is nothing to resume with");
        assert!(!session.is_early_data_accepted());
    }
}

#[tokio::test]
async fn an_old_connection_lets_its_streams_end_and_takes_no_more() {
    assert_eq!(AcceptLimits::default().age, Duration::from_secs(3600), "certificates are verified each hour");
    let limits = AcceptLimits { age: Duration::from_millis(50), ..AcceptLimits::default() };
    let server = TlsServer::start(limits, false, until_closing).await;
    let mut client = Client::dial(&server.url, server.node(1)).await.unwrap();
    let request = || Request::get(server.url.to_string()).body(()).unwrap();
    let (_, mut answer) = client.open_download(request(), DEADLINE).await.unwrap();
    let last = soon(answer.next()).await.unwrap();
    assert_eq!(last, Some(BodyFrame::Data(Bytes::from_static(b"closing"))), "it is told in time");
    assert_eq!(soon(answer.next()).await.unwrap(), None, "and ends in order");
    let refused = client.open_download(request(), DEADLINE).await;
    assert!(refused.is_err(), "GOAWAY: no stream begins on it");
}
