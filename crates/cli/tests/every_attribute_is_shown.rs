//! CFG-6: `render` and `diff` show every attribute of every type, and every key that all resources
//! have: what is declared and not shown could change unseen.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::{CommandLine, DeclaredResource, Module, OnRemove, Params};
use catalog::schema::{Attribute, FieldKind, ResourceType, Short};
use catalog::types::TYPES;
use cli::bound::{self, NodeSet};
use lang::Value;
use model::Fields;

/// How a resource is shown.
fn shown(resource: &DeclaredResource) -> Fields {
    let module = Module { name: "m".into(), resources: vec![resource.clone()], ..Module::default() };
    let modules = BTreeMap::from([("m".to_owned(), Arc::new(module))]);
    let set = NodeSet::of(&modules, Params { modules: vec!["m".into()], ..Params::default() });
    let desired = set.bind("a.test", &Value::Map(BTreeMap::new()));
    bound::fields(desired.resources().next().unwrap(), &|_| None)
}

fn declared(kind: &ResourceType, attributes: BTreeMap<String, Value>) -> DeclaredResource {
    let name = if kind.short == Short::Path { "/etc/a" } else { "a" };
    DeclaredResource { kind: kind.name.into(), name: name.into(), attributes, ..DeclaredResource::default() }
}

/// A value of an attribute that is not its default.
fn value(attribute: &Attribute) -> Value {
    match attribute.kind {
        FieldKind::Bool => Value::Bool(attribute.default != "true"),
        FieldKind::Word(words) => {
            Value::from(*words.iter().find(|word| **word != attribute.default).unwrap())
        }
        FieldKind::Int(least, _) => Value::Int(least.max(0) + 3),
        FieldKind::Mode => Value::from("0751"),
        FieldKind::Path | FieldKind::Script => Value::from("/some/where"),
        FieldKind::Duration => Value::from("77s"),
        FieldKind::Url => Value::from("https://example.com/x"),
        FieldKind::Texts | FieldKind::Values => Value::Map(BTreeMap::from([("k".into(), Value::from("v"))])),
        FieldKind::Codes => Value::List(vec![Value::Int(9)]),
        FieldKind::List | FieldKind::Argv => Value::List(vec![Value::from("/bin/true")]),
        _ => Value::from("words"),
    }
}

#[test]
fn every_attribute_of_every_type_is_shown() {
    let mut unseen = BTreeSet::new();
    for kind in TYPES {
        for attribute in kind.attributes {
            // What these name is shown by its content, which a module without files has not.
            if matches!(attribute.kind, FieldKind::Template | FieldKind::Source) {
                continue;
            }
            let with = BTreeMap::from([(attribute.name.to_owned(), value(attribute))]);
            let (before, after) = (shown(&declared(kind, BTreeMap::new())), shown(&declared(kind, with)));
            let differs = after.iter().any(|(name, text)| name != "error" && before.get(name) != Some(text));
            if !differs {
                unseen.insert(format!("{}.{}", kind.name, attribute.name));
            }
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn every_key_that_all_resources_have_is_shown() {
    let plain = DeclaredResource {
        kind: "file".into(),
        name: "/etc/a".into(),
        attributes: BTreeMap::from([("content".to_owned(), Value::from("x"))]),
        ..DeclaredResource::default()
    };
    let command = || Some(CommandLine::Argv(vec!["true".into()]));
    // One for each field; a new field of the declaration has to be added here to compile.
    let DeclaredResource {
        kind: _,
        name: _,
        id: _,
        when: _,
        depends_on: _,
        before: _,
        notify: _,
        subscribes: _,
        observe: _,
        on_remove: _,
        sensitive: _,
        ignore_failure: _,
        timeout: _,
        foreach: _,
        only_if: _,
        not_if: _,
        retries: _,
        retry_delay: _,
        tags: _,
        attributes: _,
    } = plain.clone();
    let of = |change: &dyn Fn(&mut DeclaredResource)| {
        let mut changed = plain.clone();
        change(&mut changed);
        changed
    };
    let cases = [
        ("when", of(&|r| r.when = Some("file_exists(\"/a\")".into()))),
        ("before", of(&|r| r.before = vec!["other".into()])),
        ("subscribes", of(&|r| r.subscribes = vec!["other".into()])),
        ("observe", of(&|r| r.observe = true)),
        ("on_remove", of(&|r| r.on_remove = Some(OnRemove::Restore))),
        ("sensitive", of(&|r| r.sensitive = true)),
        ("ignore_failure", of(&|r| r.ignore_failure = true)),
        ("timeout", of(&|r| r.timeout = Some(77))),
        ("only_if", of(&|r| r.only_if = command())),
        ("not_if", of(&|r| r.not_if = command())),
        ("retries", of(&|r| (r.retries, r.retry_delay) = (Some(2), Some(9)))),
        ("tags", of(&|r| r.tags = BTreeSet::from(["slow".into()]))),
    ];
    let before = shown(&plain);
    for (key, changed) in cases {
        assert_ne!(before.get(key), shown(&changed).get(key), "{key}");
    }
}

#[test]
fn no_type_shows_what_may_be_a_secret() {
    let mut secret = BTreeSet::new();
    for kind in TYPES {
        for attribute in kind.attributes.iter().filter(|attribute| attribute.may_be_secret) {
            secret.insert(format!("{}.{}", kind.name, attribute.name));
            let value = match attribute.kind {
                FieldKind::Texts => Value::Map(BTreeMap::from([("k".into(), Value::from("hunter2"))])),
                FieldKind::List => Value::List(vec![Value::from("hunter2")]),
                _ => Value::from("hunter2"),
            };
            let fields = shown(&declared(kind, BTreeMap::from([(attribute.name.to_owned(), value)])));
            let told = |(name, text): (&String, &String)| name != "error" && text.contains("hunter2");
            assert!(!fields.iter().any(told), "{}.{}: {fields:?}", kind.name, attribute.name);
        }
    }
    let all = [
        "archive.headers",
        "download.headers",
        "exec.stdin",
        "image.headers",
        "package.responses",
        "shell.stdin",
        "user.password",
    ];
    assert_eq!(secret, all.map(str::to_owned).into());
}

#[test]
fn what_may_be_a_secret_is_shown_by_its_digest() {
    let headers = Value::Map(BTreeMap::from([("authorization".into(), Value::from("hunter2"))]));
    let stdin = BTreeMap::from([("stdin".to_owned(), Value::from("hunter2"))]);
    for (kind, attributes) in
        [("download", BTreeMap::from([("headers".to_owned(), headers)])), ("exec", stdin)]
    {
        let kind = catalog::schema::find(kind).unwrap();
        let fields = shown(&declared(kind, attributes));
        assert!(fields.values().any(|text| text.contains("sha256:")), "{fields:?}");
        assert!(!fields.values().any(|text| text.contains("hunter2")), "{fields:?}");
    }
}
