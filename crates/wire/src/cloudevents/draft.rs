//! A frame as it is about to be written: its name, attributes and data, without copies.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use model::{Digest, ObjectKey};
use sync::events;
use sync::frame::{Event, Op, PingOrder};
use sync::object::MAX_CONTENT;
use sync::{FeedCursor, Frame, PassPosition};

use super::envelope::Ext;
use super::names::Name;
use super::{Origin, WriteFrameError, payload};

/// The most extension attributes of one frame, its event id apart.
const MAX_EXT: usize = 9;

/// The value of an attribute.
#[derive(Clone, Copy)]
pub(super) enum Text<'a> {
    Str(&'a str),
    Number(u64),
    Millis(i64),
    Digest(&'a Digest),
    Pass(&'a PassPosition),
}

/// Room for a number or a digest as text.
#[derive(Default)]
pub(super) struct Room {
    number: itoa::Buffer,
    digest: Hex,
    pass: String,
}

struct Hex([u8; 64]);

impl Default for Hex {
    fn default() -> Hex {
        Hex([0; 64])
    }
}

impl<'a> Text<'a> {
    pub(super) fn render<'b>(self, room: &'b mut Room) -> &'b str
    where
        'a: 'b,
    {
        match self {
            Text::Str(text) => text,
            Text::Pass(pass) => {
                room.pass = pass.to_string();
                &room.pass
            }
            Text::Number(number) => room.number.format(number),
            Text::Millis(number) => room.number.format(number),
            Text::Digest(digest) => {
                HEXLOWER.encode_mut(digest.as_bytes(), &mut room.digest.0);
                // Hex digits are ASCII.
                std::str::from_utf8(&room.digest.0).unwrap_or_default()
            }
        }
    }
}

/// What a frame carries.
pub(super) enum Data<'a> {
    None,
    /// JSON made here.
    Json(Vec<u8>),
    /// An object's content.
    Content(&'a Bytes),
}

/// A frame about to be written.
pub(super) struct Draft<'a> {
    pub(super) name: &'a str,
    /// The `dataschema`: the object's kind, or what an inventory resync's event has.
    pub(super) schema: Option<&'a str>,
    pub(super) key: Option<&'a ObjectKey>,
    ext: [(Ext, Text<'a>); MAX_EXT],
    count: usize,
    pub(super) data: Data<'a>,
    /// The event id of a change: its revision.
    pub(super) rev: Option<u64>,
}

impl<'a> Draft<'a> {
    fn new(name: Name) -> Draft<'a> {
        Draft { schema: name.schema(), ..Draft::named(name.as_str()) }
    }

    fn named(name: &'a str) -> Draft<'a> {
        let ext = [(Ext::Seq, Text::Number(0)); MAX_EXT];
        Draft { name, schema: None, key: None, ext, count: 0, data: Data::None, rev: None }
    }

    fn with(mut self, ext: Ext, text: Text<'a>) -> Draft<'a> {
        self.ext[self.count] = (ext, text);
        self.count += 1;
        self
    }

    fn about(mut self, key: &'a ObjectKey) -> Draft<'a> {
        self.schema = Some(key.section.kind.as_str());
        self.key = Some(key);
        self
    }

    fn json(mut self, data: Vec<u8>) -> Draft<'a> {
        self.data = Data::Json(data);
        self
    }

    fn cursor(self, cursor: &'a FeedCursor) -> Draft<'a> {
        let incarnation = Text::Str(cursor.incarnation.as_str());
        self.with(Ext::Life, incarnation)
            .with(Ext::Rev, Text::Number(cursor.revision))
            .pass(cursor.pass.as_ref())
    }

    fn pass(self, pass: Option<&'a PassPosition>) -> Draft<'a> {
        match pass {
            Some(pass) => self.with(Ext::Pass, Text::Pass(pass)),
            None => self,
        }
    }

    /// The extension attributes, the event id apart.
    pub(super) fn ext(&self) -> &[(Ext, Text<'a>)] {
        &self.ext[..self.count]
    }

    /// What is written of a frame; learns the incarnation of the feed on the way.
    pub(super) fn of(frame: &'a Frame, origin: &mut Origin) -> Result<Draft<'a>, WriteFrameError> {
        let number = Text::Number;
        Ok(match frame {
            Frame::Hello(hello) => {
                origin.incarnation = Some(hello.head.incarnation.clone());
                Draft::new(Name::Hello).json(payload::write_hello(hello)?)
            }
            Frame::Event(event) => of_event(event)?,
            Frame::Ack(ack) => {
                let draft = Draft::new(Name::Processed).with(Ext::Seq, number(ack.seq));
                let draft =
                    if ack.refused == 0 { draft } else { draft.with(Ext::Refused, number(ack.refused)) };
                match &ack.cursor {
                    Some(cursor) => draft.cursor(cursor),
                    None => draft,
                }
            }
            Frame::Refused(refused) => Draft::new(Name::Error)
                .about(&refused.key)
                .with(Ext::Rev, number(refused.rev))
                .json(payload::write_reason(&refused.code, &refused.message)?),
            Frame::Checkpoint(mark) => {
                origin.incarnation = Some(mark.cursor.incarnation.clone());
                let draft = Draft::new(Name::Checkpoint).with(Ext::Seq, number(mark.seq));
                draft.cursor(&mark.cursor).with(Ext::Root, Text::Digest(&mark.root))
            }
            Frame::ResyncRequest(ask) => Draft::new(Name::ResyncRequest).json(payload::write_ask(ask)?),
            Frame::ResyncResponse(tell) => Draft::new(Name::ResyncResponse).json(payload::write_tell(tell)?),
            Frame::Interop(interop) => {
                let (name, json) = payload::write_interop(interop)?;
                Draft::new(name).json(json)
            }
            Frame::Ping(ping) => {
                let draft = of_ping(Name::Ping, ping.number, ping.head);
                match ping.order {
                    PingOrder::Any => draft,
                    PingOrder::Barrier => draft.with(Ext::Barrier, Text::Str("true")),
                }
            }
            Frame::Pong(pong) => of_ping(Name::Pong, pong.number, pong.head),
            Frame::GoAway(go_away) => Draft::new(Name::GoAway).json(payload::write_go_away(go_away)?),
            Frame::CheckIn(check_in) => Draft::new(Name::CheckIn).json(payload::write(&**check_in)?),
            Frame::Answer(answer) => Draft::new(Name::Answer).json(payload::write(&**answer)?),
            Frame::StateUpdated => Draft::new(Name::StateUpdated),
            Frame::Approve => Draft::new(Name::Approve),
            Frame::Unknown(name) => Draft::named(name),
        })
    }
}

fn of_ping<'a>(name: Name, number: u64, head: u64) -> Draft<'a> {
    Draft::new(name).with(Ext::Number, Text::Number(number)).with(Ext::Head, Text::Number(head))
}

fn of_event(event: &Event) -> Result<Draft<'_>, WriteFrameError> {
    let name = events::event_name(event);
    let uid = match &event.op {
        Op::Delete { uid } => uid,
        Op::Put { stub, .. } => &stub.uid,
    };
    let mut draft = Draft::named(name)
        .about(&event.key)
        .with(Ext::ResourceId, Text::Str(uid))
        .with(Ext::Seq, Text::Number(event.seq))
        .with(Ext::Rev, Text::Number(event.rev))
        .with(Ext::Upto, Text::Number(event.upto.revision))
        .pass(event.upto.pass.as_ref())
        .with(Ext::At, Text::Millis(event.at));
    draft.rev = Some(event.rev);
    if let Some(trace) = &event.trace {
        draft = draft.with(Ext::Trace, Text::Str(trace));
    }
    let (gone, created) = said_by(name);
    match &event.op {
        Op::Delete { .. } if gone => {}
        Op::Delete { .. } => draft = draft.with(Ext::Gone, Text::Str("true")),
        Op::Put { stub, content, created: is_created } => {
            if content.len() > MAX_CONTENT {
                return Err(WriteFrameError::TooLarge { bytes: content.len() });
            }
            draft = draft.with(Ext::Digest, Text::Digest(&stub.digest));
            if *is_created && !created {
                draft = draft.with(Ext::Created, Text::Str("true"));
            }
            draft.data = Data::Content(content);
        }
    }
    Ok(draft)
}

/// What the name of a change says by itself: that the object is gone, that it is new.
pub(super) fn said_by(name: &str) -> (bool, bool) {
    let gone = matches!(name, events::DELETE | events::PEER_REMOVED);
    (gone, matches!(name, events::CREATE | events::PEER_ADDED))
}

/// Writes the id of a frame: `incarnation.rev` of a change, else link and running number.
pub(super) fn id(origin: &mut Origin, rev: Option<u64>, out: &mut Vec<u8>) {
    let (text, number) = match (rev, &origin.incarnation) {
        (Some(rev), Some(incarnation)) => (incarnation.as_str(), rev),
        _ => {
            origin.count += 1;
            (&*origin.link, origin.count)
        }
    };
    out.extend_from_slice(text.as_bytes());
    out.push(b'.');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
