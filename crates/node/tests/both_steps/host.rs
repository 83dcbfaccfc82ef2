//! A host of a world: `activation::Activation` over a disk, a mark, an agent that dies, a watchdog and boots, with
//! `node::RolloutActivation` for what the agent tells.

use std::collections::BTreeMap;
use std::time::Duration;

use ::model::Timestamp;
use ::model::rollout::RolloutEventBody;
use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationProcess, ActivationRecord,
    ActivationStage, BootMoment, BootTime, FoundHost, Generation, GenerationId, GenerationLimits,
    HealthProbeOutcome, HealthProbeResult, SwitchEnd, WatchdogDecision,
};
use node::RolloutActivation;
use rollout::RolloutId;

use crate::model::Rng;
use crate::model::node::{Fate, HostOrder, NodeHost};
use crate::reached::{reach, reach_of};
use crate::release::{activation_order, generation, part};

/// A host that does more than this while time goes on once does not come to rest.
const MAX_HAPPENINGS: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Switched(Generation),
    Returned(Generation),
    Answer(GenerationId),
    Probe(GenerationId, Timestamp),
}

pub struct RealHost {
    name: String,
    disk: ActivationRecord,
    kept: Option<RolloutActivation>,
    /// The mark: what the host runs as a whole.
    runs: Option<GenerationId>,
    process: Option<Activation>,
    is_watchdog: bool,
    agent_starts: Timestamp,
    died: bool,
    boot: u32,
    booted: Timestamp,
    /// When somebody boots the host, as its release asks for.
    boots_at: Option<Timestamp>,
    pending: Vec<(Timestamp, Pending)>,
    probes: Option<GenerationId>,
    is_armed: bool,
    /// What releases do to the host, and when it was switched to them.
    fates: BTreeMap<GenerationId, Fate>,
    switched: Timestamp,
    now: Timestamp,
    is_reached: bool,
    has_faults: bool,
    said: Vec<(RolloutId, RolloutEventBody)>,
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl RealHost {
    pub fn new(holds: Option<u64>, name: &str) -> RealHost {
        let confirmed = holds.map_or(Generation::AS_FOUND, generation);
        RealHost {
            name: name.to_owned(),
            disk: ActivationRecord { confirmed, ..ActivationRecord::default() },
            kept: None,
            runs: Some(confirmed.id),
            process: None,
            is_watchdog: false,
            agent_starts: Timestamp::default(),
            died: false,
            boot: 1,
            booted: Timestamp::default(),
            boots_at: None,
            pending: Vec::new(),
            probes: None,
            is_armed: false,
            fates: BTreeMap::new(),
            switched: Timestamp::default(),
            now: Timestamp::default(),
            is_reached: true,
            has_faults: true,
            said: Vec::new(),
        }
    }

    fn moment(&self) -> BootMoment {
        let boot = format!("boot-{}", self.boot).parse().unwrap();
        BootMoment { boot, at: BootTime::after_boot(self.now.since(self.booted)) }
    }

    fn record(&self) -> &ActivationRecord {
        self.process.as_ref().map_or(&self.disk, Activation::record)
    }

    fn say(&mut self, events: Vec<RolloutEventBody>) {
        let Some(kept) = &self.kept else { return };
        let rollout = kept.part.rollout.clone();
        self.said.extend(events.into_iter().map(|event| (rollout.clone(), event)));
    }

    fn fate(&self) -> Fate {
        let runs = match &self.record().under_way {
            // In the middle of a switch, or of a return.
            ActivationStage::Armed(trial) => Some(trial.target.id),
            ActivationStage::Returning(back) => Some(back.from.id),
            _ => self.runs,
        };
        runs.and_then(|runs| self.fates.get(&runs)).copied().unwrap_or(Fate::Well)
    }

    /// Nothing is to happen by itself.
    fn rests(&self) -> bool {
        self.process.is_some() && self.kept.is_none() && self.disk.under_way == ActivationStage::Settled
    }

    fn start(&mut self, process: ActivationProcess, rng: &mut Rng) {
        let moment = self.moment();
        self.is_watchdog = process == ActivationProcess::Watchdog;
        let is_tried = matches!(self.disk.under_way, ActivationStage::Confirming(_));
        if is_tried && self.has_faults && rng.below(20) == 0 {
            reach("mark lost");
            self.runs = None;
        }
        (self.pending, self.probes, self.died) = (Vec::new(), None, false);
        let found = FoundHost { process, runs: self.runs };
        let (activation, effects) =
            Activation::start(self.disk.clone(), GenerationLimits::default(), found, &moment);
        self.process = Some(activation);
        if self.is_watchdog {
            reach("watchdog");
            return self.carry_out(effects, rng);
        }
        let order = match &mut self.kept {
            Some(kept) => {
                let told = kept.resumed(&self.disk, &moment);
                let order = kept.is_to_be_asked_again(&self.disk).then(|| kept.order());
                self.say(told);
                order
            }
            None => None,
        };
        self.carry_out(effects, rng);
        if let Some(order) = order {
            self.give(ActivationInput::Activate(Box::new(order)), rng);
        }
        self.settle();
    }

    fn end_process(&mut self, died: bool) {
        (self.process, self.died) = (None, died);
        (self.pending, self.probes) = (Vec::new(), None);
        self.agent_starts = self.now.plus(secs(5));
    }

    fn reboot(&mut self) {
        self.end_process(false);
        self.boot += 1;
        (self.booted, self.boots_at) = (self.now, None);
        // Its units are there still, and look at once.
        self.is_armed =
            !matches!(self.disk.under_way, ActivationStage::Settled | ActivationStage::Probation(_));
    }

    fn give(&mut self, input: ActivationInput, rng: &mut Rng) {
        let now = self.moment().at;
        let Some(process) = &mut self.process else { return };
        let effects = process.handle(input, now);
        self.carry_out(effects, rng);
    }

    fn carry_out(&mut self, effects: Vec<ActivationEffect>, rng: &mut Rng) {
        for effect in effects {
            if self.process.is_none() {
                return;
            }
            if self.has_faults && rng.below(300) == 0 {
                match rng.below(3) {
                    0 => {
                        reach("power cut");
                        return self.reboot();
                    }
                    died => {
                        reach(if died == 1 { "agent died" } else { "agent killed" });
                        return self.end_process(died == 1);
                    }
                }
            }
            let failed = match effect {
                ActivationEffect::Persist(record) => self.persist(*record, rng),
                ActivationEffect::ArmWatchdog(_) if self.has_faults && rng.below(100) == 0 => {
                    reach("not armed");
                    Some(ActivationInput::NotArmed { reason: "no bus".to_owned() })
                }
                ActivationEffect::ArmWatchdog(_) => {
                    self.is_armed = true;
                    None
                }
                ActivationEffect::Disarm => {
                    self.is_armed = false;
                    None
                }
                ActivationEffect::StartAgentAnew if self.has_faults && rng.below(10) == 0 => {
                    Some(ActivationInput::NotStartedAnew { reason: "its unit is broken".to_owned() })
                }
                // It was told to stop.
                ActivationEffect::StartAgentAnew => {
                    reach("agent started anew");
                    self.end_process(false);
                    None
                }
                other => {
                    self.do_one(other, rng);
                    None
                }
            };
            if let Some(input) = failed {
                return self.give(input, rng);
            }
        }
    }

    fn persist(&mut self, record: ActivationRecord, rng: &mut Rng) -> Option<ActivationInput> {
        if !self.has_faults || rng.below(60) > 0 {
            self.disk = record;
            return None;
        }
        if rng.below(2) == 0 {
            reach("persisted and not synced");
            self.disk = record;
        } else {
            reach("not persisted");
        }
        Some(ActivationInput::NotPersisted { reason: "no room".to_owned() })
    }

    fn do_one(&mut self, effect: ActivationEffect, rng: &mut Rng) {
        let later = |now: Timestamp, rng: &mut Rng| now.plus(secs(3 + rng.below(40)));
        match effect {
            ActivationEffect::Switch(target) => {
                assert!(self.is_armed || target.id == self.disk.confirmed.id, "a switch without a watchdog");
                self.runs = None;
                if self.has_faults && rng.below(60) == 0 {
                    // Its deadline ends it.
                    return reach("switch hangs");
                }
                self.pending.push((later(self.now, rng), Pending::Switched(target)));
            }
            ActivationEffect::Return { to, .. } => {
                self.runs = None;
                self.pending = vec![(later(self.now, rng), Pending::Returned(to))];
            }
            ActivationEffect::StartProbes { generation, .. } => {
                self.stop_probes();
                self.probes = Some(generation);
                self.pending.push((self.now.plus(secs(1)), Pending::Probe(generation, self.now)));
            }
            ActivationEffect::StopProbes => self.stop_probes(),
            ActivationEffect::TryConfirm { generation, .. } => {
                self.pending.push((self.now.plus(secs(2)), Pending::Answer(generation)));
            }
            ActivationEffect::Report(fact) => self.report(&fact),
            ActivationEffect::Forget(_) => {}
            ActivationEffect::Persist(_)
            | ActivationEffect::ArmWatchdog(_)
            | ActivationEffect::Disarm
            | ActivationEffect::StartAgentAnew => unreachable!("they are carried out where they may fail"),
        }
    }

    fn stop_probes(&mut self) {
        self.probes = None;
        self.pending.retain(|(_, pending)| !matches!(pending, Pending::Probe(..)));
    }

    fn report(&mut self, fact: &ActivationFact) {
        reach_of(fact);
        // The watchdog tells no rollout; the agent does at its next start.
        if self.is_watchdog {
            return;
        }
        let (moment, confirmed) = (self.moment(), self.record().confirmed);
        if let Some(kept) = &mut self.kept {
            let events = kept.told(fact, confirmed, &moment);
            self.say(events);
        }
    }

    /// A part that is over is forgotten.
    fn settle(&mut self) {
        let Some(process) = self.process.as_ref().filter(|_| !self.is_watchdog) else { return };
        if self.kept.as_ref().is_some_and(|kept| kept.is_over(process.record())) {
            self.kept = None;
        }
    }

    /// When something is due, at the earliest.
    fn next(&self) -> Option<Timestamp> {
        let at = |at: BootTime| self.booted.plus(at.since(BootTime::BOOT));
        let pending = self.pending.iter().map(|(at, _)| *at).min();
        let deadline = self.process.as_ref().and_then(Activation::next_deadline).map(|(due, _)| at(due));
        let starts = self.process.is_none().then_some(self.agent_starts);
        let parts = self.kept.as_ref().zip(self.process.as_ref()).filter(|_| !self.is_watchdog);
        let converges = parts.and_then(|(kept, process)| kept.converges_at(process, &self.moment())).map(at);
        [pending, deadline, starts, converges, self.boots_at].into_iter().flatten().min()
    }

    fn happen(&mut self, rng: &mut Rng) {
        if self.boots_at.is_some_and(|at| at <= self.now) {
            // Once all is well nobody boots a host in the middle of a trial: only for a release that waits for it still.
            if self.has_faults || matches!(self.record().under_way, ActivationStage::Deferred(_)) {
                return self.reboot();
            }
            self.boots_at = None;
        }
        if self.process.is_none() {
            let is_due = matches!(
                self.disk.watchdog(&self.moment()),
                WatchdogDecision::Return(_) | WatchdogDecision::CountBoot
            );
            if self.is_armed && is_due {
                self.start(ActivationProcess::Watchdog, rng);
                return self.rest_watchdog();
            }
            if self.agent_starts <= self.now {
                let process =
                    if self.died { ActivationProcess::AgentAfterDeath } else { ActivationProcess::Agent };
                return self.start(process, rng);
            }
        }
        while let Some(next) = self.pending.iter().position(|(at, _)| *at <= self.now) {
            let (_, pending) = self.pending.remove(next);
            self.end(pending, rng);
        }
        let now = self.moment().at;
        let deadline = self.process.as_ref().and_then(Activation::next_deadline);
        if deadline.is_some_and(|(at, _)| at <= now) {
            self.give(ActivationInput::Tick, rng);
        }
        if self.is_watchdog {
            return self.rest_watchdog();
        }
        let moment = self.moment();
        if let (Some(kept), Some(process)) = (&mut self.kept, &self.process)
            && let Some(event) = kept.converges(process, &moment)
        {
            self.say(vec![event]);
        }
        self.settle();
        // A release under which the agent lives for a while alone.
        if self.has_faults && self.process.is_some() && !self.rests() && rng.below(400) == 0 {
            reach("agent died");
            self.end_process(true);
        }
    }

    /// A watchdog that has done its work ends, and the agent starts.
    fn rest_watchdog(&mut self) {
        let goes_on = self
            .process
            .as_ref()
            .is_some_and(|process| matches!(process.record().under_way, ActivationStage::Returning(_)));
        if !goes_on && self.process.is_some() {
            self.end_process(false);
        }
    }

    fn end(&mut self, pending: Pending, rng: &mut Rng) {
        match pending {
            Pending::Switched(target) => {
                let end = match self.fates.get(&target.id) {
                    Some(Fate::ActivationFails) => SwitchEnd::Failed { reason: "no".to_owned() },
                    // What the host runs already asks for no boot.
                    Some(Fate::NeedsBoot)
                        if self.boots_at.is_none()
                            && self.runs != Some(target.id)
                            && self.record().confirmed.id != target.id =>
                    {
                        self.boots_at = Some(self.now.plus(secs(60 + rng.below(7200))));
                        self.runs = Some(target.id);
                        SwitchEnd::NeedsReboot { component: "kernel".to_owned() }
                    }
                    _ => {
                        (self.runs, self.switched) = (Some(target.id), self.now);
                        if self.is_armed && rng.below(8) == 0 {
                            SwitchEnd::NeedsNewAgent
                        } else {
                            SwitchEnd::Done
                        }
                    }
                };
                self.give(ActivationInput::Switched { target: target.id, end }, rng);
            }
            Pending::Returned(to) => {
                self.runs = Some(to.id);
                self.boots_at = None;
                self.give(ActivationInput::Returned, rng);
            }
            Pending::Answer(generation) => {
                let boot = self.moment().boot;
                let input = match self.is_reached && self.fate() != Fate::CutOff {
                    true => ActivationInput::ConfirmAnswered { generation, boot },
                    false => ActivationInput::TryFailed { reason: "unreachable".to_owned() },
                };
                self.give(input, rng);
            }
            Pending::Probe(generation, began) => self.probed(generation, began, rng),
        }
        self.settle();
    }

    fn probed(&mut self, generation: GenerationId, began: Timestamp, rng: &mut Rng) {
        let is_confirmed = self.record().confirmed.id == generation;
        let fails = match self.fate() {
            Fate::ProbesFail => true,
            Fate::FailsLater => is_confirmed && self.now.since(self.switched) >= secs(30),
            _ => false,
        };
        let (boot, since_boot) = (self.moment().boot, BootTime::after_boot(began.since(self.booted)));
        for (probe, outcome) in [
            ("web", if fails { HealthProbeOutcome::TimedOut } else { HealthProbeOutcome::Passed }),
            ("eye", HealthProbeOutcome::TooMuchOutput),
        ] {
            let (probe, boot) = (probe.to_owned(), boot.clone());
            let result = HealthProbeResult { probe, generation, boot, began: since_boot, outcome };
            self.give(ActivationInput::Probe(result), rng);
        }
        if self.probes == Some(generation) {
            self.pending.push((self.now.plus(secs(20)), Pending::Probe(generation, self.now)));
        }
    }
}

impl NodeHost for RealHost {
    fn live(&mut self, now: Timestamp, is_reached: bool, rng: &mut Rng) {
        self.is_reached = is_reached;
        if self.booted == Timestamp::default() {
            // It was there before the world.
            (self.booted, self.now) = (now.minus(secs(86_400)), now);
        }
        if self.rests() {
            self.now = now;
            return;
        }
        for _ in 0..MAX_HAPPENINGS {
            let Some(at) = self.next().filter(|at| *at <= now) else {
                self.now = self.now.max(now);
                return;
            };
            self.now = self.now.max(at);
            self.happen(rng);
        }
        panic!("{} does not come to rest: {:?}", self.name, self.record());
    }

    fn begin(&mut self, order: HostOrder, now: Timestamp, rng: &mut Rng) {
        self.now = now;
        let target = generation(order.seq);
        self.fates.insert(target.id, order.fate);
        let kept = RolloutActivation::new(part(&order), activation_order(&order));
        let activate = ActivationInput::Activate(Box::new(kept.order()));
        if RolloutActivation::is_replaced(self.process.as_ref().map(Activation::record), target.id) {
            self.kept = Some(kept);
        }
        self.give(activate, rng);
        self.settle();
    }

    fn go_back(&mut self, now: Timestamp, rng: &mut Rng) {
        self.now = now;
        let Some(generation) = self.kept.as_ref().map(|kept| kept.part.generation()) else { return };
        self.give(ActivationInput::Halted(generation), rng);
        self.settle();
    }

    fn rollout_ended(&mut self, now: Timestamp, rng: &mut Rng) {
        self.now = now;
        let Some(kept) = &self.kept else { return };
        let generation = kept.part.generation();
        if kept.may_end(generation, &self.moment()) {
            self.give(ActivationInput::RolloutEnded(generation), rng);
            self.settle();
        }
    }

    fn restate(&mut self, now: Timestamp) {
        self.now = now;
        let moment = self.moment();
        if let (Some(kept), Some(process)) = (&mut self.kept, &self.process) {
            let events = kept.restated(process, &moment);
            self.say(events);
        }
    }

    fn part(&self) -> Option<(&RolloutId, u64)> {
        self.kept.as_ref().map(|kept| (&kept.part.rollout, kept.part.seq))
    }

    fn is_disrupted(&self, now: Timestamp) -> bool {
        let at = BootTime::after_boot(now.since(self.booted));
        let moment = BootMoment { at, ..self.moment() };
        let soaks = || self.kept.as_ref().is_some_and(|kept| kept.soak_ends(&moment).is_some());
        match &self.record().under_way {
            ActivationStage::Settled => false,
            ActivationStage::Probation(_) => soaks(),
            _ => true,
        }
    }

    fn keeps_others_out(&self) -> bool {
        matches!(
            self.record().under_way,
            ActivationStage::Armed(_) | ActivationStage::Confirming(_) | ActivationStage::Returning(_)
        )
    }

    fn back_to(&self) -> Option<u64> {
        let record = self.record();
        let back = match &record.under_way {
            ActivationStage::Armed(_) | ActivationStage::Confirming(_) | ActivationStage::Deferred(_) => {
                record.confirmed
            }
            ActivationStage::Probation(probation) => probation.previous,
            ActivationStage::Settled | ActivationStage::Returning(_) => return None,
        };
        (back != Generation::AS_FOUND).then_some(back.seq)
    }

    fn said(&mut self) -> Vec<(RolloutId, RolloutEventBody)> {
        std::mem::take(&mut self.said)
    }

    fn confirmed(&self) -> Option<u64> {
        let confirmed = self.record().confirmed;
        (confirmed != Generation::AS_FOUND).then_some(confirmed.seq)
    }

    fn running(&self) -> Option<u64> {
        let confirmed = self.record().confirmed;
        (self.runs == Some(confirmed.id)).then_some(confirmed.seq)
    }

    fn is_up(&self) -> bool {
        self.process.is_some() && !self.is_watchdog && self.fate() != Fate::CutOff
    }

    fn heal(&mut self) {
        self.has_faults = false;
    }
}
