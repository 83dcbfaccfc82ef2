//! [`ReturnUnits`]: the watchdog as units of systemd, written when a trial begins and removed at its end.
//!
//! They are in no package: a release that removes or downgrades the agent's package must not take them along. The
//! service runs the kept program of the confirmed generation. At boot it comes before the agent; the timer polls, and
//! the record alone says what is due.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spool::atomic::write_file;
use spool::{Disk, SpoolError};

use crate::service;

/// The watchdog's service.
pub const RETURN_SERVICE: &str = "muster-return.service";
/// What runs it again and again.
pub const RETURN_TIMER: &str = "muster-return.timer";
/// How long systemd may take for what it is asked.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(5);
const MODE: u32 = 0o644;

/// Why the units are not in force.
#[derive(Debug, thiserror::Error)]
pub enum SetUpUnitsError {
    /// A unit cannot be written or removed.
    #[error("cannot write the watchdog's units")]
    Write(#[from] SpoolError),
    /// A link to a unit cannot be made or removed.
    #[error("cannot link {}", path.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// systemd refused.
    #[error("systemctl {arguments}: {why}")]
    Systemctl {
        /// What it was asked.
        arguments: String,
        /// What it said, or that it did not answer.
        why: String,
    },
    /// The kept program cannot be run: its file system may forbid that.
    #[error("the kept program {} cannot be run: {why}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        why: String,
    },
}

/// The units of one host.
#[derive(Clone, Debug)]
pub struct ReturnUnits {
    disk: Disk,
    /// Where units of the administrator are.
    units: PathBuf,
    systemctl: PathBuf,
}

impl ReturnUnits {
    /// The units of this host.
    pub fn of_this_host(disk: &Disk) -> ReturnUnits {
        ReturnUnits::at(Path::new(service::UNITS[0]), Path::new("systemctl"), disk)
    }

    /// Units in this directory, for the systemd that this program speaks with.
    pub fn at(units: &Path, systemctl: &Path, disk: &Disk) -> ReturnUnits {
        ReturnUnits { disk: disk.clone(), units: units.to_owned(), systemctl: systemctl.to_owned() }
    }

    /// The service's unit, which runs a program.
    fn service(program: &Path) -> String {
        let program = program.display().to_string();
        // What systemd would read as something else than itself.
        let program =
            program.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
        let state = crate::machine::DEFAULT_STATE;
        format!(
            "# Written by muster-agent while a release is on trial, and removed by it. The kept agent returns this host to
# its confirmed generation, whatever becomes of the installed one.
[Unit]
Description=Muster: return to the confirmed generation when the one on trial is not confirmed
DefaultDependencies=no
RequiresMountsFor={state}
After=local-fs.target dbus.socket
Before=muster-agent.service shutdown.target
Conflicts=shutdown.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
Restart=on-failure
RestartSec=5
TimeoutStartSec=infinity
SyslogIdentifier=muster-return
ExecStart=\"{program}\" return --if-due
"
        )
    }

    fn timer() -> &'static str {
        "# Written by muster-agent while a release is on trial, and removed by it.
[Unit]
Description=Muster: look whether the generation on trial is confirmed
DefaultDependencies=no

[Timer]
OnActiveSec=15
OnUnitInactiveSec=15
AccuracySec=1s
"
    }

    fn links(&self) -> [(PathBuf, &'static str); 2] {
        let link = |target: &str, unit| (self.units.join(format!("{target}.wants")).join(unit), unit);
        [link("multi-user.target", RETURN_SERVICE), link("timers.target", RETURN_TIMER)]
    }

    /// Whether anything of them is there.
    pub fn is_set_up(&self) -> bool {
        [RETURN_SERVICE, RETURN_TIMER].iter().any(|unit| self.units.join(unit).exists())
    }

    /// Puts the units in force, with this program; nothing is done where they are already.
    ///
    /// # Errors
    /// [`SetUpUnitsError`]: they are not in force, or those of before are.
    pub fn set_up(&self, program: &Path) -> Result<(), SetUpUnitsError> {
        let wanted = [
            (RETURN_SERVICE, ReturnUnits::service(program)),
            (RETURN_TIMER, ReturnUnits::timer().to_owned()),
        ];
        let is_there = |(unit, text): &(&str, String)| {
            std::fs::read_to_string(self.units.join(unit)).is_ok_and(|found| found == *text)
        };
        let linked = |(link, unit): &(PathBuf, &str)| {
            link.read_link().is_ok_and(|target| target == self.units.join(unit))
        };
        let in_place = wanted.iter().all(is_there) && self.links().iter().all(linked);
        if in_place && self.systemctl(&["is-active", "--quiet", RETURN_TIMER]).is_ok() {
            return Ok(());
        }
        runs(program)?;
        for (unit, text) in &wanted {
            write_file(&self.disk, &self.units.join(unit), text.as_bytes(), MODE)?;
        }
        for (link, unit) in self.links() {
            let failed = |source| SetUpUnitsError::Link { path: link.clone(), source };
            let directory = link.parent().unwrap_or(&self.units);
            std::fs::create_dir_all(directory).map_err(failed)?;
            let _ = std::fs::remove_file(&link);
            symlink(self.units.join(unit), &link).map_err(failed)?;
            self.disk.sync_dir(directory)?;
        }
        self.disk.sync_dir(&self.units)?;
        self.systemctl(&["daemon-reload"])?;
        self.systemctl(&["start", RETURN_TIMER])?;
        self.systemctl(&["is-active", "--quiet", RETURN_TIMER])
    }

    /// Takes the units away. The service goes on to its end where it runs.
    ///
    /// # Errors
    /// When something of them stays.
    pub fn take_down(&self) -> Result<(), SetUpUnitsError> {
        if !self.is_set_up() {
            return Ok(());
        }
        // What systemd does not stop now it does not know after the next boot.
        let stopped = self.systemctl(&["stop", RETURN_TIMER]);
        for (link, _) in self.links() {
            self.disk.unlink(&link)?;
        }
        for unit in [RETURN_TIMER, RETURN_SERVICE] {
            self.disk.unlink(&self.units.join(unit))?;
        }
        self.disk.sync_dir(&self.units)?;
        stopped.and(self.systemctl(&["daemon-reload"]))
    }

    /// Lets systemd read unit files again.
    ///
    /// # Errors
    /// When it refuses.
    pub fn reload(&self) -> Result<(), SetUpUnitsError> {
        self.systemctl(&["daemon-reload"])
    }

    /// Stops a unit, which has this long before it is killed. What comes of it is not said: whether the agent is gone, the
    /// state directory's lock says.
    pub fn stop(&self, unit: &str, patience: Duration) {
        if let Err(error) = self.systemctl_within(&["stop", unit], patience) {
            tracing::warn!(%error, "it is killed");
            let killed = self.systemctl(&["kill", "--signal=KILL", unit]);
            if let Err(error) = killed {
                tracing::debug!(%error, "there may be none");
            }
        }
    }

    /// Starts a unit, and waits for nothing.
    ///
    /// # Errors
    /// When systemd refuses.
    pub fn start(&self, unit: &str) -> Result<(), SetUpUnitsError> {
        self.systemctl(&["start", "--no-block", unit])
    }

    fn systemctl(&self, arguments: &[&str]) -> Result<(), SetUpUnitsError> {
        self.systemctl_within(arguments, ANSWERS_WITHIN)
    }

    fn systemctl_within(&self, arguments: &[&str], patience: Duration) -> Result<(), SetUpUnitsError> {
        let mut command = Command::new(&self.systemctl);
        ended_well(command.args(arguments), patience)
            .map_err(|why| SetUpUnitsError::Systemctl { arguments: arguments.join(" "), why })
    }
}

/// Whether a program can be run where it lies: it says its version.
pub(super) fn runs(program: &Path) -> Result<(), SetUpUnitsError> {
    let mut command = Command::new(program);
    ended_well(command.arg("--version"), ANSWERS_WITHIN)
        .map_err(|why| SetUpUnitsError::Program { program: program.to_owned(), why })
}

/// Runs a command to its end, for this long.
fn ended_well(command: &mut Command, patience: Duration) -> Result<(), String> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let until = Instant::now() + patience;
    let mut child = host::start_program(quiet).map_err(|error| error.to_string())?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(format!("no answer within {} s", patience.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
