//! [`Val`]: a value while an expression is evaluated.

use std::borrow::Cow;

use super::error::EvalError;
use super::version::Version;
use crate::Value;

/// A value on its way.
pub(crate) enum Val<'a> {
    Plain(Cow<'a, Value>),
    Version(Version),
    /// Nothing; the error to give when it is used.
    Undefined(EvalError),
}

impl<'a> Val<'a> {
    pub(super) fn owned(value: Value) -> Val<'a> {
        Val::Plain(Cow::Owned(value))
    }

    pub(super) fn plain(&self) -> Option<&Value> {
        match self {
            Val::Plain(value) => Some(value),
            Val::Version(_) | Val::Undefined(_) => None,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Val::Plain(value) => value.type_name(),
            Val::Version(_) => "version",
            Val::Undefined(_) => "undefined value",
        }
    }

    /// A text argument of a filter.
    pub(super) fn text(self, filter: &str) -> Result<String, String> {
        match self {
            Val::Plain(Cow::Owned(Value::Str(text))) => Ok(text),
            Val::Plain(Cow::Borrowed(Value::Str(text))) => Ok(text.clone()),
            other => Err(format!("`{filter}` takes texts, not a value of type {}", other.type_name())),
        }
    }
}
