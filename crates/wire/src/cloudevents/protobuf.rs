//! Frames as `muster.v1.Event` in protobuf, read without copies: prost's derived messages have
//! texts and a map of their own, which cost more than all else of an event. Tests hold both
//! against each other.

use std::borrow::Cow;

use bytes::Bytes;
use prost::DecodeError;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint,
    skip_field,
};
use sync::Frame;

use super::event::{CloudEvent, Data};
use super::names::{ATTRIBUTES, Attribute};
use super::{Origin, ReadFrameError, WriteFrameError};

/// The attributes before it are fields of their own, numbered from 1; all others are in a map.
const ATTRIBUTE: u32 = 5;
const BINARY_DATA: u32 = 6;
const CE_STRING: u32 = 3;
const CE_URI: u32 = 5;

/// Appends a frame to `out` as one `muster.v1.Event`.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode(origin: &mut Origin, frame: &Frame, out: &mut Vec<u8>) -> Result<(), WriteFrameError> {
    let CloudEvent { attributes, data } = CloudEvent::of(frame, origin)?;
    let mut event = Vec::with_capacity(640 + data.as_slice().len());
    // The first four are always there.
    for (number, (name, text)) in (1..).zip(attributes.iter()) {
        if number < ATTRIBUTE {
            field(number, text.as_bytes(), &mut event);
            continue;
        }
        let sort = if name == Attribute::Schema.as_str() { CE_URI } else { CE_STRING };
        begin(ATTRIBUTE, len_of(name.len()) + len_of(len_of(text.len())), &mut event);
        field(1, name.as_bytes(), &mut event);
        begin(2, len_of(text.len()), &mut event);
        field(sort, text.as_bytes(), &mut event);
    }
    if !matches!(data, Data::None) {
        field(BINARY_DATA, data.as_slice(), &mut event);
    }
    field(1, &event, out);
    Ok(())
}

/// The length of a field of so many bytes; the number of every field here has one byte.
fn len_of(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

fn begin(number: u32, bytes: usize, out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes as u64, out);
}

fn field(number: u32, value: &[u8], out: &mut Vec<u8>) {
    begin(number, value.len(), out);
    out.extend_from_slice(value);
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
    let mut event = CloudEvent::default();
    fields(bytes, |number, value| match (number, value) {
        (1, Field::Bytes(inner)) => fields(inner, |number, value| read(&mut event, bytes, number, value)),
        _ => Ok(()),
    })?;
    event.frame(source)
}

fn read<'a>(
    event: &mut CloudEvent<'a>,
    whole: &Bytes,
    number: u32,
    value: Field<'a>,
) -> Result<(), ReadFrameError> {
    let Field::Bytes(value) = value else { return Ok(()) };
    match number {
        1..ATTRIBUTE => event.attributes.put(ATTRIBUTES[number as usize - 1], text(value)?),
        ATTRIBUTE => {
            let (mut name, mut found) = (Cow::default(), None);
            fields(value, |number, value| {
                match (number, value) {
                    (1, Field::Bytes(value)) => name = text(value)?,
                    (2, Field::Bytes(value)) => {
                        fields(value, |number, value| attribute(&mut found, number, value))?
                    }
                    _ => {}
                }
                Ok(())
            })?;
            if let Some(value) = found {
                event.attributes.put(&name, value);
            }
        }
        // A large content stays in the message, a small one is copied so that it does not hold the rest.
        BINARY_DATA | 7 if value.len() * 2 < whole.len() => {
            event.data = Data::Bytes(Bytes::copy_from_slice(value));
        }
        BINARY_DATA | 7 => event.data = Data::Bytes(whole.slice_ref(value)),
        8 => return Err(ReadFrameError::Protobuf("data as a protobuf message is not read".to_owned())),
        _ => {}
    }
    Ok(())
}

/// A value as text: texts of every sort, numbers and truth; other sorts are not used here.
fn attribute<'a>(
    found: &mut Option<Cow<'a, str>>,
    number: u32,
    value: Field<'a>,
) -> Result<(), ReadFrameError> {
    match (number, value) {
        (CE_STRING | CE_URI | 6, Field::Bytes(value)) => *found = Some(text(value)?),
        (1, Field::Number(number)) => *found = Some((number != 0).to_string().into()),
        // An int32: its lower half, sign included.
        (2, Field::Number(number)) => *found = Some((number as i32).to_string().into()),
        _ => {}
    }
    Ok(())
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Gives each field of a message, those of fixed width apart.
fn fields<'a>(
    mut rest: &'a [u8],
    mut each: impl FnMut(u32, Field<'a>) -> Result<(), ReadFrameError>,
) -> Result<(), ReadFrameError> {
    let wrong = |error: DecodeError| ReadFrameError::Protobuf(error.to_string());
    while !rest.is_empty() {
        let (number, wire_type) = decode_key(&mut rest).map_err(wrong)?;
        match wire_type {
            WireType::Varint => each(number, Field::Number(decode_varint(&mut rest).map_err(wrong)?))?,
            WireType::LengthDelimited => {
                let len = decode_varint(&mut rest).map_err(wrong)?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let cut_off = || ReadFrameError::Protobuf("a field is cut off".to_owned());
                let (value, after) = rest.split_at_checked(len).ok_or_else(cut_off)?;
                rest = after;
                each(number, Field::Bytes(value))?;
            }
            other => skip_field(other, number, &mut rest, DecodeContext::default()).map_err(wrong)?,
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<Cow<'_, str>, ReadFrameError> {
    let text = std::str::from_utf8(bytes);
    text.map(Cow::Borrowed).map_err(|_| ReadFrameError::Protobuf("a text is not UTF-8".to_owned()))
}
