//! Logs: facts as `(node, incarnation, seq)`, appended, acknowledged by cursor, never coalesced.

mod read;

use crate::invocation::AgentInvocation;
use crate::sort::SortCompactly;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rollout::RolloutFact;
use crate::work::ActionFact;
use crate::{Contention, Digest, Incarnation, RunReport, Timestamp};

/// The most facts in one request.
pub const MAX_FACTS: usize = 200;
/// The most bytes of one fact, as JSON.
pub const MAX_FACT_BYTES: usize = 512 * 1024;
/// The most bytes of facts that an agent puts into one request: one of the largest fits.
pub const MAX_REQUEST_FACT_BYTES: usize = MAX_FACT_BYTES;

/// One fact of a node's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// Its number: 1, 2, 3 and so on within the incarnation.
    pub seq: u64,
    /// When it became known, by the node's clock.
    pub at: Timestamp,
    /// What happened.
    pub body: FactBody,
}

/// What a fact says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FactBody {
    /// A run that differed from the one before it.
    Run(RunReport),
    /// The node adopted a release.
    #[serde(rename_all = "camelCase")]
    Adopted {
        /// Its number.
        seq: u64,
        /// The digest of its header.
        header: Digest,
        /// The root of the node's set in it.
        root: Digest,
    },
    /// The node refused what it was pointed to.
    Refused {
        /// Stable code of the refusal.
        code: String,
        /// What was wrong, for people.
        message: String,
    },
    /// What the node holds is no longer fresh or is stale, or is so no more.
    #[serde(rename_all = "camelCase")]
    Freshness {
        /// The number of the release held.
        seq: u64,
        /// When the newest header or beacon was signed that the node verified for it.
        signed_at: Timestamp,
        /// It is not fresh since then: neither actions nor objects are taken from the control plane.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_fresh_since: Option<Timestamp>,
        /// It is stale since then: nothing confirmed it for the channel's `bundle_max_age`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stale_since: Option<Timestamp>,
    },
    /// The agent started.
    #[serde(rename_all = "camelCase")]
    Started {
        /// The agent's version.
        version: String,
        /// The kernel's boot id.
        boot_id: String,
        /// How the agent is called on its host; an earlier agent does not say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        invocation: Option<AgentInvocation>,
        /// When a run began that did not end before: the agent was killed, or the host went down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_off_run: Option<Timestamp>,
    },
    /// Something on the node was found broken and was put right or set aside.
    Repaired {
        /// What, and what was done.
        message: String,
    },
    /// Somebody at the host put a kept version of a managed file back (CNV-8).
    FileRestored {
        /// Its path.
        path: String,
        /// The number of the version.
        version: u64,
    },
    /// A reboot is required, the channel's window for it is open, and the host goes down now (CNV-12).
    /// `started` with another boot id follows.
    Rebooting {
        /// What asked for it.
        reason: String,
        /// The window's name.
        window: String,
    },
    /// The host was to go down, and did not.
    NotRebooted {
        /// Why not, and what follows.
        reason: String,
    },
    /// Something happened to an action.
    Action(ActionFact),
    /// Something happened in a rollout that the node is in (ROL-5).
    Rollout(RolloutFact),
    /// What something else changes again and again, all that is so now; nothing, when it is over.
    Contended {
        /// At most [`crate::contention::MAX_CONTENTIONS`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        resources: Vec<Contention>,
        /// How many there are beside those.
        #[serde(default, skip_serializing_if = "is_zero")]
        more: u32,
    },
    /// A sort that a newer agent knows: it counts as a fact, and this version cannot say more.
    #[serde(other)]
    Unknown,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl FactBody {
    /// The sort's name on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            FactBody::Run(_) => "run",
            FactBody::Adopted { .. } => "adopted",
            FactBody::Refused { .. } => "refused",
            FactBody::Freshness { .. } => "freshness",
            FactBody::Started { .. } => "started",
            FactBody::Repaired { .. } => "repaired",
            FactBody::FileRestored { .. } => "fileRestored",
            FactBody::Rebooting { .. } => "rebooting",
            FactBody::NotRebooted { .. } => "notRebooted",
            FactBody::Action(_) => "action",
            FactBody::Rollout(_) => "rollout",
            FactBody::Contended { .. } => "contended",
            FactBody::Unknown => "unknown",
        }
    }
}

impl Fact {
    /// Whether it is within [`MAX_FACT_BYTES`], as JSON.
    pub fn is_within_bounds(&self) -> bool {
        let mut counted = ByteCount(0);
        serde_json::to_writer(&mut counted, self).is_ok() && counted.0 <= MAX_FACT_BYTES
    }
}

/// Counts what is written.
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How far a log has been accepted: everything up to `seq` is durable at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cursor {
    /// The incarnation of the log.
    pub incarnation: Incarnation,
    /// The last number accepted; 0 when none is.
    pub seq: u64,
}

/// Of `facts`, those that follow `after` without a gap, in order. Of two with one number
/// the first counts.
pub fn contiguous(after: u64, facts: Vec<Fact>) -> Vec<Fact> {
    let mut new = up_to_gap(after, facts);
    new.retain(|fact| fact.seq > after);
    new.dedup_by_key(|fact| fact.seq);
    new
}

/// Of `facts`, those that are known up to `after` or follow it without a gap, in order.
pub fn up_to_gap(after: u64, mut facts: Vec<Fact>) -> Vec<Fact> {
    facts.sort_compactly_by_key(|fact| fact.seq);
    let mut last = after;
    let is_behind_gap = |fact: &Fact| {
        let follows = fact.seq <= last.saturating_add(1);
        last = last.max(fact.seq);
        !follows
    };
    let kept = facts.iter().position(is_behind_gap).unwrap_or(facts.len());
    facts.truncate(kept);
    facts
}
