//! [`Pattern`]: which node names are meant.

use std::fmt;

use crate::glob::Glob;
use crate::regex::{Regex, RegexError};

/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 512;
/// The longest name that any pattern matches, in bytes (a DNS name's limit).
pub const MAX_NAME: usize = 253;

/// An exact name, a glob (`*` stops at a dot, `**` does not, `?` is one character that is
/// no dot), or a `/regex/` that must match the whole name. Case matters.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Exact,
    Glob(Glob),
    Regex(Regex),
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// There is nothing to match.
    #[error("the pattern is empty")]
    Empty,
    /// Longer than [`MAX_PATTERN`].
    #[error("the pattern is longer than {MAX_PATTERN} bytes")]
    TooLong,
    /// A character that no name contains.
    #[error(
        "`{0}` occurs in no node name; a glob knows * ** ?, and a regular expression stands between slashes"
    )]
    Character(char),
    /// The text between the slashes.
    #[error(transparent)]
    Regex(#[from] RegexError),
}

/// Whether a rule takes a name: its pattern matches, and none of its exceptions does.
pub fn takes(pattern: &Pattern, except: &[Pattern], name: &str) -> bool {
    pattern.matches(name) && !except.iter().any(|except| except.matches(name))
}

/// The index of the first rule, a pattern with its exceptions, that takes a name.
pub fn first_match<'a>(
    rules: impl IntoIterator<Item = (&'a Pattern, &'a [Pattern])>,
    name: &str,
) -> Option<usize> {
    rules.into_iter().position(|(pattern, except)| takes(pattern, except, name))
}

impl Pattern {
    /// Reads a pattern; its form follows from its text.
    pub fn parse(source: &str) -> Result<Pattern, PatternError> {
        if source.is_empty() {
            return Err(PatternError::Empty);
        }
        if source.len() > MAX_PATTERN {
            return Err(PatternError::TooLong);
        }
        let form = match source.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some("") => return Err(PatternError::Empty),
            Some(inner) => {
                // Checked alone first: an unbalanced group must not be closed by the anchor's.
                Regex::parse(inner)?;
                Form::Regex(Regex::parse(&format!("^(?:{inner})$"))?)
            }
            None => plain(source)?,
        };
        Ok(Pattern { source: source.to_owned(), form })
    }

    /// What every name that is meant begins with, as far as it stands there; empty for a regular expression.
    pub fn prefix(&self) -> &str {
        match &self.form {
            Form::Exact => &self.source,
            Form::Glob(_) => self.source.split(['*', '?']).next().unwrap_or_default(),
            Form::Regex(_) => "",
        }
    }

    /// Whether `name` is meant. A name longer than [`MAX_NAME`] never is.
    pub fn matches(&self, name: &str) -> bool {
        if name.len() > MAX_NAME {
            return false;
        }
        match &self.form {
            Form::Exact => self.source == name,
            Form::Glob(glob) => glob.matches(name, '.'),
            Form::Regex(regex) => regex.is_match(name),
        }
    }

    /// It names exactly one node.
    pub fn is_exact(&self) -> bool {
        matches!(self.form, Form::Exact)
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.source
    }
}

/// An exact name or a glob over the labels of a name.
fn plain(source: &str) -> Result<Form, PatternError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*' | '?');
    if let Some(other) = source.chars().find(|c| !allowed(*c)) {
        return Err(PatternError::Character(other));
    }
    let glob = Glob::parse(source);
    Ok(if glob.is_exact() { Form::Exact } else { Form::Glob(glob) })
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.source == other.source
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}
