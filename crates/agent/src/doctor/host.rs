//! This host: the user, the state directory, its disk, the unit, the kernel's limits.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use host::{Command, End, Host, HostOptions, Program};
use model::sort::SortCompactly;

use super::Finding;
use crate::clock::now;
use crate::guard::{GuardView, names};
use crate::healing::WatchView;
use crate::invocation::command;
use crate::machine::DEFAULT_STATE;
use crate::render::chain;

/// The unit that the package installs.
pub(crate) const UNIT: &str = "muster-agent.service";
/// How long a command of the host may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Less is worth a word, in bytes.
const LOW_SPACE: u64 = 256 * 1024 * 1024;
/// With less the log of facts is soon full, in bytes.
const NO_SPACE: u64 = 16 * 1024 * 1024;
/// Fewer free inodes are worth a word.
const LOW_INODES: u64 = 2000;
/// Fewer watches do not cover a host's managed files.
const LOW_WATCHES: u64 = 8192;

/// Whether this program runs as root.
pub(super) fn user() -> Vec<Finding> {
    let uid = fs::metadata("/proc/self").map(|me| me.uid());
    vec![match uid {
        Ok(0) => Finding::ok("user", "root"),
        Ok(uid) => {
            let evidence = format!("user {uid}: owners, packages and services cannot be changed");
            Finding::warn("user", evidence, "run it as root, unless --root names a directory of this user")
        }
        Err(error) => Finding::warn("user", format!("/proc cannot be read: {error}"), "mount /proc"),
    }]
}

/// The state directory's mode, and what was found damaged in it.
pub(super) fn state_directory(state: &Path) -> Vec<Finding> {
    let subject = "state";
    let there = match fs::metadata(state) {
        Ok(there) => there,
        Err(error) => {
            let evidence = format!("{}: {error}", state.display());
            return vec![Finding::fail(
                subject,
                evidence,
                format!("{} makes it; or name it with --state", command("join --token-file FILE")),
            )];
        }
    };
    let mode = there.permissions().mode() & 0o7777;
    let mut findings = Vec::new();
    if mode & 0o022 != 0 {
        let evidence = format!("others can write in {} (mode {mode:04o})", state.display());
        findings.push(Finding::fail(subject, evidence, format!("chmod 0700 {}", state.display())));
    } else {
        findings.push(Finding::ok(subject, format!("{} (mode {mode:04o})", state.display())));
    }
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(error) => {
            findings.push(Finding::fail(subject, format!("it cannot be read: {error}"), "run it with sudo"));
            return findings;
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut aside: Vec<String> =
        names.filter(|name| name.contains(".corrupt-") || name.starts_with("earlier-")).collect();
    aside.sort_compactly();
    if !aside.is_empty() {
        let evidence = format!("set aside as damaged or of an earlier version: {}", aside.join(", "));
        let next = "the agent went on without them; look at the disk (dmesg), then remove them";
        findings.push(Finding::warn(subject, evidence, next));
    }
    findings
}

/// Space and inodes of each file system that the state is on: what is received may be on another one.
pub(super) fn disks(state: &Path) -> Vec<Finding> {
    // Before a host joins it has none: it will lie on the file system of the nearest directory above.
    let there = state.ancestors().find(|place| place.is_dir()).unwrap_or(state);
    let places = [there.to_owned(), state.join("content"), state.join("content/partial")];
    let mut seen = Vec::new();
    let mut findings = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let device = fs::metadata(place).map(|there| there.dev()).ok();
        // The state directory is looked at whatever is the matter with it.
        if number == 0 || device.is_some_and(|device| !seen.contains(&device)) {
            findings.extend(disk(place));
        }
        seen.extend(device);
    }
    findings
}

/// Space and inodes of the file system at one place.
fn disk(state: &Path) -> Vec<Finding> {
    let usage = Host::open(Path::new("/"), HostOptions::default())
        .map_err(|error| chain(&error))
        .and_then(|host| host.usage(&state.to_string_lossy()).map_err(|error| chain(&error)));
    let usage = match usage {
        Ok(usage) => usage,
        Err(why) => return vec![Finding::warn("disk", why, "look at it with df")],
    };
    if usage.read_only {
        let evidence = format!("the file system of {} is read-only", state.display());
        let next = "remount it writable: until then nothing is adopted, changed or reported";
        return vec![Finding::fail("disk", evidence, next)];
    }
    let free = format!("{} MiB free at {}", usage.available / (1024 * 1024), state.display());
    let full = "make room: until then nothing new is adopted, and facts wait in less and less space";
    let space = match usage.available {
        0..NO_SPACE => Finding::fail("disk", free, full),
        NO_SPACE..LOW_SPACE => Finding::warn("disk", free, "make room"),
        _ => Finding::ok("disk", free),
    };
    let inodes = match (usage.inodes, usage.inodes_free) {
        (0, _) => None,
        (_, 0) => Some(Finding::fail(
            "inodes",
            format!("none is free at {}", state.display()),
            "remove files: df -i",
        )),
        (_, free @ 0..LOW_INODES) => Some(Finding::warn(
            "inodes",
            format!("{free} are free at {}", state.display()),
            "remove files: df -i",
        )),
        (_, free) => Some(Finding::ok("inodes", format!("{free} are free at {}", state.display()))),
    };
    std::iter::once(space).chain(inodes).collect()
}

/// What waits for a contact, and what is held back because none followed it (CNV-11).
pub(super) fn guarded(guard: &GuardView) -> Vec<Finding> {
    let waiting = guard.waiting.iter().map(|waiting| {
        let evidence =
            format!("{} of release {}: {}", names(&waiting.resources), waiting.release, waiting.text);
        Finding::warn("guard", evidence, "see the lines about proxy, name, TCP and TLS below")
    });
    let held_back = guard.held_back.iter().map(|held| {
        let evidence = format!("{}: {}", names(&held.resources), held.text);
        let next = "see what those resources do to the way to this host, and publish them otherwise";
        Finding::warn("guard", evidence, next)
    });
    waiting.chain(held_back).collect()
}

/// What the daemon watches, which limit keeps it from more, and what fights with it.
pub(super) fn watched(watch: &WatchView) -> Vec<Finding> {
    let subject = "watch";
    let mut findings = Vec::new();
    let blind = "full runs still find what is changed by hand";
    match (&watch.limit, &watch.problem) {
        (Some(limit), _) => {
            let evidence = format!("{}: the kernel's limit {limit} is reached; {blind}", watch.text());
            findings.push(Finding::warn(subject, evidence, raised(limit)));
        }
        (None, Some(problem)) => {
            let evidence = format!("{}: {problem}; {blind}", watch.text());
            findings.push(Finding::warn(subject, evidence, "see the reason; the interval is the backstop"));
        }
        (None, None) => findings.push(Finding::ok(subject, watch.text())),
    }
    if let Some(problem) = &watch.units_problem {
        let evidence = format!("{problem}; the agent tries again; {blind}");
        findings.push(Finding::warn(subject, evidence, "systemctl status dbus.socket dbus.service"));
    }
    if let Some(problem) = &watch.culprits_problem {
        let next = "run the agent as root; in a container, let it use fanotify (systemd-nspawn: \
                    --system-call-filter=\"fanotify_init fanotify_mark\")";
        findings.push(Finding::warn(subject, problem, next));
    }
    for contention in &watch.contended {
        let next = "stop the other one, or declare what it wants, or take the resource out of the fleet repo";
        findings.push(Finding::warn("contended", contention.text(now()), next));
    }
    findings
}

/// The command that raises a limit: to twice what it is.
fn raised(parameter: &str) -> String {
    let path = format!("/proc/sys/{}", parameter.replace('.', "/"));
    let now: Option<u64> = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    let least = if parameter.ends_with("watches") { 65_536 } else { 512 };
    let to = now.map_or(least, |now| now.saturating_mul(2).max(least));
    format!("sysctl {parameter}={to}, and write it to /etc/sysctl.d for the next boot")
}

/// What the kernel allows to watch.
pub(super) fn limits() -> Vec<Finding> {
    let read = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
    };
    let (Some(watches), Some(instances)) = (read("max_user_watches"), read("max_user_instances")) else {
        let next = "files changed by hand are then found by the next run only";
        return vec![Finding::warn("inotify", "the kernel does not say what may be watched", next)];
    };
    let evidence = format!("{watches} watches, {instances} instances for each user");
    if watches < LOW_WATCHES {
        return vec![Finding::warn("inotify", evidence, "sysctl fs.inotify.max_user_watches=65536")];
    }
    vec![Finding::ok("inotify", evidence)]
}

/// Whether the unit is installed, enabled and active; `start` says how it is started.
pub(super) fn unit(start: &str) -> Vec<Finding> {
    if !Path::new("/run/systemd/system").exists() {
        let next = format!("see that something starts `{}` at boot", command("daemon"));
        return vec![Finding::warn("unit", "this host was not booted with systemd", next)];
    }
    let ask = |verb: &str| output("systemctl", &[verb, UNIT]).map(|text| text.trim().to_owned());
    let (Some(active), Some(enabled)) = (ask("is-active"), ask("is-enabled")) else {
        return vec![Finding::warn("unit", "systemctl does not answer", "systemctl is-system-running")];
    };
    let evidence = format!("{UNIT} is {active} and {enabled}");
    vec![match (active.as_str(), enabled.as_str()) {
        ("active", "enabled") => Finding::ok("unit", evidence),
        (_, "enabled") => Finding::fail("unit", evidence, start),
        ("active", "disabled") => Finding::warn("unit", evidence, "systemctl enable muster-agent"),
        (_, "disabled") => Finding::fail("unit", evidence, "systemctl enable --now muster-agent"),
        (_, "masked") => Finding::fail("unit", evidence, "systemctl unmask muster-agent"),
        _ => {
            let next = format!("install the package, or a unit that runs the daemon over {DEFAULT_STATE}");
            Finding::warn("unit", evidence, next)
        }
    }]
}

/// What a command of this host prints, whatever it exits with; `None` when it cannot be run or hangs.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    /// What is kept of it, in bytes.
    const MAX_PRINTED: usize = 2 * 1024 * 1024;
    let options = HostOptions { allow_exec: true, ..HostOptions::default() };
    let host = Host::open(Path::new("/"), options).ok()?;
    let argv = std::iter::once(program).chain(arguments.iter().copied()).map(str::to_owned).collect();
    let finished = host.run(&Command::new(Program::Argv(argv), COMMAND_TIMEOUT, MAX_PRINTED)).ok()?;
    match finished.end {
        End::Exited(_) => Some(String::from_utf8_lossy(&finished.stdout.bytes).into_owned()),
        End::Signaled(_) | End::TimedOut | End::Cancelled => None,
    }
}
