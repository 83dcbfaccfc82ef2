//! CFG-1: every mistake names file, line and column, shows the line, and says what would
//! be right; all at once. Each folder of `diagnostics/` is laid over `_base`, a fleet that
//! is right; `expected.txt` is what an operator reads.
//!
//! `MUSTER_BLESS=1 cargo test -p resolve --test diagnostics` writes the expected texts anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use resolve::{Tree, check, codes, render};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics")
}

fn read_into(tree: &mut Tree, top: &Path, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_into(tree, top, &path);
        } else if path.file_name().unwrap() != "expected.txt" {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            tree.files.insert(name, std::fs::read(&path).unwrap().into());
        }
    }
}

fn base() -> Tree {
    let mut tree = Tree::default();
    read_into(&mut tree, &folder().join("_base"), &folder().join("_base"));
    tree
}

fn cases() -> BTreeMap<String, PathBuf> {
    let all = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let named = all.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    named.filter(|(name, _)| name != "_base").collect()
}

#[test]
fn the_base_is_right() {
    let tree = base();
    if let Err(found) = check(&tree) {
        panic!("{}", render(&found, &tree));
    }
}

#[test]
fn each_mistake_reads_as_expected() {
    let bless = std::env::var_os("MUSTER_BLESS").is_some();
    let mut wrong = Vec::new();
    for (name, path) in cases() {
        let mut tree = base();
        read_into(&mut tree, &path, &path);
        let text = check(&tree).err().map(|found| render(&found, &tree)).unwrap_or_default();
        let expected = path.join("expected.txt");
        if bless {
            std::fs::write(&expected, &text).unwrap();
        }
        let wanted = std::fs::read_to_string(&expected).unwrap_or_default();
        if text != wanted || text.is_empty() {
            wrong.push(format!("{name}: got\n{text}\nand not\n{wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn most_codes_are_shown_and_every_code_is_explained() {
    let mut shown = BTreeSet::new();
    for (_, path) in cases() {
        let mut tree = base();
        read_into(&mut tree, &path, &path);
        for found in check(&tree).err().unwrap_or_default() {
            assert!(codes::explain(found.code).is_some(), "{} has no explanation", found.code);
            shown.insert(found.code);
        }
    }
    let sorted = codes::CODES.windows(2).all(|pair| pair[0].code < pair[1].code);
    assert!(sorted, "codes are unique and sorted");
    // Sizes and counts are shown by `hostile_trees`, not by files of that size; what shows only beside the time of the
    // signature, by `rollouts_are_planned`.
    let elsewhere = ["E002", "E003", "E020", "E099", "E112"];
    let missing: Vec<&str> = codes::CODES
        .iter()
        .map(|code| code.code)
        .filter(|code| !shown.contains(code) && !elsewhere.contains(code))
        .collect();
    assert!(missing.is_empty(), "no case shows {missing:?}");
}
