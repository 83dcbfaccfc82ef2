//! CNV-5 and the design's "a fact is durable before it is acknowledged": `kill -9` of the
//! control plane under load loses no acknowledged fact. The process is a real one: this
//! test starts itself again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use model::NodeId;
use store::Store;

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{at, enrolled, incarnation, run, started};

const DIRECTORY: &str = "MUSTER_TEST_DIRECTORY";
const NODES: u32 = 16;

fn acknowledge(node: &NodeId, seq: u64) {
    // Not `println!`: the line must be out before the process ends, and whole.
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("\nacked {node} {seq}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}

async fn load(directory: &Path) {
    let store = Arc::new(Store::open(directory.join("muster.db")).unwrap());
    let mut tasks = Vec::new();
    for n in 0..NODES {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let node = enrolled(&store, n).await;
            for first in (1..).step_by(3) {
                let facts = vec![run(first, 1, false), started(first + 1), run(first + 2, 0, false)];
                let accepted = store.append_facts(&node, &incarnation("one"), facts, at(1)).await.unwrap();
                acknowledge(&node, accepted.cursor.seq);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_under_load() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return load(Path::new(&directory)).await;
    }
    for kill_after in [1, 40, 400] {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill_9_under_load", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut acked: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut lines = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((node, seq)) = line.strip_prefix("acked ").and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            acked.insert(node.parse().unwrap(), seq.parse().unwrap());
            lines += 1;
            if lines == kill_after {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success());
        check(directory.path(), &acked).await;
    }
}

async fn check(directory: &Path, acked: &BTreeMap<NodeId, u64>) {
    assert!(!acked.is_empty());
    let store = Store::open(directory.join("muster.db")).unwrap();
    assert_eq!(store.integrity().await.unwrap(), Vec::<String>::new());
    for (node, seq) in acked {
        let record = store.node(node).await.unwrap().unwrap();
        let cursor = record.cursor.unwrap().seq;
        assert!(cursor >= *seq, "{node}: {seq} was acknowledged, the cursor is {cursor}");
        let mut seqs = Vec::new();
        let mut before = None;
        loop {
            let page = store.facts(node, before, 1000).await.unwrap();
            before = page.last().map(|record| record.id);
            if page.is_empty() {
                break;
            }
            seqs.extend(page.iter().map(|record| record.fact.seq));
        }
        let expected: Vec<u64> = (1..=cursor).rev().collect();
        assert_eq!(seqs, expected, "{node}: the cursor says what is there");
        // What was derived is of the same transaction.
        assert_eq!(record.full_run, Some(cursor));
        assert_eq!(record.runs.streak, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_store_runs_what_waits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.db");
    let store = Arc::new(Store::open(&path).unwrap());
    let node = enrolled(&store, 1).await;
    let mut tasks = Vec::new();
    for seq in 1..=100 {
        let (store, node) = (Arc::clone(&store), node.clone());
        tasks.push(tokio::spawn(async move {
            store
                .append_facts(&node, &incarnation("one"), (1..=seq).map(started).collect(), at(1))
                .await
                .unwrap()
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let second = Store::open(&path).err().unwrap();
    assert!(matches!(second, store::StoreError::InUse), "{second:?}");
    assert_eq!(store.health().queue_depth, 0);
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.node(&node).await.unwrap().unwrap().cursor.unwrap().seq, 100);
}
