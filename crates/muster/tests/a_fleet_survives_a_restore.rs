//! OPS-6, SCL-4, by drill: 1,000 nodes with objects and a task in flight; a backup, changes, a loss, a restore.
//! No outcome is lost and no action is asked for twice; every node compares before it counts as in sync, has
//! what the control plane has, sends its facts again, and takes the next release.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Kind;
use model::condition::SyncState;
use model::exchange::{CheckIn, HeldRelease, Signed};
use model::log::{Fact, FactBody};
use model::replication::Mode;
use model::work::{ActionEvent, ActionFact};
use serde_json::json;
use server::api::objects::{Apply, Mapping, ObjectResults, SyncsView};
use server::api::work::TaskView;
use test_support::fleet::link::{config, grpc, handler, policy, running};
use test_support::fleet::release::{Made, Plan, make};
use test_support::fleet::synced::{delegation, ended};
use test_support::fleet::{Fleet, Member, now, quiet};
use test_support::memory::MemoryLinkHandler;
use test_support::programs::repo::{err, muster};
use test_support::wait::until;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Batches of nodes, whose names begin with `bNN-`, and nodes in each.
const BATCHES: usize = 10;
const IN_BATCH: usize = 100;

/// A node: what it has durably, and what it does.
struct SimNode {
    name: String,
    member: Arc<Member>,
    handler: Arc<MemoryLinkHandler>,
    facts: Vec<Fact>,
    acked: u64,
    /// Actions that it began, each once.
    marks: BTreeSet<String>,
    held: HeldRelease,
    header: Signed,
    header_wanted: bool,
    stream_requested: bool,
}

impl SimNode {
    async fn contact(&mut self) {
        let pending = usize::try_from(self.acked).unwrap();
        let check_in = CheckIn {
            held: Some(self.held.clone()),
            facts: self.facts[pending..].to_vec(),
            acked: Some(self.acked),
            header: Some(self.header.clone()).filter(|_| self.header_wanted),
            ..quiet()
        };
        let answer = self.member.check_in(&check_in).await.unwrap();
        if let Some(cursor) = answer.acked {
            self.acked = cursor.seq;
        }
        (self.header_wanted, self.stream_requested) = (answer.want_header, answer.stream_requested);
    }

    /// Runs what it was asked for and did not begin before.
    fn work(&mut self) {
        let asked = self.handler.theirs().into_keys().filter(|key| key.section.kind.as_str() == Kind::ACTION);
        for id in asked.map(|key| key.name.to_string()) {
            if self.marks.insert(id.clone()) {
                for event in [ActionEvent::Started, ended()] {
                    let body = FactBody::Action(ActionFact { id: id.clone(), event });
                    self.facts.push(Fact { seq: self.facts.len() as u64 + 1, at: now(), body });
                }
            }
        }
    }

    fn objects(&self) -> BTreeSet<String> {
        let own = self.handler.theirs().into_keys().filter(|key| key.section.kind.as_str() == "Item");
        own.map(|key| key.name.to_string()).collect()
    }
}

struct Drill {
    fleet: Fleet,
    nodes: Vec<SimNode>,
}

impl Drill {
    fn names() -> impl Iterator<Item = String> {
        (0..BATCHES).flat_map(|batch| (0..IN_BATCH).map(move |node| format!("b{batch:02}-{node}")))
    }

    async fn release(fleet: &Fleet, seq: u64, built_on: Option<u64>) -> Made {
        let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
        plan.expected_head = built_on;
        for name in Drill::names() {
            let label =
                (model::ObjectKey::of(Kind::PARAMS, "node"), format!(r#"{{"text":"{seq}"}}"#).into_bytes());
            plan = plan.node(&name, &[policy(Mode::Managed), delegation(), label]);
        }
        let made = make(&plan, &fleet.release_key());
        fleet.operator().await.publish(&made).await.unwrap();
        made
    }

    async fn new() -> Drill {
        let fleet = Arc::new(Fleet::start().await);
        let made = Drill::release(&fleet, 1, None).await;
        let mut enrolled = JoinSet::new();
        let (names, mut members) = (Drill::names().collect::<Vec<_>>(), BTreeMap::new());
        for some in names.chunks(20) {
            for name in some {
                let (fleet, name) = (fleet.clone(), name.clone());
                enrolled.spawn(async move { (name.clone(), fleet.node(&name).await) });
            }
            while let Some(joined) = enrolled.join_next().await {
                let (name, member) = joined.unwrap();
                members.insert(name, member);
            }
        }
        let node = |(name, member): (String, Member)| SimNode {
            held: made.held(&name),
            name,
            member: Arc::new(member),
            handler: handler("n1"),
            facts: Vec::new(),
            acked: 0,
            marks: BTreeSet::new(),
            header: made.header.clone(),
            header_wanted: false,
            stream_requested: false,
        };
        let nodes = members.into_iter().map(node).collect();
        let mut drill = Drill { fleet: Arc::into_inner(fleet).unwrap(), nodes };
        drill.contact(0..BATCHES).await;
        drill
    }

    /// Nodes of these batches call.
    async fn contact(&mut self, batches: std::ops::Range<usize>) {
        let range = batches.start * IN_BATCH..batches.end * IN_BATCH;
        let calling: Vec<SimNode> = self.nodes.drain(range.clone()).collect();
        let (mut called, mut under_way) = (Vec::new(), JoinSet::new());
        let mut calling = calling.into_iter().enumerate();
        loop {
            while under_way.len() < 20
                && let Some((at, mut node)) = calling.next()
            {
                under_way.spawn(async move {
                    node.contact().await;
                    (at, node)
                });
            }
            let Some(done) = under_way.join_next().await else { break };
            called.push(done.unwrap());
        }
        called.sort_by_key(|(at, _)| *at);
        self.nodes.splice(range.start..range.start, called.into_iter().map(|(_, node)| node));
    }

    /// Nodes of a batch open links, again and again, until all of them are in sync; then they do their work.
    async fn synchronize(&mut self, batch: usize) {
        let nodes = &mut self.nodes[batch * IN_BATCH..(batch + 1) * IN_BATCH];
        let (stop, mut links) = (watch::Sender::new(false), JoinSet::new());
        for node in nodes.iter() {
            let (member, handler, stop) = (node.member.clone(), node.handler.clone(), stop.subscribe());
            links.spawn(keep_linked(member, handler, stop));
        }
        let operator = tokio::sync::Mutex::new(self.fleet.operator().await);
        until("a batch is in sync", async || {
            let path = format!("/v1/sync?match=b{batch:02}-*&limit=1");
            let page: SyncsView = operator.lock().await.get(&path).await.unwrap();
            (page.states.get(&SyncState::InSync) == Some(&IN_BATCH)).then_some(())
        })
        .await;
        stop.send_replace(true);
        while links.join_next().await.is_some() {}
        nodes.iter_mut().for_each(SimNode::work);
    }

    async fn apply(&self, name: &str) {
        let mut operator = self.fleet.operator().await;
        for nodes in self.nodes.chunks(IN_BATCH) {
            let manifest = |node: &SimNode| {
                json!({"apiVersion": "test/v1", "kind": "Item",
                    "metadata": {"namespace": node.name, "name": name}, "spec": {"text": name}})
            };
            let manifests = nodes.iter().map(manifest).collect();
            let apply =
                Apply { manifests, node: None, mapping: Mapping::Namespace, dry_run: false, trace: None };
            let _: ObjectResults = operator.post("/v1/objects", &apply).await.unwrap();
        }
    }

    async fn begin(&self, selector: &str) -> TaskView {
        let task = json!({
            "selector": selector,
            "work": {"kind": "command", "argv": ["/bin/true"]},
            "timeoutSecs": 3600,
            "waitSecs": 3600,
        });
        self.fleet.operator().await.post("/v1/tasks", &task).await.unwrap()
    }

    fn moved(&mut self) {
        for node in &mut self.nodes {
            Arc::get_mut(&mut node.member).unwrap().url = self.fleet.url();
        }
    }
}

async fn keep_linked(member: Arc<Member>, handler: Arc<MemoryLinkHandler>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let mut client = member.dial().await;
        // One that is refused for now is tried again.
        let Ok(opened) = grpc(&member, &mut client).await else { continue };
        let mut link = running(config(Mode::Managed, "drill"), &handler, opened);
        tokio::select! {
            _ = &mut link.ended => {}
            _ = stop.changed() => drop(link.stop().await),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_repeated() {
    let mut drill = Drill::new().await;
    let all = BATCHES * IN_BATCH;
    drill.apply("kept").await;
    let task = drill.begin("b*").await;
    // Half of the fleet does its part before the backup; of these, half tells it.
    for batch in 0..BATCHES / 2 {
        drill.synchronize(batch).await;
    }
    drill.contact(0..BATCHES / 4).await;
    let dir = drill.fleet.dir.path().to_owned();
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("drill.backup");
    let (data, file) = (dir.to_str().unwrap(), file.to_str().unwrap());
    let made = muster(outside.path(), &["backup", "--data", data, file]).await;
    assert!(made.status.success(), "{}", err(&made));

    // What the backup lacks: outcomes, objects, a task, a release.
    drill.contact(0..BATCHES).await;
    drill.apply("later").await;
    let lost = drill.begin("b00-*").await;
    for batch in 0..BATCHES {
        drill.synchronize(batch).await;
    }
    let release = Drill::release(&drill.fleet, 2, Some(1)).await;
    for node in &mut drill.nodes {
        (node.held, node.header) = (release.held(&node.name), release.header.clone());
    }
    drill.contact(0..BATCHES).await;
    let done: TaskView = drill.fleet.operator().await.task_over(&task.id).await;
    assert_eq!(done.summary.progress.succeeded, all, "{done:?}");
    drill.fleet.operator().await.task_over(&lost.id).await;
    assert!(
        drill.nodes.iter().all(|node| node.acked == node.facts.len() as u64 && node.objects().len() == 2)
    );

    drill.fleet.stop().await;
    let restored = muster(outside.path(), &["restore", file, "--data", data, "--replace"]).await;
    assert!(restored.status.success(), "{}", err(&restored));
    drill.fleet.start_again().await;
    drill.moved();
    let page: SyncsView = drill.fleet.operator().await.get("/v1/sync?limit=1").await.unwrap();
    assert_eq!(page.states.get(&SyncState::InSync), None, "nothing was compared: {:?}", page.states);

    drill.contact(0..BATCHES).await;
    assert!(drill.nodes.iter().all(|node| node.stream_requested), "each is to compare");
    assert!(drill.nodes.iter().any(|node| node.header_wanted));
    drill.contact(0..BATCHES).await;
    assert_eq!(drill.fleet.operator().await.status().await.overtaken_by, Some(2));
    for batch in 0..BATCHES {
        drill.synchronize(batch).await;
    }
    drill.contact(0..BATCHES).await;
    let page: SyncsView = drill.fleet.operator().await.get("/v1/sync?limit=1").await.unwrap();
    assert_eq!(page.states.get(&SyncState::InSync), Some(&all), "{:?}", page.states);
    let over = drill.fleet.operator().await.task_over(&task.id).await;
    assert_eq!((over.summary.progress.succeeded, over.summary.progress.unknown), (all, 0), "{over:?}");
    for (at, node) in drill.nodes.iter().enumerate() {
        let asked = if at < IN_BATCH { 2 } else { 1 };
        assert_eq!(node.marks.len(), asked, "{} was asked again: {:?}", node.name, node.marks);
        assert_eq!(node.objects(), ["kept".to_owned()].into(), "{}", node.name);
        assert_eq!(node.acked, node.facts.len() as u64, "{}", node.name);
    }
    let facts: Vec<store::FactRecord> =
        drill.fleet.operator().await.get("/v1/nodes/b00-7/facts").await.unwrap();
    let numbers: BTreeSet<u64> = facts.iter().map(|record| record.fact.seq).collect();
    assert_eq!((facts.len(), numbers), (4, (1..=4).collect()), "each fact is there once");

    Drill::release(&drill.fleet, 3, Some(1)).await;
    assert_eq!(drill.fleet.operator().await.status().await.overtaken_by, None);
    drill.contact(0..1).await;
}
