//! [`Whom`]: the nodes that an entry of `sync:` or `delegations:` is for.

use lang::Pattern;

use super::nodes::{self, PatternItem};
use crate::shape::Reading;
use crate::yaml::YamlNode;

/// The most patterns of one entry.
const MAX_ITEMS: usize = 64;

/// Patterns of hostnames; every node where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whom {
    items: Vec<Named>,
    /// What was written cannot be read, so no node is known to be meant.
    broken: bool,
}

/// A pattern with the text that every matching name begins and ends with: most names are told
/// apart by that alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    item: PatternItem,
    head: String,
    tail: String,
}

impl Whom {
    /// Whether a node of that name is meant.
    pub(crate) fn has(&self, name: &str) -> bool {
        let takes = |named: &Named| {
            name.starts_with(&named.head) && name.ends_with(&named.tail) && named.item.pattern.matches(name)
        };
        self.is_all() || self.items.iter().any(takes)
    }

    /// Every node is meant.
    pub(crate) fn is_all(&self) -> bool {
        self.items.is_empty() && !self.broken
    }

    /// What was written; nothing where every node is meant.
    pub(crate) fn items(&self) -> impl Iterator<Item = &PatternItem> {
        self.items.iter().map(|named| &named.item)
    }

    /// The patterns.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.items().map(|item| &item.pattern)
    }
}

/// Reads `nodes:`.
pub(crate) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> Whom {
    let before = reading.sink.count();
    let items = nodes::patterns(reading, node, "nodes");
    if let Some(over) = items.get(MAX_ITEMS) {
        reading
            .error("E099", over.at, format!("more than {MAX_ITEMS} patterns of nodes"))
            .help("join some into one pattern");
    }
    if before == reading.sink.count() && items.iter().any(|item| item.pattern.as_str() == "**") {
        return Whom::default();
    }
    let broken = reading.sink.count() != before;
    Whom { items: items.into_iter().map(named).collect(), broken }
}

fn named(item: PatternItem) -> Named {
    let text = item.pattern.as_str();
    let plain = |c: &char| !matches!(c, '*' | '?');
    let (head, tail) = if text.starts_with('/') {
        (String::new(), String::new())
    } else {
        let tail: Vec<char> = text.chars().rev().take_while(plain).collect();
        (text.chars().take_while(plain).collect(), tail.into_iter().rev().collect())
    };
    Named { item, head, tail }
}
