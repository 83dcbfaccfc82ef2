//! Tags that a run is limited to (CFG-7), as an operator requests it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::is_name;

/// The most tags that one request for a run names.
pub const MAX_RUN_TAGS: usize = 32;
/// The longest tag, in bytes.
pub const MAX_TAG: usize = 64;

/// A request for a run of what has one of these tags, and of what that notifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaggedRun {
    /// The request's number; a later one is higher.
    pub number: u64,
    /// 1 to [`MAX_RUN_TAGS`] tags.
    pub tags: BTreeSet<String>,
}

/// Why tags are not those of a request for a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunTagsError {
    /// There is none.
    #[error("no tag is named")]
    None,
    /// There are more than a request may name.
    #[error("{0} tags are named, and a request for a run names at most {MAX_RUN_TAGS}")]
    TooMany(usize),
    /// A resource cannot have it.
    #[error(
        "`{0}` cannot be a tag: a tag has lower-case letters, digits, - and _, at most {MAX_TAG}, \
         and begins with a letter or digit"
    )]
    NotATag(String),
}

/// Refuses what no resource can have as a tag, and more tags than a request may name.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_run_tags(tags: &BTreeSet<String>) -> Result<(), RunTagsError> {
    match tags.len() {
        0 => return Err(RunTagsError::None),
        1..=MAX_RUN_TAGS => {}
        more => return Err(RunTagsError::TooMany(more)),
    }
    match tags.iter().find(|tag| tag.len() > MAX_TAG || !is_name(tag)) {
        Some(tag) => Err(RunTagsError::NotATag(tag.chars().take(MAX_TAG).collect())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_tag_and_too_many_are_refused() {
        let set = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<BTreeSet<_>>();
        let long = "a".repeat(MAX_TAG);
        assert_eq!(check_run_tags(&set(&["web", "db-2", "0_x", &long])), Ok(()));
        assert_eq!(check_run_tags(&set(&[])), Err(RunTagsError::None));
        for wrong in ["", "Web", "we b", "-web", "web,db", "wéb", "web\n", &"a".repeat(MAX_TAG + 1)] {
            let refused = check_run_tags(&set(&["web", wrong]));
            assert!(matches!(refused, Err(RunTagsError::NotATag(tag)) if tag.len() <= MAX_TAG), "{wrong:?}");
        }
        let most: BTreeSet<String> = (0..MAX_RUN_TAGS).map(|n| format!("t{n}")).collect();
        assert_eq!(check_run_tags(&most), Ok(()));
        let more: BTreeSet<String> = (0..=MAX_RUN_TAGS).map(|n| format!("t{n}")).collect();
        assert_eq!(check_run_tags(&more), Err(RunTagsError::TooMany(MAX_RUN_TAGS + 1)));
    }
}
