//! The agent's daemon on a host: joined to a fleet, its processor time and its memory as the kernel counts
//! them.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use figures::{Figure, Unit};
use test_support::booted::{BootedFleet, BootedHost};
use test_support::programs::write;

use crate::{PACKAGE, Sizes};

/// Ticks of `/proc/PID/stat` in a second, on every Linux.
const TICKS: f64 = 100.0;

/// How long a first run may take: each of fifty services is watched for a while once it was started.
const FIRST_RUN: Duration = Duration::from_secs(300);

/// Joins a host to a fleet of one module, in which it converges; what is changed by hand is repaired by events
/// alone, as full runs are half an hour apart.
pub fn converge(fleet: &mut BootedFleet, host: &BootedHost, module: &str) {
    write(
        &fleet.repo.join("fleet.yaml"),
        "format: 1\nname: e2e\nchannels:\n  slow: {contact: 1m, converge: 30m, jitter: 10%, freshness: 24h}\n\
         defaults: {channel: slow}\n",
    );
    fleet.module("app", module);
    if let Some(package) = std::env::var_os(PACKAGE) {
        host.install(&PathBuf::from(package));
    }
    fleet.publish();
    fleet.join(host);
    fleet.until_converged_within(FIRST_RUN, host);
}

/// The most memory that a daemon may have while nothing is to be done, in MiB.
const IDLE_MIB: f64 = 15.0;
/// The most that it may ever have.
const PEAK_MIB: f64 = 30.0;

/// What the daemon of a converged host uses after another run that finds everything right.
pub fn measure(host: &BootedHost, sizes: Sizes) -> Vec<Figure> {
    let daemon = Daemon::of(host);
    host.ok(["muster-agent", "apply"]);
    let share = daemon.idle_share(Duration::from_secs(sizes.idle_secs));
    let (now, most) = daemon.memory();
    vec![
        Figure::at_most("idle daemon, of a core", share * 100.0, 0.1, Unit::Percent),
        Figure::at_most("resident memory, idle", now, IDLE_MIB, Unit::Mib),
        Figure::at_most("resident memory at the peak", most, PEAK_MIB, Unit::Mib),
    ]
}

/// The process of the agent's unit.
struct Daemon {
    process: PathBuf,
}

impl Daemon {
    /// That of the installed package.
    fn of(host: &BootedHost) -> Daemon {
        let pid = host.ok(["systemctl", "show", "--value", "-p", "MainPID", "muster-agent"]);
        Daemon { process: host.path("/proc").join(pid.trim()) }
    }

    /// The share of a core that it uses in this time.
    fn idle_share(&self, time: Duration) -> f64 {
        let (begun, before) = (Instant::now(), self.ticks());
        std::thread::sleep(time);
        (self.ticks() - before) as f64 / TICKS / begun.elapsed().as_secs_f64()
    }

    /// Resident memory now, and the most it ever was, in MiB.
    fn memory(&self) -> (f64, f64) {
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
