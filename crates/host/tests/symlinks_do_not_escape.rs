//! Issue: writes stay inside the managed path whatever symlinks say, and inside the root.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::text::chain;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use host::{FileWrite, Host, HostError, HostOperation, HostOptions, PathProblem};
use model::Digest;
use model::{PathOwnership, PathState};

fn host(root: &Path) -> Host {
    Host::open(root, HostOptions::default()).unwrap()
}

fn write(host: &Host, path: &str, mut bytes: &[u8]) -> Result<(), HostError> {
    let digest = Digest::of(bytes);
    let ownership = PathOwnership::default();
    host.write(
        path,
        FileWrite {
            content: &mut bytes,
            digest,
            ownership,
            default_mode: 0o644,
            backup: false,
            validate: None,
        },
    )
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped in part: only root can give a link to another user");
    }
    root
}

#[test]
fn the_last_name_is_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "precious").unwrap();
    fs::write(dir.path().join("inside"), "precious").unwrap();
    for target in [outside.path().to_str().unwrap(), "inside", "/inside"] {
        let link = dir.path().join("link");
        let _ = fs::remove_file(&link);
        symlink(target, &link).unwrap();
        let host = host(dir.path());
        assert_eq!(host.look("/link").unwrap(), PathState::Symlink { target: target.to_owned() });
        assert!(host.read("/link", 100).is_err(), "reading does not follow it either");
        assert!(
            host.set_ownership("/link", &PathOwnership { mode: Some(0o777), ..PathOwnership::default() })
                .is_err()
        );
        write(&host, "/link", b"mine").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file(), "the link was replaced");
        assert_eq!(fs::read_to_string(outside.path()).unwrap(), "precious");
        assert_eq!(fs::read_to_string(dir.path().join("inside")).unwrap(), "precious");
    }
}

#[test]
fn a_link_on_the_way_leads_below_the_root_only() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("real/etc")).unwrap();
    symlink("/real/etc", dir.path().join("etc")).unwrap();
    symlink("../../../../../../real/etc", dir.path().join("real/up")).unwrap();
    let host = host(dir.path());
    write(&host, "/etc/a", b"1").unwrap();
    write(&host, "/real/up/b", b"2").unwrap();
    assert_eq!(fs::read(dir.path().join("real/etc/a")).unwrap(), b"1");
    assert_eq!(fs::read(dir.path().join("real/etc/b")).unwrap(), b"2");
    // `/tmp` of the real host exists; below the root it does not.
    symlink("/tmp", dir.path().join("tmp-link")).unwrap();
    let missed = write(&host, "/tmp-link/escaped", b"3").unwrap_err();
    assert!(
        matches!(missed, HostError { operation: HostOperation::Write, source: PathProblem::NoParent, .. }),
        "{missed:?}"
    );
    assert_eq!(host.look("/tmp-link/escaped").unwrap(), PathState::Missing);
}

#[test]
fn paths_that_climb_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    for path in ["/../x", "/a/../../x", "relative", "", "/nul\0", "/", "/a/.."] {
        let refused = write(&host, path, b"x");
        assert!(
            matches!(
                refused,
                Err(HostError { operation: HostOperation::Write, source: PathProblem::BadPath(_), .. })
            ),
            "{path:?}: {refused:?}"
        );
    }
    write(&host, "/..x", b"two dots in a name are a name").unwrap();
}

#[test]
fn a_link_that_others_could_have_made_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir_all(&open).unwrap();
    fs::create_dir_all(dir.path().join("victim")).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("/victim", open.join("link")).unwrap();
    let host = host(dir.path());
    let refused = write(&host, "/open/link/file", b"x").unwrap_err();
    assert_eq!(
        chain(&refused),
        "cannot write /open/link/file: the symlink /open/link on the way is not followed: it lies in a \
         directory that others can write"
    );
    assert!(host.look("/open/link/file").is_err());
    assert!(host.remove_file("/open/link/file").is_err());
    assert!(host.make_directory("/open/link/d", &PathOwnership::default(), 0o755).is_err());
    if root() {
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        write(&host, "/open/link/file", b"x").unwrap();
        lchown(open.join("link"), Some(12345), Some(12345)).unwrap();
        let refused = write(&host, "/open/link/file", b"y").unwrap_err();
        assert!(chain(&refused).contains("it belongs to another user"), "{refused:?}");
        lchown(open.join("link"), Some(0), Some(0)).unwrap();
        std::os::unix::fs::chown(&open, Some(12345), None).unwrap();
        assert!(write(&host, "/open/link/file", b"y").is_err(), "the directory's owner can swap the link");
    }
    let left = fs::read_dir(dir.path().join("victim")).unwrap().count();
    assert_eq!(left, usize::from(root()));
}

#[test]
fn removing_a_tree_removes_links_and_not_what_they_point_to() {
    let dir = tempfile::tempdir().unwrap();
    let keep = dir.path().join("keep");
    fs::create_dir_all(dir.path().join("tree/a/b")).unwrap();
    fs::create_dir(&keep).unwrap();
    fs::write(keep.join("file"), "precious").unwrap();
    symlink("../../keep", dir.path().join("tree/a/link")).unwrap();
    symlink("/keep/file", dir.path().join("tree/a/b/link")).unwrap();
    let host = host(dir.path());
    let full = host.remove_directory("/tree", false).unwrap_err();
    assert!(
        matches!(full, HostError { operation: HostOperation::Remove, source: PathProblem::NotEmpty, .. }),
        "{full:?}"
    );
    assert!(host.remove_directory("/tree", true).unwrap());
    assert!(!host.remove_directory("/tree", true).unwrap());
    assert!(!dir.path().join("tree").exists());
    assert_eq!(fs::read_to_string(keep.join("file")).unwrap(), "precious");
}

#[test]
fn a_tree_too_deep_is_left_whole() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("tree").join("d/".repeat(80));
    fs::create_dir_all(&deep).unwrap();
    fs::write(dir.path().join("tree/file"), "").unwrap();
    let refused = host(dir.path()).remove_directory("/tree", true).unwrap_err();
    assert!(
        matches!(
            refused,
            HostError { operation: HostOperation::Remove, source: PathProblem::TooMany { .. }, .. }
        ),
        "{refused:?}"
    );
    assert!(deep.exists() && dir.path().join("tree/file").exists(), "nothing was removed");
}

#[test]
fn a_hard_link_where_others_write_is_not_given_away() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(dir.path().join("shadow"), "secret").unwrap();
    fs::set_permissions(dir.path().join("shadow"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(dir.path().join("shadow"), open.join("file")).unwrap();
    let host = host(dir.path());
    let wanted = PathOwnership { mode: Some(0o666), ..PathOwnership::default() };
    let refused = host.set_ownership("/open/file", &wanted).unwrap_err();
    assert!(
        matches!(
            refused,
            HostError { operation: HostOperation::SetOwnership, source: PathProblem::HardLinks, .. }
        ),
        "{refused:?}"
    );
    assert_eq!(fs::metadata(dir.path().join("shadow")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Who plants a set-id program under a managed name gets no file of their own making with
/// that bit and owner.
#[test]
fn the_mode_of_a_hard_link_where_others_write_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::write(dir.path().join("su"), "a program").unwrap();
    fs::set_permissions(dir.path().join("su"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(dir.path().join("su"), open.join("profile")).unwrap();
    let host = host(dir.path());
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let refused = write(&host, "/open/profile", b"theirs").unwrap_err();
    assert!(
        matches!(refused, HostError { operation: HostOperation::Write, source: PathProblem::HardLinks, .. }),
        "{refused:?}"
    );
    assert_eq!(fs::read(open.join("profile")).unwrap(), b"a program");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    write(&host, "/open/profile", b"ours").unwrap();
    let kept = fs::metadata(open.join("profile")).unwrap();
    assert_eq!(kept.permissions().mode() & 0o7777, 0o4755, "where only root writes it is kept");
}
