//! SYN-2, SYN-5: an operation on an object is allowed by the release's leave to synchronize, on an
//! autonomous node, for an operation and a kind that it names; no delegation allows one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use catalog::{delegation, sync};
use model::replication::{Mode, ObjectOperation, SyncPolicy};
use model::work::{Delegation, OperationTarget, RefusalCode, Work};

fn policy(mode: Mode, kinds: &[&str], operations: &[ObjectOperation]) -> SyncPolicy {
    SyncPolicy {
        mode,
        kinds: kinds.iter().map(ToString::to_string).collect(),
        folder: Some("/srv/manifests".to_owned()),
        mismatch: Default::default(),
        max_delete_percent: SyncPolicy::MAX_DELETE_PERCENT,
        operations: operations.to_vec(),
    }
}

fn object(kind: &str) -> OperationTarget {
    OperationTarget { kind: kind.to_owned(), namespace: "web".to_owned(), name: "shop".to_owned() }
}

#[test]
fn each_reason_to_refuse_has_its_code() {
    use ObjectOperation::{Refresh, Sync};
    use RefusalCode::{KindNotSynchronized, NotAutonomous, OperationNotAllowed};
    let both = [Sync, Refresh];
    for (policy, operation, kind, want) in [
        (None, Sync, "Item", Err(NotAutonomous)),
        (Some(policy(Mode::Off, &["Item"], &both)), Sync, "Item", Err(NotAutonomous)),
        (Some(policy(Mode::Managed, &["Item"], &both)), Sync, "Item", Err(NotAutonomous)),
        (Some(policy(Mode::Autonomous, &["Item"], &[])), Sync, "Item", Err(OperationNotAllowed)),
        (Some(policy(Mode::Autonomous, &["Item"], &[Refresh])), Sync, "Item", Err(OperationNotAllowed)),
        (Some(policy(Mode::Autonomous, &["Item"], &[Sync])), Refresh, "Item", Err(OperationNotAllowed)),
        (Some(policy(Mode::Autonomous, &["Item"], &both)), Sync, "Other", Err(KindNotSynchronized)),
        (Some(policy(Mode::Autonomous, &["Item"], &both)), Sync, "item", Err(KindNotSynchronized)),
        (Some(policy(Mode::Autonomous, &["Item"], &[Refresh])), Refresh, "Item", Ok(())),
        (Some(policy(Mode::Autonomous, &["Other", "Item"], &both)), Sync, "Item", Ok(())),
    ] {
        let judged = sync::allows(policy.as_ref(), operation, &object(kind));
        assert_eq!(judged.map_err(|refusal| refusal.code), want, "{policy:?} {operation} {kind}");
    }
}

#[test]
fn no_delegation_allows_one() {
    let all = Delegation { commands: vec![vec!["/**".to_owned(), "**".to_owned()]], ..Delegation::default() };
    let work = Work::Operation { operation: ObjectOperation::Sync, object: object("Item") };
    assert_eq!(delegation::allows(&[all], &work), Err(delegation::NotDelegated::Operation));
}
