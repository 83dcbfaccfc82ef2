//! `cargo xtask figures`: measures, keeps what was measured, and makes `docs/benchmarks.md` of it, so that no
//! figure is copied by hand.

mod machine;
mod page;
mod record;

use std::fs;
use std::path::Path;

pub use machine::BenchMachine;
pub use page::{NOT_MEASURED, PAGE, TEMPLATE, render};
pub use record::{BenchRecord, FigureTable, RECORDS, read_all};

use crate::bench::{self, BENCHMARKS};
use crate::{Outcome, dist};

/// `cargo xtask figures`, with `--check`, or `measure [NAME...]`.
///
/// # Errors
/// When the page is not what the records give, or something cannot be measured, read or written.
pub fn command(root: &Path, args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["render"] => write(root),
        ["--check"] => check(root),
        ["measure", names @ ..] => measure(root, names),
        _ => Err(format!(
            "figures knows `render`, `--check` and `measure [NAME...]`, and not `{}`",
            words.join(" ")
        )),
    }
}

/// Fails when the page is not what the template and the records give.
///
/// # Errors
/// With the first line that differs and how to make it anew.
pub fn check(root: &Path) -> Outcome {
    let wanted = rendered(root)?;
    let page = read(root, PAGE)?;
    let differs = wanted.lines().zip(page.lines()).position(|(wanted, found)| wanted != found);
    match differs {
        None if wanted == page => Ok(()),
        at => {
            let line = at.unwrap_or_else(|| wanted.lines().count().min(page.lines().count())) + 1;
            Err(format!(
                "{PAGE}:{line} is not what {TEMPLATE} and {RECORDS} give: edit those, then `cargo xtask figures`"
            ))
        }
    }
}

fn write(root: &Path) -> Outcome {
    let page = rendered(root)?;
    fs::write(root.join(PAGE), page).map_err(|error| format!("{PAGE}: {error}"))
}

fn rendered(root: &Path) -> Result<String, String> {
    render(&read(root, TEMPLATE)?, &known(), &read_all(root)?)
}

/// The names of all benchmarks whose figures are kept.
fn known() -> Vec<&'static str> {
    BENCHMARKS.iter().map(|benchmark| benchmark.name).collect()
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Runs benchmarks at their full sizes, of release builds, and writes a record of each; without names, all of
/// them. One that fails does not keep the others from being measured.
fn measure(root: &Path, names: &[&str]) -> Outcome {
    let known = known();
    if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
        return Err(format!("there is no benchmark `{unknown}`: {}", known.join(", ")));
    }
    dist::make(root, &dist::DistOptions { profile: dist::BuildProfile::Shipped, version: None })?;
    let mut failed = Vec::new();
    for benchmark in BENCHMARKS.iter().filter(|benchmark| names.is_empty() || names.contains(&benchmark.name))
    {
        match bench::record(root, benchmark) {
            Ok(path) => println!("{}: {path}", benchmark.name),
            Err(error) => failed.push(format!("{}: {error}", benchmark.name)),
        }
    }
    println!("`cargo xtask figures` makes {PAGE} of them");
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
