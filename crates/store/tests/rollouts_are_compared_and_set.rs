//! ROL-1, ROL-5: what was decided of rollouts is stored only over what it was decided by, whole, and together with the
//! facts that it follows from.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with the conformance tests")]
mod fixture;

use fixture::{at, enrolled, incarnation, put, release, started, tree};
use model::NodeId;
use model::log::Fact;
use rollout::{DecisionGuard, MemberRecord, RolloutChange, RolloutCommit, RolloutDocument, RolloutState};
use store::{CommitRolloutsError, FactBatch, Retention, RolloutWrite, Store, StoredMembers};

fn document(seq: u64, version: u64) -> RolloutDocument {
    let first = include_str!("../../rollout/tests/golden/documents.jsonl").lines().next().unwrap();
    let document: RolloutDocument = serde_json::from_str(first).unwrap();
    let mut key = document.key.clone();
    key.seq = seq;
    RolloutDocument { key, version, id: format!("stable@{seq:04x}").parse().unwrap(), ..document }
}

fn member(before: u64) -> MemberRecord {
    let first = include_str!("../../rollout/tests/golden/members.jsonl").lines().next().unwrap();
    MemberRecord { before: Some(before), ..serde_json::from_str(first).unwrap() }
}

fn change(seq: u64, expected: u64) -> RolloutChange {
    let document = document(seq, expected + 1);
    RolloutChange { expected, document, members: vec![member(1)], removed: vec![], drops_members: false }
}

fn commit(change: RolloutChange) -> RolloutCommit {
    RolloutCommit { rollouts: vec![change], budgets: Vec::new() }
}

fn of_node(node: &NodeId, facts: Vec<Fact>) -> FactBatch {
    FactBatch { node: node.clone(), incarnation: incarnation("i1"), facts }
}

async fn write(store: &Store, facts: Vec<FactBatch>, commits: Vec<RolloutCommit>) -> Result<(), String> {
    let written = store.commit_rollouts(RolloutWrite { facts, commits }, at(1)).await;
    written.map(|_| ()).map_err(|error| match error {
        CommitRolloutsError::Outdated => "outdated".to_owned(),
        CommitRolloutsError::Store(error) => error.to_string(),
    })
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("a.db")).unwrap();
    (directory, store)
}

#[tokio::test]
async fn a_decision_over_another_version_is_not_stored_and_neither_are_its_facts() {
    let (_directory, store) = store();
    let node = enrolled(&store, 1).await;
    // Steps one after the other are one write.
    write(&store, Vec::new(), vec![commit(change(2, 0)), commit(change(2, 1))]).await.unwrap();
    for wrong in [change(2, 0), change(2, 1), change(3, 1)] {
        let facts = vec![of_node(&node, vec![started(1)])];
        assert_eq!(write(&store, facts, vec![commit(wrong)]).await.unwrap_err(), "outdated");
    }
    assert!(store.facts(&node, None, 10).await.unwrap().is_empty(), "all of it or nothing");
    let facts = vec![of_node(&node, vec![started(1)])];
    write(&store, facts, vec![commit(change(2, 2))]).await.unwrap();
    assert_eq!(store.facts(&node, None, 10).await.unwrap().len(), 1);
    let (kept, _) = store.rollouts(StoredMembers::OfLive).await.unwrap();
    assert_eq!((kept.len(), kept[0].document.version, kept[0].members.len()), (1, 3, 1));
}

#[tokio::test]
async fn a_slot_of_a_budget_is_given_once() {
    let (_directory, store) = store();
    let guard = |expected| DecisionGuard { budget: "b".to_owned(), expected, next: expected + 1 };
    let taking = |expected, seq| RolloutCommit { budgets: vec![guard(expected)], ..commit(change(seq, 0)) };
    write(&store, Vec::new(), vec![taking(0, 2)]).await.unwrap();
    assert_eq!(write(&store, Vec::new(), vec![taking(0, 3)]).await.unwrap_err(), "outdated");
    write(&store, Vec::new(), vec![taking(1, 3)]).await.unwrap();
    let (kept, budgets) = store.rollouts(StoredMembers::OfLive).await.unwrap();
    assert_eq!((kept.len(), budgets["b"]), (2, 2));
}

/// The facts of a node that was removed are left out; those of others are not.
#[tokio::test]
async fn a_removed_node_fails_nobody_elses_events() {
    let (_directory, store) = store();
    let (one, two) = (enrolled(&store, 1).await, enrolled(&store, 2).await);
    store.remove_node(&one, at(2)).await.unwrap();
    let facts = vec![of_node(&one, vec![started(1)]), of_node(&two, vec![started(1)])];
    let write = RolloutWrite { facts, commits: vec![commit(change(2, 0))] };
    let accepted = store.commit_rollouts(write, at(3)).await.unwrap();
    assert_eq!(accepted.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
}

/// Releases that members are on, go to or may go back to are served for as long as the rollout is kept.
#[tokio::test]
async fn releases_of_members_are_not_pruned() {
    let (_directory, store) = store();
    let tree = tree(2, "a");
    put(&store, &tree, at(0)).await;
    for seq in 1..=5 {
        let built_on = Some(seq - 1).filter(|seq| *seq > 0);
        store.commit_release(release(seq, tree.root), built_on).await.unwrap();
    }
    write(&store, Vec::new(), vec![commit(change(3, 0))]).await.unwrap();
    let retention = Retention { releases: 1, ..Retention::default() };
    store.prune(at(9), retention).await.unwrap();
    let kept = async || -> Vec<u64> {
        store.releases(10, None).await.unwrap().iter().map(|release| release.seq).collect()
    };
    assert_eq!(kept().await, [5, 3, 1], "the head, the target, and what the member had");
    let pruned = RolloutDocument { state: RolloutState::Pruned, ..document(3, 2) };
    let over = RolloutChange { document: pruned, members: vec![], drops_members: true, ..change(3, 1) };
    write(&store, Vec::new(), vec![commit(over)]).await.unwrap();
    store.prune(at(9), retention).await.unwrap();
    assert_eq!(kept().await, [5]);
    let id = document(3, 2).id;
    assert_eq!(store.rollout(&id).await.unwrap().unwrap().state, RolloutState::Pruned);
}
