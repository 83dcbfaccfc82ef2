//! CNV-8: of each managed file the last five versions are kept before Muster overwrites or removes it;
//! they are listed, compared and put back, with and without the daemon; what may hold a secret is not
//! kept, and the list says so; what a removed directory held is kept within bounds that are said.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use agent::state::StateDir;
use catalog::module::{DeclaredResource, Module, OnRemove};
use converge::versions::LIMITS;
use model::log::FactBody;
use serde_json::{Value, json};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{adopt, file, module, resource};
use test_support::wait::until_blocking;

const MOTD: &str = "/etc/motd";

fn base(resources: Vec<DeclaredResource>) -> Vec<Module> {
    vec![Module { resources, ..module("base") }]
}

fn apply(host: &LocalHost) {
    let (code, said) = printed(&host.agent(&["apply", "--once"]));
    assert_eq!(code, Some(0), "{said}");
}

/// The history of one file.
fn history(host: &LocalHost, path: &str) -> Value {
    let view = host.json(&["file", "versions", path]);
    let files = view["files"].as_array().unwrap();
    files.iter().find(|file| file["path"] == path).cloned().unwrap_or_default()
}

fn numbers(history: &Value) -> Vec<u64> {
    let versions = history["versions"].as_array().into_iter().flatten();
    versions.map(|version| version["number"].as_u64().unwrap()).collect()
}

fn set_mode(host: &LocalHost, path: &str, mode: u32) {
    std::fs::set_permissions(host.root().join(path), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_last_five_are_listed_compared_and_put_back() {
    let host = LocalHost::new(base(vec![file(MOTD, "declared\n")]));
    for hand in 1..=7 {
        host.write("etc/motd", &format!("hand {hand}\nsame\n"));
        if hand == 4 {
            set_mode(&host, "etc/motd", 0o640);
        }
        apply(&host);
    }
    assert_eq!(numbers(&history(&host, MOTD)), [7, 6, 5, 4, 3], "the newest first, the oldest dropped");
    let kept = std::fs::read_dir(host.state().join("versions/content/blobs")).unwrap();
    let kept: usize = kept.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum();
    assert_eq!(kept, 5, "the bytes of dropped versions go with them");

    let (code, diff) = printed(&host.agent(&["file", "diff", MOTD, "4"]));
    assert_eq!(code, Some(2), "{diff}");
    assert_eq!(
        diff,
        "--- /etc/motd version 4\n+++ /etc/motd now\nmode: 0640 -> 0644\n-hand 4\n-same\n+declared\n"
    );
    let (code, unknown) = printed(&host.agent(&["file", "restore", MOTD, "1"]));
    assert_eq!(code, Some(1), "{unknown}");
    assert!(unknown.contains("no version 1 of /etc/motd is kept"), "{unknown}");

    let restored = host.json(&["file", "restore", MOTD, "4"]);
    assert_eq!(
        (&restored["before"], &restored["next"]["code"]),
        (&json!(8), &json!("putBack")),
        "{restored}"
    );
    assert_eq!(restored["next"]["by"], json!(["base/file:/etc/motd"]));
    assert_eq!(host.read("etc/motd").unwrap(), "hand 4\nsame\n");
    let mode = std::fs::metadata(host.root().join("etc/motd")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o640, "the mode is put back too");
    let (code, same) = printed(&host.agent(&["file", "diff", MOTD, "4"]));
    assert_eq!((code, same.as_str()), (Some(0), "/etc/motd is as in version 4\n"));
    let (_, again) = printed(&host.agent(&["file", "restore", MOTD, "4"]));
    assert!(again.contains("is as in version 4 already"), "{again}");

    apply(&host);
    assert_eq!(host.read("etc/motd").unwrap(), "declared\n", "the next run puts back what is declared");
    assert_eq!(numbers(&history(&host, MOTD)), [4, 8, 7, 6, 5], "what comes back is the same version");
}

#[test]
fn a_version_is_put_back_while_the_daemon_runs_and_reported() {
    let mut host = LocalHost::new(base(vec![file(MOTD, "declared\n")]));
    host.write("etc/motd", "by hand\n");
    host.start();
    assert_eq!(host.read("etc/motd").unwrap(), "declared\n");
    assert_eq!(host.agent(&["pause", "--reason", "looking"]).status.code(), Some(0));
    let (code, restored) = printed(&host.agent(&["file", "restore", MOTD, "1"]));
    assert_eq!(code, Some(0), "{restored}");
    assert!(restored.contains("restored /etc/motd to version 1; what was there is version 2"), "{restored}");
    assert!(restored.contains("this host is paused") && restored.contains("looking"), "{restored}");
    assert_eq!(host.read("etc/motd").unwrap(), "by hand\n");
    let (_, listed) = printed(&host.agent(&["file", "versions"]));
    assert!(listed.contains("by muster-agent file restore"), "{listed}");
    assert!(host.log().contains("put a version of a file back"), "{}", host.log());
    host.kill();
    let durable = StateDir::create(&host.state()).unwrap().open().unwrap();
    let facts = durable.facts(200, 1 << 20).unwrap();
    let restored = FactBody::FileRestored { path: MOTD.to_owned(), version: 1 };
    assert_eq!(facts.iter().filter(|fact| fact.body == restored).count(), 1, "{facts:?}");
}

/// CNV-12, LIF-10: between runs a daemon has the histories on disk alone. What was damaged there meanwhile is set aside and
/// told, and the next version is kept.
#[test]
fn what_was_damaged_between_two_runs_is_told() {
    let mut host = LocalHost::new(base(vec![file(MOTD, "declared\n")]));
    host.write("etc/motd", "by hand\n");
    host.start();
    assert_eq!(numbers(&history(&host, MOTD)), [1]);
    let (_, ran) = printed(&host.agent(&["apply"]));
    let journal = std::fs::read_dir(host.state().join("versions/journal")).unwrap();
    let mut segments = journal.map(|entry| entry.unwrap().path());
    let segment = segments.find(|path| path.extension().is_some_and(|end| end == "segment")).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(MOTD.len()).position(|window| window == MOTD.as_bytes()).unwrap();
    bytes[at + 1] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    assert_eq!(numbers(&history(&host, MOTD)), [] as [u64; 0], "{ran}");
    host.write("etc/motd", "by hand again\n");
    let (code, said) = printed(&host.agent(&["apply"]));
    assert_eq!((code, host.read("etc/motd").unwrap().as_str()), (Some(0), "declared\n"), "{said}");
    assert_eq!(numbers(&history(&host, MOTD)), [1]);
    until_blocking("the daemon tells it", || host.log().contains("repaired").then_some(()));
    assert!(host.log().contains("versions"), "{}", host.log());
}

#[test]
fn what_may_hold_a_secret_is_not_kept() {
    let mut secret = file("/etc/token", "canary-new\n");
    secret.sensitive = true;
    let private = resource("file", "/etc/key", &[("content", "new\n".into()), ("mode", "0600".into())]);
    let host = LocalHost::new(base(vec![secret, private, file("/etc/closed", "new\n")]));
    for name in ["etc/token", "etc/key", "etc/closed"] {
        host.write(name, "canary-old\n");
    }
    set_mode(&host, "etc/closed", 0o600);
    apply(&host);
    for (path, code) in [("/etc/token", "sensitive"), ("/etc/key", "private"), ("/etc/closed", "private")] {
        let history = history(&host, path);
        assert_eq!(numbers(&history), [0; 0], "{history}");
        assert_eq!(history["passedOver"]["reason"]["code"], code, "{path}");
    }
    let (_, listed) = printed(&host.agent(&["file", "versions"]));
    assert!(listed.contains("not kept") && listed.contains("the resource is sensitive"), "{listed}");
    let bytes = std::process::Command::new("grep")
        .args(["-r", "-l", "canary"])
        .arg(host.state().join("versions"))
        .output()
        .unwrap();
    assert!(bytes.stdout.is_empty(), "a secret was kept: {}", String::from_utf8_lossy(&bytes.stdout));
}

#[test]
fn parts_of_files_and_what_leaves_the_release_are_kept_too() {
    let mut goes = file("/etc/goes", "declared\n");
    goes.on_remove = Some(OnRemove::Delete);
    let parts = |value: &str| {
        vec![
            resource("line", "max", &[("path", "/etc/limits".into()), ("line", value.into())]),
            resource(
                "ini",
                "journald",
                &[
                    ("path", "/etc/journald.conf".into()),
                    ("section", "Journal".into()),
                    ("key", "SystemMaxUse".into()),
                    ("value", value.into()),
                ],
            ),
            resource("host", "db-1.example.com", &[("address", "192.0.2.10".into())]),
        ]
    };
    let mut resources = parts("200M");
    resources.push(goes);
    let host = LocalHost::new(base(resources));
    for (name, text) in [("etc/limits", "a\n"), ("etc/journald.conf", "[Journal]\n"), ("etc/hosts", "b\n")] {
        host.write(name, text);
    }
    apply(&host);
    for path in ["/etc/limits", "/etc/journald.conf", "/etc/hosts"] {
        assert_eq!(numbers(&history(&host, path)), [1], "{path}");
    }
    assert_eq!(history(&host, "/etc/goes"), Value::Null, "nothing was there");
    let (code, diff) = printed(&host.agent(&["file", "diff", "/etc/limits"]));
    assert_eq!((code, diff.contains("+200M")), (Some(2), true), "{diff}");

    adopt(&host.state(), 2, base(parts("300M")));
    apply(&host);
    assert_eq!(host.read("etc/goes"), None);
    assert_eq!(numbers(&history(&host, "/etc/goes")), [1]);
    let (_, restored) = printed(&host.agent(&["file", "restore", "/etc/goes", "1"]));
    assert!(restored.contains("no resource declares it"), "{restored}");
    assert_eq!(host.read("etc/goes").unwrap(), "declared\n");
}

/// An archive that cannot be fetched just before it is unpacked says nothing of what it would overwrite: it is
/// not unpacked then, though the next try to fetch it would succeed.
#[test]
fn what_an_archive_overwrites_is_kept_after_a_fetch_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = tar(dir.path(), &["conf"]);
    let digest = model::Digest::of(&bytes).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tool.tar", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let head = match number {
                0 => "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned(),
                _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len()),
            };
            let body = if number == 0 { &[][..] } else { &bytes };
            stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        }
    });
    let attributes = [("url", lang::Value::from(url.as_str())), ("sha256", digest.as_str().into())];
    let host = LocalHost::new(base(vec![resource("archive", "/opt/tool", &attributes)]));
    std::fs::create_dir_all(host.root().join("opt/tool")).unwrap();
    host.write("opt/tool/conf", "by hand\n");
    let (code, said) = printed(&host.agent(&["apply", "--once"]));
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("503"), "{said}");
    assert_eq!(host.read("opt/tool/conf").unwrap(), "by hand\n");
    apply(&host);
    assert_eq!(host.read("opt/tool/conf").unwrap(), "of the archive\n");
    assert_eq!(numbers(&history(&host, "/opt/tool/conf")), [1]);
}

/// A release that makes a resource sensitive and leaves its file as it is: nothing of it is shown or kept, also
/// before the next run.
#[test]
fn what_became_sensitive_without_a_change_is_neither_shown_nor_kept() {
    for verb in [&["file", "diff", MOTD][..], &["file", "restore", MOTD, "1"], &["apply", "--once"]] {
        let host = LocalHost::new(base(vec![file(MOTD, "declared\n")]));
        host.write("etc/motd", "by hand\n");
        apply(&host);
        assert_eq!(numbers(&history(&host, MOTD)), [1]);
        let mut secret = file(MOTD, "declared\n");
        secret.sensitive = true;
        adopt(&host.state(), 2, base(vec![secret]));
        let (code, said) = printed(&host.agent(verb));
        let refused = verb[0] == "file";
        assert_eq!(code == Some(1) && said.contains("is kept"), refused, "{verb:?}: {said}");
        assert!(!said.contains("by hand"), "{said}");
        assert_eq!(host.read("etc/motd").unwrap(), "declared\n");
        let history = history(&host, MOTD);
        assert!(numbers(&history).is_empty(), "{verb:?}");
        assert_eq!(history["passedOver"]["reason"]["code"], "sensitive", "{verb:?}: {history}");
        let blobs = std::fs::read_dir(host.state().join("versions/content/blobs")).unwrap();
        let kept: usize =
            blobs.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum();
        assert_eq!(kept, 0, "{verb:?}: the bytes are gone");
    }
}

#[test]
fn a_removed_directory_is_kept_within_its_bounds() {
    let gone = resource("directory", "/srv/old", &[("state", "absent".into()), ("recurse", true.into())]);
    let host = LocalHost::new(base(vec![gone]));
    let deep = host.root().join("srv/old/a/b");
    std::fs::create_dir_all(&deep).unwrap();
    host.write("srv/old/a/b/deep", "deep\n");
    let more = 7;
    for number in 0..LIMITS.change_files - 1 + more {
        std::fs::write(host.root().join(format!("srv/old/{number:03}")), "x\n").unwrap();
    }
    apply(&host);
    assert!(!host.root().join("srv/old").exists());
    let view = host.json(&["file", "versions", "/srv/old"]);
    let files = view["files"].as_array().unwrap();
    assert_eq!(files.len(), LIMITS.change_files + 1, "the files, and what is said of the directory");
    assert_eq!(files[0]["path"], "/srv/old");
    assert_eq!(files[0]["passedOver"]["files"], more);
    assert_eq!(files[0]["passedOver"]["reason"]["code"], "tooMany");
}

#[test]
fn what_is_too_large_is_said() {
    let host = LocalHost::new(base(vec![file(MOTD, "declared\n")]));
    let length = usize::try_from(LIMITS.version_bytes).unwrap() + 1;
    host.write("etc/motd", &"x".repeat(length));
    apply(&host);
    let passed = &history(&host, MOTD)["passedOver"];
    assert_eq!(passed["reason"], json!({"code": "tooLarge", "size": length}), "{passed}");
    assert_eq!(host.read("etc/motd").unwrap(), "declared\n", "it is put right all the same");
}

#[test]
fn what_cannot_be_kept_is_put_back_over_by_force_alone() {
    let mut host = LocalHost::new(base(vec![file(MOTD, "declared\n")]));
    host.write("etc/motd", "by hand\n");
    apply(&host);
    let large = "x".repeat(usize::try_from(LIMITS.version_bytes).unwrap() + 1);
    for (content, mode, reason) in [
        ("private\n", 0o600, "only its owner may read it"),
        (large.as_str(), 0o644, "4 MiB are kept of a version"),
    ] {
        host.write("etc/motd", content);
        set_mode(&host, "etc/motd", mode);
        let (code, refused) = printed(&host.agent(&["file", "restore", MOTD, "1"]));
        assert_eq!(code, Some(1), "{refused}");
        assert!(refused.contains("is not overwritten") && refused.contains(reason), "{refused}");
        assert!(refused.contains("--force overwrites it"), "{refused}");
        assert_eq!(host.read("etc/motd").unwrap(), content, "{reason}");
        let before = history(&host, MOTD)["passedOver"].clone();
        assert_eq!(before, Value::Null, "nothing was lost, so nothing is noted");
    }
    assert_eq!(host.agent(&["pause", "--reason", "looking"]).status.code(), Some(0));
    host.start();
    let (code, refused) = printed(&host.agent(&["file", "restore", MOTD, "1"]));
    assert_eq!((code, refused.contains("--force overwrites it")), (Some(1), true), "{refused}");
    let restored = host.json(&["file", "restore", MOTD, "1", "--force"]);
    assert_eq!((&restored["unchanged"], &restored["before"]), (&json!(false), &Value::Null), "{restored}");
    assert_eq!(host.read("etc/motd").unwrap(), "by hand\n");
    assert_eq!(history(&host, MOTD)["passedOver"]["reason"]["code"], "tooLarge");
}

#[test]
fn what_makes_way_for_another_kind_is_kept() {
    let forced = |kind: &str, path: &str, more: &[(&str, lang::Value)]| {
        resource(kind, path, &[&[("force", lang::Value::from(true))][..], more].concat())
    };
    let host = LocalHost::new(base(vec![
        forced("file", "/srv/file", &[("content", "new\n".into())]),
        forced("symlink", "/srv/link", &[("target", "elsewhere".into())]),
        forced("directory", "/srv/directory", &[]),
    ]));
    for name in ["srv/file/a/deep", "srv/link/deep", "srv/directory"] {
        std::fs::create_dir_all(host.root().join(name).parent().unwrap()).unwrap();
        host.write(name, "by hand\n");
    }
    apply(&host);
    assert_eq!(host.read("srv/file").unwrap(), "new\n");
    assert!(host.root().join("srv/directory").is_dir() && host.root().join("srv/link").is_symlink());
    for path in ["/srv/file/a/deep", "/srv/link/deep", "/srv/directory"] {
        assert_eq!(numbers(&history(&host, path)), [1], "{path}");
    }
}

/// A tar file of these members.
fn tar(directory: &std::path::Path, members: &[&str]) -> Vec<u8> {
    for member in members {
        std::fs::write(directory.join(member), "of the archive\n").unwrap();
    }
    let tar = std::process::Command::new("tar").arg("-c").arg("-C").arg(directory).args(members).output();
    tar.unwrap().stdout
}

#[test]
fn what_an_archive_overwrites_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let of = |members: &[&str]| {
        let bytes = tar(dir.path(), members);
        let digest = model::Digest::of(&bytes);
        let declared = catalog::module::FileRef { digest, size: bytes.len() as u64, executable: false };
        let mut unpacked = base(vec![resource("archive", "/opt/tool", &[("source", "tool.tar".into())])]);
        unpacked[0].files.insert("files/tool.tar".to_owned(), declared);
        unpacked[0].blobs.insert(digest);
        (unpacked, bytes)
    };
    let host = LocalHost::new(Vec::new());
    let take = |seq: u64, (modules, bytes): (Vec<Module>, Vec<u8>)| {
        let durable = StateDir::create(&host.state()).unwrap().open().unwrap();
        durable.keep(&bytes, model::Digest::of(&bytes)).unwrap();
        drop(durable);
        adopt(&host.state(), seq, modules);
        apply(&host);
    };
    std::fs::create_dir_all(host.root().join("opt/tool")).unwrap();
    for name in ["opt/tool/conf", "opt/tool/later", "opt/tool/own"] {
        host.write(name, "by hand\n");
    }
    take(2, of(&["conf"]));
    assert_eq!(host.read("opt/tool/conf").unwrap(), "of the archive\n");
    assert_eq!(numbers(&history(&host, "/opt/tool/conf")), [1], "the first archive over what was there");
    assert_eq!(history(&host, "/opt/tool/later"), Value::Null);

    take(3, of(&["conf", "later"]));
    assert_eq!(numbers(&history(&host, "/opt/tool/later")), [1], "a name that only the new archive has");
    assert_eq!(history(&host, "/opt/tool/own"), Value::Null, "it is not the archive's");

    let restored = host.json(&["file", "restore", "/opt/tool/later", "1"]);
    assert_eq!(restored["next"], json!({"code": "putBack", "by": ["base/archive:/opt/tool"]}));
}
