//! A started command: fed, read and watched until it and its process group have ended.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::thread::Builder;
use std::time::{Duration, Instant};

use model::work::OutputStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, test_kill_process_group,
    waitid,
};

use crate::{Cancel, Command, End, SpawnCompactly};

/// How long a process group has between being asked to end and being killed.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long outputs may stay open after the command itself has ended: children that it
/// left behind hold them.
const EOF_GRACE: Duration = Duration::from_millis(500);
/// How long a killed process may take to go before it is left to itself.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// The longest wait between two looks at the cancel switch.
const CANCEL_TICK: Duration = Duration::from_millis(200);
/// The wait between two looks where the kernel cannot tell that a process ended.
const EXIT_TICK: Duration = Duration::from_millis(20);
/// The first wait between two looks at a process group that is ending; it doubles.
const GROUP_TICK: Duration = Duration::from_millis(2);
/// The longest wait between two looks at a process group that is ending.
const MAX_GROUP_TICK: Duration = Duration::from_millis(100);
/// How much is read from an output at a time, in bytes.
const CHUNK: usize = 64 * 1024;
/// How many chunks are read from one output before the other and the clock have a turn.
const TURN: usize = 16;

/// Who hears what a command prints, as it comes, at most [`CHUNK`] bytes at a time.
pub(crate) type OutputSink<'a> = &'a mut dyn FnMut(OutputStream, &[u8]);

/// An output that is being read.
struct Capture {
    stream: OutputStream,
    pipe: Option<OwnedFd>,
}

impl Capture {
    /// Reads what is there, for a turn; closes at the end.
    fn read(&mut self, buffer: &mut [u8], sink: OutputSink<'_>) -> io::Result<()> {
        for _ in 0..TURN {
            let Some(pipe) = &self.pipe else {
                return Ok(());
            };
            match rustix::io::read(pipe, &mut *buffer) {
                Ok(0) => self.pipe = None,
                Ok(got) => sink(self.stream, &buffer[..got]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// What is being done to end a process group.
#[derive(Clone, Copy)]
enum GroupEnd {
    /// Nothing.
    No,
    /// It was asked; at the instant it is killed.
    Asked(End, Instant),
    /// It was killed; at the instant it is left to itself.
    Killed(End, Instant),
}

/// A started command.
pub(crate) struct RunningCommand {
    child: Option<Child>,
    group: Pid,
    pidfd: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    input: Vec<u8>,
    sent: usize,
    stdout: Capture,
    stderr: Capture,
    deadline: Instant,
    ending: GroupEnd,
    exited: Option<Instant>,
}

impl RunningCommand {
    pub(crate) fn new(mut child: Child, command: &Command) -> RunningCommand {
        let group = Pid::from_child(&child);
        RunningCommand {
            group,
            pidfd: pidfd_open(group, PidfdFlags::empty()).ok(),
            stdin: child.stdin.take().map(OwnedFd::from),
            input: command.stdin.clone(),
            sent: 0,
            stdout: Capture { stream: OutputStream::Stdout, pipe: child.stdout.take().map(OwnedFd::from) },
            stderr: Capture { stream: OutputStream::Stderr, pipe: child.stderr.take().map(OwnedFd::from) },
            deadline: Instant::now() + command.timeout,
            ending: GroupEnd::No,
            exited: None,
            child: Some(child),
        }
    }

    /// Feeds it, reads it and watches the clock until it has ended. Any of the switches
    /// ends it.
    pub(crate) fn attend(&mut self, cancels: &[&Cancel], sink: OutputSink<'_>) -> io::Result<End> {
        for pipe in [&self.stdin, &self.stdout.pipe, &self.stderr.pipe].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            let now = Instant::now();
            self.press(now, cancels);
            let abandoned = matches!(self.ending, GroupEnd::Killed(_, until) if now >= until);
            let closed = self.stdout.pipe.is_none() && self.stderr.pipe.is_none();
            let ended = self.exited.is_some_and(|at| closed || now >= at + EOF_GRACE);
            if ended || abandoned {
                break;
            }
            self.wait(now)?;
            self.write()?;
            self.stdout.read(&mut buffer, sink)?;
            self.stderr.read(&mut buffer, sink)?;
            if self.exited.is_none() && self.has_exited()? {
                self.exited = Some(Instant::now());
            }
        }
        let status = self.finish()?;
        Ok(match (self.ending, status) {
            (GroupEnd::Asked(end, _) | GroupEnd::Killed(end, _), _) => end,
            (GroupEnd::No, Some(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => End::Exited(code),
                (None, signal) => End::Signaled(signal.unwrap_or_default()),
            },
            (GroupEnd::No, None) => End::TimedOut,
        })
    }

    /// Ends the group when its time is over: asks first, then kills.
    fn press(&mut self, now: Instant, cancels: &[&Cancel]) {
        match self.ending {
            GroupEnd::No if self.exited.is_none() => {
                let end = if cancels.iter().any(|cancel| cancel.is_cancelled()) {
                    End::Cancelled
                } else if now >= self.deadline {
                    End::TimedOut
                } else {
                    return;
                };
                self.signal(Signal::TERM);
                self.ending = GroupEnd::Asked(end, now + TERM_GRACE);
            }
            GroupEnd::Asked(end, until) if now >= until => {
                self.signal(Signal::KILL);
                self.ending = GroupEnd::Killed(end, now + KILL_WAIT);
            }
            GroupEnd::No | GroupEnd::Asked(..) | GroupEnd::Killed(..) => {}
        }
    }

    /// Waits until something can be read, written or decided.
    fn wait(&self, now: Instant) -> io::Result<()> {
        let next = match (self.exited, self.ending) {
            (Some(at), _) => at + EOF_GRACE,
            (None, GroupEnd::No) => self.deadline,
            (None, GroupEnd::Asked(_, until) | GroupEnd::Killed(_, until)) => until,
        };
        let tick = if self.pidfd.is_some() { CANCEL_TICK } else { EXIT_TICK };
        let pause = next.saturating_duration_since(now).min(tick);
        let mut watched: Vec<PollFd<'_>> = Vec::with_capacity(4);
        for pipe in [&self.stdout.pipe, &self.stderr.pipe].into_iter().flatten() {
            watched.push(PollFd::new(pipe, PollFlags::IN));
        }
        if let Some(stdin) = &self.stdin {
            watched.push(PollFd::new(stdin, PollFlags::OUT));
        }
        if let (Some(pidfd), None) = (&self.pidfd, self.exited) {
            watched.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let pause = Timespec::try_from(pause).ok();
        match poll(&mut watched, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends what is left of the input. A command that does not read it is no failure.
    fn write(&mut self) -> io::Result<()> {
        while let Some(stdin) = &self.stdin {
            if self.sent == self.input.len() {
                self.stdin = None;
                break;
            }
            match rustix::io::write(stdin, &self.input[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(Errno::PIPE) => self.stdin = None,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Whether it has exited. It is not collected, so that its process group keeps its
    /// number until [`RunningCommand::finish`].
    fn has_exited(&self) -> io::Result<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.group), look) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends what is left of the group and collects the command.
    fn finish(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(mut child) = self.child.take() else {
            return Ok(None);
        };
        if self.exited.is_none() {
            // It does not even die (it hangs in the kernel): someone must collect it once it does.
            collect_later(child);
            return Ok(None);
        }
        let killed = matches!(self.ending, GroupEnd::Killed(..));
        self.signal(if killed { Signal::KILL } else { Signal::TERM });
        let status = child.wait()?;
        if !group_ended(self.group, TERM_GRACE) {
            self.signal(Signal::KILL);
            group_ended(self.group, KILL_WAIT);
        }
        Ok(Some(status))
    }

    fn signal(&self, signal: Signal) {
        // It may be gone already.
        let _ = kill_process_group(self.group, signal);
    }
}

/// Waits until nothing of a group runs any more, at most for `patience`.
fn group_ended(group: Pid, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let mut tick = GROUP_TICK;
    while group_runs(group) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(tick);
        tick = (2 * tick).min(MAX_GROUP_TICK);
    }
    true
}

/// Whether a process of the group runs. One that has ended and was not collected yet by
/// its new parent still counts for the kernel, so its state decides.
fn group_runs(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    let number = group.as_raw_nonzero().get().to_string();
    processes.filter_map(Result::ok).any(|process| {
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            return false;
        }
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // The name in parentheses may hold anything; state, parent and group follow it.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
        let (state, _, in_group) = (fields.next(), fields.next(), fields.next());
        in_group == Some(number.as_str()) && !matches!(state, Some("Z" | "X"))
    })
}

/// Waits for a child on a thread of its own, so that it does not stay as a zombie.
fn collect_later(mut child: Child) {
    // Without a thread it stays one until this process ends.
    let _ = Builder::new().spawn_compactly(move || drop(child.wait()));
}

impl Drop for RunningCommand {
    /// Reached with a child only when talking to it failed: nothing may run on unseen.
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.signal(Signal::KILL);
            collect_later(child);
        }
    }
}
