//! IDN-3, IDN-4, IDN-5: through a proxy that ends TLS a request counts by its signature alone. Many
//! nodes share its connection, no stream of two ways and nothing unsigned gets through, its
//! certificate opens no other port, and no node takes all its places.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use http::{Method, Request};
use model::exchange::{Acked, Report};
use model::replication::Mode;
use net::client::{Client, ClientError, Http1, Upgraded};
use streams::LinkHandler;
use streams::TransportError;
use test_support::fleet::link::{Poller, Sse, config, dialer, handler, item, link_name, publish_mode};
use test_support::fleet::proxy::{Forwarder, ProxyTls};
use test_support::fleet::{
    Fleet, Member, PATIENCE, body_of, call, decoded, new_key, plain, problem, quiet, refused, refuses,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use trust::token::{self, TlsTermination};
use wire::body::MAX_NODE_BODY;
use wire::headers::{CONTENT_DIGEST, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT};
use wire::route::{self, Access, ROUTES};
use wire::{Code, Problem};

fn empty_report() -> Vec<u8> {
    body_of(&Report { incarnation: "i1".parse().unwrap(), facts: Vec::new() })
}

fn report(node: &Member) -> Request<http_body_util::Full<bytes::Bytes>> {
    node.signed(Method::POST, route::REPORT, empty_report())
}

/// A connection of the proxy itself to the control plane.
async fn shared(fleet: &Fleet) -> Client {
    let tls = ProxyTls::issued(fleet).await;
    Client::dial(&fleet.proxy_url(), tls.dial).await.unwrap()
}

#[tokio::test]
async fn requests_of_many_nodes_share_a_connection() {
    let fleet = Fleet::start().await;
    let (one, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let mut client = shared(&fleet).await;
    for node in [&one, &other, &one] {
        let _: Acked = decoded(&call(&mut client, report(node)).await).unwrap();
        // An idle check-in closes a connection of its node, and not this one.
        let check_in = node.signed(Method::POST, route::CHECKIN, body_of(&quiet()));
        assert!(call(&mut client, check_in).await.status().is_success());
    }
    // Under another node's name, for another node, of nobody.
    let id = |node: &Member, key| Member {
        fleet: node.fleet.clone(),
        id: node.id.clone(),
        hostname: node.hostname.clone(),
        key,
        cert_pem: String::new(),
        tls: node.tls.clone(),
        url: node.url.clone(),
    };
    refused(&call(&mut client, report(&id(&other, one_key(&one)))).await, Code::BadSignature);
    let path = format!("/v1/nodes/{}/report", other.id);
    let request = one.signed(Method::POST, &path, empty_report());
    refused(&call(&mut client, request).await, Code::OtherNode);
    let stranger = new_key();
    let mut nobody = id(&one, stranger);
    nobody.id = nobody.key.public().node_id();
    refused(&call(&mut client, report(&nobody)).await, Code::UnknownNode);
    // A node that was removed is nobody.
    let _: serde_json::Value = fleet.operator().await.delete("/v1/nodes/web-2").await.unwrap();
    refused(&call(&mut client, report(&other)).await, Code::UnknownNode);
    let _: Acked = decoded(&call(&mut client, report(&one)).await).unwrap();
}

fn one_key(node: &Member) -> trust::SigningKey {
    trust::SigningKey::from_secret(node.key.algorithm(), &node.key.secret()).unwrap()
}

/// Before anything of its body is read: one that is far too long is refused for the signature.
#[tokio::test]
async fn what_is_not_signed_is_refused_on_every_route() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut client = shared(&fleet).await;
    for route in ROUTES.iter().filter(|route| route.access != Access::Open) {
        let path = route.path.replace("{digest}", &model::Digest::of(b"x").to_string());
        let mut request = plain(&fleet.proxy_url(), &path, b"{}".to_vec());
        *request.method_mut() = route.method.parse().unwrap();
        let want = match route.path {
            route::STREAM => Code::Unsigned,
            _ if matches!(route.access, Access::Node | Access::Key) => Code::Unsigned,
            _ => Code::BehindProxy,
        };
        refused(&call(&mut client, request).await, want);
    }
    let long = plain(&fleet.proxy_url(), route::REPORT, vec![b' '; MAX_NODE_BODY + 1]);
    refused(&call(&mut client, long).await, Code::Unsigned);
    for name in [SIGNATURE, SIGNATURE_INPUT, CONTENT_DIGEST] {
        let mut request = report(&node);
        request.headers_mut().remove(name);
        let problem = problem(&call(&mut client, request).await);
        assert_eq!(problem.status, 401, "{name}: {problem}");
    }
    let _: Acked = decoded(&call(&mut client, report(&node)).await).unwrap();
}

fn reason<T>(opened: Result<T, TransportError>) -> Problem {
    match opened {
        Err(TransportError::Problem(problem)) => *problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn streams_of_two_ways_are_refused_with_the_reason() {
    let fleet = Fleet::start().await;
    publish_mode(&fleet, &["web-1"], Mode::Managed, 1).await;
    let proxy = Forwarder::start(&fleet).await;
    let node = proxy.node(&fleet, "web-1").await;
    // In the trailers of gRPC, and in the body of an answer to a WebSocket's request.
    let link = link_name();
    let grpc = dialer(&node, &link).grpc(&mut node.dial().await).await;
    let websocket = Http1::dial(&node.url, &node.tls).await.unwrap();
    let websocket = dialer(&node, &link).websocket(websocket).await;
    for problem in [reason(grpc), reason(websocket)] {
        assert_eq!(problem.code, Code::BehindProxy.as_str());
        assert!(problem.help.unwrap().contains("server-sent events"));
    }
    // A signature does not help.
    let http1 = Http1::dial(&node.url, &node.tls).await.unwrap();
    let request = node.signed(Method::GET, route::STREAM, Vec::new()).map(drop);
    let bounds = net::websocket::SocketBounds { read: 1024, write: 1024 };
    match http1.upgrade(request, bounds, PATIENCE).await.unwrap() {
        Upgraded::Refused(response) => drop(refused(&response, Code::BehindProxy)),
        Upgraded::Socket(_) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn polls_and_server_sent_events_carry_objects() {
    let fleet = Fleet::start().await;
    publish_mode(&fleet, &["web-1"], Mode::Managed, 1).await;
    let proxy = Forwarder::start(&fleet).await;
    let node = proxy.node(&fleet, "web-1").await;
    let handler = handler("n1");
    let mut poller = Poller::new(config(Mode::Managed, "i1"), &handler);
    poller.all(&node).await;
    let mut events = Sse::open(&node, "i1").await.unwrap();
    let manifest = serde_json::json!({
        "apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": "a"}, "spec": {"text": "one"},
    });
    let apply = serde_json::json!({"manifests": [manifest], "node": "web-1", "mapping": "namespace"});
    let _: serde_json::Value = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
    events.hears(|frame| matches!(frame, sync::Frame::Event(_))).await;
    poller.all(&node).await;
    assert!(handler.with_sets(|_, replica| replica.get(&item("a")).is_some()), "it is in the replica");
}

#[tokio::test]
async fn a_proxy_s_certificate_is_for_the_proxies_port_alone() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let tls = ProxyTls::issued(&fleet).await;
    // At the node port it opens nothing, enrollment and signed requests included.
    let mut client = Client::dial(&fleet.url(), tls.dial.clone()).await.unwrap();
    for request in [report(&node), plain(&fleet.url(), route::ENROLL, b"{}".to_vec())] {
        refused(&call(&mut client, request).await, Code::CertificateRequired);
    }
    // The other way round a node's certificate opens nothing at the proxies' port.
    let mut client = Client::dial(&fleet.proxy_url(), node.tls.clone()).await.unwrap();
    refused(&call(&mut client, report(&node)).await, Code::CertificateRequired);
    // No session at all: a proxy at the operator port, nobody at the proxies'.
    let anonymous = fleet.without_certificate(TlsTermination::ControlPlane);
    for (url, tls) in [(fleet.operator_url(), tls.dial), (fleet.proxy_url(), anonymous)] {
        let error = match Client::dial(&url, tls).await {
            Err(error) => error,
            Ok(mut client) => {
                let request = plain(&url, "/v1/status", Vec::new());
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
    }
    node.survives().await;
}

/// One node's requests that wait leave room for those of others on the same connection.
#[tokio::test]
async fn one_node_does_not_take_all_places() {
    let fleet = Fleet::start().await;
    let (one, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let mut client = shared(&fleet).await;
    let waits =
        |node: &Member| node.signed(Method::POST, &format!("{}?wait=60", route::CHECKIN), body_of(&quiet()));
    let mut refusals = 0;
    let mut waiting = JoinSet::new();
    for _ in 0..80 {
        let (mut client, request) = (client.clone(), waits(&one));
        waiting.spawn(async move { client.call(request, 1 << 20, PATIENCE).await });
    }
    let _: Acked = decoded(&call(&mut client, report(&other)).await).unwrap();
    while let Ok(Some(done)) = tokio::time::timeout(Duration::from_secs(5), waiting.join_next()).await {
        let response = done.unwrap().unwrap();
        if !response.status().is_success() {
            refused(&response, Code::Busy);
            refusals += 1;
        }
    }
    assert_eq!(refusals, 16, "64 are let in");
    let _: Acked = decoded(&call(&mut client, report(&other)).await).unwrap();
}

/// ENR-2: it reads tokens on their way. One that names no key would enroll a key of its own.
#[tokio::test]
async fn a_proxy_enrolls_no_key_of_its_own() {
    let fleet = Fleet::start().await;
    let proxy = Forwarder::start(&fleet).await;
    let (own, others) = (new_key(), new_key());
    let csr = |key| net::issue::node_request(key, &"web-1".parse().unwrap()).unwrap();
    let unbound = fleet.token("web-1");
    let refusal = fleet.enroll_at(&proxy.url, &unbound, "web-1", &csr(&own)).await.unwrap_err();
    assert_eq!(refusal.code, Code::TokenUnbound.as_str());
    assert!(refusal.help.unwrap().contains("muster-agent fingerprint"));
    let bound = proxy.token(&fleet, "web-1", others.public().fingerprint());
    let refusal = fleet.enroll_at(&proxy.url, &bound, "web-1", &csr(&own)).await.unwrap_err();
    assert_eq!(refusal.code, Code::TokenOtherKey.as_str());
    fleet.enroll_at(&proxy.url, &bound, "web-1", &csr(&others)).await.unwrap();
    // A token that says of itself that it goes through a proxy, and names no key, is not even minted.
    let claims = token::Claims { tls_termination: TlsTermination::Proxy, ..fleet.claims("web-2") };
    assert_eq!(token::mint(&claims, &fleet.root_key()), Err(token::TokenError::Unbound));
}

/// Its certificate is under the CA that nodes and operators believe, and counts only for nodes that were
/// told of a proxy.
#[tokio::test]
async fn nobody_else_takes_a_proxy_for_the_control_plane() {
    let fleet = Fleet::start().await;
    let proxy = Forwarder::start(&fleet).await;
    let node = fleet.node("web-1").await;
    let credentials: server::Credentials =
        server::posture::read_json(&fleet.dir.path().join("operator.json")).unwrap();
    let server::Credentials { ca_pem, cert_pem, key_pem, .. } = credentials;
    let operator = net::tls::client(&ca_pem, &cert_pem, net::tls::ClientKey::Pem(&key_pem)).unwrap();
    let joining = fleet.without_certificate(TlsTermination::ControlPlane);
    let behind = fleet.without_certificate(TlsTermination::Proxy);
    Client::dial(&proxy.url, behind.clone()).await.unwrap();
    let (to_proxy, to_server) = ("shows a proxy's certificate", "shows no proxy's certificate");
    for (url, tls, says) in [
        (&proxy.url, node.tls.clone(), to_proxy),
        (&proxy.url, operator, to_proxy),
        (&proxy.url, joining, to_proxy),
        (&fleet.url(), behind, to_server),
    ] {
        let Err(ClientError::Handshake { source, .. }) = Client::dial(url, tls).await else {
            panic!("there should be no session with {url}");
        };
        assert!(source.to_string().contains(says), "{source}");
    }
}

/// Strangers who send slowly take no place of a node, nor of hosts that join without a proxy.
#[tokio::test]
async fn slow_bodies_are_cut_off_soon() {
    const BOUND: usize = 32;
    let fleet = Fleet::start().await;
    let tls = ProxyTls::issued(&fleet).await;
    let begun = tokio::time::Instant::now();
    let mut unsigned = begin(&fleet, &tls, route::REPORT).await;
    let mut slow = JoinSet::new();
    for _ in 0..BOUND {
        let mut tls = begin(&fleet, &tls, route::ENROLL).await;
        slow.spawn(async move { response(&mut tls).await });
    }
    // All places are taken before anything of a body came, as many as they are and no more.
    let mut client = Client::dial(&fleet.proxy_url(), tls.dial.clone()).await.unwrap();
    let enroll = || plain(&fleet.proxy_url(), route::ENROLL, b"{}".to_vec());
    let busy = async || {
        let code = problem(&call(&mut client.clone(), enroll()).await).code;
        (code == Code::Busy.as_str()).then_some(())
    };
    test_support::wait::until("the places are taken", busy).await;
    fleet.node("web-1").await.survives().await;
    assert!(response(&mut unsigned).await.starts_with("HTTP/1.1 401"));
    assert!(begun.elapsed() < Duration::from_secs(9), "refused after {:?}", begun.elapsed());
    for answer in slow.join_all().await {
        assert!(answer.contains("the body did not arrive within 10 s"), "{answer}");
    }
    refused(&call(&mut client, enroll()).await, Code::BadBody);
}

/// Sends the head of a request whose body never comes.
async fn begin(fleet: &Fleet, tls: &ProxyTls, path: &str) -> tokio_rustls::client::TlsStream<TcpStream> {
    let tcp = TcpStream::connect(fleet.proxy_url().authority()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(tls.dial_with(&[]));
    let mut tls = connector.connect("127.0.0.1".try_into().unwrap(), tcp).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    );
    tls.write_all(head.as_bytes()).await.unwrap();
    tls
}

/// What nginx sends: HTTP/1.1 without ALPN, one request after another on a kept connection.
#[tokio::test]
async fn http_1_1_is_enough_for_a_proxy() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let tls = ProxyTls::issued(&fleet).await;
    let url = fleet.proxy_url();
    let tcp = TcpStream::connect(url.authority()).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(tls.dial_with(&[]));
    let mut tls = connector.connect(name, tcp).await.unwrap();
    let skewed = node.signed_at(
        Method::POST,
        route::REPORT,
        vec![b' '; MAX_NODE_BODY],
        test_support::fleet::now().minus(Duration::from_secs(600)),
        test_support::fleet::number(),
    );
    // A refusal of a long body is read, and the connection goes on.
    for (request, status) in [(report(&node), "200"), (skewed, "401"), (report(&node), "200")] {
        let body = http_body_util::BodyExt::collect(request.body().clone()).await.unwrap().to_bytes();
        let mut text = format!("POST {} HTTP/1.1\r\nHost: x\r\n", request.uri().path());
        for (name, value) in request.headers() {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        tls.write_all(text.as_bytes()).await.unwrap();
        tls.write_all(&body).await.unwrap();
        let answer = response(&mut tls).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.to_lowercase().contains(&format!("{PROTOCOL_HEADER}: {PROTOCOL}")), "{answer}");
    }
}

/// Reads one whole response.
async fn response(tls: &mut tokio_rustls::client::TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    let whole = async {
        loop {
            let mut piece = [0; 4096];
            let read = tls.read(&mut piece).await.unwrap();
            assert!(read > 0, "the connection is kept: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&answer).to_lowercase();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            if body.len() >= length.parse().unwrap() {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, whole).await.expect("an answer comes");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn only_sound_requests_get_a_certificate() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let key = net::issue::new_key().unwrap();
    let csr = net::issue::proxy_request(&key, "x").unwrap();
    let long = "a".repeat(300);
    let too_many = vec!["a"; server::api::MAX_PROXY_NAMES + 1];
    for names in [&[][..], &["*.example.com"], &["a b"], &[""], &["ok", "muster:node:x"], &[&long], &too_many]
    {
        let asked = serde_json::json!({"names": names, "csrPem": csr});
        let refusal = operator.post::<_, serde_json::Value>("/v1/proxies", &asked).await;
        refuses(refusal, Code::BadBody);
    }
    // In the control plane's own certificate, however they are written.
    for own in ["127.0.0.1", "localhost", "::1", "0:0:0:0:0:0:0:1"] {
        let asked = serde_json::json!({"names": ["ok", own], "csrPem": csr});
        refuses(operator.post::<_, serde_json::Value>("/v1/proxies", &asked).await, Code::OwnName);
    }
    let asked = serde_json::json!({"names": ["ok"], "csrPem": csr.replace("MI", "MA")});
    refuses(operator.post::<_, serde_json::Value>("/v1/proxies", &asked).await, Code::BadCsr);
}
