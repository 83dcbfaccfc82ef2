//! [`boot_moment`]: the time as activations count it.

use activation::{BootMoment, BootTime, ParseBootIdError};
use rustix::time::{ClockId, clock_gettime};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why the kernel does not say which boot this is.
#[derive(Debug, thiserror::Error)]
pub enum BootMomentError {
    /// It cannot be read.
    #[error("cannot read {BOOT_ID}")]
    Read(#[source] std::io::Error),
    /// It is none.
    #[error("what {BOOT_ID} holds is no boot id")]
    Parse(#[source] ParseBootIdError),
}

/// The boot that this is, and the time since, time asleep included.
///
/// # Errors
/// When the kernel does not say.
pub fn boot_moment() -> Result<BootMoment, BootMomentError> {
    let id = std::fs::read_to_string(BOOT_ID).map_err(BootMomentError::Read)?;
    let boot = id.trim().parse().map_err(BootMomentError::Parse)?;
    let since = std::time::Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    Ok(BootMoment { boot, at: BootTime::after_boot(since) })
}
