//! [`SlowDisk`]: a disk some of whose operations wait until a test lets them through.

use std::sync::{Arc, Condvar, Mutex};

use spool::{Disk, DiskOp, FaultAction, Faults, Point};

use crate::wait::DEADLINE;

/// A disk whose syncs, or other operations, wait while a test holds them.
pub struct SlowDisk {
    is_slow: fn(&Point<'_>) -> bool,
    state: Mutex<SlowOps>,
    changed: Condvar,
}

/// How many slow operations began, and how many of them may end.
struct SlowOps {
    begun: usize,
    /// The operation of this number and all before it may end; `usize::MAX` while none is held.
    may_end: usize,
}

impl SlowDisk {
    /// Its syncs are slow.
    pub fn syncs() -> Arc<SlowDisk> {
        SlowDisk::when(|point| matches!(point.op, DiskOp::Sync | DiskOp::SyncDir))
    }

    /// These operations are slow.
    pub fn when(is_slow: fn(&Point<'_>) -> bool) -> Arc<SlowDisk> {
        let state = Mutex::new(SlowOps { begun: 0, may_end: usize::MAX });
        Arc::new(SlowDisk { is_slow, state, changed: Condvar::new() })
    }

    /// The disk.
    pub fn disk(self: &Arc<SlowDisk>) -> Disk {
        Disk::with_faults(self.clone())
    }

    /// Slow operations that begin from now on wait.
    pub fn hold(&self) {
        self.set(|state| state.may_end = state.begun);
    }

    /// The first of the operations that wait ends; those after it wait on.
    pub fn let_one_through(&self) {
        self.set(|state| state.may_end += 1);
    }

    /// All that wait end, and none waits any more.
    pub fn release(&self) {
        self.set(|state| state.may_end = usize::MAX);
    }

    /// Slow operations that began so far.
    pub fn begun(&self) -> usize {
        self.state.lock().unwrap().begun
    }

    /// Whether a slow operation waits at this moment.
    pub fn holds_one(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.begun > state.may_end
    }

    fn set(&self, change: impl FnOnce(&mut SlowOps)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Faults for SlowDisk {
    fn before(&self, point: Point<'_>) -> FaultAction {
        if (self.is_slow)(&point) {
            let mut state = self.state.lock().unwrap();
            state.begun += 1;
            let own = state.begun;
            // As long as a test may take, so that a failed one ends.
            let waits = |state: &mut SlowOps| state.may_end < own;
            drop(self.changed.wait_timeout_while(state, DEADLINE, waits).unwrap());
        }
        FaultAction::Go
    }
}
