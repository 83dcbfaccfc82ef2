//! [`Pending`]: what a run owes, and the next one if this one is killed (CFG-4).

use std::collections::{BTreeMap, BTreeSet};

use lang::Value;
use serde::{Deserialize, Serialize};

use crate::ResourceId;
use crate::ledger::{Prior, cannot_restore};

/// Notifications not yet acted on, and changes not yet verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// By target: who notified it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notified: BTreeMap<ResourceId, BTreeSet<ResourceId>>,
    /// By module with a `verify:`: how to undo what was changed, the first change first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unverified: BTreeMap<String, Vec<Undo>>,
}

/// How to undo one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Undo {
    /// The path that was changed; the resource's name where its type manages none.
    pub path: String,
    /// What was there before.
    #[serde(flatten)]
    pub prior: Prior,
    /// The prior bytes are in the blob store.
    pub kept: bool,
    /// The resource's type; empty in what an earlier version wrote, which knew paths alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// As [`LedgerEntry::attributes`](crate::LedgerEntry::attributes).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Value>,
    /// The files and directories around it that the change made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
}

impl Undo {
    /// Why it cannot bring everything back, if so.
    pub fn cannot_restore(&self) -> Option<&'static str> {
        cannot_restore(&self.prior, self.kept)
    }
}

/// What one apply put into [`Pending`] beforehand, to be taken back if it changes nothing.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    notified: Vec<ResourceId>,
    /// The type and the path or name of the [`Undo`].
    undo: Option<(String, String)>,
    unverified: bool,
}

impl Ahead {
    pub(super) fn stays_unverified(&mut self) {
        self.unverified = false;
    }

    /// What two tries of one apply put there.
    pub(super) fn and(mut self, last: Ahead) -> Ahead {
        self.notified.extend(last.notified);
        Ahead { undo: self.undo.or(last.undo), unverified: self.unverified || last.unverified, ..self }
    }
}

impl Pending {
    /// Nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.notified.is_empty() && self.unverified.is_empty()
    }

    /// Writes down what a change by `notifier` will cause: its notifications and, where its
    /// module (given by name) verifies, how to undo it. Nothing new yields `None`.
    pub(super) fn ahead(
        &mut self,
        notifier: &ResourceId,
        targets: &[ResourceId],
        verifies: Option<&str>,
        undo: Option<Undo>,
    ) -> Option<Ahead> {
        let mut ahead = Ahead::default();
        for target in targets {
            if self.notified.entry(target.clone()).or_default().insert(notifier.clone()) {
                ahead.notified.push(target.clone());
            }
        }
        if let Some(module) = verifies {
            ahead.unverified = !self.unverified.contains_key(module);
            let list = self.unverified.entry(module.to_owned()).or_default();
            ahead.undo = undo.as_ref().map(|undo| (undo.kind.clone(), undo.path.clone()));
            list.extend(undo);
        }
        (!ahead.notified.is_empty() || ahead.undo.is_some() || ahead.unverified).then_some(ahead)
    }

    /// Takes back what [`Pending::ahead`] wrote for a change that did not happen; how to undo
    /// it only if it surely did not (`undo_too`).
    pub(super) fn take_back(&mut self, notifier: &ResourceId, module: &str, ahead: &Ahead, undo_too: bool) {
        for target in &ahead.notified {
            self.forget(target, notifier);
        }
        if !undo_too {
            return;
        }
        if let Some((kind, path)) = &ahead.undo
            && let Some(list) = self.unverified.get_mut(module)
            && let Some(last) = list.iter().rposition(|undo| undo.kind == *kind && undo.path == *path)
        {
            list.remove(last);
        }
        if ahead.unverified {
            self.unverified.remove(module);
        }
    }

    /// Drops every notification that a resource of `module` caused.
    pub(super) fn drop_from(&mut self, module: &str) {
        for notifiers in self.notified.values_mut() {
            notifiers.retain(|notifier| notifier.module() != module);
        }
        self.notified.retain(|_, notifiers| !notifiers.is_empty());
    }

    fn forget(&mut self, target: &ResourceId, notifier: &ResourceId) {
        if let Some(notifiers) = self.notified.get_mut(target) {
            notifiers.remove(notifier);
            if notifiers.is_empty() {
                self.notified.remove(target);
            }
        }
    }
}
