//! Running a command: bounded in time, in memory and in what it leaves behind.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::running::{OutputSink, RunningCommand};
use crate::{Cancel, Command, Host, Program, RunError};
use model::work::OutputStream;

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that was just written may be held open, by a child that another thread forked meanwhile, until that runs
/// something itself: so long it is tried again.
const BUSY_FOR: Duration = Duration::from_secs(2);
/// How long between two tries.
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// Starts a program; one that was just written is tried again while it is busy, for two seconds at most.
///
/// # Errors
/// When it cannot be started.
pub fn start_program(command: &mut std::process::Command) -> io::Result<Child> {
    let until = Instant::now() + BUSY_FOR;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                std::thread::sleep(BUSY_WAIT);
            }
            outcome => return outcome,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with a code.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
    /// It ran too long and was ended.
    TimedOut,
    /// The agent is stopping and ended it.
    Cancelled,
}

/// One output: its beginning, and how long it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOutput {
    /// At most the command's limit.
    pub bytes: Vec<u8>,
    /// Bytes printed in all.
    pub total: u64,
}

/// A command that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCommand {
    /// How.
    pub end: End,
    /// Standard output.
    pub stdout: ProcessOutput,
    /// Standard error.
    pub stderr: ProcessOutput,
}

impl ProcessOutput {
    fn take(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.total += bytes.len() as u64;
    }
}

impl Host {
    /// Runs a command to its end. Its process group ends with it: children that it left
    /// behind in the group are ended too (a daemon that opened its own session is not).
    ///
    /// # Errors
    /// When it cannot be started, or commands may not run here.
    pub fn run(&self, command: &Command) -> Result<FinishedCommand, RunError> {
        let (mut stdout, mut stderr) = (ProcessOutput::default(), ProcessOutput::default());
        let end = self.attend(command, None, &mut |stream, bytes| match stream {
            OutputStream::Stdout => stdout.take(bytes, command.output_limit),
            OutputStream::Stderr => stderr.take(bytes, command.output_limit),
        })?;
        Ok(FinishedCommand { end, stdout, stderr })
    }

    /// Starts a command and stays with it until it has ended. The switch ends it, as the
    /// host's own does.
    pub(crate) fn attend(
        &self,
        command: &Command,
        cancel: Option<&Cancel>,
        sink: OutputSink<'_>,
    ) -> Result<End, RunError> {
        if !self.exec_allowed() {
            return Err(RunError::Rooted);
        }
        let mut prepared = program(&command.program)?;
        let program = command.program.name().to_owned();
        let directory = self.surround(&mut prepared, command)?;
        let child = start_program(&mut prepared)
            .map_err(|source| RunError::Start { program: program.clone(), source })?;
        drop(directory);
        unshield(child.id());
        let cancels: Vec<&Cancel> = cancel.into_iter().chain([&self.cancel]).chain(&self.job).collect();
        let ended = RunningCommand::new(child, command).attend(&cancels, sink);
        ended.map_err(|source| RunError::Talk { program, source })
    }

    /// Sets everything around the program. The working directory that is returned must
    /// stay open until the command has started.
    fn surround(&self, prepared: &mut std::process::Command, command: &Command) -> Result<OwnedFd, RunError> {
        let cwd = command.cwd.as_deref().unwrap_or("/");
        let dir = self
            .directory(cwd)
            .map_err(|source| RunError::ChangeDirectory { path: cwd.to_owned(), source })?;
        let user = self.user_of(command)?;
        prepared
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", user.as_ref().map_or("/", |user| user.home.as_str()))
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if self.rooted() {
            prepared.env("MUSTER_ROOT", self.root());
        }
        prepared.envs(&command.env);
        if let Some(user) = user.filter(|user| command.user.is_some() && user.uid != self.euid()) {
            prepared.uid(user.uid).gid(user.gid);
        }
        // Through the open directory, so that no link can lead elsewhere meanwhile.
        prepared.current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        Ok(dir)
    }

    fn user_of(&self, command: &Command) -> Result<Option<crate::User>, RunError> {
        let accounts = self.accounts().map_err(RunError::FindUser)?;
        let Some(name) = &command.user else {
            return Ok(accounts.user(&self.euid().to_string()));
        };
        let user = match accounts.user(name) {
            Some(user) => Some(user),
            None => self.accounts_now().map_err(RunError::FindUser)?.user(name),
        };
        user.map(Some).ok_or_else(|| RunError::UnknownUser(name.clone()))
    }
}

/// A service manager may shield the agent from the kernel when memory runs out; what the agent runs is
/// to go first. A kernel that does not know the file shields nobody.
fn unshield(process: u32) {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj");
    if own.is_ok_and(|own| own.starts_with('-')) {
        let _ = std::fs::write(format!("/proc/{process}/oom_score_adj"), "0");
    }
}

fn program(program: &Program) -> Result<std::process::Command, RunError> {
    Ok(match program {
        Program::Argv(argv) => {
            let (name, args) =
                argv.split_first().filter(|(name, _)| !name.is_empty()).ok_or(RunError::Empty)?;
            let mut command = std::process::Command::new(name);
            command.args(args);
            command
        }
        Program::Shell(text) => {
            let mut command = std::process::Command::new(program.name());
            command.arg("-c").arg(text);
            command
        }
        Program::Script(script) if script.is_executable() => std::process::Command::new(script.path()),
        Program::Script(_) => return Err(RunError::NotExecutable),
    })
}
