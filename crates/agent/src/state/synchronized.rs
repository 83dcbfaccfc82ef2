//! What is kept of synchronization and of work: the sets of objects, the mode that they are
//! of, the marks of actions; and what the held release says of both.

use std::path::Path;

use model::replication::{Mode, SyncPolicy};
use model::work::Delegation;
use model::{Kind, ObjectKey};
use node::Adoption;
use node::work::ActionMark;
use serde::{Deserialize, Serialize};
use spool::objects::{ObjectLimits, OpenedObjects};
use spool::{Journal, ObjectLog, StateFile};

use super::{Durable, MODE, StateError, fresh_incarnation, spool};

/// The name of the release's leave to synchronize.
const SYNC_NAME: &str = "sync";

/// The most folders that are remembered; of more the oldest is forgotten.
const MAX_FOLDERS: usize = 64;

/// The folders that were there once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KnownFolders {
    folders: Vec<String>,
}

/// The mode that the kept sets are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptMode {
    mode: Mode,
}

impl Durable {
    /// The release's leave to synchronize; `None` when it gives none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sync_policy(&self, adoption: &Adoption) -> Result<Option<SyncPolicy>, StateError> {
        let stub = adoption.objects.get(&ObjectKey::of(Kind::SYNC, SYNC_NAME));
        stub.map(|stub| self.parsed(&stub.digest)).transpose()
    }

    /// What the release lets the control plane ask for, by name.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn delegations(&self, adoption: &Adoption) -> Result<Vec<Delegation>, StateError> {
        let named = |key: &ObjectKey| key.section.kind.as_str() == Kind::DELEGATION;
        let all = adoption.objects.iter().filter(|(key, _)| named(key));
        all.map(|(_, stub)| self.parsed(&stub.digest)).collect()
    }

    /// Opens the sets of objects; what was damaged is a repair.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open_objects(&self) -> Result<OpenedObjects, StateError> {
        let fresh = fresh_incarnation()?;
        let directory = self.path.join("objects");
        let opened = ObjectLog::open(&self.disk, &directory, &fresh, ObjectLimits::default());
        let mut opened = opened.map_err(spool("open the synchronized objects"))?;
        opened.repairs.drain(..).for_each(|repair| self.repaired(repair));
        Ok(opened)
    }

    /// The mode that the kept sets are of; off before the first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn kept_mode(&self) -> Result<Mode, StateError> {
        let kept = self.load(&self.mode_slot(), "read the mode of the synchronized objects")?;
        Ok(kept.map_or(Mode::Off, |kept| kept.mode))
    }

    /// Records the mode that the kept sets are of.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_mode(&self, mode: Mode) -> Result<(), StateError> {
        let what = "record the mode of the synchronized objects";
        self.mode_slot().store(&KeptMode { mode }).map_err(spool(what))
    }

    fn mode_slot(&self) -> StateFile<KeptMode> {
        StateFile::new(&self.disk, self.path.join("synchronized.json"), MODE)
    }

    /// Whether a folder of manifests was there once: if it is gone, it is not made again.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn knows_folder(&self, folder: &str) -> Result<bool, StateError> {
        Ok(self.known_folders()?.folders.iter().any(|known| known == folder))
    }

    /// Remembers that a folder of manifests is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_folder(&self, folder: &str) -> Result<(), StateError> {
        let mut known = self.known_folders()?;
        if known.folders.iter().any(|known| known == folder) {
            return Ok(());
        }
        if known.folders.len() >= MAX_FOLDERS {
            known.folders.remove(0);
        }
        known.folders.push(folder.to_owned());
        self.folders_slot().store(&known).map_err(spool("record the folder of manifests"))
    }

    fn known_folders(&self) -> Result<KnownFolders, StateError> {
        Ok(self.load(&self.folders_slot(), "read the folders of manifests")?.unwrap_or_default())
    }

    fn folders_slot(&self) -> StateFile<KnownFolders> {
        StateFile::new(&self.disk, self.path.join("folders.json"), MODE)
    }

    /// Opens the marks of actions; `true` when some of them may be lost.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open_actions(&self) -> Result<(Journal<String, ActionMark>, bool), StateError> {
        let opened = Journal::open(&self.disk, &self.path.join("actions"));
        let opened = opened.map_err(spool("read the marks of actions"))?;
        let damaged = !opened.repairs.is_empty();
        opened.repairs.into_iter().for_each(|repair| self.repaired(repair));
        Ok((opened.journal, damaged))
    }

    /// The state directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
