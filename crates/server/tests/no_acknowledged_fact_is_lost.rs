//! SCL-3, ROL-5: `kill -9` of the control plane under load loses no acknowledged fact. A real process
//! serves and is killed several times while nodes report; afterwards every fact that was
//! acknowledged is stored, each exactly once, and none is stored that was not sent. Every event of a
//! rollout that was acknowledged (`acked`) or answered 204 is in effect, and changes nothing when it comes again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use model::exchange::{Acked, Answer, CheckIn, Report};
use model::log::{Fact, FactBody};
use model::rollout::{
    DeclaredProbe, ProbeMode, ProbeOutcome, RolloutEventBody, RolloutFact, RolloutId, RolloutTask,
};
use model::{Incarnation, Timestamp};
use net::client::Client;
use rollout::{NodeRolloutState, RolloutState};
use serde_json::json;
use server::api::rollouts::{NodeRolloutView, RolloutView};
use store::{FactRecord, Store};
use test_support::children::test_beside;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, LIMIT, Member, Operator, PATIENCE, body_of, decoded, quiet};
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use wire::rollout::HeartbeatAnswer;
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

/// Has nodes report to a control plane that is killed once so much was acknowledged; gives them as they are then.
async fn until_killed<R: Send + 'static, F: Future<Output = R> + Send + 'static>(
    dir: &Path,
    enough: u64,
    reporters: Vec<R>,
    report: impl Fn(R, net::ServerUrl, Arc<AtomicU64>) -> F,
) -> Vec<R> {
    let (mut child, url) = start(dir).await;
    let done = Arc::new(AtomicU64::new(0));
    let mut at_work = tokio::task::JoinSet::new();
    for reporter in reporters {
        at_work.spawn(report(reporter, url.clone(), done.clone()));
    }
    test_support::wait::until("enough is acknowledged", || async {
        (done.load(Ordering::Relaxed) >= enough).then_some(())
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    at_work.join_all().await
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
            let Ok(response) = client.call(request, LIMIT, PATIENCE).await else { return self };
            let acked = if checks_in {
                decoded::<Answer>(&response).unwrap().acked.unwrap()
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
        let report = |reporter: Reporter, url, done| reporter.report(url, incarnation.clone(), done);
        reporters = until_killed(fleet.dir.path(), FACTS_A_LIFE, reporters, report).await;
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

/// Events of rollouts that are acknowledged before each kill: so the first kills meet nodes that begin.
const EVENTS_A_LIFE: [u64; 5] = [3, 5, 7, 60, 60];

/// A node in a rollout that says one event after the other, in check-ins and one by one.
struct EventReporter {
    node: RolloutNode,
    rollout: RolloutId,
    second: Made,
    /// Whether it says the first event in a check-in; the next ones the other way in turn.
    begins_by_check_in: bool,
    /// The event that was not acknowledged yet; the control plane may have taken it all the same.
    pending: Option<Fact>,
    /// The last two that were acknowledged, one of each way.
    acked: Vec<Fact>,
}

fn event_of(fact: &Fact) -> &RolloutFact {
    let FactBody::Rollout(event) = &fact.body else { unreachable!() };
    event
}

impl EventReporter {
    fn checks_in(&self, event_seq: u64) -> bool {
        event_seq.is_multiple_of(2) != self.begins_by_check_in
    }

    /// The event that was not acknowledged yet, or the next one; once its release is activated, what its probe finds.
    fn next(&mut self) -> Fact {
        if let Some(pending) = &self.pending {
            return pending.clone();
        }
        let boot = self.node.boot.clone();
        let event = match self.node.event_seq {
            0 => RolloutEventBody::DispatchAck,
            1 => RolloutEventBody::ActivationStarted,
            2 => {
                self.node.holds(&self.second);
                RolloutEventBody::ActivationComplete { release: 2, boot }
            }
            3 => {
                let probes = vec![DeclaredProbe { name: "up".into(), mode: ProbeMode::Enforce }];
                RolloutEventBody::ProbeTopologyDeclared { probes }
            }
            _ => RolloutEventBody::ProbeResult { probe: "up".into(), outcome: ProbeOutcome::Pass, boot },
        };
        let fact = self.node.event(&self.rollout, event);
        if !self.checks_in(self.node.event_seq) {
            // It is no fact of the log.
            self.node.fact_seq -= 1;
        }
        self.pending = Some(fact.clone());
        fact
    }

    fn request(&self, fact: &Fact) -> Request<Full<Bytes>> {
        let event = event_of(fact);
        let (path, bytes) = if self.checks_in(event.event_seq) {
            let facts = vec![fact.clone()];
            let message = CheckIn { held: self.node.held.clone(), facts, ..quiet() };
            (route::CHECKIN, body_of(&message))
        } else {
            let posted = json!({
                "rolloutId": event.rollout, "seq": event.event_seq, "at": fact.at, "event": event.event,
                "signature": event.signature, "incarnation": quiet().incarnation,
            });
            (route::EVENTS, body_of(&posted))
        };
        self.node.member.signed(Method::POST, path, bytes)
    }

    /// The answer says that the event is durable.
    fn assert_acked(&self, fact: &Fact, response: &Response<Bytes>) {
        if self.checks_in(event_of(fact).event_seq) {
            let acked = decoded::<Answer>(response).unwrap().acked.unwrap();
            assert!(acked.seq >= fact.seq);
        } else {
            assert_eq!(response.status(), StatusCode::NO_CONTENT, "{:?}", response.body());
        }
    }

    fn note_acked(&mut self) {
        self.acked.extend(self.pending.take());
        let old = self.acked.len().saturating_sub(2);
        self.acked.drain(..old);
    }

    /// The number of the last event that was acknowledged.
    fn acked_seq(&self) -> u64 {
        self.acked.last().map_or(0, |fact| event_of(fact).event_seq)
    }

    /// Says events until the control plane is gone.
    async fn report(mut self, url: net::ServerUrl, done: Arc<AtomicU64>) -> EventReporter {
        self.node.member.url = url;
        let member = &self.node.member;
        let Ok(mut client) = Client::dial(&member.url, member.tls.clone()).await else { return self };
        loop {
            let fact = self.next();
            let Ok(response) = client.call(self.request(&fact), LIMIT, PATIENCE).await else { return self };
            self.assert_acked(&fact, &response);
            self.note_acked();
            done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How far its events were taken, by the answer to a heartbeat.
    async fn taken(&self) -> u64 {
        let beyond = self.node.event_seq + 1;
        let heartbeat = json!({
            "lastEventSeqByRollout": { self.rollout.to_string(): beyond }, "incarnation": quiet().incarnation,
        });
        let heard: HeartbeatAnswer = self.node.member.post(route::HEARTBEAT, &heartbeat).await.unwrap();
        heard.replay_from[self.rollout.as_str()] - 1
    }
}

/// Nodes that are asked, and did not answer yet; the control plane is stopped.
async fn asked() -> (Fleet, Vec<EventReporter>) {
    let mut fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let release = |seq: u64, rollout: Option<Arc<RolloutTerms>>| {
        let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
        for n in 0..NODES {
            plan = plan.node(&format!("web-{n}"), &[params(&seq.to_string())]);
        }
        make(&Plan { rollout, ..plan }, &fleet.release_key())
    };
    let first = release(1, None);
    operator.publish(&first).await.unwrap();
    let mut nodes = Vec::new();
    for n in 0..NODES {
        let mut node = RolloutNode::new(fleet.node(&format!("web-{n}")).await);
        node.holds(&first);
        node.check_in(Vec::new(), 0).await.unwrap();
        nodes.push(node);
    }
    let gate = GateTerms { soak_secs: 0, success: 100 };
    let wave = WaveTerms { name: "all".to_owned(), members: WaveMembers::Rest, not_before: None, gate };
    let terms = Arc::new(RolloutTerms { waves: vec![wave], ..RolloutTerms::default() });
    let second = release(2, Some(terms));
    operator.publish(&second).await.unwrap();
    let mut reporters = Vec::new();
    for (n, node) in nodes.into_iter().enumerate() {
        let rollout = node.until_asked().await;
        let (second, begins_by_check_in) = (second.clone(), n.is_multiple_of(2));
        let (pending, acked) = (None, Vec::new());
        reporters.push(EventReporter { node, rollout, second, begins_by_check_in, pending, acked });
    }
    drop(operator);
    fleet.stop().await;
    (fleet, reporters)
}

async fn in_rollout(operator: &mut Operator, reporter: &EventReporter) -> NodeRolloutView {
    let path = format!("/v1/nodes/{}/rollout", reporter.node.member.hostname);
    operator.get::<Option<NodeRolloutView>>(&path).await.unwrap().unwrap()
}

async fn duplicates(operator: &mut Operator) -> u64 {
    let metrics = operator.raw(Method::GET, "/metrics", Vec::new()).await;
    let text = String::from_utf8(metrics.body().to_vec()).unwrap();
    let counted =
        |line: &str| line.strip_prefix("muster_rollout_events_total{outcome=\"duplicate\"} ")?.parse().ok();
    text.lines().find_map(counted).unwrap_or(0)
}

/// What was acknowledged is in effect, and a duplicate when it is sent again.
async fn check_events(fleet: &Fleet, reporters: &mut [EventReporter]) {
    let (mut operator, mut sent_again) = (fleet.operator().await, 0);
    for reporter in reporters {
        reporter.node.member.url = fleet.url();
        let name = reporter.node.member.hostname.clone();
        let (taken, acked) = (reporter.taken().await, reporter.acked_seq());
        assert!(taken >= acked, "{name}: event {acked} was acknowledged, and {taken} are in effect");
        assert!(taken <= reporter.node.event_seq, "{name}: more than was sent");
        let before = in_rollout(&mut operator, reporter).await;
        let expected = match taken {
            0 => NodeRolloutState::Pending,
            1 | 2 => NodeRolloutState::Activating,
            _ => NodeRolloutState::Soaking,
        };
        assert_eq!(before.state, expected, "{name} after event {taken}");
        for fact in &reporter.acked {
            let response = reporter.node.member.send(reporter.request(fact)).await;
            reporter.assert_acked(fact, &response);
            sent_again += 1;
        }
        assert_eq!(in_rollout(&mut operator, reporter).await, before, "a duplicate changes nothing");
        assert_eq!(reporter.taken().await, taken);
    }
    assert_eq!(duplicates(&mut operator).await, sent_again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_control_plane_has_every_event_that_it_acknowledged() {
    let (mut fleet, mut reporters) = asked().await;
    for enough in EVENTS_A_LIFE {
        reporters = until_killed(fleet.dir.path(), enough, reporters, EventReporter::report).await;
        fleet.start_again().await;
        check_events(&fleet, &mut reporters).await;
        fleet.stop().await;
    }
    // The rollout goes on from there, to its end.
    fleet.start_again().await;
    for reporter in &mut reporters {
        reporter.node.member.url = fleet.url();
        while reporter.pending.is_some() || reporter.node.event_seq < 5 {
            let fact = reporter.next();
            let response = reporter.node.member.send(reporter.request(&fact)).await;
            reporter.assert_acked(&fact, &response);
            reporter.note_acked();
        }
        let boot = reporter.node.boot.clone();
        let confirms = RolloutEventBody::Converged { release: 2, boot, soaked_secs: 0 };
        let answer = reporter.node.say(&reporter.rollout, confirms).await;
        assert_eq!(answer.rollout.unwrap().task, RolloutTask::Proceed);
    }
    let view: RolloutView = fleet.operator().await.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!(view.state, RolloutState::Terminal, "{view:?}");
    // The facts among them are stored, each once.
    fleet.stop().await;
    let store = Store::open(fleet.dir.path().join("muster.db")).unwrap();
    for reporter in &reporters {
        let stored = all_facts(&store, &reporter.node.member).await;
        let numbers: Vec<u64> = stored.iter().rev().map(|record| record.fact.seq).collect();
        assert_eq!(numbers, (1..=reporter.node.fact_seq).collect::<Vec<_>>());
    }
}
