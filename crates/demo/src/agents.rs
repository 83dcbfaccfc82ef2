//! Real agents: found or built, joined, started, stopped. None outlives the demo.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::dirs::HostDirs;
use crate::error::DemoError;
use cli::screen::aside;

pub(crate) const AGENT: &str = "muster-agent";
/// How long an agent may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How much of a log's end is read.
const TAIL_BYTES: u64 = 16 * 1024;

/// Finds the agent beside this program. When cargo runs this program, the agent is built
/// first, so that both are of the same source.
///
/// # Errors
/// When there is none, or it cannot be built.
pub async fn find() -> Result<PathBuf, DemoError> {
    let own = std::env::current_exe().map_err(DemoError::using(Path::new("/proc/self/exe")))?;
    let agent = own.with_file_name(AGENT);
    if let Some(cargo) = std::env::var_os("CARGO") {
        build(&PathBuf::from(cargo), &own).await?;
    }
    if agent.exists() { Ok(agent) } else { Err(DemoError::NoAgent(agent)) }
}

async fn build(cargo: &Path, own: &Path) -> Result<(), DemoError> {
    let folder = own.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let profile = match folder {
        None | Some("debug") => "dev",
        Some(other) => other,
    };
    aside(&format!("building {AGENT} ..."));
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--profile", profile, "--package", "agent", "--bin", AGENT]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let status = command.stdin(Stdio::null()).kill_on_drop(true).status().await;
    let status = status.map_err(DemoError::using(cargo))?;
    if status.success() { Ok(()) } else { Err(DemoError::Build(status)) }
}

/// One agent of the demo. It is killed when this goes.
pub struct Agent {
    /// Its hostname.
    pub name: String,
    /// Where it lies.
    pub dirs: HostDirs,
    daemon: Option<Child>,
}

impl Agent {
    /// Joins with a token.
    ///
    /// # Errors
    /// When the control plane or the host refuses.
    pub async fn join(program: &Path, name: &str, dirs: HostDirs, token: &str) -> Result<Agent, DemoError> {
        let mut command = command(program, &dirs);
        // Not as an argument: others on this machine can read these.
        command.arg("join").env("MUSTER_TOKEN", token);
        let ended = command.output().await.map_err(DemoError::using(program))?;
        if ended.status.success() {
            return Ok(Agent { name: name.to_owned(), dirs, daemon: None });
        }
        let message = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        Err(DemoError::Join { host: name.to_owned(), message })
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, program: &Path) -> Result<(), DemoError> {
        let log = OpenOptions::new().create(true).append(true).open(&self.dirs.log);
        let log = log.map_err(DemoError::using(&self.dirs.log))?;
        let mut command = command(program, &self.dirs);
        command.arg("daemon").stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().map_err(DemoError::using(program))?);
        Ok(())
    }

    /// Why it does not run any more, if it does not.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.daemon.as_mut()?.try_wait().ok().flatten()
    }

    /// The last lines that it said.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = tail(&self.dirs.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(count);
        lines.into_iter().skip(from).map(str::to_owned).collect()
    }

    /// Asks it to end, and kills it if it does not.
    pub async fn stop(self) {
        let Some(mut daemon) = self.daemon else { return };
        let pid = daemon.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended meanwhile; waiting tells.
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(GRACE, daemon.wait()).await.is_err() {
            tracing::warn!(host = self.name, "the agent did not end by itself; it is killed");
            let _ = daemon.kill().await;
        }
    }
}

fn command(program: &Path, dirs: &HostDirs) -> Command {
    let mut command = Command::new(program);
    command.arg("--state").arg(&dirs.state).arg("--root").arg(&dirs.root).arg("--allow-exec");
    command.env_remove("MUSTER_STATE").env_remove("MUSTER_TOKEN").env("NO_COLOR", "1");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = fs::metadata(path)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
