//! [`Watch`]: which files of a folder changed, as the kernel reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::{MAX_DEPTH, is_read};
use crate::failure::UserError;

/// How often the kernel is asked; changes that come within this long of each other count as
/// one edit.
const TICK: Duration = Duration::from_millis(20);
/// The longest that an edit is waited for to settle.
const SETTLE_ROUNDS: usize = 50;
/// Room for events read at once.
const EVENTS: usize = 64 * 1024;

/// Why a folder cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel gives no watch.
    #[error("the folder cannot be watched")]
    Start(#[source] io::Error),
    /// A folder below it cannot be watched.
    #[error("{} cannot be watched", path.display())]
    Add {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Events cannot be read.
    #[error("changes of the folder cannot be read")]
    Read(#[source] io::Error),
}

impl UserError for WatchError {}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderChange {
    /// These files.
    Files(BTreeSet<String>),
    /// Folders came, went or moved, or too much happened at once: look at everything.
    Everything,
}

/// Watches a folder and all folders in it.
pub struct Watch {
    root: PathBuf,
    events: OwnedFd,
    folders: BTreeMap<i32, String>,
}

impl Watch {
    /// Starts watching. What changes from now on is seen.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(root: &Path) -> Result<Watch, WatchError> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let fd = fd.map_err(|errno| WatchError::Start(errno.into()))?;
        let mut watch = Watch { root: root.to_owned(), events: fd, folders: BTreeMap::new() };
        watch.add("", 0)?;
        Ok(watch)
    }

    fn add(&mut self, relative: &str, depth: usize) -> Result<(), WatchError> {
        let path = self.root.join(relative);
        let failed = |source| WatchError::Add { path: path.clone(), source };
        let flags = WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.events, &path, flags) {
            Ok(number) => drop(self.folders.insert(number, relative.to_owned())),
            // It went while it was looked at; its going is an event of its parent.
            Err(Errno::NOENT | Errno::NOTDIR) if depth > 0 => return Ok(()),
            Err(errno) => return Err(failed(errno.into())),
        }
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        for entry in fs::read_dir(&path).map_err(failed)?.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let below = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
                self.add(&below, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Waits for the next edit, and until it has settled. May be dropped and called again.
    ///
    /// # Errors
    /// When the kernel's events cannot be read.
    pub async fn next(&mut self) -> Result<FolderChange, WatchError> {
        let mut seen = FolderChange::Files(BTreeSet::new());
        while seen == FolderChange::Files(BTreeSet::new()) {
            tokio::time::sleep(TICK).await;
            self.drain(&mut seen)?;
        }
        for _ in 0..SETTLE_ROUNDS {
            tokio::time::sleep(TICK).await;
            if !self.drain(&mut seen)? {
                break;
            }
        }
        if seen == FolderChange::Everything {
            self.add("", 0)?;
        }
        Ok(seen)
    }

    /// Reads the events that wait; says whether there were any.
    fn drain(&self, seen: &mut FolderChange) -> Result<bool, WatchError> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS];
        let mut reader = Reader::new(&self.events, &mut buffer);
        let mut any = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(any),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(WatchError::Read(errno.into())),
            };
            any = true;
            let name = event.file_name().and_then(|name| name.to_str().ok()).unwrap_or_default();
            if name.starts_with('.') || event.events().contains(ReadFlags::IGNORED) {
                continue;
            }
            // A new file is of interest once it is written.
            if event.events() == ReadFlags::CREATE {
                continue;
            }
            let folder = self.folders.get(&event.wd());
            let whole = event.events().intersects(ReadFlags::ISDIR | ReadFlags::QUEUE_OVERFLOW);
            match (folder, seen as &mut FolderChange) {
                (Some(folder), FolderChange::Files(files)) if !whole => {
                    let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                    if is_read(&path) {
                        files.insert(path);
                    }
                }
                (_, FolderChange::Everything) => {}
                (_, seen) => *seen = FolderChange::Everything,
            }
        }
    }
}
