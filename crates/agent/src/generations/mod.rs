//! The generations of this host on its disk: what is activated, where the host goes back to, and who sees to that
//! (ROL-7, ROL-10, ROL-12).
//!
//! [`activation::Activation`] decides; here is what its effects `Persist`, `ArmWatchdog`, `Disarm`, `Forget` and `Return` do,
//! and the answer to "what does the host run as a whole".
//!
//! ```text
//! STATE/activation.json                the record: what is confirmed, what is under way
//!       running.json                   the mark: the generation that the host runs as a whole; absent in the middle
//!                                      of a switch or a return
//!       generations/ID/adoption.json   the set of a kept generation, to be adopted again without the network
//!       generations/ID/agent.json      the agent's program and unit files, as that generation had them
//!       generations/programs/          the programs, by digest; the watchdog runs one of them
//!       generations/lock               the loop that stands for the watchdog where there is no systemd
//! ```
//!
//! Invariants:
//! - A file is as before or as written, after a crash at any point ([`spool::StateFile`]).
//! - The mark is taken away, durably, before anything of the host is touched, and is written after the last of it.
//! - [`GenerationFiles::arm`] returns only once the set, the program and the unit files of the confirmed generation are
//!   kept, and the watchdog runs. A trial begins on the confirmed generation, so what it keeps then is that
//!   generation's; later it keeps nothing anew.
//! - Contents that a kept generation needs are no garbage ([`Durable::collect_garbage`]).

mod agent_files;
mod agent_look;
mod boot;
mod effects;
mod host_return;
mod return_loop;
mod return_units;
pub mod return_verb;
mod watchdog;

use std::path::{Path, PathBuf};

use activation::{
    ActivationRecord, ActivationStage, BootMoment, FoundRecord, Generation, GenerationId, ReturnCause,
};
use model::Digest;
use node::{Adoption, FreshnessRecord};
use serde::{Deserialize, Serialize};
use spool::{Disk, PeekedFile, SpoolError, StateFile};

pub use self::agent_files::{InstalledAgent, KeepAgentError, PutBackAgent, PutBackAgentError};
pub use self::boot::{BootMomentError, boot_moment};
pub(crate) use self::effects::{ActivationOwner, carry_out_all, return_host};
pub use self::host_return::{HostReturn, ReturnHostError, ReturnedHost};
pub use self::return_loop::{ReturnLoop, StartLoopError};
pub use self::return_units::{ReturnUnits, SetUpUnitsError};
pub use self::watchdog::{ReturnWatchdog, SetUpWatchdogError};
use crate::machine::MachineOptions;
use crate::state::{Durable, StateError};

const MODE: u32 = 0o600;
const RECORD_FILE: &str = "activation.json";
const MARK_FILE: &str = "running.json";
/// The directory of what is kept of generations.
pub(crate) const DIRECTORY: &str = "generations";
pub(crate) const ADOPTION_FILE: &str = "adoption.json";
/// The same of guarded runs (CNV-11).
const GUARD_RECORD_FILE: &str = "guarded.json";
const GUARD_MARK_FILE: &str = "guarded-running.json";
const GUARD_DIRECTORY: &str = "guarded";

/// What the host runs as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunningGeneration {
    generation: GenerationId,
}

/// The record of activations, as a process that has the state directory goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundActivationRecord {
    /// The record.
    pub record: ActivationRecord,
    /// That it was damaged, and what that means; for the log of facts.
    pub repair: Option<String>,
}

/// Why the watchdog is not armed. Nothing may be switched then.
#[derive(Debug, thiserror::Error)]
pub enum ArmReturnError {
    /// What is kept of generations cannot be read or written: no room, for one.
    #[error(transparent)]
    State(#[from] StateError),
    /// The files of generations cannot be read or written.
    #[error("what is kept of generations cannot be used")]
    Files(#[from] SpoolError),
    /// The agent's program or its unit files cannot be kept.
    #[error("the agent cannot be kept")]
    Agent(#[from] KeepAgentError),
    /// The confirmed generation is not the release held, and nothing is kept of it.
    #[error("generation {0} is not kept, so that the host could not go back to it")]
    NotKept(GenerationId),
    /// Nothing would look.
    #[error("nothing would look whether it is confirmed")]
    Watchdog(#[from] SetUpWatchdogError),
}

/// The generations of one host on its disk. Every operation waits for the disk.
pub struct GenerationFiles {
    disk: Disk,
    state: PathBuf,
    /// These are of guarded runs, and not of releases on trial.
    of_guards: bool,
    directory: PathBuf,
    record: StateFile<ActivationRecord>,
    running: StateFile<RunningGeneration>,
    installed: InstalledAgent,
    watchdog: ReturnWatchdog,
}

impl GenerationFiles {
    /// The generations of the host that these options name.
    pub fn of(options: &MachineOptions, disk: &Disk) -> GenerationFiles {
        let state = options.state_dir();
        GenerationFiles::with(
            &state,
            disk,
            InstalledAgent::of_this_host(options),
            ReturnWatchdog::of_this_host(options, disk),
        )
    }

    /// The generations in a state directory, of this agent, looked after by this watchdog.
    pub fn with(
        state: &Path,
        disk: &Disk,
        installed: InstalledAgent,
        watchdog: ReturnWatchdog,
    ) -> GenerationFiles {
        GenerationFiles {
            disk: disk.clone(),
            state: state.to_owned(),
            of_guards: false,
            directory: state.join(DIRECTORY),
            record: StateFile::new(disk, state.join(RECORD_FILE), MODE),
            running: StateFile::new(disk, state.join(MARK_FILE), MODE),
            installed,
            watchdog,
        }
    }

    /// The record of guarded runs beside this one, with the same watchdog (CNV-11).
    pub fn guards(&self) -> GenerationFiles {
        let files = self.beside();
        GenerationFiles {
            of_guards: true,
            directory: self.state.join(GUARD_DIRECTORY),
            record: StateFile::new(&self.disk, self.state.join(GUARD_RECORD_FILE), MODE),
            running: StateFile::new(&self.disk, self.state.join(GUARD_MARK_FILE), MODE),
            ..files
        }
    }

    /// Those of releases on trial, in the same place.
    pub(crate) fn beside(&self) -> GenerationFiles {
        GenerationFiles::with(&self.state, &self.disk, self.installed.clone(), self.watchdog.clone())
    }

    /// The program that the other record needs the watchdog for, while something of that is under way: one watchdog looks
    /// at both.
    fn needed_beside(&self) -> Result<Option<PathBuf>, SpoolError> {
        let other = if self.of_guards { self.beside() } else { self.guards() };
        match other.peek()? {
            PeekedFile::Value(record) if record.under_way.is_guarded() => {
                other.kept_program(record.confirmed.id)
            }
            _ => Ok(None),
        }
    }

    /// The record, as a process finds it that does not have the state directory; it changes nothing.
    ///
    /// # Errors
    /// When the disk refuses, or a newer version wrote it.
    pub fn peek(&self) -> Result<PeekedFile<ActivationRecord>, SpoolError> {
        self.record.peek()
    }

    /// The same, as the core takes it in.
    ///
    /// # Errors
    /// As there.
    pub fn found(&self) -> Result<FoundRecord, SpoolError> {
        Ok(match self.peek()? {
            PeekedFile::Value(record) => FoundRecord::Record(Box::new(record)),
            PeekedFile::Absent => FoundRecord::Absent,
            PeekedFile::Damaged => FoundRecord::Damaged,
        })
    }

    /// Why the host returned from a generation, where its quarantine holds that; by what is durable.
    ///
    /// # Errors
    /// When the record cannot be read, or a newer version wrote it.
    pub fn quarantined(&self, id: GenerationId) -> Result<Option<ReturnCause>, StateError> {
        Ok(match self.peek().map_err(spool_error)? {
            PeekedFile::Value(record) => record.quarantine.of(id).map(|known| known.cause.clone()),
            // Whoever loads it forgets what the host returned from.
            PeekedFile::Absent | PeekedFile::Damaged => None,
        })
    }

    /// The record, for the process that has the state directory ([`ActivationRecord::found`]).
    ///
    /// # Errors
    /// When the disk refuses, or a newer version wrote it.
    pub fn load(&self, durable: &Durable, now: &BootMoment) -> Result<FoundActivationRecord, StateError> {
        let held = durable.adoption()?;
        let generation = held.as_ref().map(|held| durable.generation_of(held)).transpose()?;
        let held = generation.unwrap_or(Generation::AS_FOUND);
        match self.record.peek().map_err(spool_error)? {
            PeekedFile::Value(record) => {
                let record = ActivationRecord::found(Some(record), held, &[], now);
                Ok(FoundActivationRecord { record, repair: None })
            }
            PeekedFile::Absent => {
                let record = ActivationRecord::found(None, held, &self.ways_back()?, now);
                Ok(FoundActivationRecord { record, repair: None })
            }
            PeekedFile::Damaged => {
                let record = ActivationRecord::found(None, held, &self.ways_back()?, now);
                let aside = self.record.load().map_err(spool_error)?.set_aside;
                self.persist(&record).map_err(spool_error)?;
                let aside = aside.map(|aside| format!("; it is now {}", aside.display())).unwrap_or_default();
                let so = match &record.under_way {
                    ActivationStage::Returning(_) => {
                        format!("the host goes back to generation {}", record.confirmed.id)
                    }
                    _ => {
                        format!("generation {}, which it holds, is taken for confirmed", record.confirmed.id)
                    }
                };
                let repair = format!("the record of activations was damaged, so {so}{aside}");
                Ok(FoundActivationRecord { record, repair: Some(repair) })
            }
        }
    }

    /// The generations whose agent is kept: it is while a trial is under way.
    fn ways_back(&self) -> Result<Vec<Generation>, StateError> {
        let mut ways_back = Vec::new();
        for id in self.kept().map_err(spool_error)?.into_iter().filter(|id| self.has_agent(*id)) {
            if id == GenerationId::AS_FOUND {
                ways_back.push(Generation::AS_FOUND);
            } else if let Some(adoption) = self.kept_adoption(id).map_err(spool_error)? {
                ways_back.push(Generation { id, seq: adoption.seq, bytes: 0 });
            }
        }
        Ok(ways_back)
    }

    /// [`activation::ActivationEffect::Persist`]: the record is durable when it returns.
    ///
    /// # Errors
    /// When the disk refuses; the record is then as it was, or already the new one.
    pub fn persist(&self, record: &ActivationRecord) -> Result<(), SpoolError> {
        self.record.store(record)?;
        if record.under_way == ActivationStage::Settled && !self.watchdog.is_set_up() {
            // Only space: it is tried again with the next record.
            if let Err(error) = self.keep_agents_of(record) {
                tracing::warn!(error = %crate::render::chain(&error), "programs of generations stay");
            }
        }
        Ok(())
    }

    /// What the host runs as a whole; nothing in the middle of a switch or a return. A damaged mark is none.
    ///
    /// # Errors
    /// When the disk refuses, or a newer version wrote it.
    pub fn running(&self) -> Result<Option<GenerationId>, SpoolError> {
        Ok(self.running.load()?.value.map(|running| running.generation))
    }

    /// Takes the mark away, before anything of the host is touched; it is gone for good when this returns. It needs no
    /// room on the disk.
    ///
    /// # Errors
    /// When the disk refuses: the host must not be touched then.
    pub fn leave(&self) -> Result<(), SpoolError> {
        self.running.clear()
    }

    /// Writes the mark: the host runs a generation as a whole.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn arrive(&self, generation: GenerationId) -> Result<(), SpoolError> {
        self.running.store(&RunningGeneration { generation })
    }

    /// Keeps the set of a release whose contents are here, and says what generation it is. What it is kept for
    /// counts from the moment that its record names it; before, [`GenerationFiles::forget`] takes it away again.
    ///
    /// # Errors
    /// When the disk refuses, or a content is missing.
    pub fn keep(&self, durable: &Durable, adoption: &Adoption) -> Result<Generation, StateError> {
        let generation = durable.generation_of(adoption)?;
        if generation.id != GenerationId::AS_FOUND {
            self.disk.make_dir(&self.of_generation(generation.id)).map_err(spool_error)?;
            self.adoption_file(generation.id).store(adoption).map_err(spool_error)?;
        }
        Ok(generation)
    }

    /// [`activation::ActivationEffect::Forget`]: these generations are needed no more.
    ///
    /// # Errors
    /// When the disk refuses; some may be gone then.
    pub fn forget(&self, generations: &[GenerationId]) -> Result<(), SpoolError> {
        for generation in generations {
            let directory = self.of_generation(*generation);
            if directory.is_dir() {
                self.forget_agent(*generation)?;
                self.adoption_file(*generation).clear()?;
                // What else somebody put there stays.
                let _ = std::fs::remove_dir(&directory);
            }
        }
        self.keep_programs()
    }

    /// What is kept of generations that a record does not name goes: it was kept for a trial that was refused, or whose
    /// process ended before it began. The agent of a generation is [`GenerationFiles::disarm`]'s.
    ///
    /// # Errors
    /// When the disk refuses; some may be gone then.
    pub fn forget_unnamed(&self, record: &ActivationRecord) -> Result<(), SpoolError> {
        let needed = record.needed();
        let is_named =
            |id: &GenerationId| needed.contains(id) || record.kept.iter().any(|kept| kept.id == *id);
        let unnamed = self.kept()?.into_iter().filter(|id| !is_named(id) && !self.has_agent(*id));
        let unnamed: Vec<GenerationId> = unnamed.collect();
        if unnamed.is_empty() { Ok(()) } else { self.forget(&unnamed) }
    }

    /// The generations of which something is kept.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn kept(&self) -> Result<Vec<GenerationId>, SpoolError> {
        let read =
            |source| SpoolError::Disk { op: spool::DiskOp::Read, path: self.directory.clone(), source };
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(read)?,
        };
        let mut kept = Vec::new();
        for entry in entries {
            let name = entry.map_err(read)?.file_name();
            kept.extend(name.to_str().and_then(|name| name.parse::<Digest>().ok()).map(GenerationId));
        }
        Ok(kept)
    }

    /// The set of a kept generation; nothing where none is kept, or what is kept is damaged.
    ///
    /// # Errors
    /// When the disk refuses, or a newer version wrote it.
    pub fn kept_adoption(&self, generation: GenerationId) -> Result<Option<Adoption>, SpoolError> {
        match self.adoption_file(generation).peek()? {
            PeekedFile::Value(adoption) => Ok(Some(adoption)),
            PeekedFile::Absent | PeekedFile::Damaged => Ok(None),
        }
    }

    /// [`activation::ActivationEffect::ArmWatchdog`], before [`activation::ActivationEffect::Persist`] of the record `to_be`
    /// ([`activation::Activation::record`]): what a return needs is kept, and the watchdog looks from now on,
    /// whatever becomes of this process. When it looks is in the record.
    ///
    /// # Errors
    /// [`ArmReturnError`]: what was armed before is so still.
    pub fn arm(&self, durable: &Durable, to_be: &ActivationRecord) -> Result<(), ArmReturnError> {
        let confirmed = to_be.confirmed.id;
        if self.begins_trial(to_be)? {
            self.keep_confirmed(durable, to_be)?;
        }
        let program = self.kept_program(confirmed)?.ok_or(ArmReturnError::NotKept(confirmed))?;
        // Where the loop has its lock, whichever record it is for.
        self.disk.make_dir(&self.state.join(DIRECTORY))?;
        Ok(self.watchdog.set_up(&program)?)
    }

    /// Whether the host is on its confirmed generation, and leaves it now.
    fn begins_trial(&self, to_be: &ActivationRecord) -> Result<bool, SpoolError> {
        Ok(match self.record.peek()? {
            PeekedFile::Absent => to_be.begins_trial(None),
            PeekedFile::Value(record) => to_be.begins_trial(Some(&record)),
            PeekedFile::Damaged => false,
        })
    }

    /// As the host leaves it, whatever was kept of it before: since then its release may have been published again, and
    /// had beacons.
    fn keep_confirmed(&self, durable: &Durable, to_be: &ActivationRecord) -> Result<(), ArmReturnError> {
        let confirmed = to_be.confirmed.id;
        if confirmed != GenerationId::AS_FOUND {
            let is_kept = self.kept_adoption(confirmed)?.is_some();
            match durable.adoption()?.filter(|held| GenerationId(held.root) == confirmed) {
                Some(held) => {
                    let record = durable.freshness(&held)?;
                    let held = held.fresh_as(&record);
                    match is_kept {
                        true => self.adoption_file(confirmed).store(&held)?,
                        false => self.keep(durable, &held).map(drop)?,
                    }
                }
                None if is_kept => {}
                None => return Err(ArmReturnError::NotKept(confirmed)),
            }
        }
        Ok(self.keep_agent(confirmed)?)
    }

    /// [`activation::ActivationEffect::Disarm`], after the record is durable: the watchdog has nothing to do any more.
    ///
    /// # Errors
    /// When it stays. That does no harm: it reads the record, and that says so too.
    pub fn disarm(&self, record: &ActivationRecord) -> Result<(), SetUpWatchdogError> {
        match self.needed_beside() {
            Ok(Some(program)) => self.watchdog.set_up(&program)?,
            Ok(None) => self.watchdog.take_down()?,
            // It looks at both records, and ends its watch itself.
            Err(error) => tracing::warn!(error = %crate::render::chain(&error), "the watchdog stays"),
        }
        if let Err(error) = self.keep_agents_of(record) {
            tracing::warn!(error = %crate::render::chain(&error), "programs of generations stay");
        }
        Ok(())
    }

    /// The watchdog.
    pub fn watchdog(&self) -> &ReturnWatchdog {
        &self.watchdog
    }

    /// What is adopted to return to a generation: its set, as [`Adoption::returned_to`] has it. The host as it was found
    /// is a release without any object. `None`: nothing was ever held.
    ///
    /// # Errors
    /// [`ReturnHostError::NotKept`] where its set is not kept, and those of the disk.
    pub fn adoption_for_return(
        &self,
        durable: &Durable,
        to: &Generation,
    ) -> Result<Option<Adoption>, ReturnHostError> {
        let held = durable.adoption()?;
        if to.id == GenerationId::AS_FOUND {
            let as_found = |held| Adoption { root: Digest::ZERO, objects: Default::default(), ..held };
            return Ok(held.map(as_found));
        }
        let kept = self.kept_adoption(to.id)?;
        let is_held = held.as_ref().is_some_and(|held| GenerationId(held.root) == to.id);
        match (kept, held) {
            (Some(kept), Some(held)) => {
                // A record that cannot be read, as a newer agent wrote it, holds no return up.
                let record = durable.freshness(&held).unwrap_or_else(|_| FreshnessRecord::of(&held));
                Ok(Some(kept.returned_to(&held, &record)))
            }
            (Some(kept), None) => Ok(Some(kept)),
            (None, held) if is_held => Ok(held),
            (None, _) => Err(ReturnHostError::NotKept(to.id)),
        }
    }

    fn of_generation(&self, generation: GenerationId) -> PathBuf {
        self.directory.join(generation.0.to_string())
    }

    fn adoption_file(&self, generation: GenerationId) -> StateFile<Adoption> {
        StateFile::new(&self.disk, self.of_generation(generation).join(ADOPTION_FILE), MODE)
    }
}

/// The record in a state directory, for a process that does not have that; it changes nothing.
///
/// # Errors
/// When the disk refuses, or a newer version wrote it.
pub(crate) fn peek_record(state: &Path) -> Result<PeekedFile<ActivationRecord>, SpoolError> {
    StateFile::new(&Disk::new(), state.join(RECORD_FILE), MODE).peek()
}

fn spool_error(source: SpoolError) -> StateError {
    StateError::Spool { what: "use what is kept of generations", source }
}
