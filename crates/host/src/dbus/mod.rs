//! A D-Bus client of what the agent asks of the system bus: method calls with simple arguments,
//! answers of any type, signals. It waits in the thread that calls it, and each wait has a limit.
//!
//! ```text
//! BusConnection::open   socket -> AUTH EXTERNAL -> BEGIN -> Hello
//! BusConnection::call   message::encode -> socket -> message::Message::decode -> BusValue
//! BusConnection::signal the next signal that a match rule let through
//! ```
//!
//! It is own code because the agent's size is bounded: a library for D-Bus adds more than the rest of
//! the agent has room for, and brings an executor, a type system and macros for four kinds of arguments.
//!
//! Invariants: nothing that the bus sends makes it panic, allocate without bound or recurse without
//! bound; a connection that failed once is not used again (its owner drops it).

mod connection;
mod message;
mod value;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use connection::BusConnection;
pub(crate) use message::{BusArgument, BusCall, BusSignal};
pub(crate) use value::BusValue;

/// Why the bus did not answer, or refused.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Nothing listens at the bus's socket.
    #[error(
        "the system bus does not answer at {}: {source}; look at `systemctl status dbus.socket`, and whether the package dbus is installed",
        path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The bus let nobody in.
    #[error("the system bus refused the agent: {0}")]
    Refused(String),
    /// The connection ended.
    #[error("the connection to the system bus ended: {0}")]
    Lost(io::Error),
    /// No answer came in time.
    #[error("{what} gave no answer within {} s", after.as_secs_f32())]
    TimedOut {
        /// What was asked.
        what: String,
        /// The limit.
        after: Duration,
    },
    /// What came is no message as the protocol has it.
    #[error("the system bus sent what cannot be read: {0}")]
    Malformed(&'static str),
    /// The other side answered with an error.
    #[error("{message}")]
    Failed {
        /// Its name on the bus, `org.freedesktop.systemd1.NoSuchUnit`.
        name: String,
        /// In words.
        message: String,
    },
    /// The agent is stopping.
    #[error("the agent is stopping")]
    Cancelled,
}

impl BusError {
    /// Whether the connection may still be used: the other side answered.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, BusError::Failed { .. })
    }
}
