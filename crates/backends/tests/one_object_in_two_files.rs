//! SYN-9: of two files that say one object the first by path counts; the other is told.

use crate::support::{Stage, app, yaml};
use backends::Backend as _;

#[test]
fn the_first_counts() {
    let mut stage = Stage::new();
    stage.write("b.yaml", yaml("x", 2));
    stage.write("c.yaml", format!("{}---\n{}", yaml("y", 1), yaml("x", 3)));
    assert_eq!(stage.said(), ["x=2", "y=1"]);
    assert_eq!(stage.codes(), [("c.yaml".to_owned(), "object-twice")]);
    assert!(stage.list().complete);
    stage.write("a.yaml", yaml("x", 1));
    stage.settle();
    assert_eq!(stage.said(), ["x=1", "y=1"]);
    assert_eq!(stage.codes().len(), 2);
    // With the first gone the next counts: the object was never away.
    stage.folder.assign_uid(&app("x"), "here-1");
    stage.remove("a.yaml");
    stage.settle();
    assert_eq!(stage.said(), ["x=2", "y=1"]);
    let found = stage.folder.get(&app("x")).unwrap().unwrap();
    assert_eq!(found.uid.as_deref(), Some("here-1"));
}

#[test]
fn twice_in_one_file_is_no_file() {
    let mut stage = Stage::new();
    stage.write("a.yaml", format!("{}---\n{}", yaml("x", 1), yaml("x", 2)));
    assert_eq!(stage.codes(), [("a.yaml".to_owned(), "duplicate-object")]);
    assert!(stage.said().is_empty() && !stage.list().complete);
}

#[test]
fn moving_an_object_between_files_is_no_deletion() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("x", 1));
    stage.list();
    std::fs::rename(stage.path("a.yaml"), stage.path("z.yaml")).unwrap();
    for _ in 0..40 {
        stage.pass(100);
        assert_eq!(stage.said(), ["x=1"]);
        assert!(stage.list().problems.is_empty(), "a missing file is no second one");
    }
}
