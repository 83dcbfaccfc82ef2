//! A manifest as named texts, for the one renderer of differences.

use model::Fields;
use model::delta::{Delta, Edit};
use serde_json::Value;
use server::api::objects::{ApplyOutcome, ObjectResult};

/// What stands between the parts of a field's name.
const DOT: char = '.';

/// A manifest's values by their paths: `spec.ports[0].name`. Empty lists and maps count.
pub fn fields(value: &Value) -> Fields {
    let mut out = Fields::new();
    put(&mut out, String::new(), value);
    out
}

fn put(out: &mut Fields, path: String, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/'));
                let below = match (path.is_empty(), plain) {
                    (true, true) => name.clone(),
                    (false, true) => format!("{path}{DOT}{name}"),
                    (_, false) => format!("{path}[{name:?}]"),
                };
                put(out, below, value);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, value) in items.iter().enumerate() {
                put(out, format!("{path}[{at}]"), value);
            }
        }
        Value::String(text) => {
            out.insert(path, text.clone());
        }
        other => {
            out.insert(path, other.to_string());
        }
    }
}

/// What an apply or a delete would change, by node and object.
pub fn changes(results: &[ObjectResult]) -> Delta<String, Fields> {
    let states = |value: &Option<Value>| value.as_ref().map(fields).unwrap_or_default();
    let edit = |done: &ObjectResult| match done.outcome {
        ApplyOutcome::Created => Some(Edit::Add { to: states(&done.after) }),
        ApplyOutcome::Changed => Some(Edit::Change { from: states(&done.before), to: states(&done.after) }),
        ApplyOutcome::Deleted => Some(Edit::Remove { from: states(&done.before) }),
        ApplyOutcome::Unchanged | ApplyOutcome::Absent | ApplyOutcome::Refused => None,
    };
    let edits = results.iter().filter_map(|done| Some((title(done), edit(done)?)));
    Delta { edits: edits.collect() }
}

/// `web-1.example.com  App/team/shop`.
pub(super) fn title(done: &ObjectResult) -> String {
    format!("{}  {}", done.object.node, path(&done.object))
}

/// `App/team/shop`, and `App/shop` without a namespace.
pub(super) fn path(name: &server::api::objects::ObjectName) -> String {
    match name.namespace.as_str() {
        "" => format!("{}/{}", name.kind, name.name),
        namespace => format!("{}/{namespace}/{}", name.kind, name.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fields;

    #[test]
    fn values_are_named_by_their_paths() {
        let value = json!({
            "kind": "App", "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"ports": [{"name": "web", "port": 80}], "none": [], "on": true},
        });
        let shown: Vec<String> =
            fields(&value).into_iter().map(|(name, text)| format!("{name}={text}")).collect();
        assert_eq!(
            shown,
            [
                "kind=App",
                "metadata.annotations[\"a.b/c\"]=x",
                "spec.none=[]",
                "spec.on=true",
                "spec.ports[0].name=web",
                "spec.ports[0].port=80",
            ]
        );
    }
}
