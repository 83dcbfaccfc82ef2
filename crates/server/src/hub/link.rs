//! [`NodeLink`]: the link that a node has now, as everybody else sees it.
//!
//! ```text
//! open --> connecting --hello--> met: takes commands --end, or replaced--> ending --> dropped
//! ```
//!
//! Invariants: the first reason to end counts; nothing is asked of the other side before its hello.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use model::condition::SyncCause;
use model::replication::{Mode, SyncPolicy, TransportKind};
use model::{NodeId, Timestamp};
use streams::task::link_time;
use streams::{LinkCommands, LinkHandle};
use sync::frame::{GoAway, Interop, Ping};
use sync::{FeedCursor, Frame};
use tokio::sync::SetOnce;

pub(crate) use streams::LinkCommand;

/// How long the other side of a link that is probed has to say something.
const PROBE: Duration = Duration::from_secs(5);
/// Between two looks whether it did.
const PROBE_AGAIN: Duration = Duration::from_millis(50);

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
    /// When the other side was heard last, in the milliseconds of links; before its hello long ago.
    heard: AtomicI64,
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
            heard: AtomicI64::new(i64::MIN),
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
        self.heard.load(Ordering::Acquire) > i64::MIN
    }

    /// Whether an agent is at the other end, as far as a stream of two ways shows.
    pub(crate) async fn is_alive(&self) -> bool {
        if matches!(self.transport, TransportKind::Poll | TransportKind::Sse) {
            return false;
        }
        let asked = link_time();
        let heard = async {
            while self.heard.load(Ordering::Acquire) < asked.0 {
                tokio::time::sleep(PROBE_AGAIN).await;
            }
        };
        let ping = Frame::Ping(Ping::default());
        self.commands.try_send(LinkCommand::Send(Box::new(ping)))
            && tokio::time::timeout(PROBE, heard).await.is_ok()
    }

    /// The other side was heard at that time of links.
    pub(crate) fn hears(&self, at: Timestamp) {
        self.heard.store(at.0, Ordering::Release);
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
