//! [`CloudEvent`]: the one form between frames and bytes. Encodings read and write it; what a
//! frame is made of is decided here.
//!
//! ```text
//!   Frame::Event  <->  attributes and content  \
//!                                               CloudEvent  <->  protobuf | JSON
//!   other frames  <->  JSON as data            /
//! ```

use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64;
use model::{Digest, ObjectKey, SectionKey, Stub};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sync::bounds::{Bounded, checksum};
use sync::frame::{Event, Interop, Op};
use sync::object::{MAX_CONTENT, is_status};
use sync::{Frame, Position};

use super::names::{
    Attribute, Attributes, CHANGES, MAX_NAME, PREFIX, RESOURCE_RESYNC, STATUS_UPDATE, bare, kind_of, name_of,
    says_created, says_gone,
};
use super::{MAX_ATTRIBUTE, Origin, ReadFrameError, WriteFrameError, shown};

/// The longest trace context that is kept; a longer one is forgotten.
const MAX_TRACE: usize = 128;
/// The type of a content that is an object or array in JSON, by its ends.
pub(super) const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

/// What an event carries.
#[derive(Clone, Debug, Default)]
pub(super) enum Data {
    #[default]
    None,
    /// A JSON text.
    Json(Bytes),
    /// Bytes: in protobuf JSON texts as well.
    Bytes(Bytes),
}

impl Data {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Data::None => &[],
            Data::Json(bytes) | Data::Bytes(bytes) => bytes,
        }
    }
}

/// An event, as it is about to be written or as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct CloudEvent<'a> {
    pub(super) attributes: Attributes<'a>,
    pub(super) data: Data,
}

/// The checksum of an inventory, as peers of the source document write it.
#[derive(Serialize, Deserialize)]
struct Inventory {
    #[serde(default, with = "checksum")]
    checksum: Option<Digest>,
}

/// The frames that are no changes, each with its name.
macro_rules! frames {
    ($($name:literal $frame:ident)*; without data: $($bare_name:literal $bare:ident)*) => {
        /// The name of a frame, and what it carries unless it is a change.
        fn named(frame: &Frame) -> Result<(&str, Data), WriteFrameError> {
            Ok(match frame {
                $(Frame::$frame(payload) => ($name, json(payload)?),)*
                $(Frame::$bare => ($bare_name, Data::None),)*
                Frame::Interop(interop) => match &**interop {
                    Interop::RequestResync => (REQUEST_RESYNC, Data::None),
                    Interop::RequestList { checksum } => {
                        (REQUEST_LIST, json(&Inventory { checksum: Some(*checksum) })?)
                    }
                    Interop::Listed(one) => (LISTED, json(one)?),
                    Interop::RequestUpdate(one) => (REQUEST_UPDATE, json(one)?),
                },
                Frame::Event(change) => (name_of(change), Data::None),
                Frame::Unknown(name) => (name, Data::None),
            })
        }

        impl CloudEvent<'_> {
            /// The frame of this name.
            fn of_name(&self, name: &str) -> Result<Frame, ReadFrameError> {
                let interop = match name {
                    $($name => return self.read(name).map(Frame::$frame),)*
                    $($bare_name => return Ok(Frame::$bare),)*
                    REQUEST_RESYNC => Interop::RequestResync,
                    REQUEST_LIST => match self.read(name)? {
                        Inventory { checksum: Some(checksum) } => Interop::RequestList { checksum },
                        Inventory { checksum: None } => return Err(payload(name, "an inventory has a checksum")),
                    },
                    LISTED => Interop::Listed(self.read(name)?),
                    REQUEST_UPDATE => Interop::RequestUpdate(self.read(name)?),
                    name if CHANGES.as_flattened().contains(&name) => return self.change(name),
                    name => return Ok(Frame::Unknown(name.chars().take(MAX_NAME).collect())),
                };
                Ok(Frame::Interop(Box::new(interop)))
            }
        }
    };
}

frames! {
    "hello" Hello
    "processed" Ack
    "error" Refused
    "checkpoint" Checkpoint
    "resync-request" ResyncRequest
    "resync-response" ResyncResponse
    "ping" Ping
    "pong" Pong
    "go-away" GoAway
    "check-in" CheckIn
    "check-in-answer" Answer;
    without data:
    "state-updated" StateUpdated
    "approve-deletions" Approve
}

/// The names of an inventory resync's frames.
const REQUEST_RESYNC: &str = "request-resource-resync";
const REQUEST_LIST: &str = "request-synced-resource-list";
const LISTED: &str = "response-synced-resource";
const REQUEST_UPDATE: &str = "request-update";

fn json<T: Serialize>(value: &T) -> Result<Data, WriteFrameError> {
    let json = serde_json::to_vec(value);
    json.map(|json| Data::Json(json.into())).map_err(|error| WriteFrameError::Payload(error.to_string()))
}

fn payload(name: &str, what: impl ToString) -> ReadFrameError {
    ReadFrameError::Payload { name: name.to_owned(), what: what.to_string() }
}

impl<'a> CloudEvent<'a> {
    /// The event that a frame is; `origin` learns the incarnation of the feed on the way.
    ///
    /// # Errors
    /// [`WriteFrameError`] says what cannot be written.
    pub(super) fn of(frame: &'a Frame, origin: &'a mut Origin) -> Result<CloudEvent<'a>, WriteFrameError> {
        let (name, data) = named(frame)?;
        let mut event = CloudEvent { attributes: Attributes::default(), data };
        let attributes = &mut event.attributes;
        let mut revision = None;
        match frame {
            Frame::Event(change) => {
                event.data = attributes.change(change, name)?;
                revision = Some(change.rev);
            }
            Frame::Hello(hello) => origin.incarnation = Some(hello.head.incarnation.clone()),
            Frame::Checkpoint(checkpoint) => origin.incarnation = Some(checkpoint.cursor.incarnation.clone()),
            Frame::Interop(_) => attributes.set(Attribute::Schema, RESOURCE_RESYNC),
            _ => {}
        }
        let id = origin.id(revision);
        if revision.is_some() {
            attributes.set(Attribute::EventId, id.clone());
        }
        attributes.set(Attribute::Id, id);
        attributes.set(Attribute::Source, origin.source());
        attributes.set(Attribute::SpecVersion, "1.0");
        attributes.set(Attribute::Type, [PREFIX, name].concat());
        // Without it data is JSON.
        if let Data::Bytes(content) = &event.data {
            let ends = (content.first(), content.last());
            let is_json = matches!(ends, (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')));
            let content_type = if is_json { JSON } else { OCTETS };
            attributes.set(Attribute::ContentType, content_type);
        }
        Ok(event)
    }

    /// The frame that it is. With `source`, an event that says to come from another is refused.
    ///
    /// # Errors
    /// [`ReadFrameError`] says what is wrong.
    pub(super) fn frame(self, source: Option<&str>) -> Result<Frame, ReadFrameError> {
        let text = |attribute| self.attributes.get(attribute).unwrap_or_default();
        let version = text(Attribute::SpecVersion);
        if version != "1.0" && !version.starts_with("1.") {
            return Err(ReadFrameError::SpecVersion(shown(version)));
        }
        if text(Attribute::Id).is_empty() && text(Attribute::EventId).is_empty() {
            return Err(ReadFrameError::Missing("id"));
        }
        if let Some((name, _)) = self.attributes.iter().find(|(_, value)| value.len() > MAX_ATTRIBUTE) {
            return Err(ReadFrameError::Attribute(name));
        }
        if source.is_some_and(|source| source != text(Attribute::Source)) {
            return Err(ReadFrameError::Source(shown(text(Attribute::Source))));
        }
        self.of_name(bare(self.attributes.needed(Attribute::Type)?))
    }

    /// What is carried as JSON; an event without data says nothing but its name.
    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, ReadFrameError> {
        let data = self.data.as_slice();
        serde_json::from_slice(if data.is_empty() { b"{}" } else { data })
            .map_err(|error| payload(name, error))
    }

    fn change(&self, name: &str) -> Result<Frame, ReadFrameError> {
        let attributes = &self.attributes;
        let is_true = |attribute| attributes.get(attribute) == Some("true");
        let uid: Arc<str> = attributes.needed(Attribute::ResourceId)?.into();
        let mut key = attributes.key()?;
        if name == STATUS_UPDATE && !is_status(&key.section.kind) {
            key = sync::object::status_key(&key);
        }
        let trace = attributes.get(Attribute::Trace).filter(|text| trace_fits(text)).map(str::to_owned);
        let at = attributes.parsed(Attribute::At)?.unwrap_or_default();
        let proof = attributes.proof()?;
        let (seq, rev) = (attributes.number(Attribute::Seq)?, attributes.number(Attribute::Rev)?);
        let revision = match attributes.get(Attribute::Upto) {
            Some(_) => attributes.number(Attribute::Upto)?,
            None => rev,
        };
        let upto = Position { revision, pass: attributes.parsed(Attribute::Pass)? };
        let op = if says_gone(name) || is_true(Attribute::Gone) {
            Op::Delete { uid }
        } else {
            let created = says_created(name) || is_true(Attribute::Created);
            let digest: Option<Digest> = attributes.parsed(Attribute::Digest)?;
            let content = content(&self.data)?;
            let digest = digest.unwrap_or_else(|| Digest::of(&content));
            Op::Put { stub: Stub { uid, digest, size: content.len() as u64 }, content, created }
        };
        Ok(Frame::Event(Box::new(Event { seq, rev, upto, key, op, trace, at, proof })))
    }
}

impl<'a> Attributes<'a> {
    /// Says a change of this name, and gives its content.
    fn change(&mut self, change: &'a Event, name: &str) -> Result<Data, WriteFrameError> {
        let section = &change.key.section;
        self.set(Attribute::Schema, section.kind.as_str());
        self.set(Attribute::Subject, [&section.namespace, "/", &change.key.name].concat());
        self.set(Attribute::Seq, change.seq.to_string());
        self.set(Attribute::Rev, change.rev.to_string());
        self.set(Attribute::Upto, change.upto.revision.to_string());
        self.set(Attribute::At, change.at.to_string());
        if let Some(pass) = &change.upto.pass {
            self.set(Attribute::Pass, pass.to_string());
        }
        if let Some(trace) = &change.trace {
            self.set(Attribute::Trace, trace);
        }
        if let Some(proof) = &change.proof {
            self.set(Attribute::Proof, BASE64.encode(proof));
        }
        match &change.op {
            Op::Delete { uid } => {
                self.set(Attribute::ResourceId, &**uid);
                if !says_gone(name) {
                    self.set(Attribute::Gone, "true");
                }
                Ok(Data::None)
            }
            Op::Put { content, .. } if content.len() > MAX_CONTENT => {
                Err(WriteFrameError::TooLarge { bytes: content.len() })
            }
            Op::Put { stub, content, created } => {
                self.set(Attribute::ResourceId, &*stub.uid);
                self.set(Attribute::Digest, stub.digest.to_string());
                if *created && !says_created(name) {
                    self.set(Attribute::Created, "true");
                }
                Ok(Data::Bytes(content.clone()))
            }
        }
    }

    /// What proves a change.
    fn proof(&self) -> Result<Option<Bytes>, ReadFrameError> {
        let wrong = |_| ReadFrameError::Attribute(Attribute::Proof.as_str());
        let decode = |text: &str| BASE64.decode(text.as_bytes()).map(Bytes::from).map_err(wrong);
        self.get(Attribute::Proof).map(decode).transpose()
    }

    fn parsed<T: std::str::FromStr>(&self, attribute: Attribute) -> Result<Option<T>, ReadFrameError> {
        let wrong = |_| ReadFrameError::Attribute(attribute.as_str());
        self.get(attribute).map(|text| text.parse().map_err(wrong)).transpose()
    }

    /// One that an event of this type has, and that is not empty.
    fn needed(&self, attribute: Attribute) -> Result<&str, ReadFrameError> {
        let text = self.get(attribute).filter(|text| !text.is_empty());
        text.ok_or(ReadFrameError::Missing(attribute.as_str()))
    }

    /// A number within its bound, without a sign.
    fn number(&self, attribute: Attribute) -> Result<u64, ReadFrameError> {
        let text = self.needed(attribute)?;
        let number = text.parse().ok().filter(|number: &u64| number.fits() && !text.starts_with('+'));
        number.ok_or(ReadFrameError::Attribute(attribute.as_str()))
    }

    /// `dataschema` and `subject`. The first slash of the subject ends the namespace.
    fn key(&self) -> Result<ObjectKey, ReadFrameError> {
        let (kind, subject) = (self.needed(Attribute::Schema)?, self.needed(Attribute::Subject)?);
        let (namespace, name) = subject.split_once('/').unwrap_or(("", subject));
        if name.is_empty() {
            return Err(ReadFrameError::Attribute("subject"));
        }
        if kind.contains('/') {
            return Err(ReadFrameError::Attribute("dataschema"));
        }
        let section = SectionKey { kind: kind_of(kind), namespace: namespace.into() };
        Ok(ObjectKey { section, name: name.into() })
    }
}

/// A trace context is short text without anything that could disturb a log.
fn trace_fits(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TRACE && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The content of an object: of JSON its canonical form.
fn content(data: &Data) -> Result<Bytes, ReadFrameError> {
    let bytes = data.as_slice().len();
    if bytes > MAX_CONTENT {
        return Err(ReadFrameError::ObjectTooLarge { bytes });
    }
    match data {
        Data::None => Ok(Bytes::new()),
        Data::Bytes(bytes) => Ok(bytes.clone()),
        Data::Json(json) => canonical(json).ok_or(ReadFrameError::Attribute("data")),
    }
}

/// The canonical form (RFC 8785) of a JSON text; `None` when there is none, such as for huge numbers.
pub(super) fn canonical(json: &[u8]) -> Option<Bytes> {
    let value: Value = serde_json::from_slice(json).ok()?;
    // What most objects are, serde_json writes alike in a quarter of the time.
    let bytes = match is_plain(&value) {
        true => serde_json::to_vec(&value).ok(),
        false => serde_json_canonicalizer::to_vec(&value).ok(),
    };
    bytes.map(Bytes::from)
}

/// Whether all numbers are small integers, and keys order as their bytes do: not so beyond U+DFFF.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.as_i64().is_some_and(|number| number.unsigned_abs() < 1 << 53),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(members) => {
            members.iter().all(|(key, value)| key.bytes().all(|byte| byte < 0xee) && is_plain(value))
        }
    }
}
