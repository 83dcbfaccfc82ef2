//! Requests for runs: of all (DLT-5), and of what has a tag (CFG-7).

use std::collections::BTreeSet;
use std::sync::Arc;

use model::exchange::TAGGED_RUNS;
use model::tags::{MAX_RUN_TAGS, TaggedRun, check_run_tags};
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::store_problem;
use crate::api::{RunRequest, RunRequested, TaggedRunRequest, TaggedRunRequested};
use crate::index::NodeSlot;
use crate::state::{ControlPlane, now, run_to_completion};

pub(super) async fn request_run(call: OperatorCall, request: RunRequest) -> Result<RunRequested, Problem> {
    let plane = call.plane.clone();
    let slots = named(&plane, &request.nodes)?;
    run_to_completion(async move {
        let ids: Vec<_> = slots.iter().map(|slot| slot.id()).collect();
        let number = number_of_now();
        plane.store.request_run(ids, number, now()).await.map_err(store_problem)?;
        for slot in &slots {
            slot.lock().node.run_request = Some(number);
            slot.wake.notify_waiters();
        }
        plane.run_requested.notify_one();
        Ok(RunRequested { number, nodes: slots.len() })
    })
    .await
}

pub(super) async fn request_tagged_run(
    call: OperatorCall,
    request: TaggedRunRequest,
) -> Result<TaggedRunRequested, Problem> {
    check_run_tags(&request.tags).map_err(|error| Problem::new(Code::RunRefused, error.to_string()))?;
    let plane = call.plane.clone();
    let slots = named(&plane, &request.nodes)?;
    run_to_completion(async move { store_tagged_run(&plane, slots, request.tags).await }).await
}

async fn store_tagged_run(
    plane: &ControlPlane,
    slots: Vec<Arc<NodeSlot>>,
    requested: BTreeSet<String>,
) -> Result<TaggedRunRequested, Problem> {
    // One at a time: a request takes in what stands of those before it.
    let _one = plane.requesting_runs.lock().await;
    let (mut able, mut too_old) = (Vec::new(), Vec::new());
    for slot in slots {
        let traits = plane.store.traits(&slot.id()).await.map_err(store_problem)?;
        // One that has not called yet says so when it does, or never confirms.
        match traits.is_none_or(|traits| traits.has_feature(TAGGED_RUNS)) {
            true => able.push(slot),
            false => too_old.push(slot.lock().node.hostname.clone()),
        }
    }
    let standing = |slot: &Arc<NodeSlot>| slot.lock().node.tagged_run.as_deref().cloned();
    let highest = able.iter().filter_map(standing).map(|run| run.number).max();
    let number = highest.map_or(number_of_now(), |highest| number_of_now().max(highest + 1));
    let mut runs = Vec::with_capacity(able.len());
    for slot in &able {
        let mut tags = requested.clone();
        tags.extend(standing(slot).into_iter().flat_map(|run| run.tags));
        check_together(slot, &tags)?;
        runs.push((slot.id(), TaggedRun { number, tags }));
    }
    plane.store.request_tagged_runs(runs.clone(), now()).await.map_err(store_problem)?;
    for (slot, (_, run)) in able.iter().zip(runs) {
        slot.lock().node.tagged_run = Some(Box::new(run));
        slot.wake.notify_waiters();
    }
    plane.run_requested.notify_one();
    Ok(TaggedRunRequested { number, nodes: able.len(), too_old })
}

fn named(plane: &ControlPlane, nodes: &[String]) -> Result<Vec<Arc<NodeSlot>>, Problem> {
    nodes.iter().map(|name| plane.index.named(name)).collect()
}

/// Milliseconds rise, so a later request replaces an earlier one on the node.
fn number_of_now() -> u64 {
    u64::try_from(now().0).unwrap_or(0)
}

/// The tags of a node's requests, those that stand among them, are within the bound of one.
fn check_together(slot: &NodeSlot, tags: &BTreeSet<String>) -> Result<(), Problem> {
    if tags.len() <= MAX_RUN_TAGS {
        return Ok(());
    }
    let (hostname, count) = (slot.lock().node.hostname.clone(), tags.len());
    let detail = format!(
        "{hostname} has not confirmed an earlier request yet, and with its tags there would be {count}, where \
         {MAX_RUN_TAGS} may be: wait until it has called, or request a run of all"
    );
    Err(Problem::new(Code::RunRefused, detail))
}
