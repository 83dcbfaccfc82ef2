//! CFG-1, SCL-3: hostile files cost a clear message: a 10 MB file, billion laughs, deep
//! nesting, exploding regular expressions, endless templates and expressions, binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod common;

use std::time::{Duration, Instant};

use common::{fleet_with, with};
use resolve::{MAX_FILE, Tree, check, render};

/// The codes of what is found, quickly.
fn found(files: &[(&str, &[u8])]) -> Vec<&'static str> {
    let mut tree = fleet_with("  x: y\n");
    for (path, bytes) in files {
        tree.files.insert((*path).to_owned(), (*bytes).into());
    }
    let start = Instant::now();
    let found = check(&tree).err().unwrap_or_default();
    let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    assert!(start.elapsed() < Duration::from_secs(20), "{paths:?} took {:?}", start.elapsed());
    // Showing it must not fail either, whatever the bytes.
    assert!(render(&found, &tree).len() < 4_000_000);
    found.iter().map(|diagnostic| diagnostic.code).collect()
}

#[test]
fn a_file_of_ten_megabytes() {
    let big = format!("modules: [app]\n# {}\n", "x".repeat(MAX_FILE + 2_000_000));
    assert_eq!(found(&[("roles/app.yaml", big.as_bytes())]), ["E003"]);
}

#[test]
fn a_billion_laughs() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..10 {
        let all = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{all}]\n"));
    }
    let codes = found(&[("roles/app.yaml", text.as_bytes())]);
    assert!(codes.contains(&"E006") && !codes.contains(&"E099"), "{codes:?}");
}

#[test]
fn nesting() {
    let open = "[".repeat(1_000_000);
    let maps = "{a: ".repeat(300_000);
    let block: String = (0..2000).map(|depth| format!("{}- \n", " ".repeat(depth))).collect();
    for text in [open.as_str(), maps.as_str(), block.as_str(), &"- ".repeat(100_000), &"? ".repeat(100_000)] {
        let codes = found(&[("roles/app.yaml", format!("vars:\n  {text}").as_bytes())]);
        assert!(
            codes.iter().all(|code| ["E001", "E004", "E009", "E044"].contains(code)) && !codes.is_empty(),
            "{codes:?} of {text:.20}"
        );
    }
}

#[test]
fn many_keys_and_many_values() {
    let keys: String = (0..30_000).map(|n| format!("k{n}: 1\n")).collect();
    let codes = found(&[("roles/app.yaml", keys.as_bytes())]);
    assert_eq!((codes[0], codes.len()), ("E015", 201));
    let values = format!("modules: [{}]\n", "a,".repeat(2_100_000));
    assert_eq!(found(&[("roles/app.yaml", values.as_bytes())]), ["E004"]);
}

#[test]
fn regular_expressions_that_explode() {
    let patterns = "nodes:\n  - match: [\"/(a{1000}){1000}/\", \"/((a+)+)+b/\"]\n";
    let codes = found(&[
        ("nodes.yaml", patterns.as_bytes()),
        ("hosts/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.yaml", b"{}"),
    ]);
    assert_eq!(codes, ["E033", "E030"]);
    let line = format!(
        "params: {{x: y}}\nresources:\n  - line: a\n    path: /etc/x\n    matching: \"{}\"\n",
        "(".repeat(5000)
    );
    assert_eq!(found(&[("modules/app/module.yaml", line.as_bytes())]), ["E077"]);
}

#[test]
fn expressions_and_templates_without_end() {
    let deep = format!(
        "params: {{x: y}}\nresources:\n  - file: /etc/x\n    content: ${{{{ {}1{} }}}}\n",
        "(".repeat(20_000),
        ")".repeat(20_000)
    );
    assert_eq!(found(&[("modules/app/module.yaml", deep.as_bytes())]), ["E060"]);
    let loops = "{% for a in params.x %}".repeat(5000);
    assert_eq!(found(&[("modules/app/templates/a.j2", loops.as_bytes())]), ["E091"]);
    let large = "x".repeat(300 * 1024);
    assert_eq!(found(&[("modules/app/templates/a.j2", large.as_bytes())]), ["E003"]);
}

#[test]
fn bytes_that_are_no_text() {
    assert_eq!(found(&[("roles/app.yaml", b"modules: [app]\nvars: \xff\xfe\n")]), ["E002"]);
    assert_eq!(found(&[("modules/app/templates/a.j2", &[0xc3, 0x28])]), ["E002"]);
    let noise: Vec<u8> =
        (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x7f).collect();
    assert!(!found(&[("roles/app.yaml", &noise)]).is_empty());
    assert!(found(&[("modules/app/files/logo.png", &noise)]).is_empty(), "shipped files are any bytes");
    // A byte order mark, line ends of another system and an empty file are no mistakes.
    assert!(
        found(&[("roles/app.yaml", "\u{feff}modules: [app]\r\n".as_bytes()), ("groups.yaml", b"")])
            .is_empty()
    );
}

#[test]
fn a_chain_of_modules_as_long_as_a_fleet() {
    let mut tree = fleet_with("  x: y\n");
    for n in 0..3000 {
        let text = format!("depends_on: [m{}]\n", n + 1);
        tree.files.insert(format!("modules/m{n}/module.yaml"), text.into_bytes().into());
    }
    let last = with(
        Tree::default(),
        [("modules/m3000/module.yaml", "depends_on: []\n"), ("roles/app.yaml", "modules: [m0, app]\n")],
    );
    tree.files.extend(last.files.clone());
    assert!(check(&tree).is_ok());
    tree.files.insert("modules/m3000/module.yaml".into(), b"depends_on: [m0]\n".as_slice().into());
    let found = check(&tree).unwrap_err();
    assert_eq!((found[0].code, found.len()), ("E083", 1));
}
