//! What goes into the store and what comes out.

use std::collections::BTreeMap;
use std::time::Duration;

use model::exchange::{HeldRelease, RunNote, Signed};
use model::invocation::AgentInvocation;
use model::log::{Cursor, Fact, FactBody};
use model::tags::TaggedRun;
use model::{
    AgentCapabilities, CertificateValidity, Channel, Contention, Digest, FleetId, Hostname, Incarnation,
    KeyConfirmation, NodeConditions, NodeId, RunReport, RunsHeard, RunsSummary, Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::joining::ListVersions;

/// What a store is for; set once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetMeta {
    /// The fleet.
    pub fleet: FleetId,
    /// When the fleet was founded here.
    pub created: Timestamp,
}

/// Why an incarnation of the database began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IncarnationCause {
    /// The fleet was founded in it, or it is from before incarnations were counted.
    Founded,
    /// It was restored from a backup.
    Restored,
    /// Its file is a copy of the one that was started on before.
    Copied,
    /// A node holds a release whose header is verified and which is not in it.
    Overtaken,
}

impl IncarnationCause {
    /// Its name in the database.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            IncarnationCause::Founded => "founded",
            IncarnationCause::Restored => "restored",
            IncarnationCause::Copied => "copied",
            IncarnationCause::Overtaken => "overtaken",
        }
    }

    /// By its name in the database. One that is not known means that the data went back.
    pub(crate) fn named(name: &str) -> IncarnationCause {
        let all = [IncarnationCause::Founded, IncarnationCause::Copied, IncarnationCause::Overtaken];
        all.into_iter().find(|cause| cause.as_str() == name).unwrap_or(IncarnationCause::Restored)
    }
}

/// One unbroken numbering of the database: from its founding, or from where it is known to have gone back to
/// what it was before, to the next time (SCL-4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseIncarnation {
    /// Random.
    pub id: Incarnation,
    /// Why it began.
    pub cause: IncarnationCause,
    /// When.
    pub began: Timestamp,
    /// The first release that was published in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<u64>,
}

impl DatabaseIncarnation {
    /// One that began just now.
    pub fn begun(id: Incarnation, cause: IncarnationCause, began: Timestamp) -> DatabaseIncarnation {
        DatabaseIncarnation { id, cause, began, published: None }
    }

    /// The data went back and no release was published since: numbers above the newest here may have been
    /// given before.
    pub fn went_back(&self) -> Option<IncarnationCause> {
        (self.cause != IncarnationCause::Founded && self.published.is_none()).then_some(self.cause)
    }
}

/// A node as enrollment records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Derived from the public key.
    pub node_id: NodeId,
    /// Unique among active nodes.
    pub hostname: Hostname,
    /// The public key: its algorithm, a colon, base64 (`trust::PublicKey`'s text form).
    pub public_key: String,
    /// From when its certificate is valid.
    pub cert_not_before: Timestamp,
    /// When it ends; `None` where no session is opened with it, as a proxy ends TLS.
    pub cert_not_after: Option<Timestamp>,
    /// Its certificate's serial number, in hex.
    pub cert_serial: String,
    /// The id of the key of the CA that issued it.
    pub cert_authority: String,
    /// By whose word the key is that host's (ENR-9).
    pub key_confirmation: KeyConfirmation,
    /// What was declared of the node at enrollment; an object.
    pub declared: Value,
}

/// The token that a node enrolls with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUse {
    /// Its nonce.
    pub nonce: String,
    /// When it expires; the caller has checked that it has not. The burned nonce is kept
    /// at least until then.
    pub expires_at: Timestamp,
    /// The node that gives its hostname to this one, and is removed (IDN-10).
    pub replaces: Option<NodeId>,
    /// The lists by which the caller let the token pass: the enrollment is refused when others count by now.
    pub lists: ListVersions,
}

/// A use of a group token by one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupUse {
    /// The token's nonce.
    pub nonce: String,
    /// By how many keys it may be used.
    pub uses: u32,
    /// When the token expires; its uses are kept at least until then.
    pub expires_at: Timestamp,
}

/// What admits a node that has no token of its own (ENR-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinAdmission {
    /// A group token, which lets it in by itself or after an operator's approval.
    Group(GroupUse),
    /// An operator's approval of its key, which is still so in the transaction.
    Approved,
    /// The fleet repo's declaration of its key (CFG-8).
    Declared,
    /// It was admitted, and its certificate was not used since: the reply was lost (ENR-7).
    Retry,
}

impl JoinAdmission {
    /// What is kept as the nonce that the node enrolled with; empty where there was no token.
    pub(crate) fn nonce(&self) -> &str {
        match self {
            JoinAdmission::Group(group) => &group.nonce,
            JoinAdmission::Approved | JoinAdmission::Declared | JoinAdmission::Retry => "",
        }
    }
}

/// A certificate that a node got in place of the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedCertificate {
    /// From when until when it counts.
    pub validity: CertificateValidity,
    /// Its serial number, in hex.
    pub serial: String,
    /// The id of the key of the CA that issued it.
    pub authority: String,
}

/// How an enrollment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enrolled {
    /// A node was recorded.
    New,
    /// A node was recorded, and the one that the token names removed.
    Replacing,
    /// The node is the one already recorded, with a new certificate (ENR-7).
    Again,
}

/// The longest code, and the longest message, kept of a refusal, in bytes.
pub const MAX_KEPT_REFUSAL: usize = 240;

/// A refusal of a release, as it is kept beside a node's runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRefusal {
    /// Its stable code: at most [`MAX_KEPT_REFUSAL`] bytes, as is the message.
    pub code: String,
    /// What was wrong, for people.
    pub message: String,
}

impl KeptRefusal {
    /// What is kept of what a node says.
    pub fn of(code: &str, message: &str) -> KeptRefusal {
        let clip = |text: &str| text[..text.floor_char_boundary(MAX_KEPT_REFUSAL)].to_owned();
        KeptRefusal { code: clip(code), message: clip(message) }
    }
}

/// All that is kept of a node, its log and traits excepted.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRecord {
    /// Derived from the public key.
    pub node_id: NodeId,
    /// Unique among active nodes.
    pub hostname: Hostname,
    /// The public key in its text form.
    pub public_key: String,
    /// When it was first enrolled under this hostname.
    pub enrolled: Timestamp,
    /// When it was removed; absent while it is active.
    pub removed: Option<Timestamp>,
    /// From when the certificate is valid that it enrolled with last.
    pub cert_not_before: Timestamp,
    /// From when the one is valid that it has instead, if that was renewed since.
    pub cert_renewed: Option<Timestamp>,
    /// When its certificate ends; `None` where no session is opened with it, as a proxy ends TLS.
    pub cert_not_after: Option<Timestamp>,
    /// Its certificate's serial number, in hex.
    pub cert_serial: String,
    /// The id of the key of the CA that issued it; `None` where that was not recorded.
    pub cert_authority: Option<String>,
    /// The certificate was used, so its token cannot be tried again (ENR-7).
    pub cert_used: bool,
    /// By whose word the key is that host's.
    pub key_confirmation: KeyConfirmation,
    /// When it was noticed that two hosts hold the key; absent while one does (IDN-10).
    pub copied: Option<Timestamp>,
    /// What its agent is and can do, as it said (ENR-5).
    pub capabilities: Option<AgentCapabilities>,
    /// What was declared of it at enrollment.
    pub declared: Value,
    /// The last contact that was persisted.
    pub last_seen: Option<Timestamp>,
    /// Seconds within which the next contact was promised at that time; 0 before the first.
    pub promised_secs: u64,
    /// The release that it holds, by its last check-in.
    pub held: Option<HeldRelease>,
    /// Its newest run in short.
    pub run: Option<RunNote>,
    /// What was heard of its runs by then; an earlier version did not keep it.
    pub runs_heard: Option<RunsHeard>,
    /// What its runs that were facts came to.
    pub runs: RunsSummary,
    /// The number, in the log that has it, of its newest full run that was a fact.
    pub full_run: Option<u64>,
    /// What something else changes again and again on the host, as its newest fact about that says.
    pub contended: Vec<Contention>,
    /// How its agent is called on its host, as it said at its start.
    pub invocation: Option<AgentInvocation>,
    /// What it refused since it adopted a release.
    pub refusal: Option<KeptRefusal>,
    /// How far the log of its newest incarnation is accepted.
    pub cursor: Option<Cursor>,
    /// The digest of its traits.
    pub traits: Option<Digest>,
    /// Its newest `seen` document, verified by who stored it.
    pub seen: Option<Signed>,
    /// A request for a run that it has not yet confirmed (DLT-5).
    pub run_request: Option<u64>,
    /// A request for a run by tag that it has not yet confirmed.
    pub tagged_run: Option<TaggedRun>,
    /// What it said by then is the matter; an earlier version did not keep it.
    pub conditions: NodeConditions,
    /// The version of the trust document that it held by then; 0 before one was heard.
    pub trust_version: u64,
}

/// One contact, to be persisted with others (CNV-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The node; ignored when it is not active any more.
    pub node: NodeId,
    /// When it called; an older one than is stored changes nothing.
    pub last_seen: Timestamp,
    /// The release that it holds; `None` leaves what is stored.
    pub held: Option<HeldRelease>,
    /// Its newest run; `None` leaves what is stored.
    pub run: Option<RunNote>,
    /// What was heard of its runs.
    pub runs_heard: RunsHeard,
    /// Seconds within which it is to call again, by the last answer.
    pub promised_secs: u64,
    /// What it says is the matter.
    pub conditions: NodeConditions,
    /// The version of the trust document that it holds; 0 where it did not say.
    pub trust_version: u64,
}

/// An address prefix of which somebody authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPrefix {
    /// The prefix, as text.
    pub prefix: String,
    /// When, the last time.
    pub authenticated: Timestamp,
}

/// What became of facts that were offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How far the log is durable now.
    pub cursor: Cursor,
    /// The facts that were not known before, in order.
    pub new: Vec<Fact>,
}

/// A release, as it is committed and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Its number; above every one committed before.
    pub seq: u64,
    /// Its label for people.
    #[serde(rename = "ref")]
    pub ref_label: String,
    /// When it was made.
    pub created: Timestamp,
    /// The root of its selection, whose chunk is stored.
    pub selection: Digest,
    /// The signed header of each channel that it is for.
    pub headers: BTreeMap<Channel, Signed>,
    /// What it came to, for people; an object.
    pub summary: Value,
}

/// What a channel points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelHead {
    /// The channel.
    pub channel: Channel,
    /// The newest release for it.
    pub seq: u64,
    /// That release's header for it.
    pub header: Signed,
    /// The root of the release's selection.
    pub selection: Digest,
}

/// Which runs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this node.
    pub node: Option<NodeId>,
    /// Only those accepted before the record of this id.
    pub before: Option<u64>,
    /// At most this many, and at most [`crate::MAX_LISTED`].
    pub limit: usize,
}

/// A stored run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Rises with every fact accepted; pages a listing.
    pub id: u64,
    /// The node.
    pub node: NodeId,
    /// The incarnation of its log.
    pub incarnation: Incarnation,
    /// The fact's number in it.
    pub seq: u64,
    /// When the run ended, by the node's clock.
    pub at: Timestamp,
    /// When it was accepted.
    pub received: Timestamp,
    /// What it came to.
    pub report: RunReport,
}

/// A stored fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FactRecord {
    /// Rises with every fact accepted; pages a listing.
    pub id: u64,
    /// The node.
    pub node: NodeId,
    /// The incarnation of its log.
    pub incarnation: Incarnation,
    /// When it was accepted.
    pub received: Timestamp,
    /// The fact.
    #[serde(flatten)]
    pub fact: Fact,
}

// What serde derives for flattened fields copies them first, and a fact's body is read from JSON itself.
impl<'de> Deserialize<'de> for FactRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FactRecord, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FactFields {
            id: u64,
            node: NodeId,
            incarnation: Incarnation,
            received: Timestamp,
            seq: u64,
            at: Timestamp,
            body: FactBody,
        }
        let FactFields { id, node, incarnation, received, seq, at, body } =
            FactFields::deserialize(deserializer)?;
        Ok(FactRecord { id, node, incarnation, received, fact: Fact { seq, at, body } })
    }
}

/// What is kept of a node's facts, in bytes: 100 runs of 80 KiB, and as much again.
pub const NODE_FACT_BYTES: u64 = 16 * 1024 * 1024;
/// What is kept of all nodes' facts, in bytes.
pub const FACT_BYTES: u64 = 64 * 1024 * 1024 * 1024;

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Newest runs of each node.
    pub runs_per_node: usize,
    /// Newest facts of each node that are neither runs nor of actions.
    pub facts_per_node: usize,
    /// Newest facts of actions of each node.
    pub action_facts_per_node: usize,
    /// The newest facts of each node, in bytes. Twice that is never exceeded in between.
    pub fact_bytes_per_node: u64,
    /// Facts of all nodes, in bytes: nodes that have the most give way first.
    pub fact_bytes: u64,
    /// Newest tasks and workflows that are finished.
    pub finished_tasks: usize,
    /// Newest releases; those that a channel points to are kept besides.
    pub releases: usize,
    /// Chunks and contents that were put, or reported as present, within this time stay,
    /// so that an upload in progress is safe.
    pub grace: Duration,
    /// How long a removed node's record and history stay.
    pub removed_nodes: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        const DAY: u64 = 24 * 3600;
        Retention {
            runs_per_node: 100,
            facts_per_node: 500,
            action_facts_per_node: 500,
            fact_bytes_per_node: NODE_FACT_BYTES,
            fact_bytes: FACT_BYTES,
            finished_tasks: 1000,
            releases: 50,
            grace: Duration::from_secs(DAY),
            removed_nodes: Duration::from_secs(365 * DAY),
        }
    }
}

/// What a pruning took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Facts, runs among them.
    pub facts: u64,
    /// Releases.
    pub releases: u64,
    /// Chunks.
    pub chunks: u64,
    /// Contents.
    pub contents: u64,
    /// Burned nonces whose tokens have long expired.
    pub nonces: u64,
    /// Removed nodes.
    pub nodes: u64,
    /// Synchronized objects of removed nodes.
    pub objects: u64,
    /// Tasks and workflows.
    pub tasks: u64,
}

/// How a store does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The last write succeeded, or none was tried yet.
    pub writable: bool,
    /// Writes that wait.
    pub queue_depth: usize,
    /// Why the last write failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
