//! Bodies: JSON, bounded, compressed both ways (WIR-1, WIR-6).

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest request body on the node port, in bytes, as sent and as unpacked.
pub const MAX_NODE_BODY: usize = 1024 * 1024;
/// The longest response body that an agent reads, except blobs, as unpacked.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Bodies shorter than this are not worth compressing.
pub const COMPRESS_FROM: usize = 1024;
/// How many times as long a body is expected to be unpacked: room that is taken at once.
const UNPACKED_TIMES: usize = 4;
/// The only content type of messages.
pub const JSON: &str = "application/json";
/// The only content coding.
pub const GZIP: &str = "gzip";

/// Why a body cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than its bound, as sent or as unpacked.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: usize,
    },
    /// Not gzip, though it says so; or cut off.
    #[error("the body is not whole gzip data")]
    Compression,
    /// A content coding that is not spoken here.
    #[error("the content coding {0:?} is not supported; use gzip or none")]
    Coding(String),
    /// Not JSON of the expected shape.
    #[error("the body is not the JSON expected here: {0}")]
    Json(String),
}

/// Codes a message. Absent values are left out by the messages' own declarations.
///
/// # Errors
/// Never for the messages of this protocol.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, BodyError> {
    serde_json::to_vec(message).map_err(|error| BodyError::Json(error.to_string()))
}

/// How many bytes [`encode`] makes of a message, without making them; 0 for what it cannot
/// code.
pub fn encoded_len<T: Serialize>(message: &T) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, message) {
        Ok(()) => counter.0,
        Err(_) => 0,
    }
}

/// Reads a message; unknown fields are ignored.
///
/// # Errors
/// When it is not JSON of that shape.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BodyError> {
    serde_json::from_slice(bytes).map_err(|error| BodyError::Json(error.to_string()))
}

/// Compresses a body if that is worth it; `None` means send it as it is.
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < COMPRESS_FROM {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    encoder.write_all(bytes).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < bytes.len()).then_some(packed)
}

/// Undoes a content coding within a bound: a small body that unpacks to a huge one costs
/// no more than the bound.
///
/// # Errors
/// [`BodyError`] says what is wrong.
pub fn unpack(bytes: Vec<u8>, coding: Option<&str>, limit: usize) -> Result<Vec<u8>, BodyError> {
    match coding {
        None | Some("identity") if bytes.len() > limit => Err(BodyError::TooLarge { limit }),
        None | Some("identity") => Ok(bytes),
        Some(GZIP) => {
            let mut out = Vec::with_capacity(bytes.len().saturating_mul(UNPACKED_TIMES).min(limit));
            let bound = limit as u64 + 1;
            let read = GzDecoder::new(bytes.as_slice()).take(bound).read_to_end(&mut out);
            read.map_err(|_| BodyError::Compression)?;
            if out.len() > limit { Err(BodyError::TooLarge { limit }) } else { Ok(out) }
        }
        Some(other) => Err(BodyError::Coding(other.chars().take(40).collect())),
    }
}
