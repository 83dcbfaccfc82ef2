//! IDN-8, IDN-11, LIF-10: a state directory that is lost while the agent runs takes neither whom the node believes nor the
//! newest signature that it saw back to an earlier time; what lies there by then and is later stays.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::Duration;

use agent::state::{Durable, RememberedState, StateDir};
use model::replication::{Mode, TransportPolicy};
use node::{FreshnessRecord, TrustRecord};
use serde_json::Value;
use spool::Disk;
use test_support::agent_local::printed;
use test_support::agent_pair::{NODE, Pair, says};
use test_support::fleet;
use test_support::wait::until;
use trust::TrustDocument;
use trust::chain::{self, ChainHead, SlotChange, SlotName};

fn dir(pair: &Pair) -> StateDir {
    StateDir::at(&pair.state(), Disk::new())
}

/// The records of the versions after a document, as many as this.
fn rotated(pair: &Pair, first: &TrustDocument, count: usize) -> Vec<TrustRecord> {
    let mut head = ChainHead::of(first.clone());
    let pinned = head.digest;
    let next = |_| {
        let change = SlotChange::Replace(fleet::new_key().public());
        let document = chain::next_version(&head, SlotName::Release, change, None, fleet::now()).unwrap();
        let link = chain::sign(&document, &pair.fleet.root_key()).unwrap();
        head = ChainHead::read(&link).unwrap();
        TrustRecord { pinned, link }
    };
    (0..count).map(next).collect()
}

fn freshness(durable: &Durable) -> FreshnessRecord {
    durable.freshness(&durable.adoption().unwrap().unwrap()).unwrap()
}

fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            // The agent may be about to rename it.
            false => drop(std::fs::remove_file(path)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_holds_in_memory_is_written_back() {
    let mut says = says(Mode::Off, None, TransportPolicy::Auto);
    // It looks at the directory before each run.
    says.policy.converge_secs = 1;
    let mut pair = Pair::new(&says).await;
    let daemon = pair.daemon();
    until("it holds the release", async || pair.operator.node(NODE).await.held).await;
    daemon.end().await;
    // A rotation and a beacon came since.
    let trust = rotated(&pair, &dir(&pair).membership().unwrap().unwrap().trust, 1).remove(0);
    let seen = fleet::now();
    let durable = dir(&pair).open().unwrap();
    durable.save_trust(&trust).unwrap();
    let held = FreshnessRecord { newest_signature: seen, ..freshness(&durable) };
    durable.save_freshness(&held).unwrap();
    drop(durable);

    let daemon = pair.daemon();
    until("it runs with them", async || {
        let (_, text) = printed(&pair.agent(&["status"]));
        (text.contains("daemon         runs") && text.contains("trust          document 2")).then_some(())
    })
    .await;
    empty(&pair.state());
    until("it is written back", async || {
        let facts: Value = pair.operator.get("/v1/nodes/web-1/facts?limit=1000").await.ok()?;
        facts.to_string().contains("the agent wrote back what it held in memory").then_some(())
    })
    .await;
    daemon.end().await;
    let durable = dir(&pair).open().unwrap();
    assert_eq!(durable.trust().unwrap(), Some(trust));
    assert!(freshness(&durable).newest_signature >= seen, "{:?}", freshness(&durable));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_there_and_is_later_stays() {
    let mut pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let daemon = pair.daemon();
    until("it holds the release", async || pair.operator.node(NODE).await.held).await;
    daemon.end().await;
    let records = rotated(&pair, &dir(&pair).membership().unwrap().unwrap().trust, 3);
    let opened = dir(&pair).open().unwrap();
    let first = freshness(&opened);
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    let signed = |later: Duration| FreshnessRecord {
        newest_signature: first.newest_signature.plus(later),
        ..first.clone()
    };
    // An hour after the release nobody had signed another one.
    let not_fresh = |record: FreshnessRecord| FreshnessRecord {
        not_fresh_since: Some(first.newest_signature.plus(hour)),
        ..record
    };
    let adoption = opened.adoption().unwrap();
    for (there, held, expected) in [
        ((None, None), (Some(1), signed(second)), (Some(1), signed(second))),
        ((Some(0), Some(first.clone())), (Some(1), signed(second)), (Some(1), signed(second))),
        ((Some(2), Some(signed(hour))), (Some(1), signed(second)), (Some(2), signed(hour))),
        (
            (Some(1), Some(first.clone())),
            (None, not_fresh(first.clone())),
            (Some(1), not_fresh(first.clone())),
        ),
        ((Some(1), Some(not_fresh(first.clone()))), (None, signed(second)), (Some(1), signed(second))),
    ] {
        let record = |at: Option<usize>| at.map(|at| records[at].clone());
        for name in ["trust.json", "freshness.json"] {
            let _ = std::fs::remove_file(pair.state().join(name));
        }
        record(there.0).iter().for_each(|record| opened.save_trust(record).unwrap());
        there.1.iter().for_each(|record| opened.save_freshness(record).unwrap());
        let _ = std::fs::remove_dir_all(pair.state().join("objects"));
        let lost = opened.lost().unwrap().unwrap();
        let remembered = RememberedState {
            adoption: adoption.clone(),
            freshness: Some(held.1.clone()),
            trust: record(held.0),
            last_run: None,
            pause: None,
            last_reboot: None,
            facts: opened.first_facts().unwrap(),
        };
        opened.put_back(&lost, &remembered).unwrap();
        assert_eq!(opened.trust().unwrap(), record(expected.0), "{there:?} {held:?}");
        assert_eq!(freshness(&opened), expected.1, "{there:?} {held:?}");
    }
    // One that begins at another document than the membership counts for nothing, and is not put in its place.
    let other = TrustRecord { pinned: model::Digest::of(b"another"), ..records[2].clone() };
    let _ = std::fs::remove_dir_all(pair.state().join("objects"));
    let lost = opened.lost().unwrap().unwrap();
    let facts = opened.first_facts().unwrap();
    let remembered = RememberedState {
        adoption,
        freshness: None,
        trust: Some(other),
        last_run: None,
        pause: None,
        last_reboot: None,
        facts,
    };
    opened.put_back(&lost, &remembered).unwrap();
    assert_eq!(opened.trust().unwrap(), Some(records[1].clone()));
}
