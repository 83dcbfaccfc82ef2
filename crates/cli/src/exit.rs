//! [`Exit`]: what a verb's exit code says.

use std::process::ExitCode;

/// What a verb came to, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or nothing differs.
    Ok = 0,
    /// An error.
    Error = 1,
    /// There are differences.
    Differences = 2,
    /// Some nodes failed.
    SomeFailed = 3,
    /// The control plane does not answer.
    Unreachable = 4,
    /// Refused: by the control plane's rules, or because nobody said yes.
    Refused = 5,
}

/// Every exit code with what it means, for the help.
pub const EXITS: &[(Exit, &str)] = &[
    (Exit::Ok, "done, or nothing differs"),
    (Exit::Error, "an error"),
    (Exit::Differences, "there are differences"),
    (Exit::SomeFailed, "some nodes failed"),
    (Exit::Unreachable, "the control plane does not answer"),
    (Exit::Refused, "refused by policy, or nobody said yes"),
];

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
