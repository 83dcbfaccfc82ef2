//! Development commands, as functions that tests call too.
#![allow(clippy::print_stdout, reason = "a command line tool for developers")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub mod bench;
pub mod booted;
pub mod codegen;
pub mod dist;
pub mod figures;
pub mod fuzz;
pub mod names;
pub mod previous;
pub mod promises;
pub mod test_programs;
pub mod tidy;
pub mod types;

/// What a command came to; an error is printed and fails the command.
pub type Outcome = Result<(), String>;

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Runs a program in the workspace's root.
///
/// # Errors
/// When it cannot be started or fails.
pub fn run(program: &str, args: &[&str]) -> Outcome {
    run_with(&[], program, args)
}

/// As [`run`], with more in its environment.
///
/// # Errors
/// As [`run`].
pub fn run_with(environment: &[(&str, &str)], program: &str, args: &[&str]) -> Outcome {
    let shown: String = environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    println!("$ {shown}{program} {}", args.join(" "));
    let environment = environment.iter().copied();
    let status = Command::new(program).args(args).envs(environment).current_dir(root()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} {}: {status}", args.join(" "))),
        Err(error) => Err(format!("{program} could not be started: {error}")),
    }
}

/// All files below a directory with this extension, in order.
pub fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return found };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}
