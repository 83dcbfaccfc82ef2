//! SYN-9: whatever way an editor saves, the folder sees one edit and no deletion.

use std::io::Write as _;

use crate::support::{Stage, changed, yaml};

/// Saves in steps, with looks between them; in no look the object is missing or torn.
fn saved_in_steps(steps: &[&dyn Fn(&Stage)]) {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    assert_eq!(stage.said(), ["a=1"]);
    for step in steps {
        step(&stage);
        for _ in 0..2 {
            stage.pass(10);
            let said = stage.said();
            assert!(said == ["a=1"] || said == ["a=2"], "{said:?}");
        }
    }
    stage.settle();
    assert_eq!(stage.said(), ["a=2"]);
    assert!(stage.list().complete && stage.list().problems.is_empty(), "{:?}", stage.list().problems);
}

#[test]
fn a_temporary_file_and_a_rename() {
    saved_in_steps(&[
        &|stage| stage.write(".a.yaml.swp", "swap"),
        &|stage| stage.write("a.yaml~", yaml("a", 1)),
        &|stage| stage.write(".a.yaml.new", &yaml("a", 2)[..9]),
        &|stage| stage.write(".a.yaml.new", yaml("a", 2)),
        &|stage| std::fs::rename(stage.path(".a.yaml.new"), stage.path("a.yaml")).unwrap(),
        &|stage| stage.remove(".a.yaml.swp"),
    ]);
}

#[test]
fn the_old_file_moved_away_first() {
    saved_in_steps(&[
        &|stage| stage.write("4913", ""),
        &|stage| stage.remove("4913"),
        &|stage| std::fs::rename(stage.path("a.yaml"), stage.path("a.yaml~")).unwrap(),
        &|stage| stage.write("a.yaml", ""),
        &|stage| stage.write("a.yaml", yaml("a", 2)),
        &|stage| stage.remove("a.yaml~"),
    ]);
}

#[test]
fn truncated_and_written_in_place() {
    saved_in_steps(&[
        &|stage| stage.write("a.yaml", ""),
        &|stage| stage.write("a.yaml", &yaml("a", 2)[..20]),
        &|stage| {
            let mut file = std::fs::OpenOptions::new().append(true).open(stage.path("a.yaml")).unwrap();
            file.write_all(&yaml("a", 2).as_bytes()[20..]).unwrap();
        },
    ]);
}

#[test]
fn deleted_and_made_again_within_the_wait() {
    saved_in_steps(&[&|stage| stage.remove("a.yaml"), &|stage| stage.write("a.yaml", yaml("a", 2))]);
}

#[test]
fn touching_and_reformatting_is_no_change() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    let before = stage.list().objects;
    let told = stage.watch();
    stage.settle();
    stage.write("a.yaml", yaml("a", 1));
    stage.settle();
    stage.write("a.yaml", "spec:\n  v: 1 # one\nmetadata: {name: a}\nkind: App\n");
    stage.settle();
    assert_eq!(stage.list().objects, before);
    assert!(!changed(&told));
}

#[test]
fn a_file_that_never_rests_is_read_all_the_same() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 0));
    stage.list();
    for v in 1..=60 {
        stage.write("a.yaml", yaml("a", 100 + v));
        stage.pass(200);
    }
    assert_ne!(stage.said(), ["a=0"], "it waits for ever");
}

#[test]
fn an_edit_is_told_once_it_rests() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.list();
    let told = stage.watch();
    stage.settle();
    stage.write("a.yaml", yaml("a", 2));
    stage.pass(0);
    stage.pass(200);
    assert_eq!((changed(&told), stage.said()), (false, vec!["a=1".to_owned()]));
    stage.pass(150);
    assert!(changed(&told));
    assert_eq!(stage.said(), ["a=2"]);
}
