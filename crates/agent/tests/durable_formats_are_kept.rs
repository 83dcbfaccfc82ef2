//! LIF-4: a node's state directory as a released version wrote it stays readable, and this version
//! writes what its format says. The golden directory of each format is `golden/format-N`; one of a
//! format that was released is never changed. `MUSTER_BLESS=1` writes the current one anew. (The
//! logs of facts and of objects: crates/spool/tests/durable_formats_are_kept.rs.)
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use activation::ActivationRecord;
use agent::generations::{GenerationFiles, InstalledAgent, ReturnUnits, ReturnWatchdog};
use agent::guard::GuardedChanges;
use agent::identity::{self, Membership};
use agent::state::{Durable, StateDir};
use catalog::module::CommandLine;
use catalog::types::ARCHIVE_TEXT;
use converge::kinds::image::ordered;
use converge::kinds::switch::SwitchMemory;
use converge::{LedgerEntry, Pending, Record, ResourceId};
use model::replication::Mode;
use model::{Digest, Fields};
use node::work::ActionMark;
use node::{Adoption, LastRun};
use providers::Blobs;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spool::{Disk, FORMAT, PeekedFile, StateFile};
use trust::token::KeySource;
use trust::{SigningKey, Slots, TrustDocument};

/// What every format has to be able to say.
struct Kept {
    membership: Membership,
    adoption: Adoption,
    last_run: LastRun,
    pending: Pending,
    entry: (ResourceId, LedgerEntry),
    mark: (String, ActionMark),
}

const CONTENT: &[u8] = b"{\"content\":1}";

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

fn kept() -> Kept {
    let digest = Digest::of(CONTENT);
    let at = "2026-11-22T08:00:00Z";
    let file = json!({"type": "file", "digest": digest, "size": 13, "mode": 0o644, "uid": 0, "gid": 0});
    let id = ResourceId::new("base", "file", "/etc/motd");
    let slots = Slots::of(key().public());
    let trust = TrustDocument::first("f-1".parse().unwrap(), slots.clone(), slots);
    Kept {
        membership: Membership {
            node_id: key().public().node_id(),
            hostname: "edge-1".parse().unwrap(),
            servers: vec!["https://muster.example:8443".parse().unwrap()],
            tls_termination: Default::default(),
            proxy: None,
            ca_pem: "the CA".to_owned(),
            cert_pem: "the certificate".to_owned(),
            trust,
            key: KeySource::Own,
            root: Some("/srv/root".into()),
            allow_exec: true,
        },
        adoption: of(json!({
            "header": {"payload": "{}", "signatures": [{"key": "k", "sig": "c2ln"}]},
            "digest": digest, "channel": "stable", "seq": 7, "root": digest,
            "objects": {"Params//app": {"digest": digest, "size": 13}},
            "floor": {"seq": 7, "header": digest, "fallbacks": [{"seq": 5, "header": digest}], "newestSignature": at},
            "adoptedAt": at,
        })),
        last_run: of(json!({
            "inputs": digest, "outcome": digest, "at": at, "incarnation": "i1",
            "counts": {"modules": 1, "ok": 2, "changed": 3, "failed": 4, "skipped": 5, "would_change": 6, "wouldChange": 6},
        })),
        pending: of(json!({
            "notified": {id.as_str(): [id.as_str()]},
            "unverified": {"base": [{"path": "/etc/motd", "prior": file, "kept": true}]},
        })),
        entry: (
            id,
            of(json!({
                "kind": "file", "path": "/etc/motd", "prior": file, "kept": true, "onRemove": "restore", "at": at,
            })),
        ),
        mark: ("t1.n1".to_owned(), of(json!({"stage": "begun", "expires": at}))),
    }
}

fn generations(directory: &Path) -> GenerationFiles {
    let installed =
        InstalledAgent { program: "/bin/true".into(), files: Vec::new(), directories: Vec::new() };
    let units = ReturnUnits::at(&directory.join("units"), Path::new("/bin/true"), &Disk::new());
    GenerationFiles::with(directory, &Disk::new(), installed, ReturnWatchdog::Units(units))
}

fn activation_record() -> ActivationRecord {
    let digest = Digest::of(CONTENT);
    of(json!({
        "confirmed": {"id": digest, "seq": 7, "bytes": 13},
        "underWay": {"stage": "settled"},
        "kept": [{"id": digest, "seq": 7, "bytes": 13}],
        "quarantine": [{"id": Digest::of(b"2"), "seq": 8, "cause": "not-confirmed", "returns": 1}],
    }))
}

/// What is remembered of the parts of a generation: a tree of an image, the order of its trees, a pair of commands. That
/// this is what they write hold `crates/providers/tests/images_are_switched_whole.rs` and `converge::kinds::switch`.
fn unpacked() -> Vec<(&'static str, Fields)> {
    let digest = Digest::of(CONTENT);
    let switch = SwitchMemory {
        to: "2.1".to_owned(),
        before: Some("2.0".to_owned()),
        back: CommandLine::Argv(vec!["/usr/sbin/fwctl".to_owned(), "revert".to_owned()]),
        back_before: Some(CommandLine::Shell("fwctl revert".to_owned())),
        ended: true,
    };
    let tree = json!({
        ARCHIVE_TEXT: format!("sha256:{digest}"),
        ".": "directory 0755 - -",
        "./bin": "directory 0755 - -",
        "./bin/app": format!("sha256:{digest} 13 bytes 0755 root root"),
        "./current": "link bin/app",
    });
    vec![
        ("/opt/.app.generations", ordered("b", &["a".to_owned()])),
        ("/opt/.app.generations/b", of(tree)),
        ("switch:firmware", switch.write().unwrap()),
    ]
}

/// Of runs that could cut the host off (CNV-11): one was undone twice, and another try was granted.
fn guard_record() -> ActivationRecord {
    let kept = json!({"id": Digest::of(b"3"), "seq": 6, "bytes": 0});
    of(json!({
        "confirmed": {"id": Digest::ZERO, "seq": 0, "bytes": 0},
        "underWay": {"stage": "settled"},
        "kept": [kept],
        "quarantine": [{"id": Digest::of(b"2"), "seq": 8, "cause": "not-confirmed", "returns": 2,
                        "returned": {"boot": "0c7d", "at": 734_000}, "grantedAfter": 1}],
    }))
}

fn guarded_changes() -> GuardedChanges {
    let digest = Digest::of(CONTENT);
    let file = json!({"type": "file", "digest": digest, "size": 13, "mode": 0o644, "uid": 0, "gid": 0});
    of(json!({"target": digest, "seq": 8, "changes": [
        {"resource": "net/file:/etc/nftables.conf", "undo": {"path": "/etc/nftables.conf", "prior": file, "kept": true}},
        {"resource": "net/exec:loads", "then": {"argv": ["nft", "-f", "/etc/nftables.conf"]}},
        {"resource": "net/package:muster-agent", "agent": true},
    ]}))
}

fn changes_file(directory: &Path) -> StateFile<GuardedChanges> {
    StateFile::new(&Disk::new(), directory.join("guarded-changes.json"), 0o600)
}

fn write_all(directory: &Path) {
    let kept = kept();
    std::fs::write(directory.join(identity::KEY_FILE), key().to_file().as_bytes()).unwrap();
    let dir = StateDir::at(directory, Disk::new());
    dir.save_membership(&kept.membership).unwrap();
    let durable = dir.open().unwrap();
    durable.keep(CONTENT, Digest::of(CONTENT)).unwrap();
    durable.adopt(&kept.adoption).unwrap();
    durable.save_last_run(&kept.last_run).unwrap();
    let (pending, put) = (Some(kept.pending), vec![kept.entry]);
    durable.persist(&[Record { generation: 1, pending, put, ..Record::default() }]).unwrap();
    let files = generations(directory);
    files.keep(&durable, &durable.adoption().unwrap().unwrap()).unwrap();
    files.persist(&activation_record()).unwrap();
    files.arrive(activation_record().confirmed.id).unwrap();
    for (path, unpacked) in unpacked() {
        durable.keep_unpacked(path, Some(&unpacked)).unwrap();
    }
    files.guards().persist(&guard_record()).unwrap();
    changes_file(directory).store(&guarded_changes()).unwrap();
    durable.keep_mode(Mode::Managed).unwrap();
    durable.keep_folder("/srv/manifests").unwrap();
    durable.open_actions(|_| {}).unwrap().put(kept.mark.0, kept.mark.1).unwrap();
    // Its incarnation is random.
    std::fs::remove_dir_all(directory.join("log")).unwrap();
    std::fs::remove_file(directory.join("lock")).unwrap();
}

fn read_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let kept = kept();
    let key_file = directory.join(identity::KEY_FILE);
    std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let key = identity::key(KeySource::Own, directory, Path::new("/")).unwrap();
    assert_eq!(key.public(), self::key().public());
    let dir = StateDir::at(directory, Disk::new());
    assert_eq!(dir.set_aside_earlier().unwrap(), None);
    let membership = dir.membership().unwrap().unwrap();
    assert_eq!(json!(membership), json!(kept.membership));
    let durable: Durable = dir.open().unwrap();
    assert_eq!(durable.content(&Digest::of(CONTENT)).unwrap(), CONTENT);
    assert_eq!(durable.adoption().unwrap(), Some(kept.adoption));
    assert_eq!(durable.last_run().unwrap(), Some(kept.last_run));
    assert_eq!(durable.pending().unwrap(), kept.pending);
    assert_eq!(durable.ledger().unwrap().entries, [kept.entry].into());
    let files = generations(directory);
    // A format of before generations has none.
    if let PeekedFile::Value(record) = files.peek().unwrap() {
        assert_eq!(record, activation_record());
        assert_eq!(files.running().unwrap(), Some(record.confirmed.id));
        assert_eq!(files.guards().peek().unwrap(), PeekedFile::Value(guard_record()));
        assert_eq!(changes_file(directory).peek().unwrap(), PeekedFile::Value(guarded_changes()));
        assert_eq!(files.kept_adoption(record.confirmed.id).unwrap(), durable.adoption().unwrap());
    }
    for (path, unpacked) in unpacked() {
        // A format of before images and switches has none.
        if let Some(found) = durable.unpacked(path).unwrap() {
            assert_eq!(found, unpacked, "{path}");
        }
    }
    assert_eq!(durable.kept_mode().unwrap(), Mode::Managed);
    assert!(durable.knows_folder("/srv/manifests").unwrap() && !durable.knows_folder("/srv/other").unwrap());
    let marks = durable.open_actions(|_| panic!("some are lost")).unwrap();
    assert_eq!(marks.entries(), &[kept.mark].into());
    assert_eq!(durable.take_repairs(), Vec::<String>::new());
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// All files below a directory, by path.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let below = path.strip_prefix(directory).unwrap().to_owned();
            found.push((below, std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        std::fs::create_dir_all(to.join(&path).parent().unwrap()).unwrap();
        std::fs::write(to.join(&path), bytes).unwrap();
    }
}

#[test]
fn this_version_writes_its_format_and_reads_each() {
    let directory = tempfile::tempdir().unwrap();
    write_all(directory.path());
    let current = golden().join(format!("format-{FORMAT}"));
    if std::env::var_os("MUSTER_BLESS").is_some() {
        let _ = std::fs::remove_dir_all(&current);
        copy(directory.path(), &current);
    }
    let (written, golden_files) = (files(directory.path()), files(&current));
    for ((path, bytes), (golden_path, golden_bytes)) in written.iter().zip(&golden_files) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!((path, text(bytes)), (golden_path, text(golden_bytes)));
        assert_eq!(bytes, golden_bytes, "{}", path.display());
    }
    assert_eq!(written.len(), golden_files.len());

    let formats = std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path());
    let read = formats.map(|format| {
        let directory = tempfile::tempdir().unwrap();
        copy(&format, directory.path());
        read_all(directory.path());
    });
    assert_eq!(read.count() as u32, FORMAT);
}
