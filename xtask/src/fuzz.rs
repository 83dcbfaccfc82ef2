//! `cargo xtask fuzz`: the fuzz targets under libFuzzer, for as long as one likes.

use std::path::Path;
use std::process::Command;

use crate::Outcome;

/// Minutes of each target, unless asked otherwise.
const MINUTES: u64 = 1;
/// The longest input, in bytes.
const MAX_LEN: u64 = 64 * 1024;

/// Runs the targets that are named, or all of them one after another, each for so many minutes. What is found stays in
/// `fuzz/artifacts`; seeds stay as they are, and what is learnt lies in `fuzz/work`.
///
/// # Errors
/// When nightly Rust or cargo-fuzz is missing, and when a target does not hold.
pub fn run(root: &Path, args: &[String]) -> Outcome {
    let (mut minutes, mut named) = (MINUTES, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => {
                let value = args.next().and_then(|text| text.parse().ok()).filter(|minutes| *minutes > 0);
                minutes = value.ok_or("--minutes N: how many minutes for each target")?;
            }
            name => named.push(name.to_owned()),
        }
    }
    needed("nightly Rust", &["+nightly", "--version"], "rustup toolchain install nightly")?;
    needed("cargo-fuzz", &["+nightly", "fuzz", "--version"], "cargo install cargo-fuzz")?;
    let targets = targets(root)?;
    if let Some(unknown) = named.iter().find(|name| !targets.contains(name)) {
        return Err(format!("there is no fuzz target {unknown:?}; there are {}", targets.join(", ")));
    }
    let failed: Vec<String> = targets
        .into_iter()
        .filter(|target| named.is_empty() || named.contains(target))
        .filter(|target| !holds(root, target, minutes))
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "these do not hold: {}; fuzz/artifacts has the inputs. Mend it, and keep the input in fuzz/corpus",
            failed.join(", ")
        )),
    }
}

/// The names of the targets, as the folders of their seeds.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/corpus");
    let read = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        read.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn needed(what: &str, args: &[&str], install: &str) -> Outcome {
    match Command::new("cargo").args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => {
            Err(format!("fuzzing needs {what}: {install}. Stable Rust replays the seeds: cargo test -p fuzz"))
        }
    }
}

fn holds(root: &Path, target: &str, minutes: u64) -> bool {
    let work = root.join("fuzz/work").join(target);
    if std::fs::create_dir_all(&work).is_err() {
        return false;
    }
    let limits = [format!("-max_total_time={}", minutes * 60), format!("-max_len={MAX_LEN}")];
    let ran = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", target])
        .args([work, root.join("fuzz/corpus").join(target)])
        .arg("--")
        .args(limits)
        .arg("-timeout=10")
        .current_dir(root)
        .status();
    ran.is_ok_and(|status| status.success())
}
