//! IDN-8: the newest trust document that a node took up is replaced whole: whatever the disk does in the middle, the one
//! before or the new one is there. One that is damaged is set aside, and the chain is walked again from the token's.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io;
use std::path::Path;
use std::sync::Arc;

use agent::state::StateDir;
use model::Digest;
use model::exchange::Signed;
use node::TrustRecord;
use spool::{Disk, FaultAction, Faults, Point};

/// The disk breaks at one point and stays so.
struct BreaksAt(u64);

impl Faults for BreaksAt {
    fn before(&self, point: Point<'_>) -> FaultAction {
        match point.number.cmp(&self.0) {
            std::cmp::Ordering::Less => FaultAction::Go,
            std::cmp::Ordering::Equal => FaultAction::Tear(io::ErrorKind::Other),
            std::cmp::Ordering::Greater => FaultAction::Fail(io::ErrorKind::Other),
        }
    }
}

fn record(version: u64) -> TrustRecord {
    let link = Signed { payload: format!("{{\"version\":{version}}}"), signatures: Vec::new() };
    TrustRecord { pinned: Digest::of(b"the first"), link }
}

fn kept(state: &Path) -> Option<TrustRecord> {
    StateDir::at(state, Disk::new()).open().unwrap().trust().unwrap()
}

#[test]
fn the_one_before_or_the_new_one_is_there() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    StateDir::create(&state).unwrap();
    let durable = StateDir::at(&state, Disk::new()).open().unwrap();
    assert_eq!(durable.trust().unwrap(), None);
    durable.save_trust(&record(2)).unwrap();
    drop(durable);
    let (mut failed, mut version) = (0, 2);
    for point in 0.. {
        let disk = Disk::with_faults(Arc::new(BreaksAt(point)));
        // The points before it are those of opening.
        let Ok(durable) = StateDir::at(&state, disk.clone()).open() else { continue };
        if point < disk.points() {
            continue;
        }
        match durable.save_trust(&record(version + 1)) {
            Ok(()) => break,
            Err(_) => failed += 1,
        }
        drop(durable);
        let found = kept(&state).expect("one of both is there");
        assert!([record(version), record(version + 1)].contains(&found), "{point}: {found:?}");
        version += u64::from(found == record(version + 1));
    }
    assert!(failed > 2, "the disk broke in the middle of it {failed} times");
    assert_eq!(kept(&state), Some(record(version + 1)));

    std::fs::write(state.join("trust.json"), "half of it").unwrap();
    let durable = StateDir::at(&state, Disk::new()).open().unwrap();
    assert_eq!(durable.trust().unwrap(), None);
    assert!(durable.take_repairs()[0].contains("trust.json"));
    assert!(state.join("trust.json.corrupt-1").exists());
}
