//! Commands of the outer machine.

use std::process::Command;

/// Runs a command; gives what it printed, or what it was, how it ended and its last words.
pub(super) fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() {
        true => Ok(out.into_owned()),
        false => Err(format!("{command:?}: {}\n{}{}", output.status, out.trim(), err.trim())),
    }
}

/// Runs one of this module's shell scripts.
pub(super) fn script(text: &str, arguments: &[&str]) -> Result<String, String> {
    succeed(Command::new("sh").arg("-c").arg(text).arg("sh").args(arguments))
}

/// `ip` with these words.
pub(super) fn ip(words: &str) -> Result<(), String> {
    succeed(Command::new("ip").args(words.split_whitespace())).map(drop)
}
