//! Links with nodes: what carries them (SYN-1), who may open one (SYN-13), and what lies
//! behind them at the control plane.
//!
//! A node has one link at a time. Whoever opens another one takes the place of the first;
//! unless the first lives on under another process: then two agents use one identity.

mod admission;
mod handler;
mod news;
mod posted;
mod rpc;
mod serve;
mod standard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::{NodeId, Timestamp};
use sync::admission::{Admission, Pace, Turn};
use tokio::time::Instant;

pub(crate) use admission::StreamAdmission;
pub(crate) use news::announce;
pub(crate) use posted::events;
pub(crate) use rpc::{ping, push, refused, version};
pub(crate) use serve::{sse, subscribe, websocket};
pub(crate) use standard::{health_check, health_watch, reflection};

use posted::Sessions;

/// Resyncs at once.
const RESYNCS: usize = sync::admission::MAX_RESYNCS;
/// Links opened in a second, when many come back at once (SYN-13).
const OPENED_PER_SEC: u32 = 1500;
/// Links opened at once after a rest.
const OPENED_AT_ONCE: u32 = 3000;

/// What all links share.
pub(crate) struct Links {
    resyncs: Mutex<Admission<NodeId>>,
    pace: Mutex<Pace>,
    sessions: Sessions,
    began: Instant,
    count: AtomicU64,
}

impl Links {
    pub(crate) fn new() -> Links {
        Links {
            resyncs: Mutex::new(Admission::new(RESYNCS)),
            pace: Mutex::new(Pace::new(OPENED_PER_SEC, OPENED_AT_ONCE, Timestamp(0))),
            sessions: Sessions::default(),
            began: Instant::now(),
            count: AtomicU64::new(0),
        }
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
        match self.resyncs.lock().unwrap_or_else(PoisonError::into_inner).ask(node, self.now()) {
            Turn::Now => Ok(()),
            Turn::Later(wait) => Err(wait),
        }
    }

    fn return_permit(&self, node: &NodeId) {
        self.resyncs.lock().unwrap_or_else(PoisonError::into_inner).give_back(node);
    }

    /// A number for a link, unique in this start.
    fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}
