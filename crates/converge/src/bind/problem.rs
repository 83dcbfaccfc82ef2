//! [`BindError`]: why a part of a set cannot be bound, and where in its declaration that is.

use std::fmt;

use lang::{EvalError, TemplateError};

use super::GuardKind;

/// Why a resource, or a module as a whole, cannot be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindError {
    /// What is wrong, in the order in which it was met.
    pub mistakes: Vec<BindMistake>,
    /// What cannot be evaluated yet; on the node nothing is.
    pub unobserved: Vec<UnobservedPart>,
}

/// A mistake in a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindMistake {
    /// The part that is wrong.
    pub part: BindPart,
    /// What is wrong, and what would be right where that is known.
    pub message: String,
    /// Where in the part's text.
    pub place: Option<TextPlace>,
}

/// A part of a declaration that depends on an observed trait, where nobody has observed it yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnobservedPart {
    /// The part.
    pub part: BindPart,
    /// The trait: `traits.os.family`.
    pub observed: String,
}

/// A part of the declaration of a resource or a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BindPart {
    /// All of it.
    Whole,
    /// Its name.
    Name,
    /// `when:`.
    When,
    /// `foreach:`.
    Foreach,
    /// `only_if:` or `not_if:`.
    Guard(GuardKind),
    /// An attribute of its type.
    Attribute(String),
    /// The template of this name.
    Template(String),
    /// `verify:` of a module.
    Verify,
    /// The value of a param of the module, by its full name.
    Param(String),
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPlace {
    /// Bytes from the start of the value.
    Bytes {
        /// The first.
        offset: usize,
        /// How many.
        len: usize,
    },
    /// A position in a template, in lines and characters from 1.
    Line {
        /// The line.
        line: u32,
        /// The column.
        column: u32,
        /// How many characters.
        len: u32,
    },
}

impl BindError {
    /// One mistake that no part of the declaration is to blame for.
    pub(crate) fn whole(message: impl Into<String>) -> BindError {
        let mistake = BindMistake { part: BindPart::Whole, message: message.into(), place: None };
        BindError { mistakes: vec![mistake], ..BindError::default() }
    }

    /// What came of evaluating a part.
    pub fn of(part: BindPart, error: EvalError) -> BindError {
        let mut found = BindError::default();
        match error {
            EvalError::Unobserved(observed) => found.unobserved.push(UnobservedPart { part, observed }),
            EvalError::Failed { message, offset, len } => {
                let place = Some(TextPlace::Bytes { offset, len });
                found.mistakes.push(BindMistake { part, message, place });
            }
            needs @ EvalError::Needs(_) => {
                found.mistakes.push(BindMistake { part, message: needs.to_string(), place: None });
            }
        }
        found
    }

    /// A template that does not parse, or is wrong for these values.
    pub(crate) fn of_template(name: &str, error: &TemplateError) -> BindError {
        let place = TextPlace::Line { line: error.line, column: error.column, len: error.len };
        let mistake = BindMistake {
            part: BindPart::Template(name.to_owned()),
            message: error.message.clone(),
            place: Some(place),
        };
        BindError { mistakes: vec![mistake], ..BindError::default() }
    }

    /// Takes in what else is wrong.
    pub(crate) fn add(&mut self, other: BindError) {
        self.mistakes.extend(other.mistakes);
        self.unobserved.extend(other.unobserved);
    }

    /// Nothing is wrong, and all is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.mistakes.is_empty() && self.unobserved.is_empty()
    }

    /// The value, unless something is wrong with it.
    pub(crate) fn or<T>(self, value: T) -> Result<T, BindError> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for mistake in &self.mistakes {
            write!(f, "{between}{mistake}")?;
            between = "; ";
        }
        for UnobservedPart { part, observed } in &self.unobserved {
            write!(f, "{between}{part}it depends on `{observed}`, which only the node observes")?;
            between = "; ";
        }
        Ok(())
    }
}

impl fmt::Display for BindMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.part, self.place) {
            (BindPart::Template(name), Some(TextPlace::Line { line, column, .. })) => {
                write!(f, "templates/{name}:{line}:{column}: {}", self.message)
            }
            (part, _) => write!(f, "{part}{}", self.message),
        }
    }
}

/// As messages begin: `mode: `.
impl fmt::Display for BindPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindPart::Whole => Ok(()),
            BindPart::Name => f.write_str("name: "),
            BindPart::When => f.write_str("when: "),
            BindPart::Foreach => f.write_str("foreach: "),
            BindPart::Guard(kind) => write!(f, "{}: ", kind.key()),
            BindPart::Attribute(name) | BindPart::Param(name) => write!(f, "{name}: "),
            BindPart::Template(name) => write!(f, "templates/{name}: "),
            BindPart::Verify => f.write_str("verify: "),
        }
    }
}
