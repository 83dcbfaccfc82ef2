//! `custom`: the JSON that a script is asked with and answers in (EXE-2).

use std::collections::BTreeMap;

use catalog::types::CustomSpec;
use lang::Value;
use model::{Edit, Fields};
use serde::Serialize;

/// The longest reply, in bytes, that is read.
pub const MAX_REPLY: usize = 1024 * 1024;
/// The longest error text, in bytes, that is taken from a reply.
const MAX_ERROR: usize = 4 * 1024;
/// How much of a reply that is not JSON an error shows, in characters.
const SHOWN: usize = 120;

/// What a script said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptReply {
    /// It changed something, or would in a dry run.
    pub changed: bool,
    /// Why it failed; empty when it did not.
    pub error: String,
}

#[derive(Serialize)]
struct ScriptRequest<'a> {
    name: &'a str,
    state: &'a str,
    params: &'a BTreeMap<String, Value>,
    #[serde(rename = "dryRun", skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
}

/// The request as JSON on one line. `dryRun` is there only for a script that declared
/// `dry_run: true`.
pub fn request(spec: &CustomSpec, name: &str, dry_run: bool) -> Vec<u8> {
    let request = ScriptRequest {
        name,
        state: &spec.state,
        params: &spec.params,
        dry_run: spec.dry_run.then_some(dry_run),
    };
    // Text keys and plain values only: there is nothing in it that JSON cannot hold.
    let mut bytes = serde_json::to_vec(&request).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Reads a script's reply: a JSON object; `changed` defaults to false, `error` to the
/// empty text, other members are ignored.
///
/// # Errors
/// When the reply is empty, too long, not JSON, or of another shape; the text says which.
pub fn reply(bytes: &[u8]) -> Result<ScriptReply, String> {
    if bytes.len() > MAX_REPLY {
        return Err(format!("the script's reply is over {MAX_REPLY} bytes"));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(r#"the script printed nothing; it must print JSON such as {"changed": false}"#.to_owned());
    }
    let value: serde_json::Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("the script's reply is not JSON ({error}); it printed {}", shown(bytes)))?;
    let serde_json::Value::Object(object) = value else {
        return Err(format!("the script's reply is not a JSON object; it printed {}", shown(bytes)));
    };
    let changed = match object.get("changed") {
        None | Some(serde_json::Value::Null) => false,
        Some(serde_json::Value::Bool(changed)) => *changed,
        Some(other) => {
            return Err(format!("`changed` in the script's reply is {other}, not true or false"));
        }
    };
    let error = match object.get("error") {
        None | Some(serde_json::Value::Null) => String::new(),
        Some(serde_json::Value::String(error)) => bounded(error),
        Some(other) => return Err(format!("`error` in the script's reply is {other}, not a text")),
    };
    Ok(ScriptReply { changed, error })
}

/// The edit that stands for a script that changed something: only it knows what.
pub fn edit(spec: &CustomSpec) -> Edit<Fields> {
    Edit::Change { from: Fields::new(), to: Fields::from([("state".to_owned(), spec.state.clone())]) }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]);
    let mut start: String = text.chars().take(SHOWN).collect();
    if start.len() < bytes.len() {
        start.push_str("...");
    }
    format!("{start:?}")
}

fn bounded(error: &str) -> String {
    let end = (0..=MAX_ERROR.min(error.len())).rev().find(|end| error.is_char_boundary(*end)).unwrap_or(0);
    error[..end].to_owned()
}
