//! The control plane's step: what a node is pointed to, what it is answered, how it fares.
//!
//! Pure. [`heads`] holds the releases that channels point to; [`node`] holds what is known
//! of one node (an entry of the FleetIndex) and answers its check-in, [`status`] says how it fares, [`rollout`] where a
//! rollout points it; [`lists`] says which tokens may be used and which nodes are revoked; [`replay`] refuses requests
//! seen before; [`copies`] tells two holders of one key apart; [`joining`] judges hosts that ask to join; [`absence`]
//! keeps its own outages from counting as the silence of nodes; [`budget`] bounds what one node may send; [`work`] holds
//! tasks, queries and workflows. The shell loads them from the store, calls them under a lock, and
//! makes durable what they say before it answers.
//!
//! Invariant: an unchanged check-in (DLT-1) looks nothing up and builds nothing; it
//! compares a number and a digest.

pub mod absence;
pub mod budget;
pub mod copies;
pub mod heads;
pub mod joining;
pub mod lists;
pub mod node;
pub mod open_items;
pub mod renewal;
pub mod replay;
pub mod rollout;
pub mod seen;
pub mod status;
pub mod work;

pub use absence::absence_before;
pub use budget::ByteBudget;
pub use heads::{Head, Heads, NodeHeader};
pub use node::{NodeState, ReportedRefusal, SetBase, SetWanted, Step};
pub use open_items::OpenItems;
pub use replay::Window;
pub use rollout::{ContactNews, PointedRollout, PointerChange};
pub use seen::KeptSeen;
