//! Work on the node: what becomes of the actions that the control plane asks for (OPS-2,
//! LIF-5). One machine runs commands, named actions, queries and operations on objects (SYN-5).
//!
//! ```text
//! Action object --Put--> waits --Begin--> mark durable --Begun--> runs --+--> End: fact `ended`
//!                          |              fact `started`            |    |
//!                          |                                        +----+  Output: facts
//!                          +--> not allowed, expired, withdrawn: fact `ended`, never begun
//!
//! at start: a mark without an end --> fact `ended` (unknown), never run again
//! object gone and order expired   --> Forget the mark
//! ```
//!
//! Pure: [`WorkMachine::handle`] turns an [`WorkInput`] into [`WorkEffect`]s; the shell carries them out
//! in their order and reports back. What a node may be asked for is judged by a function
//! that the shell gives: over the delegations, and for operations over the leave to synchronize,
//! of the release that is held at that moment.
//!
//! Invariants:
//!
//! - *At most once.* A [`ActionMark`] and the fact `started` are durable before anything is
//!   executed. An id with a mark is never begun again; a mark goes only when its object is
//!   gone *and* its order has expired, so that even a control plane that was restored from
//!   an old backup and asks again is answered with "expired".
//! - What was begun and has no terminal fact when the agent starts is `unknown`: it is said
//!   once and never run again. So is each order that is there when marks were found damaged and that
//!   has none ([`RestoredWork::presume_begun`]).
//! - At most [`MAX_PARALLEL`] run at a time; the others wait, in the order in which they came.
//! - What never runs is answered at a pace: [`REFUSALS`] at once, then one in [`REFUSAL_EVERY`].
//! - Output is kept up to [`model::work::MAX_OUTPUT`]; what is left out is counted.
//!
//! What must be durable: each mark, by id ([`WorkEffect::Begin`], [`WorkEffect::End`],
//! [`WorkEffect::Remember`] write one, [`WorkEffect::Forget`] takes one away), and the fact log.

mod freshness;
mod io;
mod machine;
mod order;
mod output;
mod refusal_limiter;
mod waiting;

pub use freshness::check_fresh;
pub use io::{ActionMark, ActionStage, RestoredWork, WorkEffect, WorkInput, WorkPermit, WorkTime};
pub use machine::{Allows, WorkMachine};
pub use order::{MAX_ORDER, OrderError, order_of};

use std::time::Duration;

/// The most actions that run at a time.
pub const MAX_PARALLEL: usize = 4;
/// The most actions that wait for their turn; one more is refused.
pub const MAX_WAITING: usize = 1024;
/// The most marks that are kept; with more, new actions are refused.
pub const MAX_MARKS: usize = 16 * 1024;
/// The most actions that are over and whose answers are not kept yet; one more that never ran
/// is not answered.
pub const MAX_ENDING: usize = MAX_MARKS;
/// So many actions that never run are answered at once.
pub const REFUSALS: u32 = 2048;
/// After that one of them is answered in this time.
pub const REFUSAL_EVERY: Duration = Duration::from_millis(100);
/// The longest reason in an answer, in bytes.
pub const MAX_MESSAGE: usize = 1024;
/// An order counts as expired this long after it came, whatever it says itself, so that no
/// mark is kept for ever.
pub const MAX_EXPIRES: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long output waits for more of it before it becomes a fact. It doubles with every
/// [`FLUSHES_PER_STEP`] facts of one action, up to [`MAX_FLUSH`], so that a long action that
/// prints a little all the time does not fill the log.
pub const FLUSH: Duration = Duration::from_millis(500);
/// The longest that output waits.
pub const MAX_FLUSH: Duration = Duration::from_secs(300);
/// Facts of output after which the wait doubles.
pub const FLUSHES_PER_STEP: u32 = 32;
/// How long running actions may go on when the agent stops, before they are ended.
pub const DRAIN: Duration = Duration::from_secs(30);
/// The wait before a terminal fact that could not be kept is tried again.
pub const RETRY: Duration = Duration::from_secs(5);
