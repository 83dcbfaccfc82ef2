//! What the daemon shows, keeps and logs of its contacts with the control plane.

use std::collections::BTreeMap;
use std::time::Duration;

use activation::guarded::ContactAnswer;
use model::collect::CollectInserting;
use model::exchange::Answer;
use model::rollout::RolloutTask;
use net::tasks;
use node::{FreshnessRecord, NodeInput, RenewalProof};

use super::Daemon;
use crate::clock::now;
use crate::contact::ContactFailure;
use crate::events::DaemonEvent;
use crate::local::messages::{AwaitedWave, ContactProblem};
use crate::render::chain;
use crate::renewal;
use crate::status::UNASSIGNED_NEXT;

/// A contact that came to the same as the one before is written no more often than this.
const KEPT_EVERY: Duration = Duration::from_secs(60);
/// The most resources of which it is kept on how many other nodes they fail: a report names no more.
const MAX_SAME_CAUSES: usize = 500;

/// Whether no entry of what is published matches the host; what speaks of a rollout has an entry for it. That a host gets
/// nothing says nothing: its rollout may be on its way to begin.
fn is_unassigned(answer: &Answer) -> bool {
    answer.unassigned && answer.rollout.is_none()
}

/// What a host that holds nothing waits for, where it is in a rollout that does not ask it yet. `failed`: the release that left
/// it as it was found.
fn awaited_wave(answer: &Answer, failed: Option<u64>) -> Option<AwaitedWave> {
    let dispatch = answer.rollout.as_ref().filter(|dispatch| dispatch.task == RolloutTask::Hold)?;
    let (rollout, wave) = (dispatch.rollout.clone(), dispatch.wave.clone());
    (failed != Some(dispatch.seq)).then_some(AwaitedWave { rollout, wave })
}

impl Daemon {
    /// How fresh what is held is counts from now on, for what waits too.
    pub(super) fn save_freshness(&self, freshness: FreshnessRecord) {
        let (storage, release, work) = (self.storage.clone(), self.release.clone(), self.work.clone());
        tasks::spawn(async move {
            let saved = storage.run(move |durable| release.set_freshness(durable, &freshness)).await;
            work.release_changed();
            if let Err(error) = saved {
                tracing::warn!(error = %chain(&error), "how fresh the release held is could not be recorded");
            }
        });
    }

    pub(super) fn note_answered(&mut self, answer: &Answer) {
        if let Some(guard) = self.runner.guard() {
            guard.note_contact(ContactAnswer::Answered);
        }
        let at = now();
        // As many as a report can have asked about: whoever answers may say any number.
        let named = answer.same_cause.iter().take(MAX_SAME_CAUSES);
        let same_cause: BTreeMap<String, u32> =
            named.map(|(name, nodes)| (name.clone(), *nodes)).collect_inserting();
        let before = self.local.shown().contact;
        let held = self.node.adoption();
        let unassigned = is_unassigned(answer);
        // A release that failed, and left the host as it was found, is not waited for.
        let failed = held.filter(|held| held.is_as_found()).map(|held| held.seq);
        let awaited_wave = awaited_wave(answer, failed).filter(|_| held.is_none() || failed.is_some());
        if let Some(wave) = &awaited_wave
            && before.awaited_wave.is_none()
        {
            tracing::info!("{}", wave.text());
        }
        if unassigned && !before.unassigned {
            tracing::warn!(
                next = UNASSIGNED_NEXT,
                "the control plane answers, and no entry of what is published matches this host"
            );
        }
        if let Some(problem) = &before.problem {
            tracing::info!(problem, "the control plane answers again");
        }
        let server_time = self.session.signer().time_on_link(answer).unwrap_or(self.session.server_time());
        let ahead_ms = server_time.0.saturating_sub(at.0);
        self.local.set(|state| {
            state.contact.answered = Some(at);
            (state.contact.problem, state.contact.reason) = (None, None);
            state.contact.unassigned = unassigned;
            state.contact.awaited_wave = awaited_wave;
            state.contact.clock_ahead_ms = Some(ahead_ms);
            if state.contact.same_cause != same_cause {
                state.contact.same_cause = same_cause;
            }
        });
        self.keep_contact(before.reason.is_some());
    }

    /// A check-in got no answer: the journal names each sort of failure once, with the next step.
    pub(super) fn not_answered(&mut self, failure: ContactFailure) {
        let ContactFailure { problem, text, answer } = failure;
        if let Some(guard) = self.runner.guard() {
            guard.note_contact(answer);
        }
        let shown = self.local.shown();
        // What the last daemon met is news to the journal of this one.
        let is_known = shown.contact.failed.is_some_and(|at| at >= shown.since);
        let is_new = !is_known || shown.contact.reason != Some(problem);
        let next = problem.next_step(&self.hostname);
        match is_new {
            true if problem.is_refusal() => {
                tracing::warn!(why = text, next, "the control plane refuses this host");
            }
            true => tracing::warn!(why = text, next, "the control plane cannot be reached"),
            false => tracing::info!(why = text, "no check-in"),
        }
        self.local.set(|state| {
            state.contact.failed = Some(now());
            state.contact.problem = Some(text.clone());
            state.contact.reason = Some(problem);
        });
        self.keep_contact(is_new);
        match problem {
            ContactProblem::CertificateExpired => self.take(NodeInput::CertificateEnded),
            ContactProblem::ClockAhead => self.take(NodeInput::ServerCertificateEnded),
            ContactProblem::ForeignServer => self.take(NodeInput::ForeignServer),
            ContactProblem::Unreachable
            | ContactProblem::UnknownName
            | ContactProblem::ProxyUnreachable
            | ContactProblem::ProxyCredentials
            | ContactProblem::ProxyRefused
            | ContactProblem::NoTunnel
            | ContactProblem::NotTls
            | ContactProblem::UnknownNode
            | ContactProblem::Revoked
            | ContactProblem::Refused
            | ContactProblem::Other => {}
        }
        self.take(NodeInput::Unreachable(text));
    }

    /// Asks for another certificate.
    pub(super) fn renew(&self, proof: RenewalProof) {
        let (session, member, handle) = (self.session.clone(), self.member.clone(), self.handle.clone());
        let (rejoin, storage) = (self.rejoin.clone(), self.storage.clone());
        tasks::spawn(async move {
            let renewed = renewal::renew(&session, &member, &storage, &rejoin, proof).await;
            let is_renewed = matches!(renewed, NodeInput::Renewed(_));
            handle.send(DaemonEvent::Input(renewed)).await;
            // Its CA may have been dropped between the answer and the disk.
            if is_renewed && !member.is_certified() {
                handle.send(DaemonEvent::Input(NodeInput::CertificateRejected)).await;
            }
        });
    }

    /// Writes down how contacts went, at once when that changed.
    pub(super) fn keep_contact(&mut self, changed: bool) {
        let now = now();
        if !changed && self.contact_kept.is_some_and(|at| now.since(at) < KEPT_EVERY && at <= now) {
            return;
        }
        self.contact_kept = Some(now);
        let (storage, contact) = (self.storage.clone(), self.local.shown().contact);
        tasks::spawn(async move {
            let kept = storage.run(move |durable| Ok(contact.write(durable.path()))).await;
            if let Ok(Err(error)) = kept {
                tracing::warn!(%error, "the last contact cannot be kept for `muster-agent status`");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// ROL-1: one that waits for its wave is not told that nothing matches it.
    #[test]
    fn a_host_that_holds_nothing_waits_for_its_wave() {
        let answer = |task: Option<&str>, unassigned: bool| -> Answer {
            let rollout = task.map(|task| {
                serde_json::json!({
                    "rollout": "stable@4f1c", "seq": 3, "wave": "rest", "task": task, "soakSecs": 0,
                })
            });
            let answer = serde_json::json!({
                "nextCheckinSecs": 60, "unassigned": unassigned, "rollout": rollout,
            });
            serde_json::from_value(answer).unwrap()
        };
        for (task, says_so, failed, unassigned, waits) in [
            (Some("hold"), false, None, false, true),
            (Some("hold"), true, None, false, true),
            (Some("hold"), false, Some(2), false, true),
            (Some("hold"), false, Some(3), false, false),
            (Some("proceed"), false, None, false, false),
            // Its rollout is on its way to begin, and nothing is offered yet.
            (None, false, None, false, false),
            (None, true, None, true, false),
        ] {
            let answer = answer(task, says_so);
            let got = (is_unassigned(&answer), awaited_wave(&answer, failed).is_some());
            assert_eq!(got, (unassigned, waits), "{task:?} {says_so} {failed:?}");
        }
        let wave = awaited_wave(&answer(Some("hold"), false), None).unwrap();
        assert_eq!(
            wave.text(),
            "this host waits for wave rest of rollout stable@4f1c, and holds no release yet"
        );
    }
}
