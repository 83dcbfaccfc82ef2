//! What a link is told from outside, and what is known of it at its end.

use std::sync::{Arc, Mutex, PoisonError};

use futures_channel::mpsc;
use futures_util::{SinkExt, StreamExt};
use sync::Frame;
use sync::frame::{CloseReason, GoAway};
use sync::link::Counters;

use crate::transport::{FrameReader, FrameWriter, TransportError};

/// Orders that may wait for a link.
const ORDERS: usize = 16;

/// What a link may be told from outside.
pub enum LinkCommand {
    /// Orphans may be deleted, however many.
    Approve,
    /// Compare by a resync now.
    Resync,
    /// Say this.
    Say(Box<Frame>),
    /// End in order: what came is processed first.
    Shutdown,
    /// Say why, and close.
    GoAway(Box<GoAway>),
}

/// The way to a link.
#[derive(Clone, Debug)]
pub struct LinkHandle(Arc<Mutex<mpsc::Sender<LinkCommand>>>);

/// What a link is told, as it takes it.
#[derive(Debug)]
pub struct LinkCommands(mpsc::Receiver<LinkCommand>);

/// A way to a link that is to be running. It takes a few hundred bytes: every link has one.
pub fn orders() -> (LinkHandle, LinkCommands) {
    let (orders, taken) = mpsc::channel(ORDERS - 1);
    (LinkHandle(Arc::new(Mutex::new(orders))), LinkCommands(taken))
}

impl LinkHandle {
    /// Tells the link something; `false` when it has enough to do, or takes nothing any more.
    pub fn tell(&self, order: LinkCommand) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_send(order).is_ok()
    }

    /// Tells the link something, and waits until it has room for more; `false` when it takes
    /// nothing any more. Also one that is given up has told it: beyond the bound there is room for
    /// one order of each that waits.
    pub async fn tell_in_turn(&self, order: LinkCommand) -> bool {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.send(order).await.is_ok() && !own.is_closed()
    }

    /// Whether the link takes nothing any more.
    pub fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_closed()
    }
}

impl LinkCommands {
    /// The next order; `None` when nobody can tell the link anything any more.
    pub async fn next(&mut self) -> Option<LinkCommand> {
        self.0.next().await
    }
}

/// Which side ended a link, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Nobody: its transport is gone.
    Nobody,
    /// This side.
    Us(CloseReason),
    /// The other side, with a go-away.
    Them(CloseReason),
}

/// How a link ended.
#[derive(Debug)]
pub struct Ended {
    /// A stable code.
    pub code: String,
    /// Why, for people.
    pub message: String,
    /// Not to come back sooner than after as many seconds.
    pub retry_after: Option<u64>,
    /// What was counted.
    pub counters: Box<Counters>,
    /// Which side ended it.
    pub how: EndedBy,
    /// The other side said hello.
    pub met: bool,
    /// Why the transport was given up, when that is what ended it.
    pub error: Option<TransportError>,
}

impl Ended {
    /// The connection is gone, and nobody said why.
    pub fn lost(error: Option<TransportError>) -> Ended {
        Ended {
            code: LOST.to_owned(),
            message: "the connection is gone".to_owned(),
            retry_after: None,
            counters: Box::default(),
            how: EndedBy::Nobody,
            met: true,
            error,
        }
    }
}

/// The code of a link whose connection is gone, nobody said why.
pub(crate) const LOST: &str = "lost";

/// The ways in and out of a link.
pub struct LinkTransport {
    /// Where frames come from.
    pub reader: Box<dyn FrameReader>,
    /// Where frames go.
    pub writer: Box<dyn FrameWriter>,
}
