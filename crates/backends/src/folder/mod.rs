//! [`Folder`]: a watched folder of manifests (SYN-9).
//!
//! Users put manifests anywhere below the folder, in files named `*.yaml`, `*.yml` or
//! `*.json`; hidden names are ignored. What synchronization puts there goes to
//! `KIND/NAMESPACE/NAME.yaml`, the kind in lower case, `_` for no namespace. The status of an
//! object lies beside its file as `FILE.status.json`; where a file holds several objects, as
//! `FILE.KIND.NAMESPACE.NAME.status.json`. Local tools write it, and it is read as the status.
//!
//! An operation on an object lies beside its file as `FILE.operation.json` (and as
//! `FILE.KIND.NAMESPACE.NAME.operation.json` in the same way) until the local tool that carries it
//! out removes it. Muster writes it and never reads it.
//!
//! Invariants:
//!
//! - Nothing outside the folder is read or written, whatever links say.
//! - A file that is empty, half written or unreadable keeps what it said before, as a problem.
//!   If that is not known (after a restart), the listing is incomplete, and nothing may be
//!   taken for deleted until the file is mended or removed.
//! - A folder that is gone, or is suddenly another and empty, deletes nothing.
//! - The listener hears of no change made here; touching or reformatting a file is no change.
//! - Looking at the whole folder is the truth; notifications of the kernel only say when.
//!
//! Finalizers mean nothing in a folder: nobody would run them. They are kept as they are.

mod disk;
mod file;
mod names;
mod state;
mod tree;
mod view;
mod watcher;
mod write;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::ObjectKey;

use crate::backend::{
    AppliedVersion, ApplyRequest, Backend, BackendError, ChangeListener, Deleted, Expect, FoundObject,
    Listing, OperationRequest,
};
use state::FolderState;
use view::Presence;

/// Milliseconds that never go back, from anywhere.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A watched folder.
pub struct Folder {
    state: Arc<Mutex<FolderState>>,
    clock: Clock,
    /// Held for its drop.
    watcher: Option<watcher::Stop>,
}

impl Folder {
    /// The folder at an absolute path without links; it may be missing yet. Nothing is
    /// looked at before the first call.
    pub fn new(path: &Path) -> Folder {
        let start = Instant::now();
        let clock = move || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Folder::with_clock(path, Arc::new(clock))
    }

    /// Makes the folder at an absolute path, and what is missing above it, with mode 0755; says
    /// whether it was missing. For a folder that was never there: one that vanished comes back
    /// by itself, or an operator brings it back.
    ///
    /// # Errors
    /// Temporary `folder-gone`, with the path and why: no part of it may be a link.
    pub fn make(path: &Path) -> Result<bool, BackendError> {
        write::make_folder(path)
    }

    /// [`Folder::new`] with another clock, for tests.
    pub fn with_clock(path: &Path, clock: Clock) -> Folder {
        Folder { state: Arc::new(Mutex::new(FolderState::new(path))), clock, watcher: None }
    }

    /// Looks at the folder now, and notifies the listener if anything is new. A watch does that by
    /// itself; without one, [`Backend::list`] does.
    pub fn poll(&mut self) {
        let now = (self.clock)();
        self.lock().poll(now);
    }

    fn lock(&self) -> MutexGuard<'_, FolderState> {
        lock(&self.state)
    }
}

impl Backend for Folder {
    /// What has settled, after a look at the folder.
    fn list(&mut self) -> Listing {
        self.poll();
        self.lock().view.listing()
    }

    fn get(&mut self, key: &ObjectKey) -> Result<Option<FoundObject>, BackendError> {
        self.started();
        Ok(self.lock().view.object(key).map(|placed| placed.found.clone()))
    }

    /// Temporary `unsettled` when an expectation is to be checked against a file that somebody
    /// is writing, and `folder-gone` when there is no folder.
    fn apply(&mut self, apply: ApplyRequest<'_>) -> Result<AppliedVersion, BackendError> {
        self.started();
        self.lock().apply(&apply)
    }

    fn delete(&mut self, key: &ObjectKey, expect: &Expect) -> Result<Deleted, BackendError> {
        self.started();
        self.lock().delete(key, expect)
    }

    fn request_operation(&mut self, key: &ObjectKey, request: &OperationRequest) -> Result<(), BackendError> {
        self.started();
        self.lock().request_operation(key, request)
    }

    fn assign_uid(&mut self, key: &ObjectKey, uid: &str) {
        self.lock().view.assign_uid(key, uid);
    }

    fn watch(&mut self, changed: ChangeListener) -> Result<(), BackendError> {
        self.watcher = Some(watcher::start(&self.state, &self.clock, changed)?);
        Ok(())
    }
}

impl Folder {
    /// The folder has been looked at once.
    fn started(&mut self) {
        if *self.lock().view.presence() == Presence::Unknown {
            self.poll();
        }
    }
}

/// The state is changed by whole steps; after a panic between two of them the next look
/// makes it right.
fn lock(state: &Mutex<FolderState>) -> MutexGuard<'_, FolderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
