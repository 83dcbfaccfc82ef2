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

/// The unit as it is shipped.
const SHIPPED: &str = include_str!("../../../../packaging/muster-agent/muster-agent.service");

impl Daemon {
    /// That of the installed package.
    pub fn of(host: &BootedHost) -> Daemon {
        Daemon::of_unit(host, "muster-agent")
    }

    /// Starts one for a held set, with the environment of the shipped unit.
    pub fn start(host: &BootedHost, unit: &str, command: &[&str]) -> Daemon {
        let environment = SHIPPED.lines().filter(|line| line.starts_with("Environment="));
        let properties = environment.map(|line| format!("--property={line}"));
        let mut words = vec!["systemd-run".to_owned(), format!("--unit={unit}")];
        words.extend(properties);
        words.extend(command.iter().map(|word| (*word).to_owned()));
        host.ok(words.iter().map(String::as_str));
        Daemon::of_unit(host, unit)
    }

    fn of_unit(host: &BootedHost, unit: &str) -> Daemon {
        let pid = host.ok(["systemctl", "show", "--value", "-p", "MainPID", unit]);
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
