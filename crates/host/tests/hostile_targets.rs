//! Issue, bad input on the host: disk full, read-only path, the target is a directory, a
//! FIFO, a symlink loop. Each has a clear message, and what was there survives.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::text::chain;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use host::{FileWrite, Host, HostError, HostOptions};
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

fn refusal(host: &Host, path: &str) -> String {
    chain(&write(host, path, b"new").unwrap_err())
}

fn ok(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// A tmpfs of 1 MiB, unmounted when dropped; `None` where nothing may be mounted.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = ok("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", dir.path().to_str().unwrap()]);
        if !mounted {
            eprintln!("skipped: a tmpfs cannot be mounted here (not root)");
        }
        mounted.then(|| Small(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn read_only(&self) {
        assert!(ok("mount", &["-o", "remount,ro", self.path().to_str().unwrap()]));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        assert!(ok("umount", &[self.path().to_str().unwrap()]));
    }
}

#[test]
fn a_fifo_a_socket_and_a_device_are_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    assert!(ok("mkfifo", &[dir.path().join("fifo").to_str().unwrap()]));
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let mut targets = vec![("/fifo", "a FIFO"), ("/socket", "a socket")];
    if ok("mknod", &[dir.path().join("null").to_str().unwrap(), "c", "1", "3"]) {
        targets.push(("/null", "a character device"));
    } else {
        eprintln!("skipped in part: a device cannot be made here");
    }
    for (path, what) in targets {
        assert_eq!(host.look(path).unwrap(), PathState::Other { what: what.to_owned() });
        assert!(host.read(path, 10).is_err() && host.open_file(path).is_err());
        assert_eq!(
            refusal(&host, path),
            format!("cannot write {path}: it is {what}; it is left alone, remove it by hand")
        );
        assert!(host.remove_file(path).is_err() && host.remove_directory(path, true).is_err());
        assert!(
            host.make_symlink(path, "x").is_err()
                && host.make_directory(path, &PathOwnership::default(), 0o755).is_err()
        );
        assert_eq!(host.look(path).unwrap(), PathState::Other { what: what.to_owned() }, "it is still there");
    }
}

#[test]
fn a_directory_is_not_replaced_by_a_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("d/inside")).unwrap();
    let host = host(dir.path());
    assert_eq!(refusal(&host, "/d"), "cannot write /d: it is a directory; move it away");
    assert!(host.remove_file("/d").is_err() && host.make_symlink("/d", "x").is_err());
    assert!(dir.path().join("d/inside").exists());
}

#[test]
fn a_loop_of_links_is_an_error_and_not_a_hang() {
    let dir = tempfile::tempdir().unwrap();
    symlink("b", dir.path().join("a")).unwrap();
    symlink("a", dir.path().join("b")).unwrap();
    let host = host(dir.path());
    let text = refusal(&host, "/a/file");
    assert_eq!(
        text,
        "cannot write /a/file: too many symlinks on the way, probably a loop; remove one of them"
    );
    assert!(host.look("/a/file").is_err());
    assert_eq!(
        host.look("/a").unwrap(),
        PathState::Symlink { target: "b".to_owned() },
        "its own name is a link like any"
    );
}

#[test]
fn a_missing_directory_and_a_file_on_the_way_say_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let host = host(dir.path());
    assert!(
        refusal(&host, "/no/such/file")
            .ends_with("the directory that it is in does not exist; declare a `directory` for it")
    );
    assert!(refusal(&host, "/file/below").ends_with("a part of its path is not a directory"));
    assert_eq!(host.look("/no/such/file").unwrap(), PathState::Missing);
    assert!(!host.exists("/file/below").unwrap());
    assert!(!host.remove_file("/no/such/file").unwrap());
}

#[test]
fn a_file_over_the_bound_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("huge")).unwrap();
    file.set_len(host::MAX_FILE + 1).unwrap();
    let host = host(dir.path());
    assert!(chain(&host.look("/huge").unwrap_err()).contains("it is larger than"));
    assert!(host.read("/huge", 1000).is_err());
}

#[test]
fn a_full_disk_keeps_the_old_file() {
    let Some(small) = Small::mount() else { return };
    let host = host(small.path());
    write(&host, "/file", b"old").unwrap();
    let full = chain(&write(&host, "/file", &vec![b'n'; 4_000_000]).unwrap_err());
    assert_eq!(
        full,
        "cannot write /file: no space is left on the file system; free some, the next run tries again"
    );
    assert_eq!(fs::read(small.path().join("file")).unwrap(), b"old");
    assert_eq!(fs::read_dir(small.path()).unwrap().count(), 1, "no temporary file takes the last space");
    // A child that another test forked meanwhile has the temporary file open until it is its own program.
    let until = Instant::now() + Duration::from_secs(10);
    while let Err(error) = write(&host, "/file", b"fits") {
        assert!(Instant::now() < until, "{}", chain(&error));
        std::thread::yield_now();
    }
}

#[test]
fn a_read_only_file_system_says_so() {
    let Some(small) = Small::mount() else { return };
    let host = host(small.path());
    write(&host, "/file", b"old").unwrap();
    small.read_only();
    let read_only = "the file system is read-only; remount it writable";
    assert!(refusal(&host, "/file").ends_with(read_only));
    assert!(chain(&host.remove_file("/file").unwrap_err()).ends_with(read_only));
    assert!(chain(&host.make_symlink("/link", "x").unwrap_err()).ends_with(read_only));
    let mode = PathOwnership { mode: Some(0o600), ..PathOwnership::default() };
    assert!(chain(&host.set_ownership("/file", &mode).unwrap_err()).ends_with(read_only));
    assert_eq!(fs::read(small.path().join("file")).unwrap(), b"old");
}

#[test]
fn a_mount_inside_a_tree_stops_its_removal_before_it_starts() {
    let Some(small) = Small::mount() else { return };
    let outer = small.path().parent().unwrap();
    let tree = tempfile::tempdir_in(outer).unwrap();
    let below = tree.path().join("tree/mounted");
    fs::create_dir_all(&below).unwrap();
    fs::write(tree.path().join("tree/file"), "").unwrap();
    assert!(ok("mount", &["--bind", small.path().to_str().unwrap(), below.to_str().unwrap()]));
    let refused = host(tree.path()).remove_directory("/tree", true);
    assert!(ok("umount", &[below.to_str().unwrap()]));
    assert_eq!(
        chain(&refused.unwrap_err()),
        "cannot remove /tree: /tree/mounted is a mount point; unmount it first"
    );
    assert!(tree.path().join("tree/file").exists());
}

#[test]
fn without_rights_the_message_names_them() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may do everything");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("closed")).unwrap();
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    let host = host(dir.path());
    assert!(refusal(&host, "/closed/file").contains("permission denied for the agent's user"));
}
