//! Synchronized objects as operators see and change them (SYN-5, SYN-8).

pub(crate) mod apply;
pub(crate) mod list;
pub(crate) mod status;
mod trace;

use std::sync::Arc;

use model::replication::SyncPolicy;
use model::{Hostname, NodeId};
use store::StoreError;
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::hub::HubError;
use crate::index::Slot;
use crate::state::ControlPlane;

/// How objects are synchronized with a node by the set that it is pointed to; `None` when none
/// are.
pub(crate) async fn policy(plane: &ControlPlane, slot: &Slot) -> Result<Option<Arc<SyncPolicy>>, StoreError> {
    let heads = plane.heads();
    let pointed = slot.lock().node.pointed(&heads).map(|(_, entry)| entry.root);
    let Some(root) = pointed else { return Ok(None) };
    Ok(plane.grants.of(&root).await?.and_then(|granted| granted.sync.clone()))
}

/// Id and hostname of a node.
fn names(slot: &Slot) -> (NodeId, Hostname) {
    let entry = slot.lock();
    (entry.node.id.clone(), entry.node.hostname.clone())
}

/// A text in an error: what somebody wrote, cut.
fn clip(text: &str) -> String {
    text.chars().take(100).collect()
}

/// What a failure of the hub means to the one who asked.
pub(crate) fn hub_problem(error: HubError) -> Problem {
    match error {
        HubError::Store(error) => store_problem(error),
        HubError::Random | HubError::GivenUp => Problem::new(Code::Internal, error.to_string()),
    }
}
