//! Synchronized objects as operators see and change them (SYN-5, SYN-8).

pub(crate) mod apply;
pub(crate) mod list;
pub(crate) mod status;
mod trace;

use std::sync::Arc;

use model::Kind;
use model::replication::SyncPolicy;
use store::StoreError;
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::hub::HubError;
use crate::index::NodeSlot;
use crate::state::ControlPlane;

/// How objects are synchronized with a node by the set that it is pointed to.
pub(crate) async fn policy(plane: &ControlPlane, slot: &NodeSlot) -> Result<Arc<SyncPolicy>, StoreError> {
    let Some(root) = slot.pointed_root(&plane.heads()) else { return Ok(Arc::default()) };
    Ok(plane.grants.of(&root).await?.map(|granted| granted.sync.clone()).unwrap_or_default())
}

/// Kinds that are shown where they belong, with tasks and with their objects, and that no operator
/// writes.
fn is_internal(kind: &Kind) -> bool {
    kind.as_str() == Kind::ACTION || sync::object::is_status(kind)
}

/// What a failure of the hub means to the one who asked.
pub(crate) fn hub_problem(error: HubError) -> Problem {
    match error {
        HubError::Store(error) => store_problem(error),
        HubError::Random | HubError::GivenUp(_) => Problem::new(Code::Internal, error.to_string()),
    }
}
