//! Links over transports, the same at both ends: gRPC, WebSocket, server-sent events, polls.
//!
//! [`task::run_link`] runs a [`sync::link::Link`] between a transport's [`ends`] and a
//! [`handler::LinkHandler`], which keeps the sets and applies what comes. It decides nothing: what is
//! to be done is the link's word, how it is carried the ends', how it is kept the handler's.

pub mod body;
mod command;
pub mod grpc;
pub mod handler;
pub mod memory;
pub mod open;
pub mod sse;
pub mod task;
pub mod transport;
pub mod websocket;
mod weight;

pub use handler::LinkHandler;
pub use memory::MemoryLinkHandler;
pub use task::{Ended, Exchange, LinkCommand, LinkCommands, LinkHandle, run_link};
pub use transport::{FrameReader, FrameWriter, TransportError};
