//! LIF-4, LIF-10: state from before formats had numbers is set aside whole, with a message that
//! says how to join anew; the machine keeps its key.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use agent::machine::{Machine, Place};
use agent::state::{StateDir, StateError};
use model::Digest;
use spool::Disk;

/// A state directory as that version wrote it.
fn earlier(directory: &Path) {
    let json = "{\"nodeId\":\"n\"}";
    let slot = format!("{}\n{json}", Digest::of(json.as_bytes()));
    std::fs::write(directory.join("membership.json"), slot).unwrap();
    std::fs::write(directory.join("identity.key"), "ed25519-private:AA==\n").unwrap();
    std::fs::write(directory.join("ledger"), b"\xf5Mr\n").unwrap();
    std::fs::create_dir(directory.join("log")).unwrap();
    std::fs::write(directory.join("log/log.json"), "x").unwrap();
}

#[test]
fn the_daemon_says_to_join_anew_and_keeps_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    earlier(directory.path());
    let place = Place { state: Some(directory.path().to_owned()), ..Place::default() };
    let refused = Machine::open(&place).err().unwrap();
    let mut text = refused.to_string();
    let mut cause: &dyn std::error::Error = &refused;
    while let Some(next) = cause.source() {
        text.push_str(&format!(": {next}"));
        cause = next;
    }
    assert!(text.contains("earlier version") && text.contains("muster-agent join"), "{text}");
    let aside = directory.path().join("earlier-1");
    for name in ["membership.json", "ledger", "log/log.json"] {
        assert!(aside.join(name).exists(), "{name} is set aside");
    }
    assert!(directory.path().join("identity.key").exists(), "the key is the node's, and stays");
    let dir = StateDir::at(directory.path(), Disk::new());
    assert_eq!(dir.set_aside_earlier().unwrap(), None, "once");
    assert!(dir.membership().unwrap().is_none());
    assert!(dir.open().is_ok(), "and a new state begins");
}

#[test]
fn a_look_at_the_state_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    earlier(directory.path());
    let refused = agent::status::read(directory.path()).unwrap_err();
    assert!(matches!(refused, StateError::Spool { source: spool::SpoolError::Unnumbered { .. }, .. }));
    assert!(directory.path().join("membership.json").exists());
}
