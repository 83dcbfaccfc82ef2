//! CFG-6: of a node's value every layer that sets it is named, lowest first, with file and line and
//! what became of it; of a module everything that brings it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use resolve::explain::{ExplainedValue, Explainer, LayerOutcome};
use resolve::{Resolver, Tree};

const FILES: [(&str, &str); 9] = [
    (
        "fleet.yaml",
        "format: 1\nname: t\nchannels: {stable: {freshness: 24h}, slow: {freshness: 7d}}\n\
         defaults:\n  channel: stable\nvars:\n  app.x: fleet\n",
    ),
    (
        "environments.yaml",
        "environments:\n  production:\n    vars:\n      app.x: environment\n  staging: {}\n",
    ),
    ("roles/app.yaml", "modules:\n  - app\nvars:\n  app.x: role\n"),
    (
        "groups.yaml",
        "groups:\n  - where: labels.site == \"south\"\n    vars: {app.x: never}\n  \
         - name: north\n    where: labels.site == \"north\"\n    vars:\n      app.x: group\n      app.deep: {b: 2}\n",
    ),
    (
        "nodes.yaml",
        "nodes:\n  - match: [\"db-*\"]\n    roles: [app]\n  - match: [\"b.t\", \"*.t\"]\n    roles: [app]\n    \
         environment: production\n    channel: slow\n    labels:\n      site: north\n    vars:\n      app.x: entry\n    \
         environment_overrides:\n      production:\n        exclude_modules: [gone]\n        vars:\n          app.x: override\n    \
         conditional_vars:\n      - when: traits.cpu.count > 1\n        vars: {app.y: other}\n      \
         - when: traits.cpu.count > 2\n        vars:\n          app.x: conditional\n",
    ),
    ("hosts/a.t.yaml", "channel: stable\nmodules: [extra]\nvars:\n  app.x: host\n"),
    (
        "modules/app/module.yaml",
        "depends_on: [base]\nparams:\n  x: default\n  y: default\n  deep: {type: map, merge: deep, default: {a: 1}}\n\
         resources:\n  - file: /etc/a\n    content: ${{ params.x }}\n    when: params.x != \"no\"\n",
    ),
    ("modules/base/module.yaml", "description: what all others need\n"),
    ("modules/extra/module.yaml", "description: one machine's own\n"),
];

fn resolver() -> Resolver {
    let mut tree = Tree::of(FILES);
    tree.files.extend(Tree::of([("modules/gone/module.yaml", "description: not here\n")]).files);
    let mut resolver = Resolver::new();
    let changes = tree.files.iter().map(|(path, file)| (path.clone(), Some(file.clone()))).collect();
    if let Err(found) = resolver.update(changes) {
        panic!("{}", resolve::render(&found, &tree));
    }
    resolver
}

fn lines(value: &ExplainedValue) -> Vec<String> {
    let line = |layer: &resolve::explain::ExplainedLayer| {
        format!("{} {} {} {}", layer.layer, layer.source, layer.value, layer.outcome.text())
    };
    value.layers.iter().map(line).collect()
}

fn var(explainer: &mut Explainer<'_>, name: &str, holds: &[bool]) -> ExplainedValue {
    let holds: Vec<Result<bool, String>> = holds.iter().copied().map(Ok).collect();
    explainer.var(name, &holds).unwrap()
}

#[test]
fn every_layer_of_a_var_is_named_lowest_first() {
    let resolver = resolver();
    let mut explainer = resolver.explainer("a.t").unwrap();
    let wanted = [
        "module default modules/app/module.yaml:3 default overridden",
        "fleet fleet.yaml:7 fleet overridden",
        "role app roles/app.yaml:4 role overridden",
        "environment production environments.yaml:4 environment overridden",
        "group north groups.yaml:7 group overridden",
        "node entry nodes.yaml:11 entry overridden",
        "environment_overrides production nodes.yaml:16 override overridden",
        "conditional_vars when traits.cpu.count > 2 nodes.yaml:22 conditional overridden",
        "host file hosts/a.t.yaml:4 host wins",
    ];
    assert_eq!(lines(&var(&mut explainer, "app.x", &[true, true])), wanted);
}

#[test]
fn a_condition_that_does_not_hold_leaves_the_layer_before_it() {
    let resolver = resolver();
    let mut explainer = resolver.explainer("c.t").unwrap();
    let without = var(&mut explainer, "app.x", &[true, false]);
    assert_eq!(without.layers.last().unwrap().outcome, LayerOutcome::NotHeld);
    assert_eq!(without.winner().unwrap().value.to_string(), "override");
    let with = var(&mut explainer, "app.x", &[false, true]);
    assert_eq!(with.winner().unwrap().value.to_string(), "conditional");
    let failed = explainer.var("app.x", &[Ok(true), Err("no such trait".into())]).unwrap();
    assert_eq!(failed.layers.last().unwrap().outcome, LayerOutcome::Failed("no such trait".into()));
}

#[test]
fn layers_that_are_merged_are_called_so() {
    let resolver = resolver();
    let deep = var(&mut resolver.explainer("c.t").unwrap(), "app.deep", &[]);
    assert_eq!(
        lines(&deep),
        [
            "module default modules/app/module.yaml:5 {\"a\":1} merged",
            "group north groups.yaml:8 {\"b\":2} wins"
        ]
    );
}

#[test]
fn a_node_says_how_it_was_classified() {
    let resolver = resolver();
    let node = resolver.explainer("a.t").unwrap().node();
    assert_eq!(
        (node.matched.pattern.as_str(), node.matched.source.to_string()),
        ("*.t", "nodes.yaml:4".into())
    );
    assert_eq!(node.host_file.unwrap().file, "hosts/a.t.yaml");
    let declared: Vec<String> = node.declared.iter().flat_map(lines).collect();
    assert_eq!(
        declared,
        [
            "fleet fleet.yaml:5 stable overridden",
            "node entry nodes.yaml:7 slow overridden",
            "host file hosts/a.t.yaml:1 stable wins",
            "node entry nodes.yaml:6 production wins",
            "node entry nodes.yaml:5 [\"app\"] wins",
            "node entry nodes.yaml:9 north wins",
        ]
    );
    let groups: Vec<String> =
        node.groups.iter().map(|group| format!("{} {}", group.condition, group.source)).collect();
    assert_eq!(groups, ["labels.site == \"north\" groups.yaml:5"]);
    let excluded: Vec<String> =
        node.excluded.iter().map(|gone| format!("{} {}", gone.name, gone.source)).collect();
    assert_eq!(excluded, ["gone nodes.yaml:14"]);
    assert_eq!(resolver.explainer("b.t").unwrap().node().matched.pattern, "b.t");
    assert!(resolver.explainer("nobody.example").is_none());
}

#[test]
fn a_module_names_everything_that_brings_it() {
    let resolver = resolver();
    let explainer = resolver.explainer("a.t").unwrap();
    let because = |name: &str| -> Vec<String> {
        explainer.module(name).iter().map(|one| format!("{} {}", one.reason, one.source)).collect()
    };
    assert_eq!(because("app"), ["role app roles/app.yaml:2"]);
    assert_eq!(because("base"), ["module app depends on it modules/app/module.yaml:1"]);
    assert_eq!(because("extra"), ["host file hosts/a.t.yaml:2"]);
    assert!(because("gone").is_empty());
}

#[test]
fn a_resource_says_where_each_key_stands() {
    let resolver = resolver();
    let mut explainer = resolver.explainer("a.t").unwrap();
    let resource = explainer.resource("app", 0).unwrap();
    assert_eq!(resource.source.to_string(), "modules/app/module.yaml:7");
    let keys: Vec<String> =
        resource.keys.iter().map(|(key, at)| format!("{key} {}", at.line.unwrap())).collect();
    assert_eq!(keys, ["content 8", "file 7", "when 9"]);
    assert!(explainer.resource("app", 1).is_none());
}
