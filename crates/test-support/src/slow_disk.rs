//! [`SlowDisk`]: a disk some of whose operations take long, or wait until they are let through.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use spool::{Disk, DiskOp, FaultAction, Faults, Point};

use crate::wait::DEADLINE;

/// A disk whose syncs, or other operations, take long or wait.
pub struct SlowDisk {
    is_slow: fn(&Point<'_>) -> bool,
    state: Mutex<SlowOps>,
    changed: Condvar,
}

/// What becomes of the operations that are slow.
#[derive(Default)]
pub struct SlowOps {
    /// How long each takes.
    pub takes: Duration,
    /// None ends any more.
    pub held: bool,
    /// Begun so far.
    pub begun: usize,
}

impl SlowDisk {
    /// Its syncs are slow.
    pub fn syncs() -> Arc<SlowDisk> {
        SlowDisk::when(|point| matches!(point.op, DiskOp::Sync | DiskOp::SyncDir))
    }

    /// These operations are slow.
    pub fn when(is_slow: fn(&Point<'_>) -> bool) -> Arc<SlowDisk> {
        Arc::new(SlowDisk { is_slow, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The disk.
    pub fn disk(self: &Arc<SlowDisk>) -> Disk {
        Disk::with_faults(self.clone())
    }

    /// From now on slow operations take so long, or wait.
    pub fn set(&self, change: impl FnOnce(&mut SlowOps)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Slow operations that began so far.
    pub fn begun(&self) -> usize {
        self.state.lock().unwrap().begun
    }
}

impl Faults for SlowDisk {
    fn before(&self, point: Point<'_>) -> FaultAction {
        if (self.is_slow)(&point) {
            let mut state = self.state.lock().unwrap();
            state.begun += 1;
            // As long as a test may take, so that a failed one ends.
            let (state, _) = self.changed.wait_timeout_while(state, DEADLINE, |state| state.held).unwrap();
            let takes = state.takes;
            drop(state);
            std::thread::sleep(takes);
        }
        FaultAction::Go
    }
}
