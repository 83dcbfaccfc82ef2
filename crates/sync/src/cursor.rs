//! [`FeedCursor`]: how far a replica has a feed, also in the middle of a pass.
//!
//! ```text
//!   0 ........ revision ........................... to ........ head
//!   durable ---------->| the pass: sent by (rank, revision) |
//!                      |---- durable ---->| position        |
//! ```
//!
//! A source sends what changed in *passes*: of the changes in `(revision, to]` puts kind by kind
//! in the declared order, then deletes in the opposite one, and within a rank by revision. A
//! replica that has a part of a pass goes on behind it: objects that changed since lie beyond
//! `to`, and come with the next pass. A [`PassPosition`] counts only under the order of kinds
//! that it was made in ([`KindOrder`]); under another one the pass begins again at `revision`.

use std::fmt;
use std::str::FromStr;

use model::digest::Hasher;
use model::{Incarnation, Kind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{Bounded, bounded};

/// How far a replica has a feed. Facts have cursors of their own ([`model::log::Cursor`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeedCursor {
    /// The incarnation of the feed.
    pub incarnation: Incarnation,
    /// Everything up to here is durable.
    #[serde(deserialize_with = "bounded")]
    pub revision: u64,
    /// What is durable beyond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pass: Option<PassPosition>,
}

/// A [`FeedCursor`] within an incarnation that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Everything up to here is durable.
    pub revision: u64,
    /// What is durable beyond.
    pub pass: Option<PassPosition>,
}

/// A position in a pass: of the changes up to `to`, all up to `(rank, revision)` are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassPosition {
    /// The last change of the pass.
    pub to: u64,
    /// The rank of the last durable change, by its kind and whether it left an object.
    pub rank: u32,
    /// Its revision.
    pub revision: u64,
    /// The order of kinds that ranks are of.
    pub order: KindOrder,
}

/// A digest of the declared kinds in their order: ranks of two orders are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindOrder(pub u32);

impl KindOrder {
    /// The order of these kinds: the first four bytes of SHA-256 over their names, each followed
    /// by a line feed.
    pub fn of(kinds: &[Kind]) -> KindOrder {
        let mut hasher = Hasher::new();
        for kind in kinds {
            hasher.update(kind.as_str().as_bytes());
            hasher.update(b"\n");
        }
        let [a, b, c, d, ..] = *hasher.finish().as_bytes();
        KindOrder(u32::from_be_bytes([a, b, c, d]))
    }
}

impl FeedCursor {
    /// Everything up to `revision`.
    pub fn at(incarnation: Incarnation, revision: u64) -> FeedCursor {
        FeedCursor { incarnation, revision, pass: None }
    }

    /// A position in an incarnation.
    pub fn new(incarnation: Incarnation, position: Position) -> FeedCursor {
        FeedCursor { incarnation, revision: position.revision, pass: position.pass }
    }

    /// The checkpoint that it reached: everything up to there is durable.
    pub fn checkpoint(&self) -> model::log::Cursor {
        model::log::Cursor { incarnation: self.incarnation.clone(), seq: self.revision }
    }

    /// Where it is in its incarnation.
    pub fn position(&self) -> Position {
        // A pass that ends before what is complete is none: the cursor is a peer's word.
        Position { revision: self.revision, pass: self.pass.filter(|pass| pass.to >= self.revision) }
    }

    /// Whether it is of the same incarnation as another one, and says more or anew.
    pub fn is_ahead_of(&self, other: &FeedCursor) -> bool {
        self.incarnation == other.incarnation && self.position().is_ahead_of(other.position())
    }
}

impl Position {
    /// Everything up to `revision`.
    pub fn at(revision: u64) -> Position {
        Position { revision, pass: None }
    }

    /// Whether it says more than another one, or is of a pass that was begun again.
    pub fn is_ahead_of(self, other: Position) -> bool {
        if self.revision != other.revision {
            return self.revision > other.revision;
        }
        match (self.pass, other.pass) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(new), Some(old)) if (new.to, new.order) != (old.to, old.order) => true,
            (Some(new), Some(old)) => (new.rank, new.revision) > (old.rank, old.revision),
        }
    }

    /// Deletes up to here are of no use to the replica: it has them, or never had their objects.
    /// A replica that began empty got only what was there at the end of its first pass.
    pub fn needs_deletes_after(self) -> u64 {
        match self.pass {
            Some(pass) if self.revision == 0 => pass.to,
            _ => self.revision,
        }
    }

    /// The highest revision that it names.
    pub fn highest(self) -> u64 {
        self.pass.map_or(self.revision, |pass| pass.to.max(pass.revision).max(self.revision))
    }
}

/// `TO.RANK.REVISION.ORDER`, the order as eight hex digits.
impl fmt::Display for PassPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{:08x}", self.to, self.rank, self.revision, self.order.0)
    }
}

/// A text is no position in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position in a pass is TO.RANK.REVISION.ORDER")]
pub struct ParsePassPositionError;

impl FromStr for PassPosition {
    type Err = ParsePassPositionError;

    fn from_str(text: &str) -> Result<PassPosition, ParsePassPositionError> {
        let mut parts = text.split('.');
        let mut number = || {
            let part = parts.next().filter(|part| part.bytes().all(|b| b.is_ascii_digit()));
            part.and_then(|part| part.parse().ok()).filter(u64::fits).ok_or(ParsePassPositionError)
        };
        let (to, rank, revision) = (number()?, number()?, number()?);
        let order = parts.next().filter(|part| part.len() == 8 && parts.next().is_none());
        let order = order.filter(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
        let order = order.and_then(|part| u32::from_str_radix(part, 16).ok());
        Ok(PassPosition {
            to,
            rank: u32::try_from(rank).map_err(|_| ParsePassPositionError)?,
            revision,
            order: KindOrder(order.ok_or(ParsePassPositionError)?),
        })
    }
}

impl Serialize for PassPosition {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PassPosition {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PassPosition, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
