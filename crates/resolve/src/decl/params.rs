//! `params:` of a module: plain defaults and typed declarations.

use std::collections::BTreeMap;

use catalog::module::{Merge, ParamDecl, ParamType};
use catalog::{params, secrets};
use lang::Value;

use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

const TYPES: [(&str, ParamType); 11] = [
    ("string", ParamType::String),
    ("int", ParamType::Int),
    ("port", ParamType::Port),
    ("bool", ParamType::Bool),
    ("path", ParamType::Path),
    ("version", ParamType::Version),
    ("duration", ParamType::Duration),
    ("enum", ParamType::Enum),
    ("list", ParamType::List),
    ("map", ParamType::Map),
    ("secret", ParamType::Secret),
];
const MERGES: [(&str, Merge); 4] = [
    ("replace", Merge::Replace),
    ("deep", Merge::Deep),
    ("append", Merge::Append),
    ("unique", Merge::Unique),
];

/// Reads `params:`.
pub(crate) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> BTreeMap<String, ParamDecl> {
    let mut all = BTreeMap::new();
    for (key, value) in reading.map(node, "params") {
        if !reading.identifier(&key.value, key.at, "a param") {
            continue;
        }
        if let Some(decl) = one(reading, key, value) {
            all.insert(key.value.clone(), decl);
        }
    }
    all
}

fn one(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> Option<ParamDecl> {
    match &node.kind {
        YamlKind::Map(entries) if entries.iter().any(|(key, _)| key.value == "type") => {
            typed(reading, name, node)
        }
        _ => plain(reading, node),
    }
}

/// A plain default says the type by what it is.
fn plain(reading: &mut Reading<'_>, node: &YamlNode) -> Option<ParamDecl> {
    exprs::texts(reading, node, ExprSite::Var, None);
    let value = reading.value(node)?;
    let kind = match &value {
        Value::Bool(_) => ParamType::Bool,
        Value::Int(_) => ParamType::Int,
        Value::Str(_) => ParamType::String,
        Value::List(_) => ParamType::List,
        Value::Map(_) => ParamType::Map,
    };
    Some(ParamDecl { default: Some(value), kind, ..ParamDecl::default() })
}

fn typed(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> Option<ParamDecl> {
    let whole = |reading: &mut Reading<'_>, node, what| {
        reading.int(node, what, -lang::value::MAX_INT, lang::value::MAX_INT)
    };
    let mut keys = reading.keys(node, "a param", "a param");
    let kind = keys.read("type", |node| word(reading, node, "type", &TYPES));
    let default = keys.get("default");
    let required = keys.read("required", |node| reading.bool(node, "required")).unwrap_or(false);
    let min = keys.read("min", |node| whole(reading, node, "min"));
    let max = keys.read("max", |node| whole(reading, node, "max"));
    let values = keys.read("values", |node| values(reading, node));
    let merge = keys.get("merge").map_or(Some(Merge::Replace), |node| word(reading, node, "merge", &MERGES));
    keys.read("description", |node| reading.text(node, "description"));
    keys.end(reading);
    let mut decl = ParamDecl { kind: kind?, default: None, required, min, max, values, merge: merge? };
    consistent(reading, name, &decl, default.map(|node| node.at));
    if let Some(node) = default {
        decl.default = default_value(reading, &decl, node);
    }
    Some(decl)
}

fn word<T: Copy>(reading: &mut Reading<'_>, node: &YamlNode, what: &str, known: &[(&str, T)]) -> Option<T> {
    let text = reading.text(node, what)?;
    let found = known.iter().find(|(name, _)| *name == text.value).map(|(_, value)| *value);
    if found.is_none() {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let help = match lang::nearest(&text.value, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write {}", names.join(", ")),
        };
        reading.error("E049", text.at, format!("a param has no {what} `{}`", text.value)).help(help);
    }
    found
}

fn values(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<Value> {
    reading.texts(node, "values").into_iter().map(|text| Value::Str(text.value)).collect()
}

fn consistent(reading: &mut Reading<'_>, name: &Spanned<String>, decl: &ParamDecl, default: Option<At>) {
    let mut wrong = |message: &str, help: &str| {
        reading.error("E049", name.at, format!("param `{}`: {message}", name.value)).help(help);
    };
    if decl.required && default.is_some() {
        wrong("a required param has no default", "drop one of the two");
    }
    if (decl.min.is_some() || decl.max.is_some()) && !matches!(decl.kind, ParamType::Int | ParamType::Port) {
        wrong("only an int or a port has min and max", "drop them, or change the type");
    }
    if matches!((decl.min, decl.max), (Some(min), Some(max)) if min > max) {
        wrong("min is more than max", "swap them");
    }
    match (decl.kind, decl.values.is_empty()) {
        (ParamType::Enum, true) => wrong("an enum needs `values`", "add `values: [a, b]`"),
        (ParamType::Enum, false) | (_, true) => {}
        (_, false) => wrong("only an enum has `values`", "write `type: enum`"),
    }
    match (decl.merge, decl.kind) {
        (Merge::Append | Merge::Unique, kind) if kind != ParamType::List => {
            wrong("only a list merges by append or unique", "write `type: list`, or another merge");
        }
        (Merge::Deep, kind) if kind != ParamType::Map => {
            wrong("only a map merges deep", "write `type: map`, or another merge");
        }
        _ => {}
    }
}

fn default_value(reading: &mut Reading<'_>, decl: &ParamDecl, node: &YamlNode) -> Option<Value> {
    exprs::texts(reading, node, ExprSite::Var, None);
    let value = reading.value(node)?;
    if let Some(why) = secret_mistake(decl, &value) {
        reading.error("E050", node.at, why);
        return None;
    }
    if params::is_dynamic(&value) {
        return Some(value);
    }
    match params::read(decl, &value) {
        Ok(value) => Some(value),
        Err(why) => {
            reading.error("E048", node.at, why);
            None
        }
    }
}

/// Why a value cannot be a param's, where it is about secrets: a param of type `secret` is one, and one whose value
/// is read by its type holds none, as nobody could say what is wrong with it.
pub(crate) fn secret_mistake(decl: &ParamDecl, value: &Value) -> Option<String> {
    let holds = || !secrets::paths_in(value, "", &|_| false).is_empty();
    match decl.kind {
        ParamType::Secret if secrets::lone_secret(value).is_none() => Some(params::SECRET_VALUE.to_owned()),
        ParamType::Secret | ParamType::String | ParamType::List | ParamType::Map => None,
        _ if holds() => {
            Some("a secret is the value of a param of type secret, string, list or map".to_owned())
        }
        _ => None,
    }
}
