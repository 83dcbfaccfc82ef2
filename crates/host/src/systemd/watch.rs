//! [`UnitWatch`]: units that change by themselves, or out of band.

use std::time::Duration;

use super::{MANAGER, MANAGER_PATH, SYSTEMD, unit_name};
use crate::dbus::{BusCall, BusConnection, BusError};

/// How long systemd may take to begin telling.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Something of units changed: it says where to look again, not what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitEvent {
    /// The state of this unit.
    State(String),
    /// Files of units, links among them: what is enabled or masked.
    Files,
}

/// A subscription to what changes of units, as systemd alone tells it. An event is a reason to look and
/// nothing else.
#[derive(Debug)]
pub struct UnitWatch {
    bus: BusConnection,
}

impl UnitWatch {
    pub(super) fn open(mut bus: BusConnection) -> Result<UnitWatch, BusError> {
        bus.listen(SYSTEMD)?;
        bus.add_match(&format!(
            "type='signal',sender='{SYSTEMD}',interface='org.freedesktop.DBus.Properties',\
             member='PropertiesChanged',path_namespace='/org/freedesktop/systemd1/unit',\
             arg0='org.freedesktop.systemd1.Unit'"
        ))?;
        bus.add_match(&format!(
            "type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='UnitFilesChanged'"
        ))?;
        let call = BusCall {
            destination: SYSTEMD,
            path: MANAGER_PATH,
            interface: MANAGER,
            member: "Subscribe",
            arguments: &[],
        };
        bus.call(&call, SUBSCRIBE_TIMEOUT)?;
        Ok(UnitWatch { bus })
    }

    /// The next event; `None` when there was none in time.
    ///
    /// # Errors
    /// When the connection ended: what changed meanwhile is not known, so look at everything and open
    /// another watch.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<UnitEvent>, BusError> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let Some(signal) = self.bus.signal(left)? else { return Ok(None) };
            match signal.member.as_str() {
                "UnitFilesChanged" => return Ok(Some(UnitEvent::Files)),
                "PropertiesChanged" => {
                    if let Some(unit) = unit_name(&signal.path) {
                        return Ok(Some(UnitEvent::State(unit)));
                    }
                }
                _ => {}
            }
        }
    }
}
