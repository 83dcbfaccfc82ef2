//! What the kernel says of itself.

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
}
