//! A file: what it is, and its beginning.

use data_encoding::BASE64;
use host::{Host, describe};
use model::{Digest, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::proc::user;

/// The most bytes of a file's content in an answer.
pub const MAX_CONTENT: usize = 128 * 1024;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileRow {
    path: String,
    exists: bool,
    /// Where it really lies, when that is elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    real_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

pub(super) fn answer(host: &Host, path: &str, allowed: &dyn Fn(&str) -> bool) -> Result<Value, String> {
    let text = |error| describe(&error);
    let mut row = FileRow { path: path.to_owned(), ..FileRow::default() };
    if let Some(real) = host.real(path).map_err(text)? {
        // A link may lead anywhere: where it leads is asked for anew, and not told.
        if !allowed(real.path()) {
            return Err(format!("{path} leads to a file that no release delegates"));
        }
        let accounts = host.accounts().map_err(text)?;
        let group = accounts.group_name(real.gid()).map_or_else(|| real.gid().to_string(), ToOwned::to_owned);
        row.exists = true;
        row.real_path = (real.path() != path).then(|| real.path().to_owned());
        row.kind = Some(real.kind());
        row.mode = Some(format!("{:04o}", real.mode()));
        row.user = Some(user(&accounts, real.uid()));
        row.group = Some(group);
        row.modified = Some(Timestamp::from_secs(real.modified()).to_string());
        if real.is_file() {
            let (digest, first) = real.read(MAX_CONTENT).map_err(text)?;
            row.size = Some(real.size());
            row.sha256 = Some(digest);
            row.truncated = first.len() as u64 != real.size() && first.len() == MAX_CONTENT;
            (row.text, row.base64) = shown(first, row.truncated);
        }
    }
    serde_json::to_value(row).map_err(|error| format!("cannot be said: {error}"))
}

/// As text where it is such, else in base64.
fn shown(mut bytes: Vec<u8>, truncated: bool) -> (Option<String>, Option<String>) {
    if truncated
        && let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        // The end cut a character in two.
        bytes.truncate(error.valid_up_to());
    }
    // Others take six bytes each in JSON.
    let plain = |text: &str| !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    match String::from_utf8(bytes) {
        Ok(text) if plain(&text) => (Some(text), None),
        Ok(text) => (None, Some(BASE64.encode(text.as_bytes()))),
        Err(error) => (None, Some(BASE64.encode(error.as_bytes()))),
    }
}
