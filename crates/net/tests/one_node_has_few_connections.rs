//! SCL-3, WIR-6: one certificate cannot take all the connections that there are.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use model::{Hostname, Timestamp};
use net::ServerUrl;
use net::accept::{AcceptLimits, serve};
use net::client::Client;
use net::issue::{Ca, CertificateRequest, node_request};
use net::tls::{self, ClientAuth, ClientKey};
use tokio::net::TcpListener;
use tokio::sync::watch;
use trust::SigningKey;

const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    url: ServerUrl,
    ca: Ca,
    _stop: watch::Sender<bool>,
}

async fn start() -> Server {
    let now = today();
    let (ca, _) = Ca::generate("test", now).unwrap();
    let own = ca.issue_server(&["127.0.0.1".to_owned()], [7; 16], net::issue::own_validity(now)).unwrap();
    let (ca_pem, auth) = (ca.cert_pem().to_owned(), ClientAuth::Optional);
    let config = tls::server(&own.cert_pem, &own.key_pem, &ca_pem, &ca_pem, auth).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let stop = watch::Sender::new(false);
    let (tls, shutdown) = (watch::Sender::new(config), stop.subscribe());
    let limits = AcceptLimits { per_peer: 2, ..AcceptLimits::default() };
    tokio::spawn(async move {
        serve(listener, tls.subscribe(), limits, shutdown, |_| async {
            Response::new(Full::new(Bytes::from_static(b"hello")))
        })
        .await;
    });
    Server { url, ca, _stop: stop }
}

fn today() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

/// A connection of a node, if it is let in: it answers a request.
async fn connect(server: &Server, node: u8) -> Option<Client> {
    let (key, hostname) = (SigningKey::from_seed(&[node; 32]), "web-1".parse::<Hostname>().unwrap());
    let request = CertificateRequest::read(&node_request(&key, &hostname).unwrap()).unwrap();
    let id = key.public().node_id();
    let cert = server
        .ca
        .issue_node(&request, &id, &hostname, [node; 16], net::issue::node_validity(today()))
        .unwrap();
    let tls = tls::client(server.ca.cert_pem(), &cert, ClientKey::Node(&key)).unwrap();
    let mut client = Client::dial(&server.url, tls).await.ok()?;
    let ask = Request::get(format!("{}/", server.url)).body(Full::default()).unwrap();
    client.call(ask, 1024, PATIENCE).await.ok()?;
    Some(client)
}

#[tokio::test]
async fn a_third_connection_of_a_node_is_closed_and_other_nodes_are_served() {
    let server = start().await;
    let first = connect(&server, 1).await.expect("the first is let in");
    let _second = connect(&server, 1).await.expect("the second is let in");
    assert!(connect(&server, 1).await.is_none(), "the third is not");
    assert!(connect(&server, 2).await.is_some(), "another node is");
    drop(first);
    let began = Instant::now();
    while connect(&server, 1).await.is_none() {
        assert!(began.elapsed() < PATIENCE, "the place of a closed connection is not given back");
    }
}
