//! [`NodeLink`]: the link that a node has now, as everybody else sees it.
//!
//! ```text
//! open --> connecting --hello--> met: takes commands --end, or replaced--> ending --> dropped
//! ```
//!
//! Invariants: the first reason to end counts; nothing is asked of the other side before its hello.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use model::condition::SyncCause;
use model::replication::{Mode, SyncPolicy, TransportKind};
use model::{NodeId, Timestamp};
use streams::{LinkCommands, LinkHandle};
use sync::frame::{GoAway, Interop, Ping};
use sync::{FeedCursor, Frame};
use tokio::sync::SetOnce;

pub(crate) use streams::LinkCommand;

/// How long the other side of a link that is probed has to answer.
const PROBE: Duration = Duration::from_secs(5);
/// Between two looks whether it did.
const PROBE_AGAIN: Duration = Duration::from_millis(50);
/// Pings of probes are numbered from here on, apart from those of resyncs.
const PROBES_FROM: u64 = 1 << 40;

/// The link that a node has now.
#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) node: NodeId,
    pub(crate) transport: TransportKind,
    /// The instance of the agent that opened it, when it is known; never empty.
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) since: Timestamp,
    /// What the release had of synchronization when the link was made; not set before.
    pub(crate) rules: OnceLock<Arc<SyncPolicy>>,
    report: Mutex<LinkReport>,
    /// Takes commands to the link.
    pub(crate) commands: LinkHandle,
    ending: SetOnce<GoAway>,
    /// The other side said hello.
    met: AtomicBool,
    /// The number of the ping of the last probe.
    probed: AtomicU64,
    /// The number of the last pong.
    ponged: AtomicU64,
}

/// What a link reports of both sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkReport {
    /// How they stand.
    pub(crate) cause: SyncCause,
    /// How far the node has our feed, durably; nothing beyond what the feed has.
    pub(crate) acked: Option<FeedCursor>,
    /// Objects of the replica of the node's feed.
    pub(crate) objects: u64,
    /// How many objects the node rejects, by its last frame.
    pub(crate) rejected: Option<u64>,
}

impl NodeLink {
    /// A link that is about to begin, and the commands that it gets from elsewhere.
    pub(crate) fn new(
        node: NodeId,
        transport: TransportKind,
        instance: Option<Arc<str>>,
        since: Timestamp,
    ) -> (NodeLink, LinkCommands) {
        let (commands, taken) = streams::task::commands();
        let report = LinkReport { cause: SyncCause::Connecting, acked: None, objects: 0, rejected: None };
        let link = NodeLink {
            node,
            transport,
            instance,
            since,
            rules: OnceLock::new(),
            report: Mutex::new(report),
            commands,
            ending: SetOnce::new(),
            met: AtomicBool::new(false),
            probed: AtomicU64::new(PROBES_FROM),
            ponged: AtomicU64::new(0),
        };
        (link, taken)
    }

    /// Whether the release synchronized objects when the link was made.
    pub(super) fn synchronizes(&self) -> bool {
        self.rules.get().is_some_and(|rules| rules.mode != Mode::Off)
    }

    /// Whether a post is the way up of this link: that is a stream down of the same process.
    pub(super) fn goes_up_by(&self, post: &NodeLink) -> bool {
        let (down, up) = (TransportKind::Sse, TransportKind::Poll);
        let other = self.instance.is_some() && post.instance.is_some() && self.instance != post.instance;
        self.transport == down && post.transport == up && !other
    }

    /// Whether the node said hello: before that no command reaches it.
    pub(super) fn has_met(&self) -> bool {
        self.met.load(Ordering::Acquire)
    }

    /// Whether an agent is at the other end, as far as a stream of two ways shows: one that answers a ping of
    /// now. Other frames show nothing, because the host of an agent that was killed sends what it had written
    /// once its network is back.
    pub(crate) async fn is_alive(&self) -> bool {
        if matches!(self.transport, TransportKind::Poll | TransportKind::Sse) {
            return false;
        }
        let number = self.probed.fetch_add(1, Ordering::AcqRel) + 1;
        let answered = async {
            while self.ponged.load(Ordering::Acquire) < number {
                tokio::time::sleep(PROBE_AGAIN).await;
            }
        };
        let ping = Frame::Ping(Ping { number, ..Ping::default() });
        self.commands.try_send(LinkCommand::Send(Box::new(ping)))
            && tokio::time::timeout(PROBE, answered).await.is_ok()
    }

    /// The other side said hello.
    pub(super) fn meets(&self) {
        self.met.store(true, Ordering::Release);
    }

    /// The other side answered the ping of that number last.
    pub(crate) fn hears_pong(&self, number: u64) {
        self.ponged.store(number, Ordering::Release);
    }

    /// The link is to end, however much it has to do. The first reason counts.
    pub(crate) fn end(&self, code: &str, message: &str) {
        let why = GoAway { code: code.to_owned(), message: message.to_owned(), retry_after: None };
        let _ = self.ending.set(why);
    }

    /// Waits until the link is to end.
    pub(crate) async fn ending(&self) -> GoAway {
        self.ending.wait().await.clone()
    }

    /// How both sets stand, as the link saw them last.
    pub(super) fn report(&self) -> MutexGuard<'_, LinkReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link reports this; what it reported before, when that was something else.
    pub(super) fn reports(&self, report: &LinkReport) -> Option<LinkReport> {
        let mut last = self.report();
        (*last != *report).then(|| std::mem::replace(&mut *last, report.clone()))
    }
}

/// What operators asked of a node's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Compare everything.
    pub(crate) resync: bool,
    /// Delete what the source no longer has, however much it is.
    pub(crate) approve: bool,
}

impl Wants {
    /// With what the node is asked to compare everything.
    pub(super) fn resync_frame() -> Frame {
        Frame::Interop(Box::new(Interop::RequestResync))
    }
}
