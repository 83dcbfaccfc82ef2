//! [`DelegationGate`]: what the release that is held lets the control plane ask for (OPS-2): by
//! its delegations, and of objects by its leave to synchronize (SYN-5).
//!
//! ```text
//! work thread:    gate: judge, execute   then marks and facts, which the storage thread appends
//! storage thread: gate: make a release durable, have its delegations count
//! ```
//!
//! Invariants: nothing is executed by the word of a release after the next one is durable; who judges
//! has the gate for moments, and waits for nobody with it, so that the storage thread may wait for the
//! gate; adoptions come one after the other: a release that is older by its number counts too, when it
//! is a fallback.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::replication::SyncPolicy;
use model::work::Delegation;
use model::{Digest, Timestamp};
use node::FreshnessRecord;

use crate::clock::{BUILT, now};

/// What the release that is held lets the control plane ask for.
#[derive(Clone, Debug, Default)]
pub struct Delegations {
    /// Changes with every adoption.
    pub number: u64,
    /// The release's number; 0 when none is held.
    pub seq: u64,
    /// What may be asked for; nothing while a release is being adopted.
    pub delegations: Arc<[Delegation]>,
    /// Which operations on objects; none while a release is being adopted.
    pub sync: Option<Arc<SyncPolicy>>,
    /// The newest signature that was verified.
    pub newest: Timestamp,
    /// The digest of the release's header.
    pub header: Option<Digest>,
    /// Until when anything may be asked for, by the time that trust goes by (ROL-4).
    pub fresh_until: Timestamp,
}

/// What is delegated, for all that judge by it.
#[derive(Debug, Default)]
pub struct DelegationGate {
    delegations: Mutex<Delegations>,
    /// [`Delegations::fresh_until`], for those who must not wait while a release is adopted.
    fresh_until: AtomicI64,
}

impl DelegationGate {
    /// What is held at the start.
    pub fn new(held: Delegations) -> DelegationGate {
        let fresh_until = AtomicI64::new(held.fresh_until.0);
        DelegationGate { delegations: Mutex::new(held), fresh_until }
    }

    /// Whether changes of the control plane may be taken now. Waits for nobody. The control plane's clock has no part
    /// in it: it could only end it sooner, which the node's step notices.
    pub fn is_fresh(&self) -> bool {
        now().max(BUILT).0 <= self.fresh_until.load(Ordering::Acquire)
    }

    /// What is held, for as long as the answer is kept: for moments, and not over a wait for the disk or
    /// for another thread.
    pub fn held(&self) -> MutexGuard<'_, Delegations> {
        // After a panic in an adoption nothing is delegated.
        self.delegations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How fresh what is held is counts from now on, unless another release is held by now; says whether one is
    /// held for which it counts.
    pub fn set_freshness(&self, freshness: &FreshnessRecord) -> bool {
        let mut held = self.held();
        if held.header != Some(freshness.header) {
            return false;
        }
        held.number += 1;
        (held.newest, held.fresh_until) = (freshness.newest_signature, freshness.fresh_until());
        self.fresh_until.store(held.fresh_until.0, Ordering::Release);
        true
    }

    /// Adopts a release by `durable`; `says` gives what it delegates, its number left out. What was
    /// held before is held still when `durable` fails.
    ///
    /// # Errors
    /// Those of `durable`.
    pub fn adopt<T, E>(
        &self,
        durable: impl FnOnce() -> Result<T, E>,
        says: impl FnOnce() -> Delegations,
    ) -> Result<T, E> {
        let mut held = self.held();
        let before = (std::mem::take(&mut held.delegations), held.sync.take());
        match durable() {
            Ok(adopted) => {
                // Also when it cannot be said what.
                held.number += 1;
                *held = Delegations { number: held.number, ..says() };
                self.fresh_until.store(held.fresh_until.0, Ordering::Release);
                Ok(adopted)
            }
            Err(error) => {
                (held.delegations, held.sync) = before;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn one() -> Delegations {
        Delegations {
            delegations: [Delegation::default()].into(),
            newest: Timestamp(1),
            ..Delegations::default()
        }
    }

    #[test]
    fn nothing_is_judged_while_a_release_is_adopted() {
        let gate = DelegationGate::new(one());
        let adopted: Result<(), ()> = gate.adopt(
            || {
                assert!(gate.delegations.try_lock().is_err(), "judged by the release before");
                Ok(())
            },
            || {
                assert!(gate.delegations.try_lock().is_err(), "judged before the new one counts");
                Delegations { newest: Timestamp(2), ..Delegations::default() }
            },
        );
        adopted.unwrap();
        let held = gate.held();
        assert_eq!((held.number, held.delegations.len(), held.newest), (1, 0, Timestamp(2)));
    }

    #[test]
    fn what_fails_changes_nothing_and_what_panics_allows_nothing() {
        let gate = DelegationGate::new(one());
        let failed: Result<(), ()> = gate.adopt(|| Err(()), || unreachable!());
        failed.unwrap_err();
        let held = gate.held().clone();
        assert_eq!((held.number, held.delegations.len()), (0, 1));
        let panics = || {
            let _: Result<(), ()> = gate.adopt(|| Ok(()), || panic!("a defect"));
        };
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert!(gate.held().delegations.is_empty());
    }
}
