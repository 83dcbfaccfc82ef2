//! CFG-2: match -> params -> when -> templates -> module order by topological sort; a
//! cycle names its members. CFG-4: depends_on and before order resources, and parents come
//! before what needs them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, apply, lines, set, text};
use catalog::types::Spec;
use converge::When;
use serde_json::json;

fn names(set: &crate::common::Set) -> Vec<String> {
    set.bind().modules.iter().map(|module| module.name.clone()).collect()
}

fn resources(set: &crate::common::Set) -> Vec<String> {
    set.bind().resources().map(|resource| resource.name.clone()).collect()
}

#[test]
fn declared_order_is_kept_where_it_is_free() {
    let mut free = set(json!([{"name": "c"}, {"name": "a"}, {"name": "b"}]));
    assert_eq!(names(&free), ["c", "a", "b"]);
    free.edit("c", |module| module.depends_on = ["b".to_owned()].into());
    assert_eq!(names(&free), ["a", "b", "c"]);
}

#[test]
fn a_cycle_of_modules_names_its_members_and_the_rest_converges() {
    let mut host = Host::default();
    let file = |path: &str| json!([{"type": "file", "name": path, "attributes": {"content": "x"}}]);
    let report = apply(
        &mut host,
        &set(json!([
            {"name": "a", "depends_on": ["b"], "resources": file("/a")},
            {"name": "b", "depends_on": ["c"], "resources": file("/b")},
            {"name": "c", "depends_on": ["a"], "resources": file("/c")},
            {"name": "after", "depends_on": ["c"], "resources": file("/after")},
            {"name": "free", "resources": file("/free")},
        ])),
    );
    let cycle = "modules wait for each other: a -> b -> c -> a";
    assert_eq!(
        lines(&report),
        [
            format!("a failed: {cycle}"),
            format!("b failed: {cycle}"),
            format!("c failed: {cycle}"),
            "after skipped: it depends on c, which failed".to_owned(),
            "free/file:/free changed".to_owned(),
        ]
    );
    assert_eq!(host.nodes.keys().collect::<Vec<_>>(), ["/free"]);
}

#[test]
fn resources_follow_references_and_parents() {
    let set = set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/srv/app/conf/x", "attributes": {"content": "x"}},
        {"type": "line", "name": "l", "attributes": {"path": "/etc/app", "line": "z"}},
        {"type": "exec", "name": "go", "before": ["/etc/app"], "attributes": {"command": ["/srv/app/tool"], "always": true}},
        {"type": "file", "name": "/etc/app", "id": "conf", "attributes": {"mode": "0644"}},
        {"type": "directory", "name": "/srv/app/conf"},
        {"type": "file", "name": "/srv/app/tool", "depends_on": ["directory:/srv/app"], "attributes": {"content": "t"}},
        {"type": "directory", "name": "/srv/app"},
    ]}]));
    assert_eq!(
        resources(&set),
        ["/srv/app", "/srv/app/conf", "/srv/app/conf/x", "/srv/app/tool", "go", "/etc/app", "l"]
    );
}

#[test]
fn what_goes_goes_before_the_directory_that_goes() {
    let absent = json!({"state": "absent"});
    let set = set(json!([{"name": "m", "resources": [
        {"type": "directory", "name": "/srv/app", "attributes": absent},
        {"type": "file", "name": "/srv/app/x", "attributes": absent},
    ]}]));
    assert_eq!(resources(&set), ["/srv/app/x", "/srv/app"]);
}

#[test]
fn a_declared_order_beats_what_paths_imply() {
    let set = set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/srv/x", "before": ["/srv"], "attributes": {"content": "x"}},
        {"type": "directory", "name": "/srv"},
    ]}]));
    assert_eq!(resources(&set), ["/srv/x", "/srv"]);
    assert_eq!(set.bind().modules[0].error, None);
}

#[test]
fn a_cycle_of_resources_names_its_members() {
    let set = set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/a", "notify": ["/b"], "attributes": {"content": "x"}},
        {"type": "file", "name": "/b", "before": ["/a"], "attributes": {"content": "x"}},
    ]}]));
    assert_eq!(
        set.bind().modules[0].error.as_ref().map(ToString::to_string).as_deref(),
        Some("resources wait for each other: m/file:/a -> m/file:/b -> m/file:/a")
    );
}

#[test]
fn edges_between_resources_order_their_modules() {
    let with = |key: &str, reference: &str| {
        let mut resource = json!({"type": "file", "name": "/a", "id": "a", "attributes": {"content": "x"}});
        resource[key] = json!([reference]);
        names(&set(json!([
            {"name": "one", "resources": [resource]},
            {"name": "two", "resources": [{"type": "file", "name": "/b", "id": "b", "attributes": {"content": "x"}}]},
        ])))
    };
    assert_eq!(with("depends_on", "two/b"), ["two", "one"]);
    assert_eq!(with("subscribes", "two/b"), ["two", "one"]);
    assert_eq!(with("before", "two/b"), ["one", "two"]);
    assert_eq!(with("notify", "two/b"), ["one", "two"]);
    // A parent in a module that is named later.
    let parents = set(json!([
        {"name": "site", "resources": [{"type": "file", "name": "/srv/www/x", "attributes": {"content": "x"}}]},
        {"name": "base", "resources": [{"type": "directory", "name": "/srv/www"}]},
    ]));
    assert_eq!(names(&parents), ["base", "site"]);
}

#[test]
fn a_reference_that_names_nothing_fails_its_resource_alone() {
    let report = apply(
        &mut Host::default(),
        &set(json!([{"name": "m", "resources": [
            {"type": "file", "name": "/a", "notify": ["relaod"], "attributes": {"content": "x"}},
            {"type": "file", "name": "/b", "depends_on": ["reload"], "attributes": {"content": "x"}},
            {"type": "file", "name": "/c", "attributes": {"content": "x"}},
        ], "handlers": [{"type": "exec", "name": "r", "id": "reload", "attributes": {"command": ["r"]}}]}])),
    );
    assert_eq!(
        lines(&report),
        [
            "m/file:/a failed: `relaod` names no resource of this node; did you mean `reload`?",
            "m/file:/b failed: `reload` is a handler, and handlers are only notified",
            "m/file:/c changed",
        ]
    );
}

#[test]
fn a_module_that_is_not_there_is_an_error_of_who_needs_it() {
    let mut some = set(json!([{"name": "a", "depends_on": ["base"]}, {"name": "b"}]));
    some.params.modules.push("ghost".into());
    let report = apply(&mut Host::default(), &some);
    assert_eq!(
        lines(&report),
        [
            "a failed: it depends on module base, which this node does not have",
            "ghost failed: the set names this module and does not hold it",
        ]
    );
}

#[test]
fn params_vars_traits_and_node_reach_attributes_and_templates() {
    let mut set = set(json!([
        {"name": "nginx",
         "params": {"port": {"type": "port", "default": 80}, "workers": {"type": "int", "default": 2}, "tls": {"type": "bool", "default": false}},
         "templates": {"site.j2": "listen {{ params.port }}; # {{ node.hostname }} {{ node.labels.region }}\n{% if traits.os.family == \"debian\" %}\ndeb {{ vars.nginx.workers }}\n{% endif %}\n"},
         "resources": [
            {"type": "file", "name": "/etc/site-${{ params.port }}", "attributes": {"template": "site.j2", "mode": "0640"}},
            {"type": "file", "name": "/etc/inline", "attributes": {"content": "w ${{ vars.nginx.workers * 2 }} {{ kept }}"}},
            {"type": "file", "name": "/etc/wrong", "attributes": {"content": "${{ params.prot }}"}},
            {"type": "file", "name": "/etc/tls", "when": "params.tls", "attributes": {"content": "${{ traits.no.such }}"}},
            {"type": "file", "name": "/etc/asked", "when": "file_exists(\"/x\") and params.port > 1", "attributes": {"content": ""}},
         ]},
        {"name": "redhat", "when": "traits.os.family == \"redhat\"", "verify": {"shell": "${{ traits.no.such }}"}},
    ]));
    set.params.node.labels.insert("region".into(), "eu".into());
    set.params.vars.insert("nginx.port".into(), 8080.into());
    set.params.conditional = serde_json::from_value(json!([
        {"when": "traits.os.family == \"debian\"", "vars": {"nginx.workers": 7}},
        {"when": "vars.nginx.port == 1", "vars": {"nginx.workers": 9}},
    ]))
    .unwrap();
    let desired = set.bind();
    let nginx = &desired.modules[0];
    let content = |i: usize| match &nginx.resources[i].spec {
        Ok(Spec::File(spec)) => text(spec),
        other => panic!("{other:?}"),
    };
    assert_eq!(nginx.resources[0].name, "/etc/site-8080");
    assert_eq!(content(0), "listen 8080; # web-1 eu\ndeb 7\n");
    assert_eq!(content(1), "w 14 {{ kept }}");
    assert_eq!(
        nginx.resources[2].spec.as_ref().unwrap_err().to_string(),
        "content: `params.prot` is not defined; did you mean `params.port`?"
    );
    assert!(matches!(nginx.resources[3].when, When::Never(_)));
    assert!(matches!(nginx.resources[4].when, When::Ask(_)));
    assert!(matches!(desired.modules[1].when, When::Never(_)));
    assert_eq!(desired.modules[1].error, None);

    let report = apply(&mut Host::default(), &set);
    assert_eq!((report.counts.failed, report.counts.changed, report.counts.skipped), (1, 2, 3));
}

#[test]
fn a_conditional_layer_that_cannot_be_decided_fails_the_modules_it_sets() {
    let mut set = set(json!([
        {"name": "a", "params": {"x": {"type": "int", "default": 1}}},
        {"name": "b", "params": {"x": {"type": "int", "default": 1}}},
    ]));
    set.params.conditional =
        serde_json::from_value(json!([{"when": "traits.nope > 1", "vars": {"a.x": 7}}])).unwrap();
    let report = apply(&mut Host::default(), &set);
    assert_eq!(
        lines(&report),
        ["a failed: conditional vars `traits.nope > 1`: `traits.nope` is not defined"]
    );
}

#[test]
fn things_come_before_what_needs_them() {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2uFiyGXqbKYXAkDwR2cjZeEXqkXqZwnsFDxHXVzgkX a";
    let set = set(json!([
        {"name": "web", "resources": [
            {"type": "file", "name": "/srv/x", "attributes": {"content": "", "owner": "app", "group": "www"}},
            {"type": "exec", "name": "e", "attributes": {"command": ["true"], "always": true, "user": "app"}},
            {"type": "ssh_key", "name": "app", "attributes": {"user": "app", "key": key}},
            {"type": "user", "name": "app", "attributes": {"group": "app", "groups": ["www"]}},
            {"type": "group", "name": "www"},
            {"type": "package", "name": "nginx"},
            {"type": "repository", "name": "lab",
             "attributes": {"uris": "file:/srv", "suites": "./", "trusted": true}},
        ]},
        {"name": "early", "resources": [{"type": "package", "name": "vim"}]},
    ]));
    let desired = set.bind();
    let order: Vec<&str> =
        desired.modules[0].resources.iter().map(|resource| resource.name.as_str()).collect();
    let before = |first: &str, later: &str| {
        let at = |name: &str| order.iter().position(|known| *known == name).unwrap();
        assert!(at(first) < at(later), "{first} before {later}: {order:?}");
    };
    let kinds: Vec<&str> =
        desired.modules[0].resources.iter().map(|resource| resource.kind.as_str()).collect();
    let user = kinds.iter().position(|kind| *kind == "user").unwrap();
    let ssh_key = kinds.iter().position(|kind| *kind == "ssh_key").unwrap();
    assert!(user < ssh_key, "{kinds:?}");
    [("www", "/srv/x"), ("app", "/srv/x"), ("app", "e"), ("www", "app"), ("lab", "nginx")]
        .into_iter()
        .for_each(|(first, later)| before(first, later));
    // A repository comes before the packages of every module.
    assert_eq!(desired.modules[1].after, ["web"]);
}

#[test]
fn what_needs_each_other_in_a_circle_keeps_the_rest_of_its_order() {
    // The declared edge contradicts one implied edge, and the other one still holds.
    let set = set(json!([{"name": "web", "resources": [
        {"type": "file", "name": "/srv/x", "attributes": {"content": "", "owner": "app", "group": "www"}},
        {"type": "user", "name": "app", "depends_on": ["file:/srv/x"]},
        {"type": "group", "name": "www"},
    ]}]));
    let names: Vec<String> =
        set.bind().modules[0].resources.iter().map(|resource| resource.name.clone()).collect();
    assert_eq!(names, ["www", "/srv/x", "app"]);
}

#[test]
fn types_that_come_first_are_not_paired_with_what_follows() {
    let names = |kind: &str, attributes: serde_json::Value| -> Vec<serde_json::Value> {
        let one = |n: usize| json!({"type": kind, "name": format!("{kind}-{n}"), "attributes": attributes});
        (0..4_000).map(one).collect()
    };
    // Services before packages in the list, and one declared edge so that the list is sorted.
    let mut resources = names("service", json!({"enabled": "true"}));
    resources.extend(names("package", json!({})));
    resources.push(json!({"type": "file", "name": "/last", "attributes": {"content": "x"},
        "depends_on": ["service:service-0"]}));
    let bound = set(json!([{"name": "a", "resources": resources}])).bind();
    let kinds: Vec<&str> = bound.modules[0].resources.iter().map(|resource| resource.kind.as_str()).collect();
    let first_service = kinds.iter().position(|kind| *kind == "service").unwrap();
    let last_package = kinds.iter().rposition(|kind| *kind == "package").unwrap();
    assert!(last_package < first_service, "{last_package} {first_service}");
}
