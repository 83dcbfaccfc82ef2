//! CFG-2, CFG-6: what needs no observed trait is evaluated for every named node before anything is signed, by
//! the code that binds it on the node; what needs one is told, and is no mistake.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use resolve::{Tree, check, render};

use crate::common::{codes, right, with};

/// A fleet with two nodes and the module `app`.
fn fleet(params: &str, resources: &str) -> Tree {
    Tree::of([
        (
            "fleet.yaml",
            "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n",
        ),
        (
            "nodes.yaml",
            "nodes:\n  - match: [a.t]\n    modules: [app]\n    labels: {rack: r1}\n  - match: [b.t]\n    modules: [app]\n",
        ),
        ("modules/app/module.yaml", &format!("params:\n{params}resources:\n{resources}")),
    ])
}

/// What is told of a fleet with one mistake or more.
fn told(tree: &Tree) -> String {
    render(&check(tree).expect_err("it is right"), tree)
}

#[track_caller]
fn refused(params: &str, attribute: &str, position: &str, message: &str) {
    let resources = format!("  - file: /etc/a\n    content: {attribute}\n");
    let tree = fleet(params, &resources);
    let text = told(&tree);
    assert!(text.starts_with(&format!("modules/app/module.yaml:{position}  E066  ")), "{text}");
    assert!(text.contains(message), "{text}");
    assert!(text.contains("for a.t and one more node"), "{text}");
    assert_eq!(codes(&tree), ["E066"], "{text}");
}

#[test]
fn a_part_of_a_param_that_is_not_there_is_refused() {
    refused("  mp: {a: 1}\n", "${{ params.mp.typo }}", "5:18", "`params.mp.typo` is not defined");
}

#[test]
fn a_list_as_text_is_refused() {
    refused("  l: [a, b]\n", "x ${{ params.l }}", "5:19", "a list cannot stand in text");
}

#[test]
fn types_that_do_not_mix_are_refused() {
    refused("  n: 1\n", "${{ params.n + \"a\" }}", "5:18", "`+`");
}

#[test]
fn a_division_by_zero_is_refused() {
    refused("  n: 0\n", "${{ 4 // params.n }}", "5:18", "zero");
}

#[test]
fn a_label_that_one_node_lacks_is_refused_for_that_node() {
    let tree = fleet("  n: 0\n", "  - file: /etc/a\n    content: ${{ node.labels.rack }}\n");
    let text = told(&tree);
    assert!(text.contains("`node.labels.rack` is not defined"), "{text}");
    assert!(text.contains("for b.t\n"), "{text}");
}

#[test]
fn templates_are_rendered_and_a_mistake_stands_where_it_is() {
    let resources = "  - file: /etc/a\n    template: a.j2\n";
    let tree = with(
        fleet("  mp: {a: 1}\n", resources),
        [(
            "modules/app/templates/a.j2",
            "{{ traits.os.family }}\n{% if traits.os.family == \"x\" %}\n{{ params.mp.b }}\n{% endif %}\n",
        )],
    );
    let text = told(&tree);
    assert!(text.starts_with("modules/app/templates/a.j2:3:4  E066  `params.mp.b` is not defined"), "{text}");
}

#[test]
fn the_items_of_a_loop_are_evaluated_from_the_params_default() {
    let params = "  users: [{name: jo, id: 7}, {name: al}]\n";
    let resources = "  - foreach: ${{ params.users }}\n    file: /etc/${{ item.name }}\n    template: a.j2\n";
    let tree =
        with(fleet(params, resources), [("modules/app/templates/a.j2", "{{ item.name }} {{ item.id }}\n")]);
    let text = told(&tree);
    assert!(text.starts_with("modules/app/templates/a.j2:1:20  E066"), "{text}");
}

#[test]
fn all_mistakes_of_a_resource_are_told_at_once() {
    let resources = "  - file: /etc/${{ params.mp.x }}\n    content: ${{ params.mp.y }}\n    owner: ${{ params.mp.z }}\n    when: params.mp.w\n    only_if: [test, \"${{ params.mp.v }}\"]\n";
    let tree = fleet("  mp: {a: 1}\n", resources);
    assert_eq!(codes(&tree), ["E066"; 5], "{}", told(&tree));
}

#[test]
fn what_is_wrong_in_a_var_is_told_where_it_is_set() {
    let tree = with(
        fleet("  port: {type: port, default: 80}\n", "  - file: /etc/a\n    content: a\n"),
        [(
            "nodes.yaml",
            "nodes:\n  - match: [a.t]\n    modules: [app]\n    vars:\n      app.port: ${{ node.hostname }}\n",
        )],
    );
    let text = told(&tree);
    assert!(text.starts_with("nodes.yaml:5:7  E066  app.port: `a.t` is not a whole number"), "{text}");
}

#[test]
fn what_is_wrong_in_a_var_that_many_nodes_share_is_told_where_it_is_set() {
    let wrong = "app.port: ${{ node.hostname }}\n";
    let layers = [
        (
            "environments.yaml",
            format!("environments:\n  prod:\n    vars:\n      {wrong}"),
            "environments.yaml:4:7",
        ),
        ("environments/prod.yaml", format!("vars:\n  {wrong}"), "environments/prod.yaml:2:3"),
        (
            "groups.yaml",
            format!("groups:\n  - where: labels.rack == \"r1\"\n    vars:\n      {wrong}"),
            "groups.yaml:4:7",
        ),
    ];
    let nodes =
        "nodes:\n  - match: [a.t]\n    modules: [app]\n    environment: prod\n    labels: {rack: r1}\n";
    for (file, text, position) in layers {
        let mut files = vec![("nodes.yaml", nodes), (file, text.as_str())];
        if file == "groups.yaml" {
            files.push(("environments.yaml", "environments: {prod: {}}\n"));
        }
        let base = fleet("  port: {type: port, default: 80}\n", "  - file: /etc/a\n    content: a\n");
        let told = told(&with(base, files));
        let wanted = format!("{position}  E066  app.port: `a.t` is not a whole number");
        assert!(told.starts_with(&wanted), "{file}: {told}");
    }
}

#[test]
fn what_needs_an_observed_trait_is_told_and_is_no_mistake() {
    let params = "  cpus: {type: int, default: \"${{ traits.cpu.count }}\"}\n  mp: {a: 1}\n";
    let resources = "  - file: /etc/a\n    content: x ${{ params.cpus + 1 }} ${{ traits.os.family }}\n    mode: \"0644\"\n  - file: /etc/b\n    when: traits.os.family == \"debian\"\n    content: b\n";
    let fleet = right(&fleet(params, resources));
    let told: Vec<String> = fleet.unevaluated().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "modules/app/module.yaml:6:14  content: needs traits.cpu.count",
            "modules/app/module.yaml:9:11  when: needs traits.os.family",
        ]
    );
}

#[test]
fn what_is_not_wanted_need_not_make_sense() {
    let resources = "  - file: /etc/a\n    when: params.mp.b is defined\n    content: ${{ params.mp.b }}\n";
    right(&fleet("  mp: {a: 1}\n", resources));
}

#[test]
fn paths_that_are_evaluated_are_compared_too() {
    let params = "  dir: /etc\n";
    let resources =
        "  - file: ${{ params.dir }}/motd\n    content: a\n  - file: /etc//motd\n    content: b\n";
    let text = told(&fleet(params, resources));
    assert!(text.contains("E084  app/file:/etc/motd writes `/etc/motd`"), "{text}");
}

#[test]
fn a_module_that_no_node_wants_whatever_it_observes_is_not_in_its_set() {
    let tree = with(
        fleet("  on: false\n", "  - file: /etc/a\n    content: a\n"),
        [
            (
                "modules/app/module.yaml",
                "when: params.on\nparams: {on: false, x: 1}\nresources:\n  - file: /etc/a\n    content: ${{ params.x }}\n",
            ),
            (
                "modules/os/module.yaml",
                "when: traits.os.family == \"x\"\nresources:\n  - file: /etc/b\n    content: b\n",
            ),
            (
                "nodes.yaml",
                "nodes:\n  - match: [a.t]\n    modules: [app, os]\n    vars: {app.x: 2}\n  - match: [b.t]\n    modules: [app, os]\n    vars: {app.on: true}\n  - match: [\"c*.t\"]\n    modules: [app]\n",
            ),
        ],
    );
    let fleet = right(&tree);
    let of = |name: &str| crate::common::params(&fleet, name);
    assert_eq!(of("a.t").modules, ["os"]);
    assert!(of("a.t").vars.is_empty());
    assert_eq!(of("b.t").modules, ["app", "os"]);
    assert_eq!(of("c1.t").modules, [""; 0]);
    let spec = fleet.specialize().node("a.t").unwrap();
    assert_eq!(spec.modules.iter().map(|name| &**name).collect::<Vec<_>>(), ["os"]);
}

#[test]
fn an_unwanted_module_that_another_one_needs_stays() {
    let tree = with(
        fleet("  on: false\n", "  - file: /etc/a\n    content: a\n"),
        [
            ("modules/app/module.yaml", "when: \"false\"\nresources:\n  - file: /etc/a\n    content: a\n"),
            ("modules/web/module.yaml", "depends_on: [app]\nresources:\n  - file: /etc/b\n    content: b\n"),
            ("nodes.yaml", "nodes:\n  - match: [a.t]\n    modules: [web]\n"),
        ],
    );
    assert_eq!(crate::common::params(&right(&tree), "a.t").modules, ["app", "web"]);
}

#[test]
fn a_mistake_elsewhere_hides_none_and_makes_none_up() {
    let tree = with(
        fleet("  mp: {a: 1}\n", "  - file: /etc/a\n    content: ${{ params.mp.b }}\n"),
        [
            ("modules/bad/module.yaml", "resources:\n  - fil: /etc/a\n"),
            (
                "modules/uses/module.yaml",
                "depends_on: [bad]\nresources:\n  - file: /etc/u\n    content: ${{ vars.bad.x }}\n",
            ),
            ("nodes.yaml", "nodes:\n  - match: [a.t]\n    modules: [app, bad, uses]\n"),
        ],
    );
    assert_eq!(codes(&tree), ["E066", "E070"], "{}", told(&tree));
}
