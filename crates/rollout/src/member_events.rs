//! What each event of a node makes of its [`MemberRecord`].

use std::time::Duration;

use model::time::SLACK;

use crate::event::{
    DeclaredProbe, EventRefusal, MAX_EVENT_TEXT, MAX_PROBE_NAME, MAX_PROBES, ProbeMode, ProbeOutcome,
    RolloutEventBody,
};
use crate::member::{MemberFailure, MemberGoal, MemberRecord, MemberTerms, ProbeRecord};
use crate::placement::BeginRefusal;
use crate::state::NodeRolloutState;

impl MemberRecord {
    /// What an event makes of it.
    pub(crate) fn take(&mut self, event: &RolloutEventBody, terms: MemberTerms) -> Result<(), EventRefusal> {
        use NodeRolloutState::{Activating, Converged, Deferred, Failed, Pending, Reverted, Soaking};
        self.heard(terms);
        let other_state = EventRefusal::OtherState { state: self.state };
        let to_target = self.goal == MemberGoal::Target;
        match event {
            // Taken before, and a node whose log is new does not know that: a refusal would keep it from
            // beginning, while it is waited for.
            RolloutEventBody::DispatchAck if self.state == Activating => Ok(()),
            RolloutEventBody::DispatchAck => self.acknowledge(terms),
            RolloutEventBody::Unknown => Ok(()),
            RolloutEventBody::DispatchReject { code } => {
                match BeginRefusal::of_code(code).filter(|_| self.may_hold_off()) {
                    Some(why) => self.hold_off(why, terms.now),
                    None if self.asked.is_none() => return Err(EventRefusal::NotAsked),
                    None => self.put_off(MemberFailure::Refused { code: kept(code) }, terms.now),
                }
                Ok(())
            }
            RolloutEventBody::ActivationStarted if self.state == Activating => Ok(()),
            RolloutEventBody::ActivationComplete { release, boot } => match self.state {
                Activating | Deferred if to_target => self.activated(*release, boot, terms),
                // It booted again, and runs it again: its probes begin anew.
                Soaking if to_target => {
                    check_release(*release, terms.target)?;
                    (self.boot, self.probes) = (Some(short(boot)?), None);
                    Ok(())
                }
                _ => Err(other_state),
            },
            RolloutEventBody::ActivationFailed { message } if matches!(self.state, Activating | Deferred) => {
                self.report_failure(kept(message), terms);
                Ok(())
            }
            RolloutEventBody::ActivationDeferred { .. } if self.state == Activating && to_target => {
                self.go_on(Deferred, terms);
                Ok(())
            }
            RolloutEventBody::ProbeTopologyDeclared { probes } if self.state == Soaking => {
                self.declare(probes)
            }
            RolloutEventBody::ProbeResult { probe, outcome, boot } if self.state == Soaking => {
                self.probed(probe, *outcome, boot)
            }
            RolloutEventBody::ProbeFailureFirst { .. } if self.state == Soaking => Ok(()),
            // One that is confirmed keeps its way back until it hears that the rollout was through, and its host may go by
            // that: then it failed, whatever was made of it here.
            RolloutEventBody::Failed { message }
                if matches!(self.state, Activating | Soaking | Deferred | Converged) =>
            {
                self.report_failure(kept(message), terms);
                Ok(())
            }
            RolloutEventBody::RollbackComplete { release } => match self.state {
                Activating | Soaking | Deferred | Failed | Converged => {
                    if *release == terms.target {
                        let want = self.before.unwrap_or(0);
                        return Err(EventRefusal::OtherRelease { got: *release, want });
                    }
                    // The node knows better than anybody which release it confirmed last. None that is later than
                    // this rollout's, which its own waves open, and 0 is a host that holds none.
                    if (1..terms.target).contains(release) {
                        self.before = self.before.map(|_| *release);
                    }
                    if to_target && self.failure.is_none() {
                        self.failure = Some(MemberFailure::Returned);
                    }
                    self.enter(Reverted, terms.now);
                    (self.asked, self.as_found) = (None, *release == 0);
                    Ok(())
                }
                _ => Err(other_state),
            },
            RolloutEventBody::Converged { release, boot, soaked_secs }
                if self.state == Soaking && to_target =>
            {
                self.confirm(*release, boot, *soaked_secs, terms)
            }
            _ if self.state == Pending => Err(EventRefusal::NotAsked),
            _ => Err(other_state),
        }
    }

    fn acknowledge(&mut self, terms: MemberTerms) -> Result<(), EventRefusal> {
        let asked = self.asked.ok_or(EventRefusal::NotAsked)?;
        if terms.now > asked.until {
            return Err(EventRefusal::NotAsked);
        }
        // Why it did not begin is kept until it does, so that it is asked ever more seldom also where it acknowledges between.
        self.asked = None;
        (self.attempts, self.started) = (0, false);
        self.go_on(NodeRolloutState::Activating, terms);
        Ok(())
    }

    fn activated(&mut self, release: u64, boot: &str, terms: MemberTerms) -> Result<(), EventRefusal> {
        check_release(release, terms.target)?;
        (self.boot, self.probes) = (Some(short(boot)?), None);
        self.go_on(NodeRolloutState::Soaking, terms);
        Ok(())
    }

    fn declare(&mut self, probes: &[DeclaredProbe]) -> Result<(), EventRefusal> {
        if probes.len() > MAX_PROBES || probes.iter().any(|probe| probe.name.len() > MAX_PROBE_NAME) {
            return Err(EventRefusal::TooManyProbes);
        }
        let declared = |name: &String| {
            probes.iter().any(|probe| probe.name == *name && probe.mode == ProbeMode::Enforce)
        };
        if let Some(lacking) = self.enforcing.iter().find(|name| !declared(name)) {
            return Err(EventRefusal::LacksProbe(lacking.clone()));
        }
        let record =
            |probe: &DeclaredProbe| ProbeRecord { name: probe.name.clone(), mode: probe.mode, outcome: None };
        self.probes = Some(probes.iter().map(record).collect());
        Ok(())
    }

    fn probed(&mut self, probe: &str, outcome: ProbeOutcome, boot: &str) -> Result<(), EventRefusal> {
        if self.boot.as_deref() != Some(boot) {
            return Err(EventRefusal::OtherBoot);
        }
        let probes = self.probes.as_mut().ok_or(EventRefusal::NoTopology)?;
        let undeclared = || EventRefusal::UndeclaredProbe(kept(probe));
        let record = probes.iter_mut().find(|record| record.name == probe).ok_or_else(undeclared)?;
        record.outcome = Some(outcome);
        Ok(())
    }

    fn confirm(
        &mut self,
        release: u64,
        boot: &str,
        soaked_secs: u64,
        terms: MemberTerms,
    ) -> Result<(), EventRefusal> {
        check_release(release, terms.target)?;
        if self.boot.as_deref() != Some(boot) {
            return Err(EventRefusal::OtherBoot);
        }
        if let Some(missing) = self.missing_probe()? {
            return Err(EventRefusal::ProbeNotPassed(missing.to_owned()));
        }
        // The node's clock that nobody sets says how long it soaked. It cannot have begun before it was
        // asked, by the clock here, where that was not set back since.
        let possible = self.first_asked.filter(|asked| *asked <= terms.now);
        let possible = possible.map_or(Duration::MAX, |asked| terms.now.since(asked) + SLACK);
        let soaked = Duration::from_secs(soaked_secs).min(possible);
        if soaked < terms.soak {
            return Err(EventRefusal::SoakNotOver { left_secs: (terms.soak - soaked).as_secs() });
        }
        self.enter(NodeRolloutState::Converged, terms.now);
        Ok(())
    }

    /// The first enforcing probe that has not passed since the activation.
    pub(crate) fn missing_probe(&self) -> Result<Option<&str>, EventRefusal> {
        let probes = self.probes.as_ref().ok_or(EventRefusal::NoTopology)?;
        let missing = probes
            .iter()
            .find(|probe| probe.mode == ProbeMode::Enforce && probe.outcome != Some(ProbeOutcome::Pass));
        Ok(missing.map(|probe| probe.name.as_str()))
    }
}

fn check_release(got: u64, want: u64) -> Result<(), EventRefusal> {
    if got == want { Ok(()) } else { Err(EventRefusal::OtherRelease { got, want }) }
}

/// A boot's id, which is not kept where it is too long to be one.
fn short(boot: &str) -> Result<String, EventRefusal> {
    if boot.len() <= MAX_PROBE_NAME { Ok(boot.to_owned()) } else { Err(EventRefusal::OtherBoot) }
}

/// As much of a text as is kept.
fn kept(text: &str) -> String {
    let mut kept = text.to_owned();
    let cut = (0..=MAX_EVENT_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    kept.truncate(cut.unwrap_or(0));
    kept
}
