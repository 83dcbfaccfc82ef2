//! [`OutgoingCall`]: one request of a node's session, before it is signed; and what an answer to it says.

use bytes::Bytes;
use http::{Method, Response, header};
use wire::body::{self, BodyError, GZIP, MAX_ANSWER};
use wire::problem::PROBLEM_JSON;
use wire::{Code, Problem};

/// One request, before it is signed.
pub(crate) struct OutgoingCall<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) bytes: Bytes,
    pub(crate) coding: Option<&'static str>,
    /// From which byte on, and how many at most.
    pub(crate) from: Option<u64>,
    pub(crate) most: Option<u64>,
    /// The longest answer, in bytes.
    pub(crate) limit: usize,
}

impl<'a> OutgoingCall<'a> {
    pub(crate) fn new(
        method: Method,
        path: &'a str,
        bytes: Bytes,
        coding: Option<&'static str>,
    ) -> OutgoingCall<'a> {
        OutgoingCall { method, path, bytes, coding, from: None, most: None, limit: MAX_ANSWER }
    }

    /// The value of `Range`, where it asks for a part.
    pub(crate) fn range(&self) -> Option<String> {
        let from = self.from?;
        let last = self.most.map(|most| from.saturating_add(most.max(1) - 1).to_string());
        Some(format!("bytes={from}-{}", last.unwrap_or_default()))
    }
}

/// A body as it is sent, and its coding.
pub(crate) fn packed(plain: Vec<u8>) -> (Bytes, Option<&'static str>) {
    let packed = body::compress(&plain);
    let coding = packed.is_some().then_some(GZIP);
    (Bytes::from(packed.unwrap_or(plain)), coding)
}

/// The problem that a response carries; `None` for a good one.
pub(crate) fn refusal(response: &Response<Bytes>) -> Option<Problem> {
    if response.status().is_success() {
        return None;
    }
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let stated = (kind == Some(PROBLEM_JSON)).then(|| body::decode(response.body()).ok()).flatten();
    Some(stated.map(Problem::bounded).unwrap_or_else(|| {
        let status = response.status();
        Problem::new(Code::Internal, format!("the server answered {status} without saying why"))
    }))
}

/// A response's body without its content coding.
pub(crate) fn unpack(response: Response<Bytes>, limit: usize) -> Result<Vec<u8>, BodyError> {
    let coding = response.headers().get(header::CONTENT_ENCODING).cloned();
    let coding = coding.as_ref().and_then(|value| value.to_str().ok());
    body::unpack(response.into_body().to_vec(), coding, limit)
}
