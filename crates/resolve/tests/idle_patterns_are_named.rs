//! SYN-5, OPS-2: a pattern of `sync:` or `delegations:` that no declared node matches is right, and is named: it may be
//! a slip of the pen.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::right;
use resolve::Tree;

const FLEET: &str = "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n";

fn idle(nodes: &str, delegated: &str) -> Vec<String> {
    let fleet = format!(
        "{FLEET}sync:\n  apps: {{nodes: [\"edge-*\"], mode: managed, kinds: [Application]}}\ndelegations:\n  ops: \
         {{nodes: {delegated}, queries: [traits]}}\n"
    );
    let tree = Tree::of([("fleet.yaml", fleet.as_str()), ("nodes.yaml", nodes)]);
    right(&tree).idle_patterns().iter().map(ToString::to_string).collect()
}

#[test]
fn a_pattern_that_takes_no_declared_node_is_named_with_its_entry() {
    let nodes = "nodes:\n  - match: [a.t]\n  - match: [\"web-*\"]\n    except: [\"web-9\"]\n";
    let sync = "fleet.yaml:6: `edge-*` of `sync` `apps` matches no declared node";
    let of =
        |pattern: &str| format!("fleet.yaml:8: `{pattern}` of `delegations` `ops` matches no declared node");
    assert_eq!(
        idle(nodes, "[\"web-1\", \"wbe-*\", a.t, b.t, \"*-1\", \"web-9\", \"*.t\"]"),
        [sync.to_owned(), of("wbe-*"), of("b.t"), of("web-9")]
    );
}

#[test]
fn what_is_for_every_node_or_cannot_be_told_is_not_named() {
    let patterns = "nodes:\n  - match: [\"edge-*.t\", edge-1]\n";
    assert_eq!(idle(patterns, "[\"/db[0-9]/\"]"), [""; 0], "a regular expression beside a pattern");
    assert_eq!(idle(patterns, "[\"**\"]"), [""; 0]);
    let named = "nodes:\n  - match: [edge-1]\n";
    assert_eq!(idle(named, "[\"/edge-[0-9]/\"]"), [""; 0]);
    assert_eq!(
        idle(named, "[\"/db[0-9]/\"]"),
        ["fleet.yaml:8: `/db[0-9]/` of `delegations` `ops` matches no declared node"]
    );
}
