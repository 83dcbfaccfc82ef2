//! Frames as CloudEvents in JSON, structured mode.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use data_encoding::BASE64;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sync::Frame;

use super::draft::{self, Data, Draft, Room};
use super::envelope::{self, Envelope, Ext};
use super::names::PREFIX;
use super::{Origin, ReadFrameError, WriteFrameError, exact};

/// The most frames that one message holds.
pub const MAX_FRAMES: usize = 1024;

/// Appends a frame to `out` as one JSON object without line breaks.
///
/// # Errors
/// [`WriteFrameError`]; then nothing was appended.
pub fn encode(origin: &mut Origin, frame: &Frame, out: &mut Vec<u8>) -> Result<(), WriteFrameError> {
    let draft = Draft::of(frame, origin)?;
    let mut id = Vec::with_capacity(64);
    draft::id(origin, draft.rev, &mut id);
    // The id was made of texts.
    let id = std::str::from_utf8(&id).unwrap_or_default();
    out.extend_from_slice(br#"{"specversion":"1.0""#);
    member("id", &[id], out);
    member("source", &[&origin.source], out);
    member("type", &[PREFIX, draft.name], out);
    let plain = match &draft.data {
        Data::None => None,
        Data::Json(json) => Some((json.as_slice(), true)),
        Data::Content(content) => Some((&content[..], exact::is_canonical(content))),
    };
    if let Some((_, is_json)) = plain {
        let content_type = if is_json { exact::JSON } else { exact::OCTETS };
        member("datacontenttype", &[content_type], out);
    }
    if let Some(schema) = draft.schema {
        member(Ext::Schema.as_str(), &[schema], out);
    }
    if let Some(key) = draft.key {
        member(Ext::Subject.as_str(), &[&key.section.namespace, "/", &key.name], out);
    }
    let mut room = Room::default();
    for (ext, text) in draft.ext() {
        member(ext.as_str(), &[text.render(&mut room)], out);
    }
    if draft.rev.is_some() {
        member(Ext::EventId.as_str(), &[id], out);
    }
    match plain {
        None => {}
        Some((json, true)) => {
            out.extend_from_slice(br#","data":"#);
            out.extend_from_slice(json);
        }
        Some((bytes, false)) => {
            out.extend_from_slice(br#","data_base64":""#);
            let start = out.len();
            out.resize(start + BASE64.encode_len(bytes.len()), 0);
            BASE64.encode_mut(bytes, &mut out[start..]);
            out.push(b'"');
        }
    }
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
    let mut between = b'[';
    for frame in frames {
        out.push(between);
        between = b',';
        if let Err(error) = encode(origin, frame, out) {
            out.truncate(start);
            return Err(error);
        }
    }
    if between == b'[' {
        out.push(b'[');
    }
    out.push(b']');
    Ok(())
}

/// A member of an object after the first, its text in parts.
fn member(name: &str, parts: &[&str], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    for part in parts {
        escaped(part, out);
    }
    out.push(b'"');
}

/// Text inside quotes: as it is unless a byte of it must be escaped.
fn escaped(text: &str, out: &mut Vec<u8>) {
    let must = |b: &u8| *b < 0x20 || *b == b'"' || *b == b'\\';
    if !text.as_bytes().iter().any(must) {
        return out.extend_from_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(data_encoding::HEXLOWER.encode(&[byte]).as_bytes());
            }
            _ => out.push(byte),
        }
    }
}

/// Reads one event of at most `limit` bytes. With `source`, an event that says to come from
/// another is refused.
///
/// # Errors
/// [`ReadFrameError`] says what is wrong.
pub fn decode(bytes: &Bytes, source: Option<&str>, limit: usize) -> Result<Frame, ReadFrameError> {
    if bytes.len() > limit {
        return Err(ReadFrameError::TooLarge { limit });
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let seed = OneSeed { whole: bytes, source };
    let frame = seed.deserialize(&mut json).and_then(|frame| json.end().map(|()| frame));
    frame.map_err(not_json)?
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
    if bytes.len() > limit {
        return Err(ReadFrameError::TooLarge { limit });
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let seed = AllSeed { whole: bytes, source };
    let frames = seed.deserialize(&mut json).and_then(|frames| json.end().map(|()| frames));
    frames.map_err(not_json)?
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(crate) fn not_json(error: serde_json::Error) -> ReadFrameError {
    ReadFrameError::Json(error.to_string())
}

/// Reads one event in the middle of a document.
#[derive(Clone, Copy)]
struct OneSeed<'b> {
    whole: &'b Bytes,
    source: Option<&'b str>,
}

impl<'de> DeserializeSeed<'de> for OneSeed<'_> {
    type Value = Result<Frame, ReadFrameError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneSeed<'_> {
    type Value = Result<Frame, ReadFrameError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CloudEvent")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut envelope = Envelope::default();
        // The whole event is read to its end even when it is wrong, so that a wrong one in
        // an array does not look like broken JSON.
        let mut wrong = None;
        while let Some(Key(name)) = map.next_key()? {
            match &*name {
                "specversion" => envelope.version = map.next_value::<Plain<'de>>()?.0.unwrap_or_default(),
                "id" => envelope.id = map.next_value::<Plain<'de>>()?.0.unwrap_or_default(),
                "source" => envelope.source = map.next_value::<Plain<'de>>()?.0.unwrap_or_default(),
                "type" => envelope.type_ = map.next_value::<Plain<'de>>()?.0.unwrap_or_default(),
                "data" => {
                    let raw: &'de RawValue = map.next_value()?;
                    envelope.data = envelope::Data::Json(raw.get().as_bytes());
                }
                "data_base64" => {
                    let text = map.next_value::<Plain<'de>>()?.0.unwrap_or_default();
                    match BASE64.decode(text.as_bytes()) {
                        Ok(bytes) => envelope.data = envelope::Data::Made(bytes),
                        Err(_) => wrong = wrong.or(Some(ReadFrameError::Attribute("data_base64"))),
                    }
                }
                _ if Ext::parse(&name).is_some() => {
                    if let Some(value) = map.next_value::<Plain<'de>>()?.0 {
                        let set = envelope.set(&name, value);
                        wrong = wrong.or(set.err());
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(match wrong {
            Some(wrong) => Err(wrong),
            None => envelope.frame(self.whole, self.source),
        })
    }
}

/// Reads an array of events in the middle of a document.
#[derive(Clone, Copy)]
pub(crate) struct AllSeed<'b> {
    pub(crate) whole: &'b Bytes,
    pub(crate) source: Option<&'b str>,
}

impl<'de> DeserializeSeed<'de> for AllSeed<'_> {
    type Value = Result<Vec<Frame>, ReadFrameError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for AllSeed<'_> {
    type Value = Result<Vec<Frame>, ReadFrameError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of CloudEvents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut frames, mut wrong) = (Vec::new(), None);
        let seed = OneSeed { whole: self.whole, source: self.source };
        while let Some(read) = seq.next_element_seed(seed)? {
            match read {
                _ if wrong.is_some() => {}
                Err(error) => wrong = Some(error),
                Ok(_) if frames.len() == MAX_FRAMES => {
                    wrong = Some(ReadFrameError::TooMany { what: "frames", limit: MAX_FRAMES });
                }
                Ok(frame) => frames.push(frame),
            }
        }
        Ok(wrong.map_or(Ok(frames), Err))
    }
}

/// A member's name, borrowed where it holds no escape.
pub(crate) struct Key<'de>(pub(crate) Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<'de>, D::Error> {
        let Plain(text) = Plain::deserialize(deserializer)?;
        text.map(Key).ok_or_else(|| D::Error::custom("a name is text"))
    }
}

/// An attribute: text, or a number or truth as text; `None` for null.
struct Plain<'de>(Option<Cow<'de, str>>);

impl<'de> serde::Deserialize<'de> for Plain<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plain<'de>, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Plain<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number or a truth value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Plain<'de>, E> {
        Ok(Plain(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Plain<'de>, E> {
        Ok(Plain(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Plain<'de>, E> {
        Ok(Plain(Some(Cow::Borrowed(if truth { "true" } else { "false" }))))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Plain<'de>, E> {
        Ok(Plain(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Plain<'de>, E> {
        Ok(Plain(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_unit<E: Error>(self) -> Result<Plain<'de>, E> {
        Ok(Plain(None))
    }
}
