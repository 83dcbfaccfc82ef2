//! Frames in one request and one answer: `POST /v1/agent/events` (SYN-1).
//!
//! A poll is a very short link. Each side's frames begin with a hello, and what the node asks
//! for in one poll is answered in the same one.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use sync::Frame;

use crate::cloudevents::json::{self, encode_all};
use crate::cloudevents::{Origin, ReadFrameError, WriteFrameError};

/// The longest request, in bytes, as sent and as unpacked: one object of the largest size
/// fits in base64.
pub const MAX_REQUEST: usize = crate::cloudevents::MAX_UP;
/// The longest answer, in bytes, as unpacked.
pub const MAX_ANSWER: usize = crate::cloudevents::MAX_DOWN;
/// Frames are added to a batch until it is this long, in bytes; then the rest waits for the
/// next poll, which `more` asks for.
pub const FULL: usize = 512 * 1024;

/// What one side says in a poll.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameBatch {
    /// Frames in their order, at most [`json::MAX_FRAMES`].
    pub frames: Vec<Frame>,
    /// The sender has more to say: poll again at once.
    pub more: bool,
}

/// Writes a batch.
///
/// # Errors
/// [`WriteFrameError`] says what cannot be written.
pub fn encode(origin: &mut Origin, batch: &FrameBatch) -> Result<Vec<u8>, WriteFrameError> {
    let mut out = br#"{"frames":"#.to_vec();
    encode_all(origin, &batch.frames, &mut out)?;
    out.extend_from_slice(if batch.more { br#","more":true}"# } else { b"}" });
    Ok(out)
}

/// Reads a batch of at most `limit` bytes. With `source`, a frame that says to come from
/// another is refused.
///
/// # Errors
/// [`ReadFrameError`] says what is wrong; nothing of a batch with one bad frame is given.
pub fn decode(bytes: &Bytes, source: Option<&str>, limit: usize) -> Result<FrameBatch, ReadFrameError> {
    let Unread { frames, more } = json::read(bytes, limit)?;
    let frames = frames.map_or(Ok(Vec::new()), |frames| json::array(frames, source))?;
    Ok(FrameBatch { frames, more })
}

#[derive(Deserialize)]
struct Unread<'a> {
    #[serde(borrow, default)]
    frames: Option<&'a RawValue>,
    #[serde(default)]
    more: bool,
}
