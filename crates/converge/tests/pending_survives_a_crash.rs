//! CFG-4, CNV-10: killed at any point, the next run ends where an undisturbed one would
//! have, every handler that was due has run, and what must be undone still can be.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, Killed, Set, drive, set};
use converge::RunMode;
use serde_json::json;

fn web() -> Set {
    set(json!([
        {"name": "base", "resources": [
            {"type": "file", "name": "/base", "notify": ["web/reload"], "on_remove": "restore", "attributes": {"content": "new"}},
        ]},
        {"name": "web", "depends_on": ["base"], "verify": {"argv": ["check"]},
         "resources": [
            {"type": "directory", "name": "/etc/web"},
            {"type": "file", "name": "/etc/web/site", "notify": ["reload", "migrate"], "on_remove": "restore", "attributes": {"content": "new"}},
            {"type": "exec", "name": "migrate", "when": "changed(\"/etc/web/site\")", "attributes": {"command": ["migrate"], "always": true}},
            {"type": "exec", "name": "init", "notify": ["reload"], "attributes": {"command": ["touch", "/init"], "creates": "/init"}},
         ],
         "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": ["reload"]}}]},
        {"name": "late", "resources": [
            {"type": "file", "name": "/late", "notify": ["ping"], "attributes": {"content": "x"}},
        ], "handlers": [{"type": "exec", "name": "ping", "attributes": {"command": ["ping"]}}]},
    ]))
}

fn host() -> Host {
    let mut host = Host::default();
    host.write("/base", "old");
    host.write("/etc/web/site", "old");
    host
}

/// Kills a run at its `n`th point, then the next run at its `m`th, then lets one finish.
/// False once no run lives that long.
fn killed_twice(set: &Set, start: &Host, kills: [u32; 2], seed: u64) -> (Host, bool) {
    let mut host = start.clone();
    let mut died = false;
    for lives in kills {
        host.lives = Some(lives);
        died |= drive(&mut host, &set.bind(), RunMode::Apply, seed).is_err_and(|killed| killed == Killed);
    }
    host.lives = None;
    let finished = drive(&mut host, &set.bind(), RunMode::Apply, seed).unwrap();
    assert_eq!(finished.ledger, host.disk.ledger, "{kills:?}");
    assert_eq!(finished.pending, host.disk.pending, "{kills:?}");
    (host, died)
}

#[test]
fn no_handler_that_was_due_is_lost() {
    let mut undisturbed = host();
    drive(&mut undisturbed, &web().bind(), RunMode::Apply, 0).unwrap();
    let mut longest = 0;
    for n in 0.. {
        let (after, died) = killed_twice(&web(), &host(), [n, 1000], u64::from(n));
        if !died {
            break;
        }
        longest = n;
        assert_eq!(after.nodes, undisturbed.nodes, "killed at {n}");
        assert_eq!(
            after.disk.ledger.entries.keys().collect::<Vec<_>>(),
            undisturbed.disk.ledger.entries.keys().collect::<Vec<_>>()
        );
        for (id, entry) in &undisturbed.disk.ledger.entries {
            assert_eq!(
                after.disk.ledger.entries[id].prior, entry.prior,
                "killed at {n}: {id} forgot what was there before"
            );
        }
        for command in ["run reload", "run migrate", "run ping"] {
            assert!(after.count(command) >= 1, "killed at {n}: no {command} in {:?}", after.log);
        }
        assert!(after.disk.pending.is_empty(), "killed at {n}");
    }
    assert!(longest > 30, "only {longest} points were tried");
}

#[test]
fn killed_twice_is_no_worse() {
    let mut undisturbed = host();
    drive(&mut undisturbed, &web().bind(), RunMode::Apply, 0).unwrap();
    for n in (0..60).step_by(3) {
        for m in 0..40 {
            let (after, _) = killed_twice(&web(), &host(), [n, m], u64::from(n * m));
            assert_eq!(after.nodes, undisturbed.nodes, "killed at {n} and {m}");
            for command in ["run reload", "run migrate", "run ping"] {
                assert!(after.count(command) >= 1, "killed at {n} and {m}: no {command}");
            }
            assert!(after.disk.pending.is_empty());
        }
    }
}

#[test]
fn a_verify_that_was_due_is_made_up_for_and_can_still_undo() {
    let start = {
        let mut host = host();
        host.broken.insert("check".into());
        host
    };
    for n in 0.. {
        let (after, died) = killed_twice(&web(), &start, [n, 1000], 0);
        if !died {
            break;
        }
        assert_eq!(after.file("/etc/web/site"), Some("old"), "killed at {n}");
        assert_eq!(after.file("/base"), Some("new"), "killed at {n}");
        assert!(!after.nodes.contains_key("/etc/web"), "killed at {n}");
        assert_eq!(after.count("run reload"), 0, "killed at {n}");
        assert!(after.disk.pending.unverified.is_empty(), "killed at {n}");
    }
}

/// The crash came after the writes; nothing differs any more, and still the verify runs.
#[test]
fn a_run_without_changes_verifies_what_an_earlier_one_left() {
    let mut dead = host();
    for n in 0.. {
        dead = host();
        dead.lives = Some(n);
        drive(&mut dead, &web().bind(), RunMode::Apply, 0).unwrap_err();
        if dead.count("apply web/exec:init") == 1 && dead.nodes.contains_key("/init") {
            break;
        }
    }
    assert_eq!(dead.count("verify web"), 0);
    dead.lives = None;
    let before = dead.log.len();
    drive(&mut dead, &web().bind(), RunMode::Apply, 0).unwrap();
    let rest = &dead.log[before..];
    assert!(rest.contains(&"verify web".to_owned()) && rest.contains(&"run reload".to_owned()), "{rest:?}");
    assert!(!rest.iter().any(|line| line.starts_with("apply web/file")), "{rest:?}");
}

#[test]
fn a_removal_that_was_killed_is_finished() {
    let full = web();
    let mut left = web();
    left.params.modules = vec!["late".into()];
    left.modules.retain(|name, _| name == "late");
    let mut start = host();
    drive(&mut start, &full.bind(), RunMode::Apply, 0).unwrap();
    for n in 0.. {
        let (after, died) = killed_twice(&left, &start, [n, 1000], 0);
        if !died {
            break;
        }
        assert_eq!(
            (after.file("/base"), after.file("/etc/web/site")),
            (Some("old"), Some("old")),
            "killed at {n}"
        );
        assert_eq!(after.disk.ledger.entries.len(), 1, "killed at {n}");
    }
}
