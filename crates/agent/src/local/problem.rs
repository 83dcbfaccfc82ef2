//! [`LocalProblem`]: a refusal of the socket, with what to do.

use serde::{Deserialize, Serialize};

/// What kind of refusal it is; the text never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalProblemCode {
    /// There is no such route.
    NoRoute,
    /// The caller may only read.
    NotAllowed,
    /// The body cannot be read, or is too large.
    BadRequest,
    /// There is no such resource or run.
    NotFound,
    /// The host is paused.
    Paused,
    /// No release is held.
    NothingHeld,
    /// Too many at once.
    Busy,
    /// The daemon could not do it.
    Failed,
}

impl LocalProblemCode {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            LocalProblemCode::NoRoute | LocalProblemCode::NotFound => 404,
            LocalProblemCode::NotAllowed => 403,
            LocalProblemCode::BadRequest => 400,
            LocalProblemCode::Paused | LocalProblemCode::NothingHeld => 409,
            LocalProblemCode::Busy => 503,
            LocalProblemCode::Failed => 500,
        }
    }
}

/// Why the daemon refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct LocalProblem {
    /// What kind.
    pub code: LocalProblemCode,
    /// What is wrong, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl LocalProblem {
    /// A refusal without a next step.
    pub fn new(code: LocalProblemCode, message: impl Into<String>) -> LocalProblem {
        LocalProblem { code, message: message.into(), next: None }
    }

    /// The same, with what to do.
    pub fn with_next(self, next: impl Into<String>) -> LocalProblem {
        LocalProblem { next: Some(next.into()), ..self }
    }
}
