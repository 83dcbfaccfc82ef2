//! `groups.yaml`: vars and observe for every node whose declared facts match.

use std::collections::BTreeSet;

use lang::Expr;

use super::vars::{self, Var};
use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Kind, Node};

const KEYS: [&str; 3] = ["where", "vars", "observe"];

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) condition: Expr,
    pub(crate) at: At,
    pub(crate) vars: Vec<Var>,
    pub(crate) observe: bool,
    /// The labels that the condition looks at.
    pub(crate) labels: BTreeSet<String>,
    /// Those of them that read as an empty text on a node that has no such label: the ones
    /// that no `default` or `is defined` guards.
    pub(crate) assumed: BTreeSet<String>,
}

/// Reads `groups.yaml`.
pub(crate) fn read(reading: &mut Reading<'_>, root: &Node) -> Vec<Group> {
    let mut groups = Vec::new();
    for (key, node) in reading.map(root, "groups.yaml") {
        match key.value.as_str() {
            "groups" => {
                groups =
                    reading.list(node, "groups").iter().filter_map(|item| group(reading, item)).collect();
            }
            _ => reading.unknown_key(key, &["groups"], "groups.yaml"),
        }
    }
    groups
}

fn group(reading: &mut Reading<'_>, node: &Node) -> Option<Group> {
    let (mut condition, mut at, mut found, mut observe, mut said) = (None, node.at, Vec::new(), false, false);
    for (key, value) in reading.map(node, "a group") {
        match key.value.as_str() {
            "where" => {
                said = true;
                at = value.at;
                let before = reading.sink.count();
                condition = exprs::condition(reading, value, ExprSite::Group, None)
                    .filter(|_| reading.sink.count() == before);
            }
            "vars" => found = vars::read(reading, value, "vars"),
            "observe" => observe = reading.bool(value, "observe").unwrap_or(false),
            "roles" | "modules" => {
                reading
                    .error(
                        "E015",
                        key.at,
                        format!("a group has no `{}`: roles and modules come from the node entry", key.value),
                    )
                    .help("name them in nodes.yaml");
            }
            _ => reading.unknown_key(key, &KEYS, "a group"),
        }
    }
    if !said && matches!(node.kind, Kind::Map(_)) {
        reading.missing_key(
            node.at,
            "a group",
            "where",
            "say which nodes are meant, as in `where: labels.region == \"eu\"`",
        );
    }
    let condition = condition?;
    let (mut labels, mut assumed) = (BTreeSet::new(), BTreeSet::new());
    for used in condition.names() {
        let Some(label) = used.path.strip_prefix(&["labels".to_owned()]).and_then(|rest| rest.first()) else {
            continue;
        };
        labels.insert(label.clone());
        if !used.guarded {
            assumed.insert(label.clone());
        }
    }
    Some(Group { condition, at, vars: found, observe, labels, assumed })
}
