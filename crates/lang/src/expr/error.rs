//! The bounds of an expression, and the errors of one that is wrong.

use crate::Probe;

/// The longest expression, in bytes.
pub const MAX_SOURCE: usize = 8 * 1024;
/// The deepest nesting of an expression.
pub const MAX_DEPTH: usize = 64;
/// The most steps that one evaluation takes.
pub const MAX_STEPS: u64 = 100_000;
/// The most bytes of values that one evaluation makes on its way.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// An expression that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// What is wrong; one sentence without a final stop.
    pub message: String,
    /// Where it is wrong, in bytes from the start of the source.
    pub offset: usize,
    /// How many bytes are meant.
    pub len: usize,
    /// What to write instead.
    pub help: Option<String>,
}

impl ParseError {
    /// A mistake without help.
    pub(crate) fn new(message: impl Into<String>, offset: usize, len: usize) -> ParseError {
        ParseError { message: message.into(), offset, len, help: None }
    }

    /// The same of a longer text, in which this source begins at an offset.
    pub(crate) fn shifted(self, by: usize) -> ParseError {
        ParseError { offset: self.offset + by, ..self }
    }
}

/// An evaluation that gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression is wrong for these values.
    #[error("{message}")]
    Failed {
        /// What is wrong, with what would be right where that is known.
        message: String,
        /// Where, in bytes from the start of the source.
        offset: usize,
        /// How many bytes are meant.
        len: usize,
    },
    /// A node-side predicate has to be answered first; then evaluate again.
    #[error("`{0}` is known only on the node, in `when:`")]
    Needs(Probe),
    /// It depends on this observed trait, and nobody has observed it yet.
    #[error("it depends on `{0}`, which only the node observes")]
    Unobserved(String),
}

impl EvalError {
    /// The same of a longer text, in which the source begins at an offset.
    pub(crate) fn shifted(self, by: usize) -> EvalError {
        match self {
            EvalError::Failed { message, offset, len } => {
                EvalError::Failed { message, offset: offset + by, len }
            }
            other @ (EvalError::Needs(_) | EvalError::Unobserved(_)) => other,
        }
    }
}

impl From<ParseError> for EvalError {
    fn from(error: ParseError) -> EvalError {
        EvalError::Failed { message: error.message, offset: error.offset, len: error.len }
    }
}

/// A window that an expression asks for with `in_window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowUse {
    /// Its name; `None` where it is computed, so that nobody knows it before the node.
    pub name: Option<String>,
    /// Where the question starts, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// A dotted name that an expression uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameUse {
    /// Its parts: `["params", "port"]`.
    pub path: Vec<String>,
    /// Where it starts, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
    /// It stands before `default` or `is defined`, so it need not exist.
    pub guarded: bool,
}
