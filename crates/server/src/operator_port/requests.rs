//! Requests for runs: of all (DLT-5), and of what has a tag (CFG-7).

use std::collections::BTreeSet;
use std::sync::Arc;

use model::exchange::TAGGED_RUNS;
use model::tags::{MAX_RUN_TAGS, TaggedRun, check_run_tags};
use store::Store;
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::store_problem;
use crate::api::{RunRequest, RunRequested, TaggedRunRequest, TaggedRunRequested};
use crate::index::NodeSlot;
use crate::state::{ControlPlane, now, run_to_completion};

pub(super) async fn request_run(call: OperatorCall, request: RunRequest) -> Result<RunRequested, Problem> {
    let plane = call.plane.clone();
    let slots = call.nodes(&request.nodes).await?;
    let store = call.recording(OperatorCall::subject(&slots));
    run_to_completion(async move {
        let ids: Vec<_> = slots.iter().map(|slot| slot.id()).collect();
        let number = number_of_now();
        store.request_run(ids, number, now()).await.map_err(store_problem)?;
        for slot in &slots {
            slot.lock().node.change_open_items(|it| it.run_request = Some(number));
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
    let slots = call.nodes(&request.nodes).await?;
    let tags: Vec<&str> = request.tags.iter().map(String::as_str).collect();
    let store = call.recording(OperatorCall::subject(&slots).and(format!("tags {}", tags.join(", "))));
    run_to_completion(async move { store_tagged_run(&plane, &store, slots, request.tags).await }).await
}

async fn store_tagged_run(
    plane: &ControlPlane,
    store: &Store,
    slots: Vec<Arc<NodeSlot>>,
    requested: BTreeSet<String>,
) -> Result<TaggedRunRequested, Problem> {
    // One at a time: a request takes in what stands of those before it.
    let _one = plane.requesting_runs.lock().await;
    let (mut able, mut too_old, mut too_many_tags) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = number_of_now();
    for slot in slots {
        let traits = plane.store.traits(&slot.id()).await.map_err(store_problem)?;
        let (hostname, standing) = {
            let entry = slot.lock();
            (entry.node.hostname.clone(), entry.node.open_items().tagged_run.clone())
        };
        // One that has not called yet says so when it does, or never confirms.
        if !traits.is_none_or(|traits| traits.has_feature(TAGGED_RUNS)) {
            too_old.push(hostname);
            continue;
        }
        let mut tags = requested.clone();
        if let Some(standing) = standing {
            number = number.max(standing.number + 1);
            tags.extend(standing.tags);
        }
        // A node that does not answer holds up nobody else.
        match tags.len() <= MAX_RUN_TAGS {
            true => able.push((slot, tags)),
            false => too_many_tags.push(hostname),
        }
    }
    let run = |(slot, tags): &(Arc<NodeSlot>, BTreeSet<String>)| {
        (slot.id(), TaggedRun { number, tags: tags.clone() })
    };
    let runs = able.iter().map(run).collect();
    store.request_tagged_runs(runs, now()).await.map_err(store_problem)?;
    let nodes = able.len();
    for (slot, tags) in able {
        let node = &mut slot.lock().node;
        node.change_open_items(|it| it.tagged_run = Some(TaggedRun { number, tags }));
        node.summary.unknown_tags = Box::default();
        slot.wake.notify_waiters();
    }
    plane.run_requested.notify_one();
    Ok(TaggedRunRequested { number, nodes, too_old, too_many_tags })
}

/// Milliseconds rise, so a later request replaces an earlier one on the node.
fn number_of_now() -> u64 {
    u64::try_from(now().0).unwrap_or(0)
}
