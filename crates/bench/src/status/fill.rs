//! A fleet of nodes with sets, labels, traits and runs of their own.

use std::path::Path;
use std::time::Duration;

use model::exchange::{RunNote, TraitReport};
use model::log::{Fact, FactBody};
use model::object::ObjectKey;
use model::replication::Mode;
use model::{
    Action, Digest, Incarnation, Kind, NodeConditions, ResourceReport, RunCounts, RunReport, RunsHeard,
};
use serde_json::json;
use store::Touch;
use tokio::task::JoinSet;

use crate::fleet::{self, BenchNode, FilledFleet, FleetPlan, SetObjects, now};
use crate::{BenchError, wait_for};

/// Values of the label `rack`.
pub(super) const RACKS: usize = 200;
/// Values of the trait `os.build`.
pub(super) const BUILDS: usize = 10;
/// Each so many-th node's run failed.
const FAILED: usize = 20;
/// For so many different causes.
const CAUSES: usize = 30;
/// Each so many-th node is silent.
const SILENT: usize = 50;
/// Nodes written at once.
const WRITES: usize = 512;

/// Fills it; gives the nodes that can call, which are the first.
pub(super) async fn fill(dir: &Path, count: usize, callers: usize) -> Result<Vec<BenchNode>, BenchError> {
    let sets = (0..count).map(objects).collect::<Result<_, _>>()?;
    let plan = FleetPlan { count, near: callers, certified: callers, sets, rollout: None };
    let FilledFleet { nodes, all, store } = fleet::fill_with(dir, plan).await?;
    let touches = all.iter().enumerate().map(|(number, (node, held))| Touch {
        node: node.clone(),
        last_seen: match number % SILENT {
            1 => model::Timestamp(now().0 - 24 * 3_600_000),
            _ => now(),
        },
        held: Some(held.clone()),
        run: Some(RunNote { at: now(), outcome: held.root }),
        runs_heard: RunsHeard { run: Some(now()), held: Some(now()), ..RunsHeard::default() },
        promised_secs: 300,
        conditions: NodeConditions::default(),
        trust_version: 1,
    });
    store.touch(touches.collect()).await?;
    let mut tasks = JoinSet::new();
    let incarnation: Incarnation = "i0123456789abcdef".parse()?;
    for (number, (node, held)) in all.into_iter().enumerate() {
        let (store, incarnation) = (store.clone(), incarnation.clone());
        tasks.spawn(async move {
            let facts = vec![Fact { seq: 1, at: now(), body: FactBody::Run(report(number, held.root)) }];
            store.append_facts(&node, &incarnation, facts, now()).await?;
            store.put_traits(&node, traits(number), now()).await?;
            Ok::<_, BenchError>(())
        });
        wait_for(&mut tasks, WRITES).await?;
    }
    wait_for(&mut tasks, 0).await?;
    Ok(nodes)
}

/// A set that no other node has: parameters of its own, and what all share.
fn objects(number: usize) -> Result<SetObjects, BenchError> {
    let mut objects = fleet::objects_of(Mode::Managed)?;
    let params = json!({
        "app": {"id": format!("id-{number}"), "port": 1024 + number % 60_000},
        "node": {
            "channel": "near",
            "groups": [if number.is_multiple_of(2) { "even" } else { "odd" }],
            "labels": {"rack": format!("r{}", number % RACKS), "role": "web"},
        },
    });
    let key = ObjectKey::of(Kind::PARAMS, "node");
    objects.retain(|(known, _)| *known != key);
    objects.push((key, model::canonical::to_bytes(&params)?));
    Ok(objects)
}

fn traits(number: usize) -> TraitReport {
    let values = json!({
        "os": {"id": "debian", "release": "12", "build": number % BUILDS},
        "net": {"addresses": [format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255)]},
        "memory": {"total_mib": 2048},
    });
    TraitReport::whole(Digest::of(values.to_string().as_bytes()), values)
}

/// A run: of most nodes a good one.
fn report(number: usize, root: Digest) -> RunReport {
    let failed = number.is_multiple_of(FAILED);
    let item = ResourceReport {
        resource: format!("app/file:/etc/app-{}.conf", number % CAUSES),
        action: Action::Failed,
        edit: None,
        reason: Some("no space left on the device".to_owned()),
        cause: None,
        duration_ms: 1,
    };
    RunReport {
        started: now(),
        duration_ms: Duration::from_secs(1).as_millis() as u64,
        seq: 1,
        root,
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: Vec::new(),
        unswitched: Vec::new(),
        counts: RunCounts { ok: 40, failed: u32::from(failed), ..RunCounts::default() },
        items: if failed { vec![item] } else { Vec::new() },
    }
}
