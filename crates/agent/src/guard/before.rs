//! Before a change that can cut the host off: it is made in a guard, or not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use activation::guarded::{
    GuardAdmission, GuardHold, GuardOrder, GuardSituation, GuardedActivation, ReleaseTrial, admit_guarded,
    admit_in_return,
};
use activation::{ActivationRecord, BootMoment, Generation, GenerationId};
use converge::TakeBack;
use spool::PeekedFile;

use super::{GuardedChange, GuardedChanges, GuardedRun, LiveGuard, RunGuard, locked};
use crate::generations::boot_moment;
use crate::render::chain;

impl RunGuard {
    /// A resource is about to be changed that can cut the host off.
    ///
    /// # Errors
    /// In words, when it must not be: nothing would undo it, or the host returned from just this.
    pub(crate) fn before(
        self: &Arc<RunGuard>,
        run: &GuardedRun,
        change: GuardedChange,
    ) -> Result<(), String> {
        let mut live = self.live();
        let now = boot_moment().map_err(|error| unguarded(&chain(&error)))?;
        match self.admit(live.as_ref(), run, &now)? {
            GuardAdmission::Joins => match live.as_mut() {
                Some(guard) => self.join(guard, change),
                None => Err(unguarded("there is no guard to join")),
            },
            GuardAdmission::GuardedByTrial => Ok(()),
            GuardAdmission::HeldBack(hold) => {
                let mut withheld = locked(&self.withheld);
                withheld.resources.insert(change.resource);
                let text = hold.to_string();
                if let GuardHold::Undone { change, .. } = hold {
                    withheld.change = Some(change);
                }
                Err(text)
            }
            GuardAdmission::Arms(order) => {
                *live = Some(self.arm(*order, run, change, &now)?);
                self.up.store(true, Ordering::Relaxed);
                drop(live);
                self.tell_changed();
                self.watch();
                Ok(())
            }
        }
    }

    /// A return from a release is about to change it.
    ///
    /// # Errors
    /// In words, when it must not be made.
    pub(crate) fn before_return(&self, run: &GuardedRun) -> Result<(), String> {
        match self.files.peek() {
            Ok(PeekedFile::Value(record)) => {
                admit_in_return(&record, run.change_id()).map_err(|hold| hold.to_string())
            }
            Ok(PeekedFile::Absent | PeekedFile::Damaged) => Ok(()),
            // A return waits for no disk.
            Err(error) => {
                tracing::warn!(error = %chain(&error), "nobody knows what this host undid before");
                Ok(())
            }
        }
    }

    fn admit(
        &self,
        live: Option<&LiveGuard>,
        run: &GuardedRun,
        now: &BootMoment,
    ) -> Result<GuardAdmission, String> {
        let (mut trial, mut record) = (ReleaseTrial::None, ActivationRecord::default());
        if live.is_none() {
            trial = match self.trials.peek().map_err(|error| unguarded(&chain(&error)))? {
                PeekedFile::Value(record) => ReleaseTrial::of(&record),
                PeekedFile::Absent => ReleaseTrial::None,
                PeekedFile::Damaged => ReleaseTrial::UnderWay,
            };
            record = match self.files.peek().map_err(|error| unguarded(&chain(&error)))? {
                PeekedFile::Value(record) => record,
                PeekedFile::Absent | PeekedFile::Damaged => record,
            };
        }
        let id = match live {
            Some(guard) => guard.guard.target(),
            None => run.change_id(),
        };
        Ok(admit_guarded(&GuardSituation {
            under_way: live.map(|guard| &guard.guard.record().under_way),
            trial,
            record: &record,
            target: Generation { id, seq: run.seq, bytes: 0 },
            contacts: &locked(&self.contacts),
            policy: run.policy,
            now,
        }))
    }

    fn join(&self, guard: &mut LiveGuard, change: GuardedChange) -> Result<(), String> {
        let mut changes = guard.changes.clone();
        let agent = change.agent;
        changes.add(change)?;
        self.changes.store(&changes).map_err(|error| unguarded(&chain(&error)))?;
        guard.changes = changes;
        if agent {
            guard.guard.touches_agent();
        }
        Ok(())
    }

    fn arm(
        &self,
        order: GuardOrder,
        run: &GuardedRun,
        change: GuardedChange,
        now: &BootMoment,
    ) -> Result<LiveGuard, String> {
        let mut changes = GuardedChanges { seq: run.seq, ..GuardedChanges::none(order.target()) };
        changes.add(change)?;
        self.changes.store(&changes).map_err(|error| unguarded(&chain(&error)))?;
        let (mut guard, effects) = GuardedActivation::begin(order, now);
        if changes.touches_agent() {
            guard.touches_agent();
        }
        let mut guard = LiveGuard::new(self.next_number(), guard, changes);
        let refused = self.carry_out_all(&mut guard, effects);
        if guard.guard.is_armed() {
            return Ok(guard);
        }
        self.forget_changes();
        Err(unguarded(&refused.unwrap_or_else(|| "the guard did not begin".to_owned())))
    }
}

impl GuardedRun {
    /// The host returns from a release by it.
    pub(crate) fn is_return(&self) -> bool {
        self.taken_back != TakeBack::Nothing
    }

    /// What identifies all that it changes of the way in.
    fn change_id(&self) -> GenerationId {
        GenerationId(converge::guarded::guarded_digest(&self.desired, self.root))
    }
}

fn unguarded(why: &str) -> String {
    format!("not changed, as nothing would undo it if it cut this host off: {why}")
}
