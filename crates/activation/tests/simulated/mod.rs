//! A host in memory: a disk that may be full, an agent that dies, a watchdog, boots, and generations that break what
//! they touch. Everything follows from a seed.

mod generations;
mod judged;
mod looks;
mod reached;

use std::collections::BTreeSet;
use std::time::Duration;

use activation::{
    AGENT_PATIENCE, Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder,
    ActivationProcess, ActivationRecord, ActivationRefusal, ActivationStage, ActivationTerms, AfterConfirm,
    AgentWatch, BootMoment, BootTime, ContactRule, FoundHost, Generation, GenerationId, HealthProbeOutcome,
    HealthProbeResult, SwitchEnd, WatchdogAlarm, WatchdogDecision,
};

pub use self::generations::*;
pub use self::reached::MUST_REACH;
use self::reached::{name, short};

/// The longest random while between two things that happen, in seconds.
const LONGEST_WHILE: u64 = 30;
/// At one of so many starts the record goes through its form on the disk, which has a test of its own.
const READ_AGAIN_EVERY: u64 = 16;

/// What the host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    On(GenerationId),
    /// In the middle of a switch, or of a return.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Switch(Generation),
    Return(Generation),
    Answer(GenerationId, u32),
    NoAnswer,
    Probe(GenerationId, BootTime),
}

struct Process {
    activation: Activation,
    is_watchdog: bool,
    number: u32,
    pending: Vec<(BootTime, Pending)>,
    probes: Option<GenerationId>,
}

pub struct SimulatedHost {
    pub chance: Chance,
    pub natures: Vec<Nature>,
    /// What is on the disk, as it is read.
    durable: ActivationRecord,
    /// What the process took for durable last.
    agreed: ActivationRecord,
    pub disk_full: bool,
    pub network: bool,
    pub active: Active,
    boots_into: Option<Generation>,
    pub boot: u32,
    pub now: BootTime,
    armed: Option<WatchdogAlarm>,
    process: Option<Process>,
    agent_starts_at: Option<BootTime>,
    agent_died: bool,
    /// How many processes there were.
    processes: u32,
    /// When the process began that has the state.
    began: BootTime,
    /// When the last one ended, in this boot.
    died_at: Option<BootTime>,
    /// When the last one ended that had lived for some looks.
    gone_since: Option<BootTime>,
    looks_at: BootTime,
    watch: Option<AgentWatch>,
    /// When the target was switched to in this boot, and whether its enforcing probe passed since.
    switched: Option<(GenerationId, BootTime)>,
    passed: BTreeSet<GenerationId>,
    answered: BTreeSet<GenerationId>,
    /// Numbers of tries in one trial in one boot.
    tries: Vec<(GenerationId, u32, u8, BootTime)>,
    pub faults: bool,
    /// The record before this one was written, and could not be synced.
    sync_failed: bool,
    /// The host goes back, and what is durable says that nothing is under way: the disk failed at the confirmation, and
    /// at the return. Such a process does not die in these histories before the host is back: nobody would know.
    returns_unwritten: bool,
    /// What was done, where somebody wants to read it.
    pub log: Option<Vec<String>>,
    /// What has happened at least once.
    pub reached: BTreeSet<&'static str>,
}

impl SimulatedHost {
    pub fn new(seed: u64) -> SimulatedHost {
        let mut chance = Chance(seed);
        let natures = (0..4).map(|_| nature(&mut chance)).collect();
        let record = ActivationRecord {
            confirmed: generation(0),
            kept: vec![generation(0)],
            ..ActivationRecord::default()
        };
        SimulatedHost {
            chance,
            natures,
            durable: record.clone(),
            agreed: record,
            disk_full: false,
            network: true,
            active: Active::On(id(0)),
            boots_into: None,
            boot: 1,
            now: BootTime::after_boot(100 * SECOND),
            armed: None,
            process: None,
            agent_starts_at: Some(BootTime::BOOT),
            agent_died: false,
            processes: 0,
            began: BootTime::BOOT,
            died_at: None,
            gone_since: None,
            looks_at: BootTime::BOOT,
            watch: None,
            switched: None,
            passed: BTreeSet::new(),
            answered: BTreeSet::new(),
            tries: Vec::new(),
            faults: true,
            sync_failed: false,
            returns_unwritten: false,
            log: None,
            reached: BTreeSet::new(),
        }
    }

    pub fn record(&self) -> &ActivationRecord {
        &self.durable
    }

    fn nature(&self, generation: GenerationId) -> Nature {
        (0..4)
            .find(|number| id(*number + 1) == generation)
            .map_or(Nature::Works, |at| self.natures[usize::from(at)])
    }

    /// What what runs does to the host; in the middle of a switch the worst of both.
    fn running(&self) -> Nature {
        match (self.active, &self.record().under_way) {
            (Active::On(id), _) => self.nature(id),
            (Active::Between, ActivationStage::Armed(trial)) => self.nature(trial.target.id),
            (Active::Between, ActivationStage::Returning(back)) => self.nature(back.from.id),
            (Active::Between, _) => Nature::Works,
        }
    }

    fn moment(&self) -> BootMoment {
        BootMoment { boot: boot_id(self.boot), at: self.now }
    }

    /// One thing happens.
    pub fn step(&mut self) {
        if self.faults {
            match self.chance.below(40) {
                0 => self.reboot(),
                1 => self.kill_agent(true),
                2 => self.kill_agent(false),
                3 => self.disk_full = !self.disk_full,
                4 => self.network = !self.network,
                5 | 6 => self.order(),
                7 => self.tell(ActivationInput::Halted),
                11 => {
                    let bytes = 50 * (self.chance.below(8) + 1);
                    self.tell(|generation| ActivationInput::Measured { generation, bytes });
                }
                8 => self.tell(ActivationInput::RolloutEnded),
                9 => {
                    let early =
                        ActivationInput::ConfirmAnswered { generation: id(1), boot: boot_id(self.boot - 1) };
                    self.give(early);
                }
                _ => {}
            }
        }
        self.pass_time();
    }

    fn order(&mut self) {
        let target = generation(u8::try_from(self.chance.below(5)).unwrap());
        let after_confirm = if self.chance.one_in(2) { AfterConfirm::Stay } else { AfterConfirm::Return };
        let contact = if self.chance.one_in(3) { ContactRule::ProbesAlone } else { ContactRule::Required };
        let terms = ActivationTerms {
            switch: 600 * SECOND,
            window: 100 * SECOND,
            boots: 2,
            after_confirm,
            contact,
            ..ActivationTerms::default()
        };
        self.give(ActivationInput::Activate(Box::new(ActivationOrder { target, terms, probes: probes() })));
    }

    fn tell(&mut self, input: impl Fn(GenerationId) -> ActivationInput) {
        let number = u8::try_from(self.chance.below(5)).unwrap();
        self.give(input(id(number)));
    }

    /// Time goes on to what is next, or by a random while.
    fn pass_time(&mut self) {
        let at = |alarm: Option<WatchdogAlarm>| match alarm {
            Some(WatchdogAlarm::At(at)) => Some(at),
            _ => None,
        };
        let of_process = self.process.as_ref().and_then(|process| {
            let pending = process.pending.iter().map(|(at, _)| *at).min();
            let deadline = process.activation.next_deadline().map(|(at, _)| at);
            [pending, deadline].into_iter().flatten().min()
        });
        let starts = self.agent_starts_at.filter(|_| self.process.is_none());
        // While an agent lives nothing comes of it.
        let looks = Some(self.looks_at).filter(|_| self.process.is_none() && self.is_looked_at());
        // An alarm that is over starts no second watchdog, and is none that time stands still for.
        let is_watched = self.process.as_ref().is_some_and(|process| process.is_watchdog);
        let alarm = at(self.armed).filter(|_| !is_watched);
        let next = [alarm, of_process, starts, looks].into_iter().flatten().min();
        let random = self.now.plus(SECOND * u32::try_from(self.chance.below(LONGEST_WHILE) + 1).unwrap());
        let next = match self.faults && self.chance.one_in(4) {
            true => random,
            false => next.unwrap_or(random),
        };
        self.now = self.now.max(next);
        self.alarm();
        self.look();
        self.start_agent();
        self.finish_pending();
        self.give(ActivationInput::Tick);
        self.agent_fares();
        self.check();
    }

    fn alarm(&mut self) {
        let Some(WatchdogAlarm::At(at)) = self.armed else { return };
        if at > self.now || self.process.as_ref().is_some_and(|process| process.is_watchdog) {
            return;
        }
        match self.record().watchdog(&self.moment()) {
            WatchdogDecision::Return(_) | WatchdogDecision::CountBoot => {
                // The timer has elapsed.
                self.armed = None;
                self.end_process(true);
                self.begin(ActivationProcess::Watchdog);
            }
            WatchdogDecision::Wait(at) => self.armed = Some(WatchdogAlarm::At(at)),
            WatchdogDecision::WaitForBoot => self.armed = Some(WatchdogAlarm::AtBoot),
            WatchdogDecision::Nothing => self.armed = None,
        }
    }

    fn start_agent(&mut self) {
        if self.process.is_some() || self.agent_starts_at.is_none_or(|at| at > self.now) {
            return;
        }
        if self.running() == Nature::AgentNeverStarts {
            self.agent_starts_at = Some(self.now.plus(5 * SECOND));
            return;
        }
        self.begin(if self.agent_died {
            ActivationProcess::AgentAfterDeath
        } else {
            ActivationProcess::Agent
        });
    }

    fn begin(&mut self, process: ActivationProcess) {
        self.agent_starts_at = None;
        self.processes += 1;
        self.began = self.now;
        let runs = match self.active {
            Active::On(id) => Some(id),
            Active::Between => None,
        };
        // What a process finds has been written and read.
        if self.chance.one_in(READ_AGAIN_EVERY) {
            self.durable = serde_json::from_slice(&serde_json::to_vec(&self.durable).unwrap()).unwrap();
        }
        self.agreed = self.durable.clone();
        let (activation, effects) =
            Activation::start(self.durable.clone(), LIMITS, FoundHost { process, runs }, &self.moment());
        let number = self.processes;
        if process == ActivationProcess::WatchdogAlone && effects.iter().any(looks::is_of_gone_agent) {
            let gone = self.gone_since.map_or(Duration::ZERO, |since| self.now.since(since));
            let ends = matches!(self.running(), Nature::AgentDies | Nature::AgentNeverStarts);
            assert!(ends || gone + looks::LOOK_EVERY >= AGENT_PATIENCE, "taken for gone after {gone:?}");
        }
        let (is_watchdog, pending) = (process.is_watchdog(), Vec::new());
        self.process = Some(Process { activation, is_watchdog, number, pending, probes: None });
        self.carry_out(effects);
        self.rest_watchdog();
    }

    /// A watchdog that has done its work ends, and the agent starts.
    fn rest_watchdog(&mut self) {
        let is_done = self.process.as_ref().is_some_and(|process| {
            process.is_watchdog
                && !matches!(process.activation.record().under_way, ActivationStage::Returning(_))
        });
        if is_done {
            self.end_process(false);
        }
    }

    fn end_process(&mut self, died: bool) {
        if self.process.take().is_some() {
            self.died_at = Some(self.now);
            if self.gone_since.is_none() || self.now.since(self.began) > 3 * looks::LOOK_EVERY {
                self.gone_since = self.died_at;
            }
        }
        self.agent_died = died;
        // A package that is unpacked, a system that starts what it stopped.
        let patience = if self.faults && self.chance.one_in(8) { 200 } else { 5 };
        self.agent_starts_at = Some(self.now.plus(patience * SECOND));
    }

    fn kill_agent(&mut self, died: bool) {
        if !self.returns_unwritten && self.process.as_ref().is_some_and(|process| !process.is_watchdog) {
            self.end_process(died);
        }
    }

    /// The power is cut, or the host goes down.
    pub fn reboot(&mut self) {
        if self.returns_unwritten {
            return;
        }
        (self.process, self.armed, self.agent_died) = (None, None, false);
        (self.died_at, self.gone_since) = (None, None);
        self.boot += 1;
        self.now = BootTime::after_boot(SECOND);
        self.looks_at = self.now;
        self.switched = None;
        if let Some(into) = self.boots_into.take()
            && self.nature(into.id) != Nature::BootFallsBack
        {
            self.active = Active::On(into.id);
        }
        if let Active::On(runs) = self.active {
            self.switched = Some((runs, self.now));
        }
        self.passed.clear();
        self.note(|host| format!("boot {}", host.boot));
        // The unit that looks after each boot.
        self.begin(ActivationProcess::Watchdog);
    }

    /// What the generation does to the agent.
    fn agent_fares(&mut self) {
        let dies = match self.running() {
            Nature::AgentDies => self.chance.one_in(2),
            Nature::AgentNeverStarts => true,
            _ => false,
        };
        if dies {
            self.kill_agent(true);
        }
    }

    pub fn give(&mut self, input: ActivationInput) {
        let Some(process) = &mut self.process else { return };
        let effects = process.activation.handle(input, self.now);
        self.carry_out(effects);
        self.rest_watchdog();
    }

    fn carry_out(&mut self, effects: Vec<ActivationEffect>) {
        for effect in effects {
            if self.faults && !self.returns_unwritten && self.chance.one_in(60) {
                self.note(|_| format!("killed before {}", short(&effect)));
                match self.chance.one_in(2) {
                    true => return self.reboot(),
                    false if self.process.as_ref().is_some_and(|process| !process.is_watchdog) => {
                        return self.kill_agent(true);
                    }
                    false => {}
                }
            }
            let failed = match &effect {
                ActivationEffect::Persist(_) if self.disk_full => {
                    Some(ActivationInput::NotPersisted { reason: "the disk is full".to_owned() })
                }
                // It has its name, and may be there after a power cut or not: here it is.
                ActivationEffect::Persist(record) if self.sync_fails() => {
                    self.persist(record);
                    self.sync_failed = true;
                    Some(ActivationInput::NotPersisted { reason: "it cannot be synced".to_owned() })
                }
                ActivationEffect::ArmWatchdog(_) if self.faults && self.chance.one_in(30) => {
                    Some(ActivationInput::NotArmed { reason: "no bus".to_owned() })
                }
                ActivationEffect::StartAgentAnew if self.faults && self.chance.one_in(10) => {
                    Some(ActivationInput::NotStartedAnew { reason: "its unit is broken".to_owned() })
                }
                _ => None,
            };
            if let Some(input) = failed {
                return self.give(input);
            }
            self.note(|host| format!("{:?} {}", host.now, short(&effect)));
            self.carry_out_one(effect);
            self.check();
        }
    }

    fn carry_out_one(&mut self, effect: ActivationEffect) {
        let delay = SECOND * u32::try_from(self.chance.below(20) + 1).unwrap();
        let at = self.now.plus(delay);
        match effect {
            ActivationEffect::Persist(record) => {
                self.sync_failed = false;
                self.persist(&record);
                self.agreed = *record;
            }
            ActivationEffect::ArmWatchdog(alarm) => self.armed = Some(alarm),
            ActivationEffect::Disarm => self.armed = None,
            ActivationEffect::Switch(target) => self.begin_switch(target, at),
            ActivationEffect::Return { to, .. } => {
                self.boots_into = None;
                self.active = Active::Between;
                self.returns_unwritten = matches!(self.durable.under_way, ActivationStage::Probation(_));
                let process = self.process.as_mut().unwrap();
                process.pending = vec![(at, Pending::Return(to))];
            }
            ActivationEffect::StartProbes { generation, .. } => {
                let process = self.process.as_mut().unwrap();
                process.probes = Some(generation);
                process.pending.push((at, Pending::Probe(generation, self.now)));
            }
            // It was told to stop.
            ActivationEffect::StartAgentAnew => self.kill_agent(false),
            ActivationEffect::StopProbes => {
                let process = self.process.as_mut().unwrap();
                process.probes = None;
                process.pending.retain(|(_, pending)| !matches!(pending, Pending::Probe(..)));
            }
            ActivationEffect::TryConfirm { generation, number, .. } => {
                let of_this = |(of, boot, ..): &&(GenerationId, u32, u8, BootTime)| {
                    (*of, *boot) == (generation, self.boot)
                };
                let before = self.tries.iter().filter(of_this).map(|(_, _, number, _)| *number).max();
                assert!(before.is_none_or(|before| before < number), "two tries in one share of the window");
                assert!((1..=5).contains(&number));
                self.tries.push((generation, self.boot, number, self.now));
                let reached = self.network && self.running() != Nature::CutsTheNetwork;
                let answer = if reached { Pending::Answer(generation, self.boot) } else { Pending::NoAnswer };
                self.process.as_mut().unwrap().pending.push((at, answer));
            }
            ActivationEffect::Forget(ids) => {
                let needed = self.record().needed();
                assert!(
                    ids.iter().all(|id| !needed.contains(id)),
                    "a generation is forgotten that is needed"
                );
            }
            ActivationEffect::Report(fact) => self.hear(&fact),
        }
    }

    /// A sync fails now and then, not twice in a row.
    fn sync_fails(&mut self) -> bool {
        !self.sync_failed && self.faults && self.chance.one_in(25)
    }

    fn hear(&mut self, fact: &ActivationFact) {
        self.reached.insert(name(fact));
        if let ActivationFact::Refused { target, refusal: ActivationRefusal::NotArmed { .. } } = fact {
            let is_armed = matches!(&self.record().under_way, ActivationStage::Armed(trial) if trial.target.id == *target);
            assert!(!is_armed || self.disk_full, "a refused activation would be gone on with");
        }
    }

    fn begin_switch(&mut self, target: Generation, at: BootTime) {
        let record = self.record().clone();
        let process = self.process.as_mut().unwrap();
        process.pending.retain(|(_, pending)| !matches!(pending, Pending::Switch(_)));
        if target.id == record.confirmed.id {
            return process.pending.push((at, Pending::Switch(target)));
        }
        assert!(self.armed.is_some(), "a switch without a watchdog");
        let is_tried = matches!(&record.under_way, ActivationStage::Armed(trial) | ActivationStage::Deferred(trial) if trial.target == target);
        assert!(is_tried, "{target:?} in {:?}", record.under_way);
        assert!(record.quarantine.of(target.id).is_none(), "a generation in quarantine is switched to");
        self.passed.remove(&target.id);
        self.answered.remove(&target.id);
        self.tries.retain(|(of, ..)| *of != target.id);
        self.switched = None;
        let nature = self.nature(target.id);
        if !matches!(nature, Nature::NeedsReboot | Nature::BootFallsBack) {
            self.active = Active::Between;
        }
        if nature != Nature::SwitchHangs {
            self.process.as_mut().unwrap().pending.push((at, Pending::Switch(target)));
        }
    }

    fn finish_pending(&mut self) {
        loop {
            let now = self.now;
            let Some(process) = &mut self.process else { return };
            let Some(next) = process.pending.iter().position(|(at, _)| *at <= now) else { return };
            let (_, pending) = process.pending.remove(next);
            match pending {
                Pending::Switch(target) => self.finish_switch(target),
                Pending::Return(to) => match self.faults && self.chance.one_in(4) {
                    true => self.give(ActivationInput::ReturnFailed { reason: "busy".to_owned() }),
                    false => {
                        self.active = Active::On(to.id);
                        self.returns_unwritten = false;
                        self.give(ActivationInput::Returned);
                    }
                },
                Pending::Answer(generation, boot) => {
                    self.answered.insert(generation);
                    self.give(ActivationInput::ConfirmAnswered { generation, boot: boot_id(boot) });
                }
                Pending::NoAnswer => {
                    self.give(ActivationInput::TryFailed { reason: "unreachable".to_owned() })
                }
                Pending::Probe(generation, began) => self.probed(generation, began),
            }
        }
    }

    fn finish_switch(&mut self, target: Generation) {
        let target_id = target.id;
        let record = self.record();
        let is_confirmed = record.confirmed.id == target_id;
        let is_renumbered = is_confirmed || matches!(record.under_way, ActivationStage::Deferred(_));
        let end = match self.nature(target_id) {
            _ if is_renumbered && self.faults && self.chance.one_in(4) => {
                SwitchEnd::Failed { reason: "no".to_owned() }
            }
            _ if is_confirmed => SwitchEnd::Done,
            Nature::SwitchFails => SwitchEnd::Failed { reason: "no".to_owned() },
            Nature::NeedsReboot | Nature::BootFallsBack => {
                self.boots_into = Some(target);
                SwitchEnd::NeedsReboot { component: "kernel".to_owned() }
            }
            _ => {
                self.active = Active::On(target_id);
                self.switched = Some((target_id, self.now));
                // Every second one brings another agent along.
                if target.seq % 2 == 1 { SwitchEnd::NeedsNewAgent } else { SwitchEnd::Done }
            }
        };
        self.give(ActivationInput::Switched { target: target_id, end });
    }

    fn probed(&mut self, generation: GenerationId, began: BootTime) {
        let since = self.switched.filter(|(of, _)| *of == generation).map(|(_, at)| at);
        let works = match self.running() {
            Nature::ProbeFailsAfter(after) => {
                since.is_some_and(|at| self.now.since(at) < SECOND * u32::try_from(after).unwrap())
            }
            _ => self.faults || !self.chance.one_in(10),
        };
        let outcome = if works { HealthProbeOutcome::Passed } else { HealthProbeOutcome::TimedOut };
        // One that was begun before the switch, now and then.
        let began = if self.chance.one_in(8) { BootTime::BOOT } else { began };
        match (works, since.is_some_and(|at| began >= at)) {
            (true, true) => drop(self.passed.insert(generation)),
            (false, true) => drop(self.passed.remove(&generation)),
            (_, false) => {}
        }
        let result = |probe: &str, outcome| HealthProbeResult {
            probe: probe.to_owned(),
            generation,
            boot: boot_id(self.boot),
            began,
            outcome,
        };
        let (web, look) = (result("web", outcome), result("look", HealthProbeOutcome::TooMuchOutput));
        self.give(ActivationInput::Probe(web));
        self.give(ActivationInput::Probe(look));
        let at = self.now.plus(5 * SECOND);
        if let Some(process) = &mut self.process
            && process.probes == Some(generation)
        {
            process.pending.push((at, Pending::Probe(generation, self.now)));
        }
    }

    fn note(&mut self, line: impl Fn(&SimulatedHost) -> String) {
        let Some(mut log) = self.log.take() else { return };
        log.push(line(self));
        self.log = Some(log);
    }
}
