//! ROL-12: who is root at a host sees which contents it refuses, why and since when, and lets one be tried again: durably,
//! once, and whether a daemon runs or not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use activation::ActivationRecord;
use agent::generations::boot_moment;
use model::Digest;
use serde_json::json;
use spool::{Disk, PeekedFile, StateFile};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{file, module};

fn record_file(host: &LocalHost) -> StateFile<ActivationRecord> {
    StateFile::new(&Disk::new(), host.state().join("activation.json"), 0o600)
}

/// A host that went back from releases 41 and 42 for good, and from 40 as its power was cut once.
fn host() -> LocalHost {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", "hello\n")];
    let host = LocalHost::new(vec![base]);
    let now = boot_moment().unwrap();
    let id = |seq: u64| Digest::of(&seq.to_be_bytes());
    let quarantine = json!([
        {"id": id(40), "seq": 40, "cause": "rebooted", "returns": 1, "returned": now},
        {"id": id(41), "seq": 41, "cause": "switch-failed", "reason": "web.service failed", "returns": 2},
        {"id": id(42), "seq": 42, "cause": "agent-died", "returns": 1, "returned": now},
    ]);
    let record = ActivationRecord {
        quarantine: serde_json::from_value(quarantine).unwrap(),
        ..ActivationRecord::default()
    };
    record_file(&host).store(&record).unwrap();
    host
}

/// The releases whose contents are remembered on the disk.
fn remembered(host: &LocalHost) -> Vec<u64> {
    let PeekedFile::Value(record) = record_file(host).peek().unwrap() else { panic!("there is a record") };
    record.quarantine.all().iter().map(|known| known.seq).collect()
}

#[test]
fn durably_and_once_with_a_daemon_and_without() {
    for runs in [false, true] {
        let mut host = host();
        if runs {
            host.start();
        }
        let (code, listed) = printed(&host.agent(&["quarantine", "list"]));
        assert_eq!(code, Some(0), "{listed}");
        for line in [
            "release 41, since before the last boot: the switch failed: web.service failed",
            "went back from it 2 times",
            "the agent died in it 3 times",
            "quarantine lift 42",
        ] {
            assert!(listed.contains(line), "{line:?} in {listed}");
        }
        assert!(!listed.contains("release 40"), "that may be tried anyway: {listed}");
        let view = host.json(&["quarantine", "list"]);
        assert!(view["releases"][1]["since"].is_string(), "{view}");
        let (_, status) = printed(&host.agent(&["status"]));
        assert!(status.contains("quarantine     release 42, since 2"), "{status}");
        assert!(status.contains("quarantine lift 42") && status.contains("and 1 more"), "{status}");

        let (code, lifted) = printed(&host.agent(&["quarantine", "lift", "42"]));
        assert_eq!(code, Some(0), "{lifted}");
        assert!(lifted.contains("held back no more: release 42, since 2"), "{lifted}");
        assert_eq!(remembered(&host), [40, 41], "with a daemon: {runs}");
        for (other, told) in [("42", "nothing of release 42"), ("40", "nothing of release 40")] {
            let (code, refused) = printed(&host.agent(&["quarantine", "lift", other]));
            assert_eq!(code, Some(1), "{refused}");
            assert!(refused.contains(told) && refused.contains("quarantine list shows"), "{refused}");
        }
        assert_eq!(remembered(&host), [40, 41], "with a daemon: {runs}");
        let (_, listed) = printed(&host.agent(&["quarantine", "list"]));
        assert!(listed.contains("release 41") && !listed.contains("release 42"), "{listed}");
        printed(&host.agent(&["quarantine", "lift", "41"]));
        assert_eq!(printed(&host.agent(&["quarantine", "list"])).1, "nothing is held back\n");
        let (_, status) = printed(&host.agent(&["status"]));
        assert!(!status.contains("quarantine"), "{status}");
    }
}

#[test]
fn a_record_that_cannot_be_written_is_held_by_as_before() {
    for runs in [false, true] {
        let mut host = host();
        if runs {
            host.start();
        }
        // The new record has nowhere to be written.
        let in_the_way = host.state().join("activation.json.new");
        std::fs::create_dir_all(in_the_way.join("kept")).unwrap();
        let (code, refused) = printed(&host.agent(&["quarantine", "lift", "42"]));
        assert_eq!(code, Some(1), "{refused}");
        assert!(refused.contains("it is held back as before"), "{refused}");
        std::fs::remove_dir_all(&in_the_way).unwrap();
        assert_eq!(remembered(&host), [40, 41, 42], "with a daemon: {runs}");
        let (code, lifted) = printed(&host.agent(&["quarantine", "lift", "42"]));
        assert_eq!(code, Some(0), "{lifted}");
        assert_eq!(remembered(&host), [40, 41], "with a daemon: {runs}");
    }
}
