//! SYN-9: a folder that was never there is made, with what is missing above it, and never
//! through a link; why a change cannot be made now is said with the path and the system's words.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;

use crate::support::{Stage, app};
use backends::{ApplyRequest, Backend as _, BackendError, ErrorClass, Expect, Folder};

fn base() -> (tempfile::TempDir, std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().canonicalize().unwrap();
    (temp, path)
}

#[test]
fn all_that_is_missing_is_made_once() {
    let (_temp, base) = base();
    let path = base.join("a/b/c");
    assert!(Folder::make(&path).unwrap());
    for dir in ["a", "a/b", "a/b/c"] {
        assert_eq!(std::fs::metadata(base.join(dir)).unwrap().permissions().mode() & 0o7777, 0o755);
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!Folder::make(&path).unwrap(), "it is there");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700, "and stays as it is");
    let mut folder = Folder::new(&path);
    let spec = br#"{"kind":"App","metadata":{"name":"e"}}"#;
    let key = app("e");
    folder.apply(ApplyRequest { key: &key, spec, source_uid: None, expect: Expect::Anything }).unwrap();
}

#[test]
fn nothing_is_made_through_a_link_or_a_file() {
    let (_temp, base) = base();
    std::fs::create_dir(base.join("outside")).unwrap();
    std::os::unix::fs::symlink(base.join("outside"), base.join("link")).unwrap();
    std::fs::write(base.join("file"), "").unwrap();
    for place in ["link/folder", "link", "file/folder", "file", "x/../folder"] {
        let refused = Folder::make(&base.join(place)).unwrap_err();
        assert!(
            matches!(refused, BackendError { class: ErrorClass::Temporary, code: "folder-gone", .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(base.join(place).to_str().unwrap()), "{refused}");
    }
    assert_eq!(std::fs::read_dir(base.join("outside")).unwrap().count(), 0);
}

#[test]
fn why_nothing_can_be_put_is_said_with_path_and_cause() {
    let mut stage = Stage::new();
    assert!(stage.list().complete);
    std::fs::rename(stage.root(), stage.outside("away")).unwrap();
    let key = app("e");
    let spec = br#"{"kind":"App","metadata":{"name":"e"}}"#;
    let apply = ApplyRequest { key: &key, spec, source_uid: None, expect: Expect::Anything };
    let refused = stage.folder.apply(apply).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains(stage.root().to_str().unwrap()) && text.contains("No such file"), "{text}");
}
