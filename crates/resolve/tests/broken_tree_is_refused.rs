//! CFG-1: a broken tree is refused whole, with all mistakes, and what was right before
//! stays as it was.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{fleet_with, params, with};
use resolve::{MAX_SHOWN, RepoFile, Resolver, Tree, check};

type Changes = BTreeMap<String, Option<RepoFile>>;

fn all(tree: &Tree) -> Changes {
    tree.files.iter().map(|(path, bytes)| (path.clone(), Some(bytes.clone()))).collect()
}

fn set(path: &str, text: &str) -> Changes {
    BTreeMap::from([(path.to_owned(), Some(text.as_bytes().into()))])
}

#[test]
fn the_last_good_state_stays() {
    let mut resolver = Resolver::new();
    let (good, _) = resolver.update(all(&fleet_with("  x: default\n"))).unwrap();
    let broken = [
        set("nodes.yaml", "nodes: {"),
        set("modules/app/module.yaml", "params: {x: default}\nresources:\n  - file: relative\n"),
        set("fleet.yaml", "format: 9\n"),
        BTreeMap::from([("fleet.yaml".to_owned(), None)]),
    ];
    for changes in broken {
        assert!(!resolver.update(changes).unwrap_err().is_empty());
        assert!(Arc::ptr_eq(resolver.fleet().unwrap(), &good));
        assert_eq!(params(resolver.fleet().unwrap(), "a.t").modules, ["app"]);
    }
    // The broken changes are still there: repairing one of them is not enough.
    let tree = fleet_with("  x: default\n");
    assert!(resolver.update(set("nodes.yaml", "nodes:\n  - match: [b.t]\n    roles: [app]\n")).is_err());
    let rest = all(&tree).into_iter().filter(|(path, _)| path != "nodes.yaml").collect();
    let (fleet, changed) = resolver.update(rest).unwrap();
    assert!(fleet.specialize().node("a.t").is_none() && fleet.specialize().node("b.t").is_some());
    assert_eq!(changed.hostnames.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.t", "b.t"]);
    assert!(!changed.modules);
}

#[test]
fn mistakes_of_all_files_come_at_once_and_in_order() {
    let tree = with(
        fleet_with("  x: default\n"),
        [
            ("roles/app.yaml", "modules: [ap]\nvars: {ap.x: 1}\n"),
            ("groups.yaml", "groups: x\n"),
            ("nodes.yaml", "nodes:\n  - match: [a.t]\n    roles: [ap, app]\n    chanel: x\n"),
        ],
    );
    let found = check(&tree).unwrap_err();
    let places: Vec<(String, u32, &str)> = found
        .iter()
        .map(|d| d.span.as_ref().map(|s| (s.file.to_string(), s.line, d.code)).unwrap())
        .collect();
    let wanted = [
        ("groups.yaml", 1, "E014"),
        ("nodes.yaml", 3, "E040"),
        ("nodes.yaml", 4, "E015"),
        ("roles/app.yaml", 1, "E041"),
        ("roles/app.yaml", 2, "E044"),
    ];
    let wanted: Vec<_> = wanted.iter().map(|(file, line, code)| ((*file).to_owned(), *line, *code)).collect();
    assert_eq!(places, wanted);
}

#[test]
fn a_fleet_of_mistakes_shows_some_and_counts_the_rest() {
    let entries: String =
        (0..1000).map(|n| format!("  - match: [n{n}.t]\n    roles: [rolle{n}]\n")).collect();
    let found = check(&with(fleet_with("  x: default\n"), [("nodes.yaml", &*format!("nodes:\n{entries}"))]))
        .unwrap_err();
    assert_eq!(found.len(), MAX_SHOWN + 1);
    assert_eq!(found.last().unwrap().message, "800 more mistakes are not shown");
}

#[test]
fn nothing_at_all_is_no_fleet() {
    let found = check(&Tree::default()).unwrap_err();
    assert_eq!((found[0].code, found.len()), ("E020", 1));
}
