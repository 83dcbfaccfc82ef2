//! [`Diagnostic`]: a mistake in a fleet repo, with its position and what would be right.

use std::sync::Arc;

use serde::Serialize;

/// A position in a source file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SourceSpan {
    /// Path relative to the fleet repo.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// How many characters of that line are meant; at least 1.
    pub len: u32,
}

/// A second position that a diagnostic points to ("first declared here").
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Where.
    pub span: SourceSpan,
    /// What is there.
    pub text: String,
}

/// One mistake: code, message, position, and what would be right.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Stable code, `E` and three digits; `muster help CODE` explains it.
    pub code: &'static str,
    /// One sentence without a final stop.
    pub message: String,
    /// Where the mistake is; absent when no file is to blame.
    pub span: Option<SourceSpan>,
    /// What to write instead, or what to do.
    pub help: Option<String>,
    /// Other positions that matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
}

/// All mistakes found, in the order of files and lines.
pub type Diagnostics = Vec<Diagnostic>;
