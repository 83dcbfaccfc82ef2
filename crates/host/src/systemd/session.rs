//! [`SystemdSession`]: changing units, and waiting until systemd has done it.

use std::time::{Duration, Instant};

use super::properties::UnitProperties;
use super::{CALL_TIMEOUT, MANAGER, MANAGER_PATH, PROPERTIES, SYSTEMD, unit_path};
use crate::Cancel;
use crate::dbus::{BusArgument, BusCall, BusConnection, BusError, BusValue};

/// How long systemd may take to read its files again: generators run, and hosts may have thousands.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest wait between two looks at the cancel switch.
const TICK: Duration = Duration::from_millis(200);
/// How often it is looked whether a job is still there, in case its end was not heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What systemd is asked to do with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitVerb {
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Restart it, if it runs.
    TryRestart,
    /// Have it read its configuration again where it can, else restart it; only if it runs.
    ReloadOrTryRestart,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// It was done.
    Done,
    /// The unit failed.
    Failed,
    /// The job ran into its own time limit.
    TimedOut,
    /// A unit that it needs failed.
    Dependency,
    /// There was nothing to do, or its conditions are not met.
    Skipped,
    /// Another job took its place, or somebody cancelled it.
    Cancelled,
    /// It is over, in another word of systemd, or in none that was heard.
    Other(String),
}

/// A connection to systemd for changes.
#[derive(Debug)]
pub struct SystemdSession {
    bus: BusConnection,
    cancel: Cancel,
}

impl SystemdSession {
    pub(super) fn open(mut bus: BusConnection, cancel: Cancel) -> Result<SystemdSession, BusError> {
        bus.add_match(&format!(
            "type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'"
        ))?;
        bus.listen(SYSTEMD)?;
        let mut session = SystemdSession { bus, cancel };
        session.manager("Subscribe", &[], CALL_TIMEOUT)?;
        Ok(session)
    }

    /// Enables a unit: it is started when the machine starts, as its file says.
    ///
    /// # Errors
    /// When systemd refuses.
    pub fn enable(&mut self, unit: &str) -> Result<(), BusError> {
        let arguments = [BusArgument::Texts(&[unit]), BusArgument::Bool(false), BusArgument::Bool(false)];
        self.manager("EnableUnitFiles", &arguments, CALL_TIMEOUT).map(drop)
    }

    /// Disables a unit, for this run of the machine and for all later ones.
    ///
    /// # Errors
    /// When systemd refuses.
    pub fn disable(&mut self, unit: &str) -> Result<(), BusError> {
        for runtime in [false, true] {
            let arguments = [BusArgument::Texts(&[unit]), BusArgument::Bool(runtime)];
            self.manager("DisableUnitFiles", &arguments, CALL_TIMEOUT)?;
        }
        Ok(())
    }

    /// Masks a unit: nothing can start it.
    ///
    /// # Errors
    /// When systemd refuses: the unit's own file is where the mask would be.
    pub fn mask(&mut self, unit: &str) -> Result<(), BusError> {
        let arguments = [BusArgument::Texts(&[unit]), BusArgument::Bool(false), BusArgument::Bool(false)];
        self.manager("MaskUnitFiles", &arguments, CALL_TIMEOUT).map(drop)
    }

    /// Takes the mask of a unit away, that of this run of the machine too.
    ///
    /// # Errors
    /// When systemd refuses.
    pub fn unmask(&mut self, unit: &str) -> Result<(), BusError> {
        for runtime in [false, true] {
            let arguments = [BusArgument::Texts(&[unit]), BusArgument::Bool(runtime)];
            self.manager("UnmaskUnitFiles", &arguments, CALL_TIMEOUT)?;
        }
        Ok(())
    }

    /// Has systemd read the files of all units again.
    ///
    /// # Errors
    /// When systemd refuses.
    pub fn reload(&mut self) -> Result<(), BusError> {
        self.manager("Reload", &[], RELOAD_TIMEOUT).map(drop)
    }

    /// What systemd says of a unit now.
    ///
    /// # Errors
    /// When systemd does not answer.
    pub fn unit(&mut self, unit: &str) -> Result<UnitProperties, BusError> {
        let path = unit_path(unit);
        let call = BusCall {
            destination: SYSTEMD,
            path: &path,
            interface: PROPERTIES,
            member: "GetAll",
            arguments: &[BusArgument::Text("org.freedesktop.systemd1.Unit")],
        };
        let body = self.bus.call(&call, CALL_TIMEOUT)?;
        body.first().map(UnitProperties::read).ok_or(BusError::Malformed("an answer without properties"))
    }

    /// Keeps a unit known to systemd as long as the session is open, so that it says what became of it
    /// also when it ended at once.
    ///
    /// # Errors
    /// When systemd refuses: there is no such unit.
    pub fn hold(&mut self, unit: &str) -> Result<(), BusError> {
        self.manager("RefUnit", &[BusArgument::Text(unit)], CALL_TIMEOUT).map(drop)
    }

    /// Has systemd do something with a unit, and waits until it is done.
    ///
    /// # Errors
    /// When systemd refuses (there is no such unit, it is masked), when the job is not over in time (it
    /// goes on), or when the agent is stopping.
    pub fn job(&mut self, verb: UnitVerb, unit: &str, timeout: Duration) -> Result<JobEnd, BusError> {
        let deadline = Instant::now() + timeout;
        let arguments = [BusArgument::Text(unit), BusArgument::Text("replace")];
        let body = self.manager(verb.method(), &arguments, CALL_TIMEOUT)?;
        let job = body.first().and_then(BusValue::text).unwrap_or_default().to_owned();
        let mut looked = Instant::now();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.cancel.is_cancelled() {
                return Err(BusError::Cancelled);
            }
            if left.is_zero() {
                let what = format!("{} of {unit}", verb.method());
                return Err(BusError::TimedOut { what, after: timeout });
            }
            if let Some(signal) = self.bus.signal(left.min(TICK))? {
                let of_job = signal.member == "JobRemoved";
                if let [_, path, _, result] = signal.body.as_slice()
                    && of_job
                    && path.text() == Some(&job)
                {
                    return Ok(JobEnd::read(result.text().unwrap_or_default()));
                }
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                if !self.unit(unit)?.has_job {
                    return Ok(JobEnd::Other("over".to_owned()));
                }
            }
        }
    }

    fn manager(
        &mut self,
        member: &str,
        arguments: &[BusArgument<'_>],
        timeout: Duration,
    ) -> Result<Vec<BusValue>, BusError> {
        let call =
            BusCall { destination: SYSTEMD, path: MANAGER_PATH, interface: MANAGER, member, arguments };
        self.bus.call(&call, timeout)
    }
}

impl UnitVerb {
    fn method(self) -> &'static str {
        match self {
            UnitVerb::Start => "StartUnit",
            UnitVerb::Stop => "StopUnit",
            UnitVerb::TryRestart => "TryRestartUnit",
            UnitVerb::ReloadOrTryRestart => "ReloadOrTryRestartUnit",
        }
    }
}

impl JobEnd {
    fn read(result: &str) -> JobEnd {
        match result {
            "done" => JobEnd::Done,
            "failed" => JobEnd::Failed,
            "timeout" => JobEnd::TimedOut,
            "dependency" => JobEnd::Dependency,
            "skipped" => JobEnd::Skipped,
            "canceled" => JobEnd::Cancelled,
            other => JobEnd::Other(other.to_owned()),
        }
    }
}
