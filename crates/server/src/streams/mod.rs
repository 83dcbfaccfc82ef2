//! Links with nodes: what carries them (SYN-1), who may open one (SYN-13), and what lies
//! behind them at the control plane.
//!
//! ```text
//! request --(caller known)--> StreamAdmission --> serve.rs: a link of a stream
//!                                            +--> posted.rs: an exchange, or events pushed down
//!                   PlaneLinkHandler: sets, store, check-ins, status, metrics --+--> Hub
//! announce.rs: what a publish or a push changes --> links
//! ```
//!
//! Invariants: a node has one link at a time; whoever opens another one takes the place of the first,
//! unless the first lives on under another process: then two agents use one identity. How many open
//! links and resync at once is bounded for the whole fleet ([`Links`]).

mod admission;
mod announce;
mod handler;
mod posted;
mod rpc;
mod serve;
mod standard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::replication::{Bounds, LinkSettings};
use model::{NodeId, Timestamp};
use sync::admission::{RateLimiter, ResyncAdmission};
use tokio::time::Instant;

pub(crate) use admission::StreamAdmission;
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

/// Links opened in a second, when many come back at once (SYN-13).
const OPENED_PER_SEC: u32 = 1500;
/// Links opened at once after a rest.
const OPENED_AT_ONCE: u32 = 3000;

/// What all links share.
pub(crate) struct Links {
    settings: LinkSettings,
    resyncs: Mutex<ResyncAdmission<NodeId>>,
    pace: Mutex<RateLimiter>,
    began: Instant,
    count: AtomicU64,
}

impl Links {
    pub(crate) fn new(config: StreamConfig) -> Links {
        let resyncs = config.resyncs.clamp(StreamConfig::RESYNCS.min, StreamConfig::RESYNCS.max);
        Links {
            settings: config.settings.bounded(),
            resyncs: Mutex::new(ResyncAdmission::new(resyncs as usize)),
            pace: Mutex::new(RateLimiter::new(OPENED_PER_SEC, OPENED_AT_ONCE, Timestamp(0))),
            began: Instant::now(),
            count: AtomicU64::new(0),
        }
    }

    /// Bounds and waits of each link.
    fn settings(&self) -> LinkSettings {
        self.settings
    }

    /// Time that only goes forward.
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Takes a place in the line of those who connect, behind that of the node's own links.
    ///
    /// # Errors
    /// How long to stay away.
    fn enter(&self, node: &StreamAdmission) -> Result<(), Duration> {
        node.enter(self.now())?;
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).take(self.now())
    }

    fn permit(&self, node: &NodeId) -> Result<(), Duration> {
        self.resyncs.lock().unwrap_or_else(PoisonError::into_inner).ask(node, self.now())
    }

    fn return_permit(&self, node: &NodeId) {
        self.resyncs.lock().unwrap_or_else(PoisonError::into_inner).give_back(node);
    }

    /// A number for a link, unique in this start.
    fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}
