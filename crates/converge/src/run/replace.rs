//! A thing that Muster made and that is declared to be of another type now: a file that becomes a
//! directory. The old one is removed and the new one is made in one step (CNV-10).
//!
//! The ledger's entry keeps the old type until the new thing was found right, so that a run which was
//! killed, or in which the change failed, is followed by one that may still do it.

use std::sync::Arc;

use catalog::schema::{self, Manages};
use catalog::types::{InTheWay, Spec};

use super::Run;
use super::removal::placed;
use crate::{BoundResource, LedgerEntry};

/// Whether the ledger says that what stands at the resource's path is Muster's own, and of another type.
pub(super) fn replaces_own(entry: &LedgerEntry, resource: &BoundResource) -> bool {
    let whole = |kind| schema::find(kind).is_some_and(|kind| kind.manages == Manages::Path);
    entry.kind != resource.kind
        && entry.prior.is_missing()
        && whole(&entry.kind)
        && resource.path() == Some(entry.path.as_str())
        && matches!(
            &resource.spec,
            Ok(Spec::File(_) | Spec::Directory(_) | Spec::Symlink(_)) if !resource.is_absent()
        )
}

impl Run {
    /// Lets resources replace what Muster made at their path for a resource of another type.
    pub(super) fn let_own_be_replaced(&mut self) {
        let moving = self.removal.moving().iter().filter_map(|(old, new)| {
            Some((self.ledger.entries.get(old)?, self.desired.index.get(new).copied()?))
        });
        let known = placed(&self.ledger, &self.desired).filter_map(|(_, entry, place)| Some((entry, place?)));
        let own = |(entry, (m, slot)): (&LedgerEntry, (usize, usize))| {
            replaces_own(entry, self.resource(m, slot)).then_some((m, slot))
        };
        let own: Vec<(usize, usize)> = moving.chain(known).filter_map(own).collect();
        for (m, slot) in own {
            let module = Arc::make_mut(&mut self.desired.modules[m]);
            let resources = module.resources.len();
            let resource = match slot.checked_sub(resources) {
                None => &mut module.resources[slot],
                Some(handler) => &mut module.handlers[handler],
            };
            let in_the_way = match &mut Arc::make_mut(resource).spec {
                Ok(Spec::File(spec)) => &mut spec.in_the_way,
                Ok(Spec::Directory(spec)) => &mut spec.in_the_way,
                Ok(Spec::Symlink(spec)) => &mut spec.in_the_way,
                _ => continue,
            };
            if *in_the_way == InTheWay::Stays {
                *in_the_way = InTheWay::OwnIsReplaced;
            }
        }
    }

    /// The resource is as declared, so what stands there is of its type.
    pub(super) fn follow_kind(&mut self, resource: &BoundResource) {
        let Some(entry) = self.ledger.entries.get(&resource.id) else { return };
        if replaces_own(entry, resource) {
            let entry = LedgerEntry { kind: resource.kind.clone(), ..entry.clone() };
            self.remember(&resource.id, entry);
        }
    }
}
