//! Hosts that ask to join: [`PendingJoin`], and what a node's key was confirmed by (ENR-9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Hostname, NodeId, Timestamp};

/// Who says that a node's key is that host's. The later ones say more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyConfirmation {
    /// Nobody: a token that names no key let it in.
    #[default]
    None,
    /// An operator approved it at the control plane, whose word that is.
    Operator,
    /// A token names it, which the organization's root key signed.
    Token,
    /// The fleet repo declares it, in a release that the release key signed.
    Declared,
}

impl KeyConfirmation {
    /// All of them.
    pub const ALL: [KeyConfirmation; 4] =
        [KeyConfirmation::None, KeyConfirmation::Operator, KeyConfirmation::Token, KeyConfirmation::Declared];

    /// Whether the node may get secrets by it. The control plane alone cannot make it so: an approval is its word, a
    /// token and a declaration are signed by keys that it does not hold.
    pub fn counts_for_secrets(self) -> bool {
        match self {
            KeyConfirmation::None | KeyConfirmation::Operator => false,
            KeyConfirmation::Token | KeyConfirmation::Declared => true,
        }
    }

    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyConfirmation::None => "none",
            KeyConfirmation::Operator => "operator",
            KeyConfirmation::Token => "token",
            KeyConfirmation::Declared => "declared",
        }
    }

    /// The confirmation of this text; one that this version does not know confirms nothing.
    pub fn named(text: &str) -> KeyConfirmation {
        KeyConfirmation::ALL.into_iter().find(|known| known.as_str() == text).unwrap_or_default()
    }
}

/// How a key stands that asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JoinState {
    /// It waits for an operator, without any access.
    Waiting,
    /// It was approved, and gets its certificate when it asks again.
    Approved,
    /// It was denied, and is refused until it is forgotten.
    Denied,
}

impl JoinState {
    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            JoinState::Waiting => "waiting",
            JoinState::Approved => "approved",
            JoinState::Denied => "denied",
        }
    }

    /// The state of this text; one that this version does not know waits.
    pub fn named(text: &str) -> JoinState {
        let known = [JoinState::Waiting, JoinState::Approved, JoinState::Denied];
        known.into_iter().find(|known| known.as_str() == text).unwrap_or(JoinState::Waiting)
    }
}

/// What an operator decided of a key that asks to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinDecision {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
}

/// A key that asked to join and is no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingJoin {
    /// The id of the node that it would be.
    pub node_id: NodeId,
    /// The hostname that it asks for; several keys may ask for one.
    pub hostname: Hostname,
    /// Its public key, in its text form.
    pub public_key: String,
    /// The address that it first asked from.
    pub address: String,
    /// The prefix of that address, by which joins are bounded.
    pub prefix: String,
    /// The nonce of the group token that it came with, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// When it first asked.
    pub since: Timestamp,
    /// How it stands.
    pub state: JoinState,
    /// What was decided of it; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<JoinDecision>,
}
