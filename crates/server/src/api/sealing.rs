//! Messages about the keys that nodes' secrets are sealed for (SEC-1).

use model::Hostname;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::sealing::RelayedStatement;

use super::MAX_PAGE;
use super::operation::Operation;

/// What nodes say of the keys that their secrets are sealed for.
pub static SEALING_KEYS: Operation<SealingKeysOf, SealingKeys> = Operation::post("/v1/sealing-keys").reads();
/// The most nodes in one question.
pub const MAX_SEALING_KEYS: usize = MAX_PAGE;

/// Nodes that are asked for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SealingKeysOf {
    /// By hostname, at most [`MAX_SEALING_KEYS`].
    pub nodes: Vec<Hostname>,
}

/// The answer to [`SealingKeysOf`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SealingKeys {
    /// What those of them signed that are enrolled and said so, unverified: each counts by the key that the fleet repo
    /// declares for its node, and by that alone.
    pub statements: Vec<RelayedStatement>,
}
