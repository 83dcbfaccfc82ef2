//! ROL-10: wherever a process ends in the middle of an image's switch, return or removal, and at whichever page the disk
//! is full, the link leads to a whole tree; what is tried again succeeds, the way back needs no archive, and what was made in
//! vain is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catalog::module::FileRef;
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use converge::JobDone;
use host::{Host, HostOptions};
use lang::Value;
use model::{Digest, Fields};
use providers::{Blobs, KeepBytesError, Kinds};
use serde_json::json;
use test_support::children::test_beside;
use test_support::tar::{member, tar};
use test_support::wait::until_ok;

const LONG: Duration = Duration::from_secs(60);
const POINT: &str = "MUSTER_TEST_KILL_AT";
const STEP: &str = "MUSTER_TEST_STEP";
const DIR: &str = "MUSTER_TEST_DIR";
/// Far more than a switch has.
const MOST_POINTS: u64 = 500;
/// As the kernel gives a file system in memory its room.
const PAGE: u64 = 4096;

/// What happens at a point between two operations on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Never,
    Killed(u64),
    DiskFull(u64),
}

/// Contents and memories on a disk. Whatever reads them is between two operations on the host: an archive is given in
/// small pieces, so that each file of it is.
struct PointedBlobs {
    dir: PathBuf,
    at: At,
    points: Arc<AtomicU64>,
}

fn point(at: At, points: &AtomicU64) -> io::Result<()> {
    let number = points.fetch_add(1, Ordering::SeqCst);
    match at {
        At::Killed(killed) if killed == number => std::process::abort(),
        At::DiskFull(full) if full == number => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

struct SmallPieces(File, At, Arc<AtomicU64>);

impl Read for SmallPieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        point(self.1, &self.2)?;
        let most = buffer.len().min(512);
        self.0.read(&mut buffer[..most])
    }
}

impl PointedBlobs {
    fn memory(&self, path: &str) -> PathBuf {
        self.dir.join(format!("{}.json", Digest::of(path.as_bytes())))
    }
}

impl Blobs for PointedBlobs {
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read>> {
        let file = File::open(self.dir.join(digest.to_string()))?;
        Ok(Box::new(SmallPieces(file, self.at, self.points.clone())))
    }

    fn keep(&self, _: &mut dyn Read, _: &Digest) -> Result<(), KeepBytesError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    fn unpacked(&self, path: &str) -> io::Result<Option<Fields>> {
        point(self.at, &self.points)?;
        let file = self.memory(path);
        if !file.exists() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&fs::read(file)?)?))
    }

    fn keep_unpacked(&self, path: &str, unpacked: Option<&Fields>) -> io::Result<()> {
        point(self.at, &self.points)?;
        let file = self.memory(path);
        match unpacked {
            Some(unpacked) => {
                let new = file.with_extension("new");
                fs::write(&new, serde_json::to_vec(unpacked)?)?;
                fs::rename(new, file)?;
            }
            None if file.exists() => fs::remove_file(file)?,
            None => {}
        }
        // The one after it: what is written is written, also where the process ends then.
        match self.at {
            At::Killed(_) => point(self.at, &self.points),
            At::Never | At::DiskFull(_) => Ok(()),
        }
    }
}

/// A host with an image, in a directory that outlives the process.
struct ImageHost {
    dir: PathBuf,
    kinds: Kinds,
    points: Arc<AtomicU64>,
}

impl ImageHost {
    fn at(dir: &Path, at: At) -> ImageHost {
        for name in ["root/opt", "blobs"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let points = Arc::<AtomicU64>::default();
        let blobs = PointedBlobs { dir: dir.join("blobs"), at, points: points.clone() };
        let host = Host::open(&dir.join("root"), HostOptions::default()).unwrap();
        let kinds = Kinds::new(Arc::new(host), Arc::new(blobs));
        ImageHost { dir: dir.to_owned(), kinds, points }
    }

    fn image(&self, version: &str) -> Spec {
        let bytes = archive(version);
        let digest = Digest::of(&bytes);
        fs::write(self.dir.join("blobs").join(digest.to_string()), &bytes).unwrap();
        let file = FileRef { digest, size: bytes.len() as u64, executable: false };
        let files = BTreeMap::from([("files/app.tar".to_owned(), file)]);
        let attributes: BTreeMap<String, Value> =
            serde_json::from_value(json!({"source": "app.tar", "keep": 2})).unwrap();
        bind("image", "/opt/app", &attributes, &BindContext { files: &files, rendered: None }).unwrap()
    }

    fn absent(&self) -> Spec {
        let attributes: BTreeMap<String, Value> = serde_json::from_value(json!({"state": "absent"})).unwrap();
        bind("image", "/opt/app", &attributes, &BindContext { files: &BTreeMap::new(), rendered: None })
            .unwrap()
    }

    fn step(&self, step: &str) -> Spec {
        if step == "remove" { self.absent() } else { self.image(step) }
    }

    fn apply(&self, spec: &Spec) -> Result<(), String> {
        let checked = match self.kinds.check("app", spec, LONG, false) {
            Ok(JobDone::Checked(checked)) => checked,
            Ok(other) => panic!("{other:?}"),
            Err(why) => return Err(why.message),
        };
        self.kinds.apply("app", spec, &checked, LONG).map(drop).map_err(String::from)
    }

    fn opt(&self, below: &str) -> PathBuf {
        self.dir.join("root/opt").join(below)
    }

    fn trees(&self) -> usize {
        fs::read_dir(self.opt(".app.generations")).map_or(0, Iterator::count)
    }

    /// The version that the link leads to, with all of its files; nothing where there is no link.
    #[track_caller]
    fn in_use(&self, when: &str) -> Option<String> {
        let target = fs::read_link(self.opt("app")).ok()?;
        let read = |name: &str| {
            let found = fs::read_to_string(self.opt("").join(&target).join(name));
            found.unwrap_or_else(|error| panic!("{when}: {name}: {error}"))
        };
        let version = read("bin/app");
        for name in FILES {
            assert_eq!(read(name), content(name, &version), "{when}: {name}");
        }
        Some(version)
    }

    /// Nothing of the archive is there any more, as offline where it came by URL.
    fn lose_archives(&self) {
        for version in ["one", "two"] {
            let _ = fs::remove_file(self.dir.join("blobs").join(Digest::of(&archive(version)).to_string()));
        }
    }

    /// The host goes back to what is confirmed, without any archive, and nothing is left of what was cut off.
    #[track_caller]
    fn goes_back_to_one(&self, when: &str) {
        let one = self.image("one");
        self.lose_archives();
        self.apply(&one).unwrap_or_else(|why| panic!("{when}: {why}"));
        assert_eq!(self.in_use(when).as_deref(), Some("one"), "{when}");
        assert!(self.trees() <= 2, "{when}");
        let again = self.kinds.check("app", &one, LONG, false).unwrap();
        assert!(matches!(&again, JobDone::Checked(checked) if checked.edit.is_none()), "{when}: {again:?}");
    }
}

const FILES: [&str; 4] = ["bin/app", "lib/a", "lib/b", "lib/c"];

fn content(name: &str, version: &str) -> String {
    let times = if name == "bin/app" { return version.to_owned() } else { name.len() * 300 };
    format!("{name} of {version}\n").repeat(times / 10)
}

fn archive(version: &str) -> Vec<u8> {
    let mut members = vec![member("bin/", b'5', "", 0o644, b""), member("lib/", b'5', "", 0o644, b"")];
    members.extend(FILES.iter().map(|name| member(name, b'0', "", 0o644, content(name, version).as_bytes())));
    tar(&members)
}

/// What the parents start this test program for; a plain test run finds nothing to do.
#[test]
fn child() {
    let Ok(point) = std::env::var(POINT) else { return };
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    let host = ImageHost::at(&dir, At::Killed(point.parse().unwrap()));
    let spec = host.step(&std::env::var(STEP).unwrap());
    host.apply(&spec).unwrap();
}

fn killed(dir: &Path, step: &str, point: u64) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let mut child = test_beside("child");
    let output = child.env(POINT, point.to_string()).env(STEP, step).env(DIR, dir).output().unwrap();
    let killed = output.status.signal().is_some();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(killed || output.status.success(), "{step} {point}: {:?}\n{text}", output.status);
    killed
}

/// Kills a process in the middle of a step, at each point that there is.
fn at_every_point(step: &str, prepare: impl Fn(&ImageHost), then: impl Fn(&ImageHost, &str)) {
    for point in 0..MOST_POINTS {
        let dir = tempfile::tempdir().unwrap();
        let host = ImageHost::at(dir.path(), At::Never);
        prepare(&host);
        let was_killed = killed(dir.path(), step, point);
        then(&host, &format!("{step}, killed at point {point}"));
        if !was_killed {
            println!("{step}: killed at {point} points");
            assert!(point > 10, "only {point} points");
            return;
        }
    }
    panic!("more than {MOST_POINTS} points");
}

fn on_one(host: &ImageHost) {
    host.apply(&host.image("one")).unwrap();
}

fn on_two(host: &ImageHost) {
    on_one(host);
    host.apply(&host.image("two")).unwrap();
}

#[test]
fn whatever_moment_of_a_switch_it_was_killed_at() {
    at_every_point("two", on_one, |host, when| {
        let in_use = host.in_use(when);
        assert!(in_use.is_some(), "{when}");
        host.goes_back_to_one(when);
    });
    at_every_point("two", on_one, |host, when| {
        host.apply(&host.image("two")).unwrap_or_else(|why| panic!("{when}: {why}"));
        assert_eq!((host.in_use(when).as_deref(), host.trees()), (Some("two"), 2), "{when}");
        host.goes_back_to_one(when);
    });
}

#[test]
fn whatever_moment_of_a_return_it_was_killed_at() {
    at_every_point("one", on_two, |host, when| {
        assert!(host.in_use(when).is_some(), "{when}");
        host.goes_back_to_one(when);
    });
}

#[test]
fn whatever_moment_of_its_first_switch_or_its_removal_it_was_killed_at() {
    at_every_point(
        "one",
        |_| {},
        |host, when| {
            host.in_use(when);
            host.apply(&host.absent()).unwrap_or_else(|why| panic!("{when}: {why}"));
            assert_eq!((host.in_use(when), host.opt(".app.generations").exists()), (None, false), "{when}");
        },
    );
    at_every_point("remove", on_two, |host, when| {
        host.in_use(when);
        host.apply(&host.absent()).unwrap_or_else(|why| panic!("{when}: {why}"));
        assert_eq!((host.in_use(when), host.opt(".app.generations").exists()), (None, false), "{when}");
    });
}

/// The state directory has no room, or cannot be read.
#[test]
fn whatever_could_not_be_written_down() {
    for point in 0..MOST_POINTS {
        let dir = tempfile::tempdir().unwrap();
        on_one(&ImageHost::at(dir.path(), At::Never));
        let failing = ImageHost::at(dir.path(), At::DiskFull(point));
        let applied = failing.apply(&failing.image("two"));
        let when = format!("full at point {point}: {applied:?}");
        let in_use = failing.in_use(&when);
        assert!(
            in_use.as_deref() == Some("two") || (in_use.as_deref() == Some("one") && applied.is_err()),
            "{when}"
        );
        let host = ImageHost::at(dir.path(), At::Never);
        host.goes_back_to_one(&when);
        if failing.points.load(Ordering::SeqCst) <= point {
            assert_eq!((applied, point > 10), (Ok(()), true));
            return;
        }
    }
    panic!("more than {MOST_POINTS} points");
}

/// A file system in memory, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where nothing may be mounted.
    fn mount(at: &Path, options: &str) -> Option<SmallDisk> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: a tmpfs cannot be mounted here (not root)");
        }
        mounted.then(|| SmallDisk(at.to_owned()))
    }

    fn free(&self) -> (u64, u64) {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        (found.f_bavail, found.f_favail)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg(&self.0).status().unwrap().success());
    }
}

/// Takes room, leaves so many pages or files, tries, and gives the room back.
fn with_only(disk: &SmallDisk, pages: Option<u64>, files: Option<u64>, tried: impl FnOnce()) {
    let filler = disk.0.join("filler");
    fs::create_dir(&filler).unwrap();
    if let Some(pages) = pages {
        let bytes = (disk.free().0 - pages) * PAGE;
        fs::write(filler.join("pages"), vec![7; usize::try_from(bytes).unwrap()]).unwrap();
        assert_eq!(disk.free().0, pages);
    }
    if let Some(files) = files {
        (files..disk.free().1).for_each(|number| fs::write(filler.join(number.to_string()), "").unwrap());
        assert_eq!(disk.free().1, files);
    }
    tried();
    fs::remove_dir_all(filler).unwrap();
}

#[test]
fn whichever_page_or_file_of_the_disk_was_the_last() {
    for (what, most) in [("pages", 40), ("files", 40)] {
        let dir = tempfile::tempdir().unwrap();
        let Some(disk) = SmallDisk::mount(&dir.path().join("root/opt"), "size=512k,nr_inodes=80") else {
            return;
        };
        let host = ImageHost::at(dir.path(), At::Never);
        on_one(&host);
        let before = disk.free();
        let two = host.image("two");
        let needed = (0..most).find(|left| {
            let (pages, files) = if what == "pages" { (Some(*left), None) } else { (None, Some(*left)) };
            let mut fits = false;
            with_only(&disk, pages, files, || {
                let applied = host.apply(&two);
                let when = format!("{left} {what}: {applied:?}");
                fits = applied.is_ok();
                let expected = if fits { ("two", 2) } else { ("one", 1) };
                let in_use = host.in_use(&when);
                assert_eq!((in_use.as_deref(), host.trees()), (Some(expected.0), expected.1), "{when}");
            });
            // A process that another test starts holds this one's open files until its program begins.
            let made_in_vain = |free| format!("{left} {what}: what was made in vain stays: {free:?}");
            until_ok("the disk is as before", || match disk.free() {
                free if fits || free == before => Ok(()),
                free => Err(made_in_vain(free)),
            });
            fits
        });
        println!("{what}: it needs {needed:?}");
        assert!(needed.is_some_and(|needed| needed >= 4), "{what}: {needed:?}");
        host.goes_back_to_one(what);
    }
}
