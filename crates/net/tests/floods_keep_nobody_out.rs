//! SCL-3: whoever floods a listener keeps nobody out who comes from elsewhere: neither with first messages of
//! TLS handshakes that never go on, nor with connections that take all the places.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use net::ServerUrl;
use net::accept::{AcceptLimits, Connection};
use net::client::Client;
use net::proxy_protocol::Balancers;
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use test_support::tls_server::TlsServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const PATIENCE: Duration = Duration::from_secs(20);

async fn server(limits: AcceptLimits) -> TlsServer {
    TlsServer::start(limits, false, |request: Request<_>| async move {
        let from = request.extensions().get::<Connection>().unwrap().address;
        Response::new(Full::new(Bytes::from(from.to_string())))
    })
    .await
}

/// Connects from an address of loopback.
async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(from), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// The whole first message of a TLS handshake.
fn hello(server: &TlsServer) -> Vec<u8> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut client = ClientConnection::new(server.node(9), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Asks who the server believes to be called by.
async fn asked(server: &TlsServer) -> Option<String> {
    let mut client = Client::dial(&server.url, server.node(1)).await.ok()?;
    let ask = Request::get(format!("{}/", server.url)).body(Full::default()).unwrap();
    let answer = client.call(ask, 1024, PATIENCE).await.ok()?;
    Some(String::from_utf8(answer.body().to_vec()).unwrap())
}

/// 1,000 handshakes of 250 ms, four at once, are more than a minute: longer than any client waits.
#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_never_go_on_have_turns_of_their_own() {
    let server = server(AcceptLimits { handshakes: 4, ..AcceptLimits::default() }).await;
    let hello = hello(&server);
    let mut flood = Vec::new();
    for n in 0..1000u32 {
        let mut stream = connect([127, 0, 1, 1 + (n % 50) as u8], server.address).await;
        stream.write_all(&hello).await.unwrap();
        flood.push(stream);
    }
    assert!(asked(&server).await.is_some(), "a stranger from elsewhere gets in");
    assert!(asked(&server).await.is_some(), "and so does who is known by now");
    drop(flood);
}

/// Silent connections hold their places for ten seconds; they give them to whoever comes from elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_give_way() {
    let server = server(AcceptLimits { connections: 32, ..AcceptLimits::default() }).await;
    let mut flood = Vec::new();
    for n in 0..200u8 {
        flood.push(connect([127, 0, 2, 1 + n], server.address).await);
    }
    // Those that gave way are closed at once, not after ten seconds.
    let first = &mut flood[0];
    let mut byte = [0];
    assert!(matches!(first.read(&mut byte).await, Ok(0) | Err(_)));
    assert!(asked(&server).await.is_some());
    drop(flood);
}

/// The header of version 2: from 203.0.113.7, port 4000.
fn header(command: u8) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, 0x11, 0, 12]);
    header.extend([203, 0, 113, 7, 192, 0, 2, 1]);
    header.extend([0x0f, 0xa0, 0x05, 0xfa]);
    header
}

/// A balancer before the server: what it says first, then the bytes of a client.
async fn balancer(server: &TlsServer, first: Vec<u8>) -> ServerUrl {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let to = server.address;
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut upstream = connect([127, 0, 3, 3], to).await;
        upstream.write_all(&first).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
    });
    url
}

async fn through(server: &TlsServer, url: &ServerUrl) -> Option<String> {
    let mut client = Client::dial(url, server.node(1)).await.ok()?;
    let ask = Request::get(format!("{url}/")).body(Full::default()).unwrap();
    let answer = client.call(ask, 1024, PATIENCE).await.ok()?;
    Some(String::from_utf8(answer.body().to_vec()).unwrap())
}

#[tokio::test]
async fn a_balancer_that_is_configured_says_for_whom_it_calls() {
    let balancers = Balancers::new(vec!["127.0.3.0/24".parse().unwrap()]);
    let server = server(AcceptLimits { balancers, ..AcceptLimits::default() }).await;
    let url = balancer(&server, header(1)).await;
    assert_eq!(through(&server, &url).await.as_deref(), Some("203.0.113.7:4000"));
    let url = balancer(&server, header(0)).await;
    assert!(through(&server, &url).await.unwrap().starts_with("127.0.3.3:"), "it calls for itself");
    let mut endless = header(1);
    endless[14] = 0xff;
    for none in [Vec::new(), header(7), b"PROXY TCP4 1.2.3.4 1.2.3.5 1 2\r\n".to_vec(), endless] {
        let url = balancer(&server, none.clone()).await;
        assert_eq!(through(&server, &url).await, None, "{none:?}");
    }
}

#[tokio::test]
async fn nobody_else_is_believed() {
    let server = server(AcceptLimits::default()).await;
    let url = balancer(&server, header(1)).await;
    assert_eq!(through(&server, &url).await, None, "a header is no TLS");
}

/// What balancers send is read without a panic, and never beyond the header.
#[tokio::test]
async fn any_header_is_read_within_its_bounds() {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..20_000 {
        let mut bytes = header(1);
        for _ in 0..(seed % 4) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let at = (seed >> 16) as usize % bytes.len();
            bytes[at] = (seed >> 40) as u8;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let length = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
        bytes.extend([0xee; 64]);
        let mut rest = bytes.as_slice();
        if net::proxy_protocol::read(&mut rest).await.is_ok() {
            assert_eq!(bytes.len() - rest.len(), length);
        }
    }
}
