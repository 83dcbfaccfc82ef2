//! Issue: under a root without privilege, owner and group that cannot be set are a note
//! and no failure; a command may make the accounts that a file then needs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;

use catalog::types::{Ownership, Spec};
use common::{file, is_root, lab};

fn owned(owner: &str) -> Spec {
    let mut spec = file("/f", "x");
    spec.ownership = Ownership { mode: Some(0o640), owner: Some(owner.to_owned()), group: None };
    Spec::File(spec)
}

#[test]
fn without_privilege_it_is_a_note() {
    if is_root() {
        // The same test, as nobody, in a directory of nobody's.
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("as-nobody");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
        use std::os::unix::process::CommandExt;
        let output = std::process::Command::new(&copy)
            .args(["--exact", "without_privilege_it_is_a_note"])
            .env("TMPDIR", dir.path())
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let lab = lab();
    let spec = owned("root");
    let checked = lab.check(&spec);
    assert_eq!(checked.note.as_deref(), Some("ownership not enforced: rooted without privilege"));
    assert!(lab.apply(&spec).unwrap().changed);
    let again = lab.check(&spec);
    assert_eq!(again.edit, None, "it does not differ for ever");
    assert!(again.note.is_some());
}

#[test]
fn an_account_made_a_moment_ago_is_known() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let lab = lab();
    lab.write("/etc/passwd", b"root:x:0:0::/root:\n");
    assert_eq!(lab.failed_check(&owned("app")), "there is no user `app` on the host");
    lab.write("/etc/passwd", b"root:x:0:0::/root:\napp:x:4242:4242::/:\n");
    assert!(lab.apply(&owned("app")).unwrap().changed);
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(lab.path("/f")).unwrap()), 4242);
}

/// Whose a file was may have it open: it is written anew, with what it should hold, and not given away.
#[test]
fn a_file_of_somebody_else_s_is_made_anew_where_they_choose_what_is_there() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let lab = lab();
    lab.write("/f", b"x");
    std::os::unix::fs::chown(lab.path("/f"), Some(4242), Some(4242)).unwrap();
    fs::set_permissions(lab.path("/"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let mut theirs = fs::OpenOptions::new().append(true).open(lab.path("/f")).unwrap();
    assert!(lab.apply(&owned("root")).unwrap().changed);
    std::io::Write::write_all(&mut theirs, b"theirs").unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(lab.path("/f")).unwrap()), 0);
    assert_eq!(fs::read(lab.path("/f")).unwrap(), b"x");
    assert_eq!(lab.check(&owned("root")).edit, None);
}
