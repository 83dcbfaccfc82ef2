//! Messages about hosts that ask to join, and about copies of nodes (ENR-9, IDN-10).

use model::{Hostname, JoinDecision, JoinState, NodeId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::{Empty, Operation};
use super::{NodeName, NodeView};

/// The hosts that ask to join and wait, were approved, or were denied; the oldest first.
pub static JOINS: Operation<Empty, JoinsView> = Operation::get("/v1/joins");
/// Lets a host in that asks to join; it gets its certificate when it asks again.
pub static APPROVE_JOIN: Operation<JoinName, JoinView> = Operation::post("/v1/joins/{join}/approve");
/// Refuses a key until it is forgotten.
pub static DENY_JOIN: Operation<JoinName, JoinView> = Operation::post("/v1/joins/{join}/deny");
/// Forgets a key, whatever was decided of it: it may ask anew.
pub static FORGET_JOIN: Operation<JoinName, JoinView> = Operation::delete("/v1/joins/{join}");
/// Says that one host alone holds a node's key from now on.
pub static RESOLVE_COPY: Operation<NodeName, NodeView> =
    Operation::post("/v1/nodes/{node}/resolve-copy").in_scope();

/// A host that asks to join, by its hostname, the id of the node that it would be, or its key's fingerprint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JoinName {
    /// Its name.
    pub join: String,
    /// The fingerprint that its key must have; absent: whichever it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Hosts that ask to join.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JoinsView {
    /// The oldest first.
    pub joins: Vec<JoinView>,
}

/// A host that asks to join.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinView {
    /// The id of the node that it would be.
    pub id: NodeId,
    /// The hostname that it asks for.
    pub hostname: Hostname,
    /// The fingerprint of its key, as `muster-agent fingerprint` prints it there.
    pub fingerprint: String,
    /// The address that it first asked from.
    pub address: String,
    /// When it first asked.
    pub since: Timestamp,
    /// When it last asked, or the control plane's start.
    pub heard: Timestamp,
    /// How it stands.
    pub state: JoinState,
    /// What was decided of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<JoinDecision>,
    /// It came with a group token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
}
