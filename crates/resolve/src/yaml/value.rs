//! From [`YamlNode`] to [`Value`]: what a var, an attribute or a default holds.

use std::collections::BTreeMap;

use catalog::{params, secrets};
use lang::Value;
use lang::secret::is_secret_name;

use super::{At, YamlKind, YamlNode};
use crate::sink::FileSink;

/// Names that a template would see; `{{ params.x }}` in YAML is a mistake.
const TEMPLATE_ROOTS: [&str; 4] = ["params.", "vars.", "traits.", "node."];

/// The value that a node means where no type says more: `true` and `false`, plain
/// integers, else text. `None` when something in it was refused.
pub(crate) fn value_of(node: &YamlNode, sink: &mut FileSink) -> Option<Value> {
    match &node.kind {
        YamlKind::Text { text, plain } => scalar(text, *plain, node.at, sink),
        YamlKind::List(items) => {
            let values: Vec<Option<Value>> = items.iter().map(|item| value_of(item, sink)).collect();
            values.into_iter().collect::<Option<Vec<_>>>().map(Value::List)
        }
        YamlKind::Map(entries) => {
            let pairs: Vec<Option<(String, Value)>> = entries
                .iter()
                .map(|(key, node)| value_of(node, sink).map(|value| (key.value.clone(), value)))
                .collect();
            pairs.into_iter().collect::<Option<BTreeMap<_, _>>>().map(Value::Map)
        }
        YamlKind::Bad => None,
    }
}

fn scalar(text: &str, plain: bool, at: At, sink: &mut FileSink) -> Option<Value> {
    if plain {
        match text {
            "" => {
                sink.error("E010", at, "there is no value here")
                    .help("write \"\" for an empty text, or drop the line");
                return None;
            }
            "null" | "~" | "Null" | "NULL" => {
                sink.error(
                    "E010",
                    at,
                    format!("`{text}` is no value: absence is written by leaving a thing out"),
                )
                .help(format!("drop the line, or write \"{text}\" for the text"));
                return None;
            }
            "true" => return Some(Value::Bool(true)),
            "false" => return Some(Value::Bool(false)),
            _ => {}
        }
        if let Some(int) = params::plain_int(text) {
            return Some(Value::Int(int));
        }
    }
    if let Some(literal) = text.strip_prefix("secret::") {
        return Some(Value::Str(format!("secret:{literal}")));
    }
    if let Some(name) = text.strip_prefix("secret:") {
        if is_secret_name(name) {
            return Some(secrets::reference(name));
        }
        sink.error("E050", at, format!("`{name}` is no name of a secret"))
            .help("write  secret:team/name, or `secret::` for a text that begins with `secret:`");
        return None;
    }
    if let Some(inner) = template_words(text) {
        sink.error("E013", at, "`{{ }}` is for template files; here it stays as it is")
            .help(format!("write  ${{{{ {inner} }}}}"));
        return None;
    }
    Some(Value::Str(text.to_owned()))
}

/// What stands in the first `{{ }}` without a dollar sign, if it is one of Muster's names.
fn template_words(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(found) = rest.find("{{") {
        let inner = rest[found + 2..].split("}}").next().unwrap_or_default().trim();
        let ours = TEMPLATE_ROOTS.iter().any(|root| inner.starts_with(root));
        if ours && !rest[..found].ends_with('$') {
            return Some(inner);
        }
        rest = &rest[found + 2..];
    }
    None
}
