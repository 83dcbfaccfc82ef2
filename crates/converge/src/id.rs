//! [`ResourceId`]: what reports, the ledger and references call a resource.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// `module/type:name`, unique in a node's set. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceId(Arc<str>);

impl ResourceId {
    /// The id of a resource of a module.
    pub fn new(module: &str, kind: &str, name: &str) -> ResourceId {
        ResourceId([module, "/", kind, ":", name].concat().into())
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The module's name.
    pub fn module(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl From<&str> for ResourceId {
    fn from(text: &str) -> ResourceId {
        ResourceId(text.into())
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
