//! A node: it activates, soaks, fails, falls silent, returns by itself, or lies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lang::Value;
use model::rollout::RolloutTask;
use model::{Channel, Hostname, Incarnation, NodeId, Timestamp};
use rollout::event::{DeclaredProbe, ProbeMode, ProbeOutcome};
use rollout::{
    BeginRefusal, EventAnswer, EventRefusal, NextCall, NodeRolloutState, RolloutEvent, RolloutEventBody,
    RolloutId, RolloutKey, RolloutPointer,
};

use trust::RolloutTerms;
use trust::rollout_terms::OnFailure;

use super::Rng;

/// What a release does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Well,
    ActivationFails,
    ProbesFail,
    CutOff,
    /// Its probes fail after it confirmed, and its terms let it stay.
    FailsLater,
    /// Its probes fail after it converged, and it goes back by itself while it has a way back.
    FailsOnceConfirmed,
    NeedsBoot,
    Rejects,
}

/// What a host is to begin.
#[allow(dead_code, reason = "read where hosts have the real steps")]
pub struct HostOrder {
    pub rollout: RolloutId,
    pub seq: u64,
    pub soak: Duration,
    pub terms: Arc<RolloutTerms>,
    pub fate: Fate,
}

/// A host whose steps are the real ones, in place of those that are made up here.
pub trait NodeHost {
    /// Time goes on; `is_reached`: the control plane can be reached from it, unless its release keeps it from that.
    fn live(&mut self, now: Timestamp, is_reached: bool, rng: &mut Rng);
    /// It is to begin with a release.
    fn begin(&mut self, order: HostOrder, now: Timestamp, rng: &mut Rng);
    /// The rollout of its part is halted, and it may go back.
    fn go_back(&mut self, now: Timestamp, rng: &mut Rng);
    /// The rollout of its part is at its end.
    fn rollout_ended(&mut self, now: Timestamp, rng: &mut Rng);
    /// What was said of its part is said again.
    fn restate(&mut self, now: Timestamp);
    /// The rollout that it takes part in, and its release.
    fn part(&self) -> Option<(&RolloutId, u64)>;
    /// It is on its way by that, and neither confirmed nor back.
    fn is_disrupted(&self, now: Timestamp) -> bool;
    /// A release is switched to or left: no other one is begun.
    fn keeps_others_out(&self) -> bool;
    /// The release that it would go back to.
    fn back_to(&self) -> Option<u64>;
    /// What it tells since it was asked last.
    fn said(&mut self) -> Vec<(RolloutId, RolloutEventBody)>;
    fn confirmed(&self) -> Option<u64>;
    fn running(&self) -> Option<u64>;
    /// Its agent runs, and its release leaves it the network.
    fn is_up(&self) -> bool;
    /// Nothing goes wrong any more.
    fn heal(&mut self);
}

#[derive(Clone, Debug)]
enum Phase {
    Switching(Timestamp),
    Rebooting(Timestamp),
    Soaking { since: Timestamp, next_say: Timestamp },
    Returning(Timestamp),
}

#[derive(Clone, Debug)]
struct Job {
    rollout: RolloutId,
    target: u64,
    soak: Duration,
    phase: Phase,
    fate: Fate,
}

/// It converged, and has a way back until it hears that the rollout was through.
#[derive(Clone, Debug)]
struct OnProbation {
    rollout: RolloutId,
    before: Option<u64>,
    fails_at: Timestamp,
    /// Some hosts say that they failed first, and some only that they are back.
    says_first: bool,
    returns_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct Outbox {
    events: Vec<RolloutEventBody>,
    taken: usize,
    /// The newest request that it acknowledged and did not follow yet.
    acknowledged: bool,
}

pub struct SimNode {
    pub id: NodeId,
    pub hostname: Hostname,
    pub channel: Channel,
    pub declared: Value,
    pub enforcing: Vec<String>,
    pub online: bool,
    pub lies: bool,
    /// Its administrator paused it.
    pub is_paused: bool,
    /// It calls seldom while no rollout concerns it.
    pub is_slow: bool,
    calls_at: Timestamp,
    pub running: Option<u64>,
    pub confirmed: Option<u64>,
    pub cut_until: Option<Timestamp>,
    incarnation: u64,
    boot: u64,
    job: Option<Job>,
    probation: Option<OnProbation>,
    /// The rollouts whose releases it went back from by itself: it takes none of them again.
    quarantined: BTreeSet<RolloutId>,
    outboxes: BTreeMap<RolloutId, Outbox>,
    pub host: Option<Box<dyn NodeHost>>,
    /// The rollout that it did not begin, and said so.
    unbegun: Option<RolloutId>,
    /// The rollouts of which it was told that they ended: it has no way back in them.
    ended: BTreeSet<RolloutId>,
    /// The versions of its rollouts that were stored when an answer reached it last.
    pub heard_at: BTreeMap<RolloutKey, u64>,
}

impl SimNode {
    pub fn new(number: usize, channel: &Channel, declared: Value, holds: Option<u64>) -> SimNode {
        let enforcing = if number.is_multiple_of(3) { vec!["web".to_owned()] } else { Vec::new() };
        SimNode {
            id: NodeId::of_key(&(number as u64).to_be_bytes()),
            hostname: format!("h{number}").parse().unwrap(),
            channel: channel.clone(),
            declared,
            enforcing,
            online: true,
            lies: false,
            is_paused: false,
            is_slow: false,
            calls_at: Timestamp::default(),
            running: holds,
            confirmed: holds,
            cut_until: None,
            incarnation: 1,
            boot: 1,
            job: None,
            probation: None,
            quarantined: BTreeSet::new(),
            outboxes: BTreeMap::new(),
            host: None,
            unbegun: None,
            ended: BTreeSet::new(),
            heard_at: BTreeMap::new(),
        }
    }

    /// The rollout in which it has begun and is, as far as it knows, neither confirmed nor back.
    pub fn disrupted_by(&self, now: Timestamp) -> Option<&RolloutId> {
        if let Some(host) = &self.host {
            let part = host.part().filter(|_| host.is_disrupted(now));
            return part.map(|(rollout, _)| rollout);
        }
        let returning =
            self.probation.as_ref().filter(|_| self.returns()).map(|probation| &probation.rollout);
        let by_job = self.job.as_ref().map(|job| &job.rollout);
        returning.or(by_job)
    }

    /// How soon it calls again.
    pub fn next_call(&self, now: Timestamp) -> NextCall {
        if self.is_slow && self.calls_at > now { NextCall::Later } else { NextCall::Soon }
    }

    /// A slow node that no rollout concerns calls again after an hour.
    pub fn called(&mut self, pointer: Option<&RolloutPointer>, now: Timestamp) {
        if let Some(RolloutPointer { dispatch, .. }) = pointer {
            // One that goes back already comes too late for it.
            let hears = self.host.is_none() && !self.returns();
            self.ended.extend(dispatch.through.clone().filter(|_| hears));
            let is_left = self.quarantined.contains(&dispatch.rollout) && !self.lies;
            assert!(
                !is_left || dispatch.task != RolloutTask::Proceed,
                "{} went back from {} and is told to go on with it",
                self.hostname,
                dispatch.rollout
            );
            let has_way_back = !self.ended.contains(&dispatch.rollout);
            let stays = has_way_back || dispatch.task == RolloutTask::Proceed || self.lies;
            assert!(stays, "{} has no way back in {}, and is asked for it", self.hostname, dispatch.rollout);
        }
        let is_idle = pointer.map(|pointer| &pointer.dispatch).is_none_or(|dispatch| {
            dispatch.is_through() && dispatch.task == RolloutTask::Proceed && self.job.is_none()
        });
        let is_idle = is_idle && self.host.as_ref().is_none_or(|host| host.part().is_none());
        self.calls_at = if self.is_slow && is_idle { now.plus(Duration::from_secs(3600)) } else { now };
    }

    pub fn is_reached(&self, now: Timestamp) -> bool {
        let is_up = self.host.as_ref().is_none_or(|host| host.is_up());
        self.online && is_up && self.cut_until.is_none_or(|until| until <= now)
    }

    /// Its state directory is lost: another log.
    pub fn lose_log(&mut self) {
        self.incarnation += 1;
        for outbox in self.outboxes.values_mut() {
            let left = outbox.events.split_off(outbox.taken.min(outbox.events.len()));
            (outbox.events, outbox.taken) = (left, 0);
        }
    }

    fn say(&mut self, rollout: &RolloutId, body: RolloutEventBody) {
        self.outboxes.entry(rollout.clone()).or_default().events.push(body);
    }

    fn boot_name(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// It is asked to begin.
    fn answer_to_request(&self, fate: Fate) -> RolloutEventBody {
        let refuses = |code: &str| RolloutEventBody::DispatchReject { code: code.to_owned() };
        match fate {
            _ if self.is_paused => refuses(BeginRefusal::Paused.code()),
            Fate::Rejects => refuses("proof"),
            _ => RolloutEventBody::DispatchAck,
        }
    }

    /// It is to begin what it acknowledged, and its administrator paused it since: it says so, and waits to be asked anew.
    fn is_kept(&mut self, rollout: &RolloutId) -> bool {
        if self.is_paused {
            let code = BeginRefusal::Paused.code().to_owned();
            self.say(rollout, RolloutEventBody::DispatchReject { code });
        }
        self.is_paused
    }

    /// What happens on it by itself.
    pub fn live(&mut self, now: Timestamp, rng: &mut Rng) {
        if let Some(host) = &mut self.host {
            host.live(now, self.online, rng);
            return self.hear_host();
        }
        self.live_on_probation(now);
        let Some(mut job) = self.job.take() else { return };
        let rollout = job.rollout.clone();
        match &mut job.phase {
            Phase::Switching(until) if *until <= now => match job.fate {
                Fate::ActivationFails => {
                    self.say(&rollout, RolloutEventBody::ActivationFailed { message: "no".to_owned() });
                    job.phase = Phase::Returning(now.plus(Duration::from_secs(5)));
                }
                Fate::CutOff => {
                    let until = now.plus(Duration::from_secs(400 + rng.below(2) * 9000));
                    self.cut_until = Some(until);
                    job.phase = Phase::Returning(until);
                }
                Fate::NeedsBoot => {
                    let component = "kernel".to_owned();
                    self.say(&rollout, RolloutEventBody::ActivationDeferred { component });
                    job.phase = Phase::Rebooting(now.plus(Duration::from_secs(rng.below(7200))));
                }
                Fate::Well
                | Fate::ProbesFail
                | Fate::FailsLater
                | Fate::FailsOnceConfirmed
                | Fate::Rejects => self.activated(&mut job, now),
            },
            Phase::Rebooting(until) if *until <= now => {
                self.boot += 1;
                self.activated(&mut job, now);
            }
            Phase::Soaking { since, next_say } if *next_say <= now => {
                let soaked = now.since(*since);
                *next_say = now.plus(Duration::from_secs(60));
                let boot = self.boot_name();
                let fails =
                    job.fate == Fate::ProbesFail || job.fate == Fate::FailsLater && soaked >= job.soak / 2;
                let outcome = if fails { ProbeOutcome::Fail } else { ProbeOutcome::Pass };
                let probes = vec![
                    DeclaredProbe { name: "web".to_owned(), mode: ProbeMode::Enforce },
                    DeclaredProbe { name: "eye".to_owned(), mode: ProbeMode::Observe },
                ];
                self.say(&rollout, RolloutEventBody::ProbeTopologyDeclared { probes });
                let probe = "web".to_owned();
                self.say(&rollout, RolloutEventBody::ProbeResult { probe, outcome, boot: boot.clone() });
                if fails && job.fate == Fate::FailsLater {
                    self.say(&rollout, RolloutEventBody::Failed { message: "web, later".to_owned() });
                    (self.confirmed, self.running) = (Some(job.target), Some(job.target));
                    return;
                } else if fails && soaked >= Duration::from_secs(60) {
                    self.say(&rollout, RolloutEventBody::Failed { message: "web".to_owned() });
                    job.phase = Phase::Returning(now.plus(Duration::from_secs(20)));
                } else if !fails && soaked >= job.soak {
                    let (release, soaked_secs) = (job.target, soaked.as_secs());
                    self.say(&rollout, RolloutEventBody::Converged { release, boot, soaked_secs });
                }
            }
            Phase::Returning(until) if *until <= now => {
                self.returned(&rollout);
                return;
            }
            _ => {}
        }
        self.job = Some(job);
    }

    /// It goes back by itself.
    pub fn returns(&self) -> bool {
        self.probation.as_ref().is_some_and(|probation| probation.returns_at.is_some())
    }

    fn live_on_probation(&mut self, now: Timestamp) {
        let Some(mut probation) = self.probation.take() else { return };
        let rollout = probation.rollout.clone();
        match probation.returns_at {
            None if self.ended.contains(&rollout) => return,
            None if probation.fails_at <= now => {
                probation.returns_at = Some(now.plus(Duration::from_secs(20)));
                if probation.says_first {
                    self.say(&rollout, RolloutEventBody::Failed { message: "web, at last".to_owned() });
                }
            }
            Some(at) if at <= now => {
                self.confirmed = probation.before;
                self.quarantined.insert(rollout.clone());
                return self.returned(&rollout);
            }
            _ => {}
        }
        self.probation = Some(probation);
    }

    /// Its word that it converged was taken.
    fn converged(&mut self, release: u64, now: Timestamp) {
        let before = self.confirmed.replace(release);
        let Some(job) = self.job.take() else { return };
        let number = u64::from(self.id.as_str().as_bytes()[9]);
        self.probation = (job.fate == Fate::FailsOnceConfirmed).then(|| OnProbation {
            rollout: job.rollout,
            before,
            fails_at: now.plus(Duration::from_secs(10 * number)),
            says_first: !number.is_multiple_of(3),
            returns_at: None,
        });
    }

    /// What its host tells is what it has to say.
    fn hear_host(&mut self) {
        let Some(host) = &mut self.host else { return };
        (self.confirmed, self.running) = (host.confirmed(), host.running());
        for (rollout, body) in host.said() {
            self.say(&rollout, body);
        }
    }

    /// What it is pointed to and asked, as `node::Node` goes by it.
    pub fn pointed_host(
        &mut self,
        pointer: &RolloutPointer,
        terms: &Arc<RolloutTerms>,
        fate: Fate,
        now: Timestamp,
        rng: &mut Rng,
    ) {
        let Some(mut host) = self.host.take() else { return };
        let (rollout, seq) = (pointer.dispatch.rollout.clone(), pointer.dispatch.seq);
        let is_target = pointer.release == Some(seq);
        let is_part = host.part() == Some((&rollout, seq));
        let through = pointer.dispatch.through.as_ref();
        if through.is_some() && host.part().map(|(rollout, _)| rollout) == through {
            host.rollout_ended(now, rng);
        }
        // Not so one that goes back already, that soaks anew since it booted, or whose agent died as it heard of it.
        if host.back_to().is_none() && !host.is_disrupted(now) {
            self.ended.extend(through.cloned());
        }
        let acknowledged = self.outboxes.get(&rollout).is_some_and(|outbox| outbox.acknowledged);
        match pointer.dispatch.task {
            RolloutTask::Acknowledge { until } if now <= until => {
                if is_part {
                    self.say(&rollout, RolloutEventBody::DispatchAck);
                } else if is_target && !host.keeps_others_out() {
                    self.say(&rollout, self.answer_to_request(fate));
                }
            }
            // What it acknowledged it begins once the host is free.
            RolloutTask::Proceed if acknowledged && (is_part || !host.keeps_others_out()) => {
                if let Some(outbox) = self.outboxes.get_mut(&rollout) {
                    outbox.acknowledged = false;
                }
                if is_part {
                    host.restate(now);
                } else if !self.is_kept(&rollout) {
                    assert!(is_target, "what is to be begun is the rollout's release");
                    let soak = Duration::from_secs(pointer.dispatch.soak_secs);
                    let terms = terms.clone();
                    host.begin(HostOrder { rollout, seq, soak, terms, fate }, now, rng);
                }
            }
            // An agent that gave up what waited for its boot, or started anew, has forgotten what it said.
            RolloutTask::Proceed
                if !acknowledged
                    && !is_part
                    && is_target
                    && self.confirmed != Some(seq)
                    && !host.keeps_others_out() =>
            {
                if !self.is_kept(&rollout) {
                    self.say(&rollout, RolloutEventBody::DispatchAck);
                }
            }
            RolloutTask::GoBack if is_part => {
                if terms.on_failure == OnFailure::Rollback && pointer.release == host.back_to() {
                    host.go_back(now, rng);
                }
            }
            RolloutTask::GoBack => {
                let is_on_it = self.confirmed == Some(seq);
                if !host.keeps_others_out() && !is_on_it && self.unbegun.as_ref() != Some(&rollout) {
                    let release = self.confirmed.unwrap_or(0);
                    self.say(&rollout, RolloutEventBody::RollbackComplete { release });
                    self.unbegun = Some(rollout);
                }
            }
            RolloutTask::Acknowledge { .. }
            | RolloutTask::Proceed
            | RolloutTask::Hold
            | RolloutTask::Unknown => {}
        }
        self.host = Some(host);
        self.hear_host();
    }

    /// It is pointed to a release that goes to all at once. What it switches to or from ends first; what it soaks it holds
    /// already.
    pub fn pointed_at_once(&mut self, seq: u64) {
        self.outboxes.values_mut().for_each(|outbox| outbox.acknowledged = false);
        let is_free = self.job.as_ref().is_none_or(|job| matches!(job.phase, Phase::Soaking { .. }));
        if is_free && !self.returns() {
            (self.job, self.probation) = (None, None);
            (self.confirmed, self.running) = (Some(seq), Some(seq));
        }
    }

    fn returned(&mut self, rollout: &RolloutId) {
        self.running = self.confirmed;
        self.say(rollout, RolloutEventBody::RollbackComplete { release: self.confirmed.unwrap_or(0) });
        self.job = None;
    }

    fn activated(&mut self, job: &mut Job, now: Timestamp) {
        self.running = Some(job.target);
        let (release, boot) = (job.target, self.boot_name());
        self.say(&job.rollout, RolloutEventBody::ActivationComplete { release, boot });
        job.phase = Phase::Soaking { since: now, next_say: now };
    }

    /// The next event that it would send, with how far it is; `skip` sends one too far.
    pub fn next_event(&self, skip: usize) -> Option<RolloutEvent> {
        let (rollout, outbox) =
            self.outboxes.iter().find(|(_, outbox)| outbox.taken < outbox.events.len())?;
        let index = (outbox.taken + skip).min(outbox.events.len() - 1);
        Some(self.event(rollout, index as u64 + 1, outbox.events[index].clone()))
    }

    pub fn event(&self, rollout: &RolloutId, seq: u64, body: RolloutEventBody) -> RolloutEvent {
        RolloutEvent {
            node: self.id.clone(),
            incarnation: format!("log{}", self.incarnation).parse::<Incarnation>().unwrap(),
            rollout: rollout.clone(),
            seq,
            oldest: 1,
            body,
        }
    }

    /// A lie takes the place of what it would have said next.
    pub fn lie(&mut self, rollout: &RolloutId, body: RolloutEventBody) {
        self.say(rollout, body);
    }

    /// The answer to an event arrived.
    pub fn answered(&mut self, event: &RolloutEvent, answer: &EventAnswer, now: Timestamp) {
        let Some(outbox) = self.outboxes.get_mut(&event.rollout) else { return };
        match answer {
            EventAnswer::ReplayFrom(from) => {
                outbox.taken = usize::try_from(*from).unwrap() - 1;
                return;
            }
            EventAnswer::UnknownRollout | EventAnswer::UnknownNode => {
                outbox.taken = outbox.events.len();
                let is_its = self.job.as_ref().is_some_and(|job| job.rollout == event.rollout);
                if is_its && let Some(job) = self.job.as_mut() {
                    job.phase = Phase::Returning(now);
                }
                return;
            }
            EventAnswer::Accepted | EventAnswer::Duplicate | EventAnswer::Refused(_) => {}
        }
        outbox.taken = outbox.taken.max(usize::try_from(event.seq).unwrap());
        let is_its = self.job.as_ref().is_some_and(|job| job.rollout == event.rollout);
        match (&event.body, answer) {
            // An agent goes by what was received: the pointer says whether the request still stands.
            (RolloutEventBody::DispatchAck, EventAnswer::Refused(_)) if self.host.is_none() => {}
            (RolloutEventBody::DispatchAck, _) => outbox.acknowledged = true,
            // It was called back before that was heard: what it acknowledged stands.
            (RolloutEventBody::DispatchReject { .. }, EventAnswer::Refused(_)) => outbox.acknowledged = true,
            (RolloutEventBody::Converged { release, .. }, EventAnswer::Accepted) if is_its => {
                self.converged(*release, now);
            }
            (
                RolloutEventBody::Converged { release, .. },
                EventAnswer::Refused(EventRefusal::OtherState { state: NodeRolloutState::Converged }),
            ) if is_its => self.converged(*release, now),
            _ => {}
        }
    }

    /// What it is pointed to and asked.
    pub fn pointed(&mut self, pointer: &RolloutPointer, fate: Fate, now: Timestamp, rng: &mut Rng) {
        let rollout = pointer.dispatch.rollout.clone();
        let acknowledged = self.outboxes.get(&rollout).is_some_and(|outbox| outbox.acknowledged);
        if let RolloutTask::Acknowledge { until } = pointer.dispatch.task {
            if now <= until {
                let body = match pointer.release == Some(pointer.rollout.seq) {
                    true => self.answer_to_request(fate),
                    false => RolloutEventBody::DispatchAck,
                };
                self.say(&rollout, body);
            }
            return;
        }
        // It may have had that release before.
        let is_target = pointer.release == Some(pointer.rollout.seq);
        assert!(is_target || pointer.dispatch.task != RolloutTask::Proceed);
        if acknowledged {
            if self.returns() && is_target {
                // It begins once it is back.
                return;
            }
            if let Some(outbox) = self.outboxes.get_mut(&rollout) {
                outbox.acknowledged = false;
            }
            if is_target && self.job.is_none() && self.confirmed == pointer.release {
                // It was asked to go back from what it confirmed, and that was called off.
                return;
            }
            let may_begin = is_target && pointer.dispatch.task == RolloutTask::Proceed;
            if may_begin && self.job.as_ref().is_none_or(|job| job.rollout != rollout) {
                if self.is_kept(&rollout) {
                    return;
                }
                let phase = Phase::Switching(now.plus(Duration::from_secs(5 + rng.below(200))));
                let soak = Duration::from_secs(pointer.dispatch.soak_secs);
                let target = pointer.rollout.seq;
                self.say(&rollout, RolloutEventBody::ActivationStarted);
                self.probation = None;
                self.job = Some(Job { rollout, target, soak, phase, fate });
                return;
            }
            if !is_target {
                // It was called off, or is to go back; what it did before for another rollout it gave up.
                self.probation = None;
                if let Some(job) = self.job.take().filter(|job| job.rollout != rollout) {
                    let release = self.confirmed.unwrap_or(0);
                    self.say(&job.rollout, RolloutEventBody::RollbackComplete { release });
                }
                self.confirmed = pointer.release.or(self.confirmed);
                self.returned(&rollout);
                return;
            }
        }
        if let Some(job) = &mut self.job
            && job.rollout == rollout
            && !is_target
            && !matches!(job.phase, Phase::Returning(_))
        {
            job.phase = Phase::Returning(now.plus(Duration::from_secs(30)));
        }
    }
}
