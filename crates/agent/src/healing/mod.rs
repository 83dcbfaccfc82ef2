//! The watch over the host: what other hands change is told to the node at once (CNV-7).
//!
//! ```text
//! full run: HostWatch::follow(Desired) -> WatchPlan -> paths thread (inotify, /proc, fanotify)
//!                                                   -> units thread (D-Bus)
//! an event -> resources in a set, and a flag -> Daemon -> NodeInput::Touched -> node::Healing
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
use node::Touched;
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
    wanted: Mutex<WantedWatch>,
    /// `wanted` changed.
    changed: Condvar,
    /// The same, for the thread that waits for descriptors.
    wake: OwnedFd,
    touched: Mutex<Touched>,
    view: Mutex<WatchView>,
}

/// What the threads are to watch.
#[derive(Debug, Default)]
struct WantedWatch {
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
            wanted: Mutex::default(),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            touched: Mutex::default(),
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
            let mut wanted = lock(&self.0.wanted);
            match *wanted.plan == plan {
                true if try_again => {}
                true => return,
                false => wanted.plan = Arc::new(plan),
            }
            wanted.established = Some(established);
        }
        self.0.wake();
        // The run that follows looks at everything. Late is told by the thread's own look.
        let _ = watched.recv_timeout(ESTABLISH);
    }

    /// Finds out who changes these, and nobody else.
    pub(crate) fn want_culprits(&self, resources: BTreeSet<ResourceId>) {
        lock(&self.0.wanted).culprits = Arc::new(resources);
        self.0.wake();
    }

    /// What was touched since the last call.
    pub(crate) fn take(&self) -> Touched {
        std::mem::take(&mut *lock(&self.0.touched))
    }

    /// What the node makes of it, to be shown.
    pub(crate) fn show(&self, contended: &[Contention], scans: u64) {
        let mut view = lock(&self.0.view);
        view.scans = scans;
        if view.contended != contended {
            view.contended = contended.to_vec();
        }
    }

    /// What is watched, and what fights.
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
        lock(&self.wanted).plan.clone()
    }

    /// Resources may have been changed.
    fn touch(&self, resources: BTreeSet<ResourceId>) {
        self.tell(Touched { resources, ..Touched::default() });
    }

    /// Resources may have been changed, as events were lost.
    fn touch_unheard(&self, resources: BTreeSet<ResourceId>) {
        self.tell(Touched { unheard: resources, ..Touched::default() });
    }

    fn tell(&self, new: Touched) {
        if new.resources.is_empty() && new.unheard.is_empty() {
            return;
        }
        let mut touched = lock(&self.touched);
        touched.resources.extend(new.resources);
        touched.unheard.extend(new.unheard);
        drop(touched);
        self.daemon.touched();
    }

    fn tell_culprits(&self, found: BTreeMap<ResourceId, CulpritFinding>) {
        if !found.is_empty() {
            lock(&self.touched).culprits.extend(found);
            self.daemon.touched();
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
