//! Issue: writes are atomic (temporary file, fsync, rename, mode and owner set before it
//! is visible). CNV-10: what was there before a failure is there after it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::{Cancel, FileWrite, Host, HostError, HostOperation, HostOptions, PathProblem, Validate};
use model::Digest;
use model::PathOwnership;

fn host(root: &Path) -> Host {
    Host::open(root, HostOptions::default()).unwrap()
}

fn write(host: &Host, path: &str, bytes: &[u8], mode: Option<u32>) -> Result<(), HostError> {
    write_validated(host, path, bytes, mode, None)
}

fn write_validated(
    host: &Host,
    path: &str,
    mut bytes: &[u8],
    mode: Option<u32>,
    validate: Option<Validate<'_>>,
) -> Result<(), HostError> {
    let digest = Digest::of(bytes);
    let ownership = PathOwnership { mode, ..PathOwnership::default() };
    host.write(
        path,
        FileWrite { content: &mut bytes, digest, ownership, default_mode: 0o644, backup: false, validate },
    )
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    let versions = [vec![b'a'; 200_000], vec![b'b'; 300_000]];
    let modes = [0o600, 0o640];
    write(&host, "/file", &versions[0], Some(modes[0])).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..60usize {
                write(&host, "/file", &versions[round % 2], Some(modes[round % 2])).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let mut file = fs::File::open(root.path().join("file")).unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o7777;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            let version = versions.iter().position(|version| *version == bytes).expect("a whole version");
            assert_eq!(mode, modes[version], "mode and content become visible together");
        }
    });
    assert_eq!(names(root.path()), ["file"]);
}

const KILL_ROOT: &str = "MUSTER_TEST_KILL_ROOT";

/// Not a test by itself: what the next test starts and kills.
#[test]
fn writes_until_killed() {
    let Some(root) = std::env::var_os(KILL_ROOT) else { return };
    let host = host(Path::new(&root));
    for round in 0.. {
        let (byte, mode) = if round % 2 == 0 { (b'x', 0o600) } else { (b'y', 0o640) };
        write(&host, "/file", &vec![byte; 1_000_000], Some(mode)).unwrap();
    }
}

/// The fault: a writer that is killed so long after it began, wherever in a write it is then.
fn kill_in_mid_write(writer: &mut Child, writing_for: Duration) {
    std::thread::sleep(writing_for);
    writer.kill().unwrap();
    writer.wait().unwrap();
}

#[test]
fn kill_9_leaves_no_half_written_file() {
    let root = tempfile::tempdir().unwrap();
    let mut left_behind = 0;
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_killed", "--nocapture"])
            .env(KILL_ROOT, root.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let path = root.path().join("file");
        while !path.exists() {
            std::thread::yield_now();
        }
        // Different rounds die at different points of a write.
        kill_in_mid_write(&mut child, Duration::from_micros(1_500 * round));
        let bytes = fs::read(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(bytes.len(), 1_000_000);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "one version, whole");
        assert_eq!(mode, if bytes[0] == b'x' { 0o600 } else { 0o640 });
        left_behind += names(root.path()).len() - 1;
        host(root.path()).sweep("/file");
        assert_eq!(names(root.path()), ["file"], "what the dead run left is swept");
    }
    assert!(left_behind > 0, "no round died in the middle of a write: the test proves nothing");
}

/// Gives bytes, and is held up until nobody waits any more.
struct HeldUp<'a>(&'a [u8], Cancel);

impl Read for HeldUp<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.cancel();
        self.0.read(buffer)
    }
}

/// CNV-12: a mount that comes back does not bring the writes of a run that went on without it.
#[test]
fn a_job_for_which_nobody_waits_any_more_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let whole = host(root.path());
    write(&whole, "/file", b"old", None).unwrap();
    let switch = Cancel::default();
    let job = whole.for_job(switch.clone());
    write(&job, "/file", b"older", None).unwrap();
    let (content, ownership) = (&mut HeldUp(b"late", switch), PathOwnership::default());
    let digest = Digest::of(b"late");
    let late = FileWrite { content, digest, ownership, default_mode: 0o644, backup: true, validate: None };
    let refusals = [
        job.write("/file", late),
        job.remove_file("/file").map(drop),
        job.make_symlink("/link", "file"),
        job.make_directory("/directory", &ownership, 0o755),
        job.set_ownership("/file", &PathOwnership { mode: Some(0o600), ..ownership }),
    ];
    for refused in refusals {
        assert!(matches!(refused.unwrap_err().source, PathProblem::Abandoned));
    }
    assert!(job.is_cancelled() && !whole.is_cancelled());
    assert_eq!(
        (names(root.path()), fs::read(root.path().join("file")).unwrap()),
        (vec!["file".to_owned()], b"older".to_vec())
    );
    write(&whole, "/file", b"new", None).unwrap();
}

struct Breaks(usize);

impl Read for Breaks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("torn"));
        }
        self.0 -= 1;
        buffer.fill(b'?');
        Ok(buffer.len())
    }
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    write(&host, "/file", b"old", Some(0o600)).unwrap();
    let ownership = PathOwnership::default();
    let digest = Digest::of(b"new");
    let torn = host.write(
        "/file",
        FileWrite {
            content: &mut Breaks(3),
            digest,
            ownership,
            default_mode: 0o644,
            backup: false,
            validate: None,
        },
    );
    assert!(
        matches!(
            torn,
            Err(HostError { operation: HostOperation::Write, source: PathProblem::Content(_), .. })
        ),
        "{torn:?}"
    );
    let other = host.write(
        "/file",
        FileWrite {
            content: &mut &b"not new"[..],
            digest,
            ownership,
            default_mode: 0o644,
            backup: false,
            validate: None,
        },
    );
    assert!(
        matches!(
            other,
            Err(HostError { operation: HostOperation::Write, source: PathProblem::WrongDigest, .. })
        ),
        "{other:?}"
    );
    let endless = host.write(
        "/file",
        FileWrite {
            content: &mut io::repeat(0),
            digest,
            ownership,
            default_mode: 0o644,
            backup: false,
            validate: Some(&|_| panic!("too large to be asked about")),
        },
    );
    assert!(
        matches!(
            endless,
            Err(HostError { operation: HostOperation::Write, source: PathProblem::TooLarge { .. }, .. })
        ),
        "{endless:?}"
    );
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"old");
    assert_eq!(names(root.path()), ["file"]);
}

#[test]
fn validation_sees_the_finished_file_and_can_refuse_it() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    write(&host, "/file", b"old", None).unwrap();
    let refuse = |path: &Path| {
        assert_eq!(fs::read(path).unwrap(), b"new");
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o640);
        Err("line 3: no".to_owned())
    };
    let refused = write_validated(&host, "/file", b"new", Some(0o640), Some(&refuse));
    let text = model::text::chain(&refused.unwrap_err());
    assert_eq!(text, "cannot write /file: validation failed, nothing was written: line 3: no");
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"old");
    write_validated(&host, "/file", b"new", Some(0o640), Some(&|_| Ok(()))).unwrap();
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"new");
    assert_eq!(names(root.path()), ["file"]);
}

#[test]
fn what_a_dead_run_left_under_the_temporary_name_is_in_nobodys_way() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    let outside = tempfile::NamedTempFile::new().unwrap();
    for left in ["file", "symlink", "directory"] {
        let temporary = root.path().join(".file.muster-new");
        match left {
            "file" => fs::write(&temporary, "half").unwrap(),
            "symlink" => std::os::unix::fs::symlink(outside.path(), &temporary).unwrap(),
            _ => fs::create_dir(&temporary).unwrap(),
        }
        write(&host, "/file", left.as_bytes(), None).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("file")).unwrap(), left);
        assert_eq!(names(root.path()), ["file"]);
    }
    assert_eq!(fs::read(outside.path()).unwrap(), b"", "a planted link is not written through");
}

#[test]
fn a_silent_mode_is_kept_and_a_backup_holds_the_previous_version() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    let path = root.path().join("file");
    fs::write(&path, "one").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let write = |mut bytes: &[u8]| {
        let digest = Digest::of(bytes);
        let ownership = PathOwnership::default();
        let write = FileWrite {
            content: &mut bytes,
            digest,
            ownership,
            default_mode: 0o644,
            backup: true,
            validate: None,
        };
        host.write("/file", write).unwrap();
    };
    write(b"two");
    write(b"three");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o4751);
    assert_eq!(fs::read(&path).unwrap(), b"three");
    assert_eq!(fs::read(root.path().join("file.muster-backup")).unwrap(), b"two");
    assert_eq!(names(root.path()), ["file", "file.muster-backup"]);
}

#[test]
fn the_longest_names_can_be_written() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    let name = "n".repeat(255);
    write(&host, &format!("/{name}"), b"long", None).unwrap();
    assert_eq!(names(root.path()), [name]);
}

#[test]
fn directories_and_links_appear_complete() {
    let root = tempfile::tempdir().unwrap();
    let host = host(root.path());
    let mode = PathOwnership { mode: Some(0o2750), ..PathOwnership::default() };
    host.make_directory("/d", &mode, 0o755).unwrap();
    assert_eq!(fs::metadata(root.path().join("d")).unwrap().permissions().mode() & 0o7777, 0o2750);
    assert!(host.make_directory("/d", &mode, 0o755).is_err(), "what is there is not replaced");
    host.make_symlink("/l", "one").unwrap();
    host.make_symlink("/l", "two").unwrap();
    assert_eq!(fs::read_link(root.path().join("l")).unwrap(), Path::new("two"));
    assert_eq!(names(root.path()), ["d", "l"]);
}
