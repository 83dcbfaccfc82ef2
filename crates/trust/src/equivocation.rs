//! [`contradiction`]: that somebody told two stories, shown by the two who were told.
//!
//! A control plane that tells each node its own story is caught once two of them compare what they were given:
//! the release key signed both, and each node signed what it was given.

use std::cmp::Ordering;

use model::exchange::Signed;
use model::log::Cursor;
use model::{Channel, Digest, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::key::PublicKey;
use crate::provenance::{AnchoredTrust, NodeHistory, Provenance, ProvenanceError};
use crate::release::Header;
use crate::seen::{Seen, SeenError};

/// The format of a [`SeenRecord`].
pub const SEEN_FORMAT: u32 = 1;
/// The longest file with one that is read, in bytes.
pub const MAX_SEEN: u64 = 1024 * 1024;

/// What a node has seen, as it exports it: with what others need to verify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenRecord {
    /// [`SEEN_FORMAT`].
    pub format: u32,
    /// The node's key, in its text form; the node's id follows from it.
    pub key: PublicKey,
    /// What the node signed.
    pub seen: Signed,
    /// The signed header that it accepted.
    pub header: Signed,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Testimony {
    /// What a node exported.
    Seen(Box<SeenRecord>),
    /// What a control plane gave to an operator.
    Provenance(Box<Provenance>),
}

/// Why a side of a comparison says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TestimonyError {
    /// Another version wrote it.
    #[error("it has format {0}, and this program reads {SEEN_FORMAT}")]
    Format(u32),
    /// The node's document is not believed.
    #[error(transparent)]
    Seen(#[from] SeenError),
    /// A step of it does not hold.
    #[error(transparent)]
    Header(#[from] ProvenanceError),
    /// The header is another than the one that the node says it accepted.
    #[error("the header in it is not the one that the node signed that it accepted")]
    OtherHeader,
}

/// What one side says, verified.
#[derive(Clone, Debug)]
pub struct Verified {
    header: Header,
    digest: Digest,
    seen: Option<Seen>,
    history: Option<(NodeHistory, Timestamp)>,
}

/// Two things that cannot both be honest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Contradiction {
    /// Two headers of one number and channel, both signed by a release key.
    #[error(
        "release {seq} of channel {channel} has two headers, {one} and {other}, both signed by a release key"
    )]
    TwoHeaders {
        /// The number.
        seq: u64,
        /// The channel.
        channel: Channel,
        /// The digest of one.
        one: Digest,
        /// The digest of the other.
        other: Digest,
    },
    /// Two headers of one number with two selections: a release has one for all channels.
    #[error("release {seq} has two selections, {one} and {other}, both signed by a release key")]
    TwoSelections {
        /// The number.
        seq: u64,
        /// One.
        one: Digest,
        /// The other.
        other: Digest,
    },
    /// A node was told that its facts are kept, and later they are not.
    #[error(
        "node {node} was told by {told} that its facts up to {} of {} are kept, and at {made} the control plane's \
         history of it ends at {}",
        kept.seq, kept.incarnation, end.seq
    )]
    LostFacts {
        /// The node.
        node: NodeId,
        /// What was acknowledged to it.
        kept: Cursor,
        /// When it signed that.
        told: Timestamp,
        /// Where the history ends.
        end: Cursor,
        /// When that was said.
        made: Timestamp,
    },
    /// A node's own log ends before where it ended earlier: its data went back, or two hosts have its key.
    #[error("node {node} had written {} facts of {} at {earlier}, and {} at {later}", more.seq, more.incarnation, less.seq)]
    LogWentBack {
        /// The node.
        node: NodeId,
        /// What it said first.
        more: Cursor,
        /// When.
        earlier: Timestamp,
        /// What it said then.
        less: Cursor,
        /// When.
        later: Timestamp,
    },
}

impl Testimony {
    /// Verifies one side by the fleet's trust. A provenance leads there by its own links, which must be given as
    /// well; here its header alone counts.
    ///
    /// # Errors
    /// When nothing of it counts.
    pub fn verify(&self, trust: &AnchoredTrust) -> Result<Verified, TestimonyError> {
        match self {
            Testimony::Seen(record) => {
                if record.format != SEEN_FORMAT {
                    return Err(TestimonyError::Format(record.format));
                }
                let seen = Seen::verify(&record.seen, &record.key)?;
                let header = trust.header(&record.header)?;
                let digest = crate::signed::digest(&record.header);
                if seen.header != digest || seen.seq != header.seq {
                    return Err(TestimonyError::OtherHeader);
                }
                Ok(Verified { header, digest, seen: Some(seen), history: None })
            }
            Testimony::Provenance(provenance) => {
                let header = trust.header(&provenance.entry.header)?;
                let digest = crate::signed::digest(&provenance.entry.header);
                let history = provenance.history.clone().map(|history| (history, provenance.made));
                Ok(Verified { header, digest, seen: None, history })
            }
        }
    }

    /// The trust documents that it brings along.
    pub fn trust(&self) -> &[Signed] {
        match self {
            Testimony::Seen(_) => &[],
            Testimony::Provenance(provenance) => &provenance.trust,
        }
    }
}

impl Verified {
    /// What it says, for people.
    pub fn says(&self) -> String {
        let Header { seq, channel, created, .. } = &self.header;
        let release = format!("release {seq} of channel {channel} is {}, signed at {created}", self.digest);
        match (&self.seen, &self.history) {
            (Some(seen), _) => {
                let Seen { node, at, log_head, .. } = seen;
                format!("node {node} signed at {at}: {release}; its log ends at {}", log_head.seq)
            }
            (None, Some((history, made))) => {
                format!(
                    "a control plane said at {made}: {release}; its history of node {} ends at {}",
                    history.node, history.newest.seq
                )
            }
            (None, None) => format!("a control plane said: {release}"),
        }
    }
}

/// What two sides say that cannot both be honest; `None` when both may be.
pub fn contradiction(a: &Verified, b: &Verified) -> Option<Contradiction> {
    headers(a, b).or_else(|| own_log(a, b)).or_else(|| lost(a, b)).or_else(|| lost(b, a))
}

fn headers(a: &Verified, b: &Verified) -> Option<Contradiction> {
    let (one, other) = (&a.header, &b.header);
    if one.seq != other.seq || a.digest == b.digest {
        return None;
    }
    let seq = one.seq;
    if one.channel == other.channel {
        let channel = one.channel.clone();
        return Some(Contradiction::TwoHeaders { seq, channel, one: a.digest, other: b.digest });
    }
    let (one, other) = (one.selection, other.selection);
    (one != other).then_some(Contradiction::TwoSelections { seq, one, other })
}

fn own_log(a: &Verified, b: &Verified) -> Option<Contradiction> {
    let (a, b) = (a.seen.as_ref()?, b.seen.as_ref()?);
    let (earlier, later) = match a.at.cmp(&b.at) {
        Ordering::Less => (a, b),
        Ordering::Greater => (b, a),
        // It may have grown in between, whichever was signed first.
        Ordering::Equal => return None,
    };
    let one_log = earlier.node == later.node && earlier.log_head.incarnation == later.log_head.incarnation;
    (one_log && later.log_head.seq < earlier.log_head.seq).then(|| Contradiction::LogWentBack {
        node: earlier.node.clone(),
        more: earlier.log_head.clone(),
        earlier: earlier.at,
        less: later.log_head.clone(),
        later: later.at,
    })
}

/// Whether a history lacks what its node was told is in it.
fn lost(told: &Verified, history: &Verified) -> Option<Contradiction> {
    let (seen, (history, made)) = (told.seen.as_ref()?, history.history.as_ref()?);
    let kept = Cursor { incarnation: seen.log_head.incarnation.clone(), seq: seen.acked? };
    let one_log = seen.node == history.node && kept.incarnation == history.newest.incarnation;
    (one_log && *made >= seen.at && history.newest.seq < kept.seq).then(|| Contradiction::LostFacts {
        node: seen.node.clone(),
        kept,
        told: seen.at,
        end: history.newest.clone(),
        made: *made,
    })
}
