//! The watch over the host: what is changed out of band is reported to the node at once (CNV-7).
//!
//! ```text
//! full run: HostWatch::follow(Desired) -> WatchPlan -> paths thread (inotify, /proc, fanotify)
//!                                                   -> units thread (D-Bus)
//! an event -> resources in a set, and a flag -> Daemon -> NodeInput::SuspectedDrift -> node::Healing
//! ```
//!
//! Looking at units has a thread of its own, so that a bus that does not answer holds up nothing else.
//! Invariants: what waits for the daemon is a set of resources, so it is bounded by the plan and nothing of
//! it is lost; a run over everything begins once its plan is watched, so what changes from then on is
//! noticed; without events nothing wakes up but for kernel parameters, which have to be read.

mod culprits;
mod paths;
mod units;
mod unwatched;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use converge::{Desired, HostLayout, ResourceId, WatchPlan};
use host::Host;
use model::{Contention, CulpritFinding};
use node::SuspectedDrift;
use providers::Kinds;
use rustix::event::{EventfdFlags, eventfd};

use crate::events::DaemonHandle;

pub use view::WatchView;

/// How long a run waits until its resources are watched. Afterwards it begins, and what is watched later
/// is looked at once more.
const ESTABLISH: Duration = Duration::from_secs(10);

/// The watch over the host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HostWatch(Arc<WatchShared>);

struct WatchShared {
    host: Arc<Host>,
    kinds: Arc<Kinds>,
    daemon: DaemonHandle,
    desired: Mutex<DesiredWatch>,
    /// `desired` changed.
    changed: Condvar,
    /// The same, for the thread that waits for descriptors.
    wake: OwnedFd,
    suspected: Mutex<SuspectedDrift>,
    view: Mutex<WatchView>,
}

/// What the threads are to watch.
#[derive(Debug, Default)]
struct DesiredWatch {
    plan: Arc<WatchPlan>,
    /// Who waits until the plan is watched.
    established: Option<Sender<()>>,
    culprits: Arc<BTreeSet<ResourceId>>,
}

impl HostWatch {
    /// Begins to watch nothing.
    ///
    /// # Errors
    /// When the kernel has no descriptor or thread for it.
    pub(crate) fn start(kinds: Arc<Kinds>, daemon: DaemonHandle) -> std::io::Result<HostWatch> {
        let shared = Arc::new(WatchShared {
            host: kinds.host().clone(),
            kinds,
            daemon,
            desired: Mutex::default(),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            suspected: Mutex::default(),
            view: Mutex::default(),
        });
        paths::start(shared.clone())?;
        // The machine's units are not those below another root.
        if !shared.host.rooted() {
            units::start(shared.clone())?;
        }
        Ok(HostWatch(shared))
    }

    /// Watches what is desired instead of what it was, and tries again what could not be watched; returns
    /// when that is so.
    pub(crate) fn follow(&self, desired: &Desired) {
        let accounts = self.0.host.accounts().ok();
        let home = |user: &str| Some(accounts.as_ref()?.user(user)?.home);
        let rooted = self.0.host.rooted();
        let link_folders = if rooted { Vec::new() } else { providers::link_folders(&self.0.host) };
        let unpacked = |path: &str| self.0.kinds.unpacked(path);
        let layout = HostLayout { home: &home, link_folders, unpacked: &unpacked };
        let plan = WatchPlan::of(desired, &layout);
        let (established, watched) = channel();
        // A limit may have been raised, or a file system come that was away.
        let try_again = lock(&self.0.view).unwatched > 0;
        {
            let mut next = lock(&self.0.desired);
            match *next.plan == plan {
                true if try_again => {}
                true => return,
                false => next.plan = Arc::new(plan),
            }
            next.established = Some(established);
        }
        self.0.wake();
        // The run that follows looks at everything. Late is told by the thread's own look.
        let _ = watched.recv_timeout(ESTABLISH);
    }

    /// Finds out who changes these, and nobody else.
    pub(crate) fn find_culprits(&self, resources: BTreeSet<ResourceId>) {
        lock(&self.0.desired).culprits = Arc::new(resources);
        self.0.wake();
    }

    /// What was suspected since the last call.
    pub(crate) fn take(&self) -> SuspectedDrift {
        std::mem::take(&mut *lock(&self.0.suspected))
    }

    /// What the node makes of it, to be shown.
    pub(crate) fn show(&self, contended: &[Contention], scans: u64) {
        let mut view = lock(&self.0.view);
        view.scans = scans;
        if view.contended != contended {
            view.contended = contended.to_vec();
        }
    }

    /// What is watched, and what is contended.
    pub(crate) fn view(&self) -> WatchView {
        lock(&self.0.view).clone()
    }
}

impl WatchShared {
    fn wake(&self) {
        self.changed.notify_all();
        // The counter is full when nobody read it, and then the thread wakes up anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn plan(&self) -> Arc<WatchPlan> {
        lock(&self.desired).plan.clone()
    }

    /// Resources were perhaps changed.
    fn suspect(&self, resources: BTreeSet<ResourceId>) {
        self.add(SuspectedDrift { resources, ..SuspectedDrift::default() });
    }

    /// Resources were perhaps changed: events were lost.
    fn suspect_after_loss(&self, resources: BTreeSet<ResourceId>) {
        self.add(SuspectedDrift { after_lost_events: resources, ..SuspectedDrift::default() });
    }

    fn add(&self, new: SuspectedDrift) {
        if new.resources.is_empty() && new.after_lost_events.is_empty() {
            return;
        }
        let mut suspected = lock(&self.suspected);
        suspected.resources.extend(new.resources);
        suspected.after_lost_events.extend(new.after_lost_events);
        drop(suspected);
        self.daemon.suspect_drift();
    }

    fn add_culprits(&self, found: BTreeMap<ResourceId, CulpritFinding>) {
        if !found.is_empty() {
            lock(&self.suspected).culprits.extend(found);
            self.daemon.suspect_drift();
        }
    }

    fn show(&self, change: impl FnOnce(&mut WatchView)) {
        change(&mut lock(&self.view));
    }
}

/// What is guarded is changed by whole steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
