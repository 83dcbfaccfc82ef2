//! Records of benchmark runs: one file of `docs/figures` for each run.

use std::fs;
use std::path::Path;
use std::process::Command;

use figures::{Figure, FigureLine};
use serde::{Deserialize, Serialize};

use super::machine::BenchMachine;
use crate::files;

/// Where records are kept, below the workspace's root.
pub const RECORDS: &str = "docs/figures";

/// What one run of one benchmark measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchRecord {
    /// The benchmark's name, as in `cargo xtask figures measure NAME`.
    pub benchmark: String,
    /// When it began: RFC 3339 in UTC, or only the date.
    pub measured: String,
    /// The commit that was measured; with `+` behind it when there were changes beside it.
    pub commit: String,
    /// What it ran on.
    pub machine: BenchMachine,
    /// What was observed and is no row, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What was measured.
    pub tables: Vec<FigureTable>,
}

/// What belongs together under one title.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureTable {
    /// A name that does not change with sizes.
    pub table: String,
    /// As people read it, sizes included: figures of another title are not compared with these.
    pub title: String,
    /// In the order in which they are shown.
    pub rows: Vec<Figure>,
}

impl BenchRecord {
    /// Takes what a benchmark printed with `--json`: a figure on each line.
    ///
    /// # Errors
    /// When a line is none, or is of a run at small sizes.
    pub fn take(&mut self, lines: &str) -> Result<(), String> {
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let read: FigureLine = serde_json::from_str(line)
                .map_err(|error| format!("{}: a line is no figure: {error}: {line}", self.benchmark))?;
            if read.quick {
                return Err(format!("{}: figures of small sizes are not kept", self.benchmark));
            }
            let found =
                self.tables.iter_mut().find(|table| table.table == read.table && table.title == read.title);
            match found {
                Some(table) => table.rows.push(read.figure),
                None => self.tables.push(FigureTable {
                    table: read.table.into_owned(),
                    title: read.title,
                    rows: vec![read.figure],
                }),
            }
        }
        Ok(())
    }

    /// The record of a run that begins now, without its tables.
    ///
    /// # Errors
    /// When the commit, the time or the machine cannot be told.
    pub fn begin(root: &Path, benchmark: &str) -> Result<BenchRecord, String> {
        let commit = output(root, "git", &["rev-parse", "--short=8", "HEAD"])?;
        // Documentation and the records themselves are not measured.
        let changes = output(root, "git", &["status", "--porcelain", "--", ".", ":!docs"])?;
        Ok(BenchRecord {
            benchmark: benchmark.to_owned(),
            measured: output(root, "date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])?,
            commit: if changes.is_empty() { commit } else { format!("{commit}+") },
            machine: BenchMachine::this()?,
            notes: Vec::new(),
            tables: Vec::new(),
        })
    }

    /// The day on which it was measured.
    pub fn date(&self) -> &str {
        self.measured.split('T').next().unwrap_or_default()
    }

    /// Writes it into a file of its own, and gives that file's path below the root.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, root: &Path) -> Result<String, String> {
        let moment: String = self.measured.chars().filter(|c| *c != ':').collect();
        let path = format!("{RECORDS}/{moment}-{}.json", self.benchmark);
        let json = serde_json::to_string_pretty(self).map_err(|error| format!("{path}: {error}"))?;
        let written =
            fs::create_dir_all(root.join(RECORDS)).and_then(|()| fs::write(root.join(&path), json + "\n"));
        written.map_err(|error| format!("{path}: {error}"))?;
        Ok(path)
    }
}

/// All records, the oldest first.
///
/// # Errors
/// When a file cannot be read or is no record.
pub fn read_all(root: &Path) -> Result<Vec<BenchRecord>, String> {
    let mut records = Vec::new();
    for path in files(&root.join(RECORDS), "json") {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
        let record: BenchRecord = serde_json::from_str(&text)
            .map_err(|error| format!("{shown} is no record of figures: {error}"))?;
        records.push(record);
    }
    // Files come in the order of their names; the sort keeps it among records of one moment.
    records.sort_by(|one, other| one.measured.cmp(&other.measured));
    Ok(records)
}

/// What a program prints, in the workspace's root.
fn output(root: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let shown = || format!("{program} {}", args.join(" "));
    let output = Command::new(program).args(args).current_dir(root).output();
    let output = output.map_err(|error| format!("{}: {error}", shown()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", shown(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
