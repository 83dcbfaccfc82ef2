//! Where figures go: a table for people, and a line each for `cargo xtask` in the file that it names.

use std::fs::OpenOptions;
use std::io::Write as _;

use figures::Figure;

use crate::Scale;

/// The variable that names the file which figures are appended to, one a line.
const LINES: &str = "MUSTER_BENCH_FIGURES";

/// Prints a table and appends its figures. Limits are judged by who reads them.
pub fn table(name: &'static str, title: &str, rows: Vec<Figure>, scale: Scale) {
    let quick = scale == Scale::Quick;
    let rows: Vec<Figure> = if quick { rows.into_iter().map(Figure::quick).collect() } else { rows };
    print!("{}", figures::text(title, &rows));
    if let Some(path) = std::env::var_os(LINES) {
        let lines = figures::lines("hosts", name, title, &rows, quick).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }
}
