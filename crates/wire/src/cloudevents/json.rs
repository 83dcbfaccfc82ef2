//! Frames as CloudEvents in JSON, structured mode: one by one, and many in one message.
//!
//! ```text
//! Frame <-> CloudEvent <-> {attributes.., "data": JSON | "data_base64": bytes}
//! ```
//!
//! Invariants: a JSON content is `data` only in its canonical form, which any client makes again
//! from the value; a message holds at most [`MAX_FRAMES`] frames.

use std::collections::BTreeMap;

use bytes::Bytes;
use data_encoding::BASE64;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use sync::Frame;

use super::event::{CloudEvent, Data, JSON, canonical};
use super::names::Attribute;
use super::{Origin, ReadFrameError, WriteFrameError};

/// The most frames that one message holds.
pub const MAX_FRAMES: usize = 1024;

/// Appends a frame to `out` as one JSON object without line breaks.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode(origin: &mut Origin, frame: &Frame, out: &mut Vec<u8>) -> Result<(), WriteFrameError> {
    let CloudEvent { attributes, data } = CloudEvent::of(frame, origin)?;
    serde_json::to_writer(&mut *out, &attributes)
        .map_err(|error| WriteFrameError::Payload(error.to_string()))?;
    let is_json = attributes.get(Attribute::ContentType) == Some(JSON);
    let (name, value) = match data {
        Data::None => return Ok(()),
        Data::Json(json) => ("data", json),
        Data::Bytes(content) if is_json && canonical(&content).as_ref() == Some(&content) => {
            ("data", content)
        }
        Data::Bytes(content) => ("data_base64", format!("\"{}\"", BASE64.encode(&content)).into()),
    };
    // Attributes are never none: before their closing brace is room for one member more.
    out.pop();
    out.extend_from_slice(format!(",\"{name}\":").as_bytes());
    out.extend_from_slice(&value);
    out.push(b'}');
    Ok(())
}

/// Appends frames to `out` as a JSON array.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode_all<'a>(
    origin: &mut Origin,
    frames: impl IntoIterator<Item = &'a Frame>,
    out: &mut Vec<u8>,
) -> Result<(), WriteFrameError> {
    let start = out.len();
    for frame in frames {
        out.push(if out.len() == start { b'[' } else { b',' });
        if let Err(error) = encode(origin, frame, out) {
            out.truncate(start);
            return Err(error);
        }
    }
    out.extend_from_slice(if out.len() == start { b"[]" } else { b"]" });
    Ok(())
}

/// Reads one event of at most `limit` bytes. With `source`, an event that says to come from
/// another is refused.
///
/// # Errors
/// [`ReadFrameError`] says what is wrong.
pub fn decode(bytes: &Bytes, source: Option<&str>, limit: usize) -> Result<Frame, ReadFrameError> {
    frame(read(bytes, limit)?, source)
}

fn frame(members: BTreeMap<Attribute, &RawValue>, source: Option<&str>) -> Result<Frame, ReadFrameError> {
    let mut event = CloudEvent::default();
    for (name, value) in members {
        let value = value.get();
        match name {
            Attribute::Data => event.data = Data::Json(Bytes::copy_from_slice(value.as_bytes())),
            Attribute::DataBase64 => {
                let text: Option<String> = parse(value.as_bytes())?;
                let content = BASE64.decode(text.unwrap_or_default().as_bytes());
                let content = content.map_err(|error| ReadFrameError::Json(error.to_string()))?;
                event.data = Data::Bytes(content.into());
            }
            Attribute::Other => {}
            name => match parse(value.as_bytes())? {
                Value::String(text) => event.attributes.set(name, text),
                Value::Null => {}
                Value::Array(_) | Value::Object(_) => return Err(ReadFrameError::Attribute(name.as_str())),
                value => event.attributes.set(name, value.to_string()),
            },
        }
    }
    event.frame(source)
}

/// Reads an array of events, or a single one, of at most `limit` bytes and [`MAX_FRAMES`]
/// events together.
///
/// # Errors
/// [`ReadFrameError`] says what is wrong with the first bad one.
pub fn decode_all(bytes: &Bytes, source: Option<&str>, limit: usize) -> Result<Vec<Frame>, ReadFrameError> {
    if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{') {
        return decode(bytes, source, limit).map(|frame| vec![frame]);
    }
    array(read(bytes, limit)?, source)
}

/// Reads an array of at most [`MAX_FRAMES`] events.
pub(crate) fn array(events: &RawValue, source: Option<&str>) -> Result<Vec<Frame>, ReadFrameError> {
    let text = events.get().as_bytes();
    // Those that are too many take no memory.
    if parse::<Vec<IgnoredAny>>(text)?.len() > MAX_FRAMES {
        return Err(ReadFrameError::TooMany { what: "frames", limit: MAX_FRAMES });
    }
    let events: Vec<BTreeMap<Attribute, &RawValue>> = parse(text)?;
    events.into_iter().map(|event| frame(event, source)).collect()
}

/// Reads a message of at most `limit` bytes.
pub(crate) fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8], limit: usize) -> Result<T, ReadFrameError> {
    if bytes.len() > limit {
        return Err(ReadFrameError::TooLarge { limit });
    }
    parse(bytes)
}

fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ReadFrameError> {
    serde_json::from_slice(json).map_err(|error| ReadFrameError::Json(error.to_string()))
}
