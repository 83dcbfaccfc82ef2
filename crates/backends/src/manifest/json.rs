//! From JSON text to a value: one document, no key twice, no number that is not exact.

use model::canonical::{self, Violation};
use serde_json::Value;

use super::document::{FieldLines, ManifestDocument};
use super::error::{ManifestProblem, ReadManifestError};
use super::number;

/// Reads the one document; an empty text holds none.
pub(super) fn read(text: &str) -> Result<Vec<ManifestDocument>, ReadManifestError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value = value(text)?;
    let line = 1 + text.bytes().take_while(u8::is_ascii_whitespace).filter(|byte| *byte == b'\n').count();
    Ok(vec![ManifestDocument { value, line, lines: FieldLines::default(), position: 0 }])
}

/// Reads one value.
pub(super) fn value(text: &str) -> Result<Value, ReadManifestError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    check(|violation| {
        canonical::check_loosely(&mut reader, violation)?;
        reader.end()?;
        serde_json::from_str(text)
    })
}

/// Checks a value that was read by others, where no key stands twice.
pub(super) fn checked(value: &Value) -> Result<Value, ReadManifestError> {
    check(|violation| canonical::check_loosely(value, violation).map(|()| value.clone()))
}

fn check(
    read: impl FnOnce(&mut Option<Violation>) -> Result<Value, serde_json::Error>,
) -> Result<Value, ReadManifestError> {
    let mut violation = None;
    read(&mut violation).map_err(|error| match violation {
        Some(Violation::TooDeep) => ManifestProblem::TooDeep.at(error.line()),
        Some(Violation::DuplicateKey(key)) => ManifestProblem::Duplicate(key).at(error.line()),
        Some(Violation::TooLarge(_)) => ManifestProblem::NotPlain(number::TOO_LARGE.into()).at(error.line()),
        None => ManifestProblem::NotJson(plain(&error)).at(error.line().max(1)),
    })
}

/// The library's words without its position, which is a field of its own.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(words, _)| words.to_owned())
}
