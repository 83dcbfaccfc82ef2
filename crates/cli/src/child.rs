//! [`BoundedCommand`]: a command of this machine's user, bounded in time and in what it prints.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

use crate::screen::aside;

/// The most of a command's standard error that is kept for the message of its failure, in bytes.
const MAX_SAID: usize = 4 * 1024;
/// How long what a command said is waited for after it ended.
const SAID_WITHIN: Duration = Duration::from_millis(500);

/// What becomes of a command's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildErrors {
    /// It is this program's.
    Inherit,
    /// Each line is shown as it comes, and the last of them are kept.
    Tell,
}

/// A command to run.
pub(crate) struct BoundedCommand<'a> {
    /// The program and its arguments; the program is looked for in `PATH`.
    pub(crate) argv: &'a [String],
    /// One more argument.
    pub(crate) last: Option<&'a str>,
    /// A variable of its environment, besides those of this program.
    pub(crate) env: Option<(&'a str, &'a str)>,
    /// What it reads; nothing without.
    pub(crate) stdin: Option<&'a [u8]>,
    /// What becomes of its standard error.
    pub(crate) errors: ChildErrors,
    /// The most that it may print, in bytes.
    pub(crate) most: usize,
    /// How long it may take.
    pub(crate) timeout: Duration,
}

/// What a command printed. One byte more than it may means: too much.
pub(crate) struct ChildOutput {
    pub(crate) stdout: Zeroizing<Vec<u8>>,
    pub(crate) status: ExitStatus,
    /// The last of its standard error, where that was asked for.
    pub(crate) said: String,
}

/// Why a command has no output.
#[derive(Debug)]
pub(crate) enum ChildError {
    /// It names no program.
    Empty,
    /// It cannot be started, or not be read from.
    Start { program: String, source: io::Error },
    /// It did not end in time, and was killed with all that it started.
    Hangs { said: String },
}

impl BoundedCommand<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// [`ChildError`]; that it ended without success is none.
    pub(crate) fn run(&self) -> Result<ChildOutput, ChildError> {
        let (program, args) = self.argv.split_first().ok_or(ChildError::Empty)?;
        let failed = |source| ChildError::Start { program: program.clone(), source };
        let mut command = Command::new(program);
        command.args(args).args(self.last).envs(self.env).stdout(Stdio::piped());
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        if self.errors == ChildErrors::Tell {
            command.stderr(Stdio::piped());
        }
        // A group of its own, so that what it starts ends with it.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let (Some(mut stdin), Some(bytes)) = (child.stdin.take(), self.stdin) {
            let bytes = bytes.to_vec();
            // It need not read: then this ends with it.
            thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
        let (say, said) = channel();
        match child.stderr.take() {
            Some(stderr) => drop(thread::spawn(move || drop(say.send(told(stderr))))),
            None => drop(say),
        }
        let (tell, ended) = channel();
        let most = self.most;
        thread::spawn(move || {
            // One byte more than there may be, in one piece: no copy of it is left behind.
            let mut output = Zeroizing::new(Vec::with_capacity(most + 2));
            let read = match child.stdout.take() {
                Some(stdout) => stdout.take(most as u64 + 1).read_to_end(&mut output).map(drop),
                None => Ok(()),
            };
            let status = child.wait();
            // Nobody waits any more where it took too long.
            let _ = tell.send(read.and(status).map(|status| (output, status)));
        });
        let said = || said.recv_timeout(SAID_WITHIN).unwrap_or_default();
        match ended.recv_timeout(self.timeout) {
            Ok(Ok((stdout, status))) => Ok(ChildOutput { stdout, status, said: said() }),
            Ok(Err(source)) => Err(failed(source)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                if let Some(group) = group {
                    // It may have ended just now.
                    let _ = kill_process_group(group, Signal::KILL);
                }
                Err(ChildError::Hangs { said: said() })
            }
        }
    }
}

/// Shows what a command says, and keeps the end of it.
fn told(stderr: ChildStderr) -> String {
    let (mut reader, mut kept) = (BufReader::new(stderr), Vec::new());
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without end is shown in pieces.
        match reader.by_ref().take(MAX_SAID as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => aside(String::from_utf8_lossy(&line).trim_end()),
        }
        kept.extend_from_slice(&line);
        let over = kept.len().saturating_sub(MAX_SAID);
        kept.drain(..over);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
