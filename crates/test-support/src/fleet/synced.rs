//! Nodes that synchronize objects and take work, and what they say by hand.

use model::exchange::{Acked, CheckIn, Report};
use model::log::{Fact, FactBody};
use model::object::ObjectKey;
use model::replication::{Mismatch, Mode, SyncPolicy};
use model::work::{ActionEvent, ActionFact, ActionOutcome, Delegation, QuerySpec};
use model::{Kind, Timestamp};
use serde_json::{Value, json};
use server::api::objects::{Apply, Mapping, ObjectResults, ObjectView, ObjectsView};
use server::api::work::TaskView;
use wire::route;

use super::release::{Objects, Plan, make, params};
use super::{Fleet, Member, Operator, now, quiet};

/// The release's leave to synchronize these kinds.
pub fn sync_object(mode: Mode, kinds: &[&str]) -> (ObjectKey, Vec<u8>) {
    let policy = SyncPolicy {
        mode,
        kinds: kinds.iter().map(ToString::to_string).collect(),
        folder: None,
        mismatch: Mismatch::default(),
        max_delete_percent: 25,
        operations: Vec::new(),
    };
    (ObjectKey::of(Kind::SYNC, "sync"), serde_json::to_vec(&policy).unwrap())
}

/// Leave to run `/bin/true` with anything, and to ask for traits.
pub fn delegation() -> (ObjectKey, Vec<u8>) {
    let delegation = Delegation {
        commands: vec![vec!["/bin/true".to_owned(), "**".to_owned()]],
        queries: vec![QuerySpec::Traits],
        ..Delegation::default()
    };
    (ObjectKey::of(Kind::DELEGATION, "tools"), serde_json::to_vec(&delegation).unwrap())
}

/// What a node declared with labels has among its objects.
pub fn labelled(labels: &Value) -> (ObjectKey, Vec<u8>) {
    declared(&json!({"channel": "stable", "labels": labels}))
}

/// What a node of which this is declared has among its objects.
pub fn declared(node: &Value) -> (ObjectKey, Vec<u8>) {
    let content = json!({ "node": node });
    (ObjectKey::of(Kind::PARAMS, "node"), content.to_string().into_bytes())
}

/// Everything that a managed node with work has.
pub fn managed() -> Objects {
    vec![params("a"), sync_object(Mode::Managed, &["Application", "AppProject"]), delegation()]
}

/// Publishes these objects for these nodes as the first release.
pub async fn publish(fleet: &Fleet, operator: &mut Operator, nodes: &[(&str, Objects)]) {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, 1);
    for (name, objects) in nodes {
        plan = plan.node(name, objects);
    }
    operator.publish(&make(&plan, &fleet.release_key())).await.unwrap();
}

/// A fleet with one managed node that called, and its operator.
pub async fn one_managed() -> (Fleet, Operator, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    publish(&fleet, &mut operator, &[("web-1", managed())]).await;
    node.survives().await;
    (fleet, operator, node)
}

/// A manifest.
pub fn manifest(namespace: &str, name: &str, value: u64) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"value": value},
    })
}

/// An order to make these so.
pub fn apply(manifests: Vec<Value>) -> Apply {
    Apply { manifests, node: None, mapping: Mapping::Namespace, dry_run: false, trace: None }
}

impl Operator {
    pub async fn apply(&mut self, manifests: Vec<Value>) -> ObjectResults {
        self.post("/v1/objects", &apply(manifests)).await.unwrap()
    }

    pub async fn objects(&mut self, query: &str) -> Vec<ObjectView> {
        let page: ObjectsView = self.get(&format!("/v1/objects?{query}")).await.unwrap();
        page.objects
    }

    /// The actions that wait for a node, by their ids.
    pub async fn actions(&mut self, node: &str) -> Vec<String> {
        let found = self.objects(&format!("match={node}&kind=Action")).await;
        found.into_iter().map(|object| object.name).collect()
    }

    /// Begins to run a command.
    pub async fn begin(&mut self, selector: &str, argv: &[&str]) -> TaskView {
        let task = json!({
            "selector": selector,
            "work": {"kind": "command", "argv": argv},
            "timeoutSecs": 60,
        });
        self.post("/v1/tasks", &task).await.unwrap()
    }

    pub async fn task(&mut self, id: &str) -> TaskView {
        self.get(&format!("/v1/tasks/{id}")).await.unwrap()
    }

    /// The actions that wait for a node, once there are so many.
    pub async fn actions_when(&mut self, node: &str, count: usize) -> Vec<String> {
        let begun = std::time::Instant::now();
        loop {
            let actions = self.actions(node).await;
            if actions.len() == count {
                return actions;
            }
            assert!(begun.elapsed() < super::PATIENCE, "{actions:?}, not {count} of them");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// The task once it is over.
    pub async fn task_over(&mut self, id: &str) -> TaskView {
        let begun = std::time::Instant::now();
        loop {
            let task = self.task(id).await;
            if task.finished.is_some() {
                return task;
            }
            assert!(begun.elapsed() < super::PATIENCE, "{task:?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl Member {
    /// Reports facts about actions, numbered from one on.
    pub async fn says(&self, from: u64, events: Vec<(&str, ActionEvent)>) -> u64 {
        let fact = |(seq, (id, event)): (u64, (&str, ActionEvent))| Fact {
            seq,
            at: now(),
            body: FactBody::Action(ActionFact { id: id.to_owned(), event }),
        };
        let facts: Vec<Fact> = (from..).zip(events).map(fact).collect();
        let report = Report { incarnation: "i1".parse().unwrap(), facts };
        let acked: Acked = self.post(route::REPORT, &report).await.unwrap();
        acked.acked.seq
    }
}

/// It ended well.
pub fn ended() -> ActionEvent {
    ActionEvent::Ended { outcome: ActionOutcome::Exited { code: 0 }, duration_ms: 12 }
}

/// It ended with this exit code.
pub fn exited(code: i32) -> ActionEvent {
    ActionEvent::Ended { outcome: ActionOutcome::Exited { code }, duration_ms: 12 }
}

/// A check-in of a node that holds what it is pointed to.
pub fn holding(held: model::exchange::HeldRelease) -> CheckIn {
    CheckIn { held: Some(held), ..quiet() }
}

/// A time that every test is after.
pub const LONG_AGO: Timestamp = Timestamp(1_000_000);
