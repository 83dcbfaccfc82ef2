//! Requirement id -> code -> test -> figure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::figures::NOT_MEASURED;
use crate::{Outcome, files};

/// The page that is written.
const PAGE: &str = "docs/promises.md";

/// The sections of the requirements.
const SECTIONS: &[&str] = &[
    "IDN", "ENR", "WIR", "CFG", "DLT", "CNV", "EXE", "TRT", "SYN", "ROL", "LIF", "MSH", "SEC", "OPS", "SCL",
];

#[derive(Default)]
struct Promise {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
    figure: bool,
}

/// Writes docs/promises.md, or compares it with the tree; fails when code claims a promise that no
/// test names.
///
/// # Errors
/// When a claim has no test, the page is not what the tree gives, or it cannot be written.
pub fn run(root: &Path, write: bool) -> Outcome {
    let promises = collect(root);
    let table = render(&promises);
    if write {
        std::fs::write(root.join(PAGE), &table).map_err(|error| format!("{PAGE}: {error}"))?;
    }
    let untested: Vec<&String> =
        promises.iter().filter(|(_, p)| p.tests.is_empty()).map(|(id, _)| id).collect();
    if untested.is_empty() {
        compare(root, &table)?;
        println!("{} promises are claimed and tested ({PAGE})", promises.len());
        return Ok(());
    }
    let mut message = "claimed in the code, but named by no test:".to_owned();
    for id in untested {
        let code = promises[id].code.iter().cloned().collect::<Vec<_>>().join(", ");
        // Writing to a String cannot fail.
        let _ = write!(message, "\n  {id}  {code}");
    }
    Err(message)
}

fn compare(root: &Path, table: &str) -> Outcome {
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    match page == table {
        true => Ok(()),
        false => Err(format!("{PAGE} is not what the tree gives: `cargo xtask promises --write`")),
    }
}

fn collect(root: &Path) -> BTreeMap<String, Promise> {
    let mut promises: BTreeMap<String, Promise> = BTreeMap::new();
    for path in files(&root.join("crates"), "rs") {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let in_tests = shown.contains("/tests/") || shown.contains("crates/sim/");
        for id in ids(&text) {
            let promise = promises.entry(id).or_default();
            if in_tests {
                promise.tests.insert(shown.clone())
            } else {
                promise.code.insert(shown.clone())
            };
        }
    }
    let figures = std::fs::read_to_string(root.join("docs/benchmarks.md")).unwrap_or_default();
    let measured = figures.split("\n## ").filter(|section| !section.contains(NOT_MEASURED));
    for id in measured.flat_map(ids) {
        promises.entry(id).or_default().figure = true;
    }
    promises
}

/// The ids that a text names: three capitals, a dash, digits.
fn ids(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for section in SECTIONS {
        for (at, _) in text.match_indices(section) {
            let before = text[..at].chars().next_back();
            let Some(rest) = text[at + section.len()..].strip_prefix('-') else { continue };
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            if !digits.is_empty() && !before.is_some_and(|c| c.is_ascii_alphanumeric()) {
                found.insert(format!("{section}-{digits}"));
            }
        }
    }
    found
}

fn render(promises: &BTreeMap<String, Promise>) -> String {
    let mut out = "# Promises: where each is kept and tested\n\nMade by `cargo xtask promises --write`. \
                   A promise may be kept in part; ARCHITECTURE.md says what is absent.\n\n\
                   | id | code | tests | figure |\n| --- | --- | --- | --- |\n"
        .to_owned();
    let mut ordered: Vec<(&String, &Promise)> = promises.iter().collect();
    ordered.sort_by_key(|(id, _)| {
        let (section, number) = id.split_once('-').unwrap_or((id, "0"));
        let section = SECTIONS.iter().position(|s| *s == section);
        (section, number.parse::<u32>().unwrap_or(0))
    });
    for (id, promise) in ordered {
        let list = |files: &BTreeSet<String>| {
            let names = files.iter().map(|file| format!("`{}`", file.trim_start_matches("crates/")));
            names.collect::<Vec<_>>().join("<br>")
        };
        let figure = if promise.figure { "[benchmarks](benchmarks.md)" } else { "" };
        let (code, tests) = (list(&promise.code), list(&promise.tests));
        let _ = writeln!(out, "| {id} | {code} | {tests} | {figure} |");
    }
    out
}
