//! The agent's daemon on a host: its processor time and its memory, as the kernel counts them.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use test_support::booted::BootedHost;

/// Ticks of `/proc/PID/stat` in a second, on every Linux.
const TICKS: f64 = 100.0;

/// The process of the agent's unit.
pub struct Daemon {
    process: PathBuf,
}

impl Daemon {
    /// That of the installed package.
    pub fn of(host: &BootedHost) -> Daemon {
        let pid = host.ok(["systemctl", "show", "--value", "-p", "MainPID", "muster-agent"]);
        Daemon { process: host.path("/proc").join(pid.trim()) }
    }

    /// The share of a core that it uses in this time.
    pub fn idle_share(&self, time: Duration) -> f64 {
        let (begun, before) = (Instant::now(), self.ticks());
        std::thread::sleep(time);
        (self.ticks() - before) as f64 / TICKS / begun.elapsed().as_secs_f64()
    }

    /// Resident memory now, and the most it ever was, in MiB.
    pub fn memory(&self) -> (f64, f64) {
        let status = fs::read_to_string(self.process.join("status")).unwrap();
        let mib = |field: &str| {
            let line = status.lines().find(|line| line.starts_with(field)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
        };
        (mib("VmRSS:"), mib("VmHWM:"))
    }

    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(self.process.join("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        // User and system time are fields 14 and 15; the first after the name is field 3.
        [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum()
    }
}
