//! CFG-9: observed traits tune vars and content; they choose no role, no module, no group,
//! no channel and no secret.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{codes, fleet_with, params, right, with};

#[test]
fn no_declared_fact_is_computed() {
    let keys = [
        "roles: [\"X\"]",
        "modules: [\"X\"]",
        "environment: X",
        "channel: X",
        "owner: X",
        "labels: {a: \"X\"}",
        "match: [\"X\"]",
    ];
    for key in keys {
        let key = key.replace('X', "${{ traits.os.family }}");
        let matched = if key.starts_with("match") { "" } else { "match: [b.t]\n    " };
        let text = format!("nodes:\n  - {matched}{key}\n");
        assert_eq!(codes(&with(fleet_with("  x: y\n"), [("nodes.yaml", &*text)])), ["E063"], "{text}");
        if !matched.is_empty() {
            let host = format!("{key}\n");
            assert_eq!(
                codes(&with(fleet_with("  x: y\n"), [("hosts/a.t.yaml", &*host)])),
                ["E063"],
                "{host}"
            );
        }
    }
}

#[test]
fn conditional_vars_choose_no_role_and_no_module() {
    for key in ["roles: [app]", "modules: [app]", "exclude_modules: [app]"] {
        let text = format!(
            "nodes:\n  - match: [a.t]\n    conditional_vars:\n      - when: traits.cpu.count > 1\n        {key}\n"
        );
        assert_eq!(codes(&with(fleet_with("  x: y\n"), [("nodes.yaml", &*text)])), ["E063"], "{key}");
    }
}

#[test]
fn groups_see_no_trait() {
    let text = "groups:\n  - where: traits.os.family == \"debian\"\n    observe: true\n";
    assert_eq!(codes(&with(fleet_with("  x: y\n"), [("groups.yaml", text)])), ["E063"]);
}

#[test]
fn what_a_release_holds_is_the_same_whatever_a_node_observes() {
    let tree = with(
        fleet_with("  x: {type: int, default: 1}\n"),
        [(
            "nodes.yaml",
            "nodes:\n  - match: [a.t]\n    roles: [app]\n    conditional_vars:\n      - when: traits.cpu.count > 1\n        vars: {app.x: 2}\n",
        )],
    );
    let params = params(&right(&tree), "a.t");
    assert_eq!(params.modules, ["app"]);
    assert_eq!((params.conditional.len(), params.vars.len()), (1, 0));
    assert_eq!(params.conditional[0].when, "traits.cpu.count > 1");
}

#[test]
fn a_secret_is_set_by_its_name_alone() {
    for value in ["x", "\"${{ traits.os.family }}\"", "secret:a b", "'x ${{ secret(\"a/b\") }}'"] {
        let role = format!("modules: [app]\nvars: {{app.key: {value}}}\n");
        let tree = with(fleet_with("  key: {type: secret}\n"), [("roles/app.yaml", &*role)]);
        assert_eq!(codes(&tree), ["E050"], "{value}");
    }
    let tree = with(
        fleet_with("  key: {type: secret}\n"),
        [("roles/app.yaml", "modules: [app]\nvars: {app.key: \"secret:a/b\"}\n")],
    );
    assert_eq!(params(&right(&tree), "a.t").vars["app.key"], "${{ secret(\"a/b\") }}".into());
    // A literal that only looks like one is escaped.
    let tree =
        with(fleet_with("  x: y\n"), [("roles/app.yaml", "modules: [app]\nvars: {app.x: \"secret::a\"}\n")]);
    assert_eq!(params(&right(&tree), "a.t").vars["app.x"], "secret:a".into());
}
