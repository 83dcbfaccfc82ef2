//! SYN-4, SYN-14: whatever the node acknowledged it has, after `kill -9` at any moment. A real
//! process takes a control plane's objects and ends itself at the n-th persistence point, for
//! every n there is: the cursor is never ahead of what is durable, the node's own set keeps its
//! uids, and the next link ends with equal sets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use model::replication::Mode;
use model::{Digest, ObjectKey};
use spool::Disk;
use sync::Side;
use test_support::agent_links::{Node, block_on, item, manifest, open, policy};
use test_support::kills::{doomed, killed};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::eventually;

const MOST_POINTS: u64 = 300;

/// What the control plane's set goes through: which object becomes what; `None`: it goes.
fn steps() -> Vec<Vec<(&'static str, Option<&'static str>)>> {
    vec![
        vec![("a", Some("1")), ("b", Some("1")), ("c", Some("1")), ("d", Some("1"))],
        vec![("b", Some("2")), ("c", None), ("e", Some("1"))],
        vec![("c", Some("3")), ("a", None), ("d", Some("2"))],
    ]
}

/// Makes one step of the source; every process makes the same ones.
fn step(source: &MemoryLinkHandler, step: &[(&str, Option<&str>)]) {
    for (name, text) in step {
        match text {
            Some(text) => source.put(item(name), &format!("uid-{name}"), manifest(name, text), 1),
            None => source.remove(&item(name)),
        }
    }
}

fn source() -> Arc<MemoryLinkHandler> {
    Arc::new(MemoryLinkHandler::new("source".parse().unwrap()))
}

async fn take_all(dir: &Path, disk: Disk) {
    let node = Node::start(dir, disk, policy(Mode::Managed, None), Vec::new());
    let source = source();
    let link = node.link(&source).await;
    let mut said = 0;
    for one in steps() {
        step(&source, &one);
        said += one.len() as u64;
        eventually("the step is acknowledged", || source.acked() == said).await;
    }
    link.end().await;
}

#[test]
fn child() {
    let Some((disk, dir)) = doomed() else { return };
    block_on(take_all(&dir, disk));
}

/// The source's set after its first `rev` changes.
fn set_at(rev: u64) -> BTreeMap<ObjectKey, Digest> {
    let changes = steps().concat();
    let mut set = BTreeMap::new();
    for (name, text) in &changes[..usize::try_from(rev).unwrap()] {
        match text {
            Some(text) => drop(set.insert(item(name), Digest::of(&manifest(name, text)))),
            None => drop(set.remove(&item(name))),
        }
    }
    set
}

#[test]
fn the_cursor_is_never_ahead_of_what_is_durable() {
    let all = steps().concat().len() as u64;
    for point in 0..MOST_POINTS {
        let temp = tempfile::tempdir().unwrap();
        let was_killed = killed(temp.path(), point);
        let cursor = {
            let opened = open(temp.path(), Disk::new()).open_objects().unwrap();
            let replica = &opened.saved.replica;
            let here: BTreeMap<ObjectKey, Digest> =
                replica.objects.iter().map(|(key, stub, _)| (key.clone(), stub.digest)).collect();
            let cursor = replica.cursor.as_ref().map_or(0, |cursor| cursor.revision);
            let newest = replica.objects.iter().map(|(_, _, rev)| *rev).max().unwrap_or(0).max(cursor);
            let wanted: Vec<_> = (cursor..=newest).map(set_at).collect();
            assert!(wanted.contains(&here), "point {point}: at {cursor} there is {here:?}");
            let keys: Vec<ObjectKey> = here.keys().cloned().collect();
            let contents = opened.log.contents(Side::Replica, &keys).unwrap();
            assert!(contents.iter().all(Option::is_some), "point {point}");
            cursor
        };
        assert!(was_killed || cursor == all, "the undisturbed run took {cursor} of {all}");
        block_on(goes_on(temp.path(), point));
        if !was_killed {
            println!("killed at {point} points");
            assert!(point > 10, "only {point} points: the faults do not reach what they should");
            return;
        }
    }
    panic!("more than {MOST_POINTS} persistence points");
}

/// The next link ends with equal sets.
async fn goes_on(dir: &Path, point: u64) {
    let node = Node::start(dir, Disk::new(), policy(Mode::Managed, None), Vec::new());
    let source = source();
    steps().iter().for_each(|one| step(&source, one));
    let all = steps().concat().len() as u64;
    let link = node.link(&source).await;
    let wanted = set_at(all);
    eventually(&format!("point {point}: the sets are equal"), || {
        let here = node.sets.with(|_, replica| {
            replica.objects().map(|(key, stub)| (key.clone(), stub.digest)).collect::<BTreeMap<_, _>>()
        });
        here == wanted && node.sets.with(|_, replica| replica.cursor().is_some_and(|at| at.revision == all))
    })
    .await;
    link.end().await;
}

#[test]
fn a_cursor_ahead_would_be_seen() {
    // What the check above looks for: a set that belongs to no place at or after the cursor.
    assert_ne!(set_at(3), set_at(4));
    assert!(!(5..=7).map(set_at).any(|set| set == set_at(4)));
}
