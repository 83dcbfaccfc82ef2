//! SYN-4, LIF-10: a new incarnation of the own set takes its objects along, and a disk that refuses
//! leaves the set as it was: an empty one would have the other side delete everything. SYN-6: the
//! control plane cannot have the node write its whole set over and over.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::sync::sets::{AgentSets, OwnChange};
use bytes::Bytes;
use model::replication::{Mode, TransportKind};
use model::{Kind, ObjectKey, SectionKey};
use spool::{Disk, DiskOp, FaultAction, Faults, Point};
use streams::LinkHandler;
use sync::Side;
use test_support::agent_links::{Node, block_on, open, policy};

/// Refuses one write once it is told to.
#[derive(Default)]
struct FullOnce(AtomicBool);

impl Faults for FullOnce {
    fn before(&self, point: Point<'_>) -> FaultAction {
        let writes = matches!(point.op, DiskOp::Append | DiskOp::Write);
        match writes && self.0.swap(false, Ordering::SeqCst) {
            true => FaultAction::Fail(ErrorKind::StorageFull),
            false => FaultAction::Go,
        }
    }
}

fn key() -> ObjectKey {
    ObjectKey { section: SectionKey { kind: Kind::new("Item"), namespace: "web".into() }, name: "a".into() }
}

fn content(sets: &AgentSets) -> Option<Bytes> {
    sets.contents(Side::Feed, &[key()]).unwrap().remove(0).map(|content| content.bytes)
}

#[test]
fn with_its_objects_or_not_at_all() {
    let (temp, full) = (tempfile::tempdir().unwrap(), Arc::new(FullOnce::default()));
    let before = {
        let sets = AgentSets::open(&open(temp.path(), Disk::with_faults(full.clone()))).unwrap();
        let own = OwnChange::Put { key: key(), uid: "u".into(), content: Bytes::from_static(b"mine") };
        sets.change(vec![own]).unwrap();
        let before = sets.with(|feed, _| feed.cursor());
        full.0.store(true, Ordering::SeqCst);
        sets.reincarnate().unwrap_err();
        assert_eq!(sets.with(|feed, _| (feed.cursor(), feed.len())), (before.clone(), 1), "in memory");
        before
    };
    let sets = AgentSets::open(&open(temp.path(), Disk::new())).unwrap();
    assert_eq!(sets.with(|feed, _| feed.cursor()), before, "on disk");
    assert_eq!(content(&sets), Some(Bytes::from_static(b"mine")));
    sets.reincarnate().unwrap();
    assert_ne!(sets.with(|feed, _| feed.cursor().incarnation), before.incarnation);
    assert_eq!(content(&sets), Some(Bytes::from_static(b"mine")));
}

#[test]
fn at_most_once_an_hour_whatever_the_control_plane_says() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        let node = Node::start(temp.path(), Disk::new(), policy(Mode::Off, None), Vec::new());
        let handler = node.handler(TransportKind::Grpc, 1);
        let cursor = || node.sets.with(|feed, _| feed.cursor());
        let first = cursor();
        handler.reincarnate().await.unwrap();
        let second = cursor();
        assert_ne!(second.incarnation, first.incarnation);
        // Another link, and the same process.
        let left = node.handler(TransportKind::Grpc, 1).reincarnate().await.unwrap_err();
        assert!(left > Duration::from_secs(3500) && left <= Duration::from_secs(3600), "{left:?}");
        assert_eq!(cursor(), second, "the set is as it was");
    });
}
