//! [`AgentCapabilities`]: what an agent says that it is and can do, with its first call (ENR-5).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::exchange::{Signature, Signed};
use crate::text::bounded_line;

/// The most hooks that an agent names, and that are kept.
pub const MAX_HOOKS: usize = 64;
/// The most built-in actions that are kept.
pub const MAX_BUILTINS: usize = 64;
/// The longest statement of a sealing key, in bytes.
pub const MAX_SEALING_STATEMENT: usize = 1024;
/// The longest text of these that is kept, in bytes.
const MAX_TEXT: usize = 256;

/// What an agent says of itself. It is the node's word: shown and relayed, and the control plane trusts it with nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// Its version.
    pub version: String,
    /// SHA-256 of the program as it lies on the disk; absent where that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Digest>,
    /// What it can be asked for without a program of the host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builtins: Vec<String>,
    /// The programs that the held release delegates by their exact path, each with the SHA-256 of what lies there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<String, Digest>,
    /// For which key the node's secrets are sealed, signed by its identity (`trust::sealing::SealingStatement`): the
    /// control plane relays it, and whoever publishes verifies it by the key that the fleet repo declares (SEC-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing_key: Option<Signed>,
}

impl AgentCapabilities {
    /// What is kept of what a node says: within its bounds, each text on one line.
    pub fn bounded(&self) -> AgentCapabilities {
        let clip = |text: &String| bounded_line(text, MAX_TEXT).into_owned();
        AgentCapabilities {
            version: clip(&self.version),
            checksum: self.checksum,
            builtins: self.builtins.iter().take(MAX_BUILTINS).map(clip).collect(),
            hooks: self.hooks.iter().take(MAX_HOOKS).map(|(path, digest)| (clip(path), *digest)).collect(),
            sealing_key: self.sealing_key.clone().filter(is_small),
        }
    }
}

/// Whether a statement is within its bounds: one signature of it is made.
fn is_small(statement: &Signed) -> bool {
    let is_short = |sig: &Signature| sig.key.len() <= MAX_TEXT && sig.sig.len() <= MAX_TEXT;
    statement.payload.len() <= MAX_SEALING_STATEMENT
        && statement.signatures.len() == 1
        && statement.signatures.iter().all(is_short)
}

/// A version of an agent or a control plane, as far as versions are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseVersion(pub u32, pub u32, pub u32);

impl ReleaseVersion {
    /// Reads `MAJOR.MINOR.PATCH`; what follows a `-` or `+` is left out of comparisons.
    pub fn parse(text: &str) -> Option<ReleaseVersion> {
        let core = text.split(['-', '+']).next()?;
        let mut parts = core.splitn(3, '.').map(|part| part.parse().ok());
        Some(ReleaseVersion(parts.next()??, parts.next()??, parts.next()??))
    }
}

impl std::fmt::Display for ReleaseVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}
