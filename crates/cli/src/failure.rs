//! [`Failure`]: why a verb did not do it, with its causes and what to do next.

use std::error::Error;
use std::fmt::Write as _;

use serde_json::json;

use crate::exit::Exit;
use crate::next_step::with_credentials;
use crate::operator::OperatorCallError;

/// What an error has besides its message.
pub trait UserError: Error + Send + Sync + 'static {
    /// How the program ends.
    fn exit(&self) -> Exit {
        Exit::Error
    }

    /// What to do about it, with commands as [`crate::next_step`] finds them, without credentials.
    fn hint(&self) -> Option<String> {
        None
    }

    /// A stable code that `muster help CODE` explains.
    fn code(&self) -> Option<&str> {
        None
    }

    /// More, for programs, beside the message: what the text says in lines of its own.
    fn details(&self) -> Option<serde_json::Value> {
        None
    }
}

/// An error on its way to the terminal.
#[derive(Debug)]
pub struct Failure {
    error: Box<dyn Error + Send + Sync>,
    exit: Exit,
    hint: Option<String>,
    code: Option<String>,
    details: Option<serde_json::Value>,
}

impl<E: UserError> From<E> for Failure {
    fn from(error: E) -> Failure {
        // What the control plane says of it counts, however deep it lies.
        let (mut next, mut call): (Option<&(dyn Error + 'static)>, Option<&OperatorCallError>) =
            (Some(&error), None);
        while let (Some(error), None) = (next, call) {
            (call, next) = (error.downcast_ref(), error.source());
        }
        let user_error: &dyn UserError = call.map_or(&error, |call| call);
        let (exit, hint, code) = (user_error.exit(), user_error.hint(), user_error.code().map(str::to_owned));
        let details = error.details();
        Failure { error: Box::new(error), exit, hint, code, details }
    }
}

impl Failure {
    /// How the program ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// The error with its causes, one a line, and the hint.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "error: {}", self.error);
        for cause in causes(&*self.error) {
            let _ = writeln!(out, "  because: {cause}");
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "hint: {}", with_credentials(hint));
        }
        if let Some(code) = &self.code {
            let _ = writeln!(out, "      `muster help {code}` explains it");
        }
        out
    }

    /// The same for programs.
    pub fn json(&self) -> serde_json::Value {
        let mut error = json!({
            "message": self.error.to_string(),
            "causes": causes(&*self.error),
            "exit": self.exit as u8,
        });
        for (name, value) in [("hint", &self.hint), ("code", &self.code)] {
            if let Some(value) = value {
                error[name] = json!(value);
            }
        }
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        json!({ "error": error })
    }
}

/// What lies behind an error, the nearest cause first. One that only repeats the text before
/// it is left out.
fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut last = error.to_string();
    let mut found = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !last.contains(&text) {
            found.push(text.clone());
        }
        last = text;
        next = cause.source();
    }
    found
}
