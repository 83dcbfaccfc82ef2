//! docs/security.md: a row without a test is no promise. Every test that a row names is there, and every row names one.

use std::path::Path;

#[test]
fn every_row_names_tests_that_exist() {
    let root = xtask::root();
    let text = std::fs::read_to_string(root.join("docs/security.md")).expect("docs/security.md is there");
    let (mut rows, mut wrong) = (0, Vec::new());
    let mut in_table_of_tests = false;
    for line in text.lines() {
        if !line.starts_with('|') {
            in_table_of_tests = false;
        } else if line.ends_with("| test |") {
            in_table_of_tests = true;
        } else if in_table_of_tests && !line.starts_with("| ---") {
            rows += 1;
            check(line, &root, &mut wrong);
        }
    }
    assert!(rows > 40, "{rows} rows");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(line: &str, root: &Path, wrong: &mut Vec<String>) {
    let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
    let named: Vec<&str> = last.split('`').filter(|part| part.ends_with(".rs")).collect();
    // What is not there needs no test.
    if named.is_empty() && !last.contains("no such route") {
        wrong.push(format!("no test is named: {line}"));
    }
    for name in named {
        let path = root.join("crates").join(name);
        if !path.is_file() {
            wrong.push(format!("{name} is not there: {line}"));
        }
    }
}
