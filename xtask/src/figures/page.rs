//! `docs/benchmarks.md` from its template and the records: before and now, each beside its limit.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use figures::Figure;

use super::record::{BenchRecord, RECORDS};

/// The template, below the workspace's root.
pub const TEMPLATE: &str = "docs/benchmarks.template.md";
/// What is written.
pub const PAGE: &str = "docs/benchmarks.md";
/// What stands in the section of a benchmark of which there is no record.
pub const NOT_MEASURED: &str = "It was not measured yet.";

/// Renders the page. A line `{{figures NAME}}` of the template becomes all tables of a benchmark, a line
/// `{{runs}}` the table of which run is of which day, commit and machine.
///
/// # Errors
/// When the template names what is no benchmark, or lacks one that there is.
pub fn render(template: &str, known: &[&str], records: &[BenchRecord]) -> Result<String, String> {
    let mut page = String::new();
    let mut shown = BTreeSet::new();
    for (number, line) in template.lines().enumerate() {
        let at = || format!("{TEMPLATE}:{}", number + 1);
        match line.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
            None => page = page + line + "\n",
            Some("runs") => page += &runs(records),
            Some(directive) => {
                let name = directive
                    .strip_prefix("figures ")
                    .ok_or_else(|| format!("{}: `{directive}` is neither `figures NAME` nor `runs`", at()))?;
                if !known.contains(&name) {
                    return Err(format!("{}: there is no benchmark `{name}`", at()));
                }
                page += &tables(&of(records, name));
                shown.insert(name);
            }
        }
    }
    let lacks = |name: &&&str| !shown.contains(**name);
    if let Some(name) = known.iter().find(lacks) {
        return Err(format!("{TEMPLATE} has no line `{{{{figures {name}}}}}`"));
    }
    match records.iter().find(|record| !known.contains(&record.benchmark.as_str())) {
        Some(record) => {
            Err(format!("{RECORDS} has a record of `{}`, which is no benchmark", record.benchmark))
        }
        None => Ok(page),
    }
}

/// The records of one benchmark.
fn of<'a>(records: &'a [BenchRecord], name: &str) -> Vec<&'a BenchRecord> {
    records.iter().filter(|record| record.benchmark == name).collect()
}

/// Which run each benchmark's figures are of.
fn runs(records: &[BenchRecord]) -> String {
    let mut out = "| benchmark | now | before | machine |\n| --- | --- | --- | --- |\n".to_owned();
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if !names.contains(&record.benchmark.as_str()) {
            names.push(&record.benchmark);
        }
    }
    names.sort_unstable();
    for name in names {
        let of = of(records, name);
        let Some(now) = of.last() else { continue };
        let before = of.iter().rev().find(|record| record.commit != now.commit);
        let run = |record: &BenchRecord| format!("{}, `{}`", record.date(), record.commit);
        let machine = match before {
            Some(before) if before.machine != now.machine => {
                format!("{}; before: {}", now.machine, before.machine)
            }
            _ => now.machine.to_string(),
        };
        let before = before.map(|record| run(record)).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {name} | {} | {before} | {machine} |", run(now));
    }
    out
}

/// All tables of one benchmark, of its records from the oldest on, and what was noted with its newest commit.
fn tables(records: &[&BenchRecord]) -> String {
    if records.is_empty() {
        return format!("{NOT_MEASURED}\n");
    }
    let mut blocks = Vec::new();
    for name in in_order(records, |record| record.tables.iter().map(|table| table.table.as_str()).collect()) {
        let of = |record: &BenchRecord| record.tables.iter().find(|table| table.table == name).cloned();
        let Some(title) = records.iter().rev().find_map(|record| Some(of(record)?.title)) else { continue };
        // Figures of other sizes are no figures of this table.
        let rows_of = |record: &BenchRecord| of(record).filter(|table| table.title == title);
        let runs: Vec<BenchRun<'_>> = records
            .iter()
            .map(|record| BenchRun {
                record,
                rows: rows_of(record).map_or_else(Vec::new, |table| table.rows),
            })
            .collect();
        let mut block = format!("| {title} | before | now | limit |\n| --- | ---: | ---: | --- |\n");
        for name in in_order(&runs, |run| run.rows.iter().map(|row| &*row.name).collect()) {
            block += &row(name, &runs);
        }
        blocks.push(block);
    }
    let now = records.last().map(|last| last.commit.as_str());
    let notes = records.iter().filter(|record| Some(record.commit.as_str()) == now);
    let notes =
        notes.flat_map(|record| record.notes.iter().map(|note| format!("- {}: {note}\n", record.date())));
    blocks.extend(Some(notes.collect()).filter(|notes: &String| !notes.is_empty()));
    blocks.join("\n")
}

/// A run, and what it has of one table.
struct BenchRun<'a> {
    record: &'a BenchRecord,
    rows: Vec<Figure>,
}

/// What the runs have, each once: in the order of the run that has most of it, and then what only others have.
fn in_order<'a, T>(runs: &'a [T], of: impl Fn(&'a T) -> Vec<&'a str>) -> Vec<&'a str> {
    let mut lists: Vec<Vec<&str>> = runs.iter().rev().map(of).collect();
    // Newer ones come first among those that have as much.
    lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
    let mut found = Vec::new();
    for name in lists.into_iter().flatten() {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// One row: the newest commit that has it, beside the one before.
fn row(name: &str, runs: &[BenchRun<'_>]) -> String {
    let having: Vec<(&BenchRecord, &Figure)> = runs
        .iter()
        .flat_map(|run| run.rows.iter().filter(|row| row.name == name).map(|row| (run.record, row)))
        .collect();
    let (Some((newest, figure)), Some(last)) = (having.last(), runs.last()) else { return String::new() };
    let of = |commit: &str| -> Vec<&Figure> {
        having.iter().filter(|(record, _)| record.commit == commit).map(|(_, figure)| *figure).collect()
    };
    let before = having.iter().rev().find(|(record, _)| record.commit != newest.commit);
    let before = before.map(|(record, _)| values(&of(&record.commit))).unwrap_or_default();
    let mut now = values(&of(&newest.commit));
    if newest.commit != last.record.commit {
        // A peer, or what else it needs, was not there in the newest run.
        now += &format!(", of {}", newest.date());
    }
    let limit = figure.shown_limit().unwrap_or_default();
    let limit = if figure.is_kept() { limit } else { format!("{limit}: **missed**") };
    format!("| {name} | {before} | {now} | {limit} |\n")
}

/// The newest of several values of one commit, and between which all of them lie.
fn values(figures: &[&Figure]) -> String {
    let Some(newest) = figures.last() else { return String::new() };
    let all = || figures.iter().map(|figure| figure.value);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    match figures.len() {
        1 => newest.shown(),
        runs => {
            let (least, most) = (newest.unit.measured(least), newest.unit.measured(most));
            format!("{} ({runs} runs: {least} to {most})", newest.shown())
        }
    }
}
