//! A server on a port of this machine, and certificates for nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use model::{Hostname, Timestamp};
use net::ServerUrl;
use net::accept::{Limits, serve};
use net::issue::{Ca, NodeRequest, node_request};
use net::tls::{self, ClientAuth, ClientKey};
use rustls::ClientConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use trust::SigningKey;

/// More than any of these tests takes, and less than anybody waits.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Server {
    pub url: ServerUrl,
    pub at: SocketAddr,
    pub ca: Ca,
    pub stop: watch::Sender<bool>,
}

pub fn today() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

impl Server {
    /// Serves with `handle`; HTTP/1.1 is offered as `http1` says.
    pub async fn start<H, F, B>(limits: Limits, http1: bool, handle: H) -> Server
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let now = today();
        let (ca, _) = Ca::generate("test", now).unwrap();
        let own = ca.issue_server(&["127.0.0.1".to_owned()], [7; 16], now).unwrap();
        let (ca_pem, auth) = (ca.cert_pem().to_owned(), ClientAuth::Optional);
        let mut config = tls::server(&own.cert_pem, &own.key_pem, &ca_pem, &ca_pem, auth).unwrap();
        if http1 {
            config = tls::with_http1(&config);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let url = format!("https://{at}").parse().unwrap();
        let stop = watch::Sender::new(false);
        let (tls, shutdown) = (watch::Sender::new(config), stop.subscribe());
        tokio::spawn(async move { serve(listener, tls.subscribe(), limits, shutdown, handle).await });
        Server { url, at, ca, stop }
    }

    /// The TLS configuration of a node.
    pub fn node(&self, node: u8) -> Arc<ClientConfig> {
        let (key, hostname) = (SigningKey::from_seed(&[node; 32]), "web-1".parse::<Hostname>().unwrap());
        let request = NodeRequest::read(&node_request(&key, &hostname).unwrap()).unwrap();
        let id = key.public().node_id();
        let cert = self.ca.issue_node(&request, &id, &hostname, [node; 16], today()).unwrap();
        tls::client(self.ca.cert_pem(), &cert, ClientKey::Node(&key)).unwrap()
    }
}

/// Waits for something, but not for ever.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it comes soon")
}
