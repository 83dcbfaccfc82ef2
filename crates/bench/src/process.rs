//! A server under measurement: its CPU time and memory as the kernel counts them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::BenchError;

/// Clock ticks a second in /proc/PID/stat; Linux fixes it for user space.
const TICKS: f64 = 100.0;

/// A child process, ended when dropped.
pub(super) struct Server {
    child: Child,
    /// What it printed first.
    pub(super) first_line: String,
}

impl Server {
    /// Starts this program with other arguments and waits for its first line.
    pub(super) fn start(args: &[&str]) -> Result<Server, BenchError> {
        Server::start_logging(args, Stdio::inherit())
    }

    fn start_logging(args: &[&str], log: Stdio) -> Result<Server, BenchError> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        let mut first_line = String::new();
        let mut reader = BufReader::new(out);
        reader.read_line(&mut first_line)?;
        // Keep the pipe empty for as long as the server lives.
        std::thread::spawn(move || reader.lines().map_while(Result::ok).for_each(drop));
        Ok(Server { child, first_line: first_line.trim().to_owned() })
    }

    /// Starts a control plane over a directory, on ports of its own choice; they are in the
    /// client files that it writes.
    pub(super) fn control_plane(dir: &Path) -> Result<Server, BenchError> {
        Server::control_plane_at(dir, "127.0.0.1:0")
    }

    /// The same, with nodes called at an address.
    pub(super) fn control_plane_at(dir: &Path, listen: &str) -> Result<Server, BenchError> {
        // It says much under load; that belongs to what is measured, not onto the screen.
        let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
        let dir = dir.to_string_lossy();
        let args = [
            "server",
            "--data",
            &dir,
            "--listen",
            listen,
            "--operator-listen",
            "127.0.0.1:0",
            "--name",
            "127.0.0.1",
        ];
        Server::start_logging(&args, log.into())
    }

    /// CPU time used so far, user and system.
    pub(super) fn cpu(&self) -> Result<Duration, BenchError> {
        cpu_of(self.child.id())
    }

    /// Resident memory in bytes.
    pub(super) fn memory(&self) -> Result<u64, BenchError> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
        Ok(kib * 1024)
    }
}

/// CPU time that a process used so far, user and system.
pub(super) fn cpu_of(process: u32) -> Result<Duration, BenchError> {
    // The scheduler's own count has nanoseconds where it exists; else ticks.
    let mut nanos = 0u64;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let path = task?.path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    if nanos > 0 {
        return Ok(Duration::from_nanos(nanos));
    }
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after = stat.rsplit_once(')').ok_or("no stat")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    Ok(Duration::from_secs_f64((ticks(11) + ticks(12)) / TICKS))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
