//! [`GuardedActivation`]: one guarded run, from its first change until a contact followed or all is undone.

use super::admit::GuardOrder;
use crate::boot::{BootId, BootMoment, BootTime};
use crate::generation::{Generation, GenerationId, GenerationLimits};
use crate::io::{
    ActivationEffect, ActivationFact, ActivationInput, ActivationProcess, ActivationRefusal, FoundHost,
    FoundRecord, SwitchEnd,
};
use crate::machine::{Activation, ActivationDeadline, PERSIST_RETRY};
use crate::record::{ActivationRecord, ActivationStage, GenerationReturn, ReturnCause};

/// How often one process tries to undo what could not be undone, [`RETURN_RETRY`](crate::RETURN_RETRY) apart.
pub const MAX_UNDO_TRIES: u32 = 5;

/// What is known of the changes of a guarded run, as a process finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundChanges {
    /// What identifies them.
    pub target: GenerationId,
    /// Their release.
    pub seq: u64,
    /// The agent's own program, unit or settings are among them.
    pub agent: bool,
}

/// What happens to a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardInput {
    /// The run that armed it ended, in this process.
    RunEnded(SwitchEnd),
    /// The run that armed it ended with its process.
    RunCutOff,
    /// A try to reach the control plane ended.
    ContactTried(Result<(), String>),
    /// [`GuardEffect::Undo`] was carried out; what could not be undone, in words.
    Undone(Vec<String>),
    /// [`GuardEffect::Keep`] was carried out.
    Kept,
    /// [`GuardEffect::Persist`] failed.
    NotPersisted(String),
    /// [`GuardEffect::ArmWatchdog`] failed.
    NotArmed(String),
    /// [`GuardEffect::RestartAgent`] failed.
    NotStartedAnew(String),
    /// Time went on.
    Tick,
}

/// What the shell does, in this order. Where one cannot be done, or an input follows it, what is left of the list is not
/// done: what is still to be done of it is among what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardEffect {
    /// Makes the record durable; [`GuardInput::NotPersisted`] follows where it cannot be.
    Persist(Box<ActivationRecord>),
    /// Keeps the agent as it is and makes sure that the watchdog looks; [`GuardInput::NotArmed`] follows where it cannot be.
    ArmWatchdog,
    /// The watchdog has nothing to do any more.
    Disarm,
    /// Nothing was armed: the change is not made.
    Refuse(ActivationRefusal),
    /// The run before this process is taken for ended; [`GuardInput::RunCutOff`] follows.
    TakeForEnded,
    /// Units are read again, and the agent starts anew once nothing runs; [`GuardInput::NotStartedAnew`] follows where the
    /// service manager refuses its unit.
    RestartAgent,
    /// Tries to reach the control plane over a connection of its own; [`GuardInput::ContactTried`] follows.
    TryContact {
        /// The number of the try, from 1.
        number: u8,
    },
    /// Undoes the changes, the last one first, or what of them could not be undone before; [`GuardInput::Undone`]
    /// follows.
    Undo {
        /// What was undone already stays so.
        again: bool,
    },
    /// A contact followed, or none was asked for: the changes stay. [`GuardInput::Kept`] follows.
    Keep,
    /// The changes were undone, for this cause; said when there is a network again, and once more where the process ends
    /// before the record says so.
    TellUndone(ReturnCause),
    /// These could not be undone, and are not tried any more; said when there is a network again.
    TellNotUndone(Vec<String>),
    /// For the journal.
    Log(String),
}

/// A guarded run.
#[derive(Debug)]
pub struct GuardedActivation {
    activation: Activation,
    target: GenerationId,
    /// This process made the changes.
    own: bool,
    /// The agent's own program, unit or settings are among them.
    agent: bool,
    /// The try that is under way, or due.
    trying: Option<(GenerationId, BootId)>,
    undo_tries: u32,
    /// That the changes stay could not be written down; it is tried again then.
    keep_again: Option<BootTime>,
}

impl GuardedActivation {
    /// Arms a guard before a first change; the effects come before it, and none of them may be
    /// [`GuardEffect::Refuse`].
    pub fn begin(order: GuardOrder, now: &BootMoment) -> (GuardedActivation, Vec<GuardEffect>) {
        let GuardOrder { record, order } = order;
        let found = FoundHost { process: ActivationProcess::Agent, runs: Some(GenerationId::AS_FOUND) };
        // Nothing is under way in it.
        let (mut activation, _) = Activation::start(record, GenerationLimits::default(), found, now);
        let target = order.target.id;
        let effects = activation.handle(ActivationInput::Activate(Box::new(order)), now.at);
        let mut guard = GuardedActivation {
            activation,
            target,
            own: true,
            agent: false,
            trying: None,
            undo_tries: 0,
            keep_again: None,
        };
        let effects = guard.effects(effects);
        (guard, effects)
    }

    /// Goes on with what a process before left; nothing where nothing is under way.
    pub fn resume(
        record: FoundRecord,
        changes: Option<FoundChanges>,
        process: ActivationProcess,
        now: &BootMoment,
    ) -> Option<(GuardedActivation, Vec<GuardEffect>)> {
        let record = match record {
            FoundRecord::Absent => return None,
            FoundRecord::Damaged => undone_from(changes?, now),
            FoundRecord::Record(record) => *record,
        };
        let target = match &record.under_way {
            ActivationStage::Settled => return None,
            ActivationStage::Armed(trial)
            | ActivationStage::Confirming(trial)
            | ActivationStage::Deferred(trial) => trial.target.id,
            ActivationStage::Probation(_) => record.confirmed.id,
            ActivationStage::Returning(back) => back.from.id,
        };
        let is_armed = matches!(record.under_way, ActivationStage::Armed(_));
        let runs = (!matches!(record.under_way, ActivationStage::Returning(_))).then_some(target);
        let found = FoundHost { process, runs };
        let (activation, effects) = Activation::start(record, GenerationLimits::default(), found, now);
        let agent = changes.is_some_and(|changes| changes.agent);
        let mut guard = GuardedActivation {
            activation,
            target,
            own: false,
            agent,
            trying: None,
            undo_tries: 0,
            keep_again: None,
        };
        let mut effects = guard.effects(effects);
        match &guard.activation.record().under_way {
            // It was confirmed, and its process ended before that was written down as the end.
            ActivationStage::Probation(_) => effects.push(GuardEffect::Keep),
            ActivationStage::Armed(_) if is_armed && !process.is_watchdog() => {
                effects.push(GuardEffect::TakeForEnded);
            }
            _ => {}
        }
        Some((guard, effects))
    }

    /// The changes are of the agent itself from now on.
    pub fn touches_agent(&mut self) {
        self.agent = true;
    }

    /// What is durable, once the effects so far were carried out.
    pub fn record(&self) -> &ActivationRecord {
        self.activation.record()
    }

    /// What identifies the changes.
    pub fn target(&self) -> GenerationId {
        self.target
    }

    /// Further changes of the run may be made.
    pub fn is_armed(&self) -> bool {
        matches!(self.record().under_way, ActivationStage::Armed(_))
    }

    /// The host undoes the changes.
    pub fn is_undoing(&self) -> bool {
        matches!(self.record().under_way, ActivationStage::Returning(_))
    }

    /// A contact followed, or all is undone.
    pub fn is_over(&self) -> bool {
        self.record().under_way == ActivationStage::Settled
    }

    /// A try to reach the control plane is due, or under way.
    pub fn is_trying(&self) -> bool {
        self.trying.is_some()
    }

    /// When it wants to be called next at the latest.
    pub fn next_deadline(&self) -> Option<BootTime> {
        let next = self.activation.next_deadline().map(|(at, _)| at);
        next.into_iter().chain(self.keep_again).min()
    }

    /// What is due next undoes nothing: a try to reach the control plane.
    pub fn is_try_due(&self, now: BootTime) -> bool {
        let ActivationStage::Confirming(trial) = &self.record().under_way else { return false };
        now < trial.deadline && matches!(self.activation.next_deadline(), Some((_, ActivationDeadline::Try)))
    }

    /// Takes an input in; gives what the shell does next. All of it is carried out, or what follows an effect is given,
    /// before anything else is.
    pub fn handle(&mut self, input: GuardInput, now: BootTime) -> Vec<GuardEffect> {
        let (target, own) = (self.target, self.own);
        let mut first = Vec::new();
        let input = match input {
            GuardInput::RunEnded(end) if own && self.is_armed() => {
                ActivationInput::Switched { target, end: self.by_agent(end) }
            }
            GuardInput::RunCutOff if !own => {
                // Where it changed the agent, this one may be of before: it was started by what the service manager knew.
                self.own = self.agent;
                ActivationInput::Switched { target, end: self.by_agent(SwitchEnd::Done) }
            }
            GuardInput::RunEnded(_) | GuardInput::RunCutOff => return Vec::new(),
            GuardInput::ContactTried(outcome) => match (self.trying.take(), outcome) {
                (None, _) => return Vec::new(),
                (Some((generation, boot)), Ok(())) => ActivationInput::ConfirmAnswered { generation, boot },
                (Some(_), Err(reason)) => ActivationInput::TryFailed { reason },
            },
            GuardInput::Undone(left) => {
                self.undo_tries = self.undo_tries.saturating_add(1);
                match left.is_empty() || self.undo_tries >= MAX_UNDO_TRIES {
                    true => {
                        // Before the record is at its end: whoever comes after that knows of nothing to tell.
                        first.extend((!left.is_empty()).then_some(GuardEffect::TellNotUndone(left)));
                        if let ActivationStage::Returning(back) = &self.record().under_way {
                            first.push(GuardEffect::TellUndone(back.cause.clone()));
                        }
                        ActivationInput::Returned
                    }
                    false => ActivationInput::ReturnFailed { reason: left.join("; ") },
                }
            }
            GuardInput::Kept => ActivationInput::RolloutEnded(target),
            GuardInput::NotPersisted(reason) => ActivationInput::NotPersisted { reason },
            GuardInput::NotArmed(reason) => ActivationInput::NotArmed { reason },
            GuardInput::NotStartedAnew(reason) => ActivationInput::NotStartedAnew { reason },
            GuardInput::Tick if self.keep_again.take_if(|at| *at <= now).is_some() => {
                return vec![GuardEffect::Keep];
            }
            GuardInput::Tick => ActivationInput::Tick,
        };
        let is_unkept = matches!(input, ActivationInput::NotPersisted { .. });
        let effects = self.activation.handle(input, now);
        if is_unkept && matches!(self.record().under_way, ActivationStage::Probation(_)) {
            self.keep_again = Some(now.plus(PERSIST_RETRY));
        }
        first.into_iter().chain(self.effects(effects)).collect()
    }

    /// Only an agent that starts by what was changed of it may confirm.
    fn by_agent(&self, end: SwitchEnd) -> SwitchEnd {
        match end {
            SwitchEnd::Done if self.agent => SwitchEnd::NeedsNewAgent,
            end => end,
        }
    }

    fn effects(&mut self, effects: Vec<ActivationEffect>) -> Vec<GuardEffect> {
        effects.into_iter().filter_map(|effect| self.effect(effect)).collect()
    }

    fn effect(&mut self, effect: ActivationEffect) -> Option<GuardEffect> {
        Some(match effect {
            ActivationEffect::Persist(record) => GuardEffect::Persist(record),
            ActivationEffect::ArmWatchdog(_) => GuardEffect::ArmWatchdog,
            ActivationEffect::Disarm => GuardEffect::Disarm,
            ActivationEffect::TryConfirm { generation, boot, number } => {
                self.trying = Some((generation, boot));
                GuardEffect::TryContact { number }
            }
            ActivationEffect::Return { .. } => {
                self.trying = None;
                GuardEffect::Undo { again: self.undo_tries > 0 }
            }
            ActivationEffect::StartAgentAnew => GuardEffect::RestartAgent,
            ActivationEffect::Report(fact) => return told(fact),
            // The run is the switch; it has no probes, and keeps nothing but what undoes it.
            ActivationEffect::Switch(_)
            | ActivationEffect::StartProbes { .. }
            | ActivationEffect::StopProbes
            | ActivationEffect::Forget(_) => return None,
        })
    }
}

fn told(fact: ActivationFact) -> Option<GuardEffect> {
    Some(match fact {
        ActivationFact::Refused { refusal, .. } => GuardEffect::Refuse(refusal),
        ActivationFact::Confirmed { .. } => GuardEffect::Keep,
        ActivationFact::TryFailed { reason, .. } => GuardEffect::Log(format!("no contact yet: {reason}")),
        ActivationFact::ReturnFailed { reason, .. } => {
            GuardEffect::Log(format!("a guarded change is not undone yet, and is tried again: {reason}"))
        }
        ActivationFact::NotPersisted { reason } | ActivationFact::WatchdogNotSet { reason } => {
            GuardEffect::Log(format!("what guards a run cannot be kept: {reason}"))
        }
        _ => return None,
    })
}

/// A record that is damaged: what is known to have been changed is undone.
fn undone_from(changes: FoundChanges, now: &BootMoment) -> ActivationRecord {
    let from = Generation { id: changes.target, seq: changes.seq, bytes: 0 };
    let (cause, boot) = (ReturnCause::FoundElsewhere, now.boot.clone());
    let back = GenerationReturn { from, cause, boot, deadline: BootTime::BOOT };
    ActivationRecord { under_way: ActivationStage::Returning(back), ..ActivationRecord::default() }
}
