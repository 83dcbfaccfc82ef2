//! [`NodeLink`]: the link that a node has now, as everybody else sees it.

use std::sync::{Arc, Mutex, PoisonError};

use model::{NodeId, Timestamp};
use tokio::sync::mpsc;

use super::Hub;

/// The most orders that wait for one link; a link that takes none is on its way out.
pub(crate) const MAX_ORDERS: usize = 16;

/// What carries a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Carrier {
    Grpc,
    Websocket,
    Sse,
    Poll,
}

impl Carrier {
    /// Its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Carrier::Grpc => "grpc",
            Carrier::Websocket => "websocket",
            Carrier::Sse => "sse",
            Carrier::Poll => "poll",
        }
    }
}

/// Where a link stands, both directions together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is known yet.
    #[default]
    Connecting,
    /// Both sets are equal on both sides.
    InSync,
    /// So many changes are under way.
    Behind(u64),
    /// Sets are being compared.
    Resyncing,
    /// They differ, and will without help: why.
    Diverged(String),
}

pub(crate) use streams::Order as LinkOrder;

/// The link that a node has now.
#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) node: NodeId,
    pub(crate) carrier: Carrier,
    /// One life of the agent's process.
    pub(crate) instance: String,
    pub(crate) since: Timestamp,
    standing: Mutex<Standing>,
    orders: mpsc::Sender<LinkOrder>,
}

impl NodeLink {
    pub(super) fn new(
        node: NodeId,
        carrier: Carrier,
        instance: String,
        since: Timestamp,
    ) -> (NodeLink, mpsc::Receiver<LinkOrder>) {
        let (orders, taken) = mpsc::channel(MAX_ORDERS);
        (NodeLink { node, carrier, instance, since, standing: Mutex::default(), orders }, taken)
    }

    /// Tells the link something; `false` when it takes nothing any more.
    pub(crate) fn tell(&self, order: LinkOrder) -> bool {
        self.orders.try_send(order).is_ok()
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says where it stands.
    pub(crate) fn stands(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}

/// A link in the registry; dropping it takes it out.
pub(crate) struct OpenLink {
    pub(crate) link: Arc<NodeLink>,
    /// What it is told from elsewhere.
    pub(super) orders: mpsc::Receiver<LinkOrder>,
    /// The link that it takes the place of; it was told to go away.
    pub(crate) replaced: Option<Arc<NodeLink>>,
    /// What was asked for while there was no link.
    pub(crate) wants: Wants,
    pub(super) hub: Arc<Hub>,
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
    pub(crate) fn take_orders(&mut self) -> mpsc::Receiver<LinkOrder> {
        std::mem::replace(&mut self.orders, mpsc::channel(1).1)
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        self.hub.lights.closed(&self.link);
    }
}
