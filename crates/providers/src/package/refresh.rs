//! The lists of packages that repositories offer: how old they are, and refreshing them.
//!
//! They are refreshed at most once a run, and once more where a repository was changed since: when they
//! are older than a package allows, when a repository is newer than they are, when a package or a version
//! is not known. That a refresh failed is told; it fails no package that is known without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::types::PackageSpec;
use converge::kinds::package::transaction;
use host::{FileVersion, FileWrite};
use model::{Digest, PathOwnership};

use super::apt::AptCommand;
use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, text};

/// Its time is that of the last refresh that succeeded; others (Ubuntu's hook, Ansible) know it too.
const STAMP: &str = "/var/lib/apt/periodic/update-success-stamp";
const LISTS: &str = "/var/lib/apt/lists";
/// Where repositories, their keys and their priorities are declared.
const SOURCES: &[&str] = &[
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/keyrings",
    "/etc/apt/preferences",
    "/etc/apt/preferences.d",
];
/// The most files in one of their directories.
const MAX_SOURCES: usize = 1000;
/// Time for a refresh.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(600);
/// Permission bits of the stamp.
const STAMP_MODE: u32 = 0o644;

/// What this run did about the lists.
#[derive(Debug, Default)]
pub(super) struct Refreshed {
    /// What repositories were like when it refreshed them.
    sources: Option<Vec<(String, FileVersion)>>,
    /// Why that failed.
    failed: Option<String>,
}

/// Versions that the repositories offer, of every package that was asked about.
#[derive(Debug, Default)]
pub(super) struct Offers {
    stamps: Vec<(String, FileVersion)>,
    names: BTreeSet<String>,
    versions: BTreeMap<String, String>,
}

impl Kinds {
    pub(super) fn forget_refresh(&self) {
        *self.packages.refreshed.lock().unwrap_or_else(PoisonError::into_inner) = Refreshed::default();
    }

    /// Whether the lists are older than `valid`, or than a repository, and this run has not refreshed
    /// them.
    pub(super) fn lists_are_old(&self, valid: Duration) -> Result<bool, String> {
        if self.refreshed_since_sources()? {
            return Ok(false);
        }
        let stamp = self.host.stamp(STAMP).map_err(text)?.map(|stamp| stamp.modified());
        let lists = self.host.stamp(LISTS).map_err(text)?.map(|stamp| stamp.modified());
        let Some(last) = stamp.max(lists) else { return Ok(true) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let valid = i64::try_from(valid.as_secs()).unwrap_or(i64::MAX);
        let changed = self.sources()?.iter().map(|(_, stamp)| stamp.modified()).max();
        // In one second nobody can say which was first.
        Ok(now.saturating_sub(last) > valid || last > now || changed.is_some_and(|changed| changed >= last))
    }

    /// Refreshes the lists unless this run has. Why the last refresh of this run failed is kept.
    pub(super) fn refresh_lists(&self) -> Result<(), String> {
        if self.refreshed_since_sources()? {
            return Ok(());
        }
        let sources = self.sources()?;
        let arguments = ["-y", "-q", "update"].map(str::to_owned);
        let command = AptCommand {
            timeout: REFRESH_TIMEOUT,
            ..AptCommand::new(self.packages.tools().apt_get, arguments)
        };
        let finished = self.ask_apt(command)?;
        let stderr = String::from_utf8_lossy(&finished.stderr.bytes);
        // Some of the lists failed: apt says so and exits with 0, and uses the old ones.
        let partly = stderr
            .lines()
            .any(|line| line.starts_with("W: Failed to fetch") || line.starts_with("W: Some index files"));
        let failed = (finished.end != host::End::Exited(0) || partly).then(|| {
            let stdout = String::from_utf8_lossy(&finished.stdout.bytes);
            let warned: Vec<&str> = stderr.lines().filter(|line| line.starts_with("W: Failed")).collect();
            match warned.is_empty() {
                true => transaction::words(&stdout, &stderr),
                false => warned.join("\n"),
            }
        });
        match &failed {
            Some(why) => tracing::warn!(why, "the lists of packages could not be refreshed"),
            None => self.stamp_refresh(),
        }
        let mut refreshed = self.packages.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        *refreshed = Refreshed { sources: Some(sources), failed };
        Ok(())
    }

    /// Whether this run refreshed the lists, or tried to, and no repository was changed since.
    pub(super) fn refreshed_since_sources(&self) -> Result<bool, String> {
        let sources = self.sources()?;
        let refreshed = self.packages.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(refreshed.sources.as_ref() == Some(&sources))
    }

    /// Why the lists could not be refreshed in this run.
    pub(super) fn refresh_failure(&self) -> Option<String> {
        let refreshed = self.packages.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        refreshed.failed.as_ref().map(|why| format!("the lists of packages could not be refreshed: {why}"))
    }

    /// The version of a package that the repositories offer. All that were asked about are asked about
    /// at once when something changed.
    pub(super) fn offered(&self, spec: &PackageSpec) -> Result<Option<String>, String> {
        let mut stamps = self.sources()?;
        for path in [LISTS, "/var/lib/dpkg/status", STAMP] {
            let stamp = self.host.stamp(path).map_err(text)?;
            stamps.extend(stamp.map(|stamp| (path.to_owned(), stamp)));
        }
        let mut all = self.packages.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let offers = all.entry(spec.options.default_release.clone()).or_default();
        let new = offers.names.insert(spec.name.clone());
        if new || offers.stamps != stamps {
            let release =
                spec.options.default_release.iter().flat_map(|release| ["-t".to_owned(), release.clone()]);
            let names = offers.names.iter().cloned();
            let arguments =
                ["-q".to_owned()].into_iter().chain(release).chain(["policy".to_owned()]).chain(names);
            let command = AptCommand::new(self.packages.tools().apt_cache, arguments);
            let finished = self.must_apt("apt-cache policy", command)?;
            if finished.stdout.total > MAX_OUTPUT as u64 {
                return Err(format!("apt-cache policy printed more than {MAX_OUTPUT} bytes"));
            }
            offers.versions = transaction::offered(&String::from_utf8_lossy(&finished.stdout.bytes));
            offers.stamps = stamps;
        }
        Ok(offers.versions.get(&spec.name).cloned())
    }

    /// What declares repositories, and what it is like.
    fn sources(&self) -> Result<Vec<(String, FileVersion)>, String> {
        let mut found = Vec::new();
        for path in SOURCES {
            let Some(stamp) = self.host.stamp(path).map_err(text)? else { continue };
            found.push(((*path).to_owned(), stamp));
            if path.ends_with(".d") {
                let names = self.host.names(path, MAX_SOURCES).map_err(text)?.unwrap_or_default();
                for path in names.iter().map(|name| format!("{path}/{name}")) {
                    let stamp = self.host.stamp(&path).map_err(text)?;
                    found.extend(stamp.map(|stamp| (path, stamp)));
                }
            }
        }
        Ok(found)
    }

    fn stamp_refresh(&self) {
        let write = FileWrite {
            content: &mut &b""[..],
            digest: Digest::of(b""),
            ownership: PathOwnership::default(),
            default_mode: STAMP_MODE,
            backup: false,
            validate: None,
        };
        if let Err(error) = self.host.write(STAMP, write) {
            // They count as old then, and are refreshed again.
            tracing::debug!(%error, "the time of the refresh was not noted");
        }
    }
}
