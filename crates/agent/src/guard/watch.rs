//! A thread keeps the time while a guard is up.

use std::sync::{Arc, TryLockError};
use std::time::Duration;

use host::SpawnCompactly;

use super::RunGuard;
use crate::generations::boot_moment;

/// How often the guard looks at the clock while it is up.
const TURN: Duration = Duration::from_millis(250);

impl RunGuard {
    /// A thread keeps the time as long as the guard is up. Without one the watchdog does.
    pub(super) fn watch(self: &Arc<RunGuard>) {
        if self.daemon.get().is_none() {
            return;
        }
        let guard = Arc::downgrade(self);
        let watch = move || {
            loop {
                std::thread::sleep(TURN);
                let Some(guard) = guard.upgrade() else { return };
                if !guard.look() {
                    return;
                }
            }
        };
        let builder = std::thread::Builder::new().name("muster guard".to_owned());
        if let Err(error) = builder.spawn_compactly(watch) {
            tracing::error!(%error, "no thread could be started: the watchdog alone guards the run");
        }
    }

    /// Does what is due; whether the guard is up still.
    fn look(self: &Arc<RunGuard>) -> bool {
        self.contact_if_due();
        let now = boot_moment().map(|now| now.at).ok();
        let is_due = self.next_deadline().is_some_and(|at| now.is_some_and(|now| at <= now));
        // A run has the host: what undoes waits for its end, and the watchdog for no longer than it does. A
        // contact is tried all the same: the run before must not be undone as a long one follows it.
        let _turn = match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.is_try_due() => None,
            Err(TryLockError::WouldBlock) => return true,
        };
        (!is_due || self.tick()) && self.live().is_some()
    }

    fn is_try_due(&self) -> bool {
        let live = self.live();
        let Some(guard) = live.as_ref() else { return false };
        boot_moment().is_ok_and(|now| guard.guard.is_try_due(now.at))
    }

    /// Begins the try that is due, where one is.
    fn contact_if_due(self: &Arc<RunGuard>) {
        let mut live = self.live();
        let due = live.as_mut().filter(|guard| guard.guard.is_trying() && !guard.asked).map(|guard| {
            guard.asked = true;
            guard.number
        });
        drop(live);
        if let (Some(number), Some(daemon)) = (due, self.daemon.get()) {
            daemon.try_contact(self.clone(), number);
        }
    }
}
