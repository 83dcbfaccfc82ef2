//! Reading one attribute's value by its kind.

use std::collections::BTreeMap;

use lang::Value;
use lang::regex::Regex;
use model::Digest;
use model::collect::CollectInserting;

use super::FieldKind;
use crate::module::CommandLine;
use crate::own_paths::normalized;
use crate::{duration, params};

/// The longest command argument or text attribute that is no content, in bytes.
const MAX_TEXT: usize = 64 * 1024;
/// The most arguments of a command.
const MAX_ARGS: usize = 1024;
/// The most items of a list.
const MAX_ITEMS: usize = 4096;

/// A value as its kind understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Text(String),
    Mode(u32),
    Bool(bool),
    Command(CommandLine),
    Texts(BTreeMap<String, String>),
    Values(BTreeMap<String, Value>),
    Value(Value),
    Codes(Vec<i32>),
    Digest(Digest),
    Int(i64),
    List(Vec<String>),
}

pub(super) fn read(kind: FieldKind, value: &Value) -> Result<Read, String> {
    match kind {
        FieldKind::Text => params::text(value).map(Read::Text),
        FieldKind::Line => line(value).map(Read::Text),
        FieldKind::Path => {
            let text = short_text(value)?;
            params::path(&text)?;
            Ok(Read::Text(normalized(&text).into_owned()))
        }
        FieldKind::Mode => mode(value).map(Read::Mode),
        FieldKind::Bool => params::bool(value).map(Read::Bool),
        FieldKind::Word(words) => word(words, value).map(Read::Text),
        FieldKind::Account => account(value).map(Read::Text),
        FieldKind::Argv => match value {
            Value::List(_) => command(value).map(Read::Command),
            _ => Err(
                "an argv list is needed, such as [systemctl, reload, nginx]; the `shell` type takes a text"
                    .into(),
            ),
        },
        FieldKind::Shell => match value {
            Value::List(_) => Err("a text is needed; the `exec` type takes an argv list".into()),
            _ => command(value).map(Read::Command),
        },
        FieldKind::Command => command(value).map(Read::Command),
        FieldKind::Regex => {
            let text = short_text(value)?;
            Regex::parse(&text).map_err(|error| error.to_string())?;
            Ok(Read::Text(text))
        }
        FieldKind::Texts => texts(value).map(Read::Texts),
        FieldKind::Values => match value {
            Value::Map(map) => Ok(Read::Values(map.clone())),
            other => Err(format!("a map is needed, and this is a {}", other.type_name())),
        },
        FieldKind::Value => Ok(Read::Value(value.clone())),
        FieldKind::Codes => codes(value).map(Read::Codes),
        FieldKind::Int(least, most) => int(least, most, value).map(Read::Int),
        FieldKind::List => list(value).map(Read::List),
        FieldKind::Duration => seconds(value).map(Read::Int),
        FieldKind::Url => url(value).map(Read::Text),
        FieldKind::Sha256 => {
            let text = short_text(value)?;
            text.parse()
                .map(Read::Digest)
                .map_err(|_| format!("`{text}` is not a SHA-256 (64 lower-case hex digits)"))
        }
        FieldKind::Source | FieldKind::Template => relative(value).map(Read::Text),
        FieldKind::Script => script(value).map(Read::Text),
    }
}

/// Reads a command: a list is an argv, a text is for `/bin/sh -c`.
///
/// # Errors
/// When it is empty, too long, or holds lists or maps.
pub fn command(value: &Value) -> Result<CommandLine, String> {
    match value {
        Value::List(items) if items.is_empty() => Err("an empty list names no program".into()),
        Value::List(items) if items.len() > MAX_ARGS => Err(format!("more than {MAX_ARGS} arguments")),
        Value::List(items) => {
            let argv = items.iter().map(short_text).collect::<Result<Vec<_>, _>>()?;
            if argv.first().is_some_and(String::is_empty) {
                return Err("the program's name is empty".into());
            }
            Ok(CommandLine::Argv(argv))
        }
        other => match short_text(other)? {
            text if text.trim().is_empty() => Err("an empty text runs nothing".into()),
            text => Ok(CommandLine::Shell(text)),
        },
    }
}

fn short_text(value: &Value) -> Result<String, String> {
    let text = params::text(value)?;
    if text.len() > MAX_TEXT {
        return Err(format!("longer than {MAX_TEXT} bytes"));
    }
    if text.contains('\0') {
        return Err("a NUL character cannot stand here".into());
    }
    Ok(text)
}

fn line(value: &Value) -> Result<String, String> {
    let text = short_text(value)?;
    if text.contains(['\n', '\r']) {
        return Err("one line is needed, and this has a line break; declare one `line` for each".into());
    }
    Ok(text)
}

fn mode(value: &Value) -> Result<u32, String> {
    let text = params::text(value)?;
    let digits = text.strip_prefix("0o").unwrap_or(&text);
    let octal = (3..=5).contains(&digits.len()) && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if octal && mode <= 0o7777 => Ok(mode),
        _ => Err(format!("`{text}` is not an octal mode such as \"0644\" or \"0755\"")),
    }
}

fn word(words: &[&'static str], value: &Value) -> Result<String, String> {
    let text = params::text(value)?;
    if words.contains(&text.as_str()) {
        return Ok(text);
    }
    let hint = lang::nearest(&text, words.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
    Err(format!("`{text}` is not one of {}{}", words.join(", "), hint.unwrap_or_default()))
}

fn account(value: &Value) -> Result<String, String> {
    let text = short_text(value)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-$@".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(fits) {
        return Err(format!("`{text}` is neither a user's or group's name nor a number"));
    }
    Ok(text)
}

fn texts(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Value::Map(map) = value else {
        return Err(format!("a map of texts is needed, and this is a {}", value.type_name()));
    };
    map.iter()
        .map(|(key, value)| {
            if key.is_empty() || key.contains(['=', '\0']) {
                return Err(format!("`{key}` cannot name a variable"));
            }
            Ok((key.clone(), short_text(value).map_err(|why| format!("{key}: {why}"))?))
        })
        .try_collect_inserting()
}

fn codes(value: &Value) -> Result<Vec<i32>, String> {
    let Value::List(items) = value else {
        return Err("a list of exit codes is needed, such as [0, 2]".into());
    };
    let code = |item: &Value| match params::int(item) {
        Ok(code @ 0..=255) => i32::try_from(code).map_err(|error| error.to_string()),
        _ => Err(format!("`{item}` is not an exit code (0 to 255)")),
    };
    if items.is_empty() {
        Err("an empty list means that nothing succeeds".into())
    } else {
        items.iter().map(code).collect()
    }
}

fn int(least: i64, most: i64, value: &Value) -> Result<i64, String> {
    match params::int(value)? {
        int if (least..=most).contains(&int) => Ok(int),
        int if most == i64::MAX => Err(format!("{int} is less than {least}")),
        int => Err(format!("{int} is not from {least} to {most}")),
    }
}

fn list(value: &Value) -> Result<Vec<String>, String> {
    let items = match value {
        Value::List(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    if items.len() > MAX_ITEMS {
        return Err(format!("more than {MAX_ITEMS} items"));
    }
    items.iter().map(line).collect()
}

fn seconds(value: &Value) -> Result<i64, String> {
    duration::parse(&short_text(value)?).map(i64::from)
}

fn url(value: &Value) -> Result<String, String> {
    let text = line(value)?;
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !text.contains([' ', '\t']) => Ok(text),
        _ => Err(format!("`{text}` is not a URL that begins with https:// or http://")),
    }
}

fn relative(value: &Value) -> Result<String, String> {
    let text = short_text(value)?;
    let stays = !text.is_empty() && text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if stays { Ok(text) } else { Err(format!("`{text}` does not name a file of the module")) }
}

fn script(value: &Value) -> Result<String, String> {
    let text = short_text(value)?;
    if text.starts_with('/') {
        params::path(&text)?;
    } else {
        relative(value)?;
        if !text.starts_with("executors/") {
            return Err(format!(
                "`{text}` is neither below executors/ nor an absolute path; write executors/{text}"
            ));
        }
    }
    Ok(text)
}
