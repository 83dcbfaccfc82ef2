//! One document of a text: its value, and where its fields stand.

use std::collections::BTreeMap;

use serde_json::Value;

/// A document as read.
pub(super) struct ManifestDocument {
    /// What it says.
    pub(super) value: Value,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    /// The lines of its upper fields.
    pub(super) lines: FieldLines,
    /// Which document of the text it is, empty ones counted, from 0.
    pub(super) position: usize,
}

/// Lines of the fields of the upper two levels, by `field` and `field.field`.
#[derive(Default)]
pub(super) struct FieldLines(BTreeMap<String, usize>);

impl FieldLines {
    pub(super) fn note(&mut self, field: &str, line: usize) {
        self.0.insert(field.to_owned(), line);
    }

    /// The line of a field, or of the one around it.
    pub(super) fn of(&self, field: &str) -> Option<usize> {
        let around = field.split_once('.').map_or(field, |(around, _)| around);
        self.0.get(field).or_else(|| self.0.get(around)).copied()
    }
}
