//! CFG-2: a group that no node is in is right, and is named with the values that its labels have: it may
//! be a slip of the pen.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::right;
use resolve::Tree;

const FLEET: &str = "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n";
const NODES: &str = "nodes:\n  - match: [a.t]\n    labels: {site: berlin}\n  - match: [\"web-*\"]\n    \
                     labels: {site: lab}\n";

fn idle(groups: &str) -> Vec<String> {
    let tree = Tree::of([("fleet.yaml", FLEET), ("nodes.yaml", NODES), ("groups.yaml", groups)]);
    right(&tree).idle_groups().iter().map(ToString::to_string).collect()
}

#[test]
fn a_value_that_no_node_has_is_named_with_those_that_are_there() {
    let groups = "groups:\n  - name: north\n    where: labels.site == \"berlni\"\n  - name: labs\n    where: \
                  labels.site == \"lab\"\n";
    assert_eq!(
        idle(groups),
        [
            "groups.yaml:3: no node is in the group `north`: `labels.site == \"berlni\"`; labels.site is berlin, lab on nodes"
        ]
    );
}

#[test]
fn what_matches_an_exact_name_or_a_pattern_is_not_idle() {
    let groups = "groups:\n  - where: labels.site == \"berlin\"\n  - where: labels.site == \"lab\"\n";
    assert_eq!(idle(groups), Vec::<String>::new());
}
