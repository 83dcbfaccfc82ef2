//! CFG-7: `foreach` makes one resource for each item, each with an identity of its own; what is
//! said of the loop is said of all its items; its bounds hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use catalog::module::MAX_LOOP_ITEMS;
use catalog::types::Spec;
use converge::RunMode;
use model::Action;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{Host, Set, action, apply, drive, id, lines, set, text};

fn looped(over: Value) -> Value {
    json!({"type": "file", "id": "each", "name": "/srv/${{ item }}", "foreach": over,
        "attributes": {"content": "${{ key }}"}})
}

fn ids(set: &Set) -> Vec<String> {
    set.bind().resources().map(|resource| resource.id.to_string()).collect()
}

fn error(set: &Set) -> String {
    let desired = set.bind();
    let errors: Vec<String> = desired
        .resources()
        .filter_map(|resource| resource.spec.as_ref().err().map(ToString::to_string))
        .collect();
    errors.join("\n")
}

#[test]
fn each_item_is_a_resource() {
    let list = set(json!([{"name": "m", "resources": [looped(json!(["a", "b"]))]}]));
    assert_eq!(ids(&list), ["m/file:/srv/a", "m/file:/srv/b"]);
    let map = json!({"type": "file", "name": "/home/${{ key }}/x", "foreach": {"amy": {"n": 1}, "bob": {"n": 2}},
        "when": "item.n > 1", "tags": ["homes"], "attributes": {"template": "t"}});
    let mut host = Host::default();
    let set = set(json!([{"name": "m", "templates": {"t": "{{ key }} {{ item.n }}"}, "resources": [map]}]));
    let report = apply(&mut host, &set);
    assert_eq!(host.file("/home/bob/x"), Some("bob 2"));
    assert_eq!(
        lines(&report),
        ["m/file:/home/amy/x skipped: when is false: item.n > 1", "m/file:/home/bob/x changed"]
    );
}

#[test]
fn items_come_from_params_and_traits() {
    let mut set = set(json!([{"name": "m", "params": {"names": {"type": "list"}},
        "resources": [looped(json!("${{ params.names + [traits.os.family] }}"))]}]));
    set.params.vars.insert("m.names".into(), serde_json::from_value(json!(["x"])).unwrap());
    assert_eq!(ids(&set), ["m/file:/srv/x", "m/file:/srv/debian"]);
    let desired = set.bind();
    let Ok(Spec::File(file)) = &desired.modules[0].resources[1].spec else { panic!() };
    assert_eq!(text(file), "1", "the key of a list is the number");
}

#[test]
fn a_loop_over_nothing_is_no_resource_and_what_it_made_leaves() {
    let module = |over: Value| {
        let mut each = looped(over);
        each["on_remove"] = json!("delete");
        set(json!([{"name": "m", "resources": [
            each,
            {"type": "file", "name": "/after", "depends_on": ["each"], "when": "not changed(\"each\")",
                "subscribes": ["each"], "attributes": {"content": "x"}},
        ]}]))
    };
    let mut host = Host::default();
    apply(&mut host, &module(json!(["a", "b"])));
    assert!(host.file("/srv/a").is_some() && host.file("/srv/b").is_some());
    let report = apply(&mut host, &module(json!(["b"])));
    assert_eq!(action(&report, "m/file:/srv/a"), Action::Deleted);
    assert!(host.file("/srv/a").is_none() && host.file("/srv/b").is_some());
    let report = apply(&mut host, &module(json!([])));
    assert_eq!(lines(&report), ["m/file:/after changed", "m/file:/srv/b deleted"]);
    assert!(host.file("/after").is_some(), "changed of a loop over nothing is false, and no error");
}

#[test]
fn a_loop_whose_items_are_unknown_fails_and_removes_nothing() {
    let mut each = looped(json!(["a"]));
    each["on_remove"] = json!("delete");
    let mut host = Host::default();
    apply(&mut host, &set(json!([{"name": "m", "resources": [each]}])));
    each["foreach"] = json!("${{ traits.os.names }}");
    let report = apply(&mut host, &set(json!([{"name": "m", "resources": [each]}])));
    assert_eq!(lines(&report), ["m/file:/srv/${{ item }} failed: foreach: `traits.os.names` is not defined"]);
    assert!(host.file("/srv/a").is_some());
    each["foreach"] = json!("text");
    let wrong = set(json!([{"name": "m", "resources": [each]}]));
    assert_eq!(error(&wrong), "foreach: it goes over a list or a map, and this is a string");
    // Not wanted here without any item: no failure.
    each["foreach"] = json!("${{ traits.os.names }}");
    each["when"] = json!("traits.os.family == \"alpine\"");
    let report = apply(&mut host, &set(json!([{"name": "m", "resources": [each]}])));
    assert_eq!(
        lines(&report),
        ["m/file:/srv/${{ item }} skipped: when is false: traits.os.family == \"alpine\""]
    );
    assert!(host.file("/srv/a").is_some());
}

#[test]
fn two_items_with_one_name_are_both_named() {
    let set = set(json!([{"name": "m", "resources": [looped(json!(["a", "b", "a"]))]}]));
    assert_eq!(
        error(&set),
        "items 0 and 2 of `foreach` are both m/file:/srv/a; each needs a name of its own"
    );
}

#[test]
fn item_is_known_only_in_its_loop() {
    let set = set(json!([{"name": "m", "resources": [
        looped(json!(["a"])),
        {"type": "file", "name": "/x", "attributes": {"content": "${{ item }}"}},
    ]}]));
    assert_eq!(error(&set), "content: `item` is not defined");
}

#[test]
fn references_to_a_loop_mean_all_its_items() {
    let module = json!([{"name": "m", "resources": [
        {"type": "exec", "name": "late", "id": "late", "depends_on": ["each"],
            "attributes": {"command": ["late"], "always": true}},
        {"type": "exec", "name": "asks", "subscribes": ["each"], "when": "changed(\"each\")",
            "attributes": {"command": ["asks"], "always": true}},
        looped(json!(["a", "b"])),
    ], "handlers": [{"type": "exec", "name": "h", "subscribes": ["each"], "attributes": {"command": ["h"]}}]}]);
    let mut host = Host::default();
    host.broken.insert("/srv/b".into());
    let report = apply(&mut host, &set(module.clone()));
    assert_eq!(
        lines(&report),
        [
            "m/file:/srv/a changed",
            "m/file:/srv/b failed: /srv/b: read-only",
            "m/exec:late skipped: it depends on m/file:/srv/b, which failed",
            "m/exec:asks changed",
            "m/exec:h changed",
        ]
    );
    host.broken.clear();
    host.log.clear();
    apply(&mut host, &set(module));
    assert_eq!(
        host.log,
        [
            "apply m/file:/srv/b",
            "apply m/exec:late",
            "run late",
            "apply m/exec:asks",
            "run asks",
            "apply m/exec:h",
            "run h"
        ]
    );
}

#[test]
fn the_bounds_of_loops_hold() {
    let over = |count: usize| (0..count).map(|n| json!(n.to_string())).collect::<Value>();
    let many = set(json!([{"name": "m", "resources": [looped(over(100_001))]}]));
    assert_eq!(error(&many), "foreach: it goes over 100001 items, and at most 10000 are allowed");
    let fits = set(json!([{"name": "m", "resources": [looped(over(MAX_LOOP_ITEMS))]}]));
    assert_eq!(fits.bind().resources().count(), MAX_LOOP_ITEMS);
    let loops: Vec<Value> = (0..6)
        .map(|n| {
            json!({"type": "file", "name": format!("/{n}/${{{{ item }}}}"), "foreach": over(MAX_LOOP_ITEMS)})
        })
        .collect();
    assert_eq!(
        error(&set(json!([{"name": "m", "resources": loops}]))),
        "foreach: the loops of a node have at most 50000 items"
    );
    let large = json!({"type": "file", "name": "/${{ item }}", "foreach": over(100),
        "attributes": {"template": "t"}});
    let module = json!([{"name": "m", "templates": {"t": "{{ item }}".to_owned() + &"x".repeat(400_000)},
        "resources": [large]}]);
    // The template itself is too long to be read, so it is made by a loop of its own.
    assert!(error(&set(module)).contains("templates/t"));
    let inner = "{% for a in params.many %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}";
    let large = json!({"type": "file", "name": "/${{ item }}", "foreach": over(100),
        "attributes": {"template": "t"}});
    let mut set_of =
        set(json!([{"name": "m", "params": {"many": {"type": "list"}}, "templates": {"t": inner},
        "resources": [large]}]));
    set_of.params.vars.insert("m.many".into(), serde_json::from_value(over(9000)).unwrap());
    assert_eq!(error(&set_of), "foreach: the resources of a node's loops take more than 33554432 bytes");
    // Each item has a text of its own, also one that is written out in the declaration.
    let same = json!({"type": "file", "name": "/${{ item }}", "foreach": over(1000),
        "attributes": {"content": "x".repeat(40_000)}});
    assert_eq!(
        error(&set(json!([{"name": "m", "resources": [same]}]))),
        "foreach: the resources of a node's loops take more than 33554432 bytes"
    );
    let pairs = json!([{"name": "m", "resources": [
        {"type": "file", "id": "one", "name": "/1/${{ item }}", "foreach": over(1000)},
        {"type": "file", "id": "two", "name": "/2/${{ item }}", "foreach": over(1000), "depends_on": ["one"]},
    ]}]);
    assert!(error(&set(pairs)).contains("at most 200000 pairs of resources"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the items are, each name is one resource, references reach all of them, and a
    /// second run changes nothing.
    #[test]
    fn loops_expand_to_their_items(
        names in prop::collection::btree_set("[a-z]{1,6}", 0..12),
        map in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let over: Value = match map {
            true => names.iter().map(|name| (name.clone(), json!(name))).collect::<serde_json::Map<_, _>>().into(),
            false => names.iter().map(|name| json!(name)).collect(),
        };
        let set = set(json!([
            {"name": "m", "resources": [looped(over)]},
            {"name": "n", "resources": [{"type": "file", "name": "/all", "depends_on": ["m/each"],
                "attributes": {"content": "x"}}]},
        ]));
        let mut expected: Vec<String> = names.iter().map(|name| format!("m/file:/srv/{name}")).collect();
        let all = set.bind().modules[1].resources[0].clone();
        prop_assert_eq!(&all.depends_on, &expected.iter().map(|name| id(name)).collect::<Vec<_>>());
        expected.push("n/file:/all".into());
        prop_assert_eq!(ids(&set), expected);
        let mut host = Host::default();
        let report = drive(&mut host, &set.bind(), RunMode::Apply, seed).unwrap().report;
        prop_assert_eq!(report.counts.changed as usize, names.len() + 1);
        let report = drive(&mut host, &set.bind(), RunMode::Apply, seed).unwrap().report;
        prop_assert_eq!(report.counts.ok as usize, names.len() + 1);
    }
}
