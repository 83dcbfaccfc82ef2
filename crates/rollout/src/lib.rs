//! Rollouts: how a release reaches the nodes of its channel, wave by wave, and stops itself.
//!
//! ```text
//! signed terms (trust::rollout_terms) --RolloutRules::place--> wave, budgets, edges of each node
//!
//! Published, Joined, Removed, Contact, Event, Command, Tick
//!        |
//!  Rollouts::handle(input, now) --> RolloutStep { commit, answer, effects }
//!        |                            |  a store makes the commit durable where its guards hold,
//!        |                            |  then gives the answer and carries out the effects
//!        +--- Rollouts::reload  <-----+  where they do not, what is stored takes the place of what is held
//! ```
//!
//! Pure: time, contact and events are arguments, effects are values. [`state`] has the tables of what follows
//! what. What a step decides is a compare-and-set: each changed rollout names the version that the decision
//! was made by, and each budget of which a slot was taken as well, so of two control planes that decide at
//! once one loses and decides again over what is stored. A publication changes the versions of its channel's
//! newest rollouts too, so that nobody decides over a channel whose newest release it does not know.
//!
//! Invariants (tests/rollouts_keep_their_promises.rs drives them through random worlds):
//!
//! - *Budgets are never exceeded* (ROL-1). Asked counts as in flight, and a node begins only after its
//!   acknowledgement was taken, so a request that was withdrawn begins nothing. Two rollouts of one budget
//!   share it. A confirmed node that goes back by itself takes a slot that nobody gave it, so that others wait for it.
//! - *Converged rests on probes*: declared after the activation, every enforcing one passed since, in the
//!   same boot, and the soak over from the node's own activation.
//! - *No wave opens before its gate and its `notBefore`*; an operator may pass a gate, never the time.
//! - *Who counts as confirmed is on the release*: a node that goes back by itself before it heard that its rollout was
//!   through counts as failed, and is never told to go on with what it left.
//! - *A halted rollout starts nothing*, in the same wave neither; what was asked and did not begin is not
//!   asked any more.
//! - *Nobody is asked for a way back that was given up*: a node that is confirmed in a rollout that was through is told
//!   that it ended, and stays where it is, whatever becomes of the rollout.
//! - *Nobody is stranded*: a node that can be reached is confirmed, or has a cause that is named
//!   ([`Rollouts::explain`]). Offline nodes hold no wave and are taken along when they return; so are those that say
//!   why they do not begin yet ([`BeginRefusal`]). Edges that
//!   close a circle hold nobody; a wave that comes later holds no node of an earlier one by an edge.
//!
//! Who joins in mid-rollout is in the wave that the rules give. Until that opens the node is pointed to the
//! release of before; one that has none is taken along at once and counts nowhere, as it has nothing that
//! could break.
//!
//! One event looks at one member: waves, edges and budgets are counted, and members that may begin stand in
//! queues by what they wait for.

mod advance;
mod begin;
mod budget;
pub mod cadence;
mod commands;
mod counts;
mod coverage;
mod edge_order;
mod ending;
pub mod event;
mod explain;
mod follow;
mod heard;
mod id;
mod live;
pub mod member;
mod member_events;
mod membership;
mod nodes;
mod placement;
mod pointers;
mod probes;
mod queue;
pub mod record;
mod rollouts;
pub mod state;
mod step;

pub use begin::BeginWait;
pub use coverage::{Coverage, CoverageMistake};
pub use ending::{MAX_SUPERSEDED, RETENTION};
pub use event::{EventAnswer, EventCursor, EventOrder, EventRefusal, RolloutEvent, RolloutEventBody};
pub use explain::{ConfirmEvidence, NodeExplanation, WaitCause};
pub use follow::{EarlierRelease, HeadKind, HeadStep, ReleaseBefore, reads_declared};
pub use id::{MAX_ROLLOUT_ID, ParseRolloutIdError, RolloutId, RolloutKey};
pub use member::{HeldOff, MemberFailure, MemberGoal, MemberRecord};
pub use placement::{BeginRefusal, DRAWS, Placement, PossiblePlaces, RolloutRules, draw, takes};
pub use probes::{SelectProbesError, probes_of};
pub use record::{
    BudgetVersions, DecisionGuard, HaltCause, RolloutChange, RolloutCommit, RolloutDocument, StoredRollout,
};
pub use rollouts::{CLOCK_BACK, MAX_STARTS, Rollouts, STEP_GAP};
pub use state::{NodeRolloutState, RolloutState};
pub use step::{
    ApprovedGate, CommandRefusal, JoiningNode, NewRollout, NextCall, OffRelease, OpenReason, PublishRefusal,
    RolloutAnswer, RolloutCommand, RolloutEffect, RolloutInput, RolloutNote, RolloutPointer, RolloutStep,
};
