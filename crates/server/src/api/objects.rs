//! Synchronized objects on the operator port.

use std::collections::BTreeMap;

use model::condition::{Attention, ConditionStatus, Direction, Evidence, SyncCondition, SyncState};
use model::replication::{Mode, TransportKind};
use model::{Digest, Hostname, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use sync::mapping::Mapping;

use super::Matching;
use super::operation::{Limit, Operation, Page};

/// Objects of all nodes or of those meant, without their manifests, page by page.
pub static OBJECTS: Operation<ObjectsQuery, ObjectsView> = Operation::get("/v1/objects").in_scope();
/// One object with its manifest and status.
pub static OBJECT: Operation<ObjectName, ObjectView> =
    Operation::get("/v1/objects/{node}/{kind}/{namespace}/{name}").in_scope();
/// Makes up to [`MAX_APPLY`] objects so.
pub static APPLY: Operation<Apply, ObjectResults> =
    Operation::transfer("/v1/objects").by_operators().in_scope();
/// Takes up to [`MAX_APPLY`] objects away.
pub static DELETE_OBJECTS: Operation<Delete, ObjectResults> =
    Operation::transfer("/v1/objects-delete").by_operators().in_scope();
/// How synchronization stands, page by page; `match` is a selector. The first page counts all.
pub static SYNC: Operation<Matching, SyncsView> = Operation::get("/v1/sync").in_scope();
/// Has nodes compared anew.
pub static RESYNC: Operation<ResyncNodes, Resynced> =
    Operation::transfer("/v1/resyncs").by_operators().in_scope();

/// The most manifests in one [`APPLY`].
pub const MAX_APPLY: usize = 10_000;
/// What a path or a query has in place of an empty namespace.
pub const NO_NAMESPACE: &str = "_";

/// Which objects are listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ObjectsQuery {
    /// Of these nodes, by a selector.
    #[serde(rename = "match", alias = "node")]
    pub selector: Option<String>,
    /// Only this direction.
    pub way: Option<Direction>,
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this namespace; [`NO_NAMESPACE`] for none.
    pub namespace: Option<String>,
    /// Only this name.
    pub name: Option<String>,
    /// What the page before named as the next.
    pub from: Option<String>,
    /// The most in one answer.
    pub limit: Limit,
}

/// An object of one node; manifest and status only in the answer to [`OBJECT`].
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectView {
    /// Whose.
    pub node: Hostname,
    /// Which way it goes.
    pub way: Direction,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// One incarnation of it.
    pub uid: String,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The manifest's length in bytes.
    pub size: u64,
    /// The number of its last change.
    pub rev: u64,
    /// When the source accepted that change.
    pub at: Timestamp,
    /// The trace of what caused it.
    pub trace: Option<String>,
    /// The node has it in this form; absent when that is not known.
    pub delivered: Option<bool>,
    /// The node would not take it: why.
    pub refused: Option<String>,
    /// The manifest, when one object is asked for.
    pub manifest: Option<Value>,
    /// What the node says of it, when one object is asked for.
    pub status: Option<Value>,
}

/// One page of objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ObjectsView {
    /// In the order of node, way, kind, namespace, name.
    pub objects: Vec<ObjectView>,
    /// To be given as `from` for the next page, when there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Page for ObjectsView {
    type Item = ObjectView;

    fn next_page(&self) -> Option<String> {
        self.next.clone()
    }

    fn items(self) -> Vec<ObjectView> {
        self.objects
    }
}

/// Manifests to make so.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Apply {
    /// Manifests.
    pub manifests: Vec<Value>,
    /// The node of all of them, instead of a mapping.
    pub node: Option<String>,
    /// How each finds its node.
    #[serde(default)]
    pub mapping: Mapping,
    /// Say what would become of them, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// W3C trace context; one is made when absent.
    pub trace: Option<String>,
}

/// Objects to take away.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delete {
    /// Which.
    pub objects: Vec<ObjectName>,
    /// Say what would become of them, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// The name of an object of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectName {
    /// Hostname or id.
    pub node: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What became of one object.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectResult {
    /// Which.
    #[serde(flatten)]
    pub object: ObjectName,
    /// What.
    pub outcome: ApplyOutcome,
    /// Why it was refused.
    pub why: Option<String>,
    /// The manifest before, when it was asked what would become of it.
    pub before: Option<Value>,
    /// The manifest after.
    pub after: Option<Value>,
}

/// What may become of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApplyOutcome {
    /// It was not there.
    Created,
    /// It differs now.
    Changed,
    /// It was so already.
    Unchanged,
    /// It is gone.
    Deleted,
    /// It was not there to be deleted.
    Absent,
    /// Nothing was done.
    Refused,
}

/// The answer to [`Apply`] and [`Delete`]: everything is durable, or refused one by one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ObjectResults {
    /// In the order asked.
    pub results: Vec<ObjectResult>,
}

/// Nodes to compare anew.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResyncNodes {
    /// Hostnames or ids.
    pub nodes: Vec<String>,
    /// Confirm that what the source no longer has is deleted, however much it is.
    #[serde(default)]
    pub approve_deletions: bool,
}

/// The answer to [`ResyncNodes`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resynced {
    /// Nodes that were asked now; the others are when they connect.
    pub now: usize,
    /// How many nodes it is for.
    pub nodes: usize,
}

/// A [`SyncCondition`] as the operator port shows it: in Kubernetes' sense, with all texts made.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// [`SyncCondition::TYPE`].
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the node is in sync.
    pub status: ConditionStatus,
    /// The state that tables and metrics count it under.
    pub state: SyncState,
    /// A stable code, which `muster help` explains.
    pub reason: String,
    /// Who has to do something.
    pub attention: Attention,
    /// Why, in words.
    pub message: String,
    /// What to do; absent when nothing is. A command in it stands in backticks, or it begins with one, up to
    /// its first semicolon or the end of the line.
    pub next_step: Option<String>,
    /// Since when the cause has held, where that is known.
    pub since: Option<Timestamp>,
    /// The comparison that it rests on, or that was the last.
    pub evidence: Option<Evidence>,
}

impl ConditionView {
    /// The condition of the node of this name.
    pub fn new(condition: &SyncCondition, node: &str) -> ConditionView {
        let cause = &condition.cause;
        ConditionView {
            kind: SyncCondition::TYPE.to_owned(),
            status: cause.status(),
            state: cause.state(),
            reason: cause.reason().to_owned(),
            attention: cause.attention(),
            message: cause.message(),
            next_step: cause.next_step(node),
            since: condition.since,
            evidence: cause.evidence().cloned(),
        }
    }
}

/// How synchronization of one node stands.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncView {
    /// Which.
    pub node: Hostname,
    /// Who is the source of truth: `managed`, `autonomous`, `off`.
    pub mode: Mode,
    /// How it stands, and why.
    pub condition: ConditionView,
    /// By how many changes of objects the node is behind.
    pub behind: u64,
    /// What carries its link; absent without one.
    pub link: Option<TransportKind>,
    /// Since when it has that link.
    pub linked_since: Option<Timestamp>,
    /// `online`, `promotable`, `unreachable`, `offline` (SYN-10, LIF-1).
    pub reach: String,
    /// Objects that go down.
    pub down: u64,
    /// Objects that came up.
    pub up: u64,
}

/// One page of [`SyncView`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SyncsView {
    /// In the order of hostnames.
    pub nodes: Vec<SyncView>,
    /// How many nodes are in each state, of all that were asked for; on the first page alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<SyncState, usize>,
    /// There are at least so many: not all nodes that may be meant were looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// The hostname to ask on from, when there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Hostname>,
}

impl Page for SyncsView {
    type Item = SyncView;

    fn next_page(&self) -> Option<String> {
        self.next.as_ref().map(ToString::to_string)
    }

    fn items(self) -> Vec<SyncView> {
        self.nodes
    }
}
