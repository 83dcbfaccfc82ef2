//! A TLS server on loopback with a handler of its test, and certificates for nodes under its CA.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use model::{CertificateValidity, Hostname, Timestamp};
use net::ServerUrl;
use net::accept::{AcceptLimits, serve};
use net::issue::{Ca, CertificateRequest, node_request};
use net::tls::{self, ClientAuth, ClientKey};
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use trust::SigningKey;

/// A server that stops when it is dropped.
pub struct TlsServer {
    pub url: ServerUrl,
    pub address: SocketAddr,
    pub ca: Ca,
    pub stop: watch::Sender<bool>,
    names: Vec<String>,
    tls: watch::Sender<Arc<ServerConfig>>,
}

/// What time it is.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

impl TlsServer {
    /// Serves with `handle`; HTTP/1.1 is offered as `http1` says.
    pub async fn start<H, F, B>(limits: AcceptLimits, http1: bool, handle: H) -> TlsServer
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        TlsServer::named(&["127.0.0.1"], limits, http1, handle).await
    }

    /// The same, whose certificate has other names.
    pub async fn named<H, F, B>(names: &[&str], limits: AcceptLimits, http1: bool, handle: H) -> TlsServer
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let (ca, _) = Ca::generate("test", now()).unwrap();
        TlsServer::under(ca, names, limits, http1, handle).await
    }

    /// The same, whose certificate is of this CA, as are those of its nodes.
    pub async fn under<H, F, B>(
        ca: Ca,
        names: &[&str],
        limits: AcceptLimits,
        http1: bool,
        handle: H,
    ) -> TlsServer
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut config = config(&ca, &names, net::issue::own_validity(now()));
        if http1 {
            config = tls::with_http1(&config);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("https://{address}").parse().unwrap();
        let stop = watch::Sender::new(false);
        let (tls, shutdown) = (watch::Sender::new(config), stop.subscribe());
        let served = tls.subscribe();
        tokio::spawn(async move { serve(listener, served, limits, shutdown, handle).await });
        TlsServer { url, address, ca, stop, names, tls }
    }

    /// New connections get a certificate with this validity, over HTTP/2 alone.
    pub fn certify(&self, validity: CertificateValidity) {
        self.tls.send_replace(config(&self.ca, &self.names, validity));
    }

    /// The TLS configuration of a node.
    pub fn node(&self, node: u8) -> Arc<ClientConfig> {
        let (key, hostname) = (SigningKey::from_seed(&[node; 32]), "web-1".parse::<Hostname>().unwrap());
        let request = CertificateRequest::read(&node_request(&key, &hostname).unwrap()).unwrap();
        let id = key.public().node_id();
        let cert = self
            .ca
            .issue_node(&request, &id, &hostname, [node; 16], net::issue::node_validity(now()))
            .unwrap();
        tls::client(self.ca.cert_pem(), &cert, ClientKey::Node(&key)).unwrap()
    }
}

fn config(ca: &Ca, names: &[String], validity: CertificateValidity) -> Arc<ServerConfig> {
    let own = ca.issue_server(names, [7; 16], validity).unwrap();
    tls::server(&own.cert_pem, &own.key_pem, ca.cert_pem(), ca.cert_pem(), ClientAuth::Optional).unwrap()
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
