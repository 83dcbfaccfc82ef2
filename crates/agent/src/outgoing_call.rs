//! [`OutgoingCall`]: one request of a node's session, before it is signed.

use bytes::Bytes;
use http::Method;
use wire::body::{self, GZIP, MAX_ANSWER};

/// One request, before it is signed.
pub(crate) struct OutgoingCall<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) bytes: Bytes,
    pub(crate) coding: Option<&'static str>,
    /// From which byte on.
    pub(crate) from: Option<u64>,
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
        OutgoingCall { method, path, bytes, coding, from: None, limit: MAX_ANSWER }
    }
}

/// A body as it is sent, and its coding.
pub(crate) fn packed(plain: Vec<u8>) -> (Bytes, Option<&'static str>) {
    let packed = body::compress(&plain);
    let coding = packed.is_some().then_some(GZIP);
    (Bytes::from(packed.unwrap_or(plain)), coding)
}
