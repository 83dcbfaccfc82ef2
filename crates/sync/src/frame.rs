//! [`Frame`]: what travels on a link. A change has its own form on the wire, which is the wire
//! crate's; all others travel as the JSON that is derived here, within the bounds of
//! [`crate::bounds`].
//!
//! ```text
//! Hello -->                 <-- Hello        who, what it can, from which cursor
//! Event 1, 2, 3, Checkpoint -->              data, in order
//!                           <-- Ack, Refused cumulative, ahead of data
//! ResyncRequest -->         <-- ResyncResponse, Event 0      (or Interop, with a Ping as barrier)
//! GoAway -->                                 the last frame
//! ```
//!
//! On a link each side sends *events* of its feed, numbered 1, 2, 3 and so on within the
//! link, and acknowledges those of the other, cumulatively and apart from data (SYN-4).
//! Transports deliver in order or end: a number that is not the next one ends the link, and the
//! next link goes on from the replica's durable cursor, never from the memory of either side.

use bytes::Bytes;
use model::exchange::{Answer, CheckIn};
use model::{Digest, ObjectKey, SectionKey, Stub, TrieNode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{base64, bounded, checksum, named, shorter};
use crate::cursor::{FeedCursor, Position};
use crate::mode::{Mode, Role};

/// The protocol versions that this build speaks, lowest and highest.
pub const VERSIONS: (u32, u32) = (2, 2);
/// The most paths in one [`ResyncRequest::Tops`], and keys in one [`ResyncRequest::Objects`].
pub const MAX_REQUESTED: usize = 256;

/// One message of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// First from each side: who it is, what it can, and from where it goes on.
    Hello(Box<Hello>),
    /// A change in the sender's feed.
    Event(Box<Event>),
    /// Events of the other side that are durable here (`processed`).
    Ack(Ack),
    /// An event of the other side that will never be applied here (`error`): says the
    /// source of truth. The event counts as acknowledged.
    Refused(Box<Refused>),
    /// The sender's feed stands here, and its set has this root.
    Checkpoint(Checkpoint),
    /// A request of the trie resync.
    ResyncRequest(Box<ResyncRequest>),
    /// Its response.
    ResyncResponse(Box<ResyncResponse>),
    /// The inventory resync, for peers without the trie resync; one object is asked for anew by it, and an
    /// operator's resync passed on, with all peers.
    Interop(Box<Interop>),
    /// Is the receiver there, or ([`PingOrder::Barrier`]) has it answered all before this?
    Ping(Ping),
    /// The answer to a ping, behind the answers to all that came before the ping.
    Pong(Pong),
    /// The sender closes the link after this.
    GoAway(GoAway),
    /// The one exchange, on the link: a check-in.
    CheckIn(Box<CheckIn>),
    /// Its answer.
    Answer(Box<Answer>),
    /// What the node is pointed to has changed, or a run was requested: check in now.
    StateUpdated,
    /// An operator confirms that what the source no longer has is deleted, however much it is:
    /// good for one resync, which begins now.
    Approve,
    /// A sort of event that a newer version knows: skipped.
    Unknown(String),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Capabilities a side may have; the link uses those that both have. On the wire they are names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Capabilities {
    /// `trie-resync`; without it, resync by inventory as the source document describes.
    pub trie_resync: bool,
    /// `gzip`: frames may be compressed with it.
    pub gzip: bool,
    /// `checkin`: check-ins on the link.
    pub checkin: bool,
    /// `compared`: acknowledgements say whether the last checkpoint was found equal. Without it, whoever
    /// acknowledged everything after a checkpoint is taken to have found it so.
    pub compared: bool,
}

impl Capabilities {
    /// Everything that this build can do.
    pub const ALL: Capabilities =
        Capabilities { trie_resync: true, gzip: true, checkin: true, compared: true };

    /// What both sides can do.
    pub fn and(self, other: Capabilities) -> Capabilities {
        Capabilities {
            trie_resync: self.trie_resync && other.trie_resync,
            gzip: self.gzip && other.gzip,
            checkin: self.checkin && other.checkin,
            compared: self.compared && other.compared,
        }
    }
}

/// The names of capabilities; unknown ones are a newer peer's.
impl From<Vec<String>> for Capabilities {
    fn from(names: Vec<String>) -> Capabilities {
        let has = |name: &str| names.iter().any(|one| one == name);
        Capabilities {
            trie_resync: has("trie-resync"),
            gzip: has("gzip"),
            checkin: has("checkin"),
            compared: has("compared"),
        }
    }
}

impl From<Capabilities> for Vec<String> {
    fn from(has: Capabilities) -> Vec<String> {
        let all = [
            ("trie-resync", has.trie_resync),
            ("gzip", has.gzip),
            ("checkin", has.checkin),
            ("compared", has.compared),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
    }
}

/// The first frame of each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The lowest and highest version that the sender speaks.
    pub versions: (u32, u32),
    /// What it can do.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// At which end it stands.
    pub role: Role,
    /// The mode that it takes the node to be in.
    pub mode: Mode,
    /// One instance of the sender's process: two at once under one identity are two agents.
    #[serde(deserialize_with = "bounded")]
    pub instance: String,
    /// Where its own feed stands.
    pub head: FeedCursor,
    /// How far it has the other side's feed, durably; `None` when it has nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub have: Option<Have>,
    /// The sender's events begin after this cursor without waiting for the other side's hello:
    /// a receiver whose replica stands elsewhere ends the link. `None`: they wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FeedCursor>,
}

/// A replica, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Have {
    /// Everything up to here is in it.
    pub cursor: FeedCursor,
    /// Its root.
    pub root: Digest,
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// It is like this now.
    Put {
        /// Uid (never empty), digest and size of its content.
        stub: Stub,
        /// Its content, at most [`crate::object::MAX_CONTENT`] bytes.
        content: Bytes,
        /// The receiver cannot have had it: it came into being after its cursor (`create`).
        created: bool,
    },
    /// It is gone; the uid of the object that ended.
    Delete {
        /// Its uid.
        uid: std::sync::Arc<str>,
    },
}

impl Op {
    /// What the object is now; `None` when it is gone.
    pub fn stub(&self) -> Option<&Stub> {
        match self {
            Op::Put { stub, .. } => Some(stub),
            Op::Delete { .. } => None,
        }
    }

    /// Bytes of content.
    pub fn content_len(&self) -> u64 {
        match self {
            Op::Put { content, .. } => content.len() as u64,
            Op::Delete { .. } => 0,
        }
    }
}

/// A change in a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number on this link: 1, 2, 3 and so on. 0 for a response to a request of a resync,
    /// which stands outside the numbers.
    pub seq: u64,
    /// The number of the change in the feed.
    pub rev: u64,
    /// Once this event and all before it are durable, the replica has everything up to here.
    pub upto: Position,
    /// Which object.
    pub key: ObjectKey,
    /// What happened to it.
    pub op: Op,
    /// W3C trace context of what caused the change.
    pub trace: Option<String>,
    /// When the source accepted it, for the latency of propagation: milliseconds since 1970.
    pub at: i64,
    /// What proves it to the receiver (IDN-9): the bytes of [`trust::FeedSigner::sign_changes`].
    pub proof: Option<Bytes>,
}

/// What is durable at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ack {
    /// All events of this link up to this number are durable here, or are kept for a retry
    /// after a temporary error; then the cursor stays below them.
    #[serde(deserialize_with = "bounded")]
    pub seq: u64,
    /// The replica's cursor after them; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<FeedCursor>,
    /// How many objects the receiver holds otherwise than the feed says: could not be taken, or
    /// gone at the source and kept until an operator confirms their removal.
    #[serde(default, skip_serializing_if = "is_default", deserialize_with = "bounded")]
    pub refused: u64,
    /// The root of the last checkpoint was found equal, and nothing came after it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compared: bool,
}

/// An event that will never be applied, or, with the code [`crate::refusal::FAILS`], is not for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    /// The change in the feed.
    #[serde(deserialize_with = "bounded")]
    pub rev: u64,
    /// Which object.
    #[serde(deserialize_with = "bounded")]
    pub key: ObjectKey,
    /// A stable code.
    #[serde(deserialize_with = "bounded")]
    pub code: String,
    /// Why, for people.
    #[serde(default, deserialize_with = "bounded")]
    pub message: String,
}

/// Where a feed stands, and what its set is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The number of the last event before it on this link; 0 before the first.
    #[serde(deserialize_with = "bounded")]
    pub seq: u64,
    /// The feed's incarnation and number.
    pub cursor: FeedCursor,
    /// The root of its set there.
    pub root: Digest,
}

/// Requests of the trie resync. The source answers each from its set at that moment; changes since
/// `Sections` follow as events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResyncRequest {
    /// Begin: which sections are there, with which roots?
    Sections,
    /// The same, with a proof of the set that all answers are of until the end (IDN-9).
    ProvenSections {
        /// What the proof is to name, so that no answer of before counts.
        #[serde(deserialize_with = "bounded")]
        challenge: String,
    },
    /// What is at these paths?
    Tops {
        /// The section.
        section: SectionKey,
        /// Paths of nibbles from its root, at most [`MAX_REQUESTED`].
        #[serde(deserialize_with = "bounded")]
        paths: Vec<Vec<u8>>,
    },
    /// Send these objects.
    Objects(#[serde(deserialize_with = "bounded")] Vec<ObjectKey>),
    /// The replica is done: the source goes on with the changes after this cursor. Also the end
    /// of a resync by inventory.
    Done {
        /// The cursor of `Sections`.
        from: FeedCursor,
    },
}

/// Responses of the trie resync.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResyncResponse {
    /// The source's cursor when it answered, and its sections with their roots.
    Sections {
        /// Where the feed stood.
        cursor: FeedCursor,
        /// Section, root.
        sections: Vec<(SectionKey, Digest)>,
        /// What proves it to who asked for [`ResyncRequest::ProvenSections`].
        #[serde(default, skip_serializing_if = "Option::is_none", with = "base64")]
        #[schemars(with = "Option<String>")]
        proof: Option<Bytes>,
    },
    /// What is at the requested paths, in their order.
    Tops {
        /// The section.
        section: SectionKey,
        /// One for each path.
        #[serde(deserialize_with = "bounded")]
        tops: Vec<(Vec<u8>, TrieNode)>,
    },
    /// All objects asked for were sent, as events with number 0.
    Objects(u64),
    /// Not now: too many resyncs are under way; ask again after as many seconds.
    Wait(u64),
}

/// The resync of the source document (SYN-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interop {
    /// `request-resource-resync`: the other side is to begin.
    RequestResync,
    /// `request-synced-resource-list`: SHA-256 over the sorted `kind/name/uid` of what the
    /// sender has.
    RequestList {
        /// The inventory checksum.
        checksum: Digest,
    },
    /// `response-synced-resource`: one that the source has.
    Listed(InventoryItem),
    /// `request-update`: send it if it differs, or say that it is gone.
    RequestUpdate(InventoryItem),
}

/// A resource as the source document names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryItem {
    /// Its name.
    #[serde(deserialize_with = "named")]
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "bounded")]
    pub namespace: String,
    /// Its uid; empty when the sender does not have it.
    #[serde(default, deserialize_with = "bounded")]
    pub uid: String,
    /// Its kind.
    #[serde(deserialize_with = "named")]
    pub kind: String,
    /// The checksum of its content; absent when the sender does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "checksum")]
    #[schemars(with = "Option<String>")]
    pub checksum: Option<Digest>,
}

/// Asks for a pong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ping {
    /// Comes back with the pong.
    #[serde(default, deserialize_with = "bounded")]
    pub number: u64,
    /// The last change of the sender's feed.
    #[serde(default, deserialize_with = "bounded")]
    pub head: u64,
    /// What it may overtake on its way.
    #[serde(default, skip_serializing_if = "is_default")]
    pub order: PingOrder,
}

/// What a ping may overtake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PingOrder {
    /// Data that waits: it asks for a sign of life.
    #[default]
    Any,
    /// Nothing: its pong says that everything sent before it was answered.
    Barrier,
}

/// Answers a ping. It overtakes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pong {
    /// The number of the ping.
    #[serde(default, deserialize_with = "bounded")]
    pub number: u64,
    /// The last change of the sender's feed.
    #[serde(default, deserialize_with = "bounded")]
    pub head: u64,
}

/// A link ends in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoAway {
    /// Why; a stable code.
    #[serde(deserialize_with = "bounded")]
    pub code: String,
    /// Why, for people.
    #[serde(default, deserialize_with = "bounded")]
    pub message: String,
    /// Come back after as many seconds; `None`: whenever there is need.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "shorter")]
    pub retry_after: Option<u64>,
}

/// A code of [`GoAway`], as far as somebody decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The side stops, or its connection does.
    Shutdown,
    /// The sides take the node to be in different modes.
    Mode,
    /// Something came without a proof of the control plane's that counts (IDN-9).
    Unproven,
    /// Every other one.
    Other,
}

impl CloseReason {
    /// The code of [`CloseReason::Shutdown`].
    pub const SHUTDOWN: &str = "shutdown";
    /// The code of [`CloseReason::Mode`].
    pub const MODE: &str = "mode";

    /// The code of [`CloseReason::Unproven`].
    pub const UNPROVEN: &str = "unproven";

    /// What a code says.
    pub fn of(code: &str) -> CloseReason {
        match code {
            CloseReason::SHUTDOWN => CloseReason::Shutdown,
            CloseReason::MODE => CloseReason::Mode,
            CloseReason::UNPROVEN => CloseReason::Unproven,
            _ => CloseReason::Other,
        }
    }
}
