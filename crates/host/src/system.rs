//! What the kernel says of itself, and its parameters.

use std::fs::File;
use std::io::{self, Write as _};

use rustix::fs::{Mode, OFlags, openat};

use crate::{Host, HostError, HostOperation, PathProblem};

/// The running kernel. Under a root it is the real host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The name that the host goes by.
    pub hostname: String,
    /// The kernel's release, such as `6.12.9`.
    pub release: String,
    /// The machine, such as `x86_64`.
    pub machine: String,
}

impl Kernel {
    /// Asks the kernel.
    pub fn observe() -> Kernel {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Kernel {
            hostname: text(uname.nodename()),
            release: text(uname.release()),
            machine: text(uname.machine()),
        }
    }

    /// Gives the running kernel a name; it is gone with the next boot.
    ///
    /// # Errors
    /// When it is too long, or the agent may not.
    pub fn set_hostname(name: &str) -> io::Result<()> {
        Ok(rustix::system::sethostname(name.as_bytes())?)
    }
}

/// Where the kernel's parameters are.
const PARAMETERS: &str = "/proc/sys/";

impl Host {
    /// Writes the value of a kernel parameter, a file below `/proc/sys`, in one call.
    ///
    /// # Errors
    /// When there is no such parameter, or in the kernel's words when it refuses the value.
    pub fn set_kernel_parameter(&self, path: &str, value: &str) -> Result<(), HostError> {
        self.at(HostOperation::SetParameter, path, |entry| {
            if !path.starts_with(PARAMETERS) {
                return Err(PathProblem::BadPath("it is not below /proc/sys"));
            }
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(&entry.dir, &entry.name, flags, Mode::empty())?;
            File::from(fd).write_all(format!("{value}\n").as_bytes()).map_err(PathProblem::Io)
        })
    }
}
