//! Running a tool of the host that a resource type is kept by.

use std::time::Duration;

use converge::JobFailure;
use host::{End, FinishedCommand, Program};
use model::text::chain;

use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, because, failure};

/// A call of a tool: absolute path and arguments, and what it reads.
pub(crate) struct ToolCall<'a> {
    /// The tool's path, then its arguments.
    pub(crate) argv: Vec<String>,
    /// What it reads.
    pub(crate) input: &'a [u8],
    /// It is killed after so long.
    pub(crate) timeout: Duration,
}

impl<'a> ToolCall<'a> {
    pub(crate) fn new(argv: &[&str], timeout: Duration) -> ToolCall<'a> {
        ToolCall { argv: argv.iter().map(|word| (*word).to_owned()).collect(), input: &[], timeout }
    }
}

impl Kinds {
    /// Runs a tool to its end, in the language of its source.
    ///
    /// # Errors
    /// In words, when it cannot be started.
    pub(crate) fn tool(&self, call: ToolCall<'_>) -> Result<FinishedCommand, String> {
        let mut command = host::Command::new(Program::Argv(call.argv), call.timeout, MAX_OUTPUT);
        command.env.insert("LC_ALL".to_owned(), "C".to_owned());
        command.stdin = call.input.to_vec();
        self.host.run(&command).map_err(|error| chain(&error))
    }

    /// As [`Kinds::tool`], and it has to succeed.
    ///
    /// # Errors
    /// With what it printed.
    pub(crate) fn tool_succeeds(&self, call: ToolCall<'_>) -> Result<(), JobFailure> {
        let (name, timeout) = (tool_name(&call.argv), call.timeout);
        let finished = self.tool(call)?;
        match finished.end {
            End::Exited(0) => Ok(()),
            end => Err(because(end, &name, format!("{name} {}", failure(end, &finished, timeout)))),
        }
    }
}

/// A tool's name without its path.
pub(crate) fn tool_name(argv: &[String]) -> String {
    let path = argv.first().map_or("", String::as_str);
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
