//! `groups.yaml`: vars and observe for every node whose declared facts match, and names for
//! selectors.

use std::collections::{BTreeMap, BTreeSet};

use lang::Expr;

use super::vars::{self, Var};
use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Spanned, YamlNode};

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// What selectors call it, if it has a name.
    pub(crate) name: Option<Spanned<String>>,
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
pub(crate) fn read(reading: &mut Reading<'_>, root: &YamlNode) -> Vec<Group> {
    let mut keys = reading.keys(root, "groups.yaml", "groups.yaml");
    let groups = keys.read("groups", |node| reading.list(node, "groups"));
    keys.end(reading);
    let groups: Vec<Group> = groups.iter().filter_map(|item| group(reading, item)).collect();
    twice(reading, &groups);
    groups
}

/// A name that two groups have.
fn twice(reading: &mut Reading<'_>, groups: &[Group]) {
    let mut known: BTreeMap<&str, At> = BTreeMap::new();
    for name in groups.iter().filter_map(|group| group.name.as_ref()) {
        if let Some(first) = known.insert(&name.value, name.at) {
            reading
                .error("E008", name.at, format!("the group `{}` is declared twice", name.value))
                .help("join the two conditions with `or`")
                .label(first, "first here");
        }
    }
}

fn group(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Group> {
    let mut keys = reading.keys(node, "a group", "a group");
    let name = keys.read("name", |node| reading.text(node, "a group's name"));
    let name = name.filter(|name| reading.name(&name.value, name.at, "a group"));
    let help = "say which nodes are meant, as in `where: labels.region == \"eu\"`";
    let condition_node = keys.needed(reading, "where", (node.at, "a group"), help);
    let before = reading.sink.count();
    let condition = condition_node
        .and_then(|node| exprs::condition(reading, node, ExprSite::Group, None))
        .filter(|_| reading.sink.count() == before);
    let vars = keys.read("vars", |node| vars::read(reading, node, "vars"));
    let observe = keys.read("observe", |node| reading.bool(node, "observe")).unwrap_or(false);
    for (key, _) in ["roles", "modules"].into_iter().filter_map(|key| keys.refused(key)) {
        let message = format!("a group has no `{}`: roles and modules come from the node entry", key.value);
        reading.error("E015", key.at, message).help("name them in nodes.yaml");
    }
    keys.end(reading);
    let (condition, at) = (condition?, condition_node?.at);
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
    Some(Group { name, condition, at, vars, observe, labels, assumed })
}
