//! Running the programs of the package manager.

use std::collections::BTreeMap;
use std::time::Duration;

use host::{Command, End, FinishedCommand, Program};
use model::text::chain;

use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, failure, succeeded};

/// Time for a dry run, and for other questions.
pub(super) const QUESTION_TIMEOUT: Duration = Duration::from_secs(120);

/// A program of the package manager, with its arguments.
pub(super) struct AptCommand {
    pub(super) argv: Vec<String>,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Duration,
    /// Configuration files that were changed by hand are replaced.
    pub(super) replace_conffiles: bool,
}

impl AptCommand {
    pub(super) fn new(program: String, arguments: impl IntoIterator<Item = String>) -> AptCommand {
        let argv = std::iter::once(program).chain(arguments).collect();
        AptCommand { argv, stdin: Vec::new(), timeout: QUESTION_TIMEOUT, replace_conffiles: false }
    }
}

/// How a program of the package manager ended, and all that it printed, in order.
pub(super) struct AptOutcome {
    pub(super) end: End,
    pub(super) output: String,
}

impl AptOutcome {
    pub(super) fn succeeded(&self) -> bool {
        self.end == End::Exited(0)
    }
}

impl Kinds {
    /// Runs a program that asks nobody and speaks English, its outputs apart.
    pub(super) fn ask_apt(&self, command: AptCommand) -> Result<FinishedCommand, String> {
        let env = environment(command.replace_conffiles);
        let stdin = command.stdin;
        let program = Program::Argv(command.argv);
        let command = Command { env, stdin, ..Command::new(program, command.timeout, MAX_OUTPUT) };
        self.host.run(&command).map_err(|error| chain(&error))
    }

    /// Runs a program that changes packages; what it says of a package stands among what the package
    /// itself says.
    pub(super) fn run_apt(&self, mut command: AptCommand) -> Result<AptOutcome, String> {
        let both = ["/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"].map(str::to_owned);
        command.argv.splice(0..0, both);
        let timeout = command.timeout;
        let finished = self.ask_apt(command)?;
        let mut output = String::from_utf8_lossy(&finished.stdout.bytes).into_owned();
        match finished.end {
            End::Exited(_) => {}
            // Its own words are in the output; this says why there are no more.
            end => output.push_str(&format!("\n{}\n", failure(end, &silent(&finished), timeout))),
        }
        Ok(AptOutcome { end: finished.end, output })
    }

    /// Runs a program that has to succeed.
    pub(super) fn must_apt(&self, what: &str, command: AptCommand) -> Result<FinishedCommand, String> {
        let timeout = command.timeout;
        let finished = self.ask_apt(command)?;
        succeeded(&finished, timeout).map_err(|why| format!("{what} {why}"))?;
        Ok(finished)
    }
}

fn silent(finished: &FinishedCommand) -> FinishedCommand {
    FinishedCommand { end: finished.end, stdout: Default::default(), stderr: Default::default() }
}

fn environment(replace_conffiles: bool) -> BTreeMap<String, String> {
    let ucf = if replace_conffiles { "UCF_FORCE_CONFFNEW" } else { "UCF_FORCE_CONFFOLD" };
    let pairs = [
        ("LC_ALL", "C"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("DEBCONF_NONINTERACTIVE_SEEN", "true"),
        // It lists what runs on old code, and neither asks nor restarts: that is for handlers.
        ("NEEDRESTART_MODE", "l"),
        ("APT_LISTCHANGES_FRONTEND", "none"),
        ("APT_LISTBUGS_FRONTEND", "none"),
        (ucf, "1"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
