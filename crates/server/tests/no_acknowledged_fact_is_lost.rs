//! SCL-3: `kill -9` of the control plane under load loses no acknowledged fact. A real process
//! serves and is killed several times while nodes report; afterwards every fact that was
//! acknowledged is stored, each exactly once, and none is stored that was not sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use model::exchange::{Acked, CheckIn, Report};
use model::log::{Fact, FactBody};
use model::{Incarnation, Timestamp};
use net::client::Client;
use store::{FactRecord, Store};
use test_support::children::test_beside;
use test_support::fleet::{Fleet, Member, decoded, quiet};
use wire::{body, route};

const DIR: &str = "MUSTER_TEST_DIR";
const NODES: usize = 4;
const KILLS: usize = 5;
/// Facts that are acknowledged before each kill.
const FACTS_A_LIFE: u64 = 60;
/// Facts in one request.
const BATCH: u64 = 3;

/// What the parent starts this test binary for; a plain test run finds nothing to do.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let _running = server::start(test_support::fleet::config(Path::new(&dir), 0, 0)).await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// Starts a control plane as a process of its own and waits until it says where it is.
async fn start(dir: &Path) -> (Child, net::ServerUrl) {
    let says = dir.join("enroll.json");
    std::fs::remove_file(&says).unwrap();
    let child = test_beside("child").env(DIR, dir).stdout(Stdio::null()).spawn().unwrap();
    let url = test_support::wait::until("the control plane has started", || async {
        let info: server::EnrollInfo = server::posture::read_json(&says).ok()?;
        Some(info.servers[0].clone())
    })
    .await;
    (child, url)
}

/// What a node knows of its own log.
struct Reporter {
    node: Member,
    acked: u64,
    sent: u64,
}

fn fact(node: &Member, seq: u64) -> Fact {
    let message = format!("{} {seq}", node.hostname);
    Fact { seq, at: Timestamp::from_secs(1_800_000_000), body: FactBody::Repaired { message } }
}

impl Reporter {
    /// Reports until the control plane is gone; alternates between the two ways.
    async fn report(
        mut self,
        url: net::ServerUrl,
        incarnation: Incarnation,
        done: Arc<AtomicU64>,
    ) -> Reporter {
        self.node.url = url;
        let Ok(mut client) = Client::dial(&self.node.url, self.node.tls.clone()).await else { return self };
        loop {
            let first = self.acked + 1;
            let facts: Vec<Fact> = (first..first + BATCH).map(|seq| fact(&self.node, seq)).collect();
            self.sent = self.sent.max(first + BATCH - 1);
            let checks_in = first.is_multiple_of(2);
            let (path, bytes) = if checks_in {
                let message = CheckIn { incarnation: incarnation.clone(), facts, ..quiet() };
                (route::CHECKIN, body::encode(&message).unwrap())
            } else {
                (route::REPORT, body::encode(&Report { incarnation: incarnation.clone(), facts }).unwrap())
            };
            let request = self.node.signed(Method::POST, path, bytes);
            let Ok(response) =
                client.call(request, test_support::fleet::LIMIT, test_support::fleet::PATIENCE).await
            else {
                return self;
            };
            let acked = if checks_in {
                decoded::<model::exchange::Answer>(&response).unwrap().acked.unwrap()
            } else {
                decoded::<Acked>(&response).unwrap().acked
            };
            done.fetch_add(acked.seq - self.acked, Ordering::Relaxed);
            self.acked = acked.seq;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_control_plane_has_every_fact_that_it_acknowledged() {
    let mut fleet = Fleet::start().await;
    let incarnation: Incarnation = "i1".parse().unwrap();
    let mut reporters = Vec::new();
    for n in 0..NODES {
        reporters.push(Reporter { node: fleet.node(&format!("web-{n}")).await, acked: 0, sent: 0 });
    }
    fleet.stop().await;
    for _ in 0..KILLS {
        let (mut child, url) = start(fleet.dir.path()).await;
        let done = Arc::new(AtomicU64::new(0));
        let mut at_work = tokio::task::JoinSet::new();
        for reporter in reporters.drain(..) {
            at_work.spawn(reporter.report(url.clone(), incarnation.clone(), done.clone()));
        }
        test_support::wait::until("enough facts are acknowledged", || async {
            (done.load(Ordering::Relaxed) >= FACTS_A_LIFE).then_some(())
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        reporters = at_work.join_all().await;
    }
    check(&fleet, &reporters, &incarnation).await;
    // And the control plane goes on from there.
    fleet.start_again().await;
    let reporter = &mut reporters[0];
    reporter.node.url = fleet.url();
    let facts = vec![fact(&reporter.node, reporter.sent + 1)];
    let report = Report { incarnation, facts };
    let acked: Acked = reporter.node.post(route::REPORT, &report).await.unwrap();
    assert!(acked.acked.seq >= reporter.acked, "the cursor never moves backwards");
}

async fn check(fleet: &Fleet, reporters: &[Reporter], incarnation: &Incarnation) {
    let path: PathBuf = fleet.dir.path().join("muster.db");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.integrity().await.unwrap(), Vec::<String>::new());
    let mut acknowledged = 0;
    for reporter in reporters {
        let stored = all_facts(&store, &reporter.node).await;
        let mut by_seq: BTreeMap<u64, usize> = BTreeMap::new();
        for record in &stored {
            assert_eq!(record.incarnation, *incarnation);
            assert_eq!(record.fact, fact(&reporter.node, record.fact.seq), "stored as it was sent");
            *by_seq.entry(record.fact.seq).or_default() += 1;
        }
        let name = &reporter.node.hostname;
        assert!(by_seq.values().all(|count| *count == 1), "{name}: a fact is stored twice");
        let last = by_seq.keys().next_back().copied().unwrap_or(0);
        assert_eq!(by_seq.len() as u64, last, "{name}: a fact in the middle is missing");
        assert!(last >= reporter.acked, "{name}: {} were acknowledged, {last} are stored", reporter.acked);
        assert!(last <= reporter.sent, "{name}: more than was sent");
        acknowledged += reporter.acked;
    }
    assert!(acknowledged >= FACTS_A_LIFE * KILLS as u64);
}

async fn all_facts(store: &Store, node: &Member) -> Vec<FactRecord> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = store.facts(&node.id, before, 500).await.unwrap();
        let Some(last) = page.last() else { return all };
        before = Some(last.id);
        all.extend(page);
    }
}
