//! IDN-3, IDN-5: TLS 1.3 and HTTP/2 alone; a node's routes want a node's certificate under
//! this fleet's CA, the operator port an operator's. After each attack a good check-in is
//! answered.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use net::ServerUrl;
use net::client::{Client, ClientError};
use net::issue::CertificateRequest;
use net::tls::ClientKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use test_support::fleet::{Fleet, Member, PATIENCE, call, new_key, now, plain, quiet, refused, refuses};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::route::{self, Access, ROUTES};
use wire::{Code, body};

/// What a server refuses before any request is answered: in the handshake, or, because a
/// TLS 1.3 client is done before its certificate is looked at, at the first request.
async fn no_session(url: &ServerUrl, tls: Arc<ClientConfig>) -> String {
    let error = match Client::dial(url, tls).await {
        Err(error) => error,
        Ok(mut client) => {
            let request = plain(url, route::CHECKIN, b"{}".to_vec());
            client.call(request, 1024, PATIENCE).await.expect_err("there should be no session")
        }
    };
    assert!(
        matches!(
            error,
            ClientError::Handshake { .. }
                | ClientError::Exchange { .. }
                | ClientError::CertificateUnknown { .. }
        ),
        "{error:?}"
    );
    format!("{error:?}")
}

fn roots(fleet: &Fleet) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(net::tls::certificates(fleet.node_ca().cert_pem()).unwrap().remove(0)).unwrap();
    roots
}

/// A client that believes the fleet's CA, speaks these versions and offers these protocols.
fn client(
    fleet: &Fleet,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&[u8]],
) -> Arc<ClientConfig> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots(fleet)).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

#[tokio::test]
async fn tls_1_2_is_not_spoken() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    for url in [fleet.url(), fleet.operator_url()] {
        let told = no_session(&url, client(&fleet, &[&rustls::version::TLS12], &[b"h2"])).await;
        assert!(told.contains("ProtocolVersion"), "{told}");
    }
    node.survives().await;
}

/// Sends a request over HTTP/1.1 and reads all that comes back.
async fn http1(url: &net::ServerUrl, tls: Arc<rustls::ClientConfig>, request: &str) -> String {
    let tcp = TcpStream::connect(url.authority()).await.unwrap();
    let name = ServerName::try_from(url.host().to_owned()).unwrap();
    let mut tls = tokio_rustls::TlsConnector::from(tls).connect(name, tcp).await.unwrap();
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, tls.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn http_1_1_is_there_for_websockets_alone() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let tls13 = &[&rustls::version::TLS13];
    let told = no_session(&fleet.url(), client(&fleet, tls13, &[b"http/1.0"])).await;
    assert!(told.contains("NoApplicationProtocol"), "{told}");
    // Every other route is refused with what to do instead.
    for path in ["/v1/agent/checkin", "/v1/agent/state", "/v1/enroll", "/muster.v1.EventStream/Ping"] {
        let method = if path.ends_with("state") { "GET" } else { "POST" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nMuster-Protocol: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = http1(&fleet.url(), client(&fleet, tls13, &[b"http/1.1"]), &request).await;
        assert!(answer.contains("upgrade-required"), "{path}: {answer}");
    }
    // A client that names no protocol and speaks HTTP/1.1 all the same gets no response in it.
    let request = "GET /v1/agent/state HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = http1(&fleet.url(), client(&fleet, tls13, &[]), request).await;
    assert!(!answer.contains("HTTP"), "{answer:?}");
    node.survives().await;
}

#[tokio::test]
async fn without_a_certificate_only_enrollment_and_recovery_are_open() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut anonymous = fleet.anonymous().await;
    for route in ROUTES {
        for path in [Some(route.path), route.by_node].into_iter().flatten() {
            let path = path.replace("{digest}", &model::Digest::of(b"x").to_string());
            let path = path.replace("{node_id}", node.id.as_str());
            // Signed as it should be: the signature alone opens nothing but a recovery.
            let method: Method = route.method.parse().unwrap();
            let bytes = if method == Method::POST { b"{}".to_vec() } else { Vec::new() };
            let response = call(&mut anonymous, node.signed(method, &path, bytes)).await;
            let code = match (route.path, route.access) {
                // Nobody knows a trust document with this digest.
                (route::TRUST_LINKS, _) => Code::NotFound,
                (_, Access::Open | Access::Key) => Code::BadBody,
                _ => Code::CertificateRequired,
            };
            refused(&response, code);
        }
    }
    node.survives().await;
}

#[tokio::test]
async fn a_certificate_of_another_ca_makes_no_session() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    // The same name and the same key, under the CA of another fleet.
    let elsewhere = Fleet::start().await;
    let issued = certificate(&elsewhere, &node, now());
    let stranger = net::tls::client(fleet.node_ca().cert_pem(), &issued, ClientKey::Node(&node.key));
    let told = no_session(&fleet.url(), stranger.unwrap()).await;
    assert!(told.contains("UnknownCA") || told.contains("BadCertificate"), "{told}");
    node.survives().await;
}

#[tokio::test]
async fn an_expired_certificate_makes_no_session() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let long_ago = now().minus(net::issue::NODE_LIFE + Duration::from_secs(90));
    for (at, says) in
        [(long_ago, "CertificateExpired"), (now().plus(Duration::from_secs(7200)), "Certificate")]
    {
        let issued = certificate(&fleet, &node, at);
        let tls = net::tls::client(fleet.node_ca().cert_pem(), &issued, ClientKey::Node(&node.key)).unwrap();
        let told = no_session(&fleet.url(), tls).await;
        assert!(told.contains(says), "{told}");
    }
    node.survives().await;
}

/// The certificate that a fleet's CA would have issued to a node's key at a time.
fn certificate(fleet: &Fleet, node: &Member, at: model::Timestamp) -> String {
    let request = net::issue::node_request(&node.key, &node.hostname).unwrap();
    let request = CertificateRequest::read(&request).unwrap();
    fleet
        .node_ca()
        .issue_node(&request, &node.id, &node.hostname, [7; 16], net::issue::node_validity(at))
        .unwrap()
}

#[tokio::test]
async fn a_certificate_of_a_key_that_never_enrolled_is_refused() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let key = new_key();
    let id = key.public().node_id();
    let mut stranger = Member {
        fleet: node.fleet.clone(),
        id,
        hostname: "web-9".parse().unwrap(),
        key,
        cert_pem: String::new(),
        tls: node.tls.clone(),
        url: fleet.url(),
    };
    let issued = certificate(&fleet, &stranger, now());
    stranger.tls =
        net::tls::client(fleet.node_ca().cert_pem(), &issued, ClientKey::Node(&stranger.key)).unwrap();
    refuses(stranger.check_in(&quiet()).await, Code::UnknownNode);
    node.survives().await;
}

#[tokio::test]
async fn a_node_with_the_certificate_of_another_is_refused() {
    let fleet = Fleet::start().await;
    let (one, two) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let message = body::encode(&quiet()).unwrap();
    let mut as_one = one.dial().await;
    // Two's own signature over one's session.
    let response = call(&mut as_one, two.signed(Method::POST, route::CHECKIN, message.clone())).await;
    refused(&response, Code::OtherNode);
    // Two's key under one's name.
    let forged = Member { id: one.id.clone(), key: two.key, ..one_of(&two.hostname, &one) };
    let response = call(&mut as_one, forged.signed(Method::POST, route::CHECKIN, message.clone())).await;
    refused(&response, Code::BadSignature);
    // One's own signature, for what is two's.
    for path in ["checkin", "report", "state"] {
        let path = format!("/v1/nodes/{}/{path}", two.id);
        let method = if path.ends_with("state") { Method::GET } else { Method::POST };
        let bytes = if method == Method::GET { Vec::new() } else { message.clone() };
        refused(&call(&mut as_one, one.signed(method, &path, bytes)).await, Code::OtherNode);
    }
    // Under its own id the same handler answers.
    let own = format!("/v1/nodes/{}/checkin", one.id);
    let _: model::exchange::Answer = one.post(&own, &quiet()).await.unwrap();
    one.survives().await;
}

fn one_of(hostname: &model::Hostname, other: &Member) -> Member {
    Member {
        fleet: other.fleet.clone(),
        id: other.id.clone(),
        hostname: hostname.clone(),
        key: new_key(),
        cert_pem: String::new(),
        tls: other.tls.clone(),
        url: other.url.clone(),
    }
}

#[tokio::test]
async fn operators_and_nodes_keep_to_their_ports() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    // A node's certificate on the operator port makes no session; none at all makes one, and opens nothing.
    no_session(&fleet.operator_url(), node.tls.clone()).await;
    let none = client(&fleet, &[&rustls::version::TLS13], &[b"h2"]);
    for access in server::route_access() {
        // Who is refused is hung up on.
        let mut nobody = Client::dial(&fleet.operator_url(), none.clone()).await.unwrap();
        let mut request = plain(&fleet.operator_url(), access.path, b"{}".to_vec());
        *request.method_mut() = access.method;
        refused(&call(&mut nobody, request).await, Code::OperatorRequired);
    }
    // The operator's certificate on the node port: another CA.
    let file = fleet.dir.path().join("operator.json");
    let credentials: server::Credentials = server::posture::read_json(&file).unwrap();
    let (cert, key) = (credentials.cert_pem, credentials.key_pem);
    let operator = net::tls::client(&credentials.ca_pem, &cert, ClientKey::Pem(&key)).unwrap();
    no_session(&fleet.url(), operator).await;
    // An operator's certificate that the nodes' CA made: a session, and nothing opened by it.
    let issued = fleet.node_ca().issue_operator("operator", [9; 16], now()).unwrap();
    let tls =
        net::tls::client(&credentials.ca_pem, &issued.cert_pem, ClientKey::Pem(&issued.key_pem)).unwrap();
    let mut client = Client::dial(&fleet.url(), tls.clone()).await.unwrap();
    let request = node.signed(Method::POST, route::CHECKIN, body::encode(&quiet()).unwrap());
    refused(&call(&mut client, request).await, Code::CertificateRequired);
    no_session(&fleet.operator_url(), tls).await;
    node.survives().await;
    assert_eq!(fleet.operator().await.status().await.nodes, 1);
}
