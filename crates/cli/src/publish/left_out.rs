//! [`left_out`]: the nodes that have an entry in what is published, and none in what is to be.
//!
//! A node without an entry keeps what it holds and gets nothing new: whoever publishes is to know whom that is of.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Selection;
use model::selection::PatternEntry;
use serde::Serialize;
use server::api;
use server::api::operation::Page;

use crate::diff::Rules;
use crate::operator::{Operator, OperatorCallError};
use crate::whom::{nodes, some_of};

/// So many are named.
const MAX_NAMED: usize = 10;

/// Nodes that have an entry now and get none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// How many there are.
    pub count: usize,
    /// The first of them, by hostname.
    pub first: Vec<Arc<str>>,
}

impl LeftOut {
    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What becomes of whom; empty where there is none.
    pub(super) fn phrase(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let (get, keep) = if self.count == 1 { ("gets", "keeps") } else { ("get", "keep") };
        let names = some_of(&self.first, self.count);
        format!("{} {get} no entry any more and {keep} what is there: {names}", nodes(self.count))
    }
}

/// Which nodes are left out: of those named exactly that went, and of the enrolled ones of patterns that went.
///
/// # Errors
/// When the control plane cannot be asked.
pub(super) async fn left_out(
    operator: &Operator,
    went: impl IntoIterator<Item = Arc<str>>,
    old: &[PatternEntry],
    new: &Selection,
) -> Result<LeftOut, OperatorCallError> {
    let (was, is) = (Rules::read(old), Rules::read(new.patterns()));
    let has = |name: &str| new.exact().get(name).is_some() || is.find(name).is_some();
    let mut names: BTreeSet<Arc<str>> = went.into_iter().filter(|name| !has(name)).collect();
    let takes = |entry: &PatternEntry| (entry.pattern.clone(), entry.except.clone());
    let stay: BTreeSet<_> = new.patterns().iter().map(takes).collect();
    for pattern in old.iter().filter(|entry| !stay.contains(&takes(entry))) {
        let mut pages = operator.pages(&api::NODES, Some(pattern.pattern.as_str()));
        while let Some(page) = pages.next().await? {
            let enrolled = page.items().into_iter().map(|node| node.hostname);
            let left = enrolled.filter(|name| was.find(name.as_str()).is_some() && !has(name.as_str()));
            names.extend(left.map(|name| Arc::from(name.as_str())));
        }
    }
    Ok(LeftOut { count: names.len(), first: names.into_iter().take(MAX_NAMED).collect() })
}
