//! [`Watch`]: which files of a folder changed, as the kernel reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::{DirectoryEvents, PathEvent, PathWatch, PathWatchError, WatchId};
use rustix::fs::OFlags;

use super::{MAX_DEPTH, is_read};
use crate::failure::UserError;

/// How often the kernel is asked; changes that come within this long of each other count as
/// one edit.
const TICK: Duration = Duration::from_millis(20);
/// The longest that an edit is waited for to settle.
const SETTLE_ROUNDS: usize = 50;

/// Why a folder cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel gives no watch.
    #[error("the folder cannot be watched")]
    Start(#[source] PathWatchError),
    /// A folder cannot be opened or listed.
    #[error("{} cannot be opened to be watched", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not watch a folder.
    #[error("{} cannot be watched", path.display())]
    Add {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: PathWatchError,
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
    events: PathWatch,
    folders: BTreeMap<WatchId, String>,
}

impl Watch {
    /// Starts watching. What changes from now on is seen.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(root: &Path) -> Result<Watch, WatchError> {
        let events = PathWatch::open().map_err(WatchError::Start)?;
        let mut watch = Watch { root: root.to_owned(), events, folders: BTreeMap::new() };
        watch.add("", 0)?;
        Ok(watch)
    }

    fn add(&mut self, relative: &str, depth: usize) -> Result<(), WatchError> {
        let path = self.root.join(relative);
        let failed = |source| WatchError::Open { path: path.clone(), source };
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
        let folder = match OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&path) {
            Ok(folder) => folder,
            // It went while it was looked at; its going is an event of its parent.
            Err(error) if depth > 0 && is_no_folder(&error) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let watched = self.events.add(&folder, DirectoryEvents::Closed);
        let watched = watched.map_err(|source| WatchError::Add { path: path.clone(), source })?;
        self.folders.insert(watched, relative.to_owned());
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        for entry in fs::read_dir(&path).map_err(failed)?.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(&below(relative, name), depth + 1)?;
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
        let mut any = false;
        let drained = self.events.drain(|event| {
            any = true;
            self.take(event, seen);
        });
        drained.map_err(WatchError::Read)?;
        Ok(any)
    }

    fn take(&self, event: PathEvent, seen: &mut FolderChange) {
        let is_new = matches!(event, PathEvent::Created(..));
        let (watch, name) = match event {
            PathEvent::Overflow => return *seen = FolderChange::Everything,
            // The event of its parent tells it.
            PathEvent::DirectoryRemoved(_) => return,
            PathEvent::Created(watch, name)
            | PathEvent::Replaced(watch, name)
            | PathEvent::Changed(watch, name) => (watch, name),
        };
        if name.starts_with('.') {
            return;
        }
        let path = self.folders.get(&watch).map(|folder| below(folder, &name));
        let Some(path) = path.filter(|path| !self.is_folder(path)) else {
            return *seen = FolderChange::Everything;
        };
        // A new file is of interest once it is written.
        if let (false, true, FolderChange::Files(files)) = (is_new, is_read(&path), seen) {
            files.insert(path);
        }
    }

    /// It is a folder, or was one that is watched.
    fn is_folder(&self, path: &str) -> bool {
        let was = self.folders.values().any(|folder| folder == path);
        was || fs::symlink_metadata(self.root.join(path)).is_ok_and(|found| found.is_dir())
    }
}

/// Nothing is there, or something that is no folder.
fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn below(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
