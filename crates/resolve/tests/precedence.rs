//! CFG-2: the whole ladder. Later wins: module default < fleet vars < roles in order <
//! environment < groups in order < node entry < environment_overrides < conditional_vars <
//! host file. The last three steps are taken on the node, by the same code.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{codes, fleet_with, params, right, with};
use catalog::params::LayerState;
use lang::{Names, Value};
use resolve::Tree;

/// What the node reads for `app.x`, with every conditional layer on or off.
fn on_the_node(tree: &Tree, holds: bool) -> Value {
    let fleet = right(tree);
    let params = params(&fleet, "a.t");
    let modules = fleet
        .specialize()
        .modules
        .iter()
        .map(|(name, shared)| (name.clone(), Arc::new(shared.module.clone())));
    let modules: BTreeMap<_, _> = modules.filter(|(name, _)| params.modules.contains(name)).collect();
    let state = if holds { LayerState::Holds } else { LayerState::Left };
    let holds = vec![state; params.conditional.len()];
    catalog::params::resolve(&modules, &params, &holds, &Names::new())["app"].values["x"].clone()
}

/// The steps of the ladder, each as the files that add it to those before.
fn steps() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let entry = |vars: &str, overrides: &str, conditional: &str| {
        format!(
            "nodes:\n  - match: [a.t]\n    roles: [app, more]\n    environment: production\n    labels: {{site: north}}\n    vars: {{{vars}}}\n    environment_overrides: {{production: {{vars: {{{overrides}}}}}, staging: {{vars: {{app.x: never}}}}}}\n    conditional_vars:\n      - when: traits.cpu.count > 1\n        vars: {{{conditional}}}\n"
        )
    };
    let groups = |count: usize| {
        let all: String = (0..count)
            .map(|n| format!("  - where: labels.site == \"north\"\n    vars: {{app.x: group{n}}}\n"))
            .collect();
        format!("groups:\n{all}  - where: labels.site == \"south\"\n    vars: {{app.x: never}}\n")
    };
    let fleet = "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\nvars: {app.x: fleet}\n";
    vec![
        (
            "default",
            vec![("nodes.yaml", entry("", "", "app.y: z")), ("roles/more.yaml", "modules: []\n".into())],
        ),
        ("fleet", vec![("fleet.yaml", fleet.into())]),
        ("role", vec![("roles/app.yaml", "modules: [app]\nvars: {app.x: role}\n".into())]),
        ("role", vec![("roles/more.yaml", "vars: {app.x: role}\n".into())]),
        (
            "environment",
            vec![(
                "environments.yaml",
                "environments: {production: {vars: {app.x: environment}}, staging: {}}\n".into(),
            )],
        ),
        ("group0", vec![("groups.yaml", groups(1))]),
        ("group1", vec![("groups.yaml", groups(2))]),
        ("entry", vec![("nodes.yaml", entry("app.x: entry", "", "app.y: z"))]),
        ("override", vec![("nodes.yaml", entry("app.x: entry", "app.x: override", "app.y: z"))]),
        ("conditional", vec![("nodes.yaml", entry("app.x: entry", "app.x: override", "app.x: conditional"))]),
        ("host", vec![("hosts/a.t.yaml", "vars: {app.x: host}\n".into())]),
    ]
}

#[test]
fn each_step_wins_over_those_before() {
    let mut tree = with(fleet_with("  x: default\n  y: default\n"), [("groups.yaml", "groups: []\n")]);
    for (wanted, files) in steps() {
        tree = with(tree, files.iter().map(|(path, text)| (*path, text.as_str())));
        assert_eq!(on_the_node(&tree, true), Value::from(wanted), "after {files:?}");
    }
}

#[test]
fn a_condition_that_does_not_hold_leaves_the_step_before() {
    let mut tree = with(fleet_with("  x: default\n  y: default\n"), [("groups.yaml", "groups: []\n")]);
    for (_, files) in steps().into_iter().filter(|(name, _)| *name != "host") {
        tree = with(tree, files.iter().map(|(path, text)| (*path, text.as_str())));
    }
    assert_eq!(on_the_node(&tree, false), Value::from("override"));
}

#[test]
fn merging_params_gather_every_step_in_order() {
    let mut tree = with(
        fleet_with("  x: {type: list, default: [default], merge: append}\n  y: z\n"),
        [("groups.yaml", "groups: []\n")],
    );
    for (_, files) in steps() {
        let lists = files.iter().map(|(path, text)| {
            let text = [
                "fleet",
                "role",
                "environment",
                "group0",
                "group1",
                "entry",
                "override",
                "conditional",
                "host",
                "never",
            ]
            .iter()
            .fold(text.clone(), |text, word| {
                text.replace(&format!("app.x: {word}"), &format!("app.x: [{word}]"))
            });
            (*path, text)
        });
        let lists: Vec<(&str, String)> = lists.collect();
        tree = with(tree, lists.iter().map(|(path, text)| (*path, text.as_str())));
    }
    let wanted = [
        "default",
        "fleet",
        "role",
        "role",
        "environment",
        "group0",
        "group1",
        "entry",
        "override",
        "conditional",
        "host",
    ];
    assert_eq!(on_the_node(&tree, true), Value::from(wanted.to_vec()));
}

#[test]
fn roles_that_disagree_are_an_error_and_roles_that_agree_are_not() {
    let two = |a: &str, b: &str| {
        let (a, b) = (format!("modules: [app]\nvars: {{app.x: {a}}}\n"), format!("vars: {{app.x: {b}}}\n"));
        with(
            fleet_with("  x: {type: int, default: 1}\n"),
            [
                ("roles/app.yaml", &*a),
                ("roles/more.yaml", &*b),
                ("nodes.yaml", "nodes:\n  - match: [a.t]\n    roles: [app, more]\n"),
            ],
        )
    };
    assert_eq!(codes(&two("1", "2")), ["E046"]);
    // What counts is the value that the type reads, not how it is written.
    assert!(codes(&two("2", "\"2\"")).is_empty());
}

#[test]
fn host_file_facts_win_and_labels_join() {
    let tree = with(
        fleet_with("  x: default\n"),
        [
            (
                "nodes.yaml",
                "nodes:\n  - match: [a.t]\n    roles: [app]\n    owner: one\n    environment: production\n    labels: {site: north, rack: r1}\n",
            ),
            (
                "hosts/a.t.yaml",
                "owner: two\nenvironment: staging\nchannel: slow\nlabels: {rack: r2}\nobserve: true\n",
            ),
            (
                "groups.yaml",
                "groups:\n  - where: environment == \"staging\" and labels.rack == \"r2\" and owner == \"two\"\n    vars: {app.x: seen}\n",
            ),
        ],
    );
    let params = params(&right(&tree), "a.t");
    assert_eq!((params.node.owner.as_deref(), params.node.channel.as_str()), (Some("two"), "slow"));
    assert_eq!(
        params.node.labels,
        BTreeMap::from([("rack".into(), "r2".into()), ("site".into(), "north".into())])
    );
    assert!(params.observe);
    assert_eq!(params.vars["app.x"], Value::from("seen"));
}
