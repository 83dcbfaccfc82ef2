//! Who is the source of truth, and at which end of a link one stands (SYN-5).

pub use model::replication::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The control plane.
    Principal,
    /// The node.
    Agent,
}

impl Role {
    /// The other end.
    pub fn other(self) -> Role {
        match self {
            Role::Principal => Role::Agent,
            Role::Agent => Role::Principal,
        }
    }
}
