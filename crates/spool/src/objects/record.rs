//! The records of the log of objects: a head as JSON, so that it can grow, then the content as
//! it is.

use std::borrow::Cow;

use model::object::SectionKey;
use model::{Incarnation, Kind, ObjectKey, Stub};
use serde::{Deserialize, Serialize};
use sync::FeedCursor;
use sync::{Content, Side};

use crate::error::Result;
use crate::segmented::RecordBatch;

/// The length of the head's length.
const LENGTH: usize = 4;
/// What an error calls a record.
const RECORD: &str = "a synchronized object";

/// One record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SetRecord<'a> {
    /// A whole set is forgotten.
    #[serde(rename = "forget")]
    Forget {
        #[serde(rename = "o")]
        ours: bool,
    },
    /// An object; its content follows.
    #[serde(rename = "put", borrow)]
    Put(Put<'a>),
    /// The tombstone of an object of ours.
    #[serde(rename = "gone", borrow)]
    Tombstone(Tombstone<'a>),
    /// An object of the replica is no more.
    #[serde(rename = "taken", borrow)]
    Taken(RecordKey<'a>),
}

/// An object's key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordKey<'a> {
    #[serde(rename = "k", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "s", borrow)]
    namespace: Cow<'a, str>,
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Put<'a> {
    #[serde(rename = "o")]
    pub(super) ours: bool,
    #[serde(rename = "key", borrow)]
    pub(super) name: RecordKey<'a>,
    #[serde(rename = "r")]
    pub(super) rev: u64,
    /// Of ours.
    #[serde(rename = "b")]
    pub(super) born: u64,
    pub(super) stub: Cow<'a, Stub>,
    pub(super) at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<Cow<'a, str>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tombstone<'a> {
    #[serde(rename = "key", borrow)]
    pub(super) name: RecordKey<'a>,
    #[serde(rename = "r")]
    pub(super) rev: u64,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
}

/// How far both sets are, as of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetHeads {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feed: Option<FeedHead>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<FeedCursor>,
}

/// How far the own feed is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FeedHead {
    pub(super) incarnation: Incarnation,
    pub(super) head: u64,
    pub(super) compacted: u64,
}

impl<'a> RecordKey<'a> {
    pub(super) fn of(key: &'a ObjectKey) -> RecordKey<'a> {
        RecordKey {
            kind: key.section.kind.as_str().into(),
            namespace: (&*key.section.namespace).into(),
            name: (&*key.name).into(),
        }
    }

    pub(super) fn key(&self) -> ObjectKey {
        let section = SectionKey { kind: Kind::new(&self.kind), namespace: (&*self.namespace).into() };
        ObjectKey { section, name: (&*self.name).into() }
    }
}

impl<'a> Put<'a> {
    pub(super) fn of(
        side: Side,
        key: &'a ObjectKey,
        stub: &'a Stub,
        (rev, born): (u64, u64),
        content: &'a Content,
    ) -> Put<'a> {
        Put {
            ours: side == Side::Feed,
            name: RecordKey::of(key),
            rev,
            born,
            stub: Cow::Borrowed(stub),
            at: content.at,
            trace: content.trace.as_deref().map(Cow::Borrowed),
        }
    }
}

/// The set that a record is of.
pub(super) fn side(ours: bool) -> Side {
    if ours { Side::Feed } else { Side::Replica }
}

/// Adds a record with its content to a batch; returns its length with the frame.
pub(super) fn push(batch: &mut RecordBatch, record: &SetRecord<'_>, content: &[u8]) -> Result<u32> {
    batch.push(RECORD, |out| {
        let head = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        serde_json::to_writer(&mut *out, record)?;
        let length = (out.len() - head - LENGTH) as u32;
        out[head..head + LENGTH].copy_from_slice(&length.to_le_bytes());
        out.extend_from_slice(content);
        Ok(())
    })
}

/// A record, and where in the payload its content begins; `None` for one that this
/// version cannot read.
pub(super) fn read(payload: &[u8]) -> Option<(SetRecord<'_>, usize)> {
    let (length, rest) = payload.split_first_chunk::<LENGTH>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let record = serde_json::from_slice(rest.get(..length)?).ok()?;
    Some((record, LENGTH + length))
}
