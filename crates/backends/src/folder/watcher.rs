//! The thread that looks at a folder whenever something happens there, and now and then.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use host::{DirectoryEvents, PathWatch, SpawnCompactly};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::statfs;
use rustix::io::Errno;

use super::file::SETTLE;
use super::state::FolderState;
use super::view::Presence;
use super::{Clock, lock};
use crate::backend::{BackendError, ChangeListener};

/// Time between two looks at a folder at rest whose changes the kernel tells, in milliseconds.
const RESCAN: u64 = 30_000;
/// The same where it cannot: a network file system, or no more watches.
const RESCAN_BLIND: u64 = 5_000;
/// The same where the folder is gone.
const RESCAN_GONE: u64 = 1_000;
/// The least time between two looks, in milliseconds.
const GAP: u64 = SETTLE / 3;

/// File systems that other machines change, by the magic numbers of statfs: NFS, SMB, CIFS,
/// SMB2, FUSE, 9P, AFS, Ceph, Coda, virtiofs, GFS2, OCFS2.
const SHARED: &[u64] = &[
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x7375_7245,
    0x6a65_6a63,
    0x0116_1970,
    0x7461_636f,
];

/// Ends the watch when it is dropped.
pub(super) struct Stop(Arc<OwnedFd>);

impl Drop for Stop {
    fn drop(&mut self) {
        // The thread takes the first of them.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Tells `changed` from now on, until the answer is dropped.
pub(super) fn start(
    state: &Arc<Mutex<FolderState>>,
    clock: &Clock,
    changed: ChangeListener,
) -> Result<Stop, BackendError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        BackendError::temporary("no-watch", format!("cannot watch the folder: {what}: {error}"))
    };
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| failed("eventfd", &errno))?;
    let stop = Arc::new(stop);
    // Without notifications, or without all of them, the folder is looked at more often.
    let notes = PathWatch::open().ok().map(Arc::new);
    let blind = Arc::new(AtomicBool::new(notes.is_none()));
    let watch = {
        let (notes, blind) = (notes.clone(), blind.clone());
        move |dir: &OwnedFd| {
            if notes.as_ref().is_some_and(|notes| notes.add(dir, DirectoryEvents::Closed).is_err()) {
                blind.store(true, Ordering::Relaxed);
            }
        }
    };
    lock(state).watch = Some((changed, Box::new(watch)));
    let watcher = Watcher { state: state.clone(), clock: clock.clone(), stop: stop.clone(), notes, blind };
    let builder = std::thread::Builder::new().name("objects-folder".to_owned());
    builder.spawn_compactly(move || watcher.run()).map_err(|error| failed("thread", &error))?;
    Ok(Stop(stop))
}

struct Watcher {
    state: Arc<Mutex<FolderState>>,
    clock: Clock,
    stop: Arc<OwnedFd>,
    notes: Option<Arc<PathWatch>>,
    blind: Arc<AtomicBool>,
}

impl Watcher {
    fn run(&self) {
        loop {
            let wait = {
                let mut state = lock(&self.state);
                state.poll((self.clock)());
                self.until_next(&state)
            };
            // Looks do not follow one another without rest, however much happens.
            if self.wait(GAP, false) || self.wait(wait.saturating_sub(GAP), true) {
                return;
            }
            self.drain();
        }
    }

    fn until_next(&self, state: &FolderState) -> u64 {
        if state.view.unsettled() {
            SETTLE / 2
        } else if matches!(state.view.presence(), Presence::Unusable(_)) {
            RESCAN_GONE
        } else if self.blind.load(Ordering::Relaxed) || shared(&state.path) {
            RESCAN_BLIND
        } else {
            RESCAN
        }
    }

    /// Waits; true when it is over for good.
    fn wait(&self, milliseconds: u64, for_notes: bool) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(milliseconds % 1000 * 1_000_000).unwrap_or(0),
        };
        let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
        if let Some(notes) = self.notes.as_ref().filter(|_| for_notes) {
            fds.push(PollFd::new(notes, PollFlags::IN));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => fds.first().is_some_and(|stop| !stop.revents().is_empty()),
            Err(_) => true,
        }
    }

    /// Takes all notifications: the look that follows sees what they are about.
    fn drain(&self) {
        let Some(notes) = &self.notes else { return };
        if notes.drain(|_| ()).is_err() {
            self.blind.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether other machines may change what is there.
fn shared(path: &std::path::Path) -> bool {
    statfs(path).is_ok_and(|it| SHARED.contains(&u64::try_from(it.f_type).unwrap_or(0)))
}
