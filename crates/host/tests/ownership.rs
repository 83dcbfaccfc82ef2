//! Issue: mode, owner and group are set before a file is visible; where they cannot be
//! set under a root without privilege, they are left and not failed on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use host::{Accounts, FileWrite, Host, HostOptions};
use model::Digest;
use model::PathOwnership;

fn host(root: &Path) -> Host {
    Host::open(root, HostOptions::default()).unwrap()
}

fn write(host: &Host, path: &str, ownership: PathOwnership) {
    let write = FileWrite {
        content: &mut &b"x"[..],
        digest: Digest::of(b"x"),
        ownership,
        default_mode: 0o644,
        backup: false,
        validate: None,
    };
    host.write(path, write).unwrap();
}

#[test]
fn accounts_come_from_the_hosts_own_files() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    assert_eq!(host.accounts().unwrap().uid("root"), Some(0), "root needs no file");
    assert_eq!(host.accounts().unwrap().gid("root"), Some(0));
    assert_eq!(host.accounts().unwrap().uid("daemon"), None, "the real host's accounts are not asked");
    let accounts = Accounts::parse(
        "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:w:/var/www:/bin/false\nbroken\nbad:x:-1:0::/:\nweb:x:99:99::/:\n",
        "root:x:0:\nweb:x:34:a,b\n\nstaff:x:50\n",
    );
    assert_eq!(
        (accounts.uid("web"), accounts.gid("web"), accounts.gid("staff")),
        (Some(33), Some(34), Some(50))
    );
    assert_eq!(
        (accounts.uid("4711"), accounts.uid("nobody-here"), accounts.uid("4294967295")),
        (Some(4711), None, None)
    );
    assert_eq!((accounts.user_name(33), accounts.group_name(34)), (Some("web"), Some("web")));
    assert_eq!(accounts.user("33").unwrap().home, "/var/www");
}

#[test]
fn new_accounts_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    let host = host(dir.path());
    assert_eq!(host.accounts().unwrap().uid("app"), None);
    fs::write(dir.path().join("etc/passwd"), "app:x:700:700::/:\n").unwrap();
    assert_eq!(host.accounts_now().unwrap().uid("app"), Some(700));
    assert_eq!(host.accounts().unwrap().uid("app"), Some(700));
}

#[test]
fn owner_and_group_are_set_with_the_mode() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let all = PathOwnership { mode: Some(0o6755), uid: Some(1234), gid: Some(2345) };
    write(&host, "/file", all);
    host.make_directory("/dir", &PathOwnership { mode: Some(0o2750), ..all }, 0o755).unwrap();
    let seen = |name: &str| {
        let metadata = fs::metadata(dir.path().join(name)).unwrap();
        (metadata.permissions().mode() & 0o7777, metadata.uid(), metadata.gid())
    };
    assert_eq!(
        seen("file"),
        (0o6755, 1234, 2345),
        "set-id bits that are declared survive the change of owner"
    );
    assert_eq!(seen("dir"), (0o2750, 1234, 2345));
    write(&host, "/file", PathOwnership { uid: Some(1234), ..PathOwnership::default() });
    assert_eq!(seen("file"), (0o6755, 1234, 2345), "what is not declared is kept");
    host.set_ownership("/dir", &PathOwnership { uid: Some(5), ..PathOwnership::default() }).unwrap();
    assert_eq!(seen("dir"), (0o2750, 5, 2345), "of a directory they give nobody's rights away");
}

/// A user makes a set-id copy of a shell under a name that a release gives to root without a mode.
#[test]
fn a_program_s_set_id_bits_go_with_its_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let theirs = PathOwnership { mode: Some(0o6755), uid: Some(1234), gid: Some(1234) };
    let mode = || fs::metadata(dir.path().join("file")).unwrap().permissions().mode() & 0o7777;
    for wanted in [
        PathOwnership { uid: Some(0), ..PathOwnership::default() },
        PathOwnership { gid: Some(0), ..PathOwnership::default() },
    ] {
        write(&host, "/file", theirs);
        host.set_ownership("/file", &wanted).unwrap();
        assert_eq!(mode(), 0o755, "only the owner changes: {wanted:?}");
        write(&host, "/file", theirs);
        write(&host, "/file", wanted);
        assert_eq!(mode(), 0o755, "the content too: {wanted:?}");
    }
    // Where they choose what is there, no such bit is taken over with what they wrote around it.
    write(&host, "/file", theirs);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    write(&host, "/file", PathOwnership::default());
    assert_eq!(mode(), 0o755);
}

/// Whose a file was may have it open, and write it when it is root's.
#[test]
fn a_file_of_somebody_else_s_is_not_given_where_they_choose_what_is_there() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let to_root = PathOwnership { uid: Some(0), ..PathOwnership::default() };
    write(&host, "/file", PathOwnership { mode: Some(0o644), uid: Some(1234), gid: Some(1234) });
    let mut theirs = fs::OpenOptions::new().append(true).open(dir.path().join("file")).unwrap();
    let owner = || fs::metadata(dir.path().join("file")).unwrap().uid();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let refused = host.set_ownership("/file", &to_root).unwrap_err();
    assert!(matches!(refused.source, host::PathProblem::NotToGive { uid: 1234, .. }), "{refused:?}");
    assert_eq!(owner(), 1234);
    // What stays theirs may be changed, and a write makes another file.
    host.set_ownership("/file", &PathOwnership { mode: Some(0o600), ..PathOwnership::default() }).unwrap();
    write(&host, "/file", to_root);
    std::io::Write::write_all(&mut theirs, b"theirs").unwrap();
    assert_eq!((owner(), fs::read(dir.path().join("file")).unwrap()), (0, b"x".to_vec()));
    // Where nobody else chooses, it is simply given.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    host.set_ownership("/file", &PathOwnership { uid: Some(1234), ..PathOwnership::default() }).unwrap();
    host.set_ownership("/file", &to_root).unwrap();
    assert_eq!(owner(), 0);
}

/// In a directory for all, as /tmp, somebody else's file stays under the name that a file gets while it is made.
#[test]
fn names_that_somebody_else_took_are_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    for taken in [".file.muster-new", ".dir.muster-new", ".link.muster-new"] {
        // As nothing that is there goes in such a directory: not even root removes one that is not empty.
        fs::create_dir_all(dir.path().join(taken).join("full")).unwrap();
    }
    write(&host, "/file", PathOwnership::default());
    host.make_directory("/dir", &PathOwnership::default(), 0o755).unwrap();
    host.make_symlink("/link", "/target").unwrap();
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".dir.muster-new", ".file.muster-new", ".link.muster-new", "dir", "file", "link"]);
}

#[test]
fn without_privilege_under_a_root_owners_are_left() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root has privilege");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    assert!(!host.enforces_ownership());
    write(&host, "/file", PathOwnership { mode: Some(0o600), uid: Some(0), gid: Some(0) });
    assert_eq!(fs::metadata(dir.path().join("file")).unwrap().permissions().mode() & 0o777, 0o600);
}
