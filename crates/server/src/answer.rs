//! Responses: JSON, compressed when that helps, and problems.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
pub(crate) use model::text::chain;
use net::stream::SentBody;
use serde::Serialize;
use store::StoreError;
use wire::body::{self, GZIP, JSON};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::problem::PROBLEM_JSON;
use wire::{Code, Problem};

/// A response as both ports give it.
pub(crate) type PortReply = Response<SentBody>;

/// A JSON response.
pub(crate) fn json<T: Serialize>(value: &T, gzip: bool) -> Result<PortReply, Problem> {
    Ok(encoded(body::encode(value)?, gzip))
}

/// A response of JSON that is written already.
pub(crate) fn encoded(bytes: Vec<u8>, gzip: bool) -> PortReply {
    let packed = if gzip { body::compress(&bytes) } else { None };
    let coding = packed.is_some().then_some(GZIP);
    reply(StatusCode::OK, JSON, coding, packed.unwrap_or(bytes).into())
}

/// JSON that is written and packed once, for all who are answered so.
pub(crate) struct PackedJson {
    plain: Bytes,
    /// Where that is shorter.
    gzip: Option<Bytes>,
}

impl PackedJson {
    /// Writes and packs a value.
    pub(crate) fn of<T: Serialize>(value: &T) -> Result<PackedJson, Problem> {
        let plain = body::encode(value)?;
        let gzip = body::compress(&plain).map(Bytes::from);
        Ok(PackedJson { plain: plain.into(), gzip })
    }

    /// What it takes, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.gzip.as_ref().map_or(0, Bytes::len)
    }

    /// A response of it, packed for who takes that.
    pub(crate) fn reply(&self, gzip: bool) -> PortReply {
        match &self.gzip {
            Some(packed) if gzip => reply(StatusCode::OK, JSON, Some(GZIP), packed.clone()),
            _ => reply(StatusCode::OK, JSON, None, self.plain.clone()),
        }
    }
}

/// A response of bytes.
pub(crate) fn reply(
    status: StatusCode,
    kind: &'static str,
    coding: Option<&'static str>,
    bytes: Bytes,
) -> PortReply {
    let mut response = Response::new(SentBody::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    response
}

/// A problem as a response.
pub(crate) fn refuse(mut problem: Problem, request_id: String) -> PortReply {
    problem.request_id = Some(request_id);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // A problem is plain strings and numbers; coding it cannot fail.
    let bytes = body::encode(&problem).unwrap_or_default();
    let mut response = reply(status, PROBLEM_JSON, None, bytes.into());
    if let Some(secs) = problem.retry_after_secs {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    response
}

/// What a failure of the store means to the one who asked.
pub(crate) fn store_problem(error: StoreError) -> Problem {
    match error {
        StoreError::Busy => Problem::from(Code::Busy),
        StoreError::UnknownNode(_) => Problem::from(Code::UnknownNode),
        StoreError::TooLarge { .. } => Problem::new(Code::BodyTooLarge, error.to_string()),
        other => {
            tracing::error!(error = %chain(&other), "the store failed");
            Problem::new(Code::StoreUnavailable, other.to_string())
        }
    }
}
