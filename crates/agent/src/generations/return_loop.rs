//! [`ReturnLoop`]: the watchdog where there is no systemd, a process of the kept program in a session of its own.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::SpawnCompactly;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, setsid};
use spool::{SpoolError, StateLock};

use super::DIRECTORY;
use super::return_units::{SetUpUnitsError, runs};
use crate::machine::MachineOptions;

/// How long a loop that was started may take until it looks.
const LOOKS_WITHIN: Duration = Duration::from_secs(10);
/// How long one that starts waits for a look of others at its lock to be over.
const LOCK_WITHIN: Duration = Duration::from_secs(2);
const TURN: Duration = Duration::from_millis(20);
/// What it says once it looks.
const LOOKS: &[u8] = b"looks\n";

/// Why there is no loop.
#[derive(Debug, thiserror::Error)]
pub enum StartLoopError {
    /// The kept program cannot be run.
    #[error(transparent)]
    Program(#[from] SetUpUnitsError),
    /// It cannot be started.
    #[error("cannot start the loop that looks")]
    Start(#[source] io::Error),
    /// It ended, or did not say that it looks.
    #[error("the loop that looks was started, and does not look")]
    Silent,
    /// Its lock cannot be taken or looked at.
    #[error("cannot use the lock of the loop that looks")]
    Lock(#[source] SpoolError),
}

/// The loop of one state directory.
#[derive(Clone, Debug)]
pub struct ReturnLoop {
    options: MachineOptions,
    directory: PathBuf,
}

/// The loop is this process: no other one begins.
#[derive(Debug)]
pub struct LoopTurn {
    _lock: StateLock,
}

impl ReturnLoop {
    /// The loop for these options.
    pub fn new(options: &MachineOptions) -> ReturnLoop {
        ReturnLoop { options: options.clone(), directory: options.state_dir().join(DIRECTORY) }
    }

    /// Starts it, unless one looks.
    ///
    /// # Errors
    /// [`StartLoopError`]: none looks.
    pub fn start(&self, program: &Path) -> Result<(), StartLoopError> {
        if self.runs() {
            return Ok(());
        }
        runs(program)?;
        let mut command = Command::new(program);
        command.arg("--state").arg(self.options.state_dir());
        if let Some(root) = &self.options.root {
            command.arg("--root").arg(root);
        }
        if self.options.allow_exec {
            command.arg("--allow-exec");
        }
        command.arg("return").current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(StartLoopError::Start)?;
        let said = child.stdout.take().and_then(|mut out| {
            let timeout = Timespec::try_from(LOOKS_WITHIN).ok();
            poll(&mut [PollFd::new(&out.as_fd(), PollFlags::IN)], timeout.as_ref())
                .ok()
                .filter(|ready| *ready > 0)?;
            let mut said = [0; LOOKS.len()];
            out.read_exact(&mut said).ok().map(|()| said)
        });
        if said.as_ref().map(|said| &said[..]) != Some(LOOKS) {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(StartLoopError::Silent);
        }
        // Somebody must collect it when it ends; without a thread it stays a zombie until this process ends.
        let collected = std::thread::Builder::new().name("muster watchdog".to_owned());
        drop(collected.spawn_compactly(move || drop(child.wait())));
        Ok(())
    }

    /// Whether one looks.
    pub fn runs(&self) -> bool {
        self.holder().is_some()
    }

    /// Ends it, unless it is this process.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn end(&self) -> Result<(), StartLoopError> {
        let Some(pid) = self.holder().filter(|pid| *pid != std::process::id()) else { return Ok(()) };
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        kill_process(pid, Signal::TERM).map_err(|error| StartLoopError::Start(error.into()))
    }

    /// The process that looks.
    fn holder(&self) -> Option<u32> {
        match StateLock::acquire(&self.directory) {
            Err(SpoolError::Locked { pid, .. }) => pid,
            // None looks, or it cannot be told.
            Ok(_) | Err(_) => None,
        }
    }

    /// This process is the loop from now on, in a session of its own, and says so to whoever started it. `None`: another
    /// one looks.
    ///
    /// # Errors
    /// When the lock cannot be taken.
    pub fn begin(&self) -> Result<Option<LoopTurn>, StartLoopError> {
        // One that leads a session already has its own.
        let _ = setsid();
        let until = Instant::now() + LOCK_WITHIN;
        let turn = loop {
            match StateLock::acquire(&self.directory) {
                Ok(lock) => break Some(LoopTurn { _lock: lock }),
                // Whoever looks at the lock has it for a moment.
                Err(SpoolError::Locked { .. }) if Instant::now() < until => std::thread::sleep(TURN),
                Err(SpoolError::Locked { .. }) => break None,
                Err(error) => return Err(StartLoopError::Lock(error)),
            }
        };
        // Nobody waits for it where a person started it.
        let _ = io::stdout().write_all(LOOKS).and_then(|()| io::stdout().flush());
        Ok(turn)
    }
}
