//! Links with nodes: what carries them (SYN-1), who may open one (SYN-13), and what lies
//! behind them at the control plane.
//!
//! ```text
//! request --(caller known)--> StreamAdmission --> serve.rs: a link of a stream
//!                                            +--> posted.rs, rpc.rs: an exchange, server-sent events
//!                   PlaneLinkHandler: sets, store, check-ins, status, metrics --+--> Hub
//! announce.rs: what a publish or a run request changes --> links
//! ```
//!
//! Invariants: a node has one link at a time, beside whose server-sent events the posts of the same
//! process are the way up; another one takes the place of the first, unless the first lives on under
//! another process: then two agents use one identity. How often links are opened and how many nodes
//! resync at once is bounded for the whole fleet ([`FleetAdmission`]).

mod admission;
mod announce;
mod handler;
mod posted;
mod rpc;
mod serve;
mod standard;

use model::replication::{Bounds, LinkSettings};

pub(crate) use admission::{FleetAdmission, StreamAdmission};
pub(crate) use announce::announce;
pub(crate) use posted::events;
pub(crate) use rpc::{ping, push, refused, version};
pub(crate) use serve::{sse, subscribe, websocket};
pub(crate) use standard::{health_check, health_watch, reflection};

/// What the control plane's ends of links go by (SYN-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Bounds and waits of each link.
    pub settings: LinkSettings,
    /// Resyncs of the whole fleet at once, within [`StreamConfig::RESYNCS`].
    pub resyncs: u32,
}

impl StreamConfig {
    /// Of [`StreamConfig::resyncs`].
    pub const RESYNCS: Bounds = Bounds { min: 1, max: 1024, default: sync::admission::MAX_RESYNCS as u32 };
    /// The control plane pings later than nodes do, whose pings make its own needless.
    pub const KEEPALIVE_SECS: u32 = 100;
}

impl Default for StreamConfig {
    fn default() -> StreamConfig {
        let settings =
            LinkSettings { keepalive_secs: StreamConfig::KEEPALIVE_SECS, ..LinkSettings::default() };
        StreamConfig { settings, resyncs: StreamConfig::RESYNCS.default }
    }
}
