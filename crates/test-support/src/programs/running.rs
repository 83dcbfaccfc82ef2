//! A program that runs beside the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until_blocking as until;

/// A program that runs; killed when it goes.
pub struct Running {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Starts it; what it prints is in a file beside its log.
    pub(super) fn start(mut command: Command, log: &Path) -> Running {
        let out = log.with_extension("out");
        let logged = File::options().create(true).append(true).open(log).unwrap();
        command.stdout(File::create(&out).unwrap()).stderr(logged);
        Running { child: command.spawn().unwrap(), out, log: log.to_owned() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end and waits.
    pub fn end(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        until("it ends when it is asked to", || self.child.try_wait().unwrap())
    }

    /// Waits until it ends by itself, with this exit code; gives what it printed.
    #[track_caller]
    pub fn out_at_end(mut self, code: i32) -> String {
        let status = until("it ends", || self.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(code), "{}{}", self.out(), self.log());
        self.out()
    }

    /// It did not end yet.
    pub fn is_there(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Makes an agent check in and converge at once.
    pub fn nudge(&self) {
        self.signal(Signal::HUP);
    }

    /// What it printed for its user.
    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it said beside that.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}{}", self.log.display(), self.out(), self.log());
        }
    }
}
