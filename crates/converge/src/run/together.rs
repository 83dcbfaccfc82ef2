//! Resources that are applied in one go: packages, in one transaction (EXE-1).
//!
//! ```text
//! check differs -> gathered -> check the next, while it is independent -> Together
//! Together      -> no other module gathers, no transaction is out -> one job for all that wait
//! ```
//!
//! A module looks ahead over adjacent resources that are applied together. One that another of them
//! notifies or must come before, that has a condition, a guard or retries, or that only observes, ends
//! the gathering, so that what it sees is what it would see if each were applied by itself. Modules that
//! run beside each other share a transaction. Outcomes, ledger entries and notifications are each
//! resource's own; they become durable in one record before the transaction.

use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;

use super::module::ModulePhase;
use super::slot::Applying;
use super::{JobDone, JobFailure, JobOutcome, JobWork, Run, TogetherMember};
use crate::kinds::{Applied, Checked};
use crate::{BoundResource, When};

/// The most resources of one module in one transaction.
pub const MAX_TOGETHER: usize = 500;

/// A slot whose check differs and that waits for its transaction.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) slot: usize,
    checked: Checked,
    /// What its check took.
    spent: Duration,
}

/// A transaction that is out.
#[derive(Debug)]
pub(super) struct Transaction {
    began: Timestamp,
    members: Vec<MemberSlot>,
}

/// Whom one of its results goes to.
#[derive(Debug)]
struct MemberSlot {
    m: usize,
    slot: usize,
    applying: Applying,
    spent: Duration,
}

impl Run {
    /// Whether the change of a resource waits for others that are applied with it.
    pub(super) fn gathers(&self, m: usize, slot: usize) -> bool {
        slot < self.desired.modules[m].resources.len() && unconditional(self.resource(m, slot))
    }

    /// Puts a slot into its module's transaction, and goes on with the next one.
    pub(super) fn gather(&mut self, m: usize, slot: usize, checked: Checked) {
        let spent = self.now.since(self.modules[m].began);
        self.modules[m].gathered.push(Gathered { slot, checked, spent });
        self.modules[m].phase = self.after_slots(m, slot + 1);
    }

    /// Whether a slot may be looked at before what is gathered is applied.
    pub(super) fn joins(&self, m: usize, slot: usize) -> bool {
        let gathered = &self.modules[m].gathered;
        let Some(resource) = self.desired.modules[m].resources.get(slot) else { return false };
        let mut others = gathered.iter().map(|other| self.resource(m, other.slot));
        gathered.len() < MAX_TOGETHER
            && unconditional(resource)
            && !self.observes(resource)
            && others.all(|other| {
                other.together() == resource.together()
                    && !resource.depends_on.contains(&other.id)
                    && !resource.after.contains(&other.id)
            })
    }

    /// The next transaction, of all modules that wait for one; `None` while one is out, or another
    /// module still gathers.
    pub(super) fn transaction(&mut self) -> Option<(Transaction, JobWork)> {
        if self.parked.is_empty() || (0..self.modules.len()).any(|m| self.is_gathering(m)) {
            return None;
        }
        let mut transaction = Transaction { began: self.now, members: Vec::new() };
        let mut members = Vec::new();
        for m in std::mem::take(&mut self.parked) {
            for Gathered { slot, checked, spent } in std::mem::take(&mut self.modules[m].gathered) {
                self.modules[m].checked = Some(checked);
                let (resource, checked, _) = self.prepare(m, slot);
                let applying = self.modules[m].applying.take().unwrap_or_default();
                transaction.members.push(MemberSlot { m, slot, applying, spent });
                members.push(TogetherMember { resource, checked });
            }
        }
        let record = self.record();
        let work = match (members.pop(), members.is_empty()) {
            (Some(TogetherMember { resource, checked }), true) => {
                let notified = self.notifiers(&resource, false);
                JobWork::Apply { resource, checked, record, notified }
            }
            (last, _) => {
                members.extend(last);
                JobWork::ApplyTogether { members, record }
            }
        };
        Some((transaction, work))
    }

    /// Whether a module is about to join a transaction: it has gathered, or looks at what it may gather.
    fn is_gathering(&self, m: usize) -> bool {
        let looks = |slot| self.gathers(m, slot) && !self.observes(self.resource(m, slot));
        match self.modules[m].phase {
            ModulePhase::Slot(slot) => !self.modules[m].gathered.is_empty() || looks(slot),
            _ => false,
        }
    }

    /// Takes in what came of a transaction; its modules may go on.
    pub(super) fn settle_transaction(&mut self, transaction: Transaction, outcome: JobOutcome) {
        let Transaction { began, mut members } = transaction;
        let results = results(members.len(), outcome);
        for (at, result) in results.iter().enumerate() {
            // What another one of its module changed has to be verified all the same.
            let m = members[at].m;
            if !matches!(result, Ok(Applied { changed: false, .. })) {
                members
                    .iter_mut()
                    .filter(|other| other.m == m)
                    .for_each(|other| other.applying.stays_unverified());
            }
        }
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX).max(1);
        let share = self.now.since(began) / count;
        for (MemberSlot { m, slot, applying, spent }, result) in members.into_iter().zip(results) {
            let resume = self.modules[m].phase;
            self.modules[m].applying = Some(applying);
            self.modules[m].began = self.now.minus(spent + share);
            self.applied(m, slot, result);
            // It goes on where it stopped to gather, once all its results are in.
            self.modules[m].phase = resume;
            if !self.moving.contains(&m) {
                self.moving.push_back(m);
            }
        }
    }
}

/// It is applied with others, and nothing that the others change decides whether it is.
fn unconditional(resource: &Arc<BoundResource>) -> bool {
    resource.together().is_some()
        && matches!(resource.when, When::Always)
        && resource.guards.is_empty()
        && resource.retry.retries == 0
}

/// One result for each member.
fn results(count: usize, outcome: JobOutcome) -> Vec<Result<Applied, JobFailure>> {
    match outcome {
        Ok(JobDone::AppliedTogether(results)) if results.len() == count => results,
        Ok(JobDone::Applied(applied)) if count == 1 => vec![Ok(applied)],
        Ok(_) => vec![Err("the host answered a question that was not asked".into()); count],
        Err(why) => vec![Err(why); count],
    }
}
