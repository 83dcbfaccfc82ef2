//! OPS-6, SCL-4: a control plane is backed up while it runs, killed, and restored under a running agent, which
//! goes on with the next publish. A copied directory recovers the same way. What is no whole backup of this
//! fleet, or has no place to go, is refused and changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use test_support::programs::{Host, Prefix, Server, muster, text, write_repo};
use test_support::wait::until_blocking as until;

struct FleetOnDisk {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
}

impl FleetOnDisk {
    fn new() -> FleetOnDisk {
        let temp = tempfile::tempdir().unwrap();
        let server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let repo = temp.path().join("repo");
        FleetOnDisk { temp, server, repo }
    }

    fn publish(&self, greeting: &str) -> u64 {
        write_repo(&self.repo, greeting);
        let repo = self.repo.to_str().unwrap();
        self.server.json(&["publish", "--repo", repo, "--yes"])["seq"].as_u64().unwrap()
    }

    fn host(&self) -> Host {
        let host = Host::new(self.temp.path(), "web-1", &Prefix::new());
        self.server.token("web-1", &host.token_file());
        host.join();
        host
    }

    fn data(&self) -> &str {
        self.server.dir.to_str().unwrap()
    }

    fn backup(&self, name: &str) -> PathBuf {
        let file = self.temp.path().join(name);
        self.server.ok(&["backup", "--data", self.data(), file.to_str().unwrap()]);
        file
    }

    fn restore(&self, arguments: &[&str]) -> Output {
        self.server.muster(&[&["restore"], arguments].concat())
    }
}

#[track_caller]
fn refused(output: &Output, code: i32, why: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(why) && said.contains("hint: "), "{said}");
}

#[test]
fn from_a_backup_under_a_running_agent() {
    use std::os::unix::fs::PermissionsExt;

    let mut fleet = FleetOnDisk::new();
    let running = fleet.server.start();
    assert_eq!(fleet.publish("one"), 1);
    let host = fleet.host();
    let _agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");
    let backup = fleet.backup("fleet.backup");
    let file = backup.to_str().unwrap();
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let verified: Value = fleet.server.json(&["restore", "--verify", file]);
    assert_eq!(verified["database"]["nodes"], 1, "{verified}");
    assert_eq!(verified["database"]["seq"], 1, "{verified}");
    refused(&fleet.server.muster(&["backup", "--data", fleet.data(), file]), 1, "is there already");

    assert_eq!(fleet.publish("two"), 2);
    host.until_read("/etc/hello", "two web-1\n");
    refused(&fleet.restore(&[file, "--data", fleet.data(), "--replace"]), 5, "a control plane runs on");
    running.kill();
    refused(&fleet.restore(&[file, "--data", fleet.data()]), 5, "already");
    let output = fleet.restore(&[file, "--data", fleet.data(), "--replace"]);
    assert!(output.status.success(), "{}", text(&output.stderr));

    let _running = fleet.server.start();
    until("a node shows the release that the backup lacks", || {
        let status = fleet.server.json(&["status"]);
        (status["overtakenBy"] == 2).then_some(())
    });
    let shown = text(&fleet.server.muster(&["status"]).stdout);
    assert!(shown.contains("nodes hold release 2"), "{shown}");
    // The publisher's memory lies in the directory, and was not replaced: nothing need be passed over.
    assert_eq!(fleet.publish("two"), 3, "the same content needs another number");
    assert_eq!(fleet.publish("three"), 4);
    host.until_read("/etc/hello", "three web-1\n");
    fleet.server.until_state("web-1", "converged");
    assert_eq!(fleet.server.json(&["status"]).get("overtakenBy"), None);
}

/// Where none is named, into the directory that a control plane would take there; and not over another one.
#[test]
fn without_a_name_into_the_directory_of_a_control_plane_here() {
    let mut fleet = FleetOnDisk::new();
    fleet.server.start().kill();
    let backup = fleet.backup("fleet.backup");
    let here = fleet.temp.path().join("here");
    std::fs::create_dir_all(here.join("muster-data")).unwrap();
    let restore = || Command::new(muster()).arg("restore").arg(&backup).current_dir(&here).output().unwrap();
    let restored = restore();
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert!(text(&restored.stdout).contains("restored into muster-data"), "{}", text(&restored.stdout));
    let trust = |dir: &Path| std::fs::read(dir.join("trust.json")).unwrap();
    assert_eq!(trust(&here.join("muster-data")), trust(Path::new(fleet.data())));
    refused(&restore(), 5, "already");
}

#[test]
fn from_a_copy_of_its_directory() {
    let mut fleet = FleetOnDisk::new();
    let running = fleet.server.start();
    fleet.publish("one");
    let host = fleet.host();
    let _agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");
    running.kill();
    let copy = fleet.temp.path().join("copy");
    let cp = |from: &Path, to: &Path| {
        let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(done.success());
    };
    cp(&fleet.server.dir, &copy);
    let running = fleet.server.start();
    fleet.publish("two");
    host.until_read("/etc/hello", "two web-1\n");
    running.kill();
    std::fs::remove_dir_all(&fleet.server.dir).unwrap();
    cp(&copy, &fleet.server.dir);
    let _running = fleet.server.start();
    let seq = fleet.publish("three");
    assert!(seq > 1_000_000, "release {seq}: nobody knew which numbers were given");
    host.until_read("/etc/hello", "three web-1\n");
    assert_eq!(fleet.publish("four"), seq + 1);
}

#[test]
fn what_cannot_be_restored_is_refused_and_changes_nothing() {
    let mut fleet = FleetOnDisk::new();
    let running = fleet.server.start();
    fleet.publish("one");
    let backup = fleet.backup("fleet.backup");
    let whole = std::fs::read(&backup).unwrap();
    let new = fleet.temp.path().join("new/deep");
    let try_with = |bytes: &[u8]| {
        let file = fleet.temp.path().join("tried.backup");
        std::fs::write(&file, bytes).unwrap();
        let file = file.to_str().unwrap();
        let verified = fleet.restore(&["--verify", file]);
        let restored = fleet.restore(&[file, "--data", new.to_str().unwrap()]);
        assert!(!new.parent().unwrap().exists(), "nothing is left");
        assert_eq!((verified.status.code(), restored.status.code()), (Some(1), Some(1)));
        text(&verified.stderr) + &text(&restored.stderr)
    };
    for length in [0, 10, 100, 511, 512, 600, 5_000, whole.len() / 2, whole.len() - 3_000] {
        let said = try_with(&whole[..length]);
        assert!(said.contains("it is cut off") && said.contains("use an earlier backup"), "{length}: {said}");
    }
    assert!(try_with(&[b'x'; 10_000]).contains("it is no backup of muster"));
    assert!(try_with(&[b'x'; 10]).contains("it is no backup of muster"));
    let mut damaged = whole.clone();
    damaged[150] ^= 1;
    assert!(try_with(&damaged).contains("it is damaged: muster-backup.json is not what was backed up"));
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    assert!(try_with(&damaged).contains("it is damaged: muster.db is not what was backed up"));
    let newer = text(&whole).replacen("\"format\": 1", "\"format\": 2", 1);
    let newer = match newer.len() == whole.len() {
        true => newer.into_bytes(),
        // The database is no text: only the manifest is changed.
        false => {
            let at = whole.windows(11).position(|bytes| bytes == b"\"format\": 1").unwrap();
            let mut newer = whole.clone();
            newer[at + 10] = b'2';
            newer
        }
    };
    let said = try_with(&newer);
    assert!(said.contains("it is of format 2") && said.contains("a newer one"), "{said}");

    // Another fleet's directory is not replaced, and no database is founded over.
    let mut other = FleetOnDisk::new();
    drop(other.server.start());
    let file = backup.to_str().unwrap();
    refused(&other.restore(&[file, "--data", other.data(), "--replace"]), 5, "the backup is of fleet e2e-");
    drop(running);
    std::fs::remove_file(fleet.server.dir.join("trust.json")).unwrap();
    refused(&fleet.restore(&[file, "--data", fleet.data()]), 1, "holds parts of a fleet");
    let free = "127.0.0.1:0";
    let start = ["server", "--data", fleet.data(), "--listen", free, "--operator-listen", free];
    refused(&fleet.server.muster(&start), 1, "holds a fleet's database and no trust.json");
    std::fs::write(other.server.dir.join("restore-unfinished"), "").unwrap();
    let start = ["server", "--data", other.data(), "--listen", free, "--operator-listen", free];
    refused(&other.server.muster(&start), 1, "was cut off before its end");
    let empty = fleet.temp.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let nothing = fleet.server.muster(&["backup", "--data", empty.to_str().unwrap(), "x.backup"]);
    refused(&nothing, 1, "holds no fleet");
}
