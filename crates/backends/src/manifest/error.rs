//! What can be wrong with the text of a manifest.

use crate::manifest::{MAX_DEPTH, MAX_DOCUMENTS, MAX_FILE, MAX_NAME, MAX_NODES};

/// A text that is no list of manifests. Nothing of the text counts then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct ReadManifestError {
    /// The line that it is about, from 1, where one can be named.
    pub line: Option<u32>,
    /// What is wrong.
    pub problem: ManifestProblem,
}

/// What is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestProblem {
    /// The bytes are no text.
    #[error("it is not UTF-8; save it as UTF-8")]
    NotText,
    /// The YAML parser refuses it.
    #[error("this is not YAML: {0}")]
    NotYaml(String),
    /// The JSON parser refuses it.
    #[error("this is not JSON: {0}")]
    NotJson(String),
    /// YAML that readers understand differently, or that JSON cannot hold.
    #[error("{0}")]
    NotPlain(String),
    /// A document that is a list or a single value.
    #[error("a manifest is a map with `kind` and `metadata`")]
    NotMap,
    /// No kind.
    #[error("there is no `kind`")]
    NoKind,
    /// No name.
    #[error("there is no `metadata.name`")]
    NoName,
    /// A field holds something else than text.
    #[error("`{0}` must be text")]
    NotAText(&'static str),
    /// A part of the object's key that cannot be one.
    #[error("`{field}` cannot be `{value}`: {why}")]
    BadName {
        /// Which field.
        field: &'static str,
        /// What it says, at most [`MAX_NAME`] bytes of it.
        value: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A kind of Muster's own.
    #[error("objects of kind `{0}` come from releases and the control plane, not from manifests")]
    Reserved(String),
    /// One key twice in one map.
    #[error("`{0}` stands here twice")]
    Duplicate(String),
    /// One object twice in one text.
    #[error("the object {0} stands in this text twice")]
    DuplicateObject(String),
    /// More bytes than a file may have.
    #[error("the text is larger than {MAX_FILE} bytes")]
    FileTooLarge,
    /// More bytes than an object may have.
    #[error("the object has {size} bytes, over {}", sync::object::MAX_CONTENT)]
    TooLarge {
        /// Its size in canonical form.
        size: usize,
    },
    /// Nested too deep.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More values than anyone needs, aliases counted as often as they stand.
    #[error("more than {MAX_NODES} values; aliases count as often as they are used")]
    TooManyValues,
    /// More documents than one text may have.
    #[error("more than {MAX_DOCUMENTS} documents in one text")]
    TooManyDocuments,
}

impl ManifestProblem {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            ManifestProblem::NotText => "not-text",
            ManifestProblem::NotYaml(_) => "not-yaml",
            ManifestProblem::NotJson(_) => "not-json",
            ManifestProblem::NotPlain(_) => "not-plain",
            ManifestProblem::NotMap => "not-a-map",
            ManifestProblem::NoKind => "no-kind",
            ManifestProblem::NoName => "no-name",
            ManifestProblem::NotAText(_) => "not-a-text",
            ManifestProblem::BadName { .. } => "bad-name",
            ManifestProblem::Reserved(_) => "reserved-kind",
            ManifestProblem::Duplicate(_) => "duplicate-key",
            ManifestProblem::DuplicateObject(_) => "duplicate-object",
            ManifestProblem::FileTooLarge | ManifestProblem::TooLarge { .. } => "too-large",
            ManifestProblem::TooDeep => "too-deep",
            ManifestProblem::TooManyValues | ManifestProblem::TooManyDocuments => "too-many",
        }
    }

    /// This problem at a line.
    pub(crate) fn at(self, line: usize) -> ReadManifestError {
        ReadManifestError { line: Some(u32::try_from(line).unwrap_or(u32::MAX)), problem: self }
    }

    /// This problem of the whole text.
    pub(crate) fn anywhere(self) -> ReadManifestError {
        ReadManifestError { line: None, problem: self }
    }

    /// A name that cannot be one; of a long value only the beginning is shown.
    pub(crate) fn bad_name(field: &'static str, value: &str, why: &'static str) -> ManifestProblem {
        let mut end = value.len().min(MAX_NAME);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let value = value[..end].escape_debug().to_string();
        ManifestProblem::BadName { field, value, why }
    }
}
