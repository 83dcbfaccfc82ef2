//! SYN-9: what synchronization writes is no user's edit, not even through a restart; a user's
//! edit right after it is one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::support::{Stage, app, changed, yaml};
use backends::{ApplyRequest, Backend as _, Deleted, Expect};

fn spec(name: &str, v: u32) -> Vec<u8> {
    format!(r#"{{"kind":"App","metadata":{{"name":"{name}"}},"spec":{{"v":{v}}}}}"#).into_bytes()
}

fn apply(stage: &mut Stage, name: &str, v: u32) -> String {
    let (key, spec) = (app(name), spec(name, v));
    let apply = ApplyRequest { key: &key, spec: &spec, source_uid: Some("u-1"), expect: Expect::Anything };
    stage.folder.apply(apply).unwrap().version
}

#[test]
fn the_version_is_known_again_after_a_restart() {
    let mut stage = Stage::new();
    let version = apply(&mut stage, "a", 1);
    stage.restart();
    let listing = stage.list();
    assert_eq!(listing.objects[0].version, version);
    assert_eq!(listing.objects[0].source_uid.as_deref(), Some("u-1"));
    assert_eq!(listing.objects[0].spec, spec("a", 1));
}

#[test]
fn files_are_where_people_find_them_and_whose_the_folder_is() {
    let mut stage = Stage::new();
    apply(&mut stage, "a", 1);
    let text = std::fs::read_to_string(stage.path("app/_/a.yaml")).unwrap();
    let expected =
        "kind: App\nmetadata:\n  annotations:\n    muster.dev/source-uid: u-1\n  name: a\nspec:\n  v: 1\n";
    assert_eq!(text.replace("\"muster.dev/source-uid\": \"u-1\"", "muster.dev/source-uid: u-1"), expected);
    let (file, folder) =
        (std::fs::metadata(stage.path("app/_/a.yaml")).unwrap(), std::fs::metadata(stage.root()).unwrap());
    assert_eq!(file.mode() & 0o7777, 0o644);
    assert_eq!((file.uid(), file.gid()), (folder.uid(), folder.gid()));
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(stage.path("app/_/a.yaml"), mode).unwrap();
    stage.settle();
    apply(&mut stage, "a", 2);
    assert_eq!(std::fs::metadata(stage.path("app/_/a.yaml")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn an_edit_right_after_a_write_is_told() {
    let mut stage = Stage::new();
    stage.list();
    let told = stage.watch();
    stage.settle();
    apply(&mut stage, "a", 1);
    stage.write("app/_/a.yaml", yaml("a", 5));
    stage.settle();
    assert!(changed(&told));
    assert_eq!(stage.said(), ["a=5"]);
}

#[test]
fn an_edit_that_has_not_settled_is_not_lost_to_an_expectation() {
    let mut stage = Stage::new();
    let version = apply(&mut stage, "a", 1);
    stage.settle();
    stage.write("app/_/a.yaml", yaml("a", 55));
    let (key, new) = (app("a"), spec("a", 2));
    let with = |expect| ApplyRequest { key: &key, spec: &new, source_uid: Some("u-1"), expect };
    let error = stage.folder.apply(with(Expect::Version(version.clone()))).unwrap_err();
    assert_eq!(error.code, "unsettled");
    let gone = stage.folder.delete(&key, &Expect::Version(version));
    assert_eq!(gone.unwrap_err().code, "unsettled");
    stage.settle();
    assert_eq!(stage.said(), ["a=55"]);
}

#[test]
fn an_object_is_changed_where_it_stands_and_its_neighbours_stay() {
    let mut stage = Stage::new();
    let rest = "# about c\n\nkind: App\nmetadata: {name: c} # c\nspec:\n    v:   1\n";
    stage.write("deep/er/all.yaml", format!("{}---\n{}---\n{rest}", yaml("a", 1), yaml("b", 1)));
    stage.list();
    apply(&mut stage, "b", 2);
    let text = std::fs::read_to_string(stage.path("deep/er/all.yaml")).unwrap();
    assert!(text.starts_with(&yaml("a", 1)) && text.ends_with(rest), "{text}");
    assert!(!stage.path("app").exists());
    stage.settle();
    assert_eq!(stage.said(), ["a=1", "b=2", "c=1"]);
    assert_eq!(stage.folder.delete(&app("a"), &Expect::Anything).unwrap(), Deleted::Removed);
    stage.settle();
    assert_eq!(stage.said(), ["b=2", "c=1"]);
    assert!(std::fs::read_to_string(stage.path("deep/er/all.yaml")).unwrap().ends_with(rest));
}

#[test]
fn what_a_dead_writer_left_is_swept_and_nothing_else() {
    let mut stage = Stage::new();
    apply(&mut stage, "a", 1);
    stage.write("app/_/.0123456789ab.muster-new", "half");
    stage.write("app/_/.mine", "mine");
    stage.restart();
    stage.list();
    assert!(!stage.path("app/_/.0123456789ab.muster-new").exists());
    assert!(stage.path("app/_/.mine").exists());
}

#[test]
fn a_damaged_file_of_ours_is_written_again() {
    let mut stage = Stage::new();
    let version = apply(&mut stage, "a", 1);
    stage.settle();
    stage.write("app/_/a.yaml", "kind: [");
    stage.settle();
    assert_eq!(apply(&mut stage, "a", 1), version);
    stage.settle();
    stage.restart();
    assert_eq!(stage.said(), ["a=1"]);
}
