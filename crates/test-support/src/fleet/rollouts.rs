//! Nodes that take part in rollouts by hand.

use std::time::Instant;

use model::exchange::{Answer, CheckIn, HeldRelease};
use model::log::{Fact, FactBody};
use model::rollout::{
    DeclaredProbe, ProbeMode, ProbeOutcome, RolloutDispatch, RolloutEventBody, RolloutFact, RolloutId,
    RolloutTask,
};
use trust::ProbeEvidence;
use wire::{Problem, route};

use super::release::Made;
use super::{Member, now, quiet};
use crate::wait::DEADLINE;

/// A node that says what a test has it say.
pub struct RolloutNode {
    pub member: Member,
    pub held: Option<HeldRelease>,
    /// Its boot.
    pub boot: String,
    /// The number of its last fact.
    pub fact_seq: u64,
    /// The number of its last event of the rollout that it is in.
    pub event_seq: u64,
}

impl RolloutNode {
    /// A node that holds nothing.
    pub fn new(member: Member) -> RolloutNode {
        RolloutNode { member, held: None, boot: "b1".to_owned(), fact_seq: 0, event_seq: 0 }
    }

    /// It holds a release from now on.
    pub fn holds(&mut self, made: &Made) {
        self.held = Some(made.held(self.member.hostname.as_str()));
    }

    /// Checks in with these facts, and waits for an answer up to so many seconds.
    pub async fn check_in(&self, facts: Vec<Fact>, wait: u64) -> Result<Answer, Problem> {
        let message = CheckIn { held: self.held.clone(), facts, ..quiet() };
        self.member.post(&format!("{}?wait={wait}", route::CHECKIN), &message).await
    }

    /// What it is asked for.
    pub async fn asked(&self) -> Option<RolloutDispatch> {
        self.check_in(Vec::new(), 0).await.unwrap().rollout
    }

    /// Polls until it is asked for this.
    pub async fn until(&self, wanted: impl Fn(&RolloutDispatch) -> bool) -> (RolloutDispatch, Answer) {
        let begun = Instant::now();
        loop {
            let answer = self.check_in(Vec::new(), 1).await.unwrap();
            if let Some(dispatch) = answer.rollout.clone().filter(|dispatch| wanted(dispatch)) {
                return (dispatch, answer);
            }
            assert!(begun.elapsed() < DEADLINE, "{} is asked for {:?}", self.member.hostname, answer.rollout);
        }
    }

    /// Polls until it is to acknowledge; gives the rollout.
    pub async fn until_asked(&self) -> RolloutId {
        let is_asked = |dispatch: &RolloutDispatch| matches!(dispatch.task, RolloutTask::Acknowledge { .. });
        self.until(is_asked).await.0.rollout
    }

    /// The next fact: this event, with the next number and, of a probe, the evidence.
    pub fn event(&mut self, rollout: &RolloutId, event: RolloutEventBody) -> Fact {
        self.fact_seq += 1;
        self.event_seq += 1;
        let at = now();
        let signature = match &event {
            RolloutEventBody::ProbeResult { probe, outcome, boot } => {
                let evidence = ProbeEvidence {
                    node: self.member.id.clone(),
                    incarnation: quiet().incarnation,
                    rollout: rollout.clone(),
                    event_seq: self.event_seq,
                    boot: boot.clone(),
                    probe: probe.clone(),
                    outcome: *outcome,
                    at,
                };
                evidence.sign(&self.member.key).unwrap()
            }
            _ => None,
        };
        let fact = RolloutFact { rollout: rollout.clone(), event_seq: self.event_seq, event, signature };
        Fact { seq: self.fact_seq, at, body: FactBody::Rollout(fact) }
    }

    /// Says an event; gives the answer, by which it was taken.
    pub async fn say(&mut self, rollout: &RolloutId, event: RolloutEventBody) -> Answer {
        let fact = self.event(rollout, event);
        let answer = self.check_in(vec![fact], 0).await.unwrap();
        assert_eq!(answer.acked.as_ref().map(|cursor| cursor.seq), Some(self.fact_seq), "it is durable");
        answer
    }

    /// Acknowledges that it was asked; it may begin then.
    pub async fn begins(&mut self, rollout: &RolloutId) -> Answer {
        let answer = self.say(rollout, RolloutEventBody::DispatchAck).await;
        let dispatch = answer.rollout.as_ref().expect("it is in a rollout");
        assert_eq!((&dispatch.rollout, dispatch.task), (rollout, RolloutTask::Proceed));
        answer
    }

    /// Activates a release, of which one probe is declared, and confirms it.
    pub async fn confirms(&mut self, rollout: &RolloutId, made: &Made) -> Answer {
        self.activates(rollout, made).await;
        let (release, boot) = (self.held.as_ref().unwrap().seq, self.boot.clone());
        let probe = RolloutEventBody::ProbeResult {
            probe: "up".into(),
            outcome: ProbeOutcome::Pass,
            boot: boot.clone(),
        };
        self.say(rollout, probe).await;
        self.say(rollout, RolloutEventBody::Converged { release, boot, soaked_secs: 0 }).await
    }

    /// Activates a release, and declares its probe.
    pub async fn activates(&mut self, rollout: &RolloutId, made: &Made) {
        self.say(rollout, RolloutEventBody::ActivationStarted).await;
        self.holds(made);
        let (release, boot) = (self.held.as_ref().unwrap().seq, self.boot.clone());
        self.say(rollout, RolloutEventBody::ActivationComplete { release, boot }).await;
        let probes = vec![DeclaredProbe { name: "up".into(), mode: ProbeMode::Enforce }];
        self.say(rollout, RolloutEventBody::ProbeTopologyDeclared { probes }).await;
    }
}
