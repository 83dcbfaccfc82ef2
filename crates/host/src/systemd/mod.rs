//! The service manager of the machine, systemd, over the system bus.
//!
//! ```text
//! Host::systemd -> Systemd ── unit, details      one shared connection: questions, asked again once
//!                    │                           on a new connection when the bus went away
//!                    ├─ session: SystemdSession  a connection of its own: files, reload, jobs that it
//!                    │                           waits for while others go on asking
//!                    └─ watch: UnitWatch         a connection of its own: what changes by itself
//! ```
//!
//! States are given in systemd's own words: what they mean for a resource is `converge`'s to say.
//! Invariants: every wait has a limit; a connection that failed is dropped, and the next question opens
//! another; without a bus only these calls fail.

mod properties;
mod session;
mod watch;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use properties::{UnitDetails, UnitProperties};
pub use session::{JobEnd, SystemdSession, UnitVerb};
pub use watch::{UnitEvent, UnitWatch};

use crate::dbus::{BusArgument, BusCall, BusConnection, BusError, BusValue};
use crate::{Cancel, Host};

/// How long systemd may take to answer a question. It answers nothing while it reads its files again.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the system bus listens, below the host's root.
const SOCKET: &str = "run/dbus/system_bus_socket";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const UNIT_PREFIX: &str = "/org/freedesktop/systemd1/unit/";

/// systemd. Shared between threads.
#[derive(Debug)]
pub struct Systemd {
    socket: PathBuf,
    uid: u32,
    cancel: Cancel,
    shared: Mutex<Option<BusConnection>>,
    /// The last question waited in vain.
    silent: AtomicBool,
}

impl Host {
    /// The service manager of the machine, behind the bus below the host's root. Nothing is opened yet.
    pub fn systemd(&self) -> &Systemd {
        &self.systemd
    }
}

impl Systemd {
    pub(crate) fn new(root: &std::path::Path, uid: u32, cancel: Cancel) -> Systemd {
        Systemd {
            socket: root.join(SOCKET),
            uid,
            cancel,
            shared: Mutex::default(),
            silent: AtomicBool::new(false),
        }
    }

    /// What systemd says of a unit, by its full name (`nginx.service`). A unit that there is none of is
    /// an answer: its load state is `not-found`. Costs one question.
    ///
    /// # Errors
    /// When the bus does not answer, or the name cannot be one of a unit.
    pub fn unit(&self, name: &str) -> Result<UnitProperties, BusError> {
        let entries = self.all(name, "org.freedesktop.systemd1.Unit")?;
        Ok(UnitProperties::read(&entries))
    }

    /// What systemd says of a unit as one of its type: how a service ended, how often it was started.
    ///
    /// # Errors
    /// When the bus does not answer, or the name cannot be one of a unit.
    pub fn details(&self, name: &str) -> Result<UnitDetails, BusError> {
        let suffix = name.rsplit_once('.').map_or("service", |(_, suffix)| suffix);
        let mut letters = suffix.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let interface: String = first.into_iter().chain(letters).collect();
        let entries = self.all(name, &format!("{SYSTEMD}.{interface}"))?;
        Ok(UnitDetails::read(&entries))
    }

    /// Whether a unit is enabled, as its files say now, in the words of [`UnitProperties::file_state`], which
    /// systemd remembers; `None` when it finds no file.
    ///
    /// # Errors
    /// When the bus does not answer.
    pub fn file_state(&self, name: &str) -> Result<Option<String>, BusError> {
        let arguments = [BusArgument::Text(name)];
        let call = BusCall {
            destination: SYSTEMD,
            path: MANAGER_PATH,
            interface: MANAGER,
            member: "GetUnitFileState",
            arguments: &arguments,
        };
        match self.ask(&call) {
            Ok(body) => Ok(body.first().and_then(BusValue::text).map(str::to_owned)),
            Err(error) if error.is_answer() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The last question did not wait in vain: who must not be held up may ask.
    pub fn answers(&self) -> bool {
        !self.silent.load(Ordering::Relaxed)
    }

    /// A session in which units are changed.
    ///
    /// # Errors
    /// When there is no bus, or systemd does not answer.
    pub fn session(&self) -> Result<SystemdSession, BusError> {
        SystemdSession::open(BusConnection::open(&self.socket, self.uid)?, self.cancel.clone())
    }

    /// What changes of units from now on.
    ///
    /// # Errors
    /// When there is no bus, or systemd does not answer.
    pub fn watch(&self) -> Result<UnitWatch, BusError> {
        UnitWatch::open(BusConnection::open(&self.socket, self.uid)?)
    }

    /// All properties of a unit's interface.
    fn all(&self, name: &str, interface: &str) -> Result<BusValue, BusError> {
        let path = unit_path(name);
        let arguments = [BusArgument::Text(interface)];
        let call = BusCall {
            destination: SYSTEMD,
            path: &path,
            interface: PROPERTIES,
            member: "GetAll",
            arguments: &arguments,
        };
        let body = self.ask(&call)?;
        body.into_iter().next().ok_or(BusError::Malformed("an answer without properties"))
    }

    /// Asks on the shared connection. One that was opened earlier may be gone: the bus restarted.
    fn ask(&self, call: &BusCall<'_>) -> Result<Vec<BusValue>, BusError> {
        let mut shared = self.shared();
        let reused = shared.is_some();
        let answer = match self.ask_once(&mut shared, call) {
            Err(BusError::Lost(_)) if reused => self.ask_once(&mut shared, call),
            answer => answer,
        };
        self.silent.store(matches!(answer, Err(BusError::TimedOut { .. })), Ordering::Relaxed);
        answer
    }

    fn ask_once(
        &self,
        shared: &mut Option<BusConnection>,
        call: &BusCall<'_>,
    ) -> Result<Vec<BusValue>, BusError> {
        let mut bus = match shared.take() {
            Some(bus) => bus,
            None => BusConnection::open(&self.socket, self.uid)?,
        };
        let answer = bus.call(call, CALL_TIMEOUT);
        if answer.as_ref().err().is_none_or(BusError::is_answer) {
            *shared = Some(bus);
        }
        answer
    }

    fn shared(&self) -> MutexGuard<'_, Option<BusConnection>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time since the machine started, as systemd's monotonic timestamps count it.
pub fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// The path of a unit's object: what is no letter or digit, and a digit at the beginning, in hex.
fn unit_path(name: &str) -> String {
    let mut path = UNIT_PREFIX.to_owned();
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(byte.into());
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

/// The name of a unit from the path of its object; `None` when it is the path of something else.
fn unit_name(path: &str) -> Option<String> {
    let mut rest = path.strip_prefix(UNIT_PREFIX)?.as_bytes();
    let mut name = Vec::with_capacity(rest.len());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first == b'_' {
            let (hex, more) = rest.split_at_checked(2)?;
            name.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = more;
        } else {
            name.push(*first);
        }
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_and_back() {
        let table = [
            ("nginx.service", "nginx_2eservice"),
            ("getty@tty1.service", "getty_40tty1_2eservice"),
            ("1st.timer", "_31st_2etimer"),
            ("a-b_c.socket", "a_2db_5fc_2esocket"),
            ("dev-disk-by\\x2dlabel.device", "dev_2ddisk_2dby_5cx2dlabel_2edevice"),
        ];
        for (name, label) in table {
            assert_eq!(unit_path(name), format!("{UNIT_PREFIX}{label}"));
            assert_eq!(unit_name(&unit_path(name)).as_deref(), Some(name));
        }
        for strange in ["/org/freedesktop/systemd1/job/7", "/org/freedesktop/systemd1/unit/a_2", "/x"] {
            assert_eq!(unit_name(strange), None);
        }
    }
}
