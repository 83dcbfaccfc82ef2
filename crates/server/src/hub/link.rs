//! [`NodeLink`]: the link that a node has now, as everybody else sees it.
//!
//! ```text
//! open --> connecting --hello--> met: takes commands --end, or replaced--> ending --> dropped
//! ```
//!
//! Invariants: the first reason to end counts; nothing is asked of the other side before its hello.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use model::condition::SyncCause;
use model::replication::{Mode, SyncPolicy, TransportKind};
use model::{NodeId, Timestamp};
use streams::task::link_time;
use streams::{LinkCommands, LinkHandle};
use sync::Frame;
use sync::frame::{GoAway, Interop, Ping};
use tokio::sync::Notify;

use super::Hub;

pub(crate) use streams::LinkCommand;

/// How long the other side of a link that is probed has to say something.
const PROBE: Duration = Duration::from_secs(5);

/// The link that a node has now.
#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) node: NodeId,
    pub(crate) transport: TransportKind,
    pub(crate) since: Timestamp,
    /// One instance of the agent, once it is known; never empty.
    instance: OnceLock<String>,
    /// What the release said of synchronization when the link was made.
    rules: OnceLock<Option<Arc<SyncPolicy>>>,
    /// The other side said hello.
    met: AtomicBool,
    cause: Mutex<SyncCause>,
    commands: LinkHandle,
    ending: OnceLock<GoAway>,
    /// Wakes who waits for the end.
    ends: Notify,
    /// When the other side was heard last, in the milliseconds of links, and who waits for it.
    heard: AtomicI64,
    hears: Notify,
}

impl NodeLink {
    pub(super) fn new(
        node: NodeId,
        transport: TransportKind,
        instance: Option<&str>,
        since: Timestamp,
    ) -> (NodeLink, LinkCommands) {
        let (commands, taken) = streams::task::commands();
        let link = NodeLink {
            node,
            transport,
            since,
            instance: OnceLock::new(),
            rules: OnceLock::new(),
            met: AtomicBool::new(false),
            cause: Mutex::new(SyncCause::Connecting),
            commands,
            ending: OnceLock::new(),
            ends: Notify::new(),
            heard: AtomicI64::new(i64::MIN),
            hears: Notify::new(),
        };
        if let Some(instance) = instance {
            link.is_of(instance);
        }
        (link, taken)
    }

    /// The instance of the agent, when it is known.
    pub(crate) fn instance(&self) -> Option<&str> {
        self.instance.get().map(String::as_str)
    }

    /// Learns whose link it is; `false` when it is known to be another's. An empty name says
    /// nothing.
    pub(crate) fn is_of(&self, instance: &str) -> bool {
        instance.is_empty() || self.instance.get_or_init(|| instance.to_owned()) == instance
    }

    /// What the release said of synchronization when the link was made; `None` before.
    pub(crate) fn rules(&self) -> Option<&Option<Arc<SyncPolicy>>> {
        self.rules.get()
    }

    /// Whether the release synchronized objects when the link was made.
    pub(super) fn synchronizes(&self) -> bool {
        self.rules().is_some_and(|rules| rules.as_ref().is_some_and(|policy| policy.mode != Mode::Off))
    }

    /// The link is made with these rules.
    pub(crate) fn ruled_by(&self, rules: Option<Arc<SyncPolicy>>) {
        // It is made once.
        let _ = self.rules.set(rules);
    }

    /// Whether a post is the way up of this link: that is a stream down of the same process.
    pub(super) fn goes_up_by(&self, post: &NodeLink) -> bool {
        let (down, up) = (TransportKind::Sse, TransportKind::Poll);
        self.transport == down && post.transport == up && post.instance().is_none_or(|one| self.is_of(one))
    }

    /// Whether the other side said hello: before that it cannot be told anything.
    pub(super) fn has_met(&self) -> bool {
        self.met.load(Ordering::Acquire)
    }

    pub(super) fn meets(&self) {
        self.met.store(true, Ordering::Release);
    }

    /// Sends the link a command; `false` when it takes no more now.
    pub(crate) fn try_send(&self, command: LinkCommand) -> bool {
        self.commands.try_send(command)
    }

    /// Sends the link a command once it has room for it.
    pub(crate) async fn send(&self, command: LinkCommand) {
        // One that takes nothing any more has ended.
        let _ = self.commands.send(command).await;
    }

    /// Whether somebody is at the other end, as far as a stream of two ways tells.
    pub(crate) async fn is_alive(&self) -> bool {
        if matches!(self.transport, TransportKind::Poll | TransportKind::Sse) {
            return false;
        }
        let asked = link_time();
        let heard = async {
            loop {
                let mut hears = std::pin::pin!(self.hears.notified());
                // Before looking, so that nothing is missed in between.
                hears.as_mut().enable();
                if self.heard.load(Ordering::Acquire) >= asked.0 {
                    return;
                }
                hears.await;
            }
        };
        let ping = Frame::Ping(Ping::default());
        self.try_send(LinkCommand::Send(Box::new(ping))) && tokio::time::timeout(PROBE, heard).await.is_ok()
    }

    /// The other side was heard at that time of links.
    pub(crate) fn hears(&self, at: Timestamp) {
        self.heard.store(at.0, Ordering::Release);
        self.hears.notify_waiters();
    }

    /// The link is to end, however much it has to do. The first reason counts.
    pub(crate) fn end(&self, code: &str, message: &str) {
        let why = GoAway { code: code.to_owned(), message: message.to_owned(), retry_after: None };
        if self.ending.set(why).is_ok() {
            self.ends.notify_waiters();
        }
    }

    /// Waits until the link is to end.
    pub(crate) async fn ending(&self) -> GoAway {
        loop {
            let mut told = std::pin::pin!(self.ends.notified());
            // Before looking, so that nothing is missed in between.
            told.as_mut().enable();
            if let Some(ending) = self.ending.get() {
                return ending.clone();
            }
            told.await;
        }
    }

    /// How both sets stand, as the link saw them last.
    pub(crate) fn cause(&self) -> SyncCause {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The link sees both sets so.
    pub(super) fn observed(&self, cause: SyncCause) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }
}

/// A link in the registry; dropping it takes it out.
pub(crate) struct OpenLink {
    pub(crate) link: Arc<NodeLink>,
    /// What it is told from elsewhere, until somebody listens.
    pub(super) commands: Option<LinkCommands>,
    /// The link that it takes the place of; it was told to go away.
    pub(crate) replaced: Option<Arc<NodeLink>>,
    pub(super) hub: Arc<Hub>,
}

impl Wants {
    /// Those that are among what is said to the node.
    pub(crate) fn said_in(frames: &[Frame]) -> Wants {
        Wants { resync: frames.contains(&Wants::resync_frame()), approve: frames.contains(&Frame::Approve) }
    }

    /// With what the node is asked to compare everything.
    pub(super) fn resync_frame() -> Frame {
        Frame::Interop(Box::new(Interop::RequestResync))
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

impl OpenLink {
    /// What it is told from elsewhere, to be taken once.
    pub(crate) fn take_commands(&mut self) -> LinkCommands {
        self.commands.take().unwrap_or_else(|| streams::task::commands().1)
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        self.hub.sync_index.link_closed(&self.link);
    }
}
