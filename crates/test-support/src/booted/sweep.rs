//! Removing what a test left: its processes, cgroups, network namespaces and folder. A test that ends,
//! also by a panic, does that itself; what a killed test left, the next one removes at its start.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::commands::{ip, succeed};
use super::image::CACHE;

/// How long the kernel may take to end killed processes.
const DEADLINE: Duration = Duration::from_secs(10);

/// The folder in which running tests have theirs.
pub(super) fn runs() -> PathBuf {
    Path::new(CACHE).join("runs")
}

/// The beginning of the name of a folder that has no lock yet.
pub(super) const UNNAMED: &str = ".new-";

/// The prefix of the cgroups of a test.
pub(super) fn cgroup(id: &str) -> String {
    format!("muster-test-{id}")
}

/// Removes what tests left whose process no longer holds its lock.
pub(super) fn sweep() {
    for entry in fs::read_dir(runs()).into_iter().flatten().flatten() {
        let (path, id) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if id.starts_with(UNNAMED) {
            continue;
        }
        let is_free = File::open(path.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_free {
            remove(&id);
        }
    }
}

/// Removes all that a test left.
pub(super) fn remove(id: &str) {
    let cgroups = cgroups_of(id);
    let begun = Instant::now();
    while cgroups.iter().any(|path| kill(path)) && begun.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
    cgroups.iter().for_each(|path| remove_cgroup(path));
    let netns = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in netns.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if name.starts_with(&format!("mt-{id}-")) {
            // A control plane of a killed test.
            let pids = succeed(Command::new("ip").args(["netns", "pids", &name])).unwrap_or_default();
            kill_all(&pids);
            let _ = ip(&format!("netns del {name}"));
        }
    }
    let _ = fs::remove_dir_all(runs().join(id));
}

/// The cgroups of a test, in every tree.
fn cgroups_of(id: &str) -> Vec<PathBuf> {
    let trees = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let entries = trees.iter().flat_map(|tree| fs::read_dir(tree).into_iter().flatten().flatten());
    let prefix = format!("{}-", cgroup(id));
    let of_test = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    of_test.map(|entry| entry.path()).collect()
}

/// Kills what is in a cgroup and below; whether anything was there.
fn kill(cgroup: &Path) -> bool {
    let mut was_there = kill_all(&fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default());
    for below in folders(cgroup) {
        was_there |= kill(&below);
    }
    was_there
}

/// Kills processes, one id a line; whether there was any.
fn kill_all(pids: &str) -> bool {
    let pids = pids.lines().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw);
    pids.fold(false, |_, pid| {
        let _ = kill_process(pid, Signal::KILL);
        true
    })
}

/// Removes an empty cgroup and those below it.
fn remove_cgroup(cgroup: &Path) {
    folders(cgroup).iter().for_each(|below| remove_cgroup(below));
    let _ = fs::remove_dir(cgroup);
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
