//! Links over transports, the same at both ends: gRPC, WebSocket, server-sent events, polls.
//!
//! [`drive::drive`] runs a [`sync::link::Link`] between a transport's [`ends`] and a
//! [`shore::Shore`], which keeps the sets and applies what comes. It decides nothing: what is
//! to be done is the link's word, how it is carried the ends', how it is kept the shore's.

pub mod body;
pub mod drive;
pub mod ends;
pub mod grpc;
pub mod memory;
pub mod open;
mod order;
pub mod shore;
pub mod sse;
pub mod websocket;
mod weight;

pub use drive::{Ended, Order, Orders, Taken, drive};
pub use ends::{EndsError, Incoming, Outgoing};
pub use memory::MemoryShore;
pub use shore::Shore;
