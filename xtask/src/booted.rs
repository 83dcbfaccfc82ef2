//! The tests on booted hosts, and the ledger of the minutes that they take.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dist::{self, BuildProfile, DistOptions};
use crate::{Outcome, previous, run, run_with};

/// All booted tests together may take this long, the image's build aside.
const BUDGET: Duration = Duration::from_secs(15 * 60);

/// Runs them, or those whose names contain one of the filters, and prints the ledger.
///
/// # Errors
/// When one fails, or all together take too long.
pub fn test(root: &Path, filters: &[String]) -> Outcome {
    let previous = previous::build(root);
    dist::make(root, &DistOptions { profile: BuildProfile::Debug, version: None })?;
    previous::package(root, previous)?;
    let ledger = root.join("target/booted-ledger.tsv");
    fs::write(&ledger, "").map_err(|error| format!("{}: {error}", ledger.display()))?;
    let path = ledger.display().to_string();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    // Built apart, so that the time is that of the hosts.
    let tests = ["test", "--workspace", "--test", "booted"];
    run("cargo", &[&tests[..], &["--no-run"]].concat())?;
    let begun = Instant::now();
    let outcome = run_with(&[("MUSTER_BOOTED", &path)], "cargo", &[&tests[..], &["--"], &filters].concat());
    let took = begun.elapsed();
    let rows = fs::read_to_string(&ledger).map_err(|error| format!("{path}: {error}"))?;
    let (table, image) = table(&rows);
    let minutes = |time: Duration| time.as_secs_f64() / 60.0;
    println!("\n{table}\nAll together {:.1} minutes of {:.0}.", minutes(took), minutes(BUDGET));
    outcome?;
    match took.saturating_sub(image) > BUDGET {
        true => Err(format!("the booted tests take over {:.0} minutes", minutes(BUDGET))),
        false => Ok(()),
    }
}

/// The ledger as a table, the longest test first, and how long the image's build took.
fn table(rows: &str) -> (String, Duration) {
    let seconds = |took: &str| took.parse::<f64>().unwrap_or_default();
    let mut rows: Vec<(&str, &str)> = rows.lines().filter_map(|row| row.split_once('\t')).collect();
    rows.sort_by(|(_, one), (_, other)| seconds(other).total_cmp(&seconds(one)));
    let image =
        rows.iter().filter(|(test, _)| test.starts_with("image-")).map(|(_, took)| seconds(took)).sum();
    let lines: String = rows.iter().map(|(test, took)| format!("| {test} | {took} |\n")).collect();
    (format!("| test | seconds |\n| --- | ---: |\n{lines}"), Duration::from_secs_f64(image))
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn the_longest_comes_first_and_the_image_counts_apart() {
        let (table, image) = table("short\t1.5\nlong\t60.0\nnone\tskipped: not root\nimage-0a\t90.0\n");
        let order =
            ["image-0a", "long", "short", "none"].map(|test| table.find(&format!("| {test} |")).unwrap());
        assert!(order.is_sorted(), "{table}");
        assert_eq!(image.as_secs(), 90);
    }
}
