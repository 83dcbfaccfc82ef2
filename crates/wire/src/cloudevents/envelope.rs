//! An event as read, borrowed from the bytes that came, and the frame that it is.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use model::{Digest, ObjectKey, SectionKey, Stub};
use sync::frame::{Ack, Checkpoint, Event, Op, Ping, PingOrder, Pong, Refused};
use sync::object::{MAX_CONTENT, is_status};
use sync::{FeedCursor, Frame, PassPosition, Position};

use super::draft::said_by;
use super::names::{MAX_NAME, Name, bare, kind_of};
use super::{MAX_ATTRIBUTE, MAX_NUMBER, ReadFrameError, exact, payload, shown};

/// The longest trace context that is kept; a longer one is forgotten.
const MAX_TRACE: usize = 128;

macro_rules! extensions {
    ($($variant:ident $text:literal)*) => {
        /// The extension attributes, and those of the specification that frames use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Ext { $($variant,)* }

        impl Ext {
            /// How many there are.
            pub(super) const COUNT: usize = [$(Ext::$variant,)*].len();

            pub(super) fn as_str(self) -> &'static str {
                match self { $(Ext::$variant => $text,)* }
            }

            pub(super) fn parse(text: &str) -> Option<Ext> {
                match text {
                    $($text => Some(Ext::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

extensions! {
    Schema "dataschema"
    Subject "subject"
    ResourceId "resourceid"
    EventId "eventid"
    Seq "seq"
    Rev "rev"
    Upto "upto"
    Pass "pass"
    Digest "digest"
    Created "created"
    Gone "gone"
    At "at"
    Trace "traceparent"
    Life "incarnation"
    Root "root"
    Refused "refused"
    Barrier "barrier"
    Number "number"
    Head "head"
}

/// What an event carries.
#[derive(Clone, Debug, Default)]
pub(super) enum Data<'a> {
    #[default]
    None,
    /// Bytes of the message that came.
    Slice(&'a [u8]),
    /// A JSON text of the message that came; as a content its canonical form counts.
    Json(&'a [u8]),
    /// Bytes that were made from it.
    Made(Vec<u8>),
}

impl Data<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Data::None => &[],
            Data::Slice(bytes) | Data::Json(bytes) => bytes,
            Data::Made(bytes) => bytes,
        }
    }
}

/// An event as read.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) version: Cow<'a, str>,
    pub(super) id: Cow<'a, str>,
    pub(super) source: Cow<'a, str>,
    pub(super) type_: Cow<'a, str>,
    pub(super) ext: [Option<Cow<'a, str>>; Ext::COUNT],
    pub(super) data: Data<'a>,
}

impl<'a> Envelope<'a> {
    /// Keeps an attribute that is known, within its bound.
    pub(super) fn set(&mut self, name: &str, value: Cow<'a, str>) -> Result<(), ReadFrameError> {
        let Some(ext) = Ext::parse(name) else { return Ok(()) };
        if value.len() > MAX_ATTRIBUTE {
            return Err(ReadFrameError::Attribute(ext.as_str()));
        }
        self.ext[ext as usize] = Some(value);
        Ok(())
    }

    /// The frame that it is. `whole` is what the event was read from; a large content
    /// stays in it, a small one is copied so that it does not hold the rest.
    pub(super) fn frame(self, whole: &Bytes, source: Option<&str>) -> Result<Frame, ReadFrameError> {
        if self.version != "1.0" && !self.version.starts_with("1.") {
            return Err(ReadFrameError::SpecVersion(shown(&self.version)));
        }
        let eventid = self.ext[Ext::EventId as usize].as_deref().unwrap_or_default();
        if self.id.is_empty() && eventid.is_empty() {
            return Err(ReadFrameError::NoId);
        }
        for (text, name) in [(&self.id, "id"), (&self.source, "source"), (&self.type_, "type")] {
            if text.len() > MAX_ATTRIBUTE {
                return Err(ReadFrameError::Attribute(name));
            }
        }
        if source.is_some_and(|source| source != self.source) {
            return Err(ReadFrameError::Source(shown(&self.source)));
        }
        if self.type_.is_empty() {
            return Err(ReadFrameError::Missing("type"));
        }
        let name = bare(&self.type_);
        match Name::parse(name) {
            Some(name) => self.known(name, whole),
            None => Ok(Frame::Unknown(name.chars().take(MAX_NAME).collect())),
        }
    }

    fn known(self, name: Name, whole: &Bytes) -> Result<Frame, ReadFrameError> {
        let data = self.data.as_slice();
        Ok(match name {
            Name::Create
            | Name::SpecUpdate
            | Name::StatusUpdate
            | Name::ActionRequest
            | Name::PolicyUpdated
            | Name::PeerAdded
            | Name::PeerUpdated
            | Name::PeerRemoved
            | Name::Delete => Frame::Event(Box::new(self.event(name, whole)?)),
            Name::Processed => Frame::Ack(Ack {
                seq: self.number(Ext::Seq)?,
                cursor: self.cursor()?,
                refused: self.number_or(Ext::Refused, 0)?,
            }),
            Name::Error => Frame::Refused(Box::new(self.refused()?)),
            Name::Checkpoint => Frame::Checkpoint(Checkpoint {
                seq: self.number(Ext::Seq)?,
                cursor: self.cursor()?.ok_or(ReadFrameError::Missing("incarnation"))?,
                root: self.digest(Ext::Root)?.ok_or(ReadFrameError::Missing("root"))?,
            }),
            Name::Ping => Frame::Ping(self.ping()?),
            Name::Pong => {
                let Ping { number, head, .. } = self.ping()?;
                Frame::Pong(Pong { number, head })
            }
            Name::StateUpdated => Frame::StateUpdated,
            Name::Approve => Frame::Approve,
            Name::RotateKeys => Frame::Unknown(name.as_str().to_owned()),
            Name::Hello => payload::hello(data)?,
            Name::ResyncRequest => payload::ask(data)?,
            Name::ResyncResponse => payload::tell(data)?,
            Name::GoAway => payload::go_away(data)?,
            Name::CheckIn => Frame::CheckIn(payload::read(name.as_str(), data)?),
            Name::Answer => Frame::Answer(payload::read(name.as_str(), data)?),
            Name::RequestSyncedResourceList
            | Name::ResponseSyncedResource
            | Name::RequestUpdate
            | Name::RequestResourceResync => payload::interop(name, data)?,
        })
    }

    fn event(self, name: Name, whole: &Bytes) -> Result<Event, ReadFrameError> {
        let uid = self.text(Ext::ResourceId).filter(|uid| !uid.is_empty()).ok_or(ReadFrameError::NoUid)?;
        let uid: Arc<str> = uid.into();
        let mut key = self.key()?;
        if name == Name::StatusUpdate && !is_status(&key.section.kind) {
            key = sync::object::status_key(&key);
        }
        let trace = self.text(Ext::Trace).filter(|text| trace_fits(text)).map(str::to_owned);
        let at = match self.text(Ext::At) {
            Some(text) => text.parse().map_err(|_| ReadFrameError::Attribute("at"))?,
            None => 0,
        };
        let (seq, rev) = (self.number(Ext::Seq)?, self.number(Ext::Rev)?);
        let upto = Position { revision: self.number_or(Ext::Upto, rev)?, pass: self.pass()? };
        let (gone, created) = said_by(name.as_str());
        let op = if gone || self.text(Ext::Gone) == Some("true") {
            Op::Delete { uid }
        } else {
            let created = created || self.text(Ext::Created) == Some("true");
            let said = self.digest(Ext::Digest)?;
            let content = content(self.data, whole)?;
            let digest = said.unwrap_or_else(|| Digest::of(&content));
            let stub = Stub { uid, digest, size: content.len() as u64 };
            Op::Put { stub, content, created }
        };
        Ok(Event { seq, rev, upto, key, op, trace, at })
    }

    fn refused(&self) -> Result<Refused, ReadFrameError> {
        let (code, message) = payload::reason(self.data.as_slice())?;
        Ok(Refused { rev: self.number(Ext::Rev)?, key: self.key()?, code, message })
    }

    fn ping(&self) -> Result<Ping, ReadFrameError> {
        let barrier = self.text(Ext::Barrier) == Some("true");
        Ok(Ping {
            number: self.number_or(Ext::Number, 0)?,
            head: self.number_or(Ext::Head, 0)?,
            order: if barrier { PingOrder::Barrier } else { PingOrder::Any },
        })
    }

    fn text(&self, ext: Ext) -> Option<&str> {
        self.ext[ext as usize].as_deref()
    }

    fn number(&self, ext: Ext) -> Result<u64, ReadFrameError> {
        let text = self.text(ext).ok_or(ReadFrameError::Missing(ext.as_str()))?;
        parse(text).ok_or(ReadFrameError::Attribute(ext.as_str()))
    }

    fn number_or(&self, ext: Ext, default: u64) -> Result<u64, ReadFrameError> {
        if self.text(ext).is_some() { self.number(ext) } else { Ok(default) }
    }

    fn digest(&self, ext: Ext) -> Result<Option<Digest>, ReadFrameError> {
        let parse = |text: &str| text.parse().map_err(|_| ReadFrameError::Attribute(ext.as_str()));
        self.text(ext).map(parse).transpose()
    }

    /// A place in a pass: `TO.RANK.REVISION.ORDER`.
    fn pass(&self) -> Result<Option<PassPosition>, ReadFrameError> {
        let wrong = ReadFrameError::Attribute(Ext::Pass.as_str());
        let Some(text) = self.text(Ext::Pass) else { return Ok(None) };
        let pass: Option<PassPosition> = text.parse().ok();
        pass.filter(|pass| pass.to.max(pass.revision) <= MAX_NUMBER).map(Some).ok_or(wrong)
    }

    /// A cursor: the incarnation and the revision, both or none, and a place in a pass.
    fn cursor(&self) -> Result<Option<FeedCursor>, ReadFrameError> {
        let Some(incarnation) = self.text(Ext::Life) else { return Ok(None) };
        let incarnation = incarnation.parse().map_err(|_| ReadFrameError::Attribute("incarnation"))?;
        Ok(Some(FeedCursor { incarnation, revision: self.number(Ext::Rev)?, pass: self.pass()? }))
    }

    /// `dataschema` and `subject`. The first slash of the subject ends the namespace.
    fn key(&self) -> Result<ObjectKey, ReadFrameError> {
        let kind = self.text(Ext::Schema).filter(|kind| !kind.is_empty());
        let kind = kind.ok_or(ReadFrameError::Missing("dataschema"))?;
        let subject = self.text(Ext::Subject).ok_or(ReadFrameError::Missing("subject"))?;
        let (namespace, name) = subject.split_once('/').unwrap_or(("", subject));
        if name.is_empty() || kind.contains('/') {
            let bad = if name.is_empty() { "subject" } else { "dataschema" };
            return Err(ReadFrameError::Attribute(bad));
        }
        let section = SectionKey { kind: kind_of(kind), namespace: namespace.into() };
        Ok(ObjectKey { section, name: name.into() })
    }
}

/// A trace context is short text without anything that could disturb a log.
fn trace_fits(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TRACE && text.bytes().all(|b| b.is_ascii_graphic())
}

/// A number within [`MAX_NUMBER`].
fn parse(text: &str) -> Option<u64> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
    number.filter(|number| *number <= MAX_NUMBER)
}

fn content(data: Data<'_>, whole: &Bytes) -> Result<Bytes, ReadFrameError> {
    let bytes = data.as_slice().len();
    if bytes > MAX_CONTENT {
        return Err(ReadFrameError::ObjectTooLarge { bytes });
    }
    let data = match data {
        Data::Json(json) => exact::canonical(json).ok_or(ReadFrameError::Attribute("data"))?,
        other => other,
    };
    Ok(match data {
        Data::None => Bytes::new(),
        Data::Made(made) => Bytes::from(made),
        Data::Slice(slice) | Data::Json(slice) if slice.len() * 2 < whole.len() => {
            Bytes::copy_from_slice(slice)
        }
        Data::Slice(slice) | Data::Json(slice) => whole.slice_ref(slice),
    })
}
