//! A connection that was accepted, as handlers know it, and what happens to it once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::answer::UnreadAnswers;
use crate::identity::{CertifiedPeer, PeerRole};
use crate::signal::Signal;

/// What a handler knows of a connection; in the extensions of every request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Who is at the other end, by verified certificate.
    pub peer: Option<Arc<CertifiedPeer>>,
    /// From where.
    pub address: SocketAddr,
    /// It speaks HTTP/1.1: from a node only an upgrade to a WebSocket is to be answered.
    pub http1: bool,
    pub(crate) steps: Arc<ConnectionSteps>,
}

/// What happens to a connection once, as a bit of its [`Signal`].
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum ConnectionStep {
    /// A handler asked for its end.
    Asked = 1,
    /// Streams on it are to end.
    Closing = 2,
    /// It was upgraded.
    Upgraded = 4,
    /// What goes on on it after an upgrade is to be cut.
    Cut = 8,
    /// What went on on it after an upgrade ended.
    UpgradeEnded = 16,
}

/// What became of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSteps {
    steps: Signal,
    /// Bytes of answers that are on their way.
    unread: AtomicUsize,
}

impl UnreadAnswers for ConnectionSteps {
    fn unread(&self) -> &AtomicUsize {
        &self.unread
    }

    fn overdue(&self) {
        self.set(ConnectionStep::Asked);
    }
}

impl ConnectionSteps {
    pub(crate) fn set(&self, step: ConnectionStep) {
        self.steps.raise(step as u64);
    }

    pub(crate) fn has(&self, step: ConnectionStep) -> bool {
        self.steps.get() & step as u64 != 0
    }

    pub(crate) async fn wait(&self, step: ConnectionStep) {
        self.steps.until(|steps| steps & step as u64 != 0).await;
    }
}

impl Connection {
    /// Waits until the connection is to end: it is old, or the server stops. Streams on it
    /// then say goodbye within [`crate::accept::AcceptLimits::ending`], after which they are cut.
    pub async fn closing(&self) {
        self.steps.wait(ConnectionStep::Closing).await;
    }

    /// Waits until an upgraded connection's time is over, whatever goes on on it.
    pub(crate) async fn cut(&self) {
        self.steps.wait(ConnectionStep::Cut).await;
    }

    pub(crate) fn upgrade_began(&self) {
        self.steps.set(ConnectionStep::Upgraded);
    }

    pub(crate) fn upgrade_ended(&self) {
        self.steps.set(ConnectionStep::UpgradeEnded);
    }

    /// At the other end is a proxy that ends the TLS sessions of nodes: what comes is of many
    /// nodes, and each request's own signature says of which (IDN-4).
    pub fn is_proxy(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| matches!(peer.role, PeerRole::Proxy(_)))
    }

    /// Closes the connection once this request is answered: an idle node costs nothing. A proxy's
    /// stays, for other nodes are on it.
    pub fn close_after_answer(&self) {
        if !self.is_proxy() {
            self.steps.set(ConnectionStep::Asked);
        }
    }
}
