//! To which node a manifest on the control plane belongs (SYN-8).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How manifests are mapped to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mapping {
    /// The namespace is the node's name.
    #[default]
    Namespace,
    /// `spec.destination.name` is the node's name, whatever the namespace.
    Destination,
}

/// The node that a manifest is for; `None` when it names none.
pub fn target(manifest: &Value, mapping: Mapping) -> Option<&str> {
    let name = match mapping {
        Mapping::Namespace => manifest.get("metadata")?.get("namespace")?,
        Mapping::Destination => manifest.get("spec")?.get("destination")?.get("name")?,
    };
    name.as_str().filter(|name| !name.is_empty())
}
