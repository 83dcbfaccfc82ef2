//! What travels between nodes and control plane.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use model::exchange::{Answer, CheckIn};
use model::{FleetId, Timestamp};
use net::{BelievedAuthority, proxy, proxy_protocol};
use trust::SigningKey;
use wire::cloudevents::{json, protobuf as binary};
use wire::enroll::{BootstrapReport, EnrollAnswer, EnrollRequest, RenewAnswer, RenewRequest};
use wire::grpc::GrpcDecoder;
use wire::sse::SseDecoder;
use wire::{Problem, batch, body, percent, signature as signatures};

use crate::text;

/// The most bytes of one frame here.
const LIMIT: usize = 64 * 1024;

/// Lines `name: value` are the headers of a request.
pub(crate) fn signature(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(16) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..colon]), line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.insert(name, value);
        }
    }
    let (Ok(parsed), Ok(fleet)) = (signatures::parse(&headers), "demo-1".parse::<FleetId>()) else { return };
    let (key, uri) = (SigningKey::from_seed(&[7; 32]).public(), Uri::from_static("/v1/agent/checkin?wait=3"));
    let now = Timestamp::from_secs(1_800_000_000);
    if let Ok(body) = parsed.verify(&Method::POST, &uri, &fleet, &key, now) {
        let _ = body.holds(b"{}");
    }
}

pub(crate) fn check_in(data: &[u8]) {
    let _ = (body::decode::<CheckIn>(data), body::decode::<Answer>(data));
    let _ = body::unpack(data.to_vec(), Some(body::GZIP), LIMIT);
    let _ = percent::decode(text(data));
}

pub(crate) fn cloudevents_json(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let _ = (json::decode(&bytes, None, LIMIT), json::decode_all(&bytes, Some("muster:test"), LIMIT));
}

pub(crate) fn protobuf(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let _ = (binary::decode(&bytes, None, LIMIT), batch::decode(&bytes, None, LIMIT));
    let _ = wire::standard::read_health_request(data);
}

/// In pieces: the first byte says of how many bytes.
fn pieces(data: &[u8]) -> impl Iterator<Item = Bytes> {
    let (size, rest) =
        data.split_first().map_or((1, data), |(first, rest)| (usize::from(*first).max(1), rest));
    rest.chunks(size).map(Bytes::copy_from_slice)
}

pub(crate) fn sse(data: &[u8]) {
    let mut decoder = SseDecoder::new(LIMIT);
    for piece in pieces(data) {
        decoder.push(piece);
        while let Ok(Some(_)) = decoder.next() {}
        assert!(decoder.held() <= 2 * LIMIT, "what is held is within its limit");
    }
    let _ = wire::sse::read_cursor(text(data));
}

pub(crate) fn grpc(data: &[u8]) {
    let mut decoder = GrpcDecoder::new(LIMIT, true);
    for piece in pieces(data) {
        decoder.push(piece);
        while let Ok(Some(message)) = decoder.next() {
            assert!(message.len() <= LIMIT, "a message is within its limit");
        }
    }
    let _ = decoder.finish();
}

/// The header with which a load balancer says who called it.
pub(crate) fn proxy_header(data: &[u8]) {
    let mut stream = data;
    let mut context = Context::from_waker(Waker::noop());
    // What is in memory never waits.
    let Poll::Ready(read) = pin!(proxy_protocol::read(&mut stream)).poll(&mut context) else { return };
    if read.is_ok() {
        assert!(data.len() - stream.len() <= LIMIT, "no more is taken than a header has");
    }
}

/// What a proxy answers to who asks for a tunnel.
pub(crate) fn proxy_answer(data: &[u8]) {
    for authorized in [false, true] {
        let mut stream = data;
        let mut context = Context::from_waker(Waker::noop());
        // What is in memory never waits.
        let read = pin!(proxy::read_answer(&mut stream, authorized)).poll(&mut context);
        let Poll::Ready(read) = read else { continue };
        match read {
            Ok(()) => {
                let head = &data[..data.len() - stream.len()];
                assert!(head.ends_with(b"\n\n") || head.ends_with(b"\r\n\r\n"), "the head and no more");
            }
            Err(error) => {
                let said = error.to_string();
                assert!(said.len() <= 1024 && !said.chars().any(char::is_control), "{said:?}");
            }
        }
    }
}

/// What a host that joins says, and is answered.
pub(crate) fn joins(data: &[u8]) {
    let read = (body::decode::<EnrollRequest>(data), body::decode::<BootstrapReport>(data));
    if let (Ok(request), _) = &read {
        let _ = net::issue::CertificateRequest::read(&request.csr_pem);
        let _ = request.token.as_deref().map(trust::token::peek);
    }
    if let Ok(answer) = body::decode::<EnrollAnswer>(data) {
        let authority = BelievedAuthority::of(answer.trust.certificate_authority.as_ref(), &answer.ca_pem);
        let _ = (authority.has_certificate(&answer.ca_pem), authority.certifies(&answer.cert_pem));
    }
    let _ = (body::decode::<RenewRequest>(data), body::decode::<RenewAnswer>(data));
    let _ = body::decode::<Problem>(data).map(Problem::bounded);
}
