//! `foreach:` of a resource: what it goes over, and whether its items are different things.

use std::collections::BTreeMap;

use catalog::module::{MAX_LOOP_ITEMS, ParamDecl, ParamType};
use catalog::params::{evaluate, is_dynamic};
use lang::{Expr, InterpolatedText, Names, Value};

use super::resource::Placed;
use crate::exprs::{self, ExprSite, LOOP_NAMES};
use crate::shape::Reading;
use crate::yaml::{At, YamlNode};

/// Reads what a loop goes over: a list, a map, or a lone expression for one.
pub(super) fn read(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    params: &BTreeMap<String, ParamDecl>,
) -> Option<Value> {
    let before = reading.sink.count();
    exprs::texts(reading, node, ExprSite::Attribute, Some(params));
    let value = reading.value(node).filter(|_| reading.sink.count() == before)?;
    let items = match &value {
        Value::List(items) => items.len(),
        Value::Map(items) => items.len(),
        Value::Str(text) => {
            expression(reading, node.at, text, params);
            return Some(value);
        }
        Value::Bool(_) | Value::Int(_) => {
            refused(reading, node.at, &value.to_string());
            return Some(value);
        }
    };
    if items > MAX_LOOP_ITEMS {
        reading
            .error("E099", node.at, format!("a `foreach` goes over at most {MAX_LOOP_ITEMS} items"))
            .help("split the list");
    }
    Some(value)
}

/// A text can only be a lone expression, and a param in it a list or a map.
fn expression(reading: &mut Reading<'_>, at: At, text: &str, params: &BTreeMap<String, ParamDecl>) {
    let parsed = InterpolatedText::parse(text).ok().filter(|_| !InterpolatedText::is_literal(text));
    let Some(lone) = parsed.as_ref().and_then(InterpolatedText::lone) else {
        refused(reading, at, text);
        return;
    };
    if let Some(name) = lone_param(lone)
        && let Some(decl) = params.get(&name)
        && !matches!(decl.kind, ParamType::List | ParamType::Map)
    {
        reading
            .error("E078", at, format!("`foreach` goes over a list or a map, and param `{name}` is neither"))
            .help(format!("declare `{name}: {{type: list}}` under `params:`"));
    }
}

/// The param that an expression is, and nothing else.
fn lone_param(expr: &Expr) -> Option<String> {
    let names = expr.names();
    let [used] = names.as_slice() else { return None };
    match used.path.as_slice() {
        [root, name] if root == "params" && used.len == expr.source().trim().len() => Some(name.clone()),
        _ => None,
    }
}

/// What a loop goes over where nothing sets its param.
fn default_of<'p>(over: &Value, params: &'p BTreeMap<String, ParamDecl>) -> Option<&'p Value> {
    let parsed = InterpolatedText::parse(over.as_str()?).ok()?;
    params.get(&lone_param(parsed.lone()?)?)?.default.as_ref()
}

fn refused(reading: &mut Reading<'_>, at: At, text: &str) {
    reading
        .error("E078", at, format!("`foreach` goes over a list or a map, and `{text}` is neither"))
        .help("write a list, a map, or one expression such as ${{ params.users }}");
}

/// Each item needs a name of its own.
pub(super) fn check(reading: &mut Reading<'_>, placed: &Placed, params: &BTreeMap<String, ParamDecl>) {
    let (Some(over), name) = (&placed.resource.foreach, &placed.resource.name) else { return };
    if name.is_empty() {
        return;
    }
    let at = placed.attributes.get("name").copied().unwrap_or(placed.at);
    let Ok(parsed) = InterpolatedText::parse(name) else { return };
    let used: Vec<_> = parsed.exprs().flat_map(|(expr, _)| expr.names()).collect();
    let is_loop = |root: Option<&String>| root.is_some_and(|root| LOOP_NAMES.contains(&root.as_str()));
    if !used.iter().any(|used| is_loop(used.path.first())) {
        reading
            .error("E078", at, "each item of `foreach` needs a name of its own, and this one names no item")
            .help("use ${{ item }} or ${{ key }} in the name");
        return;
    }
    let over = if is_dynamic(over) { default_of(over, params) } else { Some(over) };
    if let (true, Some(over)) = (used.iter().all(|used| is_loop(used.path.first())), over) {
        twice(reading, placed, over, at);
    }
}

/// Two items of a list that stands there, or is the default of a param, with one name.
fn twice(reading: &mut Reading<'_>, placed: &Placed, over: &Value, at: At) {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for (key, item) in items(over).into_iter().take(MAX_LOOP_ITEMS) {
        let names = Names::new().with_ref("item", item).with("key", key.clone());
        let Ok(name) = evaluate(&Value::from(placed.resource.name.as_str()), &names) else { continue };
        let (name, key) = (name.to_string(), key.to_string());
        if let Some(first) = known.get(&name) {
            let message =
                format!("items {first} and {key} of `foreach` are both `{}:{name}`", placed.resource.kind);
            reading.error("E078", at, message).help("each item needs a name of its own");
            return;
        }
        known.insert(name, key);
    }
}

fn items(over: &Value) -> Vec<(Value, &Value)> {
    match over {
        Value::List(items) => {
            let number = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
            items.iter().enumerate().map(|(at, item)| (number(at), item)).collect()
        }
        Value::Map(items) => items.iter().map(|(key, item)| (Value::Str(key.clone()), item)).collect(),
        Value::Bool(_) | Value::Int(_) | Value::Str(_) => Vec::new(),
    }
}
