//! `muster-agent return`: what the watchdog runs. It goes on with the record where the agent does not, and ends the agent
//! first (ROL-7, ROL-12).
//!
//! ```text
//! record + boot + clock -> ActivationRecord::watchdog -> nothing | wait
//!          + who has the state's lock: AgentWatch       -> stop the agent (60 s, then kill) -> take the state's lock
//!                                                        -> Activation, as the watchdog, until the host is back -> start the agent
//! ```

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use activation::guarded::MAX_UNDO_TRIES;
use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationProcess, ActivationRecord,
    ActivationStage, BootMoment, FoundHost, Generation, GenerationId, GenerationLimits, RETURN_LIMIT,
    StateHolder, WatchdogDecision,
};
use model::log::FactBody;
use net::notify::{ServiceState, service_manager};
use node::Adoption;
use rustix::process::{Pid, Signal, kill_process};
use spool::{Disk, PeekedFile, SpoolError, StateLock};

use super::{
    BootMomentError, GenerationFiles, HostReturn, ReturnHostError, ReturnWatchdog, StartLoopError,
    agent_look, boot_moment,
};
use crate::full_runs::record_full_run;
use crate::guard::RunGuard;
use crate::machine::{Machine, MachineOptions, OpenMachineError};
use crate::render::chain;
use crate::run_mark::RunMark;
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

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looker {
    /// The watchdog, which ends the agent and starts it again.
    Watchdog,
    /// The agent, before it begins.
    Agent,
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
    look_as(Looker::Watchdog, options, files)
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
    match look_as(Looker::Agent, options, &GenerationFiles::of(options, &Disk::new())) {
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
    looker: Looker,
    options: &MachineOptions,
    files: &GenerationFiles,
) -> Result<ReturnLook, ReturnVerbError> {
    let now = boot_moment()?;
    let watch = AgentLook { looker, state: options.state_dir() };
    let (trial, guard) = (due(files, &now, &watch)?, due(&files.guards(), &now, &watch)?);
    // A trial undoes more than a guarded run, and comes first.
    for (due, way) in [(trial, WayBack::Trial), (guard, WayBack::Guard)] {
        match due {
            ReturnDue::Now => return act(looker, options, files, way, ActivationProcess::Watchdog),
            ReturnDue::Abandoned => {
                return act(looker, options, files, way, ActivationProcess::WatchdogAlone);
            }
            // Whoever returned is gone, and has left the agent stopped: it is gone on with, without waiting for its deadline.
            ReturnDue::BeingDone if agent_look::holder(&options.state_dir())? == StateHolder::Nobody => {
                return act(looker, options, files, way, ActivationProcess::Watchdog);
            }
            ReturnDue::Later | ReturnDue::BeingDone | ReturnDue::Nothing => {}
        }
    }
    match (trial, guard) {
        (ReturnDue::Nothing, ReturnDue::Nothing) => end_watch(options, files),
        _ => Ok(ReturnLook::NotDue),
    }
}

/// From what the host goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayBack {
    /// A release on trial.
    Trial,
    /// A guarded run (CNV-11).
    Guard,
}

/// What is due by the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReturnDue {
    Nothing,
    Later,
    /// The host goes back, by the process that has the state directory.
    BeingDone,
    Now,
    /// Now, as nobody goes on with a switch.
    Abandoned,
}

/// How a look sees whether somebody goes on with a switch.
struct AgentLook {
    looker: Looker,
    state: PathBuf,
}

impl AgentLook {
    fn is_abandoned(&self, record: &ActivationRecord, now: &BootMoment) -> Result<bool, SpoolError> {
        // An agent goes on with it itself.
        let is_looked_at =
            self.looker == Looker::Watchdog && matches!(record.under_way, ActivationStage::Armed(_));
        if !is_looked_at {
            return Ok(false);
        }
        let watch = agent_look::watch(&self.state, now)?;
        Ok(watch.is_some_and(|watch| record.is_abandoned(&watch, now)))
    }
}

fn due(files: &GenerationFiles, now: &BootMoment, watch: &AgentLook) -> Result<ReturnDue, SpoolError> {
    Ok(match files.peek()? {
        PeekedFile::Absent => ReturnDue::Nothing,
        // What it means is told by whoever has the state directory.
        PeekedFile::Damaged => ReturnDue::Now,
        PeekedFile::Value(record) => match record.watchdog(now) {
            WatchdogDecision::Nothing => ReturnDue::Nothing,
            WatchdogDecision::Wait(_) if matches!(record.under_way, ActivationStage::Returning(_)) => {
                ReturnDue::BeingDone
            }
            WatchdogDecision::Wait(_) if watch.is_abandoned(&record, now)? => ReturnDue::Abandoned,
            WatchdogDecision::Wait(_) | WatchdogDecision::WaitForBoot => ReturnDue::Later,
            WatchdogDecision::CountBoot | WatchdogDecision::Return(_) => ReturnDue::Now,
        },
    })
}

/// Nothing is under way. While an agent lives it may be about to begin something, and ends the watch itself.
fn end_watch(options: &MachineOptions, files: &GenerationFiles) -> Result<ReturnLook, ReturnVerbError> {
    let guards = files.guards();
    if !files.watchdog().is_set_up() && !files.keeps_agents()? && !guards.keeps_agents()? {
        return Ok(ReturnLook::Over);
    }
    let lock = match StateLock::acquire(&options.state_dir()) {
        Ok(lock) => lock,
        Err(SpoolError::Locked { .. }) => return Ok(ReturnLook::NotDue),
        Err(error) => return Err(error.into()),
    };
    let record = match files.peek()? {
        PeekedFile::Value(record) => record,
        PeekedFile::Absent => ActivationRecord::default(),
        PeekedFile::Damaged => return Ok(ReturnLook::NotDue),
    };
    let is_nothing = matches!(record.watchdog(&boot_moment()?), WatchdogDecision::Nothing);
    if !is_nothing {
        return Ok(ReturnLook::NotDue);
    }
    let is_guarded = match guards.peek()? {
        PeekedFile::Value(guarded) => !matches!(guarded.watchdog(&boot_moment()?), WatchdogDecision::Nothing),
        PeekedFile::Absent => false,
        PeekedFile::Damaged => true,
    };
    if is_guarded {
        return Ok(ReturnLook::NotDue);
    }
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
    looker: Looker,
    options: &MachineOptions,
    files: &GenerationFiles,
    way: WayBack,
    process: ActivationProcess,
) -> Result<ReturnLook, ReturnVerbError> {
    let units = match (looker, files.watchdog()) {
        (Looker::Watchdog, ReturnWatchdog::Units(units)) => Some(units),
        _ => None,
    };
    match (looker, units) {
        (Looker::Agent, _) => service_manager(ServiceState::StartsWithin(RETURN_LIMIT)),
        (Looker::Watchdog, Some(units)) => units.stop(SERVICE, STOP_PATIENCE),
        (Looker::Watchdog, None) => {}
    }
    let acted = take_state(looker, options, files).and_then(|machine| match machine {
        Some(machine) if way == WayBack::Guard => undo_guarded(files, &machine, process),
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
    looker: Looker,
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
        if looker == Looker::Agent {
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
    let runs = files.running()?;
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
    replaced: Option<PathBuf>,
}

impl UnattendedReturn<'_> {
    /// Carries effects out until nothing is to be done now.
    fn drive(&mut self, effects: Vec<ActivationEffect>) -> Result<(), ReturnVerbError> {
        let mut effects = effects;
        for _ in 0..RETURN_TRIES {
            self.carry_out_all(effects)?;
            if !matches!(self.activation.record().under_way, ActivationStage::Returning(_)) {
                return Ok(());
            }
            let now = boot_moment()?.at;
            if let Some((at, _)) = self.activation.next_deadline() {
                std::thread::sleep(at.since(now).min(activation::RETURN_RETRY));
            }
            effects = self.activation.handle(ActivationInput::Tick, boot_moment()?.at);
        }
        Err(ReturnVerbError::NotReturned(self.activation.record().confirmed.id))
    }

    fn carry_out_all(&mut self, effects: Vec<ActivationEffect>) -> Result<(), ReturnVerbError> {
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            if let Some(input) = self.carry_out(effect) {
                // Whatever was left of the list is in what follows, where it is still to be done.
                queue = self.activation.handle(input, boot_moment()?.at).into();
            }
        }
        Ok(())
    }

    /// Carries one effect out; gives what follows of it.
    fn carry_out(&mut self, effect: ActivationEffect) -> Option<ActivationInput> {
        match effect {
            ActivationEffect::Persist(record) => {
                let error = self.files.persist(&record).err()?;
                Some(ActivationInput::NotPersisted { reason: chain(&error) })
            }
            ActivationEffect::ArmWatchdog(_) => {
                let error = self.files.arm(&self.machine.durable, self.activation.record()).err()?;
                Some(ActivationInput::NotArmed { reason: chain(&error) })
            }
            ActivationEffect::Disarm => {
                if let Err(error) = self.files.disarm(self.activation.record()) {
                    tracing::warn!(error = %chain(&error), "the watchdog stays, and has nothing to do");
                }
                None
            }
            ActivationEffect::Return { from, to } => Some(match self.go_back(from, &to) {
                Ok(()) => ActivationInput::Returned,
                Err(error) => ActivationInput::ReturnFailed { reason: chain(&error) },
            }),
            ActivationEffect::Forget(generations) => {
                if let Err(error) = self.files.forget(&generations) {
                    tracing::warn!(error = %chain(&error), "generations that nothing needs stay");
                }
                None
            }
            ActivationEffect::Report(fact) => {
                self.tell(&fact);
                None
            }
            // The agent's, once it runs.
            ActivationEffect::Switch(_)
            | ActivationEffect::StartProbes { .. }
            | ActivationEffect::StopProbes
            | ActivationEffect::StartAgentAnew
            | ActivationEffect::TryConfirm { .. } => None,
        }
    }

    fn go_back(&mut self, from: GenerationId, to: &Generation) -> Result<(), ReturnHostError> {
        let traits = observed(self.machine.kinds.host());
        let durable: &Durable = &self.machine.durable;
        let adopt = |adoption: &Adoption| durable.adopt(adoption).map(drop);
        let host_return =
            HostReturn { files: self.files, runner: self.runner, traits: &traits, adopt: &adopt };
        // Without a mark it is made all the same.
        let _ = RunMark::begin(durable.path(), crate::clock::now());
        let returned = host_return.carry_out(from, to);
        RunMark::end(durable.path());
        let returned = returned?;
        self.replaced = returned.agent.program.or(self.replaced.take());
        if let Some((run, inputs)) = returned.run
            && let Err(error) = record_full_run(self.storage, inputs, run)
        {
            tracing::warn!(error = %chain(&error), "what the run came to is not recorded");
        }
        Ok(())
    }

    /// A fact for the node's log: what happened is said later, when there is a network again.
    fn tell(&self, fact: &ActivationFact) {
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
