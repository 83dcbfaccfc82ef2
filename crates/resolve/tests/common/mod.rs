//! Small fleets for tests.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use catalog::module::Params;
use resolve::{Fleet, Tree, check, render};

/// A fleet with one channel and one module, `app`, whose params are given.
pub fn fleet_with(params: &str) -> Tree {
    Tree::of([
        (
            "fleet.yaml",
            "format: 1\nname: t\nchannels: {stable: {freshness: 24h}, slow: {freshness: 7d}}\ndefaults: {channel: stable}\n",
        ),
        ("environments.yaml", "environments: {production: {}, staging: {}}\n"),
        ("roles/app.yaml", "modules: [app]\n"),
        ("nodes.yaml", "nodes:\n  - match: [a.t]\n    roles: [app]\n"),
        ("modules/app/module.yaml", &format!("params:\n{params}")),
    ])
}

/// The tree with some files set.
pub fn with<'t>(mut tree: Tree, files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Tree {
    tree.files.extend(Tree::of(files).files);
    tree
}

/// The fleet, which must be right.
pub fn right(tree: &Tree) -> Fleet {
    match check(tree) {
        Ok(fleet) => fleet,
        Err(found) => panic!("{}", render(&found, tree)),
    }
}

/// The codes of all mistakes, in order.
pub fn codes(tree: &Tree) -> Vec<&'static str> {
    check(tree).err().unwrap_or_default().iter().map(|found| found.code).collect()
}

/// What a node gets.
pub fn params(fleet: &Fleet, node: &str) -> Params {
    fleet.specialize().node(node).expect("no such node").read_params().expect("canonical")
}
