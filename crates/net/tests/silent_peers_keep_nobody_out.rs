//! Connections that say nothing, or stop in the middle of a handshake, do not keep others
//! out (SCL-3): many more of them than there are handshakes at once, and a good client still
//! gets its session.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use net::accept::AcceptLimits;
use net::client::Client;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn a_good_client_gets_in_past_many_silent_ones() {
    let limits = AcceptLimits { handshakes: 4, ..AcceptLimits::default() };
    let server = test_support::tls_server::TlsServer::start(limits, false, |_| async {
        Response::new(Full::new(Bytes::from_static(b"here")))
    })
    .await;
    let mut silent = Vec::new();
    for n in 0..64 {
        let mut stream = TcpStream::connect(server.url.authority()).await.unwrap();
        if n % 2 == 0 {
            // The first bytes of a record that never ends.
            stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
        }
        silent.push(stream);
    }
    let begun = Instant::now();
    let client = Client::dial(&server.url, server.node(1)).await;
    assert!(client.is_ok(), "{:?}", client.err());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(silent);
}
