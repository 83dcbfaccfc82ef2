//! Server-sent events: frames as JSON, each with the cursor to go on from (SYN-11).
//!
//! `data:` is the event as JSON in one line; its type is in there, so there is no `event:`
//! and every client's plain message handler gets it. `id:` is a cursor in the control plane's
//! feed, `INCARNATION.REVISION` or within a pass `INCARNATION.REVISION/PASS`: once the event and all before it are durable at the node, it has
//! everything up to there. A client that comes back with it in `Last-Event-ID` misses nothing.

use bytes::Bytes;
use sync::{FeedCursor, Frame};

use crate::cloudevents::{Origin, WriteFrameError, json};

/// The content type.
pub const CONTENT: &str = "text/event-stream";
/// Names the last event that is durable at the client.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// The longest field name that is read.
const MAX_FIELD: usize = 16;
/// The longest id that is kept, in bytes.
const MAX_ID: usize = 256;

/// The text of a cursor, for `id:` and `Last-Event-ID`.
pub fn cursor_text(cursor: &FeedCursor) -> String {
    let FeedCursor { incarnation, revision, pass } = cursor;
    match pass {
        Some(pass) => format!("{incarnation}.{revision}/{pass}"),
        None => format!("{incarnation}.{revision}"),
    }
}

/// Reads what [`cursor_text`] writes; `None` when it is something else.
pub fn read_cursor(text: &str) -> Option<FeedCursor> {
    let (text, pass) = match text.split_once('/') {
        Some((text, pass)) => (text, Some(pass.parse().ok()?)),
        None => (text, None),
    };
    let (incarnation, rev) = text.rsplit_once('.')?;
    let revision = rev.bytes().all(|b| b.is_ascii_digit()).then(|| rev.parse().ok())??;
    Some(FeedCursor { incarnation: incarnation.parse().ok()?, revision, pass })
}

/// Appends a frame to `out` as one event. Only a numbered change of the feed has an `id:`.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode(origin: &mut Origin, frame: &Frame, out: &mut Vec<u8>) -> Result<(), WriteFrameError> {
    let start = out.len();
    if let (Frame::Event(event), Some(incarnation)) = (frame, origin.incarnation())
        && event.seq > 0
    {
        let cursor = FeedCursor::new(incarnation.clone(), event.upto);
        line("id", cursor_text(&cursor).as_bytes(), out);
    }
    out.extend_from_slice(b"data: ");
    if let Err(error) = json::encode(origin, frame, out) {
        out.truncate(start);
        return Err(error);
    }
    out.extend_from_slice(b"\n\n");
    Ok(())
}

/// Appends a comment: keeps the connection alive and is no event.
pub fn keepalive(out: &mut Vec<u8>) {
    out.extend_from_slice(b":\n\n");
}

/// Appends how long a client is to wait before it comes back, in milliseconds.
pub fn retry(millis: u64, out: &mut Vec<u8>) {
    line("retry", itoa::Buffer::new().format(millis).as_bytes(), out);
    out.push(b'\n');
}

fn line(field: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// An event as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The last id that the stream named, up to this event.
    pub id: Option<String>,
    /// Its type; empty when the stream names none.
    pub event: String,
    /// Its data: for [`json::decode`].
    pub data: Bytes,
}

/// Why a stream of events cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadSseError {
    /// An event is longer than its bound.
    #[error("an event is larger than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: usize,
    },
    /// The id is not text.
    #[error("an event's id or type is not text")]
    NotText,
}

/// Takes a stream's chunks, however it is cut, and gives its events.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    /// What came and has not been looked at, from `at` on.
    input: Bytes,
    /// The line under way.
    line: Vec<u8>,
    /// The last line ended with a carriage return: a line feed now belongs to it.
    after_return: bool,
    begun: bool,
    data: Vec<u8>,
    has_data: bool,
    event: String,
    id: Option<String>,
    retry: Option<u64>,
}

impl SseDecoder {
    /// A decoder of events of at most `limit` bytes.
    pub fn new(limit: usize) -> SseDecoder {
        SseDecoder {
            limit,
            input: Bytes::new(),
            line: Vec::new(),
            after_return: false,
            begun: false,
            data: Vec::new(),
            has_data: false,
            event: String::new(),
            id: None,
            retry: None,
        }
    }

    /// Takes the next chunk; the one before must have been read to its end.
    pub fn push(&mut self, chunk: Bytes) {
        if self.input.is_empty() {
            self.input = chunk;
        } else {
            self.input = [&self.input[..], &chunk].concat().into();
        }
    }

    /// How long the server asks to wait before coming back, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// The last id that the stream named.
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The bytes held for an event that has not come whole.
    pub fn held(&self) -> usize {
        self.input.len() + self.line.capacity() + self.data.capacity()
    }

    /// The next event that is whole, or `None` when more must come first.
    ///
    /// # Errors
    /// [`ReadSseError`]; the stream is of no use from there on.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`")]
    pub fn next(&mut self) -> Result<Option<SseEvent>, ReadSseError> {
        loop {
            if self.after_return && !self.input.is_empty() {
                self.after_return = false;
                if self.input[0] == b'\n' {
                    let _ = self.input.split_to(1);
                }
            }
            let end = self.input.iter().position(|b| matches!(b, b'\n' | b'\r'));
            let taken = self.input.split_to(end.unwrap_or(self.input.len()));
            if self.line.len() + taken.len() + self.data.len() > self.limit + MAX_FIELD {
                return Err(ReadSseError::TooLarge { limit: self.limit });
            }
            self.line.extend_from_slice(&taken);
            if end.is_none() {
                self.input = Bytes::new();
                return Ok(None);
            }
            self.after_return = self.input.split_to(1)[0] == b'\r';
            let line = std::mem::take(&mut self.line);
            let line = if std::mem::replace(&mut self.begun, true) {
                &line[..]
            } else {
                line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line)
            };
            if let Some(event) = self.whole_line(line)? {
                return Ok(Some(event));
            }
        }
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<Option<SseEvent>, ReadSseError> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !std::mem::take(&mut self.has_data) {
                return Ok(None);
            }
            let data = std::mem::take(&mut self.data).into();
            return Ok(Some(SseEvent { id: self.id.clone(), event, data }));
        }
        let colon = line.iter().position(|b| *b == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &[][..]),
        };
        let text = || std::str::from_utf8(value).map(str::to_owned).map_err(|_| ReadSseError::NotText);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.event = text()?,
            b"id" if !value.contains(&0) && value.len() <= MAX_ID => {
                self.id = Some(text()?).filter(|id| !id.is_empty())
            }
            b"retry" => {
                let millis = text()?;
                if !millis.is_empty() && millis.bytes().all(|b| b.is_ascii_digit()) {
                    self.retry = millis.parse().ok();
                }
            }
            // Comments and fields of newer peers.
            _ => {}
        }
        Ok(None)
    }
}
