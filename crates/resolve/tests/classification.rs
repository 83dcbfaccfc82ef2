//! CFG-1: the first match classifies a node; exact names, globs, regular expressions,
//! exceptions and host files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{codes, fleet_with, params, right, with};
use resolve::{Tree, check, hostname};
use trust::nix::MAX_SET_PATHS;

fn nodes(text: &str) -> Tree {
    with(fleet_with("  x: default\n"), [("nodes.yaml", text)])
}

#[test]
fn the_first_match_wins() {
    let tree = nodes(
        "nodes:
  - {match: [web-7.t], owner: exact}
  - {match: [\"web-*.t\"], except: [\"web-lab-*.t\"], owner: glob}
  - {match: [\"/(web|db)-[a-z0-9-]+\\\\.t/\"], owner: regex}
  - {match: [\"**\"], owner: rest}
",
    );
    let fleet = right(&tree);
    let table = [
        ("web-7.t", "exact"),
        ("web-8.t", "glob"),
        ("web-lab-1.t", "regex"),
        ("db-1.t", "regex"),
        ("web-8.eu.t", "rest"),
        ("other.example.com", "rest"),
    ];
    for (name, owner) in table {
        assert_eq!(params(&fleet, name).node.owner.as_deref(), Some(owner), "{name}");
    }
}

#[test]
fn a_node_that_nothing_matches_is_unassigned() {
    let fleet = right(&nodes("nodes:\n  - match: [\"web-*.t\"]\n"));
    assert!(fleet.specialize().node("db-1.t").is_none());
    assert!(fleet.specialize().node("web-1.eu.t").is_none(), "a star stops at a dot");
}

#[test]
fn files_classify_in_their_order() {
    let tree = with(
        nodes("nodes:\n  - {match: [\"web-*.t\"], owner: first}\n"),
        [
            ("nodes/a.yaml", "nodes:\n  - {match: [\"**.t\"], owner: second}\n"),
            ("nodes/b.yaml", "nodes:\n  - {match: [\"**\"], owner: third}\n"),
        ],
    );
    let fleet = right(&tree);
    for (name, owner) in [("web-1.t", "first"), ("db.t", "second"), ("db.x", "third")] {
        assert_eq!(params(&fleet, name).node.owner.as_deref(), Some(owner));
    }
}

#[test]
fn an_exact_name_after_a_pattern_that_takes_it_is_an_error() {
    assert_eq!(codes(&nodes("nodes:\n  - match: [\"web-*.t\"]\n  - match: [web-1.t]\n")), ["E031"]);
    assert_eq!(codes(&nodes("nodes:\n  - match: [\"web-*.t\", web-1.t]\n")), ["E031"]);
    // An exception leaves the name to later entries.
    assert!(
        codes(&nodes("nodes:\n  - {match: [\"web-*.t\"], except: [web-1.t]}\n  - match: [web-1.t]\n"))
            .is_empty()
    );
    assert!(codes(&nodes("nodes:\n  - match: [web-1.t]\n  - match: [\"web-*.t\"]\n")).is_empty());
}

#[test]
fn a_host_file_is_laid_over_whatever_classifies_its_node() {
    let tree = with(
        nodes(
            "nodes:\n  - {match: [\"web-*.t\"], roles: [app], owner: glob}\n  - {match: [db.t], owner: exact}\n",
        ),
        [("hosts/web-1.t.yaml", "vars: {app.x: own}\n"), ("hosts/db.t.yaml", "owner: own\n")],
    );
    let fleet = right(&tree);
    let exact: Vec<&str> = fleet.specialize().exact.keys().map(|name| &**name).collect();
    assert_eq!(exact, ["db.t", "web-1.t"]);
    assert_eq!(params(&fleet, "web-1.t").node.owner.as_deref(), Some("glob"));
    assert_eq!(params(&fleet, "web-1.t").host_vars["app.x"], "own".into());
    assert!(params(&fleet, "web-2.t").host_vars.is_empty());
    assert_eq!(params(&fleet, "db.t").node.owner.as_deref(), Some("own"));
    assert_eq!(codes(&with(tree, [("hosts/mail.t.yaml", "owner: x\n")])), ["E033"]);
}

#[test]
fn modules_come_with_what_they_depend_on_and_go_when_excluded() {
    let tree = with(
        fleet_with("  x: default\n"),
        [
            ("modules/base/module.yaml", "resources: []\n"),
            ("modules/log/module.yaml", "depends_on: [base]\n"),
            ("modules/app/module.yaml", "depends_on: [log]\nparams: {x: y}\n"),
            (
                "nodes.yaml",
                "nodes:\n  - match: [\"*.t\"]\n    roles: [app]\n    modules: [extra]\n    environment: staging\n    environment_overrides:\n      staging: {exclude_modules: [extra]}\n",
            ),
            ("modules/extra/module.yaml", "params: {}\n"),
            ("hosts/b.t.yaml", "modules: [extra]\n"),
            ("hosts/c.t.yaml", "exclude_modules: [app]\n"),
        ],
    );
    let fleet = right(&tree);
    assert_eq!(params(&fleet, "a.t").modules, ["base", "log", "app"]);
    assert_eq!(params(&fleet, "b.t").modules, ["base", "log", "app", "extra"]);
    assert!(params(&fleet, "c.t").modules.is_empty());
}

#[test]
fn hostnames() {
    for good in ["a", "web-1.example.com", "0.t", "a--b"] {
        assert!(hostname(good).is_ok(), "{good}");
    }
    let long = "a".repeat(64);
    let longer = format!("{0}.{0}.{0}.{0}.{0}", "a".repeat(60));
    for bad in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "a b", "ä", &long, &longer] {
        assert!(hostname(bad).is_err(), "{bad}");
    }
}

/// ROL-9: what a node's modules and vars name of the Nix store together.
#[test]
fn too_many_store_paths_are_refused() {
    let paths = |from: usize, count: usize| -> String {
        (from..from + count).map(|number| format!("/nix/store/{number:032}-p ")).collect()
    };
    let naming = |module: &str, vars: &str| {
        let entry = format!("nodes:\n  - match: [a.t]\n    roles: [app]\n    vars: {{app.x: \"{vars}\"}}\n");
        with(fleet_with(&format!("  x: \"{module}\"\n")), [("nodes.yaml", &*entry)])
    };
    let half = MAX_SET_PATHS / 2;
    // What both name counts once.
    right(&naming(&paths(0, half), &paths(half - 1, half + 1)));
    let found = check(&naming(&paths(0, half), &paths(half, half + 1))).unwrap_err();
    let told = "a.t name 65 paths of /nix/store; a node may have at most 64";
    assert_eq!((found.len(), found[0].code), (1, "E099"), "{found:?}");
    assert!(found[0].message.contains(told), "{found:?}");
}

#[test]
fn too_many_patterns_are_refused() {
    let all: String = (0..=resolve::MAX_PATTERNS).map(|n| format!("  - match: [\"n{n}-*.t\"]\n")).collect();
    assert_eq!(check(&nodes(&format!("nodes:\n{all}"))).unwrap_err()[0].code, "E099");
}
