//! Issue: writes keep what they cannot understand. Editing one line of a file leaves
//! every other byte as it is, and editing again changes nothing (CNV-1).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use catalog::types::{Ensure, LineSpec, Ownership};
use converge::kinds::line::edit;
use proptest::prelude::*;

fn spec(ensure: Ensure, line: &str, matching: Option<&str>, after: Option<&str>) -> LineSpec {
    LineSpec {
        path: "/f".to_owned(),
        ensure,
        line: line.to_owned(),
        matching: matching.map(str::to_owned),
        after: after.map(str::to_owned),
        create: true,
        ownership: Ownership::default(),
        validate: None,
    }
}

fn edited(spec: &LineSpec, bytes: &str) -> Option<String> {
    edit(spec, Some(bytes.as_bytes())).unwrap().map(|change| String::from_utf8(change.bytes).unwrap())
}

#[test]
fn a_table_of_edits() {
    let present = |line, matching, after| spec(Ensure::Present, line, matching, after);
    let absent = |line, matching| spec(Ensure::Absent, line, matching, None);
    let table: &[(LineSpec, &str, Option<&str>)] = &[
        // Present without a pattern.
        (present("x", None, None), "a\nx\nb\n", None),
        (present("x", None, None), "a\n", Some("a\nx\n")),
        (present("x", None, None), "a", Some("a\nx")),
        (present("x", None, None), "", Some("x\n")),
        (present("x", None, None), "a\r\n", Some("a\r\nx\r\n")),
        (present("x", None, None), "a\r\nb", Some("a\r\nb\r\nx")),
        (present("x", None, None), "x\r\n", None),
        (present("x", None, None), " x\n", Some(" x\nx\n")),
        // After.
        (present("x", None, Some("^a")), "a1\na2\nb\n", Some("a1\na2\nx\nb\n")),
        (present("x", None, Some("^z")), "a\nb\n", Some("a\nb\nx\n")),
        (present("x", None, Some("^b")), "a\nb", Some("a\nb\nx")),
        // The last match is replaced, and only it.
        (present("p=2", Some("^p="), None), "p=0\nq\np=1\nr\n", Some("p=0\nq\np=2\nr\n")),
        (present("p=2", Some("^p="), None), "p=0\np=2\n", None),
        (present("p=2", Some("^p="), None), "p=2\np=0", Some("p=2\np=2")),
        (present("p=2", Some("^#p"), None), "#p\n#p\n", Some("#p\np=2\n")),
        // Its own pattern does not match it, and it is there: the other match stays.
        (present("p=2", Some("^#p"), None), "#p\np=2\n", None),
        (present("p=2", Some("^#p"), None), "a\n", Some("a\np=2\n")),
        // Absent.
        (absent("x", None), "a\nx\nb\nx", Some("a\nb\n")),
        (absent("x", Some("^a")), "a\nx\nab\n", Some("x\n")),
        (absent("x", None), "a\n", None),
    ];
    for (spec, before, after) in table {
        assert_eq!(edited(spec, before).as_deref(), *after, "{spec:?} on {before:?}");
    }
}

#[test]
fn bytes_that_are_not_text_stay() {
    let bytes = b"\xff\xfe\r\np=1\n\0\x80";
    let change = edit(&spec(Ensure::Present, "p=2", Some("^p="), None), Some(bytes)).unwrap().unwrap();
    assert_eq!(change.bytes, b"\xff\xfe\r\np=2\n\0\x80");
}

#[test]
fn what_cannot_be_one_line_is_refused() {
    assert!(edit(&spec(Ensure::Present, "a\nb", None, None), Some(b"")).is_err());
    assert!(edit(&spec(Ensure::Present, "a\r", None, None), Some(b"")).is_err());
    assert!(
        edit(&spec(Ensure::Present, "a", Some("("), None), Some(b"")).unwrap_err().starts_with("`matching`")
    );
    assert!(edit(&spec(Ensure::Present, "a", None, Some("(a{9999}){9999}")), Some(b"")).is_err());
}

/// Lines of a few words, so that patterns and the wanted line meet them often.
fn files() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(vec![
        b"p=1".to_vec(),
        b"p=2".to_vec(),
        b"#p=1".to_vec(),
        b"q".to_vec(),
        Vec::new(),
        b"\xff\r ".to_vec(),
    ]);
    let end = prop::sample::select(vec![b"\n".to_vec(), b"\r\n".to_vec()]);
    (prop::collection::vec((text.clone(), end), 0..8), prop::option::of(text)).prop_map(|(lines, last)| {
        let mut bytes: Vec<u8> = lines.into_iter().flat_map(|(text, end)| [text, end].concat()).collect();
        bytes.extend(last.unwrap_or_default());
        bytes
    })
}

fn specs() -> impl Strategy<Value = LineSpec> {
    let pattern = || prop::option::of(prop::sample::select(vec!["^p=", "^#?p", "q", "^$", "nothing"]));
    let ensure = prop::sample::select(vec![Ensure::Present, Ensure::Absent]);
    let line = prop::sample::select(vec!["p=2", "#p=1", "new", ""]);
    (ensure, line, pattern(), pattern())
        .prop_map(|(ensure, line, matching, after)| spec(ensure, line, matching, after))
}

/// The lines without their ends: what an edit may add to, take from or replace.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line)))
        .collect()
}

fn count_ends(bytes: &[u8], end: &[u8]) -> usize {
    bytes.windows(end.len()).filter(|window| *window == end).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_other_line_stays_and_the_second_edit_finds_nothing(bytes in files(), spec in specs()) {
        let Some(change) = edit(&spec, Some(&bytes)).unwrap() else { return Ok(()) };
        prop_assert_ne!(&change.bytes, &bytes);
        prop_assert_eq!(edit(&spec, Some(&change.bytes)).unwrap(), None, "a second edit changes nothing");
        let (old, new) = (lines(&bytes), lines(&change.bytes));
        let wanted = spec.line.as_bytes();
        match spec.ensure {
            Ensure::Absent => {
                let mut rest = old.iter();
                prop_assert!(new.iter().all(|line| rest.any(|old| old == line)), "what is left keeps its order");
                prop_assert!(count_ends(&change.bytes, b"\r\n") <= count_ends(&bytes, b"\r\n"));
            }
            Ensure::Present if new.len() == old.len() => {
                let differ = old.iter().zip(&new).filter(|(old, new)| old != new).count();
                prop_assert_eq!(differ, 1);
                if !wanted.is_empty() {
                    prop_assert_eq!(count_ends(&change.bytes, b"\r\n"), count_ends(&bytes, b"\r\n"));
                }
            }
            Ensure::Present => {
                prop_assert_eq!(new.len(), old.len() + 1);
                let at = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
                // An equal neighbour makes the place ambiguous; the rest must fit somewhere.
                let fits = (0..=at).any(|at| new[at] == wanted && old[..at] == new[..at] && old[at..] == new[at + 1..]);
                prop_assert!(fits, "one line came, the others stayed");
            }
        }
        if spec.ensure == Ensure::Present && !wanted.is_empty() && !bytes.is_empty() {
            prop_assert_eq!(bytes.ends_with(b"\n"), change.bytes.ends_with(b"\n"), "an unfinished last line is a habit");
        }
    }
}
