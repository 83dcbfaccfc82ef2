//! [`RolloutActivation`]: what an activation says to the rollout that it is of, from its beginning to the end of the soak
//! (ROL-5, ROL-7).
//!
//! ```text
//! ActivationFact        event                          ActivationFact          event
//! Started               ActivationStarted              FailedAfterConfirm      Failed
//! Deferred              ActivationDeferred             Returning (no halt)     Failed
//! Completed             ActivationComplete, its boot   Returned                RollbackComplete
//! ProbesDeclared        ProbeTopologyDeclared          Refused                 Failed, RollbackComplete
//! ProbeResult           ProbeResult
//! ProbeFailureFirst     ProbeFailureFirst              SwitchFailed, NoWayBack Failed
//!
//! confirmed, every enforcing probe passes, and the soak is over by the clock since the boot: Converged, once
//! restated                                             all that a control plane which knows nothing of it has to hear
//! ```
//!
//! A host that booted meanwhile soaks anew: its probes say nothing of the boot before.

use std::time::Duration;

use activation::{
    Activation, ActivationFact, ActivationOrder, ActivationRecord, ActivationRefusal, ActivationStage,
    ActivationTerms, BootId, BootMoment, BootTime, Generation, GenerationId, HealthProbe, HealthProbeMode,
    HealthProbeOutcome, ProbeTopology, ReturnCause,
};
use model::rollout::{DeclaredProbe, MAX_EVENT_TEXT, ProbeMode, ProbeOutcome, RolloutEventBody};
use model::text::beginning;
use serde::{Deserialize, Serialize};

use crate::rollout_part::{RolloutPart, TrialStage};

/// What a node says that is called back from its confirmed release once the one before is given up.
pub(crate) const NO_WAY_BACK: &str =
    "it is confirmed here, and this host has nothing to go back to: it has given up the release before";

/// An activation that is of a rollout; durable before anything of it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutActivation {
    /// Of which rollout.
    pub part: RolloutPart,
    /// What is activated.
    target: Generation,
    terms: ActivationTerms,
    probes: ProbeTopology,
    /// Since when the host runs it, in the boot in which that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    complete: Option<BootMoment>,
    /// What asks for the boot that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deferred: Option<String>,
    /// That it converged was said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    converged: bool,
    /// That it failed was said: the host leaves it, could not be switched to it, or cannot leave it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

impl RolloutActivation {
    /// One that begins.
    pub fn new(part: RolloutPart, order: ActivationOrder) -> RolloutActivation {
        let ActivationOrder { target, terms, probes } = order;
        let (complete, deferred, converged, failed) = (None, None, false, false);
        RolloutActivation { part, target, terms, probes, complete, deferred, converged, failed }
    }

    /// What the host is to do.
    pub fn order(&self) -> ActivationOrder {
        ActivationOrder { target: self.target, terms: self.terms, probes: self.probes.clone() }
    }

    /// What a fact of the activation is to the rollout. `confirmed`: where the host is, or goes back to.
    pub fn told(
        &mut self,
        fact: &ActivationFact,
        confirmed: Generation,
        now: &BootMoment,
    ) -> Vec<RolloutEventBody> {
        let id = self.target.id;
        match fact {
            // The same request again.
            ActivationFact::Refused { refusal: ActivationRefusal::UnderWay, .. } => Vec::new(),
            ActivationFact::Refused { target, refusal } if *target == id => {
                RolloutActivation::given_up(refusal.to_string(), confirmed)
            }
            ActivationFact::Started { target } if *target == id => {
                self.failed = false;
                vec![RolloutEventBody::ActivationStarted]
            }
            ActivationFact::Completed { target } if *target == id => vec![self.completed(now)],
            ActivationFact::Deferred { target, component } if *target == id => {
                let component = kept(component);
                self.deferred = Some(component.clone());
                vec![RolloutEventBody::ActivationDeferred { component }]
            }
            ActivationFact::SwitchFailed { target, reason } if *target == id => {
                self.fails(&ReturnCause::SwitchFailed { reason: reason.clone() })
            }
            ActivationFact::NoWayBack { generation } if *generation == id => {
                self.fails_once(NO_WAY_BACK.to_owned())
            }
            ActivationFact::ProbesDeclared { generation, probes } if *generation == id => {
                vec![declared(probes)]
            }
            ActivationFact::ProbeResult { generation, boot, probe, outcome } if *generation == id => {
                vec![probe_result(probe, outcome, boot)]
            }
            ActivationFact::ProbeFailureFirst { generation, probe, .. } if *generation == id => {
                vec![RolloutEventBody::ProbeFailureFirst { probe: probe.clone() }]
            }
            ActivationFact::FailedAfterConfirm { generation, failure } if *generation == id => {
                vec![failed(failure.to_string())]
            }
            ActivationFact::Returning { from, cause, .. } if *from == id => self.fails(cause),
            ActivationFact::Returned { from, .. } if *from == id => {
                vec![RolloutEventBody::RollbackComplete { release: confirmed.seq }]
            }
            _ => Vec::new(),
        }
    }

    /// What is said of a release of which nothing was, or could be, begun. `confirmed`: where the host is.
    pub fn given_up(why: String, confirmed: Generation) -> Vec<RolloutEventBody> {
        vec![failed(why), RolloutEventBody::RollbackComplete { release: confirmed.seq }]
    }

    /// What a process that begins says of what the one before it, or the watchdog, came to; before it goes on. `record`: as
    /// it found it. What it makes of that itself, a boot that it counts as well, it tells as it does so.
    pub fn resumed(&mut self, record: &ActivationRecord, now: &BootMoment) -> Vec<RolloutEventBody> {
        let id = self.target.id;
        let was_told_here = self.complete.as_ref().is_some_and(|complete| complete.boot == now.boot);
        match &record.under_way {
            ActivationStage::Confirming(trial)
                if trial.target.id == id && trial.boot == now.boot && !was_told_here =>
            {
                vec![self.completed(now)]
            }
            ActivationStage::Probation(_) if record.confirmed.id == id && !was_told_here => {
                vec![self.completed(now), declared(&self.probes)]
            }
            // Whoever began the return may have ended before it said so.
            ActivationStage::Returning(back) if back.from.id == id => self.fails(&back.cause),
            ActivationStage::Settled | ActivationStage::Probation(_) if record.confirmed.id != id => {
                let ended = record.returned.as_ref().filter(|ended| ended.from.id == id);
                if let Some(ended) = ended.filter(|_| self.complete.is_some()) {
                    return self.left(&ended.cause, record.confirmed);
                }
                // Of one that was not begun nothing is said: it is acknowledged and begun as it is asked for again.
                let known = record.quarantine.all().iter().find(|known| known.id == id);
                let given_up =
                    |cause: &ReturnCause| RolloutActivation::given_up(cause.to_string(), record.confirmed);
                known.map(|known| given_up(&known.cause)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// The host is back from it.
    fn left(&mut self, cause: &ReturnCause, confirmed: Generation) -> Vec<RolloutEventBody> {
        let mut events = self.fails(cause);
        events.push(RolloutEventBody::RollbackComplete { release: confirmed.seq });
        events
    }

    /// That the host leaves it, and why: once, and not where its rollout was halted, as nothing failed on this host.
    fn fails(&mut self, cause: &ReturnCause) -> Vec<RolloutEventBody> {
        match cause {
            ReturnCause::Halted => Vec::new(),
            cause => self.fails_once(cause.to_string()),
        }
    }

    fn fails_once(&mut self, why: String) -> Vec<RolloutEventBody> {
        let is_news = !std::mem::replace(&mut self.failed, true);
        is_news.then(|| failed(why)).into_iter().collect()
    }

    /// What is said again to a control plane that knows nothing of it: that the host runs it, with what its probes came to
    /// last, as that is told otherwise only where it changes; that it fails; or that it waits for its boot.
    pub fn restated(&mut self, activation: &Activation, now: &BootMoment) -> Vec<RolloutEventBody> {
        let (id, record) = (self.target.id, activation.record());
        let is_on_it = match &record.under_way {
            ActivationStage::Confirming(trial) | ActivationStage::Deferred(trial) => trial.target.id == id,
            ActivationStage::Settled | ActivationStage::Probation(_) => record.confirmed.id == id,
            ActivationStage::Armed(_) | ActivationStage::Returning(_) => false,
        };
        if !is_on_it || self.failed {
            return Vec::new();
        }
        if let Some(component) = self.deferred.clone() {
            return vec![RolloutEventBody::ActivationDeferred { component }];
        }
        // What comes of a switch is said when it ends.
        if self.complete.is_none() {
            return Vec::new();
        }
        let mut events = vec![self.completed(now), declared(&self.probes)];
        let outcomes = activation.probe_outcomes();
        events.extend(outcomes.map(|(probe, outcome)| probe_result(probe, outcome, &now.boot)));
        events.extend(activation.told_failure(now.at).map(|failure| failed(failure.to_string())));
        events
    }

    fn completed(&mut self, now: &BootMoment) -> RolloutEventBody {
        (self.complete, self.deferred, self.converged) = (Some(now.clone()), None, false);
        let boot = now.boot.as_str().to_owned();
        RolloutEventBody::ActivationComplete { release: self.part.seq, boot }
    }

    /// When that it converged may be said; nothing while it is not confirmed, or its probes do not pass: time alone does
    /// not bring that.
    pub fn converges_at(&self, activation: &Activation, now: &BootMoment) -> Option<BootTime> {
        let is_well = activation.record().confirmed.id == self.target.id && activation.probes_pass();
        self.soak_ends(now).filter(|_| is_well)
    }

    /// That it converged: confirmed, with its probes passing, after its soak. Once.
    pub fn converges(&mut self, activation: &Activation, now: &BootMoment) -> Option<RolloutEventBody> {
        self.converges_at(activation, now).filter(|at| *at <= now.at)?;
        let soaked = now.at.since(self.complete.as_ref()?.at);
        self.converged = true;
        Some(RolloutEventBody::Converged {
            release: self.part.seq,
            boot: now.boot.as_str().to_owned(),
            soaked_secs: soaked.as_secs(),
        })
    }

    /// When the soak is over, unless that was said.
    pub fn soak_ends(&self, now: &BootMoment) -> Option<BootTime> {
        let complete = self.complete.as_ref().filter(|complete| complete.boot == now.boot)?;
        (!self.converged).then(|| complete.at.plus(self.soak()))
    }

    fn soak(&self) -> Duration {
        Duration::from_secs(self.part.soak_secs)
    }

    /// Whether the end of a rollout ends what is known of a generation here. Only what converged is over: the control
    /// plane counts it, and waits for nothing more of this host.
    pub fn may_end(&self, generation: GenerationId, now: &BootMoment) -> bool {
        self.part.generation() != generation || self.soak_ends(now).is_none()
    }

    /// Whether a release that is to be activated takes the place of the one before at once. One that is switched to, waits
    /// to be confirmed or for its boot, or is left is left first, which is told of that one's rollout; but for one with the
    /// content that waits for its boot.
    pub fn is_replaced(record: Option<&ActivationRecord>, by: GenerationId) -> bool {
        record.is_none_or(|record| match &record.under_way {
            ActivationStage::Deferred(trial) => trial.target.id == by,
            other => !other.is_guarded(),
        })
    }

    /// Whether its part in the rollout is over: it was left, or nothing is to be said of it any more.
    pub fn is_over(&self, record: &ActivationRecord) -> bool {
        let is_on_it = record.confirmed.id == self.target.id;
        match record.under_way {
            ActivationStage::Settled => !is_on_it || self.converged || self.failed,
            // It was not begun, or was refused: the host is on one of before, whose rollout goes on.
            ActivationStage::Probation(_) => !is_on_it,
            _ => false,
        }
    }

    /// Whether it is to be activated again by a process that begins: another release with the same content, whose process
    /// ended before it converged, so that its probes are to be asked; or before it took the place of the one that waits for
    /// its boot and said so.
    pub fn is_to_be_asked_again(&self, record: &ActivationRecord) -> bool {
        match &record.under_way {
            ActivationStage::Settled => record.confirmed.id == self.target.id && !self.converged,
            ActivationStage::Deferred(trial) => {
                trial.target.id == self.target.id
                    && (trial.target.seq != self.target.seq || self.deferred.is_none())
            }
            _ => false,
        }
    }

    /// Whether it is to be activated again by whoever asks for it again: another release with the content that is
    /// confirmed, to which the host could not be switched.
    pub fn is_to_be_tried_again(&self, record: &ActivationRecord) -> bool {
        self.failed && record.confirmed.id == self.target.id && !record.under_way.is_guarded()
    }
}

impl TrialStage {
    /// As a record has it.
    pub fn of(record: &ActivationRecord) -> TrialStage {
        match &record.under_way {
            ActivationStage::Settled => TrialStage::Settled,
            ActivationStage::Armed(_) | ActivationStage::Confirming(_) => TrialStage::UnderWay,
            ActivationStage::Deferred(_) => TrialStage::WaitsForBoot,
            ActivationStage::Probation(_) => TrialStage::OnProbation,
            ActivationStage::Returning(_) => TrialStage::Returning,
        }
    }

    /// As a record has it of a host that takes part in a rollout. One that runs the release already is watched like one
    /// that is confirmed: its probes are asked.
    pub fn in_rollout(record: &ActivationRecord, part: Option<&RolloutActivation>) -> TrialStage {
        match TrialStage::of(record) {
            TrialStage::Settled if part.is_some() => TrialStage::OnProbation,
            stage => stage,
        }
    }
}

/// The generation of a part.
impl RolloutPart {
    /// The generation that it activates.
    pub fn generation(&self) -> GenerationId {
        GenerationId(self.root)
    }
}

fn failed(message: String) -> RolloutEventBody {
    RolloutEventBody::Failed { message: kept(&message) }
}

fn probe_result(probe: &str, outcome: &HealthProbeOutcome, boot: &BootId) -> RolloutEventBody {
    let outcome = match outcome {
        HealthProbeOutcome::Passed => ProbeOutcome::Pass,
        HealthProbeOutcome::Failed { .. }
        | HealthProbeOutcome::Exited { .. }
        | HealthProbeOutcome::TimedOut
        | HealthProbeOutcome::TooMuchOutput => ProbeOutcome::Fail,
    };
    RolloutEventBody::ProbeResult { probe: probe.to_owned(), outcome, boot: boot.as_str().to_owned() }
}

fn kept(text: &str) -> String {
    beginning(text, MAX_EVENT_TEXT).to_owned()
}

fn declared(probes: &ProbeTopology) -> RolloutEventBody {
    let of = |probe: &HealthProbe| DeclaredProbe {
        name: probe.name.clone(),
        mode: match probe.mode {
            HealthProbeMode::Enforce => ProbeMode::Enforce,
            HealthProbeMode::Observe => ProbeMode::Observe,
            HealthProbeMode::Disabled => ProbeMode::Disabled,
        },
    };
    RolloutEventBody::ProbeTopologyDeclared { probes: probes.probes().iter().map(of).collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use activation::Probation;
    use model::Digest;

    use super::*;

    fn of(seq: u64) -> Generation {
        Generation { id: GenerationId(Digest::of(&seq.to_be_bytes())), seq, bytes: 1 }
    }

    fn of_third() -> RolloutActivation {
        let part = serde_json::json!({
            "rollout": "stable@4f1c", "seq": 3, "root": of(3).id.0, "soakSecs": 1, "onFailure": "rollback",
        });
        RolloutActivation {
            part: serde_json::from_value(part).unwrap(),
            target: of(3),
            terms: ActivationTerms::default(),
            probes: ProbeTopology::default(),
            complete: None,
            deferred: None,
            converged: false,
            failed: false,
        }
    }

    /// A process that ends after a part was recorded and before its record was has changed nothing: the rollout does not
    /// count it as failed.
    #[test]
    fn a_part_that_was_not_begun_is_no_failure() {
        let now = BootMoment { boot: "b1".parse().unwrap(), at: BootTime::BOOT };
        let settled = ActivationRecord { confirmed: of(2), ..ActivationRecord::default() };
        assert_eq!(of_third().resumed(&settled, &now), []);
        let returned = serde_json::json!({
            "confirmed": of(2),
            "quarantine": [{"id": of(3).id, "seq": 3, "cause": "not-confirmed", "returns": 1}],
        });
        let returned: ActivationRecord = serde_json::from_value(returned).unwrap();
        assert_eq!(of_third().resumed(&returned, &now).len(), 2, "one that was is told");
        // ROL-12: so is one of a host that held nothing before, and is as it was found.
        let as_found = ActivationRecord { confirmed: Generation::AS_FOUND, ..returned };
        let back = RolloutEventBody::RollbackComplete { release: 0 };
        assert_eq!(of_third().resumed(&as_found, &now).last(), Some(&back));
    }

    /// A return by a halt puts nothing in quarantine: a process that ends before it said so leaves that in the record.
    #[test]
    fn a_return_by_a_halt_is_told_by_the_next_process() {
        let now = BootMoment { boot: "b1".parse().unwrap(), at: BootTime::BOOT };
        let record = |cause: &str| -> ActivationRecord {
            let at = serde_json::json!({"boot": "b1", "at": 0});
            let returned = serde_json::json!({"from": of(3), "cause": cause, "at": at});
            let record = serde_json::json!({"confirmed": of(2), "returned": returned});
            serde_json::from_value(record).unwrap()
        };
        let mut begun = RolloutActivation { complete: Some(now.clone()), ..of_third() };
        let back = RolloutEventBody::RollbackComplete { release: 2 };
        assert_eq!(begun.resumed(&record("halted"), &now), [back]);
        assert_eq!(begun.resumed(&record("not-confirmed"), &now).len(), 2, "what failed is told too");
        assert_eq!(of_third().resumed(&record("halted"), &now), [], "the return was from an earlier trial");
    }

    #[test]
    fn the_end_of_a_rollout_ends_what_converged() {
        let now = BootMoment { boot: "b1".parse().unwrap(), at: BootTime::BOOT };
        let soaks = RolloutActivation { complete: Some(now.clone()), ..of_third() };
        assert!(!soaks.may_end(of(3).id, &now));
        assert!(soaks.may_end(of(2).id, &now), "another generation");
        assert!(RolloutActivation { converged: true, ..soaks.clone() }.may_end(of(3).id, &now));
        assert!(of_third().may_end(of(3).id, &now), "it does not soak");
    }

    #[test]
    fn a_host_that_runs_the_release_already_is_watched() {
        let record = ActivationRecord { confirmed: of(3), ..ActivationRecord::default() };
        assert_eq!(TrialStage::in_rollout(&record, Some(&of_third())), TrialStage::OnProbation);
        assert_eq!(TrialStage::in_rollout(&record, None), TrialStage::Settled);
    }

    /// A release that the node began while the host was already on its way back from the one before is refused, and that
    /// one's return is told of its own rollout.
    #[test]
    fn a_release_that_is_left_keeps_its_part() {
        let next = of(4).id;
        assert!(RolloutActivation::is_replaced(None, next));
        let settled = ActivationRecord { confirmed: of(2), ..ActivationRecord::default() };
        assert!(RolloutActivation::is_replaced(Some(&settled), next));
        let left = serde_json::json!({
            "confirmed": of(2),
            "underWay": {
                "stage": "returning", "from": of(3), "cause": "not-confirmed", "boot": "b1", "deadlineMillis": 1,
            },
        });
        let left: ActivationRecord = serde_json::from_value(left).unwrap();
        assert!(!RolloutActivation::is_replaced(Some(&left), next));
    }

    /// A release that was refused while the one before is watched still is no part of the node any more: it would answer a
    /// request for it without beginning anything.
    #[test]
    fn a_part_that_was_not_begun_is_over() {
        let (terms, kept) = (ActivationTerms::default(), of_third());
        let watched = |confirmed, previous| ActivationRecord {
            confirmed,
            under_way: ActivationStage::Probation(Probation {
                previous,
                deaths: 0,
                terms,
                probes: ProbeTopology::default(),
            }),
            ..ActivationRecord::default()
        };
        assert!(kept.is_over(&watched(of(2), of(1))));
        assert!(!kept.is_over(&watched(of(3), of(2))));
        assert!(kept.is_over(&ActivationRecord { confirmed: of(2), ..ActivationRecord::default() }));
    }
}
