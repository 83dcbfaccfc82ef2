//! The files of dpkg and apt, read once for all packages and again when one of them changed.

use std::sync::{Arc, PoisonError};

use converge::kinds::package::database::PackageDatabase;
use host::{FileVersion, HostError};

use crate::Kinds;
use crate::kinds::text;

/// The packages of the host.
const STATUS: &str = "/var/lib/dpkg/status";
/// Changes that dpkg did not bring into the status file yet.
const UPDATES: &str = "/var/lib/dpkg/updates";
/// Which packages were installed because others need them.
const MARKS: &str = "/var/lib/apt/extended_states";
/// The largest of these files, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// The most files of changes.
const MAX_UPDATES: usize = 10_000;

/// What was read last.
#[derive(Debug, Default)]
pub(super) struct PackageCache {
    read: Option<(PackageStamps, Arc<PackageDatabase>)>,
}

/// What the files were like.
#[derive(Debug, PartialEq, Eq)]
struct PackageStamps {
    status: Option<FileVersion>,
    marks: Option<FileVersion>,
    updates: Vec<(String, Option<FileVersion>)>,
}

impl Kinds {
    /// The packages of the host now.
    pub(super) fn package_database(&self) -> Result<Arc<PackageDatabase>, String> {
        let mut cache = self.packages.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.package_stamps().map_err(text)?;
        if let Some((known, database)) = &cache.read
            && *known == stamps
        {
            return Ok(Arc::clone(database));
        }
        let database = Arc::new(self.read_packages(&stamps)?);
        cache.read = Some((stamps, Arc::clone(&database)));
        Ok(database)
    }

    fn package_stamps(&self) -> Result<PackageStamps, HostError> {
        let names = self.host.names(UPDATES, MAX_UPDATES)?.unwrap_or_default();
        // dpkg numbers them, and writes `tmp.i` before.
        let numbered = names.into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let updates = numbered.map(|name| {
            let path = format!("{UPDATES}/{name}");
            self.host.stamp(&path).map(|stamp| (path, stamp))
        });
        Ok(PackageStamps {
            updates: updates.collect::<Result<_, HostError>>()?,
            status: self.host.stamp(STATUS)?,
            marks: self.host.stamp(MARKS)?,
        })
    }

    fn read_packages(&self, stamps: &PackageStamps) -> Result<PackageDatabase, String> {
        let read = |path: &str| self.host.read(path, MAX_FILE).map_err(text);
        let status = read(STATUS)?.ok_or_else(|| {
            format!("{STATUS} does not exist: this host is none of Debian's kind, which `package` needs")
        })?;
        let updates = stamps.updates.iter().map(|(path, _)| Ok(read(path)?.unwrap_or_default()));
        let updates: Vec<Vec<u8>> = updates.collect::<Result<_, String>>()?;
        let marks = read(MARKS)?.unwrap_or_default();
        Ok(PackageDatabase::read(&status, updates.iter().map(Vec::as_slice), &marks))
    }
}
