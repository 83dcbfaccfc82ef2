//! A file: what it is, and its beginning.

use data_encoding::BASE64;
use host::Host;
use model::Timestamp;
use model::text::chain;
use serde_json::{Value, json};

use super::proc::user;
use super::without_nulls;

/// The most bytes of a file's content in an answer.
pub const MAX_CONTENT: usize = 128 * 1024;

pub(super) fn answer(host: &Host, path: &str, allowed: &dyn Fn(&str) -> bool) -> Result<Value, String> {
    let text = |error| chain(&error);
    let Some(real) = host.real(path).map_err(text)? else {
        return Ok(json!({"path": path, "exists": false}));
    };
    // A link may lead anywhere: where it leads is asked for anew, and not answered here.
    if !allowed(real.path()) {
        return Err(format!("{path} leads to a file that no release delegates"));
    }
    let accounts = host.accounts().map_err(text)?;
    let group = accounts.group_name(real.gid()).map_or_else(|| real.gid().to_string(), ToOwned::to_owned);
    let (mut size, mut digest, mut truncated, mut shown) = (None, None, false, (None, None));
    if real.is_file() {
        let (sha256, first) = real.read(MAX_CONTENT).map_err(text)?;
        (size, digest) = (Some(real.size()), Some(sha256));
        truncated = first.len() as u64 != real.size() && first.len() == MAX_CONTENT;
        shown = self::shown(first, truncated);
    }
    Ok(without_nulls(json!({
        "path": path,
        "exists": true,
        "realPath": (real.path() != path).then_some(real.path()),
        "kind": real.kind(),
        "mode": format!("{:04o}", real.mode()),
        "user": user(&accounts, real.uid()),
        "group": group,
        "modified": Timestamp::from_secs(real.modified()).to_string(),
        "size": size,
        "sha256": digest,
        "truncated": truncated.then_some(true),
        "text": shown.0,
        "base64": shown.1,
    })))
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
