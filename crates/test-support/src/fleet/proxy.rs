//! A proxy that ends the TLS sessions of nodes: it accepts with its certificate, dials the control
//! plane with the same one, and copies bytes both ways.

use std::sync::Arc;

use net::ServerUrl;
use net::issue;
use net::tls::{self, ClientKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use server::api::{IssueProxy, ProxyCertificate};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trust::token::{self, TlsTermination};

use super::{Fleet, Member, new_key};

/// Where the proxy is: on loopback too, and not at an address of the control plane.
pub const HOST: &str = "127.0.0.2";

/// What a proxy goes by at its two sides.
pub struct ProxyTls {
    /// Towards nodes.
    pub accept: Arc<ServerConfig>,
    /// Towards the control plane.
    pub dial: Arc<ClientConfig>,
}

impl ProxyTls {
    /// A proxy at [`HOST`] with a certificate that an operator asked for.
    pub async fn issued(fleet: &Fleet) -> ProxyTls {
        let key = issue::new_key().unwrap();
        let csr_pem = issue::proxy_request(&key, HOST).unwrap();
        let asked = IssueProxy { names: vec![HOST.to_owned()], csr_pem };
        let issued: ProxyCertificate = fleet.operator().await.post("/v1/proxies", &asked).await.unwrap();
        let chain = format!("{}{}", issued.cert_pem, issued.ca_pem);
        let dial = tls::client(&issued.ca_pem, &chain, ClientKey::Pem(&key)).unwrap();
        let accept = ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                tls::certificates(&chain).unwrap(),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            );
        ProxyTls { accept: tls::with_http1(&accept.unwrap()), dial }
    }

    /// The same towards the control plane, with these protocols in the place of HTTP/2.
    pub fn dial_with(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.dial);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

/// A proxy that forwards until it is dropped.
pub struct Forwarder {
    pub url: ServerUrl,
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Starts one in front of a fleet's control plane.
    pub async fn start(fleet: &Fleet) -> Forwarder {
        let tls = Arc::new(ProxyTls::issued(fleet).await);
        let listener = TcpListener::bind((HOST, 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let there = fleet.proxy_url().authority();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, there) = (tls.clone(), there.clone());
                // Whichever side ends it ends both.
                tokio::spawn(async move { forward(stream, &tls, &there).await });
            }
        });
        Forwarder { url, task }
    }

    /// A token for a host whose key has this fingerprint, and that reaches the control plane through
    /// this proxy.
    pub fn token(&self, fleet: &Fleet, hostname: &str, fingerprint: String) -> String {
        let mut claims = fleet.claims(hostname);
        claims.expected_pubkey_fingerprint = Some(fingerprint);
        (claims.servers, claims.tls_termination) = (vec![self.url.to_string()], TlsTermination::Proxy);
        token::mint(&claims, &fleet.root_key()).unwrap()
    }

    /// Enrolls a new node through the proxy, which goes on to use it.
    pub async fn node(&self, fleet: &Fleet, hostname: &str) -> Member {
        let key = new_key();
        let token = self.token(fleet, hostname, key.public().fingerprint());
        let csr_pem = issue::node_request(&key, &hostname.parse().unwrap()).unwrap();
        let answer = fleet.enroll_at(&self.url, &token, hostname, &csr_pem).await.unwrap();
        let (tls, url) = (fleet.without_certificate(TlsTermination::Proxy), self.url.clone());
        Member { tls, url, ..fleet.member(hostname, key, &answer) }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(stream: TcpStream, tls: &ProxyTls, there: &str) -> std::io::Result<()> {
    let mut near = TlsAcceptor::from(tls.accept.clone()).accept(stream).await?;
    let protocol = near.get_ref().1.alpn_protocol().unwrap_or(b"http/1.1").to_vec();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let far = TcpStream::connect(there).await?;
    let mut far = TlsConnector::from(tls.dial_with(&[&protocol])).connect(name, far).await?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop)
}
