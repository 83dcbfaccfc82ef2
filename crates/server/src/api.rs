//! The operator port's messages, which the CLI shares.

pub mod authority;
pub mod closures;
pub mod joins;
pub mod lists;
pub mod objects;
pub mod operation;
pub mod operators;
pub mod proxies;
pub mod rollouts;
pub mod sealing;
pub mod work;

use std::collections::{BTreeMap, BTreeSet};

use model::chunk::TreeChunk;
use model::exchange::{HeldFreshness, HeldRelease, Signed, TraitReport};
use model::invocation::AgentInvocation;
use model::policy::RunTimes;
use model::status::{Overall, Status};
use model::tags::TaggedRun;
use model::unadopted::UnadoptedRelease;
use model::{
    AgentCapabilities, CertificateState, Channel, Contention, Digest, FailureCode, FleetId, Hostname,
    Incarnation, KeyConfirmation, NodeId, RunCounts, Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::audit::AuditEntry;
use store::{DatabaseIncarnation, FactRecord, Release, RunRecord};
use trust::TrustDocument;
use trust::lists::Revocation;
use trust::seen::Seen;

use crate::posture::Posture;
pub use authority::{AddTrust, AuthorityUse, TrustHolders, TrustVersionView, TrustView};
use operation::{Empty, Limit, Operation, Page};
pub use proxies::{ISSUE_PROXY, IssueProxy, MAX_PROXY_NAMES, ProxyCertificate};
pub use rollouts::ChannelRolloutView;

/// How the fleet does.
pub static STATUS: Operation<Empty, StatusView> = Operation::get("/v1/status").in_scope();
/// Nodes by hostname, page by page; `match` is a selector. A page may be short of its limit, or empty, and
/// still name a next one.
pub static NODES: Operation<Matching, NodesView> = Operation::get("/v1/nodes").in_scope();
/// One node.
pub static NODE: Operation<NodeName, NodeView> = Operation::get("/v1/nodes/{node}").in_scope();
/// What the newest release gives to a hostname, enrolled or not.
pub static ENTRY: Operation<EntryName, EntryView> = Operation::get("/v1/entries/{hostname}").in_scope();
/// Removes a node; it must join anew to come back.
pub static REMOVE_NODE: Operation<NodeName, NodeView> = Operation::delete("/v1/nodes/{node}").in_scope();
/// The traits that a node recorded.
pub static TRAITS: Operation<NodeName, Option<TraitReport>> =
    Operation::get("/v1/nodes/{node}/traits").in_scope();
/// Facts of a node, the newest first.
pub static FACTS: Operation<History, Vec<FactRecord>> = Operation::get("/v1/nodes/{node}/facts").in_scope();
/// Runs, the newest first.
pub static RUNS: Operation<History, Vec<RunRecord>> = Operation::get("/v1/runs").in_scope();
/// One run.
pub static RUN: Operation<RunName, RunRecord> =
    Operation::get("/v1/runs/{node}/{incarnation}/{seq}").in_scope();
/// What a publish starts from.
pub static HEAD: Operation<Empty, HeadView> = Operation::get("/v1/head");
/// Releases, the newest first.
pub static RELEASES: Operation<History, Vec<Release>> = Operation::get("/v1/releases");
/// One chunk.
pub static CHUNK: Operation<ChunkName, TreeChunk> = Operation::get("/v1/chunks/{digest}");
/// Which of these are not stored.
pub static MISSING: Operation<Digests, Digests> = Operation::transfer("/v1/missing").reads();
/// Up to [`MAX_FETCH`] chunks; those that are not stored are left out.
pub static FETCH: Operation<Digests, TreeChunks> = Operation::transfer("/v1/fetch").reads();
/// Stores chunks whose needs are stored; answers how many were new.
pub static PUT_CHUNKS: Operation<TreeChunks, usize> = Operation::transfer("/v1/chunks").stages();
/// Points the fleet to a release whose chunks are stored; answers its number.
pub static COMMIT: Operation<Commit, u64> = Operation::transfer("/v1/releases").by_operators();
/// Stores beacons; answers how many there were.
pub static ADD_BEACONS: Operation<Beacons, usize> = Operation::post("/v1/beacons").by_operators();
/// Whom the fleet's nodes believe, and who of them knows so.
pub static TRUST: Operation<Empty, TrustView> = Operation::get("/v1/trust");
/// Adds the next version of the trust document; answers its number.
pub static ADD_TRUST: Operation<AddTrust, u64> = Operation::post("/v1/trust");
/// Requests that nodes run now.
pub static REQUEST_RUN: Operation<RunRequest, RunRequested> =
    Operation::post("/v1/run-requests").by_operators().in_scope();
/// Requests that nodes run what has a tag: by a route of its own, as who does not know tags would request a full
/// run.
pub static REQUEST_TAGGED_RUN: Operation<TaggedRunRequest, TaggedRunRequested> =
    Operation::post("/v1/tagged-run-requests").by_operators().in_scope();
/// Changes the level of the control plane's logs.
pub static SET_LOG_LEVEL: Operation<LogLevel, LogLevel> = Operation::post("/v1/log-level");
/// Contents, packed with [`pack_contents`], as `application/octet-stream`; a content is
/// [`CONTENTS`]`/{digest}`.
pub const CONTENTS: &str = "/v1/contents";

/// The longest JSON body on the operator port, unpacked, in bytes.
pub const MAX_JSON: usize = 64 * 1024 * 1024;
/// The longest body of contents, unpacked, in bytes.
pub const MAX_CONTENTS: usize = model::object::MAX_BLOB as usize + 1024 * 1024;
/// The most nodes in one page of a listing.
pub const MAX_PAGE: usize = 1000;
/// The most chunks in one answer to [`FETCH`].
pub const MAX_FETCH: usize = 4096;
/// The most causes that status names.
pub const MAX_CAUSES: usize = 20;

/// One page of those that are matched.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Matching {
    /// Whom: a pattern of hostnames or a selector; all when there is none.
    #[serde(rename = "match")]
    pub selector: Option<String>,
    /// What the page before named as the next.
    pub from: Option<String>,
    /// The most in one answer.
    pub limit: Limit,
}

impl From<Option<&str>> for Matching {
    fn from(selector: Option<&str>) -> Matching {
        Matching { selector: selector.map(str::to_owned), ..Matching::default() }
    }
}

/// A node by hostname or id.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeName {
    /// Its name.
    pub node: String,
}

impl From<&str> for NodeName {
    fn from(node: &str) -> NodeName {
        NodeName { node: node.to_owned() }
    }
}

/// A host that may be enrolled or not.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EntryName {
    /// Its name.
    pub hostname: Hostname,
}

/// What the newest release gives to a hostname.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// The fleet.
    pub fleet: FleetId,
    /// The newest release's number; 0 before the first.
    pub seq: u64,
    /// The channel of the entry that matches; absent when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
}

/// What happened, the newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct History {
    /// Only of this node.
    pub node: Option<String>,
    /// Only what has a lower number.
    pub before: Option<u64>,
    /// The most in one answer.
    pub limit: Limit,
}

/// A run by its position in its node's log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunName {
    /// The node.
    pub node: String,
    /// The log's incarnation.
    pub incarnation: Incarnation,
    /// The fact's number.
    pub seq: u64,
}

/// A chunk by its digest.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChunkName {
    /// The digest.
    pub digest: Digest,
}

/// How the fleet does.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The fleet.
    pub fleet: FleetId,
    /// Lab or sealed.
    pub posture: Posture,
    /// The control plane's version.
    pub version: String,
    /// The newest release's number; 0 before the first.
    pub seq: u64,
    /// What each channel points to.
    pub channels: Vec<ChannelView>,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many of each word.
    pub states: BTreeMap<Overall, usize>,
    /// What is not green, grouped by cause, the most frequent first.
    pub causes: Vec<CauseView>,
    /// The number of a release that nodes hold and that is not here, above or beside the newest: the data went
    /// back to what it was before, and another publish mends that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overtaken_by: Option<u64>,
    /// Why check-ins are refused at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// How the database does.
    pub store: store::Health,
    /// Nodes that hold a newer trust document than this control plane, and the newest of theirs: its data went back
    /// to what it was before, and they follow none of its later ones (IDN-8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_overtaken: Option<TrustHolders>,
    /// Why the file of trust documents cannot be used; those that were read before count on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_unusable: Option<String>,
    /// Why what nodes are given is not signed as they believe it, while it is not: they take nothing new (IDN-9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_key_unusable: Option<String>,
    /// Of which CA nodes have their certificates, where a CA was replaced and some have theirs of the one before, or
    /// where the CA that is believed does not certify; for operators of the whole fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<AuthorityUse>,
}

/// A channel.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelView {
    /// Its name.
    pub channel: Channel,
    /// The release that it points to.
    pub seq: u64,
    /// That release's label.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// When header or beacon was last signed.
    pub signed_at: Timestamp,
    /// Until when it may be adopted, and nodes take actions and objects by it.
    pub fresh_until: Timestamp,
    /// From when on another signature is due; an earlier control plane does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warns_at: Option<Timestamp>,
    /// Seconds between contacts.
    pub contact_secs: u64,
    /// Who published that release, as the control plane authenticated him.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether the keys that signed that release are not enough any more, as one was retired since or the channel asks
    /// for more signers: nodes that do not hold the release take it no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signer_retired: bool,
    /// How its newest rollout stands, where its release goes to its nodes by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<ChannelRolloutView>,
    /// Earlier releases that nodes of that rollout stay on, and for which another signature is due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_due: Vec<EarlierReleaseView>,
}

/// A release before the newest, which a rollout has nodes on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EarlierReleaseView {
    /// Its number.
    pub seq: u64,
    /// When header or beacon was last signed.
    pub signed_at: Timestamp,
    /// Until when nodes take actions and objects by it.
    pub fresh_until: Timestamp,
}

/// Nodes that share a cause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CauseView {
    /// The state that matters most among theirs.
    pub state: Overall,
    /// How many of them are in each state. Control planes of before do not say it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<Overall, usize>,
    /// What is the matter, with the first of them.
    pub cause: String,
    /// The sort of failure, where it is a resource's failure of a sort that is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// Since when, of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How many.
    pub count: usize,
    /// The first few hostnames.
    pub nodes: Vec<Hostname>,
    /// What to do next. A command in it stands in backticks, or it begins with one, up to its first
    /// semicolon or the end of the line.
    pub next: String,
}

/// A node.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its id.
    pub id: NodeId,
    /// Its hostname.
    pub hostname: Hostname,
    /// By what it is revoked; absent while it is not.
    pub revoked: Option<Revocation>,
    /// The state on the axis that matters most.
    pub state: Overall,
    /// All axes.
    pub status: Status,
    /// The channel that it is pointed to.
    pub channel: Option<Channel>,
    /// The release that it is pointed to.
    pub pointed_seq: Option<u64>,
    /// The root that it is pointed to.
    pub pointed_root: Option<Digest>,
    /// When its certificate ends; absent where no session is opened with it.
    pub certificate_ends: Option<Timestamp>,
    /// How that certificate stands.
    pub certificate_state: Option<CertificateState>,
    /// Why the node could not renew it, by its own word.
    pub renewal_failure: Option<String>,
    /// How its agent is called on its host; absent before one said so.
    pub invocation: Option<AgentInvocation>,
    /// What it holds.
    pub held: Option<HeldRelease>,
    /// That this is not fresh or is stale, by the node's own word; absent while it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<HeldFreshness>,
    /// The version of the trust document that it holds, by its own word; absent before it said one.
    pub trust_version: Option<u64>,
    /// The code of why it follows no newer trust document.
    pub refused_trust: Option<String>,
    /// When it was last heard of.
    pub last_seen: Option<Timestamp>,
    /// Seconds within which it is to call again, by the last answer.
    pub promised_secs: u64,
    /// When its newest run ended.
    pub last_run: Option<Timestamp>,
    /// When the last full run ended in which nothing failed; absent where none is known.
    pub successful_run: Option<Timestamp>,
    /// Since when a full run has been under way.
    pub running_since: Option<Timestamp>,
    /// What its last reported run came to.
    pub counts: Option<RunCounts>,
    /// What is the matter.
    pub cause: Option<String>,
    /// On how many other nodes the same is the matter; only of one node that was asked for by its name.
    pub same_cause: Option<u32>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// By whose word the key is that host's; an earlier control plane does not say so.
    pub key_confirmation: Option<KeyConfirmation>,
    /// Since when two hosts are known to hold the key; absent while one does, as far as is known.
    pub copied_since: Option<Timestamp>,
    /// What its agent is and can do, as it said; only of one node that was asked for by its name.
    pub capabilities: Option<AgentCapabilities>,
    /// The labels of the group token that it joined with; only of one node that was asked for by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub join_labels: BTreeMap<String, String>,
    /// What it signed last, with its own key, of the newest release and the head of its log.
    pub seen: Option<Seen>,
    /// A run request that it has not yet confirmed.
    pub run_request: Option<u64>,
    /// A request for a run by tag that it has not yet confirmed.
    pub tagged_run: Option<TaggedRun>,
    /// What something else on its host changes again and again, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contended: Vec<Contention>,
    /// Its traits are larger than they may be, and are not taken: selectors read those from before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traits_too_large: bool,
    /// Tags that a run was requested for, which no resource of the node has, by the newest run that says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_tags: Vec<String>,
    /// What operators had done to it last, by the audit log; only of one node that was asked for by its name.
    pub last_change: Option<AuditEntry>,
    /// Why it does not hold the release that it was offered, by its own word; absent while nothing is in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unadopted: Option<UnadoptedRelease>,
}

/// One page of nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodesView {
    /// In the order of their hostnames.
    pub nodes: Vec<NodeView>,
    /// The hostname to ask on from, when there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Hostname>,
}

impl Page for NodesView {
    type Item = NodeView;

    fn next_page(&self) -> Option<String> {
        self.next.as_ref().map(ToString::to_string)
    }

    fn items(self) -> Vec<NodeView> {
        self.nodes
    }
}

/// What a publish starts from.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadView {
    /// Whom the fleet's nodes believe.
    pub trust: TrustDocument,
    /// The newest release's number.
    pub seq: Option<u64>,
    /// The root of its selection.
    pub selection: Option<Digest>,
    /// The signed header of each channel.
    pub headers: BTreeMap<Channel, Signed>,
    /// The signed header of a release that nodes hold and that is not here, whose number is not below
    /// [`HeadView::seq`]: the next release needs a higher one.
    pub node_header: Option<Signed>,
    /// The incarnation of the database, when the data went back to what it was before and nothing was published
    /// since: higher numbers may have been given.
    pub went_back: Option<DatabaseIncarnation>,
    /// The oldest agent that check-ins are taken from, as the newest release says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_agent: Option<String>,
    /// As [`StatusView::trust_overtaken`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_overtaken: Option<TrustHolders>,
}

/// Digests that are asked for or answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Digests {
    /// Of chunks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Digest>,
    /// Of contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<Digest>,
}

/// Chunks that are sent or answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TreeChunks {
    /// Every one after those that it needs, or in one message with them.
    pub chunks: Vec<TreeChunk>,
}

/// A release to point to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    /// The signed headers by channel.
    pub headers: BTreeMap<Channel, Signed>,
    /// The newest release that this was built on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_head: Option<u64>,
    /// What it comes to.
    pub summary: ReleaseSummary,
}

/// What a release comes to, for people, and what the control plane needs to know of its
/// channels without reading every set.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSummary {
    /// Seconds between contacts, by channel.
    pub contact_secs: BTreeMap<Channel, u64>,
    /// How often nodes run, by channel; an earlier publisher does not say it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runs: BTreeMap<Channel, RunTimes>,
    /// Exact entries.
    pub nodes: usize,
    /// Patterns.
    pub patterns: usize,
    /// Modules.
    pub modules: usize,
    /// Who published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The oldest agent that check-ins are taken from, as fleet.yaml says it; absent: any that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_agent: Option<String>,
}

/// Beacons to store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Beacons {
    /// Signed beacons, one a channel.
    pub beacons: Vec<Signed>,
}

/// A request that nodes run now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunRequest {
    /// Hostnames or ids.
    pub nodes: Vec<String>,
}

/// The answer to [`RunRequest`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunRequested {
    /// The request's number.
    pub number: u64,
    /// How many nodes it is for.
    pub nodes: usize,
}

/// A request that nodes run what has one of these tags.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaggedRunRequest {
    /// Hostnames or ids.
    pub nodes: Vec<String>,
    /// 1 to [`model::tags::MAX_RUN_TAGS`] tags; those of an earlier request that a node has not confirmed yet
    /// stay requested beside them, and count here too.
    pub tags: BTreeSet<String>,
}

/// The answer to [`TaggedRunRequest`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaggedRunRequested {
    /// The request's number.
    pub number: u64,
    /// How many nodes are requested to run.
    pub nodes: usize,
    /// Nodes that are not, because their agents do not know runs by tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_old: Vec<Hostname>,
    /// Nodes that are not, because with the tags of earlier requests, which they have not confirmed yet, there
    /// would be more than [`model::tags::MAX_RUN_TAGS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_many_tags: Vec<Hostname>,
}

/// How much is logged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogLevel {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

/// Packs contents into one body: each with its length before it (4 bytes, big-endian).
pub fn pack_contents<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for content in contents {
        out.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(content);
    }
    out
}

/// Undoes [`pack_contents`]; `None` when the body is not whole.
pub fn unpack_contents(body: &bytes::Bytes) -> Option<Vec<bytes::Bytes>> {
    let (mut contents, mut at) = (Vec::new(), 0usize);
    while at < body.len() {
        let length = body.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)?;
        let end = at.checked_add(4)?.checked_add(usize::try_from(length).ok()?)?;
        if end > body.len() {
            return None;
        }
        contents.push(body.slice(at + 4..end));
        at = end;
    }
    Some(contents)
}
