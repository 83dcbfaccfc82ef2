//! CFG-7: a value means what the param's type says of the text that was written, and
//! layers meet as the param declares.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{Merge, Module, ParamDecl, ParamType, Params};
use catalog::params::{LayerState, layer, merge, plain_int, read, resolve};
use lang::{Names, Value};

fn decl(kind: ParamType) -> ParamDecl {
    ParamDecl {
        kind,
        default: None,
        required: false,
        min: None,
        max: None,
        values: vec![],
        merge: Merge::Replace,
    }
}

fn text(text: &str) -> Value {
    Value::from(text)
}

#[test]
fn written_text_means_what_the_type_says() {
    let table: &[(ParamType, Value, Option<Value>)] = &[
        (ParamType::Version, text("1.10"), Some(text("1.10"))),
        (ParamType::String, text("0644"), Some(text("0644"))),
        (ParamType::Int, text("0644"), None),
        (ParamType::String, Value::Int(8080), Some(text("8080"))),
        (ParamType::String, Value::Bool(true), Some(text("true"))),
        (ParamType::String, text("on"), Some(text("on"))),
        (ParamType::Bool, text("on"), Some(Value::Bool(true))),
        (ParamType::Bool, text("no"), Some(Value::Bool(false))),
        (ParamType::Bool, text("No"), None),
        (ParamType::Bool, Value::Int(1), None),
        (ParamType::Int, text("12"), Some(Value::Int(12))),
        (ParamType::Int, text("1e3"), None),
        (ParamType::Int, text("-7"), Some(Value::Int(-7))),
        (ParamType::Port, Value::Int(0), None),
        (ParamType::Port, Value::Int(65_536), None),
        (ParamType::Port, Value::Int(443), Some(Value::Int(443))),
        (ParamType::Path, text("/etc/x"), Some(text("/etc/x"))),
        (ParamType::Path, text("/etc/../x"), None),
        (ParamType::Version, text("latest"), None),
        (ParamType::Duration, text("5m"), Some(text("5m"))),
        (ParamType::Duration, Value::Int(5), None),
        (ParamType::List, text("a"), None),
        (ParamType::Map, Value::List(vec![]), None),
        // What was opened; one that is written in plain is refused where it is written.
        (ParamType::Secret, text("x"), Some(text("x"))),
        (ParamType::Secret, Value::Int(1), None),
    ];
    for (kind, value, wanted) in table {
        let got = read(&decl(*kind), value);
        assert_eq!(got.as_ref().ok(), wanted.as_ref(), "{kind:?} of {value:?}: {got:?}");
        if let Ok(got) = got {
            assert_eq!(read(&decl(*kind), &got), Ok(got), "reading twice changes nothing");
        }
    }
}

#[test]
fn an_enum_gives_the_declared_value_and_names_the_nearest() {
    let level = ParamDecl { values: vec![text("info"), text("warn")], ..decl(ParamType::Enum) };
    assert_eq!(read(&level, &text("warn")), Ok(text("warn")));
    assert!(read(&level, &text("wran")).unwrap_err().contains("did you mean warn?"));
}

#[test]
fn plain_integers_have_one_form() {
    for (text, wanted) in
        [("0", Some(0)), ("-1", Some(-1)), ("9007199254740991", Some(9_007_199_254_740_991))]
    {
        assert_eq!(plain_int(text), wanted);
    }
    for text in
        ["", "-", "-0", "00", "07", "+1", "1_000", "1.0", "9007199254740992", "99999999999999999999", "0x1f"]
    {
        assert_eq!(plain_int(text), None, "{text}");
    }
}

fn list(items: &[&str]) -> Value {
    Value::from(items.to_vec())
}

fn map(pairs: &[(&str, Value)]) -> Value {
    Value::Map(pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

#[test]
fn layers_meet_as_declared() {
    let by = |merge| ParamDecl { merge, ..decl(ParamType::List) };
    let (first, later) = (list(&["a", "b"]), list(&["b", "c"]));
    assert_eq!(merge(&by(Merge::Replace), Some(&first), &later), later);
    assert_eq!(merge(&by(Merge::Append), Some(&first), &later), list(&["a", "b", "b", "c"]));
    assert_eq!(merge(&by(Merge::Unique), Some(&first), &later), list(&["a", "b", "c"]));
    let (first, later) =
        (map(&[("a", map(&[("x", 1.into())])), ("b", 2.into())]), map(&[("a", map(&[("y", 3.into())]))]));
    let both = map(&[("a", map(&[("x", 1.into()), ("y", 3.into())])), ("b", 2.into())]);
    assert_eq!(merge(&by(Merge::Deep), Some(&first), &later), both);
    assert_eq!(merge(&by(Merge::Deep), None, &later), later);
    let with_default = ParamDecl { default: Some(list(&["d"])), ..by(Merge::Append) };
    assert_eq!(layer(&with_default, None, &list(&["a"])), list(&["d", "a"]));
}

fn module(params: &[(&str, ParamDecl)]) -> Module {
    let json = r#"{"name": "web"}"#;
    let params = params.iter().map(|(name, decl)| ((*name).to_owned(), decl.clone())).collect();
    Module { params, ..serde_json::from_str(json).unwrap() }
}

#[test]
fn the_last_steps_of_the_ladder_are_taken_on_the_node() {
    let port = ParamDecl { default: Some(80.into()), ..decl(ParamType::Port) };
    let names = ParamDecl { default: Some(list(&["d"])), merge: Merge::Append, ..decl(ParamType::List) };
    let greeting = ParamDecl { default: Some(text("hello ${{ node.hostname }}")), ..decl(ParamType::String) };
    let key = ParamDecl { required: true, ..decl(ParamType::String) };
    let modules = BTreeMap::from([(
        "web".to_owned(),
        Arc::new(module(&[("port", port), ("names", names), ("greeting", greeting), ("key", key)])),
    )]);
    let node = map(&[("hostname", text("web-1"))]);
    let scope = Names::new().with("node", node);
    let conditional = serde_json::from_str(
        r#"[{"when": "a", "vars": {"web.port": 81, "web.names": ["c"]}}, {"when": "b", "vars": {"web.port": 82}}]"#,
    );
    let mut params = Params { conditional: conditional.unwrap(), ..Params::default() };
    params.vars.insert("web.names".into(), list(&["d", "v"]));
    params.host_vars.insert("web.names".into(), list(&["h"]));
    let missing = resolve(&modules, &params, &[], &scope);
    let told: Vec<String> = missing["web"].wrong.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["web.key: it is required and nothing sets it"]);

    params.vars.insert("web.key".into(), text("k"));
    let none = resolve(&modules, &params, &[], &scope)["web"].values.clone();
    assert_eq!(none["port"], 80.into());
    assert_eq!(none["names"], list(&["d", "v", "h"]));
    assert_eq!(none["greeting"], text("hello web-1"));
    let first =
        resolve(&modules, &params, &[LayerState::Holds, LayerState::Left], &scope)["web"].values.clone();
    assert_eq!((&first["port"], &first["names"]), (&81.into(), &list(&["d", "v", "c", "h"])));
    params.host_vars.insert("web.port".into(), 90.into());
    let both =
        resolve(&modules, &params, &[LayerState::Holds, LayerState::Holds], &scope)["web"].values.clone();
    assert_eq!(both["port"], 90.into());
    params.host_vars.insert("web.port".into(), text("${{ node.hostname }}"));
    let wrong = resolve(&modules, &params, &[], &scope)["web"].wrong[0].to_string();
    assert!(wrong.starts_with("web.port: `web-1` is not a whole number"), "{wrong}");
}
