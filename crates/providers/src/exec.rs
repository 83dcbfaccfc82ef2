//! `exec` and `shell` on a host.

use model::text::chain;
use std::time::Duration;

use catalog::module::CommandLine;
use catalog::types::ExecSpec;
use converge::JobFailure;
use converge::kinds::{Applied, Checked, exec};
use host::{End, FinishedCommand};

use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, because, failure, output, program, text};

/// How much of a command an error repeats, in bytes.
const MAX_COMMAND: usize = 160;

pub(crate) fn check(kinds: &Kinds, spec: &ExecSpec, timeout: Duration) -> Result<Checked, JobFailure> {
    let mut guards = exec::Guards::default();
    if let Some(path) = &spec.creates {
        guards.created = Some(kinds.host.exists(path).map_err(text)?);
    }
    // A guard that says no spares the others.
    if guards.created != Some(true) {
        guards.unless = guard(kinds, spec, "unless", spec.unless.as_ref(), timeout)?;
    }
    if guards.created != Some(true) && guards.unless != Some(true) {
        guards.onlyif = guard(kinds, spec, "onlyif", spec.onlyif.as_ref(), timeout)?;
    }
    Ok(match exec::assess(spec, &guards) {
        Some(edit) => Checked {
            note: Some("cannot be undone: it is a command".to_owned()),
            ..Checked::differs(Checked::NOTHING, edit)
        },
        None => Checked::in_sync(Checked::NOTHING),
    })
}

pub(crate) fn apply(
    kinds: &Kinds,
    spec: &ExecSpec,
    checked: &Checked,
    timeout: Duration,
) -> Result<Applied, JobFailure> {
    let stdin = spec.stdin.as_deref().unwrap_or_default();
    let finished = run(kinds, spec, &spec.command, stdin, timeout)?;
    match finished.end {
        End::Exited(code) if exec::succeeded(spec, code) => {
            Ok(Applied { edit: checked.edit.clone(), changed: true, output: output(&finished) })
        }
        end => {
            let message = format!("{} {}", shown(&spec.command, spec), failure(end, &finished, timeout));
            Err(because(end, "", message))
        }
    }
}

/// The command and its directory in an error, on one line.
fn shown(command: &CommandLine, spec: &ExecSpec) -> String {
    let command = match command {
        CommandLine::Argv(argv) => argv.join(" "),
        CommandLine::Shell(text) => text.clone(),
    };
    let first = command.trim().lines().next().unwrap_or_default();
    let end = first.floor_char_boundary(MAX_COMMAND);
    let more = if end < command.trim().len() { "..." } else { "" };
    let cwd = spec.cwd.as_deref().unwrap_or("/");
    format!("`{}{more}` in {cwd}", &first[..end])
}

/// Runs what undoes it; false when nothing was declared to.
pub(crate) fn remove(kinds: &Kinds, spec: &ExecSpec, timeout: Duration) -> Result<bool, String> {
    let Some(command) = &spec.remove else {
        return Ok(false);
    };
    let finished = run(kinds, spec, command, "", timeout)?;
    match finished.end {
        End::Exited(code) if exec::succeeded(spec, code) => Ok(true),
        end => Err(format!("{} {}", shown(command, spec), failure(end, &finished, timeout))),
    }
}

fn guard(
    kinds: &Kinds,
    spec: &ExecSpec,
    attribute: &str,
    command: Option<&CommandLine>,
    timeout: Duration,
) -> Result<Option<bool>, JobFailure> {
    let Some(command) = command else {
        return Ok(None);
    };
    let finished = run(kinds, spec, command, "", timeout).map_err(|why| format!("{attribute}: {why}"))?;
    match finished.end {
        End::Exited(code) => Ok(Some(code == 0)),
        end => {
            let message =
                format!("{attribute}: {} {}", shown(command, spec), failure(end, &finished, timeout));
            Err(because(end, attribute, message))
        }
    }
}

fn run(
    kinds: &Kinds,
    spec: &ExecSpec,
    command: &CommandLine,
    stdin: &str,
    timeout: Duration,
) -> Result<FinishedCommand, String> {
    let command = host::Command {
        cwd: spec.cwd.clone(),
        env: spec.environment.clone(),
        user: spec.user.clone(),
        stdin: stdin.as_bytes().to_vec(),
        ..host::Command::new(program(command), timeout, MAX_OUTPUT)
    };
    kinds.host.run(&command).map_err(|error| chain(&error))
}
