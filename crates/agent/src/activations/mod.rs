//! The owner of this host's activations: drives [`activation::Activation`], which decides, and carries out what it asks for
//! (ROL-7, ROL-12).
//!
//! ```text
//! node::Node --Activate, GoBack, RolloutEnded--> Activations (bounded channel) --> thread: Activation::handle
//!      ^                                                                              | in order, each or its failure
//!      |                                    Persist, ArmWatchdog, Disarm, Forget ---- generations::carry_out_all
//!      +--Switch: adopt, full run --> Switched        Return: once no run is under way - generations::HostReturn
//!      +--TryConfirm: a check-in --> ConfirmTried     StartProbes -------------------- probes, tasks of the runtime
//!                                                     Report ------------------------- RolloutActivation -> rollout_log
//! ```
//!
//! A host whose channels have no rollouts has no such thread: it begins with the first activation, or at a start that
//! finds one. Nothing of it waits for the daemon's thread, which waits for the disk nowhere.

mod ask;
mod begun_switch;
mod effects;
mod probes;
mod process_mark;
mod quarantine;
mod rollout_log;
mod standing;
mod task;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use activation::{ActivationProcess, ActivationRecord, ActivationStage, GenerationId, HealthProbeResult};
use host::{Host, SpawnCompactly};
use model::NodeId;
use node::{ActivationRequest, Adoption, RolloutActivation, RolloutPart, TrialStage};
use spool::{PeekedFile, StateFile};
use trust::SigningKey;

pub(crate) use self::process_mark::ProcessMark;
pub(crate) use self::quarantine::lift_without_daemon;
pub use self::quarantine::{QuarantineView, QuarantinedRelease};
pub(crate) use self::rollout_log::RolloutLog;
pub use self::view::ActivationView;
use crate::events::{DaemonHandle, LocalReply};
use crate::generations::{GenerationFiles, boot_moment};
use crate::local::state::SharedLocalState;
use crate::machine::Machine;
use crate::release::ActiveRelease;
use crate::runner::Runner;
use crate::state::{Durable, StateError};
use crate::storage::Storage;
use task::ActivationTask;

/// The most commands that wait. Each is the end of one thing that the thread asked for, or is repeated: what a
/// dispatch says, with the next answer; what a probe found, the next time that it is asked.
const COMMANDS: usize = 256;
const ROLLOUT_FILE: &str = "rollout.json";
const MODE: u32 = 0o600;

/// What the thread hears.
pub(crate) enum ActivationCommand {
    /// A release is to be activated.
    Activate(Box<ActivationRequest>),
    /// A release that nothing holds back takes the place of one that waits for a boot.
    Supersede(Box<Adoption>),
    /// The release was adopted and a full run was made, or not.
    Switched(Result<(), String>),
    /// No run is under way, and none begins.
    HostIsFree,
    /// A check-in that tries to confirm ended.
    ConfirmTried(Result<(), String>),
    /// The rollout of a generation was halted, and its signed terms let the host go back.
    GoBack(GenerationId),
    /// The rollout of a generation is at its end.
    RolloutEnded(GenerationId),
    /// What was said of a generation is said again.
    Restate(GenerationId),
    /// A release that nothing holds back was adopted: it is the confirmed generation.
    AdoptedAtOnce(GenerationId),
    /// Somebody at the host lets what is held back of a release be tried again.
    LiftQuarantine(u64, LocalReply<QuarantineView>),
    /// A probe said something.
    Probed(HealthProbeResult),
    /// The agent stops.
    Stop,
}

/// What the thread works with.
pub(crate) struct ActivationSetup {
    pub(crate) files: GenerationFiles,
    pub(crate) rollout: StateFile<Option<RolloutActivation>>,
    pub(crate) log: Arc<RolloutLog>,
    pub(crate) storage: Storage,
    pub(crate) release: Arc<ActiveRelease>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) host: Arc<Host>,
    pub(crate) daemon: DaemonHandle,
    pub(crate) local: SharedLocalState,
    pub(crate) mark: ProcessMark,
    pub(crate) runtime: tokio::runtime::Handle,
    /// The host goes back, and must not be disturbed.
    pub(crate) returning: AtomicBool,
    /// Something was under way when the agent started, so that the node waits to hear how it stands.
    pub(crate) was_under_way: bool,
}

/// What an agent that starts finds of activations.
pub(crate) struct FoundActivations {
    pub(crate) files: GenerationFiles,
    pub(crate) rollout: StateFile<Option<RolloutActivation>>,
    pub(crate) log: Arc<RolloutLog>,
    /// The rollout that the node takes part in.
    pub(crate) part: Option<RolloutPart>,
    /// Where the activation of its release stands.
    pub(crate) stage: TrialStage,
    /// What people at the host are told of it.
    view: Option<ActivationView>,
    mark: ProcessMark,
    is_under_way: bool,
}

impl FoundActivations {
    /// Looks; changes nothing but the mark of this process.
    ///
    /// # Errors
    /// When what is kept cannot be read, or a newer version wrote it.
    pub(crate) fn look(
        machine: &Machine,
        node: NodeId,
        key: Arc<SigningKey>,
    ) -> Result<FoundActivations, StateError> {
        let durable: &Durable = &machine.durable;
        let failed = |source| StateError::Spool { what: "read what is kept of activations", source };
        let files = GenerationFiles::of(machine.options(), durable.disk());
        let rollout = StateFile::new(durable.disk(), durable.path().join(ROLLOUT_FILE), MODE);
        let kept: Option<RolloutActivation> = rollout.load().map_err(failed)?.value.flatten();
        let mut view = None;
        let (stage, is_settled): (TrialStage, bool) = match files.peek().map_err(failed)? {
            PeekedFile::Value(record) => {
                view = view_of(durable, &record)?;
                (TrialStage::of(&record), record.under_way == ActivationStage::Settled)
            }
            PeekedFile::Absent => (TrialStage::Settled, true),
            // What it means is said by whoever loads it.
            PeekedFile::Damaged => (TrialStage::Returning, false),
        };
        Ok(FoundActivations {
            files,
            rollout,
            log: Arc::new(RolloutLog::new(durable, node, key)),
            is_under_way: !is_settled || kept.is_some(),
            part: kept.map(|kept| kept.part),
            stage,
            view,
            mark: ProcessMark::begin(durable.path()),
        })
    }
}

/// What people at the host are told of a record; nothing where another release was adopted since.
fn view_of(durable: &Durable, record: &ActivationRecord) -> Result<Option<ActivationView>, StateError> {
    let held = durable.adoption()?.map_or(GenerationId::AS_FOUND, |held| GenerationId(held.root));
    let is_of_it = record.under_way != ActivationStage::Settled || record.confirmed.id == held;
    // Where the kernel does not say which boot this is, nothing is activated either.
    let now = boot_moment().ok().filter(|_| is_of_it);
    Ok(now.and_then(|now| ActivationView::of(record, &now)))
}

/// The way to the owner of activations.
pub(crate) struct Activations {
    setup: Arc<ActivationSetup>,
    commands: Option<SyncSender<ActivationCommand>>,
}

impl Activations {
    /// Goes on with what was found, where something is under way.
    pub(crate) fn start(setup: ActivationSetup) -> Activations {
        let mut activations = Activations { setup: Arc::new(setup), commands: None };
        if activations.setup.was_under_way {
            activations.begin();
        }
        activations
    }

    /// Gives the owner a command.
    pub(crate) fn send(&mut self, command: ActivationCommand) {
        let Some(commands) = self.begin() else { return };
        if commands.try_send(command).is_err() {
            tracing::error!("the owner of activations hears nothing: the watchdog sees to what is under way");
        }
    }

    /// Gives the owner a command, where there is one.
    pub(crate) fn tell(&mut self, command: ActivationCommand) {
        if self.commands.is_some() {
            self.send(command);
        }
    }

    /// A release that nothing holds back was adopted. A return of before is no news any more.
    pub(crate) fn adopted_at_once(&mut self, held: GenerationId) {
        match self.commands.is_some() {
            true => self.send(ActivationCommand::AdoptedAtOnce(held)),
            false => self.setup.local.set(|state| state.activation = None),
        }
    }

    /// The host goes back, and must not be disturbed.
    pub(crate) fn returns(&self) -> bool {
        self.setup.returning.load(Ordering::Relaxed)
    }

    /// What the owner works with.
    pub(crate) fn setup(&self) -> &Arc<ActivationSetup> {
        &self.setup
    }

    /// The numbers of events in rollouts.
    pub(crate) fn log(&self) -> &Arc<RolloutLog> {
        &self.setup.log
    }

    fn begin(&mut self) -> Option<&SyncSender<ActivationCommand>> {
        if self.commands.is_none() {
            let (commands, inbox) = sync_channel(COMMANDS);
            let (setup, own) = (self.setup.clone(), commands.clone());
            let builder = std::thread::Builder::new().name("muster rollout".to_owned());
            let run = move || {
                if let Some(task) = ActivationTask::start(setup, own) {
                    task.run(&inbox);
                }
            };
            match builder.spawn_compactly(run) {
                Ok(_) => self.commands = Some(commands),
                // Nothing was begun; what is under way is the watchdog's.
                Err(error) => tracing::error!(%error, "no thread could be started for activations"),
            }
        }
        self.commands.as_ref()
    }
}

impl Drop for Activations {
    fn drop(&mut self) {
        self.tell(ActivationCommand::Stop);
    }
}

impl FoundActivations {
    /// After which process this one comes.
    pub(crate) fn process(&self) -> ActivationProcess {
        self.mark.process()
    }

    /// Goes on with what was found.
    pub(crate) fn go_on(self, parts: ActivationParts) -> Activations {
        parts.local.set(|state| state.activation = self.view);
        let setup = ActivationSetup {
            files: self.files,
            rollout: self.rollout,
            log: self.log,
            storage: parts.storage,
            release: parts.release,
            runner: parts.runner,
            host: parts.host,
            daemon: parts.daemon,
            local: parts.local,
            mark: self.mark,
            runtime: tokio::runtime::Handle::current(),
            returning: AtomicBool::new(self.stage == TrialStage::Returning),
            was_under_way: self.is_under_way,
        };
        Activations::start(setup)
    }
}

/// The parts of the daemon that activations use.
pub(crate) struct ActivationParts {
    pub(crate) storage: Storage,
    pub(crate) release: Arc<ActiveRelease>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) host: Arc<Host>,
    pub(crate) daemon: DaemonHandle,
    pub(crate) local: SharedLocalState,
}
