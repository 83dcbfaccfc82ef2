//! [`Query`]: the query part of a URL.

use wire::percent;

use crate::api::MAX_PAGE;

/// The query part of a URL; values are names and numbers, so nothing is escaped in it but
/// `%2F`, `%2A` and the like of patterns.
pub(super) struct Query<'a>(pub(super) &'a str);

impl Query<'_> {
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| percent::decode(value))
        };
        self.0.split('&').find_map(pair)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(super) fn limit(&self) -> usize {
        let asked = self.number("limit").and_then(|limit| usize::try_from(limit).ok());
        asked.unwrap_or(MAX_PAGE).min(MAX_PAGE)
    }
}
