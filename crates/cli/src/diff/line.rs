//! [`Line`]: what a difference is named by.

use std::fmt;

use serde::{Serialize, Serializer};

/// What the line of a module begins with.
pub(super) const MODULE: &str = "module ";

/// A resource, module or grant in a difference, with what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// `module/type:name`, `module NAME`, or `delegation NAME: what it allows`.
    pub id: String,
    /// What becomes of it.
    pub note: Option<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.note {
            Some(note) => write!(f, "{}  {note}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
