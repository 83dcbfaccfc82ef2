//! [`Exchange`]: check-ins, over the open stream or by a request of their own.
//!
//! ```text
//! node's check-in  --> stream, when it is open and free ----+--> DaemonEvent::Answered
//!                  \-> else a request of its own -----------+
//! delivery of facts -> stream, when it is open and free -------> DaemonEvent::Flushed
//! ```
//!
//! Invariants: nothing here waits for the disk or for another exchange; the facts that go are
//! durable; each answer comes with how far facts were acknowledged when it was asked for, so that
//! answers may overtake one another.

use std::sync::Arc;

use model::exchange::{Answer, CheckIn};
use node::Input;
use tokio::sync::Semaphore;
use wire::route;

use crate::events::{DaemonEvent, DaemonHandle};
use crate::render::chain;
use crate::session::{CallError, Session};
use crate::storage::Storage;
use crate::sync::Synchronization;

/// The way of check-ins.
pub struct Exchange {
    session: Arc<Session>,
    sync: Arc<Synchronization>,
    storage: Storage,
    daemon: DaemonHandle,
    /// A link answers one check-in at a time; who finds it taken does not wait.
    stream: Semaphore,
}

impl Exchange {
    /// Check-ins over the stream of `sync` when there is one, else by this session.
    pub fn new(
        session: Arc<Session>,
        sync: Arc<Synchronization>,
        storage: Storage,
        daemon: DaemonHandle,
    ) -> Exchange {
        Exchange { session, sync, storage, daemon, stream: Semaphore::new(1) }
    }

    /// Puts the facts that wait into a check-in; says how far facts are acknowledged.
    fn load(&self, message: &mut CheckIn) -> u64 {
        let waiting = self.storage.facts();
        // The log may have begun a new incarnation since the start.
        message.incarnation = waiting.incarnation;
        message.facts = waiting.facts;
        waiting.acked
    }

    /// Checks in over the stream; `None`: there is none that is free, or no answer came.
    async fn over_stream(&self, message: &CheckIn) -> Option<Answer> {
        let _turn = self.stream.try_acquire().ok()?;
        if !self.sync.is_open() {
            return None;
        }
        self.sync.check_in(message.clone()).await
    }

    /// Checks in for the node, and tells the daemon what came of it.
    pub async fn check_in(&self, mut message: CheckIn) {
        let acked_before = self.load(&mut message);
        if let Some(answer) = self.over_stream(&message).await {
            return self.daemon.send(DaemonEvent::Answered { answer: Box::new(answer), acked_before }).await;
        }
        let answer: Result<Answer, CallError> = self.session.post(route::CHECKIN, &message).await;
        self.daemon.send(DaemonEvent::Input(Input::ServerTime(self.session.server_time()))).await;
        let event = match answer {
            Ok(answer) => {
                self.sync.reached();
                DaemonEvent::Answered { answer: Box::new(answer), acked_before }
            }
            Err(error) => {
                let why = chain(&error);
                tracing::info!(why, "no check-in");
                DaemonEvent::Input(Input::Unreachable(why))
            }
        };
        self.daemon.send(event).await;
    }

    /// Delivers the facts that wait over the open stream, and tells the daemon how far they
    /// came. `message` says the rest.
    pub async fn flush(&self, mut message: CheckIn) {
        let acked_before = self.load(&mut message);
        let nothing = message.facts.is_empty();
        let answer = if nothing { None } else { self.over_stream(&message).await };
        let event = match answer {
            Some(answer) => {
                let contact = answer.offer.is_some() || answer.push.is_some() || answer.want_traits;
                DaemonEvent::Flushed { acked: answer.acked, acked_before, contact }
            }
            // The node's own check-in carries them.
            None => DaemonEvent::Flushed { acked: None, acked_before, contact: !nothing },
        };
        self.daemon.send(event).await;
    }
}
