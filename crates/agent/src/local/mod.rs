//! The Unix socket where local verbs speak with the daemon (docs/agent-socket.md).
//!
//! ```text
//! muster-agent VERB: client --HTTP/1.1, JSON--> server, route --> handler --LocalCommand--> daemon
//!                                                                    |  ^                     |
//!                                                                    v  |                     v
//!                                              Runner (plans), files    +------- LocalState <-+
//! ```
//!
//! The server is a task of the daemon's thread and does nothing there but move bytes: what reads
//! files, plans or writes JSON is done on other threads. What changes something is an event of the
//! daemon, as everything is that happens to it.
//!
//! Invariants: root and the agent's own user do everything, whoever else may connect only reads
//! (SO_PEERCRED); at most [`server::MAX_CONNECTIONS`] connections, one request each, of at most
//! [`server::MAX_BODY`] bytes, within a time; a live socket is never replaced, a dead one's file is.

pub mod client;
pub(crate) mod handler;
pub mod messages;
pub mod path;
mod problem;
pub mod route;
pub mod server;
pub mod state;

pub use problem::{LocalProblem, LocalProblemCode};
