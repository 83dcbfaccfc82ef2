//! LIF-5, OPS-2: an action runs at most once and is answered exactly once, after `kill -9` at
//! any moment: a real process takes an action and ends itself at the n-th persistence point,
//! for every n there is. And only what a release delegates runs at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;

use agent::delegated::Delegations;
use model::log::{Cursor, FactBody};
use model::replication::Mode;
use model::work::{ActionEvent, ActionOutcome, Delegation, Order, QuerySpec, Work};
use model::{Kind, ObjectKey, Timestamp};
use spool::{Disk, DiskOp, StateLock};
use test_support::agent_links::{Node, block_on, open, policy};
use test_support::kills::{doomed, killed};
use test_support::memory::MemoryLinkHandler;
use test_support::slow_disk::SlowDisk;
use test_support::wait::{eventually, soon, until_blocking};

const MOST_POINTS: u64 = 300;
const SCRIPT: &str = "echo ran >> $MUSTER_ROOT/ran";

fn delegations() -> Vec<Delegation> {
    let command = vec!["/bin/sh".to_owned(), "-c".to_owned(), SCRIPT.to_owned()];
    vec![Delegation { commands: vec![command], ..Delegation::default() }]
}

fn order(work: Work) -> bytes::Bytes {
    let expires = Timestamp(agent::clock::now().0 + 3_600_000);
    let order = Order { task: "t".to_owned(), work, timeout_secs: 60, expires, cancel: false, release: None };
    serde_json::to_vec(&order).unwrap().into()
}

fn command(script: &str) -> Work {
    Work::Command { argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()] }
}

fn source(work: Work) -> Arc<MemoryLinkHandler> {
    let source = Arc::new(MemoryLinkHandler::new("source".parse().unwrap()));
    source.put(ObjectKey::of(Kind::ACTION, "t.n"), "t.n", order(work), 1);
    source
}

fn outcomes(node: &Node) -> Vec<ActionOutcome> {
    let facts = node.durable.facts(1000, 1 << 20).unwrap();
    let ends = facts.into_iter().filter_map(|fact| match fact.body {
        FactBody::Action(fact) => match fact.event {
            ActionEvent::Ended { outcome, .. } => Some(outcome),
            _ => None,
        },
        _ => None,
    });
    ends.collect()
}

/// Takes the action, and waits for its answer.
async fn take(dir: &Path, disk: Disk, work: Work, delegations: Vec<Delegation>) -> ActionOutcome {
    let node = Node::start(dir, disk, policy(Mode::Off, None), delegations);
    let link = node.link(&source(work)).await;
    eventually("the action is answered", || !outcomes(&node).is_empty()).await;
    node.work.drain().await;
    let answers = outcomes(&node);
    assert_eq!(answers.len(), 1, "answered once: {answers:?}");
    link.end().await;
    answers[0].clone()
}

fn runs(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("root/ran")).unwrap_or_default().lines().count()
}

#[test]
fn child() {
    let Some((disk, dir)) = doomed() else { return };
    block_on(take(&dir, disk, command(SCRIPT), delegations()));
}

#[test]
fn a_killed_agent_runs_nothing_twice() {
    let (mut unknown, mut known) = (0, 0);
    for point in 0..MOST_POINTS {
        let temp = tempfile::tempdir().unwrap();
        let was_killed = killed(temp.path(), point);
        let outcome = block_on(take(temp.path(), Disk::new(), command(SCRIPT), delegations()));
        let ran = runs(temp.path());
        assert!(ran <= 1, "point {point}: it ran {ran} times");
        match outcome {
            ActionOutcome::Exited { code: 0 } => {
                assert_eq!(ran, 1, "point {point}");
                known += 1;
            }
            ActionOutcome::Unknown => unknown += 1,
            other => panic!("point {point}: {other:?}"),
        }
        if !was_killed {
            println!("killed at {point} points: {known} times known, {unknown} times unknown");
            assert!(unknown > 0 && known > 1, "the faults do not reach what they should");
            return;
        }
    }
    panic!("more than {MOST_POINTS} persistence points");
}

#[test]
fn only_delegated_work_runs() {
    let refused = |work: Work, delegations: Vec<Delegation>| {
        let temp = tempfile::tempdir().unwrap();
        let outcome = block_on(take(temp.path(), Disk::new(), work, delegations));
        assert_eq!(runs(temp.path()), 0);
        match outcome {
            ActionOutcome::Refused { message, .. } => message,
            other => panic!("{other:?}"),
        }
    };
    refused(command(SCRIPT), Vec::new());
    refused(command("echo ran >> $MUSTER_ROOT/ran; true"), delegations());
    refused(Work::Query { what: "traits".to_owned(), path: None }, delegations());
}

#[test]
fn nothing_begins_by_the_word_of_a_release_that_is_not_held_any_more() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        let node = Node::start(temp.path(), Disk::new(), policy(Mode::Off, None), delegations());
        let (delegated, source) = (node.delegations.clone(), source(command(SCRIPT)));
        let (durable, is_durable) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let adopting = std::thread::spawn(move || {
            let adopt = || {
                durable.send(()).unwrap();
                may_go_on.recv().map_err(drop)
            };
            delegated.adopt(adopt, Delegations::default).unwrap();
        });
        is_durable.recv().unwrap();
        // The release that takes the delegation away is durable, and the action comes.
        let link = node.link(&source).await;
        eventually("the action is here", || node.sets.with(|_, replica| replica.len() == 1)).await;
        assert!(outcomes(&node).is_empty() && runs(temp.path()) == 0);
        go_on.send(()).unwrap();
        adopting.join().unwrap();
        node.work.release_changed();
        eventually("it is answered", || !outcomes(&node).is_empty()).await;
        assert!(matches!(outcomes(&node)[0], ActionOutcome::Refused { .. }), "{:?}", outcomes(&node));
        assert_eq!(runs(temp.path()), 0);
        link.end().await;
    });
}

/// The storage thread adopts releases, and the work thread asks it for each fact: neither waits for the
/// other while it has what the other one waits for.
#[test]
fn a_release_is_adopted_while_the_mark_of_an_action_is_written() {
    block_on(async {
        let temp = tempfile::tempdir().unwrap();
        let slow = SlowDisk::when(|point| {
            point.op == DiskOp::Sync && point.path.components().any(|part| part.as_os_str() == "actions")
        });
        let node = Node::start(temp.path(), slow.disk(), policy(Mode::Off, None), delegations());
        slow.hold();
        node.context.actions.put("t.n", order(command(SCRIPT)));
        eventually("the mark is being written", || slow.begun() > 0).await;
        // It takes the delegation away.
        let delegated = node.delegations.clone();
        soon(node.storage.run(move |_| delegated.adopt(|| Ok(()), Delegations::default))).await.unwrap();
        slow.release();
        eventually("the action is answered", || !outcomes(&node).is_empty()).await;
        assert!(matches!(outcomes(&node)[0], ActionOutcome::Refused { .. }), "{:?}", outcomes(&node));
        assert_eq!(runs(temp.path()), 0, "nothing begins by a release that is not held any more");
    });
}

/// Leaves an action of which the replica has the order, and nothing but a damaged journal the mark.
fn lose_the_mark(dir: &Path) {
    let outcome = block_on(take(dir, Disk::new(), command(SCRIPT), delegations()));
    assert_eq!(outcome, ActionOutcome::Exited { code: 0 });
    until_blocking("the state is free", || StateLock::acquire(&dir.join("state")).ok());
    let durable = open(dir, Disk::new());
    let last = Cursor { incarnation: durable.incarnation(), seq: durable.last_fact() };
    assert!(!durable.ack(&last, 0).unwrap(), "no fact waits");
    drop(durable);
    let segment = dir.join("state/actions/00000000000000000001.segment");
    let mut bytes = std::fs::read(&segment).unwrap();
    let mark = |bytes: &[u8]| bytes.windows(3).position(|window| window == b"t.n");
    while let Some(at) = mark(&bytes) {
        bytes[at] = b'x';
    }
    std::fs::write(&segment, bytes).unwrap();
}

/// What a damaged journal of marks said of an order is not known: it may have run.
#[test]
fn an_order_whose_mark_is_lost_to_damage_is_unknown_and_never_run_again() {
    for point in 0..MOST_POINTS {
        let temp = tempfile::tempdir().unwrap();
        lose_the_mark(temp.path());
        let was_killed = killed(temp.path(), point);
        let outcome = block_on(take(temp.path(), Disk::new(), command(SCRIPT), delegations()));
        assert_eq!((outcome, runs(temp.path())), (ActionOutcome::Unknown, 1), "point {point}");
        if !was_killed {
            assert!(point > 10, "the faults do not reach what they should");
            return;
        }
    }
    panic!("more than {MOST_POINTS} persistence points");
}

#[test]
fn no_query_shows_the_agent_s_own_files() {
    let ask = |path: &str| {
        let temp = tempfile::tempdir().unwrap();
        // The state directory lies below the host's root, as on a host.
        std::os::unix::fs::symlink(temp.path(), temp.path().join("root")).unwrap();
        std::fs::write(temp.path().join("plain"), "to be seen").unwrap();
        agent::state::StateDir::create(&temp.path().join("state")).unwrap();
        std::fs::write(temp.path().join("state/identity.key"), "secret").unwrap();
        let all = QuerySpec::File { paths: vec!["/**".to_owned()] };
        let delegations = vec![Delegation { queries: vec![all], ..Delegation::default() }];
        let work = Work::Query { what: "file".to_owned(), path: Some(path.to_owned()) };
        block_on(take(temp.path(), Disk::new(), work, delegations))
    };
    let seen = ask("/plain");
    assert!(
        matches!(&seen, ActionOutcome::Answered { result } if result["text"] == "to be seen"),
        "{seen:?}"
    );
    let hidden = ask("/state/identity.key");
    assert!(matches!(&hidden, ActionOutcome::Failed { .. }), "{hidden:?}");
}
