//! [`NodeConditions`]: what a node says of itself in each check-in while something is the matter. A control plane keeps
//! it with the node, so that a restart changes neither its status nor its causes (CNV-3).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::exchange::{CheckIn, HeldFreshness};
use crate::text::bounded_line;
use crate::unadopted::UnadoptedRelease;

/// The longest text that is kept of a condition or of a refusal, in bytes; each is on one line.
pub const MAX_CONDITION_TEXT: usize = 500;

/// What a node says is the matter with what it goes by. The default is that nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeConditions {
    /// What it holds is not fresh, or is stale; `None` while it is neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freshness: Option<HeldFreshness>,
    /// The code of why it does not follow newer trust documents (IDN-8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_trust: Option<Box<str>>,
    /// Why it could not renew its certificate (IDN-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal_failure: Option<Box<str>>,
    /// Why it does not adopt the release that it is pointed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unadopted: Option<UnadoptedRelease>,
}

impl NodeConditions {
    /// What a check-in says. A node says as much as it likes, so each text is cut at [`MAX_CONDITION_TEXT`].
    pub fn of(request: &CheckIn) -> NodeConditions {
        // A code is lower-case words with `-` between; it is shown to operators.
        let code = |text: &str| line(text).chars().filter(|c| c.is_ascii_lowercase() || *c == '-').collect();
        NodeConditions {
            freshness: request.freshness.filter(HeldFreshness::is_notable),
            refused_trust: request.trust.as_ref().and_then(|held| held.refused.as_deref()).map(code),
            renewal_failure: request.renewal_failure.as_deref().map(|why| line(why).into()),
            unadopted: request.unadopted.as_ref().map(UnadoptedRelease::bounded),
        }
    }
}

fn line(text: &str) -> Cow<'_, str> {
    bounded_line(text, MAX_CONDITION_TEXT)
}
