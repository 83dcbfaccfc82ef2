//! [`AgentInstance`]: which run of which agent speaks, so that two holders of one key are told apart (IDN-10).
//!
//! Each start of an agent has an id of its own, and names the id of the start before it, which its state directory keeps.
//! So the starts of one agent are a chain. A copy of a disk goes on from where it was copied: the chain forks, and a
//! start that another one replaced comes back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest id of an instance that counts, in bytes.
pub const MAX_INSTANCE: usize = 128;

/// One start of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentInstance {
    /// Random; the same in all that this process sends.
    pub id: String,
    /// The id of the start before it on the same state directory; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
