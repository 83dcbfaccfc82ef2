//! What an agent that runs does about the effects of an activation ([`crate::generations::carry_out_all`]).

use std::sync::Mutex;

use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationRecord, ActivationStage,
    Generation, GenerationId, HealthProbeOutcome, SwitchEnd,
};
use host::Host;
use node::{Adoption, HeldSettings, NodeInput, ReturnedRelease, TrialStage};

use super::begun_switch::boot_was_required;
use super::task::{ActivationTask, PendingReturn, PendingSwitch};
use crate::events::DaemonEvent;
use crate::generations::{
    ActivationOwner, GenerationFiles, HostReturn, ReturnWatchdog, ReturnedHost, return_host,
};
use crate::render::chain;
use crate::runner::observed;
use crate::storage::Storage;

/// What says that the host must boot, and what asks for it.
const REQUIRED: &str = "run/reboot-required";
const REQUIRED_BY: &str = "run/reboot-required.pkgs";
/// How much of that is read, in bytes.
const MAX_REQUIRED_BY: u64 = 4096;

impl ActivationOwner for ActivationTask {
    fn files(&self) -> &GenerationFiles {
        &self.setup.files
    }

    fn storage(&self) -> &Storage {
        &self.setup.storage
    }

    fn record(&self) -> Option<&ActivationRecord> {
        self.activation.as_ref().map(Activation::record)
    }

    fn handle(&mut self, input: ActivationInput) -> Vec<ActivationEffect> {
        let now = self.now();
        self.activation.as_mut().map(|activation| activation.handle(input, now.at)).unwrap_or_default()
    }

    fn go_back(&mut self, from: GenerationId, to: Generation) -> Option<ActivationInput> {
        (self.switch, self.trying) = (None, None);
        self.back = Some(PendingReturn { from, to });
        self.show(TrialStage::Returning, None);
        self.returns_now()
    }

    /// Tells the rollout and the journal.
    fn tell(&mut self, fact: &ActivationFact) {
        log(fact);
        let now = self.now();
        let Some(confirmed) = self.record().map(|record| record.confirmed) else { return };
        let Some(kept) = &mut self.kept else { return };
        let events = kept.told(fact, confirmed, &now);
        let is_kept = matches!(
            fact,
            ActivationFact::Started { .. }
                | ActivationFact::Completed { .. }
                | ActivationFact::Deferred { .. }
                | ActivationFact::SwitchFailed { .. }
                | ActivationFact::NoWayBack { .. }
                | ActivationFact::Returning { .. }
        );
        self.report(events);
        if is_kept {
            self.keep_rollout();
        }
    }

    fn carry_out_running(&mut self, effect: ActivationEffect) -> Option<ActivationInput> {
        match effect {
            ActivationEffect::Switch(target) => return self.switch_to(target),
            ActivationEffect::StartAgentAnew => self.start_agent_anew(),
            ActivationEffect::StartProbes { generation, boot, probes } => {
                self.probes.start(generation, &boot, &probes);
            }
            ActivationEffect::StopProbes => self.probes.stop(),
            ActivationEffect::TryConfirm { generation, boot, number } => {
                tracing::info!(number, "tries to confirm the release");
                self.trying = Some((generation, boot));
                self.setup.daemon.send_blocking(DaemonEvent::Input(NodeInput::TryConfirm));
            }
            // Carried out before, whoever goes on.
            ActivationEffect::Persist(_)
            | ActivationEffect::ArmWatchdog(_)
            | ActivationEffect::Disarm
            | ActivationEffect::Return { .. }
            | ActivationEffect::Forget(_)
            | ActivationEffect::Report(_) => {}
        }
        None
    }
}

impl ActivationTask {
    /// The daemon adopts the release and makes a full run: nothing of the host is touched before the mark is gone.
    fn switch_to(&mut self, target: Generation) -> Option<ActivationInput> {
        let failed = |reason: String| {
            Some(ActivationInput::Switched { target: target.id, end: SwitchEnd::Failed { reason } })
        };
        let adoption = match self.setup.files.kept_adoption(target.id) {
            Ok(Some(adoption)) => adoption,
            Ok(None) => return failed("the release is not kept here".to_owned()),
            Err(error) => return failed(chain(&error)),
        };
        if let Err(error) = self.setup.files.leave() {
            return failed(chain(&error));
        }
        let boot_was_required = self.boot_was_required();
        self.switch = Some(PendingSwitch { target, boot_was_required });
        self.setup.daemon.send_blocking(DaemonEvent::Input(NodeInput::Switch(Box::new(adoption))));
        None
    }

    fn boot_was_required(&self) -> bool {
        let is_required = required_boot(&self.setup.host).is_some();
        match self.activation.as_ref().map(|activation| &activation.record().under_way) {
            Some(ActivationStage::Armed(trial)) => {
                boot_was_required(self.setup.storage.durable().path(), trial, is_required)
            }
            // What has its content waits for that boot already.
            Some(ActivationStage::Deferred(_)) => false,
            // A release with the content that is confirmed already.
            _ => is_required,
        }
    }

    /// systemd took up the unit of the release before this was durable, and starts the agent by it once this process has
    /// ended.
    fn start_agent_anew(&self) {
        tracing::warn!("the release has another agent: it is started anew, and confirms the release");
        self.setup.daemon.send_blocking(DaemonEvent::AgentReplaced);
    }

    /// Takes up the agent of the release that was switched to, where that is another one than the one that runs, and
    /// something starts it; whether it is so. Before the end of the switch is durable: whoever starts the agent from then
    /// on goes by its unit of the release.
    pub(super) fn take_up_agent(&self) -> Result<bool, String> {
        let Some(activation) = &self.activation else { return Ok(false) };
        let (confirmed, watchdog) = (activation.record().confirmed.id, self.setup.files.watchdog());
        let is_other =
            matches!(watchdog, ReturnWatchdog::Units(_)) && self.setup.files.agent_differs(confirmed);
        let taken = if is_other { watchdog.take_up_agent() } else { Ok(()) };
        taken.map(|()| is_other).map_err(|error| {
            format!("systemd does not start the agent as the release has it: {}", chain(&error))
        })
    }

    /// No run is under way now.
    pub(super) fn go_back_if_free(&mut self) {
        if let Some(input) = self.returns_now() {
            self.give(input);
        }
    }

    /// The return, where nothing is in its way.
    fn returns_now(&mut self) -> Option<ActivationInput> {
        if !self.host_is_free {
            return None;
        }
        let PendingReturn { from, to } = self.back.take()?;
        Some(match self.return_host(from, &to) {
            Ok(()) => ActivationInput::Returned,
            Err(reason) => ActivationInput::ReturnFailed { reason },
        })
    }

    fn return_host(&self, from: GenerationId, to: &Generation) -> Result<(), String> {
        let setup = &self.setup;
        let traits = observed(&setup.host);
        let settled: Mutex<HeldSettings> = Mutex::default();
        // After whatever was to be adopted before.
        let adopt = |adoption: &Adoption| {
            let (release, adoption) = (setup.release.clone(), adoption.clone());
            let settings = setup.storage.run_blocking(move |durable| release.adopt(durable, &adoption))?;
            *settled.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = settings;
            Ok(())
        };
        let back = HostReturn { files: &setup.files, runner: &setup.runner, traits: &traits, adopt: &adopt };
        let ReturnedHost { adoption, agent, .. } = return_host(&back, &setup.storage, from, to)?;
        setup.local.recorded();
        let settings = settled.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last_run = setup.storage.durable().last_run().ok().flatten();
        let returned = ReturnedRelease { adoption, settings, last_run };
        setup.daemon.send_blocking(DaemonEvent::Input(NodeInput::Returned(Box::new(returned))));
        if agent.program.is_some() || agent.units {
            tracing::warn!("the agent is as it was before: it is started anew");
            setup.daemon.send_blocking(DaemonEvent::AgentReplaced);
        }
        Ok(())
    }
}

fn log(fact: &ActivationFact) {
    match fact {
        ActivationFact::Refused { target, refusal } => {
            tracing::error!(%target, "the generation is not activated: {refusal}");
        }
        ActivationFact::Started { target } => tracing::info!(%target, "a generation is switched to"),
        ActivationFact::Completed { target } => tracing::info!(%target, "the switch ended"),
        ActivationFact::Deferred { target, component } => {
            tracing::warn!(%target, component, "the generation takes effect at the next boot");
        }
        ActivationFact::ProbeFailureFirst { probe, .. } => tracing::warn!(probe, "a probe began to fail"),
        // Here alone is what its command printed.
        ActivationFact::ProbeResult {
            probe,
            outcome: outcome @ HealthProbeOutcome::Exited { printed, .. },
            ..
        } => {
            tracing::info!(probe, printed, "a probe: {outcome}");
        }
        ActivationFact::ProbeResult { probe, outcome, .. } => tracing::info!(probe, "a probe: {outcome}"),
        ActivationFact::FailedAfterConfirm { failure, .. } => {
            tracing::error!("{failure}; the generation stays, as its release says");
        }
        ActivationFact::SwitchFailed { target, reason } => {
            tracing::error!(%target, "the switch failed: {}", model::text::one_line(reason));
        }
        ActivationFact::NoWayBack { generation } => {
            tracing::error!(%generation, "this host has given up what it is to go back to");
        }
        ActivationFact::TryFailed { reason, .. } => {
            tracing::warn!("a try to confirm failed: {}", model::text::one_line(reason));
        }
        ActivationFact::Confirmed { generation } => {
            tracing::info!(%generation, "the generation is confirmed")
        }
        ActivationFact::Returning { from, to, cause } => {
            tracing::error!(%from, %to, "this host goes back: {cause}");
        }
        ActivationFact::Returned { from, to, .. } => tracing::warn!(%from, %to, "this host is back"),
        ActivationFact::ReturnFailed { to, reason } => {
            tracing::error!(%to, "this host cannot go back yet: {}", model::text::one_line(reason));
        }
        ActivationFact::ConfirmRefused { generation, .. } => {
            tracing::warn!(%generation, "an answer confirmed nothing: it came too late");
        }
        ActivationFact::WatchdogNotSet { reason } | ActivationFact::NotPersisted { reason } => {
            tracing::error!("what guards an activation cannot be kept: {}", model::text::one_line(reason));
        }
        ActivationFact::ProbesDeclared { .. } => {}
    }
}

/// What asks for a boot of the host, where something does.
pub(super) fn required_boot(host: &Host) -> Option<String> {
    use std::io::Read;
    let root = host.root();
    root.join(REQUIRED).symlink_metadata().ok()?;
    let mut text = String::new();
    let named = std::fs::File::open(root.join(REQUIRED_BY));
    let read = named.and_then(|file| file.take(MAX_REQUIRED_BY).read_to_string(&mut text));
    let component = read.ok().and_then(|_| text.lines().next().map(str::to_owned));
    Some(component.unwrap_or_else(|| "the host".to_owned()))
}
