//! What the kernel says under `/proc`: of the host root where it has one, else of the real
//! host, because a root directory seldom has a kernel of its own.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use host::Host;
use model::sort::SortCompactly;

/// The largest file that is read, in bytes.
const MAX_SOURCE: u64 = 4 * 1024 * 1024;
/// The most processes that are looked at.
const MAX_PROCESSES: usize = 65_536;

/// A `/proc`.
pub(crate) struct Proc {
    path: PathBuf,
}

impl Proc {
    pub(crate) fn of(host: &Host) -> Proc {
        let own = host.root().join("proc");
        let real = PathBuf::from("/proc");
        Proc { path: if host.rooted() && own.join("stat").is_file() { own } else { real } }
    }

    /// A file of it as text; `None` when it is not there (any more), or not for the agent.
    pub(crate) fn text(&self, name: impl AsRef<Path>) -> Option<String> {
        let file = std::fs::File::open(self.path.join(name)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_SOURCE).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// As [`Proc::text`], and it has to be there.
    pub(crate) fn required(&self, name: &str) -> Result<String, String> {
        self.text(name).ok_or_else(|| format!("cannot read /proc/{name}"))
    }

    /// What a link of it says.
    pub(crate) fn link(&self, name: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.path.join(name)).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    /// The names in a directory of it, at most so many; none where it cannot be read.
    pub(crate) fn names(&self, name: impl AsRef<Path>, most: usize) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path.join(name)) else { return Vec::new() };
        entries.take(most).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// The processes, by number.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) fn processes(&self) -> Result<Vec<u32>, String> {
        let failed = |error: io::Error| format!("cannot list /proc: {error}");
        let entries = std::fs::read_dir(&self.path).map_err(failed)?;
        let pid = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let mut pids: Vec<u32> = entries.filter_map(pid).take(MAX_PROCESSES).collect();
        pids.sort_compactly();
        Ok(pids)
    }

    /// The short name of a process.
    pub(crate) fn name(&self, pid: u32) -> Option<String> {
        self.text(format!("{pid}/comm")).map(|name| name.trim_end_matches('\n').to_owned())
    }
}

/// A user's name, or the number of one without.
pub(crate) fn user(accounts: &host::Accounts, uid: u32) -> String {
    accounts.user_name(uid).map_or_else(|| uid.to_string(), ToOwned::to_owned)
}
