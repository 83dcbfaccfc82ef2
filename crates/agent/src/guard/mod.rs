//! Guarded runs (CNV-11): a run that changes what can cut the host off is followed by a contact with the control plane
//! within its window, or the host undoes those changes by itself.
//!
//! It is [`activation::Activation`] over a second record, with the same watchdog:
//!
//! ```text
//! first guarded change of a run -> changes durable -> armed (record, agent kept, watchdog) -> change
//! the run ends -> window: tries to reach the control plane, each over a connection of its own
//!      answered -> disarmed          window over, reboot, agent gone -> each change undone, the last one first
//! STATE/guarded.json           the record           STATE/guarded-changes.json   what is undone
//!       guarded/ID/agent.json  the agent as it was before
//! ```
//!
//! Invariants:
//! - A change is durable, with the way to undo it, before it is made; a run without one writes nothing of this.
//! - A host whose last contact failed before the run is asked for none: at the end of the window the agent that lives
//!   confirms (`ContactRule::ProbesAlone`).
//! - Where the agent itself was changed, only an agent that started anew since may confirm.
//! - While a release is on trial no guard begins: the trial has the same watchdog and undoes more.

mod changes;
mod undo;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use activation::{
    Activation, ActivationDeadline, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder,
    ActivationProcess, ActivationRecord, ActivationStage, ActivationTerms, BootId, BootMoment, BootTime,
    ContactRule, FoundHost, Generation, GenerationId, GenerationLimits, GenerationReturn, MAX_WINDOW,
    MIN_WINDOW, ProbeTopology, ReturnCause, SwitchEnd,
};
use converge::{Desired, ResourceId};
use host::SpawnCompactly;
use model::log::FactBody;
use model::{Digest, RunReport};
use providers::Kinds;
use spool::{PeekedFile, StateFile};

pub(crate) use self::changes::CHANGES_FILE;
pub use self::changes::{GuardedChange, GuardedChanges, MAX_GUARDED};
use crate::generations::{GenerationFiles, boot_moment};
use crate::local::messages::ContactView;
use crate::machine::Machine;
use crate::render::chain;
use crate::storage::Storage;

const MODE: u32 = 0o600;
/// How often the guard looks at the clock while it is up.
const TURN: Duration = Duration::from_millis(250);

/// What the daemon does for a guard.
pub(crate) trait GuardDaemon: Send + Sync {
    /// Reaches the control plane over a new connection, then calls [`RunGuard::confirm_tried`].
    fn try_contact(&self, guard: Arc<RunGuard>);
    /// Ends the agent once nothing runs, so that its supervisor starts it anew.
    fn restart(&self);
}

/// A guard that is up.
struct LiveGuard {
    activation: Activation,
    changes: GuardedChanges,
    /// This process made the changes.
    own: bool,
    trying: Option<(GenerationId, BootId)>,
    /// The try that is due was begun.
    asked: bool,
    /// The agent's program was put back.
    put_back: Option<std::path::PathBuf>,
}

/// The run that is guarded.
pub struct GuardedRun {
    pub(crate) guard: Arc<RunGuard>,
    pub(crate) desired: Desired,
    pub(crate) root: Digest,
    pub(crate) seq: u64,
    pub(crate) window: Duration,
}

/// Guards the runs of one host.
pub struct RunGuard {
    files: GenerationFiles,
    trials: GenerationFiles,
    changes: StateFile<GuardedChanges>,
    storage: Storage,
    kinds: Arc<Kinds>,
    /// The last contact was answered.
    reached: AtomicBool,
    live: Mutex<Option<LiveGuard>>,
    /// A run or a return has the host.
    turn: Mutex<()>,
    daemon: OnceLock<Box<dyn GuardDaemon>>,
    /// The agent's program, where a return put it back.
    replaced: Mutex<Option<std::path::PathBuf>>,
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
            reached: AtomicBool::new(reached),
            live: Mutex::default(),
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
    pub fn note_contact(&self, answered: bool) {
        self.reached.store(answered, Ordering::Relaxed);
    }

    /// Held while a run that changes the host is made, so that nothing is undone meanwhile.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, Option<LiveGuard>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with what an agent before left, as this process; whether something is under way.
    ///
    /// # Errors
    /// In words, when it cannot be read. The watchdog looks again.
    pub fn resume(self: &Arc<RunGuard>, process: ActivationProcess) -> Result<bool, String> {
        let now = boot_moment().map_err(|error| chain(&error))?;
        let changes = match self.changes.peek().map_err(|error| chain(&error))? {
            PeekedFile::Value(changes) => changes,
            PeekedFile::Absent | PeekedFile::Damaged => {
                GuardedChanges { target: Digest::ZERO, seq: 0, changes: Vec::new() }
            }
        };
        let record = match self.files.peek().map_err(|error| chain(&error))? {
            PeekedFile::Value(record) => record,
            PeekedFile::Absent => ActivationRecord::default(),
            PeekedFile::Damaged => damaged(&changes, &now),
        };
        if record.under_way == ActivationStage::Settled {
            return Ok(false);
        }
        let runs = target_of(&record);
        let found = FoundHost { process, runs };
        let is_armed = matches!(record.under_way, ActivationStage::Armed(_));
        let (activation, effects) = Activation::start(record, GenerationLimits::default(), found, &now);
        let mut live = self.live();
        let guard = LiveGuard { activation, changes, own: false, trying: None, asked: false, put_back: None };
        let guard = live.insert(guard);
        self.carry_out_all(guard, effects);
        // The run ended with its process: what it changed so far is to be followed by a contact.
        if is_armed
            && process != ActivationProcess::Watchdog
            && let Some(target) = runs
        {
            self.give(guard, ActivationInput::Switched { target, end: SwitchEnd::Done });
        }
        let goes_on = !self.end_settled(&mut live);
        drop(live);
        if goes_on && process != ActivationProcess::Watchdog {
            self.watch();
        }
        Ok(goes_on)
    }

    /// A resource is about to be changed that can cut the host off.
    ///
    /// # Errors
    /// In words, when it must not be: nothing would undo it, or the host returned from just this.
    pub(crate) fn before(
        self: &Arc<RunGuard>,
        run: &GuardedRun,
        change: GuardedChange,
    ) -> Result<(), String> {
        let mut live = self.live();
        if let Some(guard) = live.as_mut() {
            if !matches!(guard.activation.record().under_way, ActivationStage::Armed(_)) {
                return Err("held back until a contact has followed the change before it".to_owned());
            }
            let mut changes = guard.changes.clone();
            changes.add(change)?;
            self.changes.store(&changes).map_err(|error| unguarded(&chain(&error)))?;
            guard.changes = changes;
            return Ok(());
        }
        let on_trial = match self.trials.peek().map_err(|error| unguarded(&chain(&error)))? {
            PeekedFile::Value(record) => record.under_way != ActivationStage::Settled,
            PeekedFile::Absent => false,
            PeekedFile::Damaged => true,
        };
        if on_trial {
            return Ok(());
        }
        let before = match self.files.peek().map_err(|error| unguarded(&chain(&error)))? {
            PeekedFile::Value(record) => record.quarantine,
            PeekedFile::Absent | PeekedFile::Damaged => Default::default(),
        };
        let target = GenerationId(converge::guarded::guarded_digest(&run.desired, run.root));
        if let Some(known) = before.of(target) {
            return Err(held_back(&known.cause));
        }
        let now = boot_moment().map_err(|error| unguarded(&chain(&error)))?;
        let mut changes = GuardedChanges { target: target.0, seq: run.seq, changes: Vec::new() };
        changes.add(change)?;
        self.changes.store(&changes).map_err(|error| unguarded(&chain(&error)))?;
        let record = ActivationRecord { quarantine: before, ..ActivationRecord::default() };
        let found = FoundHost { process: ActivationProcess::Agent, runs: Some(GenerationId::AS_FOUND) };
        let (activation, _) = Activation::start(record, GenerationLimits::default(), found, &now);
        let mut guard =
            LiveGuard { activation, changes, own: true, trying: None, asked: false, put_back: None };
        let contact = match self.reached.load(Ordering::Relaxed) {
            true => ContactRule::Required,
            false => ContactRule::ProbesAlone,
        };
        let window = run.window.clamp(MIN_WINDOW, MAX_WINDOW);
        let terms = ActivationTerms { window, contact, ..ActivationTerms::default() };
        let target = Generation { id: target, seq: run.seq, bytes: 0 };
        let order = ActivationOrder { target, terms, probes: ProbeTopology::default() };
        let refused = self.give(&mut guard, ActivationInput::Activate(Box::new(order)));
        if !matches!(guard.activation.record().under_way, ActivationStage::Armed(_)) {
            return Err(refused.unwrap_or_else(|| unguarded("the guard did not begin")));
        }
        *live = Some(guard);
        drop(live);
        self.watch();
        Ok(())
    }

    /// The run ended, in its turn: a contact is to follow. A unit or a command of it that failed says that it is wrong.
    pub(crate) fn run_ended(&self, run: &GuardedRun, report: &RunReport) {
        let mut live = self.live();
        let Some(guard) = live.as_mut().filter(|guard| guard.own) else { return };
        if !matches!(guard.activation.record().under_way, ActivationStage::Armed(_)) {
            return;
        }
        let touched = |id: &ResourceId| guard.changes.changes.iter().any(|change| change.resource == *id);
        let end = match converge::guarded::failed_at_once(report, &run.desired, &touched) {
            Some((id, reason)) => SwitchEnd::Failed { reason: format!("{id} failed: {reason}") },
            None => SwitchEnd::Done,
        };
        if guard.changes.touches_agent() && end == SwitchEnd::Done {
            undo::reload_units(&self.kinds);
            if let Some(daemon) = self.daemon.get() {
                daemon.restart();
            }
        }
        let target = GenerationId(guard.changes.target);
        self.give(guard, ActivationInput::Switched { target, end });
        self.end_settled(&mut live);
    }

    /// A try to reach the control plane ended.
    pub fn confirm_tried(&self, outcome: Result<(), String>) {
        let mut live = self.live();
        let Some(guard) = live.as_mut() else { return };
        let Some((generation, boot)) = guard.trying.take() else { return };
        let input = match outcome {
            Ok(()) => ActivationInput::ConfirmAnswered { generation, boot },
            Err(reason) => ActivationInput::TryFailed { reason },
        };
        self.give(guard, input);
        self.end_settled(&mut live);
    }

    /// Time goes on; whether the guard is up still. The caller has the host's turn.
    pub fn tick(&self) -> bool {
        let mut live = self.live();
        let Some(guard) = live.as_mut() else { return false };
        let Ok(now) = boot_moment() else { return true };
        if guard.activation.next_deadline().is_some_and(|(at, _)| at <= now.at) {
            self.give(guard, ActivationInput::Tick);
        }
        !self.end_settled(&mut live)
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<BootTime> {
        self.live().as_ref()?.activation.next_deadline().map(|(at, _)| at)
    }

    /// What is due next undoes nothing: a try to reach the control plane.
    fn is_try_due(&self) -> bool {
        let live = self.live();
        let Some(guard) = live.as_ref() else { return false };
        let ActivationStage::Confirming(trial) = &guard.activation.record().under_way else { return false };
        let has_time = boot_moment().is_ok_and(|now| now.at < trial.deadline);
        has_time && matches!(guard.activation.next_deadline(), Some((_, ActivationDeadline::Try)))
    }

    /// Whether a contact is to follow.
    pub fn is_up(&self) -> bool {
        self.live().is_some()
    }

    /// Whether the host is going back, or something is done that must not be cut off. It never waits: the daemon's own
    /// thread asks.
    pub(crate) fn returns(&self) -> bool {
        let live = match self.live.try_lock() {
            Ok(live) => live,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        let stage = live.as_ref().map(|guard| &guard.activation.record().under_way);
        matches!(stage, Some(ActivationStage::Returning(_)))
    }

    /// The agent's program, where it was put back.
    pub(crate) fn replaced(&self) -> Option<std::path::PathBuf> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A thread keeps the time as long as the guard is up. Without one the watchdog does.
    fn watch(self: &Arc<RunGuard>) {
        if self.daemon.get().is_none() {
            return;
        }
        let guard = Arc::downgrade(self);
        let watch = move || {
            loop {
                std::thread::sleep(TURN);
                let Some(guard) = guard.upgrade() else { return };
                guard.contact_if_due();
                let now = boot_moment().map(|now| now.at).ok();
                let is_due = guard.next_deadline().is_some_and(|at| now.is_some_and(|now| at <= now));
                // A run has the host: what undoes waits for its end, and the watchdog for no longer than it does. A
                // contact is tried all the same: the run before must not be undone as a long one follows it.
                let _turn = match guard.turn.try_lock() {
                    Ok(turn) => Some(turn),
                    Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                    Err(TryLockError::WouldBlock) if guard.is_try_due() => None,
                    Err(TryLockError::WouldBlock) => continue,
                };
                if is_due && !guard.tick() || guard.live().is_none() {
                    return;
                }
            }
        };
        let builder = std::thread::Builder::new().name("muster guard".to_owned());
        if let Err(error) = builder.spawn_compactly(watch) {
            tracing::error!(%error, "no thread could be started: the watchdog alone guards the run");
        }
    }

    /// Gives the machine an input, and does all that follows; what was refused, in words.
    fn give(&self, guard: &mut LiveGuard, input: ActivationInput) -> Option<String> {
        let now = boot_moment().ok()?;
        let effects = guard.activation.handle(input, now.at);
        self.carry_out_all(guard, effects)
    }

    fn carry_out_all(&self, guard: &mut LiveGuard, effects: Vec<ActivationEffect>) -> Option<String> {
        let mut queue = std::collections::VecDeque::from(effects);
        let mut refused = None;
        while let Some(effect) = queue.pop_front() {
            let Some(input) = self.carry_out(guard, effect, &mut refused) else { continue };
            let Ok(now) = boot_moment() else { break };
            // What was left of the list is in what follows, where it is still to be done.
            queue = guard.activation.handle(input, now.at).into();
        }
        refused
    }

    fn carry_out(
        &self,
        guard: &mut LiveGuard,
        effect: ActivationEffect,
        refused: &mut Option<String>,
    ) -> Option<ActivationInput> {
        match effect {
            ActivationEffect::Persist(record) => {
                let error = self.files.persist(&record).err()?;
                Some(ActivationInput::NotPersisted { reason: chain(&error) })
            }
            ActivationEffect::ArmWatchdog(_) => {
                let error = self.files.arm(self.storage.durable(), guard.activation.record()).err()?;
                Some(ActivationInput::NotArmed { reason: chain(&error) })
            }
            ActivationEffect::Disarm => {
                if let Err(error) = self.files.disarm(guard.activation.record()) {
                    tracing::warn!(error = %chain(&error), "the watchdog stays, and has nothing to do");
                }
                None
            }
            ActivationEffect::TryConfirm { generation, boot, number } => {
                tracing::info!(number, "a guarded change waits for a contact");
                if guard.own && guard.changes.touches_agent() {
                    return Some(ActivationInput::TryFailed {
                        reason: "the agent starts anew first".to_owned(),
                    });
                }
                (guard.trying, guard.asked) = (Some((generation, boot)), false);
                None
            }
            ActivationEffect::Return { .. } => {
                guard.trying = None;
                let failures = self.undo_all(guard);
                if !failures.is_empty() {
                    self.say(format!(
                        "a guarded change was undone, but not all of it: {}",
                        failures.join("; ")
                    ));
                }
                Some(ActivationInput::Returned)
            }
            ActivationEffect::Report(fact) => {
                match fact {
                    ActivationFact::Refused { refusal, .. } => {
                        *refused = Some(unguarded(&refusal.to_string()))
                    }
                    ActivationFact::Confirmed { generation } => {
                        tracing::info!("a contact followed the guarded change: it stays");
                        return Some(ActivationInput::RolloutEnded(generation));
                    }
                    ActivationFact::Returned { cause, .. } => {
                        let names = guard.changes.names();
                        self.say(format!(
                            "{names}: undone, as {}; held back until the release or a resource of it changes",
                            said(&cause)
                        ));
                    }
                    ActivationFact::TryFailed { reason, .. } => tracing::warn!("no contact yet: {reason}"),
                    ActivationFact::NotPersisted { reason } | ActivationFact::WatchdogNotSet { reason } => {
                        tracing::error!(reason, "what guards a run cannot be kept");
                    }
                    _ => {}
                }
                None
            }
            // The run is the switch; it has no probes, and keeps nothing but what undoes it.
            ActivationEffect::Switch(_)
            | ActivationEffect::StartProbes { .. }
            | ActivationEffect::StopProbes
            | ActivationEffect::StartAgentAnew
            | ActivationEffect::Forget(_) => None,
        }
    }

    /// A fact for the node's log: it is said when there is a network again.
    fn say(&self, message: String) {
        tracing::warn!("{message}");
        if let Err(error) = self.storage.append_blocking(FactBody::Repaired { message }) {
            tracing::warn!(error = %chain(&error), "it cannot be told later");
        }
    }

    /// Nothing is under way: what would be undone is forgotten. Whether that is so.
    fn end_settled(&self, live: &mut Option<LiveGuard>) -> bool {
        let Some(guard) = live.as_ref() else { return true };
        if guard.activation.record().under_way != ActivationStage::Settled {
            return false;
        }
        if let Err(error) = self.changes.clear() {
            tracing::debug!(error = %chain(&error), "what was guarded stays on the disk, and means nothing");
        }
        if let Some(program) = guard.put_back.clone() {
            *self.replaced.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
            if let Some(daemon) = self.daemon.get() {
                daemon.restart();
            }
        }
        *live = None;
        true
    }

    /// Begins the try that is due, where one is.
    pub(crate) fn contact_if_due(self: &Arc<RunGuard>) {
        let mut live = self.live();
        let asked =
            live.as_mut().map(|guard| guard.trying.is_none() || std::mem::replace(&mut guard.asked, true));
        drop(live);
        let wants = asked == Some(false);
        if let (true, Some(daemon)) = (wants, self.daemon.get()) {
            daemon.try_contact(self.clone());
        }
    }
}

/// The guard of a machine's runs; whether its last contact was answered is what the daemon wrote of it.
pub(crate) fn guard_of(machine: &Machine, storage: &Storage) -> RunGuard {
    let durable = storage.durable();
    let contact = ContactView::read(durable.path());
    let reached = contact.is_some_and(|contact| contact.answered.is_some() && contact.problem.is_none());
    let trials = GenerationFiles::of(machine.options(), durable.disk());
    RunGuard::new(trials, storage.clone(), machine.kinds.clone(), reached)
}

/// A record that is damaged: where changes are known, they are undone.
fn damaged(changes: &GuardedChanges, now: &BootMoment) -> ActivationRecord {
    if changes.changes.is_empty() {
        return ActivationRecord::default();
    }
    let from = Generation { id: GenerationId(changes.target), seq: changes.seq, bytes: 0 };
    let (cause, boot) = (ReturnCause::FoundElsewhere, now.boot.clone());
    let back = GenerationReturn { from, cause, boot, deadline: BootTime::BOOT };
    ActivationRecord { under_way: ActivationStage::Returning(back), ..ActivationRecord::default() }
}

fn target_of(record: &ActivationRecord) -> Option<GenerationId> {
    match &record.under_way {
        ActivationStage::Armed(trial)
        | ActivationStage::Confirming(trial)
        | ActivationStage::Deferred(trial) => Some(trial.target.id),
        ActivationStage::Settled | ActivationStage::Probation(_) | ActivationStage::Returning(_) => None,
    }
}

/// Why the host went back, of a run.
fn said(cause: &ReturnCause) -> String {
    match cause {
        ReturnCause::NotConfirmed => {
            "no contact with the control plane followed within the window".to_owned()
        }
        ReturnCause::SwitchTooLong => "the run did not end in its time".to_owned(),
        ReturnCause::SwitchFailed { reason } => reason.clone(),
        ReturnCause::Rebooted => "the host went down before a contact followed".to_owned(),
        ReturnCause::AgentDied => "the agent died before a contact followed".to_owned(),
        cause => cause.to_string(),
    }
}

fn held_back(cause: &ReturnCause) -> String {
    let said = said(cause);
    format!(
        "held back: this host undid just this change, as {said}; it is tried again once the release or a resource that \
         is guarded changes"
    )
}

fn unguarded(why: &str) -> String {
    format!("not changed, as nothing would undo it if it cut this host off: {why}")
}
