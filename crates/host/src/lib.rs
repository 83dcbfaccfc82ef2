//! A root-confined host: files, accounts, processes, the service manager.
//!
//! Everything that Muster does to a machine goes through [`Host`]. Its paths are
//! absolute paths *of the host* and are resolved below the host's root, `/` or the
//! directory given to `muster-agent --root`. Invariants:
//!
//! - A write stays inside the managed path whatever symbolic links say: the last
//!   component is never followed, and a link on the way is followed only where no one
//!   but root and the agent could have made it ([`PathProblem::UntrustedLink`]).
//! - A write is atomic: at any moment, and after a crash at any moment, a path shows
//!   the old state or the new one, with its final mode and owner.
//! - Looking never blocks and never writes: a FIFO or a device is named, not read.
//! - A process gets a minimal environment, a time limit and an output limit, and takes
//!   its whole process group with it.
//!
//! Deliberately absent: what a resource is. This crate decides nothing about state.

mod accounts;
mod aside;
mod command;
mod dbus;
mod error;
mod find;
mod give;
mod heap;
mod links;
mod listing;
mod lock_holder;
mod mounts;
mod ownership;
mod path;
mod path_watch;
mod priority;
mod process;
mod real;
mod remove;
mod running;
mod stamp;
mod streaming;
mod system;
mod systemd;
mod threads;
mod usage;
mod write;
mod writers;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};

pub use accounts::{Accounts, User};
pub use command::{Cancel, Command, Program, SealedScript};
pub use dbus::BusError;
pub use error::{HostError, HostOperation, OpenHostError, PathProblem, RunError};
pub use give::GivenFile;
pub use heap::release_free_memory;
pub use listing::{ListedEntry, ListedKind, ListedNames};
pub use lock_holder::LockHolder;
pub use path_watch::{
    DirectoryEvents, MAX_EVENTS_AT_ONCE, PathEvent, PathWatch, PathWatchError, WatchId, WatchLimit,
};
pub use priority::lower_own_priority;
pub use process::{End, FinishedCommand, ProcessOutput, start_program};
pub use real::Real;
pub use stamp::FileVersion;
pub use streaming::{CommandEvent, StreamingCommand};
pub use system::Kernel;
pub use systemd::{
    JobEnd, Systemd, SystemdSession, UnitDetails, UnitEvent, UnitProperties, UnitVerb, UnitWatch, monotonic,
};
pub use threads::SpawnCompactly;
pub use usage::Usage;
pub use write::{FileWrite, Validate};
pub use writers::{SeenWriter, WriterWatch, WriterWatchError, WritingProcess};

/// The largest file, in bytes, that is read, hashed or written.
pub const MAX_FILE: u64 = 256 * 1024 * 1024;
/// What a resource's note says where owner and group cannot be set and need not be.
pub const OWNERSHIP_NOTE: &str = "ownership not enforced: rooted without privilege";

/// How a host is opened.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Under a root other than `/`: commands may run (they see the real host, with
    /// `MUSTER_ROOT` set). Without a root they always may.
    pub allow_exec: bool,
    /// Set it to end every running command, with its process group.
    pub cancel: Cancel,
}

/// A host below a root directory. Cheap to share behind an [`Arc`]; every operation
/// takes `&self`.
#[derive(Debug)]
pub struct Host {
    root: Arc<OwnedFd>,
    root_path: PathBuf,
    rooted: bool,
    allow_exec: bool,
    euid: u32,
    egid: u32,
    cancel: Cancel,
    /// Set once nobody waits any more for the job that this host was given to.
    job: Option<Cancel>,
    accounts: Arc<Mutex<accounts::AccountCache>>,
    systemd: Arc<Systemd>,
}

impl Host {
    /// Opens the host below `root`, an existing directory.
    ///
    /// # Errors
    /// When `root` cannot be opened as a directory.
    pub fn open(root: &Path, options: HostOptions) -> Result<Host, OpenHostError> {
        let failed = |source| OpenHostError { path: root.to_owned(), source };
        let root_path = root.canonicalize().map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&root_path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let uid = rustix::process::geteuid().as_raw();
        Ok(Host {
            root: Arc::new(fd),
            systemd: Arc::new(Systemd::new(&root_path, uid, options.cancel.clone())),
            rooted: root_path != Path::new("/"),
            root_path,
            allow_exec: options.allow_exec,
            euid: uid,
            egid: rustix::process::getegid().as_raw(),
            cancel: options.cancel,
            job: None,
            accounts: Arc::default(),
        })
    }

    /// The same host for one job: once the switch is used, it changes no path and runs no command.
    pub fn for_job(&self, switch: Cancel) -> Host {
        Host {
            root: Arc::clone(&self.root),
            root_path: self.root_path.clone(),
            rooted: self.rooted,
            allow_exec: self.allow_exec,
            euid: self.euid,
            egid: self.egid,
            cancel: self.cancel.clone(),
            job: Some(switch),
            accounts: Arc::clone(&self.accounts),
            systemd: Arc::clone(&self.systemd),
        }
    }

    /// Refuses to change a path for a job for which nobody waits any more.
    pub(crate) fn still_wanted(&self) -> Result<(), PathProblem> {
        match self.job.as_ref().is_some_and(Cancel::is_cancelled) {
            true => Err(PathProblem::Abandoned),
            false => Ok(()),
        }
    }

    /// The root is not `/`.
    pub fn rooted(&self) -> bool {
        self.rooted
    }

    /// The root directory on the real host.
    pub fn root(&self) -> &Path {
        &self.root_path
    }

    /// Work is being ended because the program that holds the host stops, or because nobody waits any more
    /// for the job that this host was given to.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || self.job.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// Commands may run here.
    pub fn exec_allowed(&self) -> bool {
        !self.rooted || self.allow_exec
    }

    /// Owner and group are set, and failing to is an error. Without privilege under a
    /// root they are left as they are, which the resource's note says.
    pub fn enforces_ownership(&self) -> bool {
        !self.rooted || self.euid == 0
    }

    /// The user that the agent runs as.
    pub fn euid(&self) -> u32 {
        self.euid
    }

    /// The host's accounts, as its passwd and group files had them at most a second ago.
    ///
    /// # Errors
    /// When one of the files is there and cannot be read.
    pub fn accounts(&self) -> Result<Arc<Accounts>, HostError> {
        accounts::current(self, false)
    }

    /// The host's accounts now: for a name that [`Host::accounts`] did not have, because a
    /// command may just have made it.
    ///
    /// # Errors
    /// As [`Host::accounts`].
    pub fn accounts_now(&self) -> Result<Arc<Accounts>, HostError> {
        accounts::current(self, true)
    }
}
