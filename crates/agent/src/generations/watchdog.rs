//! [`ReturnWatchdog`]: what looks whether the host must go back, outside of the agent under trial (ROL-12).

use std::path::Path;

use spool::Disk;

use super::return_loop::{ReturnLoop, StartLoopError};
use super::return_units::{ReturnUnits, SetUpUnitsError};
use crate::machine::{DEFAULT_STATE, MachineOptions};
use crate::service::SERVICE;

/// Why the watchdog is not in force, or stays.
#[derive(Debug, thiserror::Error)]
pub enum SetUpWatchdogError {
    /// Its units.
    #[error(transparent)]
    Units(#[from] SetUpUnitsError),
    /// Its loop.
    #[error(transparent)]
    Loop(#[from] StartLoopError),
}

/// Who looks.
#[derive(Clone, Debug)]
pub enum ReturnWatchdog {
    /// Units of systemd: they outlive the agent, its package and a reboot.
    Units(ReturnUnits),
    /// A process in a session of its own, where systemd does not run, or the agent is not the whole host's. It ends with
    /// the boot: whatever starts the agent then looks first.
    Loop(ReturnLoop),
}

impl ReturnWatchdog {
    /// The one of the host that these options name.
    pub fn of_this_host(options: &MachineOptions, disk: &Disk) -> ReturnWatchdog {
        let is_whole_host = options.root.is_none() && options.state_dir() == Path::new(DEFAULT_STATE);
        match is_whole_host && Path::new("/run/systemd/system").is_dir() {
            true => ReturnWatchdog::Units(ReturnUnits::of_this_host(disk)),
            false => ReturnWatchdog::Loop(ReturnLoop::new(options)),
        }
    }

    /// Puts it in force, with the kept program of the confirmed generation.
    ///
    /// # Errors
    /// [`SetUpWatchdogError`]: it does not look, or the one of before does.
    pub fn set_up(&self, program: &Path) -> Result<(), SetUpWatchdogError> {
        match self {
            ReturnWatchdog::Units(units) => units.set_up(program)?,
            ReturnWatchdog::Loop(watch) => watch.start(program)?,
        }
        Ok(())
    }

    /// The service manager goes by the agent's unit as it lies on the disk now, and would start it so.
    ///
    /// # Errors
    /// When it refuses the unit.
    pub fn take_up_agent(&self) -> Result<(), SetUpWatchdogError> {
        if let ReturnWatchdog::Units(units) = self {
            units.reload()?;
            // Of one that runs nothing comes, but for what systemd refuses to start.
            units.start(SERVICE)?;
        }
        Ok(())
    }

    /// Takes it away.
    ///
    /// # Errors
    /// When something of it stays.
    pub fn take_down(&self) -> Result<(), SetUpWatchdogError> {
        match self {
            ReturnWatchdog::Units(units) => units.take_down()?,
            ReturnWatchdog::Loop(watch) => watch.end()?,
        }
        Ok(())
    }

    /// Whether something of it is there.
    pub fn is_set_up(&self) -> bool {
        match self {
            ReturnWatchdog::Units(units) => units.is_set_up(),
            ReturnWatchdog::Loop(watch) => watch.runs(),
        }
    }
}
