//! [`DaemonHandle`] and [`DaemonInbox`]: how tasks and threads reach the daemon.
//!
//! ```text
//! task, thread --send----------> bounded channel (each event matters) --+
//!              --facts_wait----> flag, raised any number of times ------+--> DaemonInbox::next
//!              --contact-------> flag, raised any number of times ------+
//!              --suspect_drift-> flag, raised any number of times ------+
//! ```
//!
//! Invariants: at most [`EVENTS`] events wait, and a sender waits when there are more; a flag that
//! is raised again before the daemon saw it is one event.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Pause;
use model::exchange::Answer;
use model::log::Cursor;
use node::NodeInput;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::activations::QuarantineView;
use crate::contact::ContactFailure;
use crate::local::LocalProblem;
use crate::local::messages::{PauseView, RunTicket};
use crate::state::LostState;

/// The most events that wait for the daemon. Each is the end of one thing under way: a check-in,
/// a run, a fetch, a write.
const EVENTS: usize = 16;

/// What the daemon hears from its tasks and threads.
#[derive(Debug)]
// Few events wait at a time, and nearly all are inputs: a box for each would cost more than the room.
#[allow(clippy::large_enum_variant)]
pub enum DaemonEvent {
    /// For the node's step.
    Input(NodeInput),
    /// A check-in was answered.
    Answered {
        /// The answer.
        answer: Box<Answer>,
        /// How far facts were acknowledged when the check-in was made.
        acked_before: u64,
    },
    /// A check-in got no answer.
    NotAnswered(ContactFailure),
    /// The control plane refused something as too large, and it is left out of check-ins, for people; `None`: nothing is
    /// left out any more.
    LeftOut(Option<String>),
    /// Another host holds the node's key, or no more, as the control plane says (IDN-10).
    IdentityCopied(bool),
    /// Somebody at the host asks for something.
    Local(LocalCommand),
    /// Facts wait to be delivered.
    FactsWait,
    /// There is reason to check in now.
    Contact,
    /// Something on the host was perhaps changed out of band: the watch knows what.
    SuspectedDrift,
    /// The delivery of facts over a stream ended.
    Flushed {
        /// How far they were acknowledged; `None`: they were not delivered.
        acked: Option<Cursor>,
        /// How far they were acknowledged before.
        acked_before: u64,
        /// There is reason to check in now.
        contact: bool,
    },
    /// A fact of the daemon is durable.
    Appended {
        /// How many check-ins had been made when it was to be appended.
        check_ins: u64,
    },
    /// A fact of the daemon could not be made durable.
    NotAppended,
    /// The state directory was lost under the daemon. The node's identity lies there again.
    StateLost(LostState),
    /// The agent's own program or its unit is another one now: it starts anew once nothing runs.
    AgentReplaced,
    /// A guarded run begins to wait for a contact, or does so no more (CNV-11).
    GuardChanged,
    /// What the control plane acknowledged is recorded, or could not be.
    Acknowledged {
        /// Of a delivery over a stream, not of a check-in.
        delivery: bool,
        /// More facts wait.
        more: bool,
    },
}

/// The way of an answer to somebody at the host.
pub type LocalReply<T> = oneshot::Sender<Result<T, LocalProblem>>;

/// What somebody at the host asks the daemon for; each is answered.
#[derive(Debug)]
pub enum LocalCommand {
    /// Make a run now: of what has one of these tags, or of all.
    Run(BTreeSet<String>, LocalReply<RunTicket>),
    /// Pause the host; answered when that is durable.
    Pause(Pause, LocalReply<PauseView>),
    /// End the pause; answered when that is durable.
    Resume(LocalReply<PauseView>),
    /// Let what is held back of the release with this number be tried again (ROL-12); answered when that is durable.
    LiftQuarantine(u64, LocalReply<QuarantineView>),
}

#[derive(Debug, Default)]
struct DaemonFlags {
    facts: Notify,
    contact: Notify,
    suspected_drift: Notify,
}

/// The way to the daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DaemonHandle {
    events: mpsc::Sender<DaemonEvent>,
    flags: Arc<DaemonFlags>,
}

/// What waits for the daemon.
#[derive(Debug)]
pub struct DaemonInbox {
    events: mpsc::Receiver<DaemonEvent>,
    flags: Arc<DaemonFlags>,
}

/// A way to a daemon, and its other end.
pub fn channel() -> (DaemonHandle, DaemonInbox) {
    let (sender, events) = mpsc::channel(EVENTS);
    let flags = Arc::new(DaemonFlags::default());
    (DaemonHandle { events: sender, flags: flags.clone() }, DaemonInbox { events, flags })
}

impl DaemonHandle {
    /// Facts were appended that no check-in has carried.
    pub fn facts_wait(&self) {
        self.flags.facts.notify_one();
    }

    /// There is reason to check in now.
    pub fn contact(&self) {
        self.flags.contact.notify_one();
    }

    /// Something on the host was perhaps changed out of band.
    pub fn suspect_drift(&self) {
        self.flags.suspected_drift.notify_one();
    }

    /// Gives the daemon an event; waits while [`EVENTS`] others do.
    pub async fn send(&self, event: DaemonEvent) {
        // Closed only when the daemon is gone.
        let _ = self.events.send(event).await;
    }

    /// As [`DaemonHandle::send`], from a thread outside the runtime.
    pub fn send_blocking(&self, event: DaemonEvent) {
        let _ = self.events.blocking_send(event);
    }
}

impl DaemonInbox {
    /// The next event. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> DaemonEvent {
        tokio::select! {
            Some(event) = self.events.recv() => event,
            () = self.flags.facts.notified() => DaemonEvent::FactsWait,
            () = self.flags.contact.notified() => DaemonEvent::Contact,
            () = self.flags.suspected_drift.notified() => DaemonEvent::SuspectedDrift,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn signals_coalesce_and_the_channel_is_bounded() {
        let (handle, mut inbox) = channel();
        for _ in 0..1000 {
            handle.facts_wait();
        }
        assert!(matches!(inbox.next().await, DaemonEvent::FactsWait));
        let more = tokio::time::timeout(Duration::ZERO, inbox.next()).await;
        assert!(more.is_err(), "a flag that was raised often is one event: {more:?}");
        for _ in 0..EVENTS {
            handle.send(DaemonEvent::Input(NodeInput::Tick)).await;
        }
        let over = handle.send(DaemonEvent::Input(NodeInput::Tick));
        assert!(tokio::time::timeout(Duration::ZERO, over).await.is_err(), "a sender waits");
        assert!(matches!(inbox.next().await, DaemonEvent::Input(NodeInput::Tick)));
        handle.send(DaemonEvent::Input(NodeInput::Tick)).await;
    }
}
