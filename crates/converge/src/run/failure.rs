//! [`JobFailure`]: why a job failed, for people and for who compares hosts.

use std::fmt;

use model::report::MAX_CAUSE_DETAIL;
use model::{FailureCause, FailureCode};

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFailure {
    /// In words, with what a command printed.
    pub message: String,
    /// What of it other hosts can share; `None` where the words are all that is known.
    pub cause: Option<FailureCause>,
}

impl JobFailure {
    /// A failure with a cause. `detail` is what of it is the same on every host.
    pub fn new(code: FailureCode, detail: &str, message: impl Into<String>) -> JobFailure {
        let detail = detail[..detail.floor_char_boundary(MAX_CAUSE_DETAIL)].to_owned();
        JobFailure { message: message.into(), cause: Some(FailureCause { code, detail }) }
    }

    /// The same failure, told with more words.
    #[must_use]
    pub fn told(self, words: impl FnOnce(&str) -> String) -> JobFailure {
        JobFailure { message: words(&self.message), ..self }
    }
}

impl From<String> for JobFailure {
    fn from(message: String) -> JobFailure {
        JobFailure { message, cause: None }
    }
}

impl From<&str> for JobFailure {
    fn from(message: &str) -> JobFailure {
        message.to_owned().into()
    }
}

impl From<JobFailure> for String {
    fn from(failure: JobFailure) -> String {
        failure.message
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
