//! `mount` on a host: by the tools of util-linux, each with a limit of time.
//!
//! A file system that does not answer holds up whoever looks at it, so nothing here does: the kernel's
//! list says what is mounted, and only a tool, which is killed, touches the mount point.

use std::time::Duration;

use catalog::types::{FSTAB, MountSpec, MountState};
use converge::JobFailure;
use converge::kinds::mount::{self, KernelMount, MountStep};
use model::{Edit, FailureCode, Fields, PathOwnership, PathState};

use crate::kinds::text;
use crate::provider::{ChangeTurn, StateChange, StateProvider};
use crate::query::proc::Proc;
use crate::tools::ToolCall;
use crate::{Kinds, ROOTED};

/// Permission bits of a mount point that is made.
const DIRECTORY_MODE: u32 = 0o755;
/// The most processes that a message names.
const MAX_NAMED: usize = 5;
/// The most open files of a process that are looked at.
const MAX_OPEN: usize = 4096;
/// How long systemd may take to read the table anew.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The kernel's list; nothing is mounted below a root that is not the machine's.
fn kernel_mounts(kinds: &Kinds) -> Result<Vec<KernelMount>, String> {
    if kinds.host.rooted() {
        return Ok(Vec::new());
    }
    let table =
        kinds.host.mount_table().map_err(|error| format!("cannot read the table of mounts: {error}"))?;
    Ok(mount::kernel_mounts(&table))
}

impl StateProvider for MountSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let table = kinds.text_file(FSTAB)?.unwrap_or_default();
        let mounts = kernel_mounts(kinds)?;
        Ok(mount::observe(self, &table, mount::mounted_at(&mounts, &self.path)))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        Ok(mount::desired(self))
    }

    fn refuse(&self, kinds: &Kinds, edit: &Edit<Fields>) -> Result<(), String> {
        if let Some(why) = mount::refuse(edit) {
            return Err(why);
        }
        let mounts = edit.to().is_some_and(|to| to.get("mounted").is_some_and(|mounted| mounted == "yes"));
        if !mounts || kinds.host.rooted() {
            return Ok(());
        }
        if mount::is_remote(&kernel_mounts(kinds)?, &self.path) {
            return Ok(());
        }
        match kinds.look(&self.path)? {
            PathState::Missing | PathState::Directory { .. } => Ok(()),
            other => Err(format!("{} is {}, not a directory; move it away", self.path, other.what())),
        }
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        let table = kinds.text_file(FSTAB)?.unwrap_or_default();
        for step in mount::steps(self, &table, now, to) {
            match step {
                MountStep::WriteTable(new) => {
                    kinds.write_text(FSTAB, &new)?;
                    tell_systemd(kinds)?;
                }
                _ if kinds.host.rooted() => return Err(format!("nothing is mounted here: {ROOTED}").into()),
                MountStep::Unmount => unmount(self, kinds, timeout)?,
                MountStep::Mount { device, fstype, options } => {
                    let missing = point_is_missing(self, kinds)?;
                    if missing {
                        make_point(self, kinds)?;
                    }
                    let argv = ["/usr/bin/mount", "-t", &fstype, "-o", &options, "--", &device, &self.path];
                    if let Err(why) = kinds.tool_succeeds(ToolCall::new(&argv, timeout)) {
                        // Where something was mounted all the same the directory stays: a look at it could hang.
                        let still_bare = || {
                            kernel_mounts(kinds).is_ok_and(|mounts| !mount::is_hidden(&mounts, &self.path))
                        };
                        if missing && still_bare() {
                            drop(kinds.host.remove_directory(&self.path, false));
                        }
                        return Err(why);
                    }
                }
                MountStep::Remount { options } => {
                    let options = format!("remount,{options}");
                    let argv = ["/usr/bin/mount", "-o", &options, "--", &self.path];
                    kinds.tool_succeeds(ToolCall::new(&argv, timeout))?;
                }
            }
        }
        Ok(None)
    }

    /// The mount point, where nothing is mounted on it and a look at it cannot hang.
    fn surroundings(&self, kinds: &Kinds) -> Result<Vec<String>, String> {
        let mounts = kernel_mounts(kinds)?;
        let hidden = mount::is_hidden(&mounts, &self.path);
        let mounts_it = matches!(self.state, MountState::Mounted | MountState::Absent);
        Ok(if mounts_it && !hidden { vec![self.path.clone()] } else { Vec::new() })
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    fn works_below_root(&self) -> bool {
        self.state == MountState::Present
    }
}

/// Whether the directory is missing. Where a look could hang it is not made: then `mount` says what is
/// missing.
fn point_is_missing(spec: &MountSpec, kinds: &Kinds) -> Result<bool, String> {
    Ok(!mount::is_remote(&kernel_mounts(kinds)?, &spec.path) && kinds.look(&spec.path)? == PathState::Missing)
}

fn make_point(spec: &MountSpec, kinds: &Kinds) -> Result<(), String> {
    let ownership = PathOwnership { mode: Some(DIRECTORY_MODE), uid: Some(0), gid: Some(0) };
    kinds.host.make_directory(&spec.path, &ownership, DIRECTORY_MODE).map_err(text)
}

fn unmount(spec: &MountSpec, kinds: &Kinds, timeout: Duration) -> Result<(), JobFailure> {
    let unmounted = kinds.tool_succeeds(ToolCall::new(&["/usr/bin/umount", "--", &spec.path], timeout));
    unmounted.map_err(|why| match why.message.contains("busy") {
        true => {
            let message = format!("{why}{}", holders(kinds, &spec.path));
            JobFailure::new(FailureCode::InUse, "", message)
        }
        false => why,
    })
}

/// The processes that are in a file system, for a message. Their links are the kernel's own words:
/// reading one touches no file system.
fn holders(kinds: &Kinds, path: &str) -> String {
    let proc = Proc::of(&kinds.host);
    let below = format!("{path}/");
    let inside = |link: String| proc.link(link).is_some_and(|to| to == path || to.starts_with(&below));
    let holds = |pid: &u32| {
        let fixed = ["cwd", "root", "exe"].map(|name| format!("{pid}/{name}"));
        let open = proc.names(format!("{pid}/fd"), MAX_OPEN);
        fixed.into_iter().chain(open.into_iter().map(|fd| format!("{pid}/fd/{fd}"))).any(inside)
    };
    let held = proc.processes().unwrap_or_default().into_iter().filter(holds).take(MAX_NAMED);
    let named = |pid: u32| format!("{} ({pid})", proc.name(pid).unwrap_or_default());
    let held: Vec<String> = held.map(named).collect();
    if held.is_empty() { String::new() } else { format!("; these use it: {}", held.join(", ")) }
}

/// systemd makes units of the table, and would undo or repeat what it still holds otherwise.
fn tell_systemd(kinds: &Kinds) -> Result<(), JobFailure> {
    if kinds.host.rooted() || !kinds.host.exists("/run/systemd/system").map_err(text)? {
        return Ok(());
    }
    kinds.tool_succeeds(ToolCall::new(&["/usr/bin/systemctl", "daemon-reload"], RELOAD_TIMEOUT))
}
