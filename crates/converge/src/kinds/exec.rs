//! `exec` and `shell`: whether a command is to run, and what its exit means.

use catalog::module::CommandLine;
use catalog::types::ExecSpec;
use model::{Edit, Fields};

/// The longest command text, in bytes, that an edit shows.
const MAX_SHOWN: usize = 200;

/// What the guards of a command said; `None` for a guard that is not declared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guards {
    /// The path of `creates` exists.
    pub created: Option<bool>,
    /// `unless` succeeded.
    pub unless: Option<bool>,
    /// `onlyif` succeeded.
    pub onlyif: Option<bool>,
}

/// The edit that running the command stands for; `None` when a guard says that there
/// is nothing to do. Guards are asked in the order creates, unless, onlyif.
pub fn assess(spec: &ExecSpec, guards: &Guards) -> Option<Edit<Fields>> {
    let held_back =
        guards.created == Some(true) || guards.unless == Some(true) || guards.onlyif == Some(false);
    (!held_back).then(|| Edit::Change { from: Fields::new(), to: shown(&spec.command) })
}

/// The exit code means success.
pub fn succeeded(spec: &ExecSpec, code: i32) -> bool {
    if spec.returns.is_empty() { code == 0 } else { spec.returns.contains(&code) }
}

/// A command as people read it: arguments that need it are quoted.
pub fn command_text(command: &CommandLine) -> String {
    let text = match command {
        CommandLine::Shell(text) => text.clone(),
        CommandLine::Argv(argv) => argv.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "),
    };
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn shown(command: &CommandLine) -> Fields {
    Fields::from([("command".to_owned(), command_text(command))])
}

fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("{arg:?}") }
}
