//! EXE-1: the page for people from other tools (`docs/coming-from.md`) names the resource types that
//! there are, all of them, with attributes that they have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::path::Path;

use catalog::types::TYPES;

/// The rows of the section's table: the type, and its last column.
fn rows(page: &str) -> Vec<(String, String)> {
    let section = page.split("\n## Resource types\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        (cells[0].trim_matches('`').to_owned(), cells[4].to_owned())
    })
    .collect()
}

/// The words in backquotes, but for those in parentheses, which are of other tools.
fn words(cell: &str) -> Vec<String> {
    let mut own = String::new();
    let mut depth = 0;
    for letter in cell.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => own.push(letter),
            _ => {}
        }
    }
    own.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_type_is_on_the_page_with_its_own_attributes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from.md");
    let rows = rows(&std::fs::read_to_string(page).unwrap());
    let named: BTreeSet<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let declared: BTreeSet<&str> = TYPES.iter().map(|kind| kind.name).collect();
    assert_eq!(named, declared);
    assert_eq!(rows.len(), declared.len(), "one stands twice");
    for (name, cell) in &rows {
        let kind = TYPES.iter().find(|kind| kind.name == name).unwrap();
        for word in words(cell) {
            // `always: true` is an attribute with a value, `files/` a place.
            let attribute = word.split(':').next().unwrap();
            let is_place = attribute.contains('/');
            let is_known = kind.attributes.iter().any(|known| known.name == attribute);
            assert!(is_place || is_known, "{name} has no attribute `{attribute}`");
        }
    }
}
