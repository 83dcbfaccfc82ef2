//! The agent's step: `handle(input, now) -> effects`, `next_deadline() -> (when, why)`.
//!
//! Pure: what the agent does next depends only on what it holds, its inputs and the
//! time it is given. The shell carries out the effects and reports back as inputs; the
//! simulator does the same in memory.
//!
//! Invariants: nothing of an offer is used before [`trust::adopt::judge`] accepted it; an
//! adoption is durable before anything of it is converged; a node that cannot reach its
//! control plane converges on what it holds for ever.

pub mod backoff;
mod clock_difference;
mod correction_backoff;
pub mod freshness;
pub mod healing;
pub mod io;
pub mod joining;
mod left_out;
pub mod reboot;
mod renewal;
pub mod repeat_backoff;
pub mod reported_contentions;
mod rollout_activation;
mod rollout_numbers;
mod rollout_part;
pub mod state;
pub mod step;
pub mod witness;
pub mod work;

pub use freshness::FreshnessRecord;
pub use healing::{Healing, SuspectedDrift};
pub use io::{
    CheckInWay, HeldSettings, Identity, NodeEffect, NodeInput, ObservedTraits, ReadTraits, Restored,
    RunFailure, RunOrder,
};
pub use left_out::{CheckInOmissions, Omission, TooLarge};
pub use reboot::{RebootMark, RebootOutlook, RebootPlan};
pub use renewal::RenewalProof;
pub use repeat_backoff::RepeatBackoff;
pub use rollout_activation::RolloutActivation;
pub use rollout_numbers::{MAX_NUMBERED_ROLLOUTS, RolloutNumbers};
pub use rollout_part::{
    ActivationRequest, PreparedRelease, RequestNumber, ReturnedRelease, RolloutPart, TrialReport, TrialStage,
    activation_terms,
};
pub use state::{Adoption, LastRun, TrustRecord};
pub use step::Node;
pub use witness::Witness;
