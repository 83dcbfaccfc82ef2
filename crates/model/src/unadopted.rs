//! [`UnadoptedRelease`]: why a node does not hold the release that it was offered (LIF-10, CNV-3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::node_conditions::MAX_CONDITION_TEXT;
use crate::text::bounded_line;

/// Why the release that was offered cannot be fetched or kept, while that is so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnadoptedRelease {
    /// Since when no release that was offered could be held, whichever it was and whatever failed: another cause or
    /// a newer release does not begin it anew.
    pub since: Timestamp,
    /// What failed.
    pub cause: UnadoptedCause,
    /// Why, in words on one line: at most 500 bytes.
    pub reason: String,
}

/// What of an adoption failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnadoptedCause {
    /// A content of it could not be fetched.
    Fetch,
    /// It could not be written to the node's disk.
    Keep,
    /// Something else, or a cause that a newer agent knows.
    #[serde(other)]
    Other,
}

impl UnadoptedRelease {
    /// With a reason within its bound and on one line: it may hold words of the control plane or of a proxy, which
    /// are not to look like lines of ours.
    pub fn new(since: Timestamp, cause: UnadoptedCause, reason: &str) -> UnadoptedRelease {
        let reason = bounded_line(reason, MAX_CONDITION_TEXT).into_owned();
        UnadoptedRelease { since, cause, reason }
    }

    /// The same within its bound, as a node says as much as it likes.
    pub(crate) fn bounded(&self) -> UnadoptedRelease {
        UnadoptedRelease::new(self.since, self.cause, &self.reason)
    }

    /// In words, without since when.
    pub fn text(&self) -> String {
        let what = match self.cause {
            UnadoptedCause::Fetch => "could not be fetched",
            UnadoptedCause::Keep => "could not be written to its disk",
            UnadoptedCause::Other => "could not be adopted",
        };
        format!("the release it is pointed to {what}: {}", self.reason)
    }
}
