//! [`RehearsedHost`]: a host in a rehearsal: `activation::Activation`, with made-up ends of what it asks for.
//!
//! ```text
//! Acknowledge -> DispatchAck;  Proceed, after that was taken -> Activate
//!   Switch     ends after the host's own time; a host that is to be cut off is so from then on
//!   probes     pass, or fail from the host's own time on
//!   TryConfirm is answered where the host has the network
//!   Report     node::RolloutActivation: the event of the rollout, as of an agent
//! GoBack -> Halted;  Return ends after the host's own time, with the network
//! ```

use std::sync::Arc;
use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationProcess,
    ActivationRecord, ActivationStage, BootId, BootMoment, BootTime, FoundHost, Generation, GenerationId,
    GenerationLimits, HealthProbeMode, HealthProbeOutcome, HealthProbeResult, ProbeTopology, SwitchEnd,
};
use model::rollout::{RolloutDispatch, RolloutTask};
use model::{Digest, Hostname, Incarnation, NodeId, Timestamp};
use node::{RolloutActivation, RolloutPart, activation_terms};
use rollout::{EventAnswer, RolloutEvent, RolloutEventBody, RolloutId, RolloutPointer};
use trust::RolloutTerms;

use crate::RehearsedNode;
use crate::faults::NodeFault;
use crate::nature::HostNature;

/// The release that every host has before.
pub(crate) const BEFORE: u64 = 1;
/// The release that is rehearsed.
pub(crate) const TARGET: u64 = 2;
/// How long a try to confirm waits for its answer.
const TRY_LIMIT: Duration = Duration::from_secs(30);
/// How long it takes until the first result of a probe.
const FIRST_RESULT: Duration = Duration::from_secs(1);
/// How long a host waits at least until it looks again for what is due.
const DUE_AGAIN: Duration = Duration::from_secs(1);
/// How long the hosts had been running when the rehearsal began.
const UPTIME: Duration = Duration::from_secs(24 * 3600);

/// Something that happens on a host. What belongs to a switch or a return that was given up has an earlier number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostEvent {
    Switched(u32),
    Returned(u32),
    ProbesAsked(u32),
    TryEnds(u32),
    SoakOver(u32),
    /// Time brings something to the activation.
    Due,
}

/// What is to happen, and when.
pub(crate) type Agenda = Vec<(Timestamp, HostEvent)>;

pub(crate) struct RehearsedHost {
    pub(crate) id: NodeId,
    pub(crate) hostname: Hostname,
    pub(crate) nature: HostNature,
    /// It has the network.
    pub(crate) is_reached: bool,
    /// It calls seldom, and did not call since the release was published.
    pub(crate) calls_later: bool,
    /// When it exchanges something next, where that is due already.
    pub(crate) exchange_at: Option<Timestamp>,
    activation: Activation,
    /// What it tells of the release, once it began.
    part: Option<RolloutActivation>,
    probes: ProbeTopology,
    terms: Arc<RolloutTerms>,
    boot: BootId,
    booted: Timestamp,
    outbox: Vec<RolloutEventBody>,
    taken: usize,
    /// The request that it acknowledged last.
    acknowledged: Option<Timestamp>,
    /// The acknowledgement was taken.
    may_begin: bool,
    /// When it was switched to the release.
    switched: Option<Timestamp>,
    /// A number for each switch and each return.
    trial: u32,
    due_at: Option<Timestamp>,
}

fn generation(seq: u64) -> Generation {
    Generation { id: GenerationId(Digest::of(&seq.to_be_bytes())), seq, bytes: 0 }
}

impl RehearsedHost {
    pub(crate) fn new(
        node: &RehearsedNode,
        nature: HostNature,
        terms: Arc<RolloutTerms>,
        boot: &BootId,
        begins: Timestamp,
    ) -> RehearsedHost {
        let confirmed = generation(BEFORE);
        let record = ActivationRecord { confirmed, kept: vec![confirmed], ..ActivationRecord::default() };
        let found = FoundHost { process: ActivationProcess::Agent, runs: Some(confirmed.id) };
        let moment = BootMoment { boot: boot.clone(), at: BootTime::after_boot(UPTIME) };
        // A host on its confirmed generation has nothing to do.
        let (activation, _) = Activation::start(record, GenerationLimits::default(), found, &moment);
        RehearsedHost {
            id: node_id(&node.hostname),
            hostname: node.hostname.clone(),
            nature,
            is_reached: nature.fault != Some(NodeFault::Offline),
            calls_later: nature.first_call.is_some(),
            exchange_at: None,
            activation,
            part: None,
            probes: node.probes.clone(),
            terms,
            boot: boot.clone(),
            booted: begins.minus(UPTIME),
            outbox: Vec::new(),
            taken: 0,
            acknowledged: None,
            may_begin: false,
            switched: None,
            trial: 0,
            due_at: None,
        }
    }

    /// The names of its enforcing probes.
    pub(crate) fn enforcing(&self) -> Arc<[String]> {
        let enforcing = self.probes.probes().iter().filter(|probe| probe.mode == HealthProbeMode::Enforce);
        enforcing.map(|probe| probe.name.clone()).collect()
    }

    /// The event that it sends next.
    pub(crate) fn next_event(&self, rollout: &RolloutId, log: &Incarnation) -> Option<RolloutEvent> {
        let body = self.outbox.get(self.taken)?.clone();
        Some(RolloutEvent {
            node: self.id.clone(),
            incarnation: log.clone(),
            rollout: rollout.clone(),
            seq: self.taken as u64 + 1,
            oldest: 1,
            body,
        })
    }

    /// It has something to send.
    pub(crate) fn has_events(&self) -> bool {
        self.taken < self.outbox.len()
    }

    /// The answer to the event that it sent.
    pub(crate) fn answered(&mut self, answer: &EventAnswer) {
        let is_ack = self.outbox.get(self.taken) == Some(&RolloutEventBody::DispatchAck);
        self.may_begin |= is_ack && *answer == EventAnswer::Accepted;
        self.taken += 1;
    }

    /// What it is pointed to and asked for.
    pub(crate) fn hear(&mut self, pointer: &RolloutPointer, now: Timestamp, agenda: &mut Agenda) {
        match pointer.dispatch.task {
            RolloutTask::Acknowledge { until } if self.acknowledged != Some(until) => {
                self.acknowledged = Some(until);
                self.outbox.push(RolloutEventBody::DispatchAck);
            }
            RolloutTask::Proceed if self.may_begin => {
                self.may_begin = false;
                let part = RolloutActivation::new(self.part_in(&pointer.dispatch), self.order());
                let order = Box::new(part.order());
                self.part = Some(part);
                self.give(ActivationInput::Activate(order), now, agenda);
            }
            // Its acknowledgement was taken, and it was called back before it began: it is there already.
            RolloutTask::GoBack if self.may_begin && self.is_settled() => {
                self.may_begin = false;
                self.outbox.push(RolloutEventBody::RollbackComplete { release: BEFORE });
            }
            RolloutTask::GoBack => {
                self.may_begin = false;
                self.give(ActivationInput::Halted(generation(TARGET).id), now, agenda);
            }
            RolloutTask::Hold => self.may_begin = false,
            RolloutTask::Acknowledge { .. } | RolloutTask::Proceed | RolloutTask::Unknown => {}
        }
    }

    fn part_in(&self, dispatch: &RolloutDispatch) -> RolloutPart {
        RolloutPart {
            rollout: dispatch.rollout.clone(),
            seq: TARGET,
            root: generation(TARGET).id.0,
            soak_secs: dispatch.soak_secs,
            on_failure: self.terms.on_failure,
        }
    }

    fn order(&self) -> ActivationOrder {
        let terms = activation_terms(&self.terms.confirm, self.terms.on_failure);
        ActivationOrder { target: generation(TARGET), terms, probes: self.probes.clone() }
    }

    /// Something happens on it.
    pub(crate) fn happen(&mut self, event: HostEvent, now: Timestamp, agenda: &mut Agenda) {
        let target = generation(TARGET).id;
        match event {
            HostEvent::Switched(trial) if trial == self.trial => {
                if self.nature.fault == Some(NodeFault::CutOff) {
                    self.is_reached = false;
                }
                self.give(ActivationInput::Switched { target, end: SwitchEnd::Done }, now, agenda);
            }
            HostEvent::Returned(trial) if trial == self.trial => {
                self.is_reached = self.nature.fault != Some(NodeFault::Offline);
                self.give(ActivationInput::Returned, now, agenda);
            }
            HostEvent::ProbesAsked(trial) if trial == self.trial => self.probe(now, agenda),
            HostEvent::TryEnds(trial) if trial == self.trial => {
                let input = match self.is_reached {
                    true => ActivationInput::ConfirmAnswered { generation: target, boot: self.boot.clone() },
                    false => ActivationInput::TryFailed { reason: "no answer".to_owned() },
                };
                self.give(input, now, agenda);
            }
            HostEvent::SoakOver(trial) if trial == self.trial => {
                let moment = self.moment(now);
                let converged = self.part.as_mut().and_then(|part| part.converges(&self.activation, &moment));
                self.outbox.extend(converged);
            }
            HostEvent::Due if self.due_at == Some(now) => {
                self.due_at = None;
                let is_due = |(at, _): (BootTime, _)| at <= self.since_boot(now);
                if self.activation.next_deadline().is_some_and(is_due) {
                    self.give(ActivationInput::Tick, now, agenda);
                    // What a tick leaves due is looked at again, and not at once.
                    self.plan(now.plus(DUE_AGAIN), agenda);
                } else {
                    self.plan(now, agenda);
                }
                return;
            }
            _ => return,
        }
        self.plan(now, agenda);
    }

    fn is_settled(&self) -> bool {
        self.activation.record().under_way == ActivationStage::Settled
    }

    fn moment(&self, now: Timestamp) -> BootMoment {
        BootMoment { boot: self.boot.clone(), at: self.since_boot(now) }
    }

    fn soak(&self) -> Duration {
        self.part.as_ref().map_or(Duration::ZERO, |part| Duration::from_secs(part.part.soak_secs))
    }

    fn since_boot(&self, now: Timestamp) -> BootTime {
        BootTime::after_boot(now.since(self.booted))
    }

    /// Looks at the activation when its next time comes, not before `earliest`.
    fn plan(&mut self, earliest: Timestamp, agenda: &mut Agenda) {
        let Some((at, _)) = self.activation.next_deadline() else { return };
        let at = self.booted.plus(at.since(BootTime::BOOT)).max(earliest);
        if self.due_at.is_none_or(|due| at < due) {
            self.due_at = Some(at);
            agenda.push((at, HostEvent::Due));
        }
    }

    fn give(&mut self, input: ActivationInput, now: Timestamp, agenda: &mut Agenda) {
        let effects = self.activation.handle(input, self.since_boot(now));
        for effect in effects {
            self.carry_out(effect, now, agenda);
        }
    }

    fn carry_out(&mut self, effect: ActivationEffect, now: Timestamp, agenda: &mut Agenda) {
        match effect {
            ActivationEffect::Switch(_) => {
                self.trial += 1;
                agenda.push((now.plus(self.nature.switch), HostEvent::Switched(self.trial)));
            }
            ActivationEffect::Return { .. } => {
                self.trial += 1;
                agenda.push((now.plus(self.nature.back), HostEvent::Returned(self.trial)));
            }
            ActivationEffect::StartProbes { .. } => self.ask_probes(now, agenda),
            ActivationEffect::TryConfirm { .. } => {
                let wait = if self.is_reached { self.nature.latency } else { TRY_LIMIT };
                agenda.push((now.plus(wait), HostEvent::TryEnds(self.trial)));
            }
            ActivationEffect::Report(fact) => self.report(&fact, now, agenda),
            // The disk of a rehearsed host is never full, and its agent does not die, nor is it another one.
            ActivationEffect::Persist(_)
            | ActivationEffect::StartAgentAnew
            | ActivationEffect::ArmWatchdog(_)
            | ActivationEffect::StopProbes
            | ActivationEffect::Disarm
            | ActivationEffect::Forget(_) => {}
        }
    }

    /// A fact of its activation: what it tells, and when its soak may be over.
    fn report(&mut self, fact: &ActivationFact, now: Timestamp, agenda: &mut Agenda) {
        match fact {
            ActivationFact::Completed { .. } => {
                self.switched = Some(now);
                agenda.push((now.plus(self.soak()), HostEvent::SoakOver(self.trial)));
            }
            ActivationFact::Confirmed { .. } => agenda.push((now, HostEvent::SoakOver(self.trial))),
            ActivationFact::Returned { .. } => self.switched = None,
            _ => {}
        }
        let (confirmed, moment) = (self.activation.record().confirmed, self.moment(now));
        let told = self.part.as_mut().map(|part| part.told(fact, confirmed, &moment));
        self.outbox.extend(told.into_iter().flatten());
    }

    /// Only results that say something else than the one before are played: the first, and the first bad ones.
    fn ask_probes(&self, now: Timestamp, agenda: &mut Agenda) {
        agenda.push((now.plus(FIRST_RESULT), HostEvent::ProbesAsked(self.trial)));
        let Some(unwell) = self.nature.unwell_after(self.soak()) else { return };
        for probe in self.probes.asked().filter(|probe| probe.mode == HealthProbeMode::Enforce) {
            // A failure counts once the grace is over.
            for from in [unwell, unwell.max(probe.grace)] {
                let (from, every) = (from.as_millis(), probe.every.as_millis().max(1));
                let at = u64::try_from(from.div_ceil(every).saturating_mul(every)).unwrap_or(u64::MAX);
                let at = Duration::from_millis(at).max(FIRST_RESULT);
                agenda.push((now.plus(at), HostEvent::ProbesAsked(self.trial)));
            }
        }
    }

    fn probe(&mut self, now: Timestamp, agenda: &mut Agenda) {
        let Some(switched) = self.switched else { return };
        let unwell = self.nature.unwell_after(self.soak()).is_some_and(|after| now.since(switched) >= after);
        let asked: Vec<(String, HealthProbeMode)> =
            self.probes.asked().map(|probe| (probe.name.clone(), probe.mode)).collect();
        for (probe, mode) in asked {
            let fails = unwell && mode == HealthProbeMode::Enforce;
            let outcome = match fails {
                true => HealthProbeOutcome::Failed { reason: "the rehearsal lets it fail".to_owned() },
                false => HealthProbeOutcome::Passed,
            };
            let (generation, began) = (generation(TARGET).id, self.since_boot(now));
            let result = HealthProbeResult { probe, generation, boot: self.boot.clone(), began, outcome };
            self.give(ActivationInput::Probe(result), now, agenda);
        }
    }
}

/// The boot that every host is in.
pub(crate) const BOOT: &str = "rehearsed";

/// The id of a rehearsed node; nobody holds a key of it.
pub(crate) fn node_id(hostname: &Hostname) -> NodeId {
    NodeId::of_key(hostname.as_str().as_bytes())
}
