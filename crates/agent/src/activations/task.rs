//! The thread that drives the machine: one input at a time, with the time since the boot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationInput, ActivationOrder, ActivationRecord, ActivationStage,
    ActivationTerms, BootId, BootMoment, BootTime, FoundHost, Generation, GenerationId, GenerationLimits,
    ProbeTopology, SwitchEnd,
};
use model::log::FactBody;
use node::{ActivationRequest, Adoption, RequestNumber, RolloutActivation, TrialStage};

use super::probes::ProbeTasks;
use super::{ActivationCommand, ActivationSetup};
use crate::generations::{ActivationOwner, boot_moment, carry_out_all};
use crate::render::chain;

/// The longest wait: a host that slept looks at the clock again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How soon the kernel is asked again for its clock where it does not say.
const CLOCK_RETRY: Duration = Duration::from_secs(5);

/// The state of the thread.
pub(super) struct ActivationTask {
    pub(super) setup: Arc<ActivationSetup>,
    /// `None`: nothing is under way, and what is held is what is confirmed.
    pub(super) activation: Option<Activation>,
    pub(super) kept: Option<RolloutActivation>,
    pub(super) probes: ProbeTasks,
    pub(super) boot: BootMoment,
    /// What the host is switched to, and whether a boot was required before.
    pub(super) switch: Option<PendingSwitch>,
    /// Where the host goes back.
    pub(super) back: Option<PendingReturn>,
    /// No run is under way, and none begins.
    pub(super) host_is_free: bool,
    pub(super) trying: Option<(GenerationId, BootId)>,
    /// What the node knows of it.
    pub(super) shown: Option<TrialStage>,
    /// The newest request of the node that was heard.
    pub(super) heard: RequestNumber,
}

/// A switch that the daemon carries out.
pub(super) struct PendingSwitch {
    pub(super) target: Generation,
    pub(super) boot_was_required: bool,
}

/// A return that waits until no run is under way.
pub(super) struct PendingReturn {
    pub(super) from: GenerationId,
    pub(super) to: Generation,
}

impl ActivationTask {
    /// Goes on with what the agent before left; `None` where the kernel does not say which boot this is.
    pub(super) fn start(
        setup: Arc<ActivationSetup>,
        commands: SyncSender<ActivationCommand>,
    ) -> Option<ActivationTask> {
        let boot = match boot_moment() {
            Ok(boot) => boot,
            Err(error) => {
                tracing::error!(error = %chain(&error), "no release can be activated in waves");
                return None;
            }
        };
        let kept = setup.rollout.load().ok().and_then(|kept| kept.value.flatten());
        let probes = ProbeTasks::new(setup.runtime.clone(), setup.host.clone(), commands);
        // Begun for an order, where nothing was under way: the node knows that, and has gone on since.
        let shown = (!setup.was_under_way).then_some(TrialStage::Settled);
        let mut task = ActivationTask {
            setup,
            activation: None,
            kept,
            probes,
            boot,
            switch: None,
            back: None,
            host_is_free: false,
            trying: None,
            shown,
            heard: RequestNumber::default(),
        };
        task.go_on();
        Some(task)
    }

    fn go_on(&mut self) {
        let Some((record, effects)) = self.load() else { return };
        let now = self.now();
        let (events, order) = match &mut self.kept {
            Some(kept) => {
                let events = kept.resumed(&record, &now);
                (events, kept.is_to_be_asked_again(&record).then(|| kept.order()))
            }
            None => (Vec::new(), None),
        };
        // Before what this process does of it.
        self.report(events);
        self.keep_rollout();
        carry_out_all(self, effects);
        if let Some(order) = order {
            self.give(ActivationInput::Activate(Box::new(order)));
        }
        self.settle();
    }

    /// Reads the record, and goes on with it: the record as it was found, and what is to be done first. Nothing where it
    /// cannot be read.
    pub(super) fn load(&mut self) -> Option<(ActivationRecord, Vec<ActivationEffect>)> {
        let now = self.now();
        let durable = self.setup.storage.durable();
        let found = self.setup.files.load(durable, &now);
        let runs = self.setup.files.running();
        let (found, runs) = match (found, runs) {
            (Ok(found), Ok(runs)) => (found, runs),
            (found, runs) => {
                let error = found.err().map(|error| chain(&error));
                let error = error.or(runs.err().map(|error| chain(&error))).unwrap_or_default();
                tracing::error!(error, "the record of activations cannot be used");
                return None;
            }
        };
        if let Some(message) = found.repair {
            tracing::error!("{message}");
            let told = self.setup.storage.append_blocking(FactBody::Repaired { message });
            told.unwrap_or_else(|error| tracing::warn!(error = %chain(&error), "it cannot be told"));
        }
        let process = self.setup.mark.process();
        let found_host = FoundHost { process, runs };
        let limits = GenerationLimits::default();
        let record = found.record.clone();
        let (activation, effects) = Activation::start(found.record, limits, found_host, &now);
        self.activation = Some(activation);
        Some((record, effects))
    }

    pub(super) fn run(mut self, inbox: &Receiver<ActivationCommand>) {
        loop {
            let command = match inbox.recv_timeout(self.wait()) {
                Ok(ActivationCommand::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self.probes.stop();
                }
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
            };
            // A panic ends one step. What is under way has its deadline, and the watchdog keeps it.
            let step = catch_unwind(AssertUnwindSafe(|| {
                if let Some(command) = command {
                    self.hear(command);
                }
                self.tick();
            }));
            if step.is_err() {
                std::thread::sleep(CLOCK_RETRY);
            }
        }
    }

    fn wait(&mut self) -> Duration {
        let now = self.now();
        let machine = self.activation.as_ref().and_then(Activation::next_deadline).map(|(at, _)| at);
        let parts = self.kept.as_ref().zip(self.activation.as_ref());
        let converges = parts.and_then(|(kept, activation)| kept.converges_at(activation, &now));
        let due = [machine, converges].into_iter().flatten().min();
        due.map_or(LONGEST_WAIT, |at| at.since(now.at).min(LONGEST_WAIT))
    }

    /// The time; the last known one where the kernel does not say.
    pub(super) fn now(&mut self) -> BootMoment {
        if let Ok(now) = boot_moment() {
            self.boot = now;
        }
        self.boot.clone()
    }

    fn tick(&mut self) {
        let now = self.now();
        let is_due = |at: BootTime| at <= now.at;
        let deadline = self.activation.as_ref().and_then(Activation::next_deadline);
        if deadline.is_some_and(|(at, _)| is_due(at)) {
            self.give(ActivationInput::Tick);
        }
        if let (Some(kept), Some(activation)) = (&mut self.kept, &self.activation)
            && let Some(event) = kept.converges(activation, &now)
        {
            self.report(vec![event]);
            self.keep_rollout();
        }
        self.settle();
    }

    fn hear(&mut self, command: ActivationCommand) {
        match command {
            ActivationCommand::Activate(request) => self.activate(*request),
            ActivationCommand::Supersede(adoption) => self.supersede(&adoption),
            ActivationCommand::Switched(end) => self.switched(end),
            ActivationCommand::HostIsFree => {
                self.host_is_free = true;
                self.go_back_if_free();
            }
            ActivationCommand::ConfirmTried(outcome) => {
                let Some((generation, boot)) = self.trying.take() else { return };
                self.give(match outcome {
                    Ok(()) => ActivationInput::ConfirmAnswered { generation, boot },
                    Err(reason) => ActivationInput::TryFailed { reason },
                });
            }
            ActivationCommand::GoBack(generation) => self.give(ActivationInput::Halted(generation)),
            ActivationCommand::RolloutEnded(generation) => self.rollout_ended(generation),
            ActivationCommand::Restate(generation) => self.restate(generation),
            ActivationCommand::AdoptedAtOnce(held) => self.adopted_at_once(held),
            ActivationCommand::LiftQuarantine(release, reply) => {
                // Who asked may be gone.
                let _ = reply.send(self.lift_quarantine(release));
            }
            ActivationCommand::Probed(result) => self.give(ActivationInput::Probe(result)),
            ActivationCommand::Stop => {}
        }
    }

    fn rollout_ended(&mut self, generation: GenerationId) {
        let now = self.now();
        if self.kept.as_ref().is_none_or(|kept| kept.may_end(generation, &now)) {
            self.give(ActivationInput::RolloutEnded(generation));
        }
    }

    fn activate(&mut self, request: ActivationRequest) {
        // Whatever comes of it, the node waits to hear how it stands.
        (self.shown, self.heard) = (None, request.number);
        let durable = self.setup.storage.durable();
        let generation = self.setup.files.keep(durable, &request.adoption);
        if self.activation.is_none()
            && let Some((_, effects)) = self.load()
        {
            carry_out_all(self, effects);
        }
        let is_loaded = self.activation.is_some();
        let generation = match generation {
            Ok(generation) if is_loaded => generation,
            Ok(_) => return self.not_begun(&request, "the record of activations cannot be used".to_owned()),
            Err(error) => return self.not_begun(&request, chain(&error)),
        };
        let order = Box::new(ActivationOrder {
            target: generation,
            terms: request.terms,
            probes: request.probes.clone(),
        });
        let record = self.activation.as_ref().map(Activation::record);
        if RolloutActivation::is_replaced(record, order.target.id) {
            self.kept = Some(RolloutActivation::new(request.part.clone(), (*order).clone()));
            if let Err(error) = self.setup.rollout.store(&self.kept) {
                self.kept = None;
                return self.not_begun(&request, chain(&error));
            }
        }
        self.give(ActivationInput::Activate(order));
        self.settle();
    }

    /// The host is as it was.
    fn not_begun(&mut self, request: &ActivationRequest, why: String) {
        let confirmed =
            self.activation.as_ref().map_or(Generation::AS_FOUND, |known| known.record().confirmed);
        tracing::error!(why, release = request.part.seq, "the release is not activated");
        self.report_of(request.part.rollout.clone(), RolloutActivation::given_up(why, confirmed));
        self.settle();
    }

    fn supersede(&mut self, adoption: &Adoption) {
        let target = Generation { id: GenerationId(adoption.root), seq: adoption.seq, bytes: 0 };
        // The same set: there is nothing to give up, and it is adopted after the boot.
        if let Some(activation) = &self.activation
            && let ActivationStage::Deferred(trial) = &activation.record().under_way
            && trial.target.id == target.id
        {
            return;
        }
        let (terms, probes) = (ActivationTerms::default(), ProbeTopology::default());
        self.give(ActivationInput::Activate(Box::new(ActivationOrder { target, terms, probes })));
    }

    /// What is held is what is confirmed, though the disk may not say so yet: whoever finds the record next does
    /// ([`ActivationRecord::found`]).
    fn adopted_at_once(&mut self, held: GenerationId) {
        if let Some(activation) = &self.activation
            && let ActivationStage::Probation(_) = activation.record().under_way
        {
            let generation = activation.record().confirmed.id;
            self.give(ActivationInput::RolloutEnded(generation));
        }
        let goes_on = |record: &ActivationRecord| {
            record.under_way != ActivationStage::Settled && !record.is_replaced_by(held)
        };
        if self.activation.as_ref().is_some_and(|known| goes_on(known.record())) {
            return;
        }
        self.probes.stop();
        self.activation = None;
        if self.kept.take().is_some() {
            self.keep_rollout();
        }
        // A return of before is no news any more.
        self.show(TrialStage::Settled, None);
    }

    fn restate(&mut self, generation: GenerationId) {
        let now = self.now();
        let (Some(kept), Some(activation)) = (&mut self.kept, &self.activation) else { return };
        if kept.part.generation() != generation {
            return;
        }
        if kept.is_to_be_tried_again(activation.record()) {
            let order = Box::new(kept.order());
            return self.give(ActivationInput::Activate(order));
        }
        let events = kept.restated(activation, &now);
        self.report(events);
        self.keep_rollout();
    }

    fn switched(&mut self, end: Result<(), String>) {
        let Some(switch) = self.switch.take() else { return };
        let target = switch.target.id;
        let end = end.and_then(|()| self.setup.files.arrive(target).map_err(|error| chain(&error)));
        let boot = super::effects::required_boot(&self.setup.host);
        let end = SwitchEnd::after(end, boot, switch.boot_was_required, || self.take_up_agent());
        let is_there = !matches!(end, SwitchEnd::Failed { .. });
        self.give(ActivationInput::Switched { target, end });
        if is_there {
            self.measure(target);
        }
    }

    /// What a generation takes is known once its archives are unpacked. What cannot be measured counts as before.
    fn measure(&mut self, target: GenerationId) {
        let durable = self.setup.storage.durable();
        let adoption = self.setup.files.kept_adoption(target).ok().flatten();
        match adoption.map(|adoption| durable.measured_generation(&adoption)).transpose() {
            Ok(Some(Generation { bytes, .. })) => {
                self.give(ActivationInput::Measured { generation: target, bytes });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(error = %chain(&error), "what the release takes was not measured"),
        }
    }

    /// Gives the machine an input, and does all that follows.
    pub(super) fn give(&mut self, input: ActivationInput) {
        if self.activation.is_none() {
            return;
        }
        let effects = self.handle(input);
        carry_out_all(self, effects);
        self.settle();
    }
}
