//! The state directory: everything that the agent keeps (design.md section 6).
//!
//! ```text
//! identity.key     the machine's key, unless it is the SSH host key (0600)
//! sealing.key      the key that secrets are sealed for (0600)
//! membership.json  fleet, servers, certificate, trust
//! adoption.json    the release held, with its header and the node's floor
//! freshness.json   how fresh that is, where that changed since
//! last-run.json    what the last run came to
//! run.json         the run that is under way, or was cut off
//! contact.json     the last contact with the control plane
//! instance.json    the start of the agent that has it now, and the one before (IDN-10)
//! pending.json     notifications and verifies still owed
//! pause.json       why and since when the host is paused; null when it is not
//! reboot.json      the last reboot that was ordered
//! rollout.json     the rollout that the node takes part in; null when it is over
//! rollout-events.json  the numbers of its events in rollouts
//! process.json     the agent that runs, or died
//! activation.json  what is confirmed, and what is on trial (`crate::generations`)
//! running.json     the generation that the host runs as a whole
//! generations/     what kept generations need to come back
//! trust.json       the newest trust document, once one was taken up after joining
//! ledger/          what was made or changed, with the state before
//! log/             facts not yet acknowledged, and the last of those that were
//! content/         contents and blobs of the held set, and previous bytes, by digest
//! objects/         synchronized objects: the own feed, the replica, its cursor
//! synchronized.json  the mode that they are of
//! folders.json     the folders of manifests that were there once
//! unpacked/        what archives were unpacked to, by their directories
//! versions/        what managed files were before they were overwritten or removed
//! actions/         marks of actions: what was begun is never begun again
//! ```

mod blobs;
mod facts;
mod generations;
mod instance;
mod ledger;
mod lost;
mod membership;
mod reboot;
mod resting_journal;
mod scrub;
mod settings;
mod synchronized;
mod trusted;
mod unpacked;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use catalog::module::{Module, ModuleBlobs};
use converge::Pending;
use model::log::{Cursor, Fact};
use model::object::MAX_BLOB;
use model::{Digest, Incarnation, Kind, Pause};
use node::{Adoption, FreshnessRecord, HeldSettings, LastRun, RebootMark, TrustRecord};
use spool::blobs::Partial;
use spool::{BlobStore, Disk, FactLog, SpoolError, StateFile, StateLock};
use trust::SealingKey;

use self::ledger::LedgerJournal;
pub use self::lost::{LostState, RememberedState};
pub use self::membership::MembershipTurn;
pub(crate) use self::resting_journal::RestingJournal;
pub use self::trusted::read_trusted;
use self::unpacked::UnpackedArchives;
use crate::identity;
use crate::versions::VersionStore;

const MODE: u32 = 0o600;
/// The file that says how fresh what is held is.
pub(crate) const FRESHNESS_FILE: &str = "freshness.json";
/// The file that says whether the host is paused.
pub(crate) const PAUSE_FILE: &str = "pause.json";
/// The file with the newest trust document.
pub(crate) const TRUST_FILE: &str = "trust.json";

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be made.
    #[error("cannot make the state directory {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others can write in it.
    #[error("others can write in the state directory {} (mode {mode:04o}); it must be 0700", path.display())]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Something in it cannot be read or written.
    #[error("cannot {what}")]
    Spool {
        /// What was attempted.
        what: &'static str,
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// The state is of an earlier version.
    #[error(
        "the state in {} was written by an earlier version, which this one cannot read; it is now in {}: \
         join the fleet again ({})",
        path.display(),
        aside.display(),
        crate::invocation::command("join --token-file FILE")
    )]
    Earlier {
        /// The state directory.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
    },
    /// The host did not join a fleet.
    #[error("this host has not joined a fleet: there is no membership in {}", .0.display())]
    NotJoined(PathBuf),
    /// A content of the held set is not there.
    #[error("content {} {loss}", digest.short())]
    Lost {
        /// The content.
        digest: Digest,
        /// What became of it.
        loss: ContentLoss,
    },
    /// A content of the held set cannot be read.
    #[error("content {} cannot be read: {why}", digest.short())]
    Malformed {
        /// The content.
        digest: Digest,
        /// Why.
        why: String,
    },
    /// The operating system gives no randomness.
    #[error("no randomness")]
    Random(#[source] getrandom::Error),
    /// The storage thread cannot be started.
    #[error("the storage thread cannot be started")]
    Thread(#[source] io::Error),
    /// The storage thread ended in the middle of it.
    #[error("the storage thread has ended; restart the agent")]
    StorageEnded,
    /// What was to be appended with other facts was not.
    #[error("cannot append to the log: {0}")]
    Append(String),
}

/// What became of a content that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentLoss {
    /// Nothing is known of it.
    Missing,
    /// Its bytes were not those of its digest.
    Damaged,
}

impl fmt::Display for ContentLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContentLoss::Missing => "is missing from the state directory",
            ContentLoss::Damaged => "was damaged on disk, and is set aside in content/corrupt",
        })
    }
}

/// The first facts that wait to be delivered: as many as one check-in carries.
#[derive(Clone, Debug, PartialEq)]
pub struct FactsWaiting {
    /// The incarnation of the log.
    pub incarnation: Incarnation,
    /// Everything up to this number was acknowledged.
    pub acked: u64,
    /// The number of the newest fact.
    pub last: u64,
    /// The facts, from the first that was not acknowledged.
    pub facts: Vec<Fact>,
}

impl FactsWaiting {
    /// How many facts wait, those that one check-in cannot carry included.
    pub fn count(&self) -> u64 {
        self.last.saturating_sub(self.acked)
    }

    /// Facts up to a cursor need not be sent again, though that cannot be written down.
    pub(crate) fn forget(&mut self, acked: &Cursor) {
        if acked.incarnation == self.incarnation && (self.acked..=self.last).contains(&acked.seq) {
            self.acked = acked.seq;
            self.facts.retain(|fact| fact.seq > acked.seq);
        }
    }

    /// A fact after those that are here is one of the next check-in's.
    pub(crate) fn has_room(&self) -> bool {
        self.facts.last().map_or(self.acked, |fact| fact.seq) == self.last
    }
}

pub(crate) fn spool(what: &'static str) -> impl Fn(SpoolError) -> StateError {
    move |source| StateError::Spool { what, source }
}

/// The directory, not yet opened for running.
pub struct StateDir {
    path: PathBuf,
    disk: Disk,
}

impl StateDir {
    /// Makes the directory if need be.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<StateDir, StateError> {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| StateError::Create { path: path.to_owned(), source })?;
        let mode = std::fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
        let mode = mode.map_err(|source| StateError::Create { path: path.to_owned(), source })?;
        if mode & 0o022 != 0 {
            return Err(StateError::Shared { path: path.to_owned(), mode });
        }
        Ok(StateDir::at(path, Disk::new()))
    }

    /// The directory, with durable operations through this disk.
    pub fn at(path: &Path, disk: Disk) -> StateDir {
        StateDir { path: path.to_owned(), disk }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets state aside that was written before formats had numbers, the machine's own key
    /// excepted; says where it is then. The host has to join anew.
    ///
    /// # Errors
    /// When it cannot be read or moved.
    pub fn set_aside_earlier(&self) -> Result<Option<PathBuf>, StateError> {
        let is_earlier = match self.membership_slot().load() {
            Err(SpoolError::Unnumbered { .. }) => true,
            // The ledger was a file.
            Ok(_) => self.path.join("ledger").is_file(),
            Err(error) => return Err(spool("read the membership")(error)),
        };
        if !is_earlier {
            return Ok(None);
        }
        let _lock = StateLock::acquire(&self.path).map_err(spool("take the state directory"))?;
        let keep = [identity::KEY_FILE, identity::SEALING_KEY_FILE, spool::lock::NAME];
        let aside = spool::atomic::set_aside_earlier(&self.disk, &self.path, &keep);
        aside.map(Some).map_err(spool("set the earlier version's state aside"))
    }

    /// Opens everything for running; this process alone has it then (CNV-12).
    ///
    /// # Errors
    /// When another process has it, or something cannot be read.
    pub fn open(&self) -> Result<Durable, StateError> {
        let lock = StateLock::acquire(&self.path).map_err(spool("take the state directory"))?;
        self.open_locked(Some(lock))
    }

    /// Opens everything; `lock` is absent where this process has the directory already.
    fn open_locked(&self, lock: Option<StateLock>) -> Result<Durable, StateError> {
        let disk = &self.disk;
        let mut repairs = Vec::new();
        let ledger = LedgerJournal::open(disk, self.path.join("ledger"), |repair| repairs.push(repair))?;
        let fresh = fresh_incarnation()?;
        let log = FactLog::open(disk, &self.path.join("log"), &fresh, spool::LogLimits::default());
        let log = log.map_err(spool("read the log"))?;
        repairs.extend(log.repairs);
        let contents = BlobStore::open_dir(disk, &self.path.join("content"), spool::blobs::MAX_BLOBS);
        let versions = VersionStore::open(disk, &self.path)?;
        let durable = Durable {
            versions,
            adoption: StateFile::new(disk, self.path.join("adoption.json"), MODE),
            freshness: StateFile::new(disk, self.path.join(FRESHNESS_FILE), MODE),
            last_run: StateFile::new(disk, self.path.join("last-run.json"), MODE),
            pending: StateFile::new(disk, self.path.join("pending.json"), MODE),
            pause: StateFile::new(disk, self.path.join(PAUSE_FILE), MODE),
            last_reboot: StateFile::new(disk, self.path.join("reboot.json"), MODE),
            trust: StateFile::new(disk, self.path.join(TRUST_FILE), MODE),
            written: Mutex::new(0),
            ledger: Mutex::new(ledger),
            log: Mutex::new(log.log),
            contents: contents.map_err(spool("open the contents"))?,
            unpacked: UnpackedArchives::new(disk, self.path.join("unpacked")),
            wanted: Mutex::default(),
            scrubbed: Mutex::default(),
            repairs: Mutex::new(repairs),
            disk: disk.clone(),
            path: self.path.clone(),
            lock,
            sealing: OnceLock::new(),
        };
        Ok(durable)
    }
}

/// An incarnation that nothing had before.
pub(crate) fn fresh_incarnation() -> Result<Incarnation, StateError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(StateError::Random)?;
    let text = format!("i{}", data_encoding::HEXLOWER.encode(&bytes));
    // An `i` and hex digits are always a name.
    text.parse().map_err(|_| StateError::Random(getrandom::Error::UNEXPECTED))
}

/// The state directory, opened.
pub struct Durable {
    adoption: StateFile<Adoption>,
    freshness: StateFile<FreshnessRecord>,
    last_run: StateFile<LastRun>,
    pending: StateFile<Pending>,
    pause: StateFile<Option<Pause>>,
    last_reboot: StateFile<RebootMark>,
    trust: StateFile<TrustRecord>,
    /// The generation of the pending record written last in this run.
    written: Mutex<u64>,
    ledger: Mutex<LedgerJournal>,
    log: Mutex<FactLog>,
    contents: BlobStore,
    unpacked: UnpackedArchives,
    pub(crate) versions: VersionStore,
    /// Contents of the change that is fetched, or was last.
    wanted: Mutex<BTreeSet<Digest>>,
    scrubbed: Mutex<scrub::ScrubProgress>,
    repairs: Mutex<Vec<String>>,
    disk: Disk,
    path: PathBuf,
    lock: Option<StateLock>,
    /// The key that secrets are sealed for, once it was read: what is lost on the disk is written back from here.
    sealing: OnceLock<Arc<SealingKey>>,
}

impl Durable {
    /// The disk that it lies on.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The incarnation of the log.
    pub fn incarnation(&self) -> Incarnation {
        locked(&self.log).incarnation().clone()
    }

    /// The release held.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn adoption(&self) -> Result<Option<Adoption>, StateError> {
        self.load(&self.adoption, "read the release held")
    }

    /// Makes an adoption durable; gives what it settles.
    ///
    /// # Errors
    /// When it cannot be written, or its set lacks something; the release held before is
    /// held still.
    pub fn adopt(&self, adoption: &Adoption) -> Result<HeldSettings, StateError> {
        let settings = self.settings(adoption)?;
        self.needed(adoption)?;
        for module in modules(adoption) {
            self.parsed::<Module>(module)?;
        }
        self.adoption.store(adoption).map_err(spool("record the release"))?;
        Ok(settings)
    }

    /// Takes away contents that neither the held set, nor an undo, nor a kept generation, nor the change that is
    /// fetched needs; none when another set is held than the one that is bound. For the thread that adopts and
    /// keeps contents, and not while a run on an earlier set may still read them.
    ///
    /// # Errors
    /// When the state cannot be read, or something cannot be removed.
    pub fn collect_garbage(&self, bound: &Adoption) -> Result<(), StateError> {
        if self.adoption()?.is_none_or(|held| held.root != bound.root) {
            return Ok(());
        }
        let mut keep = self.needed(bound)?;
        keep.extend(self.kept_for_undo()?);
        keep.extend(self.needed_by_generations()?);
        keep.extend(locked(&self.wanted).iter().copied());
        self.contents.retain(&keep).map_err(spool("remove contents that nothing needs"))
    }

    /// Whether a content that a release needs is gone, or was found damaged.
    pub fn lacks_content(&self, adoption: &Adoption) -> bool {
        matches!(self.needed(adoption), Err(StateError::Lost { .. }))
    }

    fn needed(&self, adoption: &Adoption) -> Result<BTreeSet<Digest>, StateError> {
        let mut needed = BTreeSet::new();
        needed.extend(adoption.objects.values().map(|stub| stub.digest));
        for module in modules(adoption) {
            needed.extend(self.parsed::<ModuleBlobs>(module)?.blobs);
        }
        match needed.iter().find(|digest| !self.contents.has(digest)) {
            Some(lost) => Err(self.lost_content(lost)),
            None => Ok(needed),
        }
    }

    /// How fresh a release is that is held: as kept, unless that is of another one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn freshness(&self, adoption: &Adoption) -> Result<FreshnessRecord, StateError> {
        let kept = self.load(&self.freshness, "read how fresh the release held is")?;
        Ok(FreshnessRecord::restored(adoption, kept.as_ref()))
    }

    /// Records how fresh the release held is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_freshness(&self, freshness: &FreshnessRecord) -> Result<(), StateError> {
        self.freshness.store(freshness).map_err(spool("record how fresh the release held is"))
    }

    /// The last run.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last_run(&self) -> Result<Option<LastRun>, StateError> {
        self.load(&self.last_run, "read the last run")
    }

    /// Records the last run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_last_run(&self, last: &LastRun) -> Result<(), StateError> {
        self.last_run.store(last).map_err(spool("record the last run"))
    }

    /// Why and since when the host is paused; `None` when it is not.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pause(&self) -> Result<Option<Pause>, StateError> {
        Ok(self.load(&self.pause, "read whether the host is paused")?.flatten())
    }

    /// Records that the host is paused, or that it is not.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_pause(&self, pause: &Option<Pause>) -> Result<(), StateError> {
        self.pause.store(pause).map_err(spool("record whether the host is paused"))
    }

    /// The bytes of a content, verified.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    pub fn content(&self, digest: &Digest) -> Result<Vec<u8>, StateError> {
        let read = self.contents.read(digest, MAX_BLOB).map_err(spool("read a content"))?;
        read.ok_or_else(|| self.lost_content(digest))
    }

    fn lost_content(&self, digest: &Digest) -> StateError {
        StateError::Lost { digest: *digest, loss: self.loss_of(digest) }
    }

    /// What became of a content that is not there.
    fn loss_of(&self, digest: &Digest) -> ContentLoss {
        match self.contents.was_damaged(digest) {
            true => ContentLoss::Damaged,
            false => ContentLoss::Missing,
        }
    }

    /// The contents.
    pub fn contents(&self) -> &BlobStore {
        &self.contents
    }

    /// A change is fetched, or once more, that needs these contents and others that they name. None of
    /// them is garbage until another one is.
    pub fn want(&self, contents: &BTreeSet<Digest>) {
        let mut wanted = locked(&self.wanted);
        if !contents.is_subset(&wanted) {
            wanted.clone_from(contents);
        }
    }

    /// Begins to fetch a content, or goes on with it; `None` when it is here.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn partial_content(&self, digest: &Digest) -> Result<Option<Partial>, StateError> {
        locked(&self.wanted).insert(*digest);
        if self.contents.has(digest) {
            return Ok(None);
        }
        self.contents.partial(digest).map(Some).map_err(spool("keep a content"))
    }

    /// Keeps bytes under the digest that they must have.
    ///
    /// # Errors
    /// When they have another, or cannot be written.
    pub fn keep(&self, mut bytes: &[u8], digest: Digest) -> Result<(), StateError> {
        if self.contents.has(&digest) {
            return Ok(());
        }
        self.contents.put(&mut bytes, Some(digest), MAX_BLOB).map(drop).map_err(spool("keep a content"))
    }

    /// Something was found damaged and set aside.
    fn repaired(&self, repair: String) {
        locked(&self.repairs).push(repair);
    }

    /// What was found damaged and set aside since the last call.
    pub fn take_repairs(&self) -> Vec<String> {
        let mut repairs = std::mem::take(&mut *locked(&self.repairs));
        repairs.extend(self.versions.take_repairs());
        repairs
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, digest: &Digest) -> Result<T, StateError> {
        let bytes = self.content(digest)?;
        model::canonical::parse(&bytes)
            .map_err(|error| StateError::Malformed { digest: *digest, why: error.to_string() })
    }

    fn load<T: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        slot: &StateFile<T>,
        what: &'static str,
    ) -> Result<Option<T>, StateError> {
        let loaded = slot.load().map_err(spool(what))?;
        if let Some(aside) = loaded.set_aside {
            let repair = format!("{} was damaged; it is now {}", slot.path().display(), aside.display());
            locked(&self.repairs).push(repair);
        }
        Ok(loaded.value)
    }
}

/// The modules of a set.
fn modules(adoption: &Adoption) -> impl Iterator<Item = &Digest> {
    let modules = adoption.objects.iter().filter(|(key, _)| key.section.kind.as_str() == Kind::MODULE);
    modules.map(|(_, stub)| &stub.digest)
}

/// A lock's content. A panic while it was held cannot have left it half changed: the
/// journal, the log and the slots change by whole operations.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
