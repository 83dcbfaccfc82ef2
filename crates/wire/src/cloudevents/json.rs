//! Frames as CloudEvents in JSON, structured mode: one by one, and many in one message.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use data_encoding::BASE64;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sync::Frame;

use super::event::{CloudEvent, Data};
use super::exact::as_canonical;
use super::names::ATTRIBUTES;
use super::{Origin, ReadFrameError, WriteFrameError};

/// The most frames that one message holds.
pub const MAX_FRAMES: usize = 1024;

/// Appends a frame to `out` as one JSON object without line breaks.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode(origin: &mut Origin, frame: &Frame, out: &mut Vec<u8>) -> Result<(), WriteFrameError> {
    let event = CloudEvent::of(frame, origin)?;
    serde_json::to_writer(out, &event).map_err(|error| WriteFrameError::Payload(error.to_string()))
}

impl Serialize for CloudEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.attributes.iter() {
            map.serialize_entry(name, value)?;
        }
        match &self.data {
            Data::None => {}
            Data::Json(json) => map.serialize_entry("data", json)?,
            Data::Bytes(bytes) => match as_canonical(bytes) {
                Some(json) => map.serialize_entry("data", json)?,
                None => map.serialize_entry("data_base64", &BASE64.encode(bytes))?,
            },
        }
        map.end()
    }
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
    read::<CloudEvent<'_>>(bytes, limit)?.frame(source)
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
    read::<Events<'_>>(bytes, limit)?.frames(source)
}

/// Reads a message of at most `limit` bytes.
pub(crate) fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8], limit: usize) -> Result<T, ReadFrameError> {
    if bytes.len() > limit {
        return Err(ReadFrameError::TooLarge { limit });
    }
    serde_json::from_slice(bytes).map_err(|error| ReadFrameError::Json(error.to_string()))
}

impl<'de: 'a, 'a> Deserialize<'de> for CloudEvent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CloudEvent<'a>, D::Error> {
        deserializer.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = CloudEvent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CloudEvent")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CloudEvent<'de>, A::Error> {
        let mut event = CloudEvent::default();
        while let Some(name) = map.next_key::<Value<'de>>()? {
            match &*name.into_text().unwrap_or_default() {
                "data" => event.data = Data::Json(Cow::Borrowed(map.next_value()?)),
                "data_base64" => {
                    let text = map.next_value::<Value<'de>>()?.into_text().unwrap_or_default();
                    let bytes = BASE64.decode(text.as_bytes()).map_err(A::Error::custom)?;
                    event.data = Data::Bytes(bytes.into());
                }
                name if ATTRIBUTES.contains(&name) => {
                    if let Some(value) = map.next_value::<Value<'de>>()?.into_text() {
                        event.attributes.put(name, value);
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(event)
    }
}

/// Events of one message, unread; one more than [`MAX_FRAMES`] when there are too many.
#[derive(Default)]
pub(crate) struct Events<'a>(Vec<&'a RawValue>);

impl Events<'_> {
    /// Their frames, as with [`decode`].
    pub(crate) fn frames(self, source: Option<&str>) -> Result<Vec<Frame>, ReadFrameError> {
        if self.0.len() > MAX_FRAMES {
            return Err(ReadFrameError::TooMany { what: "frames", limit: MAX_FRAMES });
        }
        let frame =
            |event: &RawValue| read::<CloudEvent<'_>>(event.get().as_bytes(), usize::MAX)?.frame(source);
        self.0.into_iter().map(frame).collect()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Events<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Events<'a>, D::Error> {
        deserializer.deserialize_seq(EventsVisitor)
    }
}

struct EventsVisitor;

impl<'de> Visitor<'de> for EventsVisitor {
    type Value = Events<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of CloudEvents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Events<'de>, A::Error> {
        let mut events = Vec::new();
        while let Some(event) = seq.next_element()? {
            if events.len() <= MAX_FRAMES {
                events.push(event);
            }
        }
        Ok(Events(events))
    }
}

/// The value of an attribute: text, or a number or truth as text; nothing for null.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Truth(bool),
    Number(i64),
    Null,
}

impl<'a> Value<'a> {
    fn into_text(self) -> Option<Cow<'a, str>> {
        match self {
            Value::Text(text) => Some(text),
            Value::Truth(truth) => Some(truth.to_string().into()),
            Value::Number(number) => Some(number.to_string().into()),
            Value::Null => None,
        }
    }
}
