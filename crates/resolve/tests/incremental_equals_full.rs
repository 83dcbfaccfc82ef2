//! CFG-1: whatever was edited in whatever order, the resolver says what a check of the
//! whole tree says: the same nodes, the same patterns, the same mistakes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{fleet_with, with};
use proptest::prelude::*;
use resolve::{Fleet, RepoFile, Resolver, Tree, check};

/// Every file that an edit may set, with the texts that it may hold: right ones and broken
/// ones, ones that others refer to and ones that take references away.
fn choices() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        (
            "nodes.yaml",
            vec![
                "nodes:\n  - match: [a.t]\n    roles: [app]\n",
                "nodes:\n  - match: [a.t, b.t]\n    roles: [app]\n    vars: {app.x: b}\n  - match: [\"web-*.t\"]\n    roles: [app]\n    labels: {site: north}\n",
                "# moved\nnodes:\n  - match: [a.t, b.t]\n    roles: [app]\n  - match: [\"web-*.t\"]\n    owner: me\n    roles: [app]\n",
                "nodes:\n  - match: [\"web-*.t\"]\n    except: [web-2.t]\n    environment: staging\n    roles: [app]\n    environment_overrides: {staging: {vars: {app.x: over}}}\n",
                "nodes: [",
            ],
        ),
        (
            "nodes/one.yaml",
            vec![
                "nodes:\n  - match: [c.t, web-1.t]\n    labels: {site: south}\n",
                "nodes:\n  - match: [d.t, c.t]\n    roles: [app]\n    conditional_vars:\n      - when: vars.app.x == \"y\" and node.labels.site == \"north\"\n        vars: {app.x: z}\n",
                "nodes:\n  - match: [a.t]\n  - match: [e.t]\n    roles: [nope]\n",
            ],
        ),
        (
            "nodes/two.yaml",
            vec![
                "nodes:\n  - match: [\"**.t\"]\n    roles: [app]\n    labels: {site: north}\n",
                "nodes:\n  - match: [c.t]\n  - match: [web-2.t]\n    roles: [app]\n    vars: {app.x: two}\n",
            ],
        ),
        (
            "hosts/a.t.yaml",
            vec!["vars: {app.x: host}\n", "labels: {site: west}\n", "roles: []\n", "vars: {app.z: 1}\n"],
        ),
        ("hosts/web-1.t.yaml", vec!["environment: staging\n", "vars: {app.x: ${{ node.hostname }}}\n"]),
        ("hosts/web-2.t.yaml", vec!["owner: host\n", "modules: [extra]\n"]),
        (
            "groups.yaml",
            vec![
                "groups:\n  - where: labels.site == \"north\"\n    vars: {app.x: north}\n",
                "groups:\n  - where: environment == \"staging\" or owner == \"me\"\n    observe: true\n",
            ],
        ),
        (
            "roles/app.yaml",
            vec!["modules: [app]\n", "modules: [app]\nvars: {app.x: role}\n", "modules: [app, extra]\n"],
        ),
        (
            "environments.yaml",
            vec![
                "environments: {production: {}, staging: {}}\n",
                "environments: {staging: {vars: {app.x: staging}}}\n",
            ],
        ),
        (
            "modules/app/module.yaml",
            vec![
                "params: {x: y}\n",
                "params: {x: y}\nresources:\n  - file: /etc/motd\n    content: ${{ params.x }}\n",
                "params: {x: {type: string, required: true}}\n",
                "params: {x: {type: int, default: 1}}\n",
                "params: {x: y}\nresources:\n  - file: motd\n",
            ],
        ),
        (
            "modules/extra/module.yaml",
            vec![
                "resources: []\n",
                "resources:\n  - file: /etc/motd\n    content: other\n",
                "depends_on: [app]\nresources:\n  - file: /etc/extra\n    content: ${{ vars.app.x }}\n",
            ],
        ),
        (
            "modules/app/templates/t.j2",
            vec!["{{ params.x }}\n", "{{ params.q }}\n", "{{ node.labels.site }}"],
        ),
        (
            "fleet.yaml",
            vec![
                "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n",
                "format: 1\nname: t\nchannels: {stable: {freshness: 24h, observe: true}}\ndefaults: {channel: stable}\nvars: {app.x: fleet}\n",
                "format: 1\nname: t\nchannels: {stable: {freshness: 24h, transport: stream}}\ndefaults: {channel: stable}\nsync:\n  lab: {nodes: [\"web-2.t\", c.t], mode: \"off\"}\n  web: {nodes: [\"web-*.t\"], mode: managed, kinds: [App]}\n",
                "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\ndelegations:\n  ops: {nodes: [\"web-1*.t\", a.t], commands: [/usr/bin/uptime]}\n  all: {queries: [traits]}\n",
                "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\ndelegations:\n  one: {nodes: [\"web-*.t\"], actions: {go: {command: [/bin/a]}}}\n  two: {nodes: [c.t, web-1.t, e.t], actions: {go: {command: [/bin/b]}}}\n",
            ],
        ),
    ]
}

/// Sets some files to one of their texts, or takes them away.
fn edits() -> impl Strategy<Value = Vec<Vec<(usize, Option<usize>)>>> {
    let one = (0..choices().len(), proptest::option::weighted(0.85, 0..8usize));
    proptest::collection::vec(proptest::collection::vec(one, 1..3), 1..14)
}

/// All that a fleet says, in a form that compares.
fn all(fleet: &Fleet) -> impl PartialEq + std::fmt::Debug {
    let s = fleet.specialize();
    let exact: Vec<_> = s.exact.iter().map(|(name, spec)| (name.to_string(), spec.clone())).collect();
    let modules: Vec<_> = s.modules.iter().map(|(name, shared)| (name.clone(), shared.digest)).collect();
    (fleet.name().to_owned(), exact, s.patterns.clone(), modules, s.channels.clone(), s.blobs.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_update_says_what_a_check_says(steps in edits()) {
        let choices = choices();
        let mut tree = with(fleet_with("  x: y\n"), [("modules/extra/module.yaml", "resources: []\n")]);
        let mut resolver = Resolver::new();
        let whole = tree.files.iter().map(|(path, bytes)| (path.clone(), Some(bytes.clone()))).collect();
        let mut last = resolver.update(whole).expect("the first tree is right").0;
        for step in steps {
            let mut changes: BTreeMap<String, Option<RepoFile>> = BTreeMap::new();
            for (file, text) in step {
                let (path, texts) = &choices[file];
                let bytes: Option<RepoFile> = text.map(|text| texts[text % texts.len()].as_bytes().into());
                match &bytes {
                    Some(bytes) => tree.files.insert((*path).to_owned(), bytes.clone()),
                    None => tree.files.remove(*path),
                };
                changes.insert((*path).to_owned(), bytes);
            }
            prop_assert_eq!(&resolver_tree(&resolver, &changes), &tree);
            match (resolver.update(changes), check(&tree)) {
                (Ok((fleet, changed)), Ok(whole)) => {
                    prop_assert_eq!(all(&fleet), all(&whole));
                    let (old, new) = (last.specialize(), fleet.specialize());
                    let names: std::collections::BTreeSet<_> = old.exact.keys().chain(new.exact.keys()).collect();
                    let differ: Vec<_> = names.into_iter().filter(|name| old.exact.get(*name) != new.exact.get(*name)).cloned().collect();
                    prop_assert_eq!(changed.hostnames, differ);
                    prop_assert_eq!(changed.patterns, old.patterns != new.patterns);
                    last = fleet;
                }
                (Err(ours), Err(whole)) => {
                    prop_assert_eq!(ours, whole);
                    prop_assert!(Arc::ptr_eq(resolver.fleet().unwrap(), &last));
                }
                (ours, whole) => prop_assert!(false, "{:?} and {:?}", ours.err(), whole.err()),
            }
        }
    }
}

/// The tree that the resolver will have after the changes.
fn resolver_tree(resolver: &Resolver, changes: &BTreeMap<String, Option<RepoFile>>) -> Tree {
    let mut tree = resolver.tree();
    for (path, bytes) in changes {
        match bytes {
            Some(bytes) => tree.files.insert(path.clone(), bytes.clone()),
            None => tree.files.remove(path),
        };
    }
    tree
}

/// Edits one after the other; each time both must say the same.
fn walk(steps: &[(&str, &str)]) {
    let mut tree = with(fleet_with("  x: y\n"), [("nodes.yaml", "nodes: []\n")]);
    let mut resolver = Resolver::new();
    resolver
        .update(tree.files.iter().map(|(path, bytes)| (path.clone(), Some(bytes.clone()))).collect())
        .unwrap();
    for (path, text) in steps {
        tree = with(tree, [(*path, *text)]);
        let ours = resolver.update(BTreeMap::from([((*path).to_owned(), Some(text.as_bytes().into()))]));
        match (ours, check(&tree)) {
            (Ok((ours, _)), Ok(whole)) => assert_eq!(all(&ours), all(&whole), "after {path}"),
            (ours, whole) => assert_eq!(ours.err(), whole.err(), "after {path}"),
        }
    }
}

#[test]
fn a_host_file_follows_the_pattern_that_classifies_it() {
    walk(&[
        ("nodes.yaml", "nodes:\n  - match: [\"web-*.t\"]\n    roles: [app]\n    vars: {app.x: one}\n"),
        ("hosts/web-1.t.yaml", "owner: me\n"),
        ("nodes.yaml", "nodes:\n  - match: [\"web-*.t\"]\n    roles: [app]\n    vars: {app.x: two}\n"),
        ("nodes/b.yaml", "nodes:\n  - match: [db.t]\n    roles: [app]\n"),
        ("hosts/db.t.yaml", "owner: you\n"),
        ("nodes/b.yaml", "nodes:\n  - match: [db.t]\n    owner: x\n"),
        ("nodes/b.yaml", "nodes: []\n"),
    ]);
}

#[test]
fn parts_of_a_pattern_stay_in_their_places() {
    let fleet = "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\ndelegations:\n  one: {nodes: [\"*-1.t\"], queries: [traits]}\n  two: {nodes: [\"*-2.t\"], queries: [traits]}\n";
    let web = |var: &str| {
        format!("nodes:\n  - match: [\"web-*.t\"]\n    roles: [app]\n    vars: {{app.x: {var}}}\n")
    };
    let db = |var: &str| {
        format!("nodes:\n  - match: [\"db-*.t\"]\n    roles: [app]\n    vars: {{app.x: {var}}}\n")
    };
    walk(&[
        ("fleet.yaml", fleet),
        ("nodes.yaml", &web("a")),
        ("nodes/db.yaml", &db("a")),
        ("nodes.yaml", &web("b")),
        ("nodes/db.yaml", &db("b")),
        ("hosts/db-1.t.yaml", "owner: me\n"),
        ("fleet.yaml", &fleet.replace("*-2.t", "**")),
        ("nodes/db.yaml", &db("c")),
    ]);
}

#[test]
fn places_in_mistakes_follow_lines_that_moved() {
    walk(&[
        ("nodes.yaml", "nodes:\n  - match: [\"web-*.t\"]\n"),
        ("nodes.yaml", "# one line down\nnodes:\n  - match: [\"web-*.t\"]\n"),
        ("nodes/b.yaml", "nodes:\n  - match: [web-1.t]\n"),
        ("nodes/b.yaml", "nodes:\n  - match: [web.t]\n"),
        ("roles/app.yaml", "# one line down\nmodules: [app]\nvars: {app.x: a}\n"),
        ("roles/b.yaml", "vars: {app.x: b}\n"),
        ("nodes/b.yaml", "nodes:\n  - match: [web.t]\n    roles: [app, b]\n"),
    ]);
}
