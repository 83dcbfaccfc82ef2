//! How the daemon stops: work under way may end, what can be delivered is, then the link ends
//! (LIF-3, SYN-14).

use std::time::Duration;

use net::notify::ServiceState;
use net::tasks;
use node::NodeInput;
use tokio::task::JoinHandle;

use super::{Daemon, sleep_to};
use crate::events::{DaemonEvent, DaemonInbox};

/// How long a stop waits for a run under way before it ends the run's commands (LIF-3).
const DRAIN: Duration = Duration::from_secs(30);
/// How long it then waits for the run to end.
const CANCEL: Duration = Duration::from_secs(10);
/// How long the last facts may take at a stop.
const LAST_FACTS: Duration = Duration::from_secs(5);

impl Daemon {
    /// Lets a run and actions under way end, within their bound, then ends their commands;
    /// their facts are then in the log. What can be delivered is, then the link ends (SYN-14).
    pub(super) async fn drain(&mut self, inbox: &mut DaemonInbox) {
        tracing::info!("stopping");
        // A service manager that hears so ends the process in the end.
        if self.lost_state.is_none() {
            net::notify::service_manager(ServiceState::Stopping);
        }
        self.stopping = true;
        let work = self.work.clone();
        let mut work = tasks::spawn(async move { work.drain().await });
        if !self.ended_within(DRAIN, &mut work, inbox).await {
            tracing::warn!("work is still under way; its commands are ended");
            self.cancel.cancel();
            self.ended_within(CANCEL, &mut work, inbox).await;
        }
        self.last_facts(inbox).await;
        self.sync.stop().await;
        self.keep_contact(true);
        // All that was asked of the storage before is done then.
        let _ = self.storage.run(|_| Ok(())).await;
    }

    /// Waits for what is under way; says whether it ended.
    async fn ended_within(
        &mut self,
        time: Duration,
        work: &mut JoinHandle<()>,
        inbox: &mut DaemonInbox,
    ) -> bool {
        let deadline = tokio::time::sleep(time);
        tokio::pin!(deadline);
        while self.running || self.activations.returns() || !work.is_finished() {
            let flush = self.flush_at;
            tokio::select! {
                event = inbox.next() => self.hear_stopping(event),
                () = sleep_to(flush) => self.flush(),
                // Its end is looked at by the loop. A panic was printed where it happened.
                _ = &mut *work, if !work.is_finished() => {}
                () = &mut deadline => return false,
            }
        }
        true
    }

    fn hear_stopping(&mut self, event: DaemonEvent) {
        match event {
            DaemonEvent::Input(input @ (NodeInput::Ran(_) | NodeInput::RunFailed(_))) => self.take(input),
            DaemonEvent::Appended { .. } | DaemonEvent::NotAppended => self.appending -= 1,
            DaemonEvent::FactsWait | DaemonEvent::Flushed { .. } | DaemonEvent::Acknowledged { .. }
                if self.sync.links.is_open() =>
            {
                self.hear(event);
            }
            DaemonEvent::Flushed { .. } | DaemonEvent::Acknowledged { .. } => self.flushing = false,
            DaemonEvent::Answered { .. } | DaemonEvent::NotAnswered(_) => self.checking_in = false,
            // Who asks hears that the daemon stops, as the answer goes with the question.
            DaemonEvent::Local(_)
            | DaemonEvent::Input(_)
            | DaemonEvent::FactsWait
            | DaemonEvent::Contact
            | DaemonEvent::StateLost(_)
            | DaemonEvent::AgentReplaced
            | DaemonEvent::GuardChanged
            | DaemonEvent::LeftOut(_)
            | DaemonEvent::IdentityCopied(_)
            | DaemonEvent::SuspectedDrift => {}
        }
    }

    /// Waits until the last facts are durable, and delivers what is left over the open stream.
    /// What it cannot deliver waits in the log.
    async fn last_facts(&mut self, inbox: &mut DaemonInbox) {
        let deadline = tokio::time::sleep(LAST_FACTS);
        tokio::pin!(deadline);
        let mut deliver = true;
        while self.appending > 0 || (deliver && self.sync.links.is_open() && self.storage.facts_waiting() > 0)
        {
            if self.appending == 0 && !self.flushing {
                self.flush();
            }
            let flush = self.flush_at;
            tokio::select! {
                event = inbox.next() => {
                    deliver &= !matches!(event, DaemonEvent::Flushed { acked: None, .. });
                    self.hear_stopping(event);
                }
                () = sleep_to(flush) => self.flush(),
                () = &mut deadline => return,
            }
        }
    }
}
