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
    let mut reader = serde_json::Deserializer::from_slice(text.as_bytes());
    let mut violation = None;
    let read = canonical::check_loosely(&mut reader, &mut violation)
        .and_then(|()| reader.end())
        .and_then(|()| serde_json::from_slice(text.as_bytes()));
    read.map_err(|error| match violation {
        Some(violation) => problem(violation).at(error.line()),
        None => ManifestProblem::NotJson(plain(&error)).at(error.line().max(1)),
    })
}

/// Checks a value that was read by others, where no key stands twice.
pub(super) fn check(value: &Value) -> Result<(), ReadManifestError> {
    canonical::check_value(value).map_err(|violation| problem(violation).anywhere())
}

fn problem(violation: Violation) -> ManifestProblem {
    match violation {
        Violation::TooDeep => ManifestProblem::TooDeep,
        Violation::DuplicateKey(key) => ManifestProblem::Duplicate(key),
        Violation::TooLarge(_) => ManifestProblem::NotPlain(number::TOO_LARGE.into()),
    }
}

/// The library's words without its position, which is a field of its own.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(words, _)| words.to_owned())
}
