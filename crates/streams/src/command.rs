//! The way of [`LinkCommand`]s to a link ([`LinkHandle`], [`LinkCommands`]), [`Ended`], which says how it
//! ended, and the [`LinkTransport`] that it runs over.

use std::sync::{Arc, Mutex, PoisonError};

use futures_channel::mpsc;
use futures_util::{SinkExt, StreamExt};
use sync::link::{EndedBy, LinkCommand, LinkCounters};

use crate::transport::{FrameReader, FrameWriter, TransportError};

/// Commands that may wait for a link.
const MAX_COMMANDS: usize = 16;

/// Sends commands to a link.
#[derive(Clone, Debug)]
pub struct LinkHandle(Arc<Mutex<mpsc::Sender<LinkCommand>>>);

/// The commands to a link, as its task takes them.
#[derive(Debug)]
pub struct LinkCommands(mpsc::Receiver<LinkCommand>);

/// A channel of commands for a link that is to be running. It takes a few hundred bytes: every link
/// has one.
pub fn commands() -> (LinkHandle, LinkCommands) {
    let (sender, receiver) = mpsc::channel(MAX_COMMANDS - 1);
    (LinkHandle(Arc::new(Mutex::new(sender))), LinkCommands(receiver))
}

impl LinkHandle {
    /// Sends a command; `false` when the link has enough to do, or takes nothing any more.
    pub fn try_send(&self, command: LinkCommand) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_send(command).is_ok()
    }

    /// Sends a command, and waits until the link has room for more; `false` when it takes
    /// nothing any more. Also a call that is given up has sent it: beyond the bound there is room
    /// for one command of each that waits.
    pub async fn send(&self, command: LinkCommand) -> bool {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.send(command).await.is_ok() && !own.is_closed()
    }

    /// Whether the link takes nothing any more.
    pub fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_closed()
    }
}

impl LinkCommands {
    /// The next command; `None` when nobody can send one any more.
    pub async fn next(&mut self) -> Option<LinkCommand> {
        self.0.next().await
    }
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
    pub counters: Box<LinkCounters>,
    /// Which side ended it.
    pub how: EndedBy,
    /// The other side said hello.
    pub met: bool,
    /// Why the transport was given up, when that is what ended it.
    pub error: Option<TransportError>,
}

impl Ended {
    /// The connection is gone, without a go-away.
    pub fn lost(error: Option<TransportError>) -> Ended {
        Ended {
            code: "lost".to_owned(),
            message: "the connection is gone".to_owned(),
            retry_after: None,
            counters: Box::default(),
            how: EndedBy::Nobody,
            met: true,
            error,
        }
    }
}

/// The ways in and out of a link.
pub struct LinkTransport {
    /// Where frames come from.
    pub reader: Box<dyn FrameReader>,
    /// Where frames go.
    pub writer: Box<dyn FrameWriter>,
}
