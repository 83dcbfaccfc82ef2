//! Who holds a lock file.

use std::fs;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::{Host, HostError, HostOperation};

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its number; `None` where it is not one of this machine's that can be seen from here.
    pub pid: Option<i32>,
    /// The name of its program, as far as the kernel keeps it (15 bytes).
    pub program: Option<String>,
}

impl Host {
    /// Who holds a lock (`fcntl`) on a file that keeps others from writing; `None` when nobody does or
    /// there is no such file.
    ///
    /// # Errors
    /// When the file cannot be opened, or the kernel does not say.
    pub fn lock_holder(&self, path: &str) -> Result<Option<LockHolder>, HostError> {
        let Some(file) = self.open_file(path)? else { return Ok(None) };
        let held = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))
            .map_err(|errno| HostOperation::Look.failed(path)(errno.into()))?;
        Ok(held.map(|held| {
            let pid = held.pid.map(|pid| pid.as_raw_nonzero().get());
            let comm = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
            LockHolder { pid, program: comm.map(|name| name.trim().to_owned()) }
        }))
    }
}
