//! [`carry_out_all`]: what [`activation::Activation`] asks for, one after the other, whoever goes on with it; where one
//! fails, what follows from that takes the place of the rest.
//!
//! ```text
//! Persist, ArmWatchdog, Disarm, Forget    here: the files of generations
//! Return                                  here, marked as a run; the owner says when, and what adopts
//! Report                                  the owner: a rollout's log, or a fact that waits for a network
//! all others                              of an agent that runs; the watchdog leaves them to it
//! ```

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use activation::{
    ActivationEffect, ActivationFact, ActivationInput, ActivationRecord, Generation, GenerationId,
};

use super::{GenerationFiles, HostReturn, ReturnHostError, ReturnedHost};
use crate::full_runs::record_full_run;
use crate::render::chain;
use crate::run_mark::RunMark;
use crate::storage::Storage;

/// Who goes on with an activation: the agent that runs, or its watchdog.
pub(crate) trait ActivationOwner {
    /// The generations.
    fn files(&self) -> &GenerationFiles;
    /// What writes.
    fn storage(&self) -> &Storage;
    /// What is durable once all effects so far were carried out; nothing where there is no activation any more.
    fn record(&self) -> Option<&ActivationRecord>;
    /// Gives the activation an input, at the time of now.
    fn handle(&mut self, input: ActivationInput) -> Vec<ActivationEffect>;
    /// [`ActivationEffect::Return`]; nothing where it is done later.
    fn go_back(&mut self, from: GenerationId, to: Generation) -> Option<ActivationInput>;
    /// [`ActivationEffect::Report`].
    fn tell(&mut self, fact: &ActivationFact);

    /// What an agent that runs alone does: switches, asks probes, tries to confirm.
    fn carry_out_running(&mut self, _effect: ActivationEffect) -> Option<ActivationInput> {
        None
    }
}

/// Carries effects out until nothing is to be done now.
pub(crate) fn carry_out_all(owner: &mut dyn ActivationOwner, effects: Vec<ActivationEffect>) {
    let mut queue = VecDeque::from(effects);
    while let Some(effect) = queue.pop_front() {
        if let Some(input) = carry_out(owner, effect) {
            // What was left of the list is in what follows, where it is still to be done.
            queue = owner.handle(input).into();
        }
    }
}

/// Carries one effect out; gives what is to be said of it at once.
fn carry_out(owner: &mut dyn ActivationOwner, effect: ActivationEffect) -> Option<ActivationInput> {
    match effect {
        ActivationEffect::Persist(record) => {
            let error = owner.files().persist(&record).err()?;
            Some(ActivationInput::NotPersisted { reason: chain(&error) })
        }
        ActivationEffect::ArmWatchdog(_) => {
            let error = owner.files().arm(owner.storage().durable(), owner.record()?).err()?;
            Some(ActivationInput::NotArmed { reason: chain(&error) })
        }
        ActivationEffect::Disarm => {
            if let Err(error) = owner.files().disarm(owner.record()?) {
                tracing::warn!(error = %chain(&error), "the watchdog stays, and has nothing to do");
            }
            None
        }
        ActivationEffect::Forget(generations) => {
            if let Err(error) = owner.files().forget(&generations) {
                tracing::warn!(error = %chain(&error), "generations that nothing needs stay");
            }
            None
        }
        ActivationEffect::Return { from, to } => owner.go_back(from, to),
        ActivationEffect::Report(fact) => {
            owner.tell(&fact);
            None
        }
        ActivationEffect::Switch(_)
        | ActivationEffect::StartProbes { .. }
        | ActivationEffect::StopProbes
        | ActivationEffect::StartAgentAnew
        | ActivationEffect::TryConfirm { .. } => owner.carry_out_running(effect),
    }
}

/// Returns to a generation, and writes its run down; what the return came to, without the run.
///
/// # Errors
/// In words: the host is not back.
pub(crate) fn return_host(
    back: &HostReturn<'_>,
    storage: &Storage,
    from: GenerationId,
    to: &Generation,
) -> Result<ReturnedHost, String> {
    let state = storage.durable().path();
    // Without a mark it is made all the same.
    let _ = RunMark::begin(state, crate::clock::now());
    let returned = catch_unwind(AssertUnwindSafe(|| {
        let mut returned = back.carry_out(from, to)?;
        if let Some((run, inputs)) = returned.run.take()
            && let Err(error) = record_full_run(storage, inputs, run)
        {
            tracing::warn!(error = %chain(&error), "what the run came to is not recorded");
        }
        Ok(returned)
    }));
    RunMark::end(state);
    match returned {
        Ok(returned) => returned.map_err(|error: ReturnHostError| chain(&error)),
        Err(_) => Err("the agent panicked; see its log".to_owned()),
    }
}
