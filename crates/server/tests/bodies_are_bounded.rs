//! WIR-1, WIR-6: every size has a bound and a named error; a bad body costs its sender a 4xx
//! and the control plane nothing. After each attack a good check-in is answered.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Method, Request, header};
use http_body::{Body, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::exchange::{Answer, CheckIn};
use model::log::{Fact, FactBody};
use rustls_pki_types::ServerName;
use test_support::fleet::{Fleet, Member, call, decoded, now, number, plain, problem, quiet, refused};
use wire::headers::{AGENT_VERSION_HEADER, CONTENT_DIGEST, PROTOCOL_HEADER};
use wire::{Code, body, route};

/// What any of the attacks here may cost the control plane in memory, in KiB: far less than
/// what is sent.
const MOST_KIB: u64 = 40 * 1024;

#[tokio::test]
async fn a_body_of_100_mib_costs_its_sender_a_413_and_the_server_nothing() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    // Zeros that were never written take no memory on this side either.
    let request = node.signed(Method::POST, route::CHECKIN, vec![0; 100 * 1024 * 1024]);
    let before = Peak::begin();
    let problem = refused(&node.send(request).await, Code::BodyTooLarge);
    before.grew_less_than(MOST_KIB);
    assert!(problem.detail.unwrap().contains("1048576"), "the bound is named");
    // Without a certificate the bound is smaller still.
    let request = plain(&fleet.url(), route::ENROLL, vec![b' '; 33 * 1024]);
    refused(&call(&mut fleet.anonymous().await, request).await, Code::BodyTooLarge);
    node.survives().await;
}

#[tokio::test]
async fn a_zip_bomb_costs_its_sender_a_413_and_the_server_nothing() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let bomb = packed(|out| {
        for _ in 0..512 {
            out.write_all(&vec![b' '; 1024 * 1024]).unwrap();
        }
    });
    assert!(bomb.len() < 1024 * 1024, "{} bytes unpack to 512 MiB", bomb.len());
    let before = Peak::begin();
    for _ in 0..4 {
        let problem = refused(&node.send(gzipped(&node, bomb.clone())).await, Code::BodyTooLarge);
        assert!(problem.detail.unwrap().contains("1048576"), "the bound is named");
    }
    before.grew_less_than(MOST_KIB);
    // The same without a certificate, at the one route that is open.
    let mut request = plain(
        &fleet.url(),
        route::ENROLL,
        packed(|out| {
            out.write_all(&vec![b' '; 8 * 1024 * 1024]).unwrap();
        }),
    );
    request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    refused(&call(&mut fleet.anonymous().await, request).await, Code::BodyTooLarge);
    node.survives().await;
}

/// SCL-3: what a body unpacks to is of the node's share, however little travelled.
#[tokio::test]
async fn what_is_unpacked_is_of_the_nodes_share() {
    /// More than a node may send at once, in bodies of nearly a MiB.
    const MOST: usize = 80;
    let fleet = Fleet::start().await;
    let (node, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let large = packed(|out| out.write_all(&vec![b' '; 1024 * 1024 - 1]).unwrap());
    assert!(large.len() * MOST < 1024 * 1024, "{} bytes each", large.len());
    let mut connection = node.dial().await;
    let mut sent = 0;
    loop {
        let problem = problem(&call(&mut connection, gzipped(&node, large.clone())).await);
        if problem.code == Code::Busy.as_str() {
            break;
        }
        assert_eq!(problem.code, Code::BadBody.as_str(), "{problem}");
        sent += 1;
        assert!(sent < MOST, "{sent} MiB were unpacked");
    }
    other.survives().await;
}

#[tokio::test]
async fn a_truncated_body_is_refused() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let whole = body::encode(&quiet()).unwrap();
    let cut = whole[..whole.len() - 3].to_vec();
    // Cut before it was signed; packed and cut; packed with rubbish for an end.
    refused(&post(&node, cut.clone()).await, Code::BadBody);
    let whole_packed = packed(|out| out.write_all(&whole).unwrap());
    let cut_packed = whole_packed[..whole_packed.len() / 2].to_vec();
    let problem = refused(&node.send(gzipped(&node, cut_packed)).await, Code::BadBody);
    assert!(problem.detail.unwrap().contains("gzip"));
    refused(&node.send(gzipped(&node, b"not gzip at all".to_vec())).await, Code::BadBody);
    // Cut on its way, after it was signed.
    let mut request = node.signed(Method::POST, route::CHECKIN, whole.clone());
    *request.body_mut() = http_body_util::Full::new(cut.into());
    refused(&node.send(request).await, Code::BadDigest);
    // It announces more than it sends; it breaks off in the middle.
    for (sent, announced) in [(10, Some(whole.len())), (whole.len() / 2, None)] {
        let request = node.signed(Method::POST, route::CHECKIN, whole.clone());
        assert!(!broken_off(&node, request, &whole[..sent], announced).await, "it was answered as if whole");
    }
    // All of it, for comparison.
    let _: Answer = decoded(&node.send(gzipped(&node, whole_packed)).await).unwrap();
    node.survives().await;
}

#[tokio::test]
async fn a_wrong_digest_is_refused() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let bytes = body::encode(&quiet()).unwrap();
    let other = model::Digest::of(b"something else");
    let digest = data_encoding::BASE64.encode(other.as_bytes());
    for digest in [format!("sha-256=:{digest}:"), "sha-256=::".to_owned(), "md5=:AAAA:".to_owned()] {
        let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
        request.headers_mut().insert(CONTENT_DIGEST, digest.parse().unwrap());
        refused(&node.send(request).await, Code::BadSignature);
    }
    // The digest that was signed, and another body.
    let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
    *request.body_mut() =
        http_body_util::Full::new(body::encode(&CheckIn { full: true, ..quiet() }).unwrap().into());
    refused(&node.send(request).await, Code::BadDigest);
    let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
    request.headers_mut().remove(CONTENT_DIGEST);
    refused(&node.send(request).await, Code::BadDigest);
    // A body that the signature does not speak of.
    let mut request = node.signed(Method::POST, route::CHECKIN, Vec::new());
    *request.body_mut() = http_body_util::Full::new(bytes.into());
    refused(&node.send(request).await, Code::Unsigned);
    node.survives().await;
}

#[tokio::test]
async fn only_json_is_taken() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let bytes = body::encode(&quiet()).unwrap();
    for kind in ["text/plain", "application/json5", "application/x-www-form-urlencoded", ""] {
        let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        refused(&node.send(request).await, Code::MediaType);
    }
    let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
    request.headers_mut().remove(header::CONTENT_TYPE);
    refused(&node.send(request).await, Code::MediaType);
    let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
    request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
    let problem = refused(&node.send(request).await, Code::MediaType);
    assert!(problem.detail.unwrap().contains("gzip"), "it says which coding is spoken");
    // Parameters do not matter.
    let mut request = node.signed(Method::POST, route::CHECKIN, bytes);
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    let _: Answer = decoded(&node.send(request).await).unwrap();
    node.survives().await;
}

#[tokio::test]
async fn the_protocol_must_be_named_and_the_agent_not_too_old() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let bytes = body::encode(&quiet()).unwrap();
    for version in [None, Some("0"), Some("2"), Some("1.0"), Some("")] {
        let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
        request.headers_mut().remove(PROTOCOL_HEADER);
        if let Some(version) = version {
            request.headers_mut().insert(PROTOCOL_HEADER, version.parse().unwrap());
        }
        let problem = refused(&node.send(request).await, Code::ProtocolVersion);
        assert!(problem.help.unwrap().contains("Muster-Protocol: 1"));
    }
    for (version, fits) in
        [("0.0.9", false), ("0.0.999-rc1", false), ("0.1.0", true), ("9.9.9", true), ("?", true)]
    {
        let mut request = node.signed(Method::POST, route::CHECKIN, bytes.clone());
        request.headers_mut().insert(AGENT_VERSION_HEADER, version.parse().unwrap());
        let response = node.send(request).await;
        if fits {
            let _: Answer = decoded(&response).unwrap();
        } else {
            refused(&response, Code::AgentTooOld);
        }
    }
    node.survives().await;
}

#[tokio::test]
async fn what_is_no_check_in_is_refused_and_unknown_fields_are_not() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let digest = model::Digest::of(b"x");
    let deep = format!(r#"{{"incarnation":"i1","traits":{{"digest":"{digest}","values":{nested}}}}}"#);
    let long_name = format!(r#"{{"incarnation":"{}"}}"#, "a".repeat(10_000));
    let huge = format!(r#"{{"incarnation":"i1","runConfirmed":{}}}"#, "9".repeat(400));
    for text in [
        "",
        "null",
        "[]",
        "{",
        "\"i1\"",
        "{}",
        r#"{"incarnation":7}"#,
        r#"{"incarnation":"../etc"}"#,
        r#"{"incarnation":""}"#,
        r#"{"incarnation":"i1","facts":{}}"#,
        r#"{"incarnation":"i1"} trailing"#,
        r#"{"incarnation":"i1","runConfirmed":-1}"#,
        r#"{"incarnation":"i1","held":{"seq":1}}"#,
        r#"{"incarnation":"i1","traits":{"digest":"x","values":{}}}"#,
        &deep,
        &long_name,
        &huge,
    ] {
        let response = post(&node, text.as_bytes().to_vec()).await;
        let short: String = text.chars().take(60).collect();
        assert_eq!(response.status().as_u16(), 400, "{short}: {response:?}");
        let problem = refused(&response, Code::BadBody);
        assert!(problem.detail.is_some_and(|detail| detail.len() < 500), "{short}");
    }
    let latin1 = [br#"{"incarnation":"i"#.as_slice(), &[0xe9], br#""}"#].concat();
    refused(&post(&node, latin1).await, Code::BadBody);
    // Unknown fields of any shape are ignored (WIR-1).
    let text = format!(r#"{{"incarnation":"i1","next":{{"a":[1,2.5,null]}},"deep":{nested},"mode":"x"}}"#);
    let response = post(&node, text.into_bytes()).await;
    let _: Answer = decoded(&response).unwrap();
    let answer = String::from_utf8(response.body().to_vec()).unwrap();
    assert!(!answer.contains("null"), "absent instead of null (WIR-1): {answer}");
    node.survives().await;
}

#[tokio::test]
async fn ten_thousand_facts_are_refused_and_none_is_kept() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let facts = |count: u64| -> Vec<Fact> {
        let message = || FactBody::Repaired { message: "x".to_owned() };
        (1..=count).map(|seq| Fact { seq, at: now(), body: message() }).collect()
    };
    let message = CheckIn { facts: facts(10_000), ..quiet() };
    let problem = refused(&post(&node, body::encode(&message).unwrap()).await, Code::BodyTooLarge);
    assert!(problem.detail.unwrap().contains("200 facts"));
    let report = model::exchange::Report { incarnation: "i1".parse().unwrap(), facts: facts(201) };
    let result: Result<model::exchange::Acked, _> = node.post(route::REPORT, &report).await;
    test_support::fleet::refuses(result, Code::BodyTooLarge);
    let kept: serde_json::Value = fleet.operator().await.get("/v1/nodes/web-1/facts").await.unwrap();
    assert_eq!(kept.as_array().unwrap().len(), 0);
    // As many as are allowed, all at once.
    let answer = node.check_in(&CheckIn { facts: facts(200), ..quiet() }).await.unwrap();
    assert_eq!(answer.acked.unwrap().seq, 200);
    node.survives().await;
}

async fn post(node: &Member, bytes: Vec<u8>) -> http::Response<Bytes> {
    node.send(node.signed(Method::POST, route::CHECKIN, bytes)).await
}

fn gzipped(node: &Member, packed: Vec<u8>) -> Request<http_body_util::Full<Bytes>> {
    let mut request = node.signed_at(Method::POST, route::CHECKIN, packed, now(), number());
    request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    request
}

fn packed(write: impl FnOnce(&mut GzEncoder<Vec<u8>>)) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    write(&mut encoder);
    encoder.finish().unwrap()
}

/// Sends a request with the beginning of its body and then fails; says whether it was
/// answered with success.
async fn broken_off(
    node: &Member,
    request: Request<http_body_util::Full<Bytes>>,
    sent: &[u8],
    announced: Option<usize>,
) -> bool {
    let tcp = tokio::net::TcpStream::connect(node.url.authority()).await.unwrap();
    let name = ServerName::try_from(node.url.host().to_owned()).unwrap();
    let tls = tokio_rustls::TlsConnector::from(node.tls.clone()).connect(name, tcp).await.unwrap();
    let http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut send, connection) = http.handshake(TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    let mut request =
        request.map(|_| Broken { data: Some(Bytes::copy_from_slice(sent)), fail: announced.is_none() });
    if let Some(length) = announced {
        request.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    send.send_request(request).await.is_ok_and(|response| response.status().is_success())
}

/// A body that ends too early, or fails.
struct Broken {
    data: Option<Bytes>,
    fail: bool,
}

impl Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(match self.data.take() {
            Some(data) => Some(Ok(Frame::data(data))),
            None if self.fail => Some(Err(std::io::ErrorKind::BrokenPipe.into())),
            None => None,
        })
    }
}

/// The most memory that this process had since a moment.
struct Peak {
    before_kib: u64,
}

impl Peak {
    fn begin() -> Peak {
        // Sets the high-water mark back to what is resident now.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        Peak { before_kib: test_support::fleet::resident_kib() }
    }

    #[track_caller]
    fn grew_less_than(&self, kib: u64) {
        let grown = test_support::fleet::status_kib("VmHWM:").saturating_sub(self.before_kib);
        assert!(grown < kib, "memory grew by {grown} KiB");
    }
}
