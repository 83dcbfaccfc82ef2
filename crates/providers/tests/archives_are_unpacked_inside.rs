//! EXE-1, CNV-1, CNV-10, CNV-12: an archive is unpacked below its directory and nowhere else, or refused whole; a
//! second run changes nothing, what was changed is put right, and only what it made is removed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catalog::module::{FileRef, Module, OnRemove, Params};
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab, mode};
use converge::JobWork;
use converge::bind::{Inputs, bind as bind_set};
use converge::kinds::mount::KernelMount;
use converge::ledger::LedgerEntry;
use converge::run::Undo;
use flate2::Compression;
use flate2::write::GzEncoder;
use lang::Value;
use model::{Digest, Timestamp};
use serde_json::json;
use test_support::tar::{member, tar};

fn file(name: &str, content: &str) -> Vec<u8> {
    member(name, b'0', "", 0o644, content.as_bytes())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn archive(lab: &Lab, bytes: &[u8], more: serde_json::Value) -> Spec {
    let file = FileRef { digest: lab.blobs.put(bytes), size: bytes.len() as u64, executable: false };
    let files = BTreeMap::from([("files/tool.tar.gz".to_owned(), file)]);
    bound(&files, json!({"source": "tool.tar.gz"}), more)
}

fn bound(files: &BTreeMap<String, FileRef>, from: serde_json::Value, more: serde_json::Value) -> Spec {
    let mut attributes = from;
    attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
    bind("archive", "/opt/tool", &attributes, &BindContext { files, rendered: None }).unwrap()
}

fn opt() -> Lab {
    let lab = lab();
    fs::create_dir_all(lab.path("/opt")).unwrap();
    lab
}

/// All that is below the directory, links with where they point to.
fn names(lab: &Lab) -> Vec<String> {
    let top = lab.path("/opt/tool");
    let mut found = Vec::new();
    let mut todo = vec![top.clone()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is = fs::symlink_metadata(&path).unwrap();
            let link = fs::read_link(&path).map(|to| format!(" -> {}", to.display())).unwrap_or_default();
            found.push(format!("{}{link}", path.strip_prefix(&top).unwrap().display()));
            if is.is_dir() {
                todo.push(path);
            }
        }
    }
    found.sort();
    found
}

fn tool() -> Vec<u8> {
    gzip(&tar(&[
        member("tool-1/", b'5', "", 0o777, b""),
        member("tool-1/bin/run", b'0', "", 0o4777, b"#!/bin/sh"),
        member("tool-1/bin/again", b'1', "tool-1/bin/run", 0o755, b""),
        member("tool-1/etc/conf", b'0', "", 0o600, b"a = 1"),
        member("tool-1/latest", b'2', "bin/run", 0o777, b""),
        file("tool-1/doc/README", "read me"),
    ]))
}

#[test]
fn a_second_run_changes_nothing_and_what_was_changed_is_put_right() {
    let lab = opt();
    let spec = archive(&lab, &tool(), json!({"strip": 1, "exclude": ["doc"]}));
    assert!(lab.check(&spec).edit.is_some());
    assert!(!lab.path("/opt/tool").exists(), "a check writes nothing");
    assert!(lab.apply(&spec).unwrap().changed);
    let whole = ["bin", "bin/again", "bin/run", "etc", "etc/conf", "latest -> bin/run"];
    assert_eq!(names(&lab), whole);
    let modes = |paths: &[&str]| -> Vec<u32> { paths.iter().map(|path| mode(&lab.path(path))).collect() };
    let paths = ["/opt/tool/bin/run", "/opt/tool/bin/again", "/opt/tool/etc/conf", "/opt/tool/bin"];
    assert_eq!(modes(&paths), [0o755, 0o755, 0o600, 0o755], "no set-id bit, no right of others to write");
    assert!(lab.check(&spec).edit.is_none());
    assert!(!lab.apply(&spec).unwrap().changed);

    lab.write("/opt/tool/etc/conf", b"by hand");
    lab.write("/opt/tool/etc/own", b"own");
    fs::remove_file(lab.path("/opt/tool/bin/again")).unwrap();
    fs::remove_file(lab.path("/opt/tool/latest")).unwrap();
    symlink("/etc/passwd", lab.path("/opt/tool/latest")).unwrap();
    fs::set_permissions(lab.path("/opt/tool/bin/run"), fs::Permissions::from_mode(0o600)).unwrap();
    let edit = lab.check(&spec).edit.unwrap();
    let named: Vec<&String> = edit.to().unwrap().keys().collect();
    assert_eq!(named, ["./bin/again", "./bin/run", "./etc/conf", "./latest"]);
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(lab.check(&spec).edit.is_none());
    assert_eq!(
        (lab.read("/opt/tool/etc/conf"), lab.read("/opt/tool/bin/again")),
        ("a = 1".into(), "#!/bin/sh".into())
    );
    assert_eq!((lab.read("/opt/tool/etc/own"), mode(&lab.path("/opt/tool/bin/run"))), ("own".into(), 0o755));
    // What is declared counts more than what the archive says.
    let spec =
        archive(&lab, &tool(), json!({"strip": 1, "exclude": ["doc"], "mode": "0750", "file_mode": "0640"}));
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(modes(&paths), [0o750, 0o750, 0o640, 0o750]);
    assert!(lab.check(&spec).edit.is_none());
}

#[test]
fn another_archive_takes_the_place_of_the_one_before() {
    let lab = opt();
    let first = archive(&lab, &tool(), json!({"strip": 1}));
    assert!(lab.apply(&first).unwrap().changed);
    lab.write("/opt/tool/etc/own", b"own");
    let second = archive(&lab, &tar(&[file("./bin/run", "new"), file("./new", "n")]), json!({}));
    let checked = lab.check(&second);
    assert!(checked.note.unwrap().contains("what was unpacked before is not kept"));
    assert!(lab.apply(&second).unwrap().changed);
    assert_eq!(names(&lab), ["bin", "bin/run", "etc", "etc/own", "new"]);
    assert!(lab.check(&second).edit.is_none());
    // Another part of the same archive is another one.
    let third =
        archive(&lab, &tar(&[file("./bin/run", "new"), file("./new", "n")]), json!({"only": ["bin"]}));
    assert!(lab.apply(&third).unwrap().changed);
    assert_eq!(names(&lab), ["bin", "bin/run", "etc", "etc/own"]);
}

#[test]
fn only_what_it_made_is_removed() {
    for there in [false, true] {
        let lab = opt();
        if there {
            fs::create_dir(lab.path("/opt/tool")).unwrap();
        }
        let spec = archive(&lab, &tool(), json!({"strip": 1}));
        let checked = lab.check(&spec);
        assert!(lab.apply(&spec).unwrap().changed);
        lab.write("/opt/tool/doc/own", b"own");
        let entry = LedgerEntry {
            kind: "archive".to_owned(),
            path: "/opt/tool".to_owned(),
            prior: checked.prior,
            kept: false,
            on_remove: OnRemove::Delete,
            at: Timestamp(0),
            sensitive: false,
            attributes: BTreeMap::new(),
            made: Vec::new(),
            generation: None,
        };
        assert!(lab.kinds.remove(&entry, OnRemove::Delete).unwrap());
        assert_eq!(names(&lab), ["doc", "doc/own"]);
        assert!(!lab.kinds.remove(&entry, OnRemove::Delete).unwrap());

        fs::remove_dir_all(lab.path("/opt/tool/doc")).unwrap();
        assert!(lab.apply(&spec).unwrap().changed);
        let absent = bound(&BTreeMap::new(), json!({"state": "absent"}), json!({}));
        assert!(lab.apply(&absent).unwrap().changed);
        assert!(!lab.apply(&absent).unwrap().changed);
        assert!(lab.path("/opt/tool").exists(), "the directory was there before");
    }
    let lab = opt();
    let spec = archive(&lab, &tool(), json!({}));
    assert!(lab.apply(&spec).unwrap().changed);
    lab.apply(&bound(&BTreeMap::new(), json!({"state": "absent"}), json!({}))).unwrap();
    assert!(!lab.path("/opt/tool").exists(), "the directory was made for it");
}

#[test]
fn a_failed_verification_puts_back_what_a_run_changed() {
    let lab = opt();
    let spec = archive(&lab, &tool(), json!({"strip": 1}));
    assert!(lab.apply(&spec).unwrap().changed);
    lab.write("/opt/tool/etc/conf", b"by hand");
    let checked = lab.check(&spec);
    assert!(lab.apply(&spec).unwrap().changed);
    let undo = Undo {
        path: "/opt/tool".to_owned(),
        prior: checked.prior,
        kept: false,
        kind: "archive".to_owned(),
        attributes: BTreeMap::new(),
        made: Vec::new(),
    };
    lab.kinds.undo(&undo).unwrap();
    assert_eq!(lab.read("/opt/tool/etc/conf"), "by hand");
}

#[test]
fn an_archive_that_is_not_what_it_should_be_is_refused_whole() {
    let good = || file("good", "good");
    let huge = gzip(&tar(&[member("zeros", b'0', "", 0o644, &vec![0; 65 * 1024 * 1024])]));
    let mut damaged = tar(&[good(), file("x", "y")]);
    damaged[600] ^= 1;
    damaged[1024 + 7] ^= 1;
    let cut = tar(&[good(), file("x", &"y".repeat(600))]);
    let long = member("././@LongLink", b'L', "", 0o644, b"../../etc/cron.d/evil\0");
    let pax = member("p", b'x', "", 0o644, b"31 path=../../etc/cron.d/evil1\n");
    let pax_size =
        |size: &str| member("p", b'x', "", 0o644, format!("{} size={size}\n", 9 + size.len()).as_bytes());
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("parent", tar(&[good(), file("../evil", "x")]), "`../evil` leads out of the directory"),
        ("deep", tar(&[good(), file("a/../../evil", "x")]), "leads out of the directory"),
        ("absolute", tar(&[good(), file("/etc/evil", "x")]), "`/etc/evil` leads out of the directory"),
        ("long name", tar(&[good(), long, file("ok", "x")]), "leads out of the directory"),
        ("pax name", tar(&[good(), pax, file("ok", "x")]), "leads out of the directory"),
        (
            "pax size",
            tar(&[good(), pax_size("18446744073709551615"), file("x", "y")]),
            "an extended header cannot be read",
        ),
        (
            "link",
            tar(&[good(), member("l", b'2', "/etc", 0, b"")]),
            "the link `l` points out of the directory, to `/etc`",
        ),
        ("link up", tar(&[good(), member("d/l", b'2', "../../x", 0, b"")]), "points out of the directory"),
        (
            "below a link",
            tar(&[good(), member("l", b'2', "d", 0, b""), file("l/evil", "x")]),
            "`l` is no directory, and something lies below it",
        ),
        ("hard link", tar(&[good(), member("h", b'1', "/etc/passwd", 0, b"")]), "leads out of the directory"),
        (
            "hard link to a link",
            tar(&[good(), member("l", b'2', "good", 0, b""), member("h", b'1', "l", 0, b"")]),
            "is a hard link to `l`",
        ),
        (
            "device",
            tar(&[good(), member("d", b'3', "", 0o666, b"")]),
            "`d` is neither file, directory nor link",
        ),
        (
            "fifo",
            tar(&[good(), member("f", b'6', "", 0o666, b"")]),
            "`f` is neither file, directory nor link",
        ),
        ("twice", tar(&[good(), file("x", "1"), file("./x", "2")]), "`x` stands in it twice"),
        ("bomb", huge, "it unpacks to more than 64 MiB"),
        ("damaged", damaged, "it is no tar file, or damaged"),
        ("cut", cut[..cut.len() - 1024 - 512].to_vec(), "unexpected end of file"),
        ("cut gzip", tool()[..200].to_vec(), "is not unpacked: "),
        ("text", b"<html>not found</html>".repeat(40), "it is no tar file, or damaged"),
        ("empty", Vec::new(), "nothing is left of it"),
        ("xz", b"\xfd7zXZ\0....".to_vec(), "it is compressed with xz, which is not read; make it a .tar.gz"),
        ("zip", b"PK\x03\x04....".to_vec(), "it is a zip file"),
    ];
    for (what, bytes, words) in table {
        let lab = opt();
        let spec = archive(&lab, &bytes, json!({}));
        let why = lab.apply(&spec).expect_err(what);
        assert!(why.contains(words), "{what}: {why}");
        assert!(!lab.path("/opt/tool").exists(), "{what}: nothing is written");
        assert_eq!(fs::read_dir(lab.path("/")).unwrap().count(), 1, "{what}");
    }
    let lab = opt();
    let spec = archive(&lab, &tool(), json!({"strip": 9}));
    assert!(lab.apply(&spec).unwrap_err().contains("nothing is left of it"));
}

#[test]
fn what_stands_in_the_way_is_left_alone() {
    let lab = opt();
    let spec = archive(&lab, &tool(), json!({"strip": 1}));
    lab.write("/elsewhere/keep", b"keep");
    fs::create_dir(lab.path("/opt/tool")).unwrap();
    symlink(lab.path("/elsewhere"), lab.path("/opt/tool/bin")).unwrap();
    assert!(lab.check(&spec).note.unwrap().contains("are overwritten"));
    assert!(lab.apply(&spec).unwrap_err().contains("/opt/tool/bin is no directory; move it away"));
    fs::remove_file(lab.path("/opt/tool/bin")).unwrap();
    fs::create_dir_all(lab.path("/opt/tool/etc/conf")).unwrap();
    assert!(lab.apply(&spec).unwrap_err().contains("/opt/tool/etc/conf is no file; move it away"));
    fs::remove_dir_all(lab.path("/opt/tool")).unwrap();
    lab.write("/opt/tool", b"a file");
    assert!(lab.failed_check(&spec).contains("/opt/tool is not a directory"));
    assert_eq!(
        (lab.read("/opt/tool"), fs::read_dir(lab.path("/elsewhere")).unwrap().count()),
        ("a file".into(), 1)
    );
}

#[test]
fn it_is_fetched_when_it_is_needed_and_believed_by_its_digest_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tool.tar.gz", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", tool().len());
            stream.write_all(&[head.as_bytes(), &tool()].concat()).unwrap();
        }
    });
    let lab = opt();
    let from = |digest: Digest| {
        bound(&BTreeMap::new(), json!({"url": url, "sha256": digest.to_string()}), json!({"strip": 1}))
    };
    let wrong = lab.apply(&from(Digest::of(b"other"))).unwrap_err();
    assert!(wrong.contains("and not the declared sha256:") && !lab.path("/opt/tool").exists(), "{wrong}");
    assert_eq!(lab.blobs.count(), 0, "what is refused takes no room");
    let digest = Digest::of(&tool());
    let spec = from(digest);
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    lab.blobs.forget(digest);
    assert!(!lab.apply(&spec).unwrap().changed);
    assert_eq!(asked.load(Ordering::SeqCst), 2, "nothing differs, so nothing is fetched");
    fs::remove_file(lab.path("/opt/tool/bin/run")).unwrap();
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn what_tar_writes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let deep = format!("{}/{}", "d".repeat(90), "e".repeat(90));
    fs::create_dir_all(dir.path().join("t").join(&deep)).unwrap();
    fs::write(dir.path().join("t").join(&deep).join("f"), "deep").unwrap();
    fs::write(dir.path().join("t/hello"), "hello").unwrap();
    symlink(format!("{deep}/f"), dir.path().join("t/link")).unwrap();
    for format in ["gnu", "pax", "ustar"] {
        let path = dir.path().join("t.tgz");
        let mut tar = Command::new("tar");
        tar.arg(format!("--format={format}")).arg("-czf").arg(&path).arg("-C").arg(dir.path().join("t"));
        // A link that is too long for ustar is left out there.
        tar.args(if format == "ustar" { &["--exclude=link", "."][..] } else { &["."][..] });
        assert!(tar.status().unwrap().success(), "{format}");
        let lab = opt();
        let spec = archive(&lab, &fs::read(&path).unwrap(), json!({}));
        assert!(lab.apply(&spec).unwrap().changed, "{format}");
        assert!(lab.check(&spec).edit.is_none());
        assert_eq!(lab.read(&format!("/opt/tool/{deep}/f")), "deep", "{format}");
        assert_eq!(lab.path("/opt/tool/link").is_symlink(), format != "ustar");
    }
}

#[test]
fn a_run_that_died_in_the_middle_is_taken_up() {
    let lab = opt();
    let spec = archive(&lab, &tool(), json!({"strip": 1}));
    // A directory is where a file of the archive belongs: what was begun is remembered.
    fs::create_dir_all(lab.path("/opt/tool/bin/run/full")).unwrap();
    assert!(lab.apply(&spec).is_err());
    let absent = bound(&BTreeMap::new(), json!({"state": "absent"}), json!({}));
    fs::remove_dir_all(lab.path("/opt/tool/bin/run")).unwrap();
    assert!(lab.check(&spec).edit.is_some());
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(lab.check(&spec).edit.is_none());
    assert!(lab.apply(&absent).unwrap().changed);
    assert!(names(&lab).is_empty());
}

/// A job at a mount that may not answer gets a thread and a limit of time.
#[test]
fn a_mount_inside_the_directory_is_known_to_be_looked_at() {
    let lab = opt();
    let module: Module = serde_json::from_value(json!({"name": "m", "resources": [
        {"type": "archive", "name": "/opt/tool",
         "attributes": {"url": "http://x.test/tool.tar", "sha256": Digest::ZERO.to_string()}}
    ]}))
    .unwrap();
    let modules = BTreeMap::from([("m".to_owned(), Arc::new(module))]);
    let params = Params { modules: vec!["m".to_owned()], ..Params::default() };
    let traits = Value::Map(BTreeMap::new());
    let desired = bind_set(&Inputs {
        modules: &modules,
        params: &params,
        hostname: Some("web-1"),
        traits: Some(&traits),
        own_paths: &[],
        secrets: lang::OpenedSecrets::SEALED,
    });
    let resource = desired.resources().next().unwrap().clone();
    let check = JobWork::Check { resource, plan: false, notified: BTreeSet::new() };
    for (point, looks) in [("/opt/tool/data", true), ("/opt/tool", true), ("/opt/tools", false)] {
        let (fstype, source) = ("nfs".to_owned(), "nas:/data".to_owned());
        let mount = KernelMount { path: point.to_owned(), fstype, source, options: Vec::new() };
        fs::create_dir_all(lab.path(point)).unwrap();
        assert_eq!(lab.kinds.mount_of_job(&[mount], &check).is_some(), looks, "{point}");
    }
}
