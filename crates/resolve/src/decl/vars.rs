//! `vars:`, wherever it stands.

use lang::Value;

use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, YamlKind, YamlNode};

/// One var of a layer: `nginx.port: 8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Var {
    /// Full name: module, dot, param.
    pub(crate) name: String,
    pub(crate) name_at: At,
    pub(crate) value: Value,
    pub(crate) value_at: At,
}

/// Reads a map of vars. Types are checked later, against the modules.
pub(crate) fn read(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Vec<Var> {
    let mut vars = Vec::new();
    for (key, value) in reading.map(node, what) {
        if !is_full_name(&key.value) {
            let nested = match &value.kind {
                YamlKind::Map(entries) => entries.first().map(|(inner, _)| inner.value.as_str()),
                _ => None,
            };
            let help = match nested {
                Some(inner) => format!("write  {}.{inner}: ...", key.value),
                None => "write  MODULE.PARAM: value".into(),
            };
            reading.error("E044", key.at, format!("`{}` is not the name of a var", key.value)).help(help);
            continue;
        }
        exprs::texts(reading, value, ExprSite::Var, None);
        if let Some(read) = reading.value(value) {
            vars.push(Var { name: key.value.clone(), name_at: key.at, value: read, value_at: value.at });
        }
    }
    vars
}

fn is_full_name(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(module, param)| !module.is_empty() && !param.is_empty() && !param.contains('.'))
}
