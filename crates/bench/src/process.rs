//! A server under measurement: its CPU time and memory as the kernel counts them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{BenchError, During};

/// An address on loopback with a port that is free.
pub(super) const ANY_PORT: &str = "127.0.0.1:0";

/// The program that measures: still there when its file was replaced by a newer build meanwhile.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// How often memory is read while it settles.
const LOOK: Duration = Duration::from_millis(50);
/// Memory that moved by no more than this stands still.
const STILL: u64 = 128 * 1024;
/// What does not settle within this is taken as it is.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// A child process, ended when dropped.
pub(super) struct Server {
    child: Child,
    /// What it printed first.
    pub(super) first_line: String,
}

impl Server {
    /// Starts this program with other arguments and waits for its first line.
    pub(super) fn start(args: &[&str], log: Stdio) -> Result<Server, BenchError> {
        let mut command = Command::new(THIS_PROGRAM);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let started = || format!("cannot start {THIS_PROGRAM} {}", args.join(" "));
        let mut child = command.spawn().during(started)?;
        let out = child.stdout.take().ok_or("no output")?;
        let mut first_line = String::new();
        let mut reader = BufReader::new(out);
        reader.read_line(&mut first_line).during(started)?;
        if first_line.is_empty() {
            let ended = child.wait().during(started)?;
            return Err(format!("{}: it ended before it served: {ended}", started()).into());
        }
        // Keep the pipe empty for as long as the server lives.
        std::thread::spawn(move || reader.lines().map_while(Result::ok).for_each(drop));
        Ok(Server { child, first_line: first_line.trim().to_owned() })
    }

    /// Starts a control plane over a directory; the ports of its choice are in the client files
    /// that it writes.
    pub(super) fn control_plane(dir: &Path, listen: &str) -> Result<Server, BenchError> {
        // It says much under load; that belongs to what is measured, not onto the screen.
        let path = dir.join("log");
        let log = std::fs::create_dir_all(dir)
            .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path))
            .during(|| format!("cannot write the control plane's log to {}", path.display()))?;
        let mut args = vec!["server", "--data", dir.to_str().ok_or("no UTF-8")?, "--listen", listen];
        args.extend(["--operator-listen", ANY_PORT, "--name", "127.0.0.1"]);
        Server::start(&args, log.into())
    }

    /// CPU time used so far, user and system.
    pub(super) fn cpu(&self) -> Result<Duration, BenchError> {
        cpu_of(self.child.id())
    }

    /// Its peak is measured from here on.
    pub(super) fn forget_peak(&self) -> Result<(), BenchError> {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        // proc(5): 5 sets the peak back to what is resident now.
        std::fs::write(&path, "5").during(|| format!("cannot write {path}"))
    }

    /// The most resident memory since its start, or since the peak was forgotten, in bytes.
    pub(super) fn peak(&self) -> Result<u64, BenchError> {
        memory_of(&self.child.id().to_string(), "VmHWM:")
    }

    /// Resident memory in bytes, once it stood still for so long.
    pub(super) async fn settled_memory(&self, steady: Duration) -> Result<u64, BenchError> {
        let began = Instant::now();
        let (mut memory, mut since) = (self.memory()?, began);
        while since.elapsed() < steady && began.elapsed() < SETTLES_WITHIN {
            tokio::time::sleep(LOOK).await;
            let now = self.memory()?;
            if now.abs_diff(memory) > STILL {
                (memory, since) = (now, Instant::now());
            }
        }
        self.memory()
    }

    /// Resident memory in bytes.
    pub(super) fn memory(&self) -> Result<u64, BenchError> {
        memory_of(&self.child.id().to_string(), "VmRSS:")
    }
}

/// A figure of a process's memory in bytes.
pub(super) fn memory_of(process: &str, figure: &str) -> Result<u64, BenchError> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).during(|| format!("cannot read {path}"))?;
    let rest = status.lines().find_map(|line| line.strip_prefix(figure)).ok_or("no such figure")?;
    let kib: u64 = rest.split_whitespace().next().ok_or("no number")?.parse()?;
    Ok(kib * 1024)
}

/// CPU time that a process used so far, user and system.
pub(super) fn cpu_of(process: u32) -> Result<Duration, BenchError> {
    let mut nanos = 0u64;
    let path = format!("/proc/{process}/task");
    for task in std::fs::read_dir(&path).during(|| format!("cannot read {path}"))? {
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
