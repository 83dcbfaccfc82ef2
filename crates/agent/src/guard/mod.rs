//! Guarded runs (CNV-11) on this host: [`RunGuard`] carries out what [`activation::guarded`] decides.
//!
//! ```text
//! runner::guarding --before--> admit_guarded -> changes durable -> GuardedActivation::begin: record, agent kept, watchdog -> change
//! the run ends --run_ended-->  GuardedActivation::handle -> carry_out (effects.rs)
//! watch.rs, a thread           a try to reach the control plane (GuardDaemon), or what is due
//! the agent starts, muster-agent return --resume--> GuardedActivation::resume
//!
//! STATE/guarded.json           the record           STATE/guarded-changes.json   what is undone
//!       guarded/ID/agent.json  the agent as it was before
//! ```
//!
//! Invariants:
//! - A change is durable, with the way to undo it, before it is made; a run without one writes nothing of this.
//! - Nothing is undone while a run has the host.
//! - The daemon's own thread never waits for a guard.

mod before;
mod changes;
mod effects;
mod undo;
mod view;
mod watch;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use activation::guarded::{
    ContactAnswer, ContactHistory, FoundChanges, GuardInput, GuardedActivation, HeldBackChange,
};
use activation::{ActivationProcess, ActivationRecord, BootTime, FoundRecord, GenerationId, SwitchEnd};
use converge::{Desired, ResourceId, RunScope, TakeBack};
use model::policy::GuardPolicy;
use model::{Digest, RunReport};
use providers::Kinds;
use spool::{PeekedFile, StateFile};

pub(crate) use self::changes::CHANGES_FILE;
pub use self::changes::{GuardedChange, GuardedChanges, MAX_GUARDED};
pub(crate) use self::view::names;
pub use self::view::{GuardView, HeldBackView, WaitingGuardView};
use crate::generations::{GenerationFiles, boot_moment};
use crate::local::messages::ContactView;
use crate::machine::Machine;
use crate::render::chain;
use crate::storage::Storage;

const MODE: u32 = 0o600;

/// What the daemon does for a guard.
pub(crate) trait GuardDaemon: Send + Sync {
    /// Reaches the control plane over a new connection for this guard, then calls [`RunGuard::confirm_tried`].
    fn try_contact(&self, guard: Arc<RunGuard>, number: GuardNumber);
    /// Ends the agent once nothing runs, so that its supervisor starts it anew.
    fn restart(&self);
    /// A guard went up, or came down.
    fn guard_changed(&self);
}

/// Which guard of a process: the answer to a try of an earlier one confirms no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardNumber(u64);

/// A guard that is up.
struct LiveGuard {
    number: GuardNumber,
    guard: GuardedActivation,
    changes: GuardedChanges,
    /// The try that is due was begun.
    asked: bool,
    /// What of the changes and of the commands after them is still to be undone; nothing where all is.
    left: Option<undo::LeftToUndo>,
    /// The agent's program was put back.
    put_back: Option<PathBuf>,
}

impl LiveGuard {
    fn new(number: GuardNumber, guard: GuardedActivation, changes: GuardedChanges) -> LiveGuard {
        LiveGuard { number, guard, changes, asked: false, left: None, put_back: None }
    }
}

/// What the last run held back.
#[derive(Default)]
struct Withheld {
    change: Option<HeldBackChange>,
    resources: BTreeSet<ResourceId>,
}

/// The run that is guarded.
pub struct GuardedRun {
    /// What a return from a release takes back besides; nothing where the run makes the desired state.
    pub(crate) taken_back: TakeBack,
    pub(crate) guard: Arc<RunGuard>,
    pub(crate) desired: Desired,
    pub(crate) root: Digest,
    pub(crate) seq: u64,
    pub(crate) policy: GuardPolicy,
}

/// Guards the runs of one host.
pub struct RunGuard {
    files: GenerationFiles,
    trials: GenerationFiles,
    changes: StateFile<GuardedChanges>,
    storage: Storage,
    kinds: Arc<Kinds>,
    contacts: Mutex<ContactHistory>,
    live: Mutex<Option<LiveGuard>>,
    /// How many guards there were.
    guards: AtomicU64,
    /// The same as that there is one, for those who must not wait.
    up: AtomicBool,
    withheld: Mutex<Withheld>,
    /// A run or a return has the host.
    turn: Mutex<()>,
    daemon: OnceLock<Box<dyn GuardDaemon>>,
    /// The agent's program, where a return put it back.
    replaced: Mutex<Option<PathBuf>>,
}

impl RunGuard {
    /// The guard over a host. `reached`: the last contact with the control plane was answered.
    pub fn new(trials: GenerationFiles, storage: Storage, kinds: Arc<Kinds>, reached: bool) -> RunGuard {
        let durable = storage.durable();
        let changes = StateFile::new(durable.disk(), durable.path().join(CHANGES_FILE), MODE);
        RunGuard {
            files: trials.guards(),
            trials,
            changes,
            storage,
            kinds,
            contacts: Mutex::new(ContactHistory::found(reached)),
            live: Mutex::default(),
            guards: AtomicU64::new(0),
            up: AtomicBool::new(false),
            withheld: Mutex::default(),
            turn: Mutex::default(),
            daemon: OnceLock::new(),
            replaced: Mutex::default(),
        }
    }

    pub(crate) fn connect(&self, daemon: Box<dyn GuardDaemon>) {
        // Once, at the daemon's start.
        let _ = self.daemon.set(daemon);
    }

    /// How the last contact went.
    pub fn note_contact(&self, answer: ContactAnswer) {
        if let Ok(now) = boot_moment() {
            locked(&self.contacts).tried(answer, now.at);
        }
    }

    /// Held while a run that changes the host is made, so that nothing is undone meanwhile.
    pub(crate) fn turn(&self, scope: &RunScope) -> MutexGuard<'_, ()> {
        let turn = locked(&self.turn);
        if *scope == RunScope::All {
            *locked(&self.withheld) = Withheld::default();
        }
        turn
    }

    fn live(&self) -> MutexGuard<'_, Option<LiveGuard>> {
        locked(&self.live)
    }

    /// Goes on with what an agent before left, as this process; whether something is under way.
    ///
    /// # Errors
    /// In words, when it cannot be read. The watchdog looks again.
    pub fn resume(self: &Arc<RunGuard>, process: ActivationProcess) -> Result<bool, String> {
        let now = boot_moment().map_err(|error| chain(&error))?;
        let changes = match self.changes.peek().map_err(|error| chain(&error))? {
            PeekedFile::Value(changes) => Some(changes),
            PeekedFile::Absent | PeekedFile::Damaged => None,
        };
        let record = self.files.found().map_err(|error| chain(&error))?;
        let found = changes.as_ref().map(|changes| FoundChanges {
            target: GenerationId(changes.target),
            seq: changes.seq,
            agent: changes.touches_agent(),
        });
        let is_damaged = record == FoundRecord::Damaged;
        let Some((guard, effects)) = GuardedActivation::resume(record, found, process, &now) else {
            self.forget_changes();
            if is_damaged && let Err(error) = self.files.persist(&ActivationRecord::default()) {
                tracing::warn!(error = %chain(&error), "the record of guarded runs stays damaged");
            }
            return Ok(false);
        };
        let changes = changes.unwrap_or_else(|| GuardedChanges::none(guard.target()));
        let mut live = self.live();
        let guard = live.insert(LiveGuard::new(self.next_number(), guard, changes));
        self.carry_out_all(guard, effects);
        let goes_on = !self.end_when_over(&mut live);
        self.up.store(goes_on, Ordering::Relaxed);
        drop(live);
        if goes_on && !process.is_watchdog() {
            self.watch();
        }
        Ok(goes_on)
    }

    /// The run ended, in its turn: a contact is to follow. A unit or a command of it that failed says that it is wrong.
    pub(crate) fn run_ended(&self, run: &GuardedRun, report: &RunReport) {
        if run.is_return() {
            return;
        }
        let mut live = self.live();
        let Some(guard) = live.as_mut() else { return };
        let touched = |id: &ResourceId| guard.changes.changes.iter().any(|change| change.resource == *id);
        let end = match converge::guarded::failed_at_once(report, &run.desired, &touched) {
            Some((id, reason)) => SwitchEnd::Failed { reason: format!("{id} failed: {reason}") },
            None => SwitchEnd::Done,
        };
        self.give(guard, GuardInput::RunEnded(end));
        self.end_when_over(&mut live);
    }

    fn next_number(&self) -> GuardNumber {
        GuardNumber(self.guards.fetch_add(1, Ordering::Relaxed))
    }

    /// The guard that is up.
    pub fn number(&self) -> Option<GuardNumber> {
        self.live().as_ref().map(|guard| guard.number)
    }

    /// A try to reach the control plane ended, which was made for this guard.
    pub fn confirm_tried(&self, number: GuardNumber, outcome: Result<(), String>) {
        let mut live = self.live();
        let Some(guard) = live.as_mut().filter(|guard| guard.number == number) else { return };
        self.give(guard, GuardInput::ContactTried(outcome));
        self.end_when_over(&mut live);
    }

    /// Time goes on; whether the guard is up still. The caller has the host's turn.
    pub fn tick(&self) -> bool {
        let mut live = self.live();
        let Some(guard) = live.as_mut() else { return false };
        let Ok(now) = boot_moment() else { return true };
        if guard.guard.next_deadline().is_some_and(|at| at <= now.at) {
            self.give(guard, GuardInput::Tick);
        }
        !self.end_when_over(&mut live)
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<BootTime> {
        self.live().as_ref()?.guard.next_deadline()
    }

    /// Whether a contact is to follow, or changes are being undone. It never waits.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Whether the host is going back, or something is done that must not be cut off. It never waits: the daemon's own
    /// thread asks.
    pub(crate) fn returns(&self) -> bool {
        match self.live.try_lock() {
            Ok(live) => live.as_ref().is_some_and(|guard| guard.guard.is_undoing()),
            Err(TryLockError::Poisoned(poisoned)) => {
                poisoned.into_inner().as_ref().is_some_and(|guard| guard.guard.is_undoing())
            }
            Err(TryLockError::WouldBlock) => true,
        }
    }

    /// The agent's program, where it was put back.
    pub(crate) fn replaced(&self) -> Option<PathBuf> {
        locked(&self.replaced).clone()
    }

    /// Where nothing is under way any more, what would be undone is forgotten. Whether that is so.
    fn end_when_over(&self, live: &mut Option<LiveGuard>) -> bool {
        let Some(guard) = live.as_ref() else { return true };
        if !guard.guard.is_over() {
            return false;
        }
        self.forget_changes();
        if let Some(program) = guard.put_back.clone() {
            *locked(&self.replaced) = Some(program);
            if let Some(daemon) = self.daemon.get() {
                daemon.restart();
            }
        }
        *live = None;
        self.up.store(false, Ordering::Relaxed);
        self.tell_changed();
        true
    }

    fn tell_changed(&self) {
        if let Some(daemon) = self.daemon.get() {
            daemon.guard_changed();
        }
    }

    fn forget_changes(&self) {
        if let Err(error) = self.changes.clear() {
            tracing::debug!(error = %chain(&error), "what was guarded stays on the disk, and means nothing");
        }
    }
}

/// The guard of a machine's runs; whether its last contact was answered is what the daemon wrote of it.
pub(crate) fn guard_of(machine: &Machine, storage: &Storage) -> RunGuard {
    let durable = storage.durable();
    let reached = ContactView::read(durable.path()).is_some_and(|contact| match contact.reason {
        Some(problem) => problem.is_refusal(),
        None => contact.answered.is_some() && contact.problem.is_none(),
    });
    let trials = GenerationFiles::of(machine.options(), durable.disk());
    RunGuard::new(trials, storage.clone(), machine.kinds.clone(), reached)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
