//! From an object to the text of a manifest that people read.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::error::ManifestProblem;
use super::{ARGO_GROUP, ARGO_SOURCE_UID, Format, SOURCE_UID};

/// What a manifest carries beside its spec content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// The mark of its source.
    pub source_uid: Option<String>,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// A status inside the manifest, canonical JSON.
    pub status: Option<Bytes>,
}

/// The text of a manifest; [`super::read`] makes the same of it. It ends with a newline.
///
/// # Errors
/// When the content is no JSON map.
pub fn render(spec: &[u8], extras: &Extras, format: Format) -> Result<String, ManifestProblem> {
    let not_json = |error: serde_json::Error| ManifestProblem::NotJson(error.to_string());
    let Value::Object(mut map) = serde_json::from_slice(spec).map_err(not_json)? else {
        return Err(ManifestProblem::NotMap);
    };
    let argo = map.get("apiVersion").and_then(Value::as_str).is_some_and(|it| it.starts_with(ARGO_GROUP));
    let Some(Value::Object(metadata)) = map.get_mut("metadata") else { return Err(ManifestProblem::NoName) };
    if let Some(uid) = &extras.uid {
        metadata.insert("uid".into(), json!(uid));
    }
    if !extras.finalizers.is_empty() {
        metadata.insert("finalizers".into(), json!(extras.finalizers));
    }
    if let Some(uid) = &extras.source_uid {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(annotations) = annotations {
            annotations.insert(if argo { ARGO_SOURCE_UID } else { SOURCE_UID }.into(), json!(uid));
        }
    }
    if let Some(status) = &extras.status {
        map.insert("status".into(), serde_json::from_slice(status).map_err(not_json)?);
    }
    let value = Value::Object(map);
    let mut text = match format {
        Format::Json => format!("{value:#}"),
        Format::Yaml => {
            let mut text = String::new();
            write(&mut text, &value, 0, true);
            text
        }
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Writes a value in block style. `fresh`: the line has nothing but its indent so far.
fn write(out: &mut String, value: &Value, indent: usize, fresh: bool) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 || !fresh {
                    new_line(out, indent);
                }
                out.push_str(&scalar(key));
                out.push(':');
                below(out, value, indent, indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 || !fresh {
                    new_line(out, indent);
                }
                out.push_str("- ");
                write(out, item, indent + 2, true);
            }
        }
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(text) => out.push_str(&scalar(text)),
        other => out.push_str(&other.to_string()),
    }
}

/// What stands after a key's colon.
fn below(out: &mut String, value: &Value, list_indent: usize, map_indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => write(out, value, map_indent, false),
        Value::Array(items) if !items.is_empty() => write(out, value, list_indent, false),
        _ => {
            out.push(' ');
            write(out, value, map_indent, true);
        }
    }
}

fn new_line(out: &mut String, indent: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

/// A text bare where no reader can take it for something else, else quoted as in JSON,
/// which is YAML too.
fn scalar(text: &str) -> String {
    let mut chars = text.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let goes_on = chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    let words = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"];
    let word = words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if begins && goes_on && !word { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // What YAML does not count as printable, or takes for the end of a line.
            c if c.is_control()
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') =>
            {
                out.push_str(&format!("\\u{:04X}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
