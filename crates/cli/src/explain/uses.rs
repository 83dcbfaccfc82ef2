//! The names that a declaration uses: in expressions, and in the template that it names.

use std::collections::BTreeSet;

use catalog::module::{CommandLine, Module};
use lang::{Expr, InterpolatedText, Template, Value};

/// Dotted names as their parts: `["params", "port"]`.
pub(super) type NamesUsed = BTreeSet<Vec<String>>;

/// The names that a condition uses.
pub(super) fn of_condition(source: &str) -> NamesUsed {
    Expr::parse(source)
        .map(|expr| expr.names().into_iter().map(|name| name.path).collect())
        .unwrap_or_default()
}

/// The names that the expressions in a value use, at any depth.
pub(super) fn of_value(value: &Value) -> NamesUsed {
    match value {
        Value::Str(text) => match InterpolatedText::parse(text) {
            Ok(parsed) => parsed.exprs().flat_map(|(expr, _)| expr.names()).map(|name| name.path).collect(),
            Err(_) => NamesUsed::new(),
        },
        Value::List(items) => items.iter().flat_map(of_value).collect(),
        Value::Map(map) => map.values().flat_map(of_value).collect(),
        Value::Bool(_) | Value::Int(_) => NamesUsed::new(),
    }
}

/// The names that a command uses.
pub(super) fn of_command(command: &CommandLine) -> NamesUsed {
    match command {
        CommandLine::Shell(text) => of_value(&Value::from(text.as_str())),
        CommandLine::Argv(argv) => argv.iter().flat_map(|arg| of_value(&Value::from(arg.as_str()))).collect(),
    }
}

/// The names that a template of a module uses.
pub(super) fn of_template(module: &Module, name: &str) -> NamesUsed {
    let parsed = module.templates.get(name).and_then(|source| Template::parse(name, source).ok());
    parsed.map(|template| template.uses().into_iter().map(|used| used.path).collect()).unwrap_or_default()
}

/// The full name of the var that a name means in a module; none where it means something else.
pub(super) fn var(module: &str, path: &[String]) -> Option<String> {
    match path {
        [root, param, ..] if root == "params" => Some(format!("{module}.{param}")),
        [root, module, param, ..] if root == "vars" => Some(format!("{module}.{param}")),
        _ => None,
    }
}
