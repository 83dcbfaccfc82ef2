//! `muster-agent return`: what the watchdog runs. It goes on with the record where the agent does not, and ends the agent
//! first (ROL-7, ROL-12).
//!
//! ```text
//! records + boot + clock -> WatchdogLook::decide -> end the watch | wait
//!                                                 -> stop the agent (60 s, then kill) -> take the state's lock
//!                                                 -> Activation, as the watchdog, until the host is back -> start the agent
//! ```

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use activation::guarded::MAX_UNDO_TRIES;
use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationProcess, ActivationRecord,
    ActivationStage, BootMoment, FoundHost, FoundRecord, Generation, GenerationId, GenerationLimits,
    LookDecision, LookingProcess, RETURN_LIMIT, WatchdogLook, WatchedRecord,
};
use model::log::FactBody;
use net::notify::{ServiceState, service_manager};
use node::Adoption;
use rustix::process::{Pid, Signal, kill_process};
use spool::{Disk, SpoolError, StateLock};

use super::{
    ActivationOwner, BootMomentError, GenerationFiles, HostReturn, ReturnWatchdog, ReturnedHost,
    StartLoopError, agent_look, boot_moment, carry_out_all, return_host,
};
use crate::guard::RunGuard;
use crate::machine::{Machine, MachineOptions, OpenMachineError};
use crate::render::chain;
use crate::runner::{Runner, observed};
use crate::service::SERVICE;
use crate::state::{Durable, StateDir, StateError};
use crate::storage::Storage;

/// How long an agent that is asked to stop has before it is killed.
pub const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a killed process may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at the state directory's lock.
const LOCK_LOOK: Duration = Duration::from_millis(50);
/// How often the loop looks where there is no timer.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How often a return is tried before the agent is started again, which may help it: contents that were lost come again.
/// The watchdog begins it anew once [`activation::RETURN_LIMIT`] is over.
const RETURN_TRIES: u32 = 3;

/// Why the watchdog cannot do what is due.
#[derive(Debug, thiserror::Error)]
pub enum ReturnVerbError {
    /// The kernel does not say which boot this is.
    #[error("the boot cannot be told")]
    Boot(#[from] BootMomentError),
    /// The record cannot be read.
    #[error("the record of activations cannot be read")]
    Record(#[from] SpoolError),
    /// The state directory cannot be used.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    /// The agent cannot be taken the state directory from.
    #[error("this host's state cannot be opened")]
    Machine(#[from] OpenMachineError),
    /// The loop cannot begin.
    #[error(transparent)]
    Loop(#[from] StartLoopError),
    /// What a guarded run left cannot be used.
    #[error("what a guarded run left cannot be used: {0}")]
    Guard(String),
    /// The host is not back yet.
    #[error("the host is not back on generation {0} yet")]
    NotReturned(GenerationId),
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReturnLook {
    /// Nothing is under way, and nobody looks any more.
    Over,
    /// It is not time yet, or the agent sees to it.
    NotDue,
    /// What was due was done.
    Done {
        /// The installed program was another one than that of the generation that the host is on now.
        replaced: Option<PathBuf>,
    },
}

/// Looks once, and does what is due.
///
/// # Errors
/// [`ReturnVerbError`]; the next look tries again.
pub fn look(options: &MachineOptions) -> Result<ReturnLook, ReturnVerbError> {
    look_at(options, &GenerationFiles::of(options, &Disk::new()))
}

/// As [`look`], at generations that the caller chose; their disk is that of all that is done.
///
/// # Errors
/// As there.
pub fn look_at(options: &MachineOptions, files: &GenerationFiles) -> Result<ReturnLook, ReturnVerbError> {
    look_as(LookingProcess::Watchdog, options, files)
}

/// Looks until nothing is under way any more: the loop that stands for the watchdog.
///
/// # Errors
/// When it cannot begin.
pub fn follow(options: &MachineOptions) -> Result<(), ReturnVerbError> {
    let files = GenerationFiles::of(options, &Disk::new());
    let watch = super::ReturnLoop::new(options);
    // Nothing was ever on trial here: there is nothing to look at.
    if files.kept()?.is_empty() && files.guards().kept()?.is_empty() {
        return Ok(());
    }
    let Some(_turn) = watch.begin()? else { return Ok(()) };
    loop {
        // First of all too: whoever started this one writes its record then, and the one of before may be due.
        std::thread::sleep(LOOK_EVERY);
        match look_at(options, &files) {
            Ok(ReturnLook::Over) => return Ok(()),
            Ok(ReturnLook::NotDue | ReturnLook::Done { .. }) => {}
            Err(error) => {
                tracing::error!(error = %chain(&error), "tried again in {} s", LOOK_EVERY.as_secs())
            }
        }
    }
}

/// What an agent that starts does first: what a watchdog would do, which may not have looked since the boot. Where that
/// put another program in place, this process goes on as that one.
pub fn before_the_agent(options: &MachineOptions) {
    match look_as(LookingProcess::StartingAgent, options, &GenerationFiles::of(options, &Disk::new())) {
        Ok(ReturnLook::Done { replaced: Some(program) }) => {
            let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
            tracing::error!(%error, program = %program.display(), "the agent that was put back cannot be started");
        }
        Ok(_) => {}
        // The agent itself goes on with the record, and the watchdog looks again.
        Err(error) => {
            tracing::error!(error = %chain(&error), "what was due before the agent starts was not done")
        }
    }
}

fn look_as(
    looking: LookingProcess,
    options: &MachineOptions,
    files: &GenerationFiles,
) -> Result<ReturnLook, ReturnVerbError> {
    match decide(looking, options, files)?.0 {
        LookDecision::EndWatch => end_watch(looking, options, files),
        LookDecision::Wait => Ok(ReturnLook::NotDue),
        LookDecision::GoOn(record, process) => act(looking, options, files, record, process),
    }
}

/// What is found, and what it means; with the record of releases.
fn decide(
    looking: LookingProcess,
    options: &MachineOptions,
    files: &GenerationFiles,
) -> Result<(LookDecision, FoundRecord), ReturnVerbError> {
    let (state, now) = (options.state_dir(), boot_moment()?);
    let (trial, guard) = (files.found()?, files.guards().found()?);
    let look = WatchdogLook { looking, trial: &trial, guard: &guard, now: &now };
    let holder = look.asks_holder().then(|| agent_look::holder(&state)).transpose()?;
    let watch = holder.filter(|_| look.watches_agent());
    let watch = watch.and_then(|holder| agent_look::watch(&state, holder, &now));
    Ok((look.decide(holder, watch.as_ref()), trial))
}

/// Nothing is under way. While an agent lives it may be about to begin something, and ends the watch itself.
fn end_watch(
    looking: LookingProcess,
    options: &MachineOptions,
    files: &GenerationFiles,
) -> Result<ReturnLook, ReturnVerbError> {
    let guards = files.guards();
    if !files.watchdog().is_set_up() && !files.keeps_agents()? && !guards.keeps_agents()? {
        return Ok(ReturnLook::Over);
    }
    let lock = match StateLock::acquire(&options.state_dir()) {
        Ok(lock) => lock,
        Err(SpoolError::Locked { .. }) => return Ok(ReturnLook::NotDue),
        Err(error) => return Err(error.into()),
    };
    // What is found now stays so.
    let record = match decide(looking, options, files)? {
        (LookDecision::EndWatch, FoundRecord::Record(record)) => *record,
        (LookDecision::EndWatch, FoundRecord::Absent | FoundRecord::Damaged) => ActivationRecord::default(),
        (LookDecision::Wait | LookDecision::GoOn(..), _) => return Ok(ReturnLook::NotDue),
    };
    if let Err(error) = guards.disarm(&ActivationRecord::default()) {
        tracing::warn!(error = %chain(&error), "the watchdog stays, and has nothing to do");
    }
    if let Err(error) = files.disarm(&record) {
        tracing::warn!(error = %chain(&error), "the watchdog stays, and has nothing to do");
    }
    drop(lock);
    Ok(ReturnLook::Over)
}

/// Ends the agent, does what is due, and starts the agent again.
fn act(
    looking: LookingProcess,
    options: &MachineOptions,
    files: &GenerationFiles,
    record: WatchedRecord,
    process: ActivationProcess,
) -> Result<ReturnLook, ReturnVerbError> {
    let units = match (looking, files.watchdog()) {
        (LookingProcess::Watchdog, ReturnWatchdog::Units(units)) => Some(units),
        _ => None,
    };
    match (looking, units) {
        (LookingProcess::StartingAgent, _) => service_manager(ServiceState::StartsWithin(RETURN_LIMIT)),
        (LookingProcess::Watchdog, Some(units)) => units.stop(SERVICE, STOP_PATIENCE),
        (LookingProcess::Watchdog, None) => {}
    }
    let acted = take_state(looking, options, files).and_then(|machine| match machine {
        Some(machine) if record == WatchedRecord::Guard => undo_guarded(files, &machine, process),
        Some(machine) => go_on(files, machine, process),
        None => Ok(ReturnLook::NotDue),
    });
    if let Some(units) = units
        && let Err(error) = units.start(SERVICE)
    {
        tracing::error!(error = %chain(&error), "the agent was not started; systemctl start muster-agent");
    }
    acted
}

/// Takes the state directory, from whoever has it: a verb, or an agent that is not systemd's.
fn take_state(
    looking: LookingProcess,
    options: &MachineOptions,
    files: &GenerationFiles,
) -> Result<Option<Machine>, ReturnVerbError> {
    let dir = StateDir::at(&options.state_dir(), files.disk.clone());
    let begun = Instant::now();
    let mut asked = None;
    loop {
        let error = match Machine::open_at(options, &dir) {
            Ok(machine) => return Ok(Some(machine)),
            Err(error) => error,
        };
        let Some(holder) = error.holder() else { return Err(error.into()) };
        if looking == LookingProcess::StartingAgent {
            // Another agent runs, or the watchdog does what is due.
            return Ok(None);
        }
        if begun.elapsed() > STOP_PATIENCE + KILL_PATIENCE {
            return Err(error.into());
        }
        let signal = if begun.elapsed() > STOP_PATIENCE { Signal::KILL } else { Signal::TERM };
        if let Some(pid) = holder.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            && asked != Some((pid, signal))
        {
            // It may be gone already.
            let _ = kill_process(pid, signal);
            asked = Some((pid, signal));
        }
        std::thread::sleep(LOCK_LOOK);
    }
}

/// Goes on with a guarded run.
fn undo_guarded(
    files: &GenerationFiles,
    machine: &Machine,
    process: ActivationProcess,
) -> Result<ReturnLook, ReturnVerbError> {
    let storage = Storage::start(machine.durable.clone())?;
    let guard = Arc::new(RunGuard::new(files.beside(), storage, machine.kinds.clone(), false));
    guard.resume(process).map_err(ReturnVerbError::Guard)?;
    for _ in 0..MAX_UNDO_TRIES {
        if !guard.returns() {
            break;
        }
        if let (Some(at), Ok(now)) = (guard.next_deadline(), boot_moment()) {
            std::thread::sleep(at.since(now.at).min(activation::RETURN_RETRY));
        }
        guard.tick();
    }
    Ok(ReturnLook::Done { replaced: guard.replaced() })
}

fn go_on(
    files: &GenerationFiles,
    machine: Machine,
    process: ActivationProcess,
) -> Result<ReturnLook, ReturnVerbError> {
    let now = boot_moment()?;
    let found = files.load(&machine.durable, &now)?;
    let storage = Storage::start(machine.durable.clone())?;
    if let Some(repair) = found.repair {
        tracing::error!("{repair}");
        storage.append_blocking(FactBody::Repaired { message: repair })?;
    }
    let (runs, boot) = (files.running()?, now.clone());
    let (activation, effects) =
        Activation::start(found.record, GenerationLimits::default(), FoundHost { process, runs }, &now);
    let guard = RunGuard::new(files.beside(), storage.clone(), machine.kinds.clone(), false);
    let runner = Runner::new(machine.kinds.clone(), storage.clone(), machine.membership.hostname.to_string())
        .guarded(Arc::new(guard));
    let mut returning = UnattendedReturn {
        files,
        machine: &machine,
        storage: &storage,
        runner: &runner,
        activation,
        boot,
        replaced: None,
    };
    returning.drive(effects)?;
    Ok(ReturnLook::Done { replaced: returning.replaced })
}

/// An activation, as the watchdog goes on with it.
struct UnattendedReturn<'a> {
    files: &'a GenerationFiles,
    machine: &'a Machine,
    storage: &'a Storage,
    runner: &'a Runner,
    activation: Activation,
    boot: BootMoment,
    replaced: Option<PathBuf>,
}

impl UnattendedReturn<'_> {
    /// Carries effects out until the host is back, or was tried to be often enough.
    fn drive(&mut self, effects: Vec<ActivationEffect>) -> Result<(), ReturnVerbError> {
        let mut effects = effects;
        for _ in 0..RETURN_TRIES {
            carry_out_all(self, effects);
            if !matches!(self.activation.record().under_way, ActivationStage::Returning(_)) {
                return Ok(());
            }
            if let Some((at, _)) = self.activation.next_deadline() {
                std::thread::sleep(at.since(self.now().at).min(activation::RETURN_RETRY));
            }
            effects = self.handle(ActivationInput::Tick);
        }
        Err(ReturnVerbError::NotReturned(self.activation.record().confirmed.id))
    }

    /// The time; the last known one where the kernel does not say.
    fn now(&mut self) -> &BootMoment {
        if let Ok(now) = boot_moment() {
            self.boot = now;
        }
        &self.boot
    }
}

impl ActivationOwner for UnattendedReturn<'_> {
    fn files(&self) -> &GenerationFiles {
        self.files
    }

    fn storage(&self) -> &Storage {
        self.storage
    }

    fn record(&self) -> Option<&ActivationRecord> {
        Some(self.activation.record())
    }

    fn handle(&mut self, input: ActivationInput) -> Vec<ActivationEffect> {
        let at = self.now().at;
        self.activation.handle(input, at)
    }

    fn go_back(&mut self, from: GenerationId, to: Generation) -> Option<ActivationInput> {
        let traits = observed(self.machine.kinds.host());
        let durable: &Durable = &self.machine.durable;
        let adopt = |adoption: &Adoption| durable.adopt(adoption).map(drop);
        let back = HostReturn { files: self.files, runner: self.runner, traits: &traits, adopt: &adopt };
        Some(match return_host(&back, self.storage, from, &to) {
            Ok(ReturnedHost { agent, .. }) => {
                self.replaced = agent.program.or(self.replaced.take());
                ActivationInput::Returned
            }
            Err(reason) => ActivationInput::ReturnFailed { reason },
        })
    }

    /// A fact for the node's log: what happened is said later, when there is a network again.
    fn tell(&mut self, fact: &ActivationFact) {
        let Some(message) = told(fact) else { return };
        tracing::warn!("{message}");
        if let Err(error) = self.storage.append_blocking(FactBody::Repaired { message }) {
            tracing::warn!(error = %chain(&error), "it cannot be told later");
        }
    }
}

/// What the watchdog did, in words.
fn told(fact: &ActivationFact) -> Option<String> {
    match fact {
        ActivationFact::Returning { from, to, cause } => {
            Some(format!("the watchdog takes this host from generation {from} back to {to}: {cause}"))
        }
        ActivationFact::Returned { from, to, cause } => {
            Some(format!("the watchdog took this host from generation {from} back to {to}: {cause}"))
        }
        ActivationFact::ReturnFailed { to, reason } => {
            Some(format!("this host could not go back to generation {to}: {reason}"))
        }
        ActivationFact::NotPersisted { reason } => {
            Some(format!("the record of activations cannot be written: {reason}"))
        }
        ActivationFact::WatchdogNotSet { reason } => Some(format!("the watchdog is not set anew: {reason}")),
        _ => None,
    }
}
