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
