//! gRPC over HTTP/2, as much of it as an event stream needs: the frame around each message,
//! the headers, and how a call ends.
//!
//! There is no gRPC library at run time: it would cost each connection several times what
//! the rest does. A standard client can call this all the same; a test does.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::body::GZIP;
use crate::{Code, Problem, percent};

/// The content type that is written.
pub const CONTENT: &str = "application/grpc+proto";
/// The coding of messages that a side sends.
pub const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// The codings of messages that a side reads.
pub const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// How long the client waits for the whole call.
pub const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// How a call ended: a [`GrpcStatus`]' number.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Why, for people, percent-encoded.
pub const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The whole problem as JSON, percent-encoded, for clients that know it.
pub const PROBLEM: HeaderName = HeaderName::from_static("muster-problem");
/// The stable code of what ended a call: of a problem, or of a link's go-away.
pub const CODE: HeaderName = HeaderName::from_static("muster-code");
/// The bytes before each message: whether it is compressed, and its length.
pub const PREFIX: usize = 5;
/// Messages of a stream are compressed from this size on, in bytes. Each is packed alone, so
/// that a small one saves little, and costs both sides several times what the rest does.
pub const COMPRESS_FROM: usize = 8 * 1024;
/// The longest message for people that is written or read, in bytes.
const MAX_MESSAGE: usize = 2048;

/// Why a gRPC body cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadGrpcError {
    /// A message is longer than its bound, as sent or as unpacked.
    #[error("a message is larger than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: usize,
    },
    /// A message is marked compressed without a coding having been named, or its mark is
    /// neither 0 nor 1.
    #[error("a message is marked {0}, which was not agreed on")]
    Flag(u8),
    /// A compressed message is not whole gzip data.
    #[error("a compressed message is not whole gzip data")]
    Compression,
    /// The body ended within a message.
    #[error("the body ended within a message")]
    CutOff,
}

/// Appends one message to `out`: `write` appends the bare message. With `gzip` it is
/// compressed if that is worth it.
///
/// # Errors
/// Those of `write`; then `out` is as before.
pub fn append<E>(
    out: &mut Vec<u8>,
    gzip: bool,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    if let Err(error) = write(out) {
        out.truncate(start);
        return Err(error);
    }
    let body = start + PREFIX;
    if gzip
        && out.len() - body >= COMPRESS_FROM
        && let Some(packed) = crate::body::compress(&out[body..])
    {
        out.truncate(body);
        out.extend_from_slice(&packed);
        out[start] = 1;
    }
    // What is written here is far below 4 GiB.
    let len = u32::try_from(out.len() - body).unwrap_or(u32::MAX);
    out[start + 1..body].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Takes a body's chunks, however it is cut, and gives its messages.
///
/// It holds nothing but the part of a message that has not come whole; between messages it
/// holds no memory at all.
#[derive(Debug)]
pub struct GrpcDecoder {
    limit: usize,
    gzip: bool,
    /// What came and is not yet given, when it is in one piece.
    chunk: Bytes,
    /// A message that came in several pieces.
    partial: BytesMut,
}

impl GrpcDecoder {
    /// A decoder of messages of at most `limit` bytes; `gzip` says that the other side named
    /// that coding.
    pub fn new(limit: usize, gzip: bool) -> GrpcDecoder {
        GrpcDecoder { limit, gzip, chunk: Bytes::new(), partial: BytesMut::new() }
    }

    /// Takes the next chunk. [`GrpcDecoder::next`] is to be called until it gives nothing more.
    pub fn push(&mut self, chunk: Bytes) {
        if self.partial.is_empty() && self.chunk.is_empty() {
            self.chunk = chunk;
        } else if self.chunk.is_empty() && self.lacks() > 0 {
            // What the started message lacks is copied to it; the rest stays as it came.
            let mut chunk = chunk;
            while self.lacks() > 0 && !chunk.is_empty() {
                let next = chunk.split_to(self.lacks().min(chunk.len()));
                self.partial.extend_from_slice(&next);
            }
            self.chunk = chunk;
        } else {
            self.hold_chunk();
            self.partial.extend_from_slice(&chunk);
        }
    }

    /// How many bytes the started message lacks, as far as that is known; 0 for one that is
    /// whole, or too long.
    fn lacks(&self) -> usize {
        let Some((head, rest)) = self.partial.split_at_checked(PREFIX) else {
            return PREFIX - self.partial.len();
        };
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > self.limit { 0 } else { len.saturating_sub(rest.len()) }
    }

    /// The next message that is whole, or `None` when more must come first.
    ///
    /// # Errors
    /// [`ReadGrpcError`]; the body is of no use from there on.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`")]
    pub fn next(&mut self) -> Result<Option<Bytes>, ReadGrpcError> {
        let held = if self.partial.is_empty() { &self.chunk[..] } else { &self.partial[..] };
        let Some((head, rest)) = held.split_at_checked(PREFIX) else {
            self.hold_chunk();
            return Ok(None);
        };
        let flag = head[0];
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if flag > 1 || (flag == 1 && !self.gzip) {
            return Err(ReadGrpcError::Flag(flag));
        }
        if len > self.limit {
            return Err(ReadGrpcError::TooLarge { limit: self.limit });
        }
        if rest.len() < len {
            self.hold_chunk();
            return Ok(None);
        }
        let message = if self.partial.is_empty() {
            let mut message = self.chunk.split_to(PREFIX + len);
            message.advance(PREFIX);
            message
        } else {
            let mut message = self.partial.split_to(PREFIX + len).freeze();
            message.advance(PREFIX);
            // What follows is in one piece; it needs no copy.
            let rest = std::mem::take(&mut self.partial);
            if !rest.is_empty() {
                self.chunk = rest.freeze();
            }
            message
        };
        if self.chunk.is_empty() {
            self.chunk = Bytes::new();
        }
        if flag == 1 { self.unpack(&message).map(Some) } else { Ok(Some(message)) }
    }

    /// The body ended: an error when that was within a message.
    ///
    /// # Errors
    /// [`ReadGrpcError::CutOff`].
    pub fn finish(&self) -> Result<(), ReadGrpcError> {
        if self.held() == 0 { Ok(()) } else { Err(ReadGrpcError::CutOff) }
    }

    /// The bytes held for a message that has not come whole.
    pub fn held(&self) -> usize {
        self.chunk.len() + self.partial.len()
    }

    /// Copies a started message out of the chunk that it came in, so that it holds no more
    /// than itself.
    fn hold_chunk(&mut self) {
        if !self.chunk.is_empty() {
            let chunk = std::mem::take(&mut self.chunk);
            self.partial.extend_from_slice(&chunk);
        }
    }

    fn unpack(&self, message: &Bytes) -> Result<Bytes, ReadGrpcError> {
        let mut out = Vec::new();
        let read = GzDecoder::new(&message[..]).take(self.limit as u64 + 1).read_to_end(&mut out);
        read.map_err(|_| ReadGrpcError::Compression)?;
        if out.len() > self.limit {
            return Err(ReadGrpcError::TooLarge { limit: self.limit });
        }
        Ok(out.into())
    }
}

/// The numbers of gRPC that say how a call ended; those that are used here by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusCode(pub u8);

impl StatusCode {
    /// It ended well.
    pub const OK: StatusCode = StatusCode(0);
    /// The client said something wrong.
    pub const INVALID_ARGUMENT: StatusCode = StatusCode(3);
    /// It took too long.
    pub const DEADLINE_EXCEEDED: StatusCode = StatusCode(4);
    /// It was ended for something else; the client may begin anew.
    pub const ABORTED: StatusCode = StatusCode(10);
    /// There is no such thing.
    pub const NOT_FOUND: StatusCode = StatusCode(5);
    /// It is there already.
    pub const ALREADY_EXISTS: StatusCode = StatusCode(6);
    /// The client may not.
    pub const PERMISSION_DENIED: StatusCode = StatusCode(7);
    /// Too much of something.
    pub const RESOURCE_EXHAUSTED: StatusCode = StatusCode(8);
    /// Not in this state.
    pub const FAILED_PRECONDITION: StatusCode = StatusCode(9);
    /// There is no such method.
    pub const UNIMPLEMENTED: StatusCode = StatusCode(12);
    /// The server failed.
    pub const INTERNAL: StatusCode = StatusCode(13);
    /// Not now.
    pub const UNAVAILABLE: StatusCode = StatusCode(14);
    /// The client did not prove who it is.
    pub const UNAUTHENTICATED: StatusCode = StatusCode(16);
    /// Nothing fits.
    pub const UNKNOWN: StatusCode = StatusCode(2);
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    /// The number.
    pub code: StatusCode,
    /// Why, for people.
    pub message: String,
    /// The stable code of the reason; absent when the call ended well.
    pub reason: Option<String>,
    /// The problem that it came from, or that came with it.
    pub problem: Option<Box<Problem>>,
}

impl GrpcStatus {
    /// A call that ended well.
    pub fn ok() -> GrpcStatus {
        GrpcStatus { code: StatusCode::OK, message: String::new(), reason: None, problem: None }
    }

    /// The status of a problem; the problem travels with it.
    pub fn of(problem: Problem) -> GrpcStatus {
        let code = match (problem.code.as_str(), problem.status) {
            (code, _) if code == Code::MethodNotAllowed.as_str() => StatusCode::UNIMPLEMENTED,
            (_, 400) => StatusCode::INVALID_ARGUMENT,
            (_, 401) => StatusCode::UNAUTHENTICATED,
            (_, 403) => StatusCode::PERMISSION_DENIED,
            (_, 404) => StatusCode::NOT_FOUND,
            (_, 409) => StatusCode::ALREADY_EXISTS,
            (_, 413 | 429) => StatusCode::RESOURCE_EXHAUSTED,
            (_, 412 | 415 | 422 | 426) => StatusCode::FAILED_PRECONDITION,
            (_, 503) => StatusCode::UNAVAILABLE,
            (_, 500..) => StatusCode::INTERNAL,
            _ => StatusCode::UNKNOWN,
        };
        let reason = Some(problem.code.clone());
        GrpcStatus { code, message: problem.to_string(), reason, problem: Some(Box::new(problem)) }
    }

    /// The status of a stream that ended with a go-away of this code, for people `message`.
    pub fn of_go_away(code: &str, message: &str) -> GrpcStatus {
        let number = match code {
            "unreadable" | "ack-of-unsent" | "out-of-order" | "wrong-node" | "no-hello" => {
                StatusCode::INVALID_ARGUMENT
            }
            "too-large" => StatusCode::RESOURCE_EXHAUSTED,
            "version" | "role" | "mode" | "rules" => StatusCode::FAILED_PRECONDITION,
            "silence" | "no-acknowledgement" | "no-answer" => StatusCode::DEADLINE_EXCEEDED,
            "shutdown" | "busy" => StatusCode::UNAVAILABLE,
            "removed" | "revoked" => StatusCode::UNAUTHENTICATED,
            _ if code == Code::DuplicateIdentity.as_str() => StatusCode::ALREADY_EXISTS,
            _ if code == Code::Internal.as_str() => StatusCode::INTERNAL,
            _ => StatusCode::ABORTED,
        };
        let (message, reason) = (format!("{code}: {message}"), Some(code.to_owned()));
        GrpcStatus { code: number, message, reason, problem: None }
    }

    /// The status as trailers, or as headers of a response without body.
    pub fn headers(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(4);
        map.insert(STATUS, HeaderValue::from(u16::from(self.code.0)));
        let mut put = |name: HeaderName, text: &str| {
            // Percent-encoded text is always a header's value.
            if let Ok(value) = HeaderValue::try_from(percent::encode_message(text)) {
                map.insert(name, value);
            }
        };
        if !self.message.is_empty() {
            let end = self.message.floor_char_boundary(MAX_MESSAGE);
            put(MESSAGE, &self.message[..end]);
        }
        if let Some(reason) = &self.reason {
            put(CODE, reason);
        }
        if let Some(json) = self.problem.as_ref().and_then(|problem| serde_json::to_string(problem).ok())
            && json.len() <= MAX_MESSAGE
        {
            put(PROBLEM, &json);
        }
        map
    }

    /// Reads trailers, or the headers of a response without body; `None` when they say nothing.
    pub fn read(headers: &HeaderMap) -> Option<GrpcStatus> {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok().filter(|t| t.len() <= 3 * MAX_MESSAGE);
        let code = text(STATUS)?.parse().map_or(StatusCode::UNKNOWN, StatusCode);
        let message = text(MESSAGE).map(percent::decode).unwrap_or_default();
        let problem = text(PROBLEM).map(percent::decode);
        let problem = problem.and_then(|json| serde_json::from_slice(json.as_bytes()).ok()).map(Box::new);
        Some(GrpcStatus { code, message, reason: text(CODE).map(percent::decode), problem })
    }
}

impl fmt::Display for GrpcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gRPC status {}: {}", self.code.0, self.message)
    }
}

/// What the headers of a request or response say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The sender may compress its messages with gzip.
    pub incoming_gzip: bool,
    /// The sender reads messages compressed with gzip.
    pub outgoing_gzip: bool,
    /// How long a client waits for the call.
    pub timeout: Option<Duration>,
}

/// Whether a request or response is one of gRPC, by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence == "application/grpc" || essence == CONTENT
}

/// Reads the headers of a request, or of a response.
///
/// # Errors
/// A problem when it is not gRPC with protobuf, or its coding is not known here.
pub fn agree(headers: &HeaderMap) -> Result<Agreed, Problem> {
    if !is_grpc(headers) {
        return Err(Problem::new(Code::MediaType, "this route takes application/grpc"));
    }
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let incoming_gzip = match text(&ENCODING).map(str::trim) {
        None | Some("identity") => false,
        Some(GZIP) => true,
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(Problem::new(
                Code::MediaType,
                format!("the message coding {other:?} is not supported; use gzip or none"),
            ));
        }
    };
    let outgoing_gzip =
        text(&ACCEPT_ENCODING).is_some_and(|all| all.split(',').any(|coding| coding.trim() == GZIP));
    Ok(Agreed { incoming_gzip, outgoing_gzip, timeout: text(&TIMEOUT).and_then(timeout) })
}

/// Puts the headers of a request or response in: content type and codings.
pub fn announce(headers: &mut HeaderMap, sends_gzip: bool) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    if sends_gzip {
        headers.insert(ENCODING, HeaderValue::from_static(GZIP));
    }
}

/// `grpc-timeout`: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}
