//! Links that start units with the machine, as they are on disk: systemd remembers what it saw until it
//! reads its files again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use catalog::types::UNIT_FOLDER;
use converge::watch::LINK_FOLDERS;
use host::Host;

/// The most entries of the folder of units, and of a folder of links, that are looked through.
const MAX_ENTRIES: usize = 5_000;

/// The names of the units that some link starts, read once a run.
#[derive(Debug, Default)]
pub(crate) struct UnitLinks(Mutex<Option<BTreeSet<String>>>);

/// The folders of links that start units, by their paths.
pub fn link_folders(host: &Host) -> Vec<String> {
    let names = host.names(UNIT_FOLDER, MAX_ENTRIES).ok().flatten().unwrap_or_default();
    let is_of_links = |name: &&String| LINK_FOLDERS.iter().any(|end| name.ends_with(end));
    names.iter().filter(is_of_links).map(|name| format!("{UNIT_FOLDER}/{name}")).collect()
}

impl UnitLinks {
    /// Another run begins.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether some link starts a unit.
    pub(crate) fn start(&self, host: &Host, unit: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let linked = known.get_or_insert_with(|| {
            let mut linked = BTreeSet::new();
            for folder in link_folders(host) {
                linked.extend(host.names(&folder, MAX_ENTRIES).ok().flatten().unwrap_or_default());
            }
            linked
        });
        linked.contains(unit)
    }
}
