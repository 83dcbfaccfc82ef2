//! [`Exchange`]: check-ins, one at a time, over the open stream or by a call of their own.
//!
//! Acknowledgements of facts may not overtake one another: what one exchange came to is with
//! the daemon before the next one begins.

use std::sync::Arc;

use model::Digest;
use model::exchange::{Answer, CheckIn};
use model::log::{MAX_FACT_BYTES, MAX_FACTS};
use node::{Input, Witness};
use tokio::sync::Mutex;
use trust::seen::Seen;
use wire::route;

use crate::events::{DaemonEvent, DaemonHandle};
use crate::render::chain;
use crate::session::{CallError, Session, Signer};
use crate::state::Durable;
use crate::sync::Synchronization;

/// The way of check-ins.
pub struct Exchange {
    session: Arc<Mutex<Session>>,
    signer: Arc<Signer>,
    sync: Arc<Synchronization>,
    durable: Arc<Durable>,
    daemon: DaemonHandle,
    /// One exchange at a time; and what the control plane has of the `seen` document.
    turn: Mutex<Witness>,
}

impl Exchange {
    /// Check-ins over the stream of `sync` when there is one, else by this session.
    pub fn new(
        session: Arc<Mutex<Session>>,
        signer: Arc<Signer>,
        sync: Arc<Synchronization>,
        durable: Arc<Durable>,
        daemon: DaemonHandle,
    ) -> Exchange {
        Exchange { session, signer, sync, durable, daemon, turn: Mutex::default() }
    }

    /// Puts the facts that wait into a check-in, and the `seen` document if it says something new.
    fn load(&self, message: &mut CheckIn, newest: Option<(Digest, u64)>, witness: &mut Witness) {
        // The log may have begun a new incarnation since the start.
        message.incarnation = self.durable.incarnation();
        match self.durable.facts(MAX_FACTS, MAX_FACT_BYTES) {
            Ok(facts) => message.facts = facts,
            Err(error) => tracing::warn!(error = %chain(&error), "the log cannot be read"),
        }
        let Some((header, seq)) = newest else { return };
        let (node, log_head) = (self.signer.node().clone(), self.durable.log_head());
        let seen = Seen { node, header, seq, log_head, at: self.signer.server_time() };
        match witness.next(seen, |seen| self.signer.sign_seen(seen)) {
            Ok(document) => message.seen = document,
            Err(error) => tracing::warn!(%error, "what was seen cannot be signed"),
        }
    }

    /// Checks in for the node, and tells the daemon what came of it.
    pub async fn check_in(&self, mut message: CheckIn, newest: Option<(Digest, u64)>) {
        let mut witness = self.turn.lock().await;
        self.load(&mut message, newest, &mut witness);
        if self.sync.is_open()
            && let Some(answer) = self.sync.check_in(message.clone()).await
        {
            witness.answered(answer.want_seen);
            return self.daemon.send(DaemonEvent::Input(Input::Answered(Box::new(answer)))).await;
        }
        let mut session = self.session.lock().await;
        let answer: Result<Answer, CallError> = session.post(route::CHECKIN, &message).await;
        self.daemon.send(DaemonEvent::Input(Input::ServerTime(session.server_time()))).await;
        let input = match answer {
            Ok(answer) => {
                self.sync.reached();
                witness.answered(answer.want_seen);
                Input::Answered(Box::new(answer))
            }
            Err(error) => {
                let why = chain(&error);
                tracing::info!(why, "no check-in");
                Input::Unreachable(why)
            }
        };
        self.daemon.send(DaemonEvent::Input(input)).await;
    }

    /// Delivers the facts that wait over the open stream, and tells the daemon how far they
    /// came. `message` says the rest.
    pub async fn flush(&self, mut message: CheckIn, newest: Option<(Digest, u64)>) {
        let mut witness = self.turn.lock().await;
        self.load(&mut message, newest, &mut witness);
        let answer = if message.facts.is_empty() { None } else { self.sync.check_in(message.clone()).await };
        let nothing = message.facts.is_empty();
        let event = match answer {
            Some(answer) => {
                witness.answered(answer.want_seen);
                let more = answer.offer.is_some() || answer.push.is_some() || answer.want_traits;
                DaemonEvent::Flushed { acked: answer.acked, contact: more }
            }
            // The node's own check-in carries them.
            None => DaemonEvent::Flushed { acked: None, contact: !nothing },
        };
        self.daemon.send(event).await;
    }
}
