//! `package` on a host: apt-get and dpkg.
//!
//! ```text
//! check   files of dpkg and apt, read once -> converge::kinds::package -> what differs
//! apply   the lock -> finish what dpkg left -> refresh the lists, if need be -> dry runs -> apt-get
//!         -> look again: each package for itself
//! ```
//!
//! Invariants: a check runs nothing but, for `state: latest`, `apt-cache policy`; what a package is
//! after a transaction is read from dpkg's own files, whatever apt-get's exit code was; services that
//! were kept from starting may start again, also when the agent was killed in between.

mod apt;
mod database;
mod locks;
mod refresh;
mod services;
mod together;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use catalog::types::{PackageSpec, WantedPackage};
use converge::JobFailure;
use converge::kinds::package;
use model::{Edit, Fields};

use self::database::PackageCache;
use self::refresh::Offers;
pub(crate) use self::together::{Aim, PackageWish};
use crate::Kinds;
use crate::provider::{ChangeTurn, StateChange, StateProvider};

/// The programs of the package manager, by absolute path of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageTools {
    /// `apt-get`.
    pub apt_get: String,
    /// `apt-cache`.
    pub apt_cache: String,
    /// `apt-mark`.
    pub apt_mark: String,
    /// `dpkg`.
    pub dpkg: String,
    /// `debconf-set-selections`.
    pub debconf: String,
}

impl PackageTools {
    /// Those in a directory.
    pub fn in_directory(directory: &Path) -> PackageTools {
        let tool = |name: &str| directory.join(name).display().to_string();
        PackageTools {
            apt_get: tool("apt-get"),
            apt_cache: tool("apt-cache"),
            apt_mark: tool("apt-mark"),
            dpkg: tool("dpkg"),
            debconf: tool("debconf-set-selections"),
        }
    }
}

/// What is known of the packages of a host.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    /// Other programs than those of the machine.
    tools: Option<PackageTools>,
    cache: Mutex<PackageCache>,
    offers: Mutex<BTreeMap<Option<String>, Offers>>,
    refreshed: Mutex<refresh::Refreshed>,
}

impl Packages {
    fn tools(&self) -> PackageTools {
        self.tools.clone().unwrap_or_else(|| PackageTools::in_directory(Path::new("/usr/bin")))
    }
}

impl Kinds {
    /// With other programs for packages than those of the machine: for a host below another root, whose
    /// packages the programs of the machine must not touch.
    #[must_use]
    pub fn with_package_tools(mut self, tools: PackageTools) -> Kinds {
        self.packages = Arc::new(Packages { tools: Some(tools), ..Packages::default() });
        self
    }

    pub(crate) fn begin_package_run(&self) {
        self.forget_refresh();
        if let Err(why) = services::put_back(&self.host) {
            tracing::warn!(why, "services are still kept from starting");
        }
    }
}

impl StateProvider for PackageSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        Ok(package::observe(self, &*kinds.package_database()?))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        package::desired(self, now, None)
    }

    fn desired_here(&self, kinds: &Kinds, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        let offered = match self.wanted {
            WantedPackage::Latest => kinds.offered(self)?,
            WantedPackage::Any | WantedPackage::Version { .. } | WantedPackage::Absent => None,
        };
        package::desired(self, now, offered.as_deref())
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { to, timeout, .. } = change;
        let wish = PackageWish { spec: self, aim: Aim::State(to) };
        kinds.transact(&[wish], timeout).pop().map_or(Ok(None), |result| result.map(|applied| applied.output))
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Packages
    }

    /// The programs of the machine change the machine, whatever root the agent has.
    fn works_here(&self, kinds: &Kinds) -> bool {
        kinds.host.exec_allowed() && (!kinds.host.rooted() || kinds.packages.tools.is_some())
    }

    /// The newest version is not known while the lists are old.
    fn unsure(&self, kinds: &Kinds) -> Result<bool, String> {
        Ok(self.wanted == WantedPackage::Latest && kinds.lists_are_old(self.cache_valid)?)
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        let purged = matches!(edit, Edit::Remove { .. }) && self.options.purge;
        purged.then(|| "cannot be undone: its configuration is removed too".to_owned())
    }
}
