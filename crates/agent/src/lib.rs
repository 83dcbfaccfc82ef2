//! `muster-agent`: the node's shell around [`node`] and [`converge`].
//!
//! ```text
//! clock invocation render identity service local::messages          no state of their own
//!   versions <- state <- storage <- release              what is durable; who writes; what is held
//!     session <- dialing contact renewal                 requests and streams; how contacts went
//!       events                                           the way to the daemon
//!         sync <- work                                   objects; actions
//!           fetch exchange run_mark runner <- watch deadlines outcomes      contents; check-ins; runs, by resource
//!             full_runs <- generations <- activations        runs without the daemon; the way back; what is on trial
//!             status why doctor bundle files             what people ask of one host
//!             local                                      the Unix socket: both ends
//!               daemon <- verbs                          the node's step, and what people type
//! ```
//!
//! A module uses those above it and to its left, and none uses the daemon but the verbs.
//!
//! Threads: one runs the step, the network and the clock ([`daemon`]); one writes ([`storage`]); a
//! run has one, and each command that may hang has one more; traits are collected on others; the
//! reconciler of synchronized objects ([`sync::reconciler`]) and work ([`work`]) have one each.
//! Everything durable goes through [`state`]. There is no database, no console and no reader of
//! fleet repos here.

pub(crate) mod activations;
pub mod bundle;
mod capabilities;
mod changes;
pub mod clock;
pub mod closure_relay;
pub mod contact;
pub mod daemon;
mod deadlines;
pub mod delegated;
pub mod dialing;
pub mod doctor;
pub mod events;
pub mod exchange;
mod failed_join;
pub mod fetch;
pub mod files;
pub mod full_runs;
pub mod generations;
pub mod guard;
pub mod healing;
mod http_exchange;
pub mod identity;
pub mod invocation;
mod job_outcomes;
pub mod join;
pub mod local;
pub mod machine;
pub mod membership;
pub mod outcomes;
mod outgoing_call;
mod packed;
pub mod prepare;
mod rejoin;
pub mod release;
pub mod render;
mod renewal;
pub mod run_mark;
pub mod runner;
mod secrets;
mod seen_record;
pub mod service;
pub mod session;
pub mod state;
mod state_guard;
pub mod status;
pub mod storage;
pub mod sync;
pub mod verbs;
pub mod versions;
mod volatile_file;
pub mod why;
pub mod work;
