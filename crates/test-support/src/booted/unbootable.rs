//! Why hosts cannot be booted on a machine, and when that fails a test.

use std::fmt;

/// A reason for which hosts cannot be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unbootable {
    /// Nobody asked for booted tests.
    NotAsked,
    NotRoot,
    /// The kernel, or what confines this machine, refuses an overlay, a namespace or a cgroup.
    KernelRefuses(String),
    /// A program is not installed.
    ProgramMissing {
        program: &'static str,
        package: &'static str,
    },
    /// The image could not be built.
    ImageFailed(String),
}

impl Unbootable {
    /// Whether the test must fail instead of being skipped. In CI what can be installed must be
    /// there and the image must build: only what nobody can give to the machine from within (root,
    /// the kernel's leave) skips a test. Elsewhere every reason skips it.
    pub fn fails(&self, is_ci: bool) -> bool {
        match self {
            Unbootable::NotAsked | Unbootable::NotRoot | Unbootable::KernelRefuses(_) => false,
            Unbootable::ProgramMissing { .. } | Unbootable::ImageFailed(_) => is_ci,
        }
    }
}

impl fmt::Display for Unbootable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unbootable::NotAsked => f.write_str("tests that boot hosts run with `cargo xtask booted`"),
            Unbootable::NotRoot => f.write_str("booting hosts needs root"),
            Unbootable::KernelRefuses(why) => write!(f, "this machine may not boot hosts: {why}"),
            Unbootable::ProgramMissing { program, package } => {
                write!(f, "booting hosts needs {program}: apt-get install {package}")
            }
            Unbootable::ImageFailed(why) => write!(f, "the image of booted hosts cannot be built: {why}"),
        }
    }
}
