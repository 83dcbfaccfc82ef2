//! [`FleetAdmission`] and [`StreamAdmission`]: how often links are opened, of all nodes together and of
//! one, how many nodes resync at once, which requests of one node wait, and which link has its turn
//! (SYN-6, SYN-13, IDN-10).
//!
//! ```text
//! request --enter: rate of the node, of the fleet--> judging --registered--> lease --> link
//! ```
//!
//! Invariants: requests wait to be judged, and for the lease, for a bounded time; a stream of two ways
//! that waits for the lease gives up when a newer one takes its place; one of the last two instances that
//! were replaced does not come back while the node has a link or posted recently.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::replication::TransportKind;
use model::{NodeId, Timestamp};
use streams::task::link_time;
use sync::admission::{REINCARNATION_INTERVAL, RateLimiter, ResyncAdmission};
use sync::link::Limits;
use tokio::time::Instant;

use super::StreamConfig;

/// Links opened in a second, when many come back at once (SYN-13).
const FLEET_PER_SEC: u32 = 1500;
/// Links opened at once after a rest: all that a control plane is made for (SCL-1) come back after its
/// restart, and are paced by their handshakes.
const FLEET_AT_ONCE: u32 = 10_000;
/// Links that one node opens in a second.
const NODE_PER_SEC: u32 = 1;
/// Links that one node opens at once after a rest.
const NODE_AT_ONCE: u32 = 30;
/// An agent that posted within this holds the node's identity, as one with a link does.
const POSTED_WITHIN: Duration = Duration::from_secs(300);

/// What the links of all nodes share.
pub(crate) struct FleetAdmission {
    /// Bounds and waits of each link.
    pub(super) limits: Arc<Limits>,
    resyncs: Mutex<ResyncAdmission<NodeId>>,
    rate: Mutex<RateLimiter>,
}

impl FleetAdmission {
    pub(crate) fn new(config: StreamConfig) -> FleetAdmission {
        let resyncs = config.resyncs.clamp(StreamConfig::RESYNCS.min, StreamConfig::RESYNCS.max);
        FleetAdmission {
            limits: Arc::new(Limits::default().with(config.settings)),
            resyncs: Mutex::new(ResyncAdmission::new(resyncs as usize)),
            rate: Mutex::new(RateLimiter::new(FLEET_PER_SEC, FLEET_AT_ONCE, Timestamp(0))),
        }
    }

    /// Takes a token of the node's rate, then one of the fleet's.
    ///
    /// # Errors
    /// How long to stay away.
    pub(super) fn enter(&self, node: &StreamAdmission) -> Result<(), Duration> {
        let full = || RateLimiter::new(NODE_PER_SEC, NODE_AT_ONCE, Timestamp(0));
        node.known().rate.get_or_insert_with(full).take(link_time())?;
        self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(link_time())
    }

    pub(super) fn resyncs(&self) -> MutexGuard<'_, ResyncAdmission<NodeId>> {
        self.resyncs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a node's stream requests.
#[derive(Default)]
pub(crate) struct StreamAdmission {
    known: Mutex<AdmissionState>,
    /// Requests for links are judged one after the other.
    pub(super) judging: tokio::sync::Mutex<()>,
    /// The right of one link to work on the node's sets.
    pub(super) lease: Arc<tokio::sync::Mutex<()>>,
    /// One post of the node is answered at a time.
    pub(super) posting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct AdmissionState {
    /// `None` before the first.
    rate: Option<RateLimiter>,
    /// The instance of the agent that opened a link last, or posted; before it those whose place it took:
    /// one of them that comes back is a second agent.
    instances: [Option<Arc<str>>; 3],
    posted: Option<Instant>,
    reincarnated: Option<Instant>,
}

impl StreamAdmission {
    fn known(&self) -> MutexGuard<'_, AdmissionState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An instance of the agent opens a link, and takes the place of another one.
    pub(super) fn opened_by(&self, instance: &Arc<str>, transport: TransportKind) {
        let mut known = self.known();
        if transport == TransportKind::Poll {
            known.posted = Some(Instant::now());
        }
        if known.instances[0].as_ref() != Some(instance) {
            known.instances.rotate_right(1);
            known.instances[0] = Some(instance.clone());
        }
    }

    /// Whether another instance took the place of this one: a process does not come back.
    pub(super) fn was_replaced(&self, instance: &Arc<str>) -> bool {
        self.known().instances.iter().flatten().position(|known| known == instance) > Some(0)
    }

    /// Whether the node posted not long ago.
    pub(super) fn has_recent_post(&self) -> bool {
        self.known().posted.is_some_and(|at| at.elapsed() < POSTED_WITHIN)
    }

    /// How long it is until the feed's incarnation may be begun anew again, if it may not now.
    pub(super) fn reincarnation_allowed_in(&self) -> Option<Duration> {
        let since = self.known().reincarnated?.elapsed();
        REINCARNATION_INTERVAL.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// The feed's incarnation is begun anew now.
    pub(super) fn reincarnates(&self) {
        self.known().reincarnated = Some(Instant::now());
    }
}
