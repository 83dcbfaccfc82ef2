//! Links over transports, the same at both ends: gRPC, WebSocket, server-sent events, polls.
//!
//! [`task::run_link`] runs a [`sync::link::Link`] between the two halves of a transport and a
//! [`handler::LinkHandler`], which keeps the sets and applies what comes.
//!
//! ```text
//! transport --> FrameReader --> LinkTask (Link) --> FrameWriter --> transport
//!                                  ^   |
//!                     outcomes ----+   +---> LinkHandler: load, apply, reincarnate, check-ins, permits
//! ```
//!
//! Invariants: what is said and done is the link's to decide; frames keep their order, those of the
//! control frames among themselves and before data ([`sync::link::may_overtake`]); what is queued is
//! bounded, and above the bound the task stops reading instead of dropping.

mod command;
pub mod grpc;
pub mod handler;
pub mod open;
pub mod sse;
pub mod task;
pub mod transport;
pub mod websocket;
pub mod weight;

pub use handler::{LinkHandler, LoadError};
pub use sync::link::LinkCommand;
pub use task::{Ended, Exchange, LinkCommands, LinkHandle, run_link};
pub use transport::{FrameReader, FrameWriter, TransportError};
