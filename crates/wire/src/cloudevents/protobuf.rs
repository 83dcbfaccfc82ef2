//! Frames as `muster.v1.Event` in protobuf, written and read without intermediate copies.

use std::borrow::Cow;

use bytes::Bytes;
use sync::Frame;

use super::draft::{self, Data, Draft, Room};
use super::envelope::{self, Envelope, Ext};
use super::names::PREFIX;
use super::{Origin, ReadFrameError, WriteFrameError};

/// The key of a length-delimited field.
const fn key(field: u8) -> u8 {
    field << 3 | 2
}

const EVENT: u8 = key(1);
const ID: u8 = key(1);
const SOURCE: u8 = key(2);
const SPEC_VERSION: u8 = key(3);
const TYPE: u8 = key(4);
const ATTRIBUTES: u8 = key(5);
const BINARY_DATA: u8 = key(6);
const ENTRY_KEY: u8 = key(1);
const ENTRY_VALUE: u8 = key(2);
const CE_STRING: u8 = key(3);
const CE_URI: u8 = key(5);
/// Room for the attributes of a usual event.
const USUAL: usize = 640;

/// Appends a frame to `out` as one `muster.v1.Event`.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode(origin: &mut Origin, frame: &Frame, out: &mut Vec<u8>) -> Result<(), WriteFrameError> {
    let draft = Draft::of(frame, origin)?;
    let mut head = Vec::with_capacity(USUAL);
    let data = attributes(origin, &draft, &mut head);
    let data_len = data.map_or(0, |data| 1 + varint_len(data.len()) + data.len());
    let whole = head.len() + data_len;
    out.reserve(1 + varint_len(whole) + whole);
    out.push(EVENT);
    varint(whole, out);
    out.extend_from_slice(&head);
    if let Some(data) = data {
        field(BINARY_DATA, data, out);
    }
    Ok(())
}

/// Writes everything but the data, and gives that back.
fn attributes<'a>(origin: &mut Origin, draft: &'a Draft<'_>, head: &mut Vec<u8>) -> Option<&'a [u8]> {
    // The id is at most 2 * 100 + 21 bytes; its length is known once it is written.
    let mut id = Vec::with_capacity(64);
    draft::id(origin, draft.rev, &mut id);
    field(ID, &id, head);
    field(SOURCE, origin.source.as_bytes(), head);
    field(SPEC_VERSION, b"1.0", head);
    head.push(TYPE);
    varint(PREFIX.len() + draft.name.len(), head);
    head.extend_from_slice(PREFIX.as_bytes());
    head.extend_from_slice(draft.name.as_bytes());
    let data = match &draft.data {
        Data::None => None,
        Data::Json(json) => Some(json.as_slice()),
        Data::Content(content) => Some(&content[..]),
    };
    if let Some(data) = data {
        attribute("datacontenttype", CE_STRING, &[super::exact::content_type(data)], head);
    }
    if let Some(schema) = draft.schema {
        attribute(Ext::Schema.as_str(), CE_URI, &[schema], head);
    }
    if let Some(key) = draft.key {
        attribute(Ext::Subject.as_str(), CE_STRING, &[&key.section.namespace, "/", &key.name], head);
    }
    let mut room = Room::default();
    for (ext, text) in draft.ext() {
        attribute(ext.as_str(), CE_STRING, &[text.render(&mut room)], head);
    }
    if draft.rev.is_some() {
        // The id was made of texts.
        attribute(Ext::EventId.as_str(), CE_STRING, &[std::str::from_utf8(&id).unwrap_or_default()], head);
    }
    data
}

fn varint_len(value: usize) -> usize {
    prost::length_delimiter_len(value)
}

fn varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(key: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(key);
    varint(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// An entry of the map of attributes; the value comes in parts.
fn attribute(name: &str, value_key: u8, parts: &[&str], out: &mut Vec<u8>) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let value = 1 + varint_len(len) + len;
    let entry = 1 + varint_len(name.len()) + name.len() + 1 + varint_len(value) + value;
    out.push(ATTRIBUTES);
    varint(entry, out);
    field(ENTRY_KEY, name.as_bytes(), out);
    out.push(ENTRY_VALUE);
    varint(value, out);
    out.push(value_key);
    varint(len, out);
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Reads one `muster.v1.Event` of at most `limit` bytes. With `source`, an event that says
/// to come from another is refused.
///
/// # Errors
/// [`ReadFrameError`] says what is wrong.
pub fn decode(bytes: &Bytes, source: Option<&str>, limit: usize) -> Result<Frame, ReadFrameError> {
    if bytes.len() > limit {
        return Err(ReadFrameError::TooLarge { limit });
    }
    let mut envelope = Envelope::default();
    let mut reader = Reader(bytes);
    while let Some((number, value)) = reader.next()? {
        if let (1, Value::Bytes(event)) = (number, value) {
            cloud_event(&mut envelope, event)?;
        }
    }
    envelope.frame(bytes, source)
}

fn cloud_event<'a>(envelope: &mut Envelope<'a>, bytes: &'a [u8]) -> Result<(), ReadFrameError> {
    let mut reader = Reader(bytes);
    while let Some((number, value)) = reader.next()? {
        let Value::Bytes(value) = value else { continue };
        match number {
            1 => envelope.id = text(value)?,
            2 => envelope.source = text(value)?,
            3 => envelope.version = text(value)?,
            4 => envelope.type_ = text(value)?,
            5 => entry(envelope, value)?,
            6 | 7 => envelope.data = envelope::Data::Slice(value),
            8 => return Err(ReadFrameError::Protobuf("data as a protobuf message is not read")),
            _ => {}
        }
    }
    Ok(())
}

fn entry<'a>(envelope: &mut Envelope<'a>, bytes: &'a [u8]) -> Result<(), ReadFrameError> {
    let (mut name, mut found) = ("", None);
    let mut reader = Reader(bytes);
    while let Some((number, value)) = reader.next()? {
        match (number, value) {
            (1, Value::Bytes(bytes)) => {
                name = std::str::from_utf8(bytes)
                    .map_err(|_| ReadFrameError::Protobuf("a text is not UTF-8"))?;
            }
            (2, Value::Bytes(bytes)) => found = attribute_value(bytes)?,
            _ => {}
        }
    }
    match found {
        Some(value) => envelope.set(name, value),
        None => Ok(()),
    }
}

/// A value as text: texts of every sort, numbers and truth; other sorts are not used here.
fn attribute_value(bytes: &[u8]) -> Result<Option<Cow<'_, str>>, ReadFrameError> {
    let mut found = None;
    let mut reader = Reader(bytes);
    while let Some((number, value)) = reader.next()? {
        match (number, value) {
            (3 | 5 | 6, Value::Bytes(bytes)) => found = Some(text(bytes)?),
            (1, Value::Number(number)) => {
                found = Some(Cow::Borrowed(if number == 0 { "false" } else { "true" }));
            }
            // An int32: its lower half, sign included.
            (2, Value::Number(number)) => found = Some(Cow::Owned((number as i32).to_string())),
            _ => {}
        }
    }
    Ok(found)
}

fn text(bytes: &[u8]) -> Result<Cow<'_, str>, ReadFrameError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ReadFrameError::Protobuf("a text is not UTF-8"))?;
    Ok(Cow::Borrowed(text))
}

/// The value of a field: fixed-width ones are skipped.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Skipped,
}

/// Fields of a message, one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, ReadFrameError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Skipped)?,
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(usize::try_from(len).unwrap_or(usize::MAX))?)
            }
            5 => self.take(4).map(|_| Value::Skipped)?,
            _ => return Err(ReadFrameError::Protobuf("a field of a sort that is not used")),
        };
        Ok(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, ReadFrameError> {
        let mut value = 0_u64;
        for (place, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        Err(ReadFrameError::Protobuf("a number is cut off or too long"))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ReadFrameError> {
        let (taken, rest) =
            self.0.split_at_checked(len).ok_or(ReadFrameError::Protobuf("a field is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }
}
