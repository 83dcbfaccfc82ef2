//! `json`: values in a JSON file.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::edited::{CREATE, VALIDATE};
use super::{EditedFile, Ensure, FILE_TIMEOUT_SECS, GROUP, MODE, OWNER, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// The most values that one resource sets.
const MAX_VALUES: usize = 256;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "json",
    summary: "Values in a JSON file. The order of keys, the indentation and every other byte are kept. A file \
              that is not JSON, or holds comments, is an error that names line and column.",
    short: Short::Attribute("path"),
    attributes: &[
        STATE,
        Attribute::always("path", FieldKind::Path, "the file"),
        Attribute::new(
            "pointer",
            FieldKind::Line,
            "",
            "the value's place as a JSON pointer, such as `/log-opts/max-size`; objects on the way are made",
        ),
        Attribute::new(
            "value",
            FieldKind::Value,
            "",
            "the value: text, a whole number, true or false, a list or a map",
        ),
        Attribute::new("json", FieldKind::Text, "", "the value as JSON text, for null and fractions"),
        Attribute::new(
            "merge",
            FieldKind::Values,
            "",
            "an object that is merged into the file, key by key; lists are replaced",
        ),
        CREATE,
        VALIDATE,
        MODE,
        OWNER,
        GROUP,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- json: /etc/app.json\n  merge:\n    log: {level: info}\n    listen: [127.0.0.1]\n  create: true\n",
    manages: Manages::State,
    removal: &["path", "pointer", "merge", "mode", "owner", "group"],
    rules,
    bind,
};

/// `json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonSpec {
    /// Present or absent.
    pub ensure: Ensure,
    /// The file.
    pub file: EditedFile,
    /// The values as JSON texts, by their pointers; of what is absent, only the pointers count.
    pub values: BTreeMap<String, String>,
}

impl StateSpec for JsonSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = self.values.clone();
        self.file.declare(&mut fields);
        fields
    }

    fn edited_file(&self) -> Option<&EditedFile> {
        Some(&self.file)
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let has = |name: &str| attributes.contains_key(name);
    let mut found = Vec::new();
    match (has("pointer"), has("merge")) {
        (true, true) => {
            let message = "`pointer` and `merge` both say what is set".to_owned();
            found.push(AttributeProblem::conflict("merge", message, "keep one of them"));
        }
        (false, false) => {
            let help = "add `pointer:` and `value:`, or `merge:`";
            let message = "`json` needs `pointer` or `merge`".to_owned();
            found.push(AttributeProblem::missing(None, message, help));
        }
        _ => {}
    }
    if has("value") && has("json") {
        let message = "`value` and `json` both say what is set".to_owned();
        found.push(AttributeProblem::conflict("json", message, "keep one of them"));
    }
    if has("pointer") && !is_absent(attributes) && !has("value") && !has("json") {
        let message = "`pointer` needs `value`".to_owned();
        found.push(AttributeProblem::missing(Some("pointer"), message, "add `value:` or `json:`"));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let mut values = BTreeMap::new();
    match given.text("pointer") {
        Some(pointer) => {
            let text = match (given.text("json"), given.value("value")) {
                (Some(json), _) => {
                    let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(json.as_bytes());
                    parsed.map_err(|error| format!("`json` is not JSON: {error}"))?;
                    json.trim().to_owned()
                }
                (None, Some(value)) => json_text(&value)?,
                (None, None) => "null".to_owned(),
            };
            values.insert(pointer, text);
        }
        None => flatten("", &Value::Map(given.values("merge")), &mut values)?,
    }
    if let Some(pointer) = values.keys().find(|pointer| !pointer.starts_with('/')) {
        return Err(format!("`{pointer}` is not a JSON pointer to a value in the file; it begins with `/`"));
    }
    if values.len() > MAX_VALUES {
        return Err(format!("more than {MAX_VALUES} values"));
    }
    Ok(Spec::Json(JsonSpec { ensure: given.ensure(), file: EditedFile::read(given), values }))
}

fn json_text(value: &Value) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// The values that a merged object sets, by their pointers.
fn flatten(at: &str, value: &Value, out: &mut BTreeMap<String, String>) -> Result<(), String> {
    match value {
        Value::Map(map) if !map.is_empty() => map.iter().try_for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            flatten(&format!("{at}/{key}"), value, out)
        }),
        other => {
            out.insert(at.to_owned(), json_text(other)?);
            Ok(())
        }
    }
}
