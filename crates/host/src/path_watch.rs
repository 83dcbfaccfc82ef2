//! [`PathWatch`]: what changes in directories, as the kernel tells it (inotify).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::{Host, PathProblem};

/// Room for events that are read at once, in bytes.
const EVENTS: usize = 16 * 1024;
/// So often events are read in one go: somebody may write faster than they are read.
const MAX_READS: usize = 4;
/// The most bytes of events that are taken in one go; each has at least 16.
pub const MAX_EVENTS_AT_ONCE: usize = MAX_READS * EVENTS;

/// What of a directory is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryEvents {
    /// Which entries come and go, and that the directory itself does.
    Entries,
    /// And what becomes of the entries, once who writes a file has closed it.
    Closed,
    /// And each write: a file may be written and never closed.
    Written,
}

impl DirectoryEvents {
    fn flags(self) -> WatchFlags {
        let entries = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::MASK_ADD;
        match self {
            DirectoryEvents::Entries => entries,
            DirectoryEvents::Closed => entries | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB,
            DirectoryEvents::Written => {
                entries | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::MODIFY
            }
        }
    }
}

/// A directory that is watched. One directory has one, by whatever path it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(i32);

/// A limit that keeps something from being watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchLimit {
    /// `fs.inotify.max_user_watches`.
    Watches,
    /// `fs.inotify.max_user_instances`.
    Instances,
    /// `fs.fanotify.max_user_groups`.
    WriterGroups,
    /// `fs.fanotify.max_user_marks`.
    WriterMarks,
}

impl WatchLimit {
    /// The kernel parameter that sets it.
    pub fn parameter(self) -> &'static str {
        match self {
            WatchLimit::Watches => "fs.inotify.max_user_watches",
            WatchLimit::Instances => "fs.inotify.max_user_instances",
            WatchLimit::WriterGroups => "fs.fanotify.max_user_groups",
            WatchLimit::WriterMarks => "fs.fanotify.max_user_marks",
        }
    }
}

/// Why something is not watched.
#[derive(Debug, thiserror::Error)]
pub enum PathWatchError {
    /// A limit of the kernel is reached.
    #[error("the kernel's limit {} is reached", .0.parameter())]
    Limit(WatchLimit),
    /// There is no such directory.
    #[error("there is no such directory")]
    NoDirectory,
    /// The directory cannot be opened.
    #[error("the directory cannot be opened")]
    Open(#[source] PathProblem),
    /// The kernel refuses.
    #[error("the kernel refuses to watch")]
    Refused(#[source] std::io::Error),
}

/// Something changed. It says where to look, and not what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// What is at an entry was changed.
    Changed(WatchId, String),
    /// An entry was made. A file's content may not be written yet: a change follows once it is.
    Created(WatchId, String),
    /// An entry went, was moved in, or is another one.
    Replaced(WatchId, String),
    /// The directory itself was moved or deleted; what is at its path may be another one.
    DirectoryRemoved(WatchId),
    /// Events were lost.
    Overflow,
}

/// Directories that are watched. Dropping it ends that.
#[derive(Debug)]
pub struct PathWatch {
    events: OwnedFd,
}

impl AsFd for PathWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl PathWatch {
    /// A watch over nothing. Its descriptor is readable when there are events.
    ///
    /// # Errors
    /// When the kernel has no more of them.
    pub fn open() -> Result<PathWatch, PathWatchError> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(events) => Ok(PathWatch { events }),
            Err(Errno::MFILE) => Err(PathWatchError::Limit(WatchLimit::Instances)),
            Err(errno) => Err(PathWatchError::Refused(errno.into())),
        }
    }

    /// Watches an open directory from now on; one that is watched already, by whatever path it was found, is
    /// watched for both. Only [`PathWatch::remove`] makes it less.
    ///
    /// # Errors
    /// When the kernel does not.
    pub fn add(&self, directory: &impl AsRawFd, events: DirectoryEvents) -> Result<WatchId, PathWatchError> {
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        match inotify::add_watch(&self.events, path, events.flags()) {
            Ok(number) => Ok(WatchId(number)),
            Err(Errno::NOSPC) => Err(PathWatchError::Limit(WatchLimit::Watches)),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(PathWatchError::NoDirectory),
            Err(errno) => Err(PathWatchError::Refused(errno.into())),
        }
    }

    /// Watches a directory no longer.
    pub fn remove(&self, watch: WatchId) {
        // One that is gone is not watched either.
        let _ = inotify::remove_watch(&self.events, watch.0);
    }

    /// Gives events that wait, at most [`MAX_EVENTS_AT_ONCE`] bytes of them, and none behind lost ones: the
    /// descriptor stays readable while there are more. Does not wait.
    ///
    /// # Errors
    /// When the kernel's events cannot be read.
    pub fn drain(&self, mut hear: impl FnMut(PathEvent)) -> std::io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS];
        let mut reader = Reader::new(&self.events, &mut buffer);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                if reads == MAX_READS {
                    return Ok(());
                }
                reads += 1;
            }
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let (watch, happened) = (WatchId(event.wd()), event.events());
            if happened.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Everything has to be looked at, so what else was read says nothing.
                hear(PathEvent::Overflow);
                return Ok(());
            }
            let gone =
                ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
            let Some(name) = event.file_name() else {
                if happened.intersects(gone) {
                    hear(PathEvent::DirectoryRemoved(watch));
                }
                continue;
            };
            // What is not UTF-8 is managed by nobody, and yet of interest where everything is.
            let name = name.to_string_lossy().into_owned();
            let replaced = ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            hear(match happened {
                _ if happened.contains(ReadFlags::CREATE) => PathEvent::Created(watch, name),
                _ if happened.intersects(replaced) => PathEvent::Replaced(watch, name),
                _ => PathEvent::Changed(watch, name),
            });
        }
    }
}

impl Host {
    /// Opens a directory of the host to watch it, links on the way followed where they can be trusted.
    ///
    /// # Errors
    /// When there is none, or it cannot be opened.
    pub fn directory_to_watch(&self, path: &str) -> Result<OwnedFd, PathWatchError> {
        self.directory(if path.is_empty() { "/" } else { path }).map_err(|problem| match problem {
            PathProblem::NoParent | PathProblem::NotDirectory => PathWatchError::NoDirectory,
            other => PathWatchError::Open(other),
        })
    }
}
