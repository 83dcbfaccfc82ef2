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
use model::{Digest, ObjectKey, SectionKey, Stub};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sync::bounds::{Bounded, checksum};
use sync::events;
use sync::frame::{Event, Interop, Op};
use sync::object::{MAX_CONTENT, is_status};
use sync::{Frame, Position};

use super::names::{Attribute, Attributes, MAX_NAME, PREFIX, RESOURCE_RESYNC, bare, kind_of, known};
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

fn json<T: Serialize>(value: &T) -> Result<Data, WriteFrameError> {
    let json = serde_json::to_vec(value);
    json.map(|json| Data::Json(json.into())).map_err(|error| WriteFrameError::Payload(error.to_string()))
}

impl<'a> CloudEvent<'a> {
    /// The event that a frame is; `origin` learns the incarnation of the feed on the way.
    ///
    /// # Errors
    /// [`WriteFrameError`] says what cannot be written.
    pub(super) fn of(frame: &'a Frame, origin: &'a mut Origin) -> Result<CloudEvent<'a>, WriteFrameError> {
        let mut event = CloudEvent::default();
        event.data = match frame {
            Frame::Event(change) => event.attributes.change(change)?,
            Frame::Hello(hello) => {
                origin.incarnation = Some(hello.head.incarnation.clone());
                json(hello)?
            }
            Frame::Checkpoint(checkpoint) => {
                origin.incarnation = Some(checkpoint.cursor.incarnation.clone());
                json(checkpoint)?
            }
            Frame::Ack(ack) => json(ack)?,
            Frame::Refused(refused) => json(refused)?,
            Frame::ResyncRequest(request) => json(request)?,
            Frame::ResyncResponse(response) => json(response)?,
            Frame::Interop(interop) => {
                event.attributes.set(Attribute::Schema, RESOURCE_RESYNC);
                match &**interop {
                    Interop::RequestResync => Data::None,
                    Interop::RequestList { checksum } => json(&Inventory { checksum: Some(*checksum) })?,
                    Interop::Listed(one) | Interop::RequestUpdate(one) => json(one)?,
                }
            }
            Frame::Ping(ping) => json(ping)?,
            Frame::Pong(pong) => json(pong)?,
            Frame::GoAway(go_away) => json(go_away)?,
            Frame::CheckIn(check_in) => json(check_in)?,
            Frame::Answer(answer) => json(answer)?,
            Frame::StateUpdated | Frame::Approve | Frame::Unknown(_) => Data::None,
        };
        let change = if let Frame::Event(change) = frame { Some(change.rev) } else { None };
        let (id, attributes) = (origin.id(change), &mut event.attributes);
        if change.is_some() {
            attributes.set(Attribute::EventId, id.clone());
        }
        attributes.set(Attribute::Id, id);
        attributes.set(Attribute::Source, origin.source());
        attributes.set(Attribute::SpecVersion, "1.0");
        attributes.set(Attribute::Type, [PREFIX, events::frame_name(frame)].concat());
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
        let (version, type_) = (text(Attribute::SpecVersion), text(Attribute::Type));
        if version != "1.0" && !version.starts_with("1.") {
            return Err(ReadFrameError::SpecVersion(shown(version)));
        }
        if text(Attribute::Id).is_empty() && text(Attribute::EventId).is_empty() {
            return Err(ReadFrameError::NoId);
        }
        self.attributes.are_short()?;
        if source.is_some_and(|source| source != text(Attribute::Source)) {
            return Err(ReadFrameError::Source(shown(text(Attribute::Source))));
        }
        if type_.is_empty() {
            return Err(ReadFrameError::Missing("type"));
        }
        match known(bare(type_)) {
            Some(name) => self.known(name),
            None => Ok(Frame::Unknown(bare(type_).chars().take(MAX_NAME).collect())),
        }
    }

    fn known(self, name: &'static str) -> Result<Frame, ReadFrameError> {
        Ok(match name {
            events::PROCESSED => Frame::Ack(self.read(name)?),
            events::ERROR => Frame::Refused(self.read(name)?),
            events::CHECKPOINT => Frame::Checkpoint(self.read(name)?),
            events::PING => Frame::Ping(self.read(name)?),
            events::PONG => Frame::Pong(self.read(name)?),
            events::HELLO => Frame::Hello(self.read(name)?),
            events::RESYNC_REQUEST => Frame::ResyncRequest(self.read(name)?),
            events::RESYNC_RESPONSE => Frame::ResyncResponse(self.read(name)?),
            events::GO_AWAY => Frame::GoAway(self.read(name)?),
            events::CHECK_IN => Frame::CheckIn(self.read(name)?),
            events::CHECK_IN_ANSWER => Frame::Answer(self.read(name)?),
            events::STATE_UPDATED => Frame::StateUpdated,
            events::APPROVE_DELETIONS => Frame::Approve,
            events::ROTATE_KEYS => Frame::Unknown(name.to_owned()),
            events::REQUEST_RESOURCE_RESYNC => Frame::Interop(Box::new(Interop::RequestResync)),
            events::REQUEST_SYNCED_RESOURCE_LIST => {
                let Inventory { checksum } = self.read(name)?;
                let what = "an inventory has a checksum".to_owned();
                let checksum = checksum.ok_or(ReadFrameError::Payload { name, what })?;
                Frame::Interop(Box::new(Interop::RequestList { checksum }))
            }
            events::RESPONSE_SYNCED_RESOURCE => Frame::Interop(Box::new(Interop::Listed(self.read(name)?))),
            events::REQUEST_UPDATE => Frame::Interop(Box::new(Interop::RequestUpdate(self.read(name)?))),
            _ => Frame::Event(Box::new(self.change(name)?)),
        })
    }

    /// What is carried as JSON; an event without data says nothing but its name.
    fn read<T: for<'de> Deserialize<'de>>(&self, name: &'static str) -> Result<T, ReadFrameError> {
        let data = self.data.as_slice();
        serde_json::from_slice(if data.is_empty() { b"{}" } else { data })
            .map_err(|error| ReadFrameError::Payload { name, what: error.to_string() })
    }

    fn change(self, name: &str) -> Result<Event, ReadFrameError> {
        let attributes = &self.attributes;
        let is_true = |attribute| attributes.get(attribute) == Some("true");
        let uid = attributes.get(Attribute::ResourceId).filter(|uid| !uid.is_empty());
        let uid: Arc<str> = uid.ok_or(ReadFrameError::NoUid)?.into();
        let mut key = attributes.key()?;
        if name == events::STATUS_UPDATE && !is_status(&key.section.kind) {
            key = sync::object::status_key(&key);
        }
        let trace = attributes.get(Attribute::Trace).filter(|text| trace_fits(text)).map(str::to_owned);
        let at = attributes.parsed(Attribute::At)?.unwrap_or_default();
        let seq = attributes.number(Attribute::Seq)?.ok_or(ReadFrameError::Missing("seq"))?;
        let rev = attributes.number(Attribute::Rev)?.ok_or(ReadFrameError::Missing("rev"))?;
        let revision = attributes.number(Attribute::Upto)?.unwrap_or(rev);
        let upto = Position { revision, pass: attributes.parsed(Attribute::Pass)? };
        let op = if says_gone(name) || is_true(Attribute::Gone) {
            Op::Delete { uid }
        } else {
            let created = says_created(name) || is_true(Attribute::Created);
            let digest: Option<Digest> = attributes.parsed(Attribute::Digest)?;
            let content = content(self.data)?;
            let digest = digest.unwrap_or_else(|| Digest::of(&content));
            Op::Put { stub: Stub { uid, digest, size: content.len() as u64 }, content, created }
        };
        Ok(Event { seq, rev, upto, key, op, trace, at })
    }
}

impl<'a> Attributes<'a> {
    /// Says a change, and gives its content.
    fn change(&mut self, change: &'a Event) -> Result<Data, WriteFrameError> {
        let (name, section) = (events::event_name(change), &change.key.section);
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

    fn are_short(&self) -> Result<(), ReadFrameError> {
        match self.iter().find(|(_, value)| value.len() > MAX_ATTRIBUTE) {
            Some((name, _)) => Err(ReadFrameError::Attribute(name)),
            None => Ok(()),
        }
    }

    fn parsed<T: std::str::FromStr>(&self, attribute: Attribute) -> Result<Option<T>, ReadFrameError> {
        let wrong = |_| ReadFrameError::Attribute(attribute.as_str());
        self.get(attribute).map(|text| text.parse().map_err(wrong)).transpose()
    }

    /// A number within its bound, without a sign.
    fn number(&self, attribute: Attribute) -> Result<Option<u64>, ReadFrameError> {
        let number = self.parsed(attribute)?;
        let signed = self.get(attribute).is_some_and(|text| text.starts_with('+'));
        if signed || number.is_some_and(|number: u64| !number.fits()) {
            return Err(ReadFrameError::Attribute(attribute.as_str()));
        }
        Ok(number)
    }

    /// `dataschema` and `subject`. The first slash of the subject ends the namespace.
    fn key(&self) -> Result<ObjectKey, ReadFrameError> {
        let kind = self.get(Attribute::Schema).filter(|kind| !kind.is_empty());
        let kind = kind.ok_or(ReadFrameError::Missing("dataschema"))?;
        let subject = self.get(Attribute::Subject).ok_or(ReadFrameError::Missing("subject"))?;
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

/// Whether the name of a change says by itself that the object is gone.
fn says_gone(name: &str) -> bool {
    matches!(name, events::DELETE | events::PEER_REMOVED)
}

/// Whether the name of a change says by itself that the object is new.
fn says_created(name: &str) -> bool {
    matches!(name, events::CREATE | events::PEER_ADDED)
}

/// A trace context is short text without anything that could disturb a log.
fn trace_fits(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TRACE && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The content of an object: of JSON its canonical form.
fn content(data: Data) -> Result<Bytes, ReadFrameError> {
    let bytes = data.as_slice().len();
    if bytes > MAX_CONTENT {
        return Err(ReadFrameError::ObjectTooLarge { bytes });
    }
    match data {
        Data::None => Ok(Bytes::new()),
        Data::Bytes(bytes) => Ok(bytes),
        Data::Json(json) => canonical(&json).ok_or(ReadFrameError::Attribute("data")),
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
