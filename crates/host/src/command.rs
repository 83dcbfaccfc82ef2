//! What is to be run, and how it is stopped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// The longest script name, in bytes, that the kernel shows.
const MAX_SCRIPT_NAME: usize = 100;

/// A switch that ends running commands. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends every command that runs under this switch, now and later.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// It was used.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A program.
#[derive(Clone, Debug)]
pub enum Program {
    /// A program, found on `PATH` unless its name has a slash, and its arguments.
    Argv(Vec<String>),
    /// A text for `/bin/sh -c`.
    Shell(String),
    /// A script that was verified in memory.
    Script(SealedScript),
}

impl Program {
    /// What errors call it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Program::Argv(argv) => argv.first().map_or("", String::as_str),
            Program::Shell(_) => "/bin/sh",
            Program::Script(script) => &script.name,
        }
    }
}

/// A command: a program and what surrounds it.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program.
    pub program: Program,
    /// Working directory on the host; `/` of the host by default.
    pub cwd: Option<String>,
    /// Added to the minimal environment (`PATH`, `HOME`, `LANG`, and `MUSTER_ROOT`
    /// when rooted).
    pub env: BTreeMap<String, String>,
    /// User to run as, by name or number; the agent's own by default. It runs with that
    /// user's primary group and no other.
    pub user: Option<String>,
    /// What it reads from its standard input.
    pub stdin: Vec<u8>,
    /// How long it may run before its process group is ended.
    pub timeout: Duration,
    /// How many bytes of each of its outputs are kept; the rest is read and counted.
    pub output_limit: usize,
}

impl Command {
    /// A command in `/` with nothing on its standard input.
    pub fn new(program: Program, timeout: Duration, output_limit: usize) -> Command {
        Command {
            program,
            cwd: None,
            env: BTreeMap::new(),
            user: None,
            stdin: Vec::new(),
            timeout,
            output_limit,
        }
    }
}

/// An executable that lies in memory, sealed: what was verified is what runs, whatever
/// happens to the file that it came from.
#[derive(Clone, Debug)]
pub struct SealedScript {
    name: String,
    file: Arc<File>,
    executable: bool,
}

impl SealedScript {
    /// Puts the bytes of a script or program into memory under a name for `ps` and errors.
    ///
    /// # Errors
    /// When the kernel gives no memory file.
    pub fn new(name: &str, bytes: &[u8]) -> io::Result<SealedScript> {
        let shown: String = name
            .chars()
            .filter(|c| *c != '\0')
            .scan(0, |length, c| {
                *length += c.len_utf8();
                (*length <= MAX_SCRIPT_NAME).then_some(c)
            })
            .collect();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = match memfd_create(&*shown, flags | MemfdFlags::EXEC) {
            // Kernels before 6.3 do not know the flag and always allow execution.
            Err(Errno::INVAL) => memfd_create(&*shown, flags),
            other => other,
        }?;
        let mut file = File::from(fd);
        file.write_all(bytes)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        let executable = bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF");
        Ok(SealedScript { name: shown, file: Arc::new(file), executable })
    }

    /// It begins as a script or a program does.
    pub(crate) fn is_executable(&self) -> bool {
        self.executable
    }

    /// A path that names it as long as `self` lives, for every process of the same user.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}
