//! [`HostReturn`]: the host goes back to a generation that it keeps, offline (ROL-7, ROL-10).
//!
//! ```text
//! unlink the mark -> adopt its set, without the floor of releases -> put the agent back where it differs
//!   -> a full run, which takes back what only the failed generation made -> write the mark
//! ```
//!
//! Each step may be done again by whoever goes on after a crash.

use activation::{Generation, GenerationId};
use converge::{RunMode, RunScope, TakeBack};
use lang::Value;
use model::Digest;
use node::{Adoption, RunOrder};
use spool::SpoolError;

use super::{GenerationFiles, PutBackAgent, PutBackAgentError, ReturnWatchdog};
use crate::runner::{CompletedRun, Runner, RunnerError};
use crate::state::StateError;

/// Why the host is not back.
#[derive(Debug, thiserror::Error)]
pub enum ReturnHostError {
    /// Its set is not kept.
    #[error("generation {0} is not kept any more")]
    NotKept(GenerationId),
    /// What is kept of generations cannot be used.
    #[error("what is kept of generations cannot be used")]
    Files(#[from] SpoolError),
    /// The state directory cannot be used.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    /// The run cannot be made.
    #[error("the run cannot be made")]
    Run(#[from] RunnerError),
    /// All else is back, but not the agent.
    #[error("the agent is not as it was")]
    Agent(#[from] PutBackAgentError),
}

/// What a return came to.
#[derive(Clone, Debug, Default)]
pub struct ReturnedHost {
    /// What the host holds now; nothing where it never held anything.
    pub adoption: Option<Adoption>,
    /// Its full run, and the digest of what that bound ([`node::step::inputs_digest`]).
    pub run: Option<(CompletedRun, Digest)>,
    /// What of the agent was put back.
    pub agent: PutBackAgent,
}

/// A return, on a thread that may wait for the disk and for commands. No other run may be under way.
pub struct HostReturn<'a> {
    /// The generations.
    pub files: &'a GenerationFiles,
    /// What makes the run.
    pub runner: &'a Runner,
    /// What the host shows of itself now.
    pub traits: &'a Value,
    /// Makes the set count that is returned to, durably.
    pub adopt: &'a dyn Fn(&Adoption) -> Result<(), StateError>,
}

impl HostReturn<'_> {
    /// [`activation::ActivationEffect::Return`]. It is over when the run ended, whatever came of its resources: they are
    /// tried again by the runs after it. A pause of the host does not hold it up: what is undone is what the agent did.
    ///
    /// # Errors
    /// [`ReturnHostError`]: the host is in the middle, without a mark, and goes on when this is called again.
    pub fn carry_out(&self, from: GenerationId, to: &Generation) -> Result<ReturnedHost, ReturnHostError> {
        let adoption = self.files.adoption_for_return(self.runner.durable(), to)?;
        self.files.leave()?;
        if let Some(adoption) = &adoption {
            (self.adopt)(adoption)?;
        }
        // The run comes in any case: it may bring back the network, or room on the disk.
        let agent = self.put_back_agent(to.id);
        let taken_back = match to.id == GenerationId::AS_FOUND {
            true => TakeBack::Everything,
            false => TakeBack::MadeIn(from.0),
        };
        let run = adoption.as_ref().map(|adoption| self.run(adoption, taken_back)).transpose()?;
        let agent = agent?;
        if let Some(why) = run.as_ref().and_then(|(run, _)| run.report.not_switched()) {
            // A return that waited for it would keep the release away that mends it.
            tracing::error!(to = %to.id, "this host is back, but for this, which the next runs try again: {why}");
        }
        self.files.arrive(to.id)?;
        Ok(ReturnedHost { adoption, run, agent })
    }

    fn put_back_agent(&self, to: GenerationId) -> Result<PutBackAgent, PutBackAgentError> {
        let agent = self.files.put_back_agent(to)?;
        if let (true, ReturnWatchdog::Units(units)) = (agent.units, self.files.watchdog())
            && let Err(error) = units.reload()
        {
            tracing::warn!(%error, "systemd goes by the agent's unit as it was until it reads it again");
        }
        Ok(agent)
    }

    fn run(&self, adoption: &Adoption, taken_back: TakeBack) -> Result<(CompletedRun, Digest), RunnerError> {
        let last = self.runner.durable().last_run()?;
        let order = RunOrder {
            seq: adoption.seq,
            root: adoption.root,
            intended: true,
            unfinished: last.map(|last| last.unfinished).unwrap_or_default(),
            pause: None,
            scope: RunScope::All,
            requested_tags: Default::default(),
        };
        let bound = self.runner.bind_release(adoption.clone(), self.traits)?;
        let run = self.runner.run_taking_back(&order, &bound, RunMode::Apply, taken_back)?;
        let read = self.runner.read_traits(self.traits).map_or(Digest::ZERO, |read| read.digest);
        Ok((run, node::step::inputs_digest(&adoption.root, &read)))
    }
}
