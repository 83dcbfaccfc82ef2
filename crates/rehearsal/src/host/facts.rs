//! What a host tells: the facts of its activation become the events that the agent sends.

use activation::{ActivationFact, BootId, HealthProbeMode, HealthProbeOutcome, ReturnCause};
use model::Timestamp;
use model::rollout::{DeclaredProbe, ProbeMode, ProbeOutcome};
use rollout::RolloutEventBody;

use super::{Agenda, BEFORE, BOOT, HostEvent, RehearsedHost, TARGET};

impl RehearsedHost {
    /// A fact of the activation becomes the event that the agent sends.
    pub(super) fn report(&mut self, fact: ActivationFact, now: Timestamp, agenda: &mut Agenda) {
        match fact {
            ActivationFact::Started { .. } => self.outbox.push(RolloutEventBody::ActivationStarted),
            ActivationFact::Completed { .. } => {
                self.switched = Some(now);
                (self.is_confirmed, self.fails) = (false, false);
                let boot = BOOT.to_owned();
                self.outbox.push(RolloutEventBody::ActivationComplete { release: TARGET, boot });
                agenda.push((now.plus(self.soak), HostEvent::SoakOver(self.trial)));
            }
            ActivationFact::ProbesDeclared { probes, .. } => {
                let declared = probes.probes().iter().map(|probe| DeclaredProbe {
                    name: probe.name.clone(),
                    mode: match probe.mode {
                        HealthProbeMode::Enforce => ProbeMode::Enforce,
                        HealthProbeMode::Observe => ProbeMode::Observe,
                        HealthProbeMode::Disabled => ProbeMode::Disabled,
                    },
                });
                self.outbox.push(RolloutEventBody::ProbeTopologyDeclared { probes: declared.collect() });
            }
            ActivationFact::ProbeResult { probe, outcome, boot, .. } => {
                let outcome = match outcome {
                    HealthProbeOutcome::Passed => ProbeOutcome::Pass,
                    _ => ProbeOutcome::Fail,
                };
                let boot = boot.as_str().to_owned();
                self.outbox.push(RolloutEventBody::ProbeResult { probe, outcome, boot });
            }
            ActivationFact::ProbeFailureFirst { probe, .. } => {
                self.outbox.push(RolloutEventBody::ProbeFailureFirst { probe });
            }
            ActivationFact::Confirmed { .. } => {
                self.is_confirmed = true;
                agenda.push((now, HostEvent::SoakOver(self.trial)));
            }
            ActivationFact::FailedAfterConfirm { failure, .. } => {
                self.outbox.push(RolloutEventBody::Failed { message: failure.to_string() });
            }
            ActivationFact::Returning { cause, .. } => self.returns(&cause),
            ActivationFact::Returned { .. } => {
                self.switched = None;
                self.outbox.push(RolloutEventBody::RollbackComplete { release: BEFORE });
            }
            ActivationFact::Refused { refusal, .. } => {
                self.outbox.push(RolloutEventBody::ActivationFailed { message: refusal.to_string() });
            }
            _ => {}
        }
    }

    fn returns(&mut self, cause: &ReturnCause) {
        let message = cause.to_string();
        match cause {
            // It was told to: nothing failed on it.
            ReturnCause::Halted | ReturnCause::Superseded => {}
            ReturnCause::SwitchFailed { .. } => {
                self.outbox.push(RolloutEventBody::ActivationFailed { message });
            }
            _ => self.outbox.push(RolloutEventBody::Failed { message }),
        }
    }

    /// It tells that it is confirmed once the soak is over, its generation is confirmed and its probes pass.
    pub(super) fn confirm_to_fleet(&mut self, now: Timestamp, boot: &BootId) {
        let Some(switched) = self.switched else { return };
        let soaked = now.since(switched);
        if self.is_confirmed && !self.fails && soaked >= self.soak {
            let (soaked_secs, boot) = (soaked.as_secs(), boot.as_str().to_owned());
            self.outbox.push(RolloutEventBody::Converged { release: TARGET, boot, soaked_secs });
        }
    }
}
