//! Vars of a layer, read by the types that the modules declare.

use std::sync::Arc;

use catalog::module::Merge;
use catalog::params;
use lang::Value;

use super::context::Context;
use crate::decl::params::secret_mistake;
use crate::decl::vars::Var;
use crate::sink::Sink;
use crate::yaml::At;

/// A var read by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Full name: module, dot, param.
    pub(crate) name: Arc<str>,
    pub(crate) value: Value,
    pub(crate) at: At,
}

impl Typed {
    /// The module's name.
    pub(crate) fn module(&self) -> &str {
        self.name.split_once('.').map_or("", |(module, _)| module)
    }
}

/// The vars of one layer, in the order of the file.
pub(crate) type Layer = Vec<Typed>;

/// Reads a layer; vars with mistakes are reported and left out.
pub(crate) fn layer(context: &Context, file: &str, vars: &[Var], sink: &mut Sink) -> Layer {
    vars.iter().filter_map(|var| one(context, file, var, sink)).collect()
}

fn one(context: &Context, file: &str, var: &Var, sink: &mut Sink) -> Option<Typed> {
    let Some(decl) = context.param(&var.name) else {
        unknown(context, file, var, sink);
        return None;
    };
    if let Some(why) = secret_mistake(decl, &var.value) {
        sink.error(file, "E050", var.value_at, format!("`{}`: {why}", var.name));
        return None;
    }
    if params::is_dynamic(&var.value) {
        if decl.merge != Merge::Replace && matches!(var.value, Value::Str(_)) {
            sink.error(
                file,
                "E048",
                var.value_at,
                format!("`{}` merges, and an expression cannot be merged", var.name),
            )
            .help("write the list or map itself, with expressions inside it");
            return None;
        }
        return Some(Typed { name: var.name.as_str().into(), value: var.value.clone(), at: var.name_at });
    }
    match params::read(decl, &var.value) {
        Ok(value) => Some(Typed { name: var.name.as_str().into(), value, at: var.name_at }),
        Err(why) => {
            sink.error(file, "E048", var.value_at, format!("`{}`: {why}", var.name));
            None
        }
    }
}

fn unknown(context: &Context, file: &str, var: &Var, sink: &mut Sink) {
    let (module, param) = var.name.split_once('.').unwrap_or((&var.name, ""));
    let Some(info) = context.modules.get(module) else {
        let near = lang::nearest(module, context.modules.keys().map(String::as_str));
        let help = near.map(|near| format!("did you mean `{near}.{param}`?"));
        let message = format!("there is no module `{module}`, so no var `{}`", var.name);
        sink.error(file, "E044", var.name_at, message).maybe_help(help);
        return;
    };
    if info.broken {
        return;
    }
    let help = match lang::nearest(param, info.params.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{module}.{near}`?"),
        None if info.params.is_empty() => format!("module {module} has no params"),
        None => {
            let all: Vec<&str> = info.params.keys().map(String::as_str).collect();
            format!("module {module} has {}", all.join(", "))
        }
    };
    sink.error(file, "E044", var.name_at, format!("module `{module}` has no param `{param}`")).help(help);
}
