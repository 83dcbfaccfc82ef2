//! Links of one request and one answer: polls, and the way up of server-sent events (SYN-1).
//!
//! ```text
//! poll:    exchange --moved--> exchange ... --nothing left--> ended
//! events:  pushed frames --ping--> exchange;   own change, silence, retry --> exchange
//! ```
//!
//! Invariant: what an exchange did not bring is brought by the next one, from what is durable.

use std::time::Duration;

use model::replication::TransportKind;
use streams::sse::SseReader;
use streams::task::{Ended, EndedBy};
use streams::{FrameReader, TransportError};
use sync::Frame;
use sync::backoff::Backoff;
use tokio::time::{Instant, sleep_until};

use super::super::posts::Posted;
use super::{Closing, LOOK, Manager};

/// After so long polls that bring something all the time pause for what else there is to do.
const LONGEST_POLL: Duration = Duration::from_secs(120);
/// Frames that are pushed down at once at most, before a ping ends them.
const MAX_PUSHED: usize = 2 * wire::cloudevents::json::MAX_FRAMES;

impl Manager {
    /// One exchange; whether nothing is left to be said, and how it went.
    async fn exchange(&mut self, transport_kind: TransportKind, pushed: Vec<Frame>) -> (bool, Posted) {
        let rules = self.rules.borrow().clone();
        let (mut config, handler) = self.end(transport_kind, &rules);
        // Nobody waits here for a retry: the next exchange brings what failed.
        config.limits.shown_after = 1;
        let posted = match pushed.is_empty() {
            true => self.poster.post(config, self.acked.clone(), &handler).await,
            false => self.poster.take(config, pushed, &handler).await,
        };
        self.acked = posted.acked.clone().or(self.acked.take());
        self.view.link_ended(&posted.ended.counters);
        (handler.quiet().is_some() && !posted.moved && !posted.failed, posted)
    }

    /// Polls until nothing is left to be said, or nothing moves.
    pub(super) async fn poll(&mut self) {
        let (transport_kind, began) = (TransportKind::Poll, Instant::now());
        self.last_poll = Some(began);
        self.rules.mark_unchanged();
        self.begins(transport_kind);
        let mut anew = true;
        loop {
            let mut stopped = self.stopped.clone();
            let exchanged = tokio::select! {
                exchanged = self.exchange(transport_kind, Vec::new()) => exchanged,
                () = net::accept::stopped(&mut stopped) => return,
            };
            let (done, Posted { ended, failed, moved, .. }) = exchanged;
            // Where the control plane stands elsewhere than it was taken to, it said so.
            let anew = failed && ended.retry_after == Some(0) && std::mem::take(&mut anew);
            if anew || moved && !failed && began.elapsed() < LONGEST_POLL {
                continue;
            }
            let closing = if failed || !done && !moved { Closing::No } else { Closing::Idle };
            self.ended(&ended, done, transport_kind, closing, began.elapsed());
            self.requested |= !done;
            return;
        }
    }

    /// Takes what the control plane pushes down, and posts what there is to say, until the stream
    /// ends.
    pub(super) async fn events(&mut self, mut reader: Box<SseReader>) {
        let (transport_kind, began) = (TransportKind::Sse, Instant::now());
        let rules = self.rules.borrow_and_update().clone();
        self.begins(transport_kind);
        // A publish while there was no stream was announced to nobody (SYN-11).
        self.daemon.contact();
        let silence = Duration::from_secs(self.policy.link.bounded().timeout_secs.into());
        let mut feed = self.sets.watch();
        let (mut pushed, mut heard) = (Vec::new(), Instant::now());
        let (mut due, mut quiet) = (Some(began), None::<Instant>);
        let mut retry = Backoff::new(self.count);
        let (ended, closing) = loop {
            let rests = quiet.is_some() && !self.policy.transport.keeps_open();
            let post = due.unwrap_or(heard + silence);
            let mut stopped = self.stopped.clone();
            tokio::select! {
                came = reader.next() => {
                    heard = Instant::now();
                    match came {
                        Ok(Some(frames)) if pushed.len() + frames.len() <= MAX_PUSHED => pushed.extend(frames),
                        Ok(Some(_)) => break (Ended::lost(Some(TransportError::TooLarge { limit: MAX_PUSHED })), Closing::No),
                        Ok(None) => break (Ended::lost(None), Closing::No),
                        Err(error) => break (Ended::lost(Some(error)), Closing::No),
                    }
                    if !pushed.iter().any(|frame| matches!(frame, Frame::Ping(_) | Frame::GoAway(_))) {
                        continue;
                    }
                    let posted = self.exchange(transport_kind, std::mem::take(&mut pushed)).await.1;
                    if matches!(posted.ended.how, EndedBy::Them(_)) {
                        break (posted.ended, Closing::No);
                    }
                    due = Some(heard);
                }
                () = sleep_until(post) => {
                    if due.is_none() {
                        break (Ended::lost(Some(TransportError::Slow)), Closing::No);
                    }
                    let (done, Posted { ended, failed, moved, .. }) = self.exchange(transport_kind, Vec::new()).await;
                    if failed && ended.retry_after != Some(0) {
                        break (ended, Closing::No);
                    }
                    let now = Instant::now();
                    quiet = done.then(|| quiet.unwrap_or(now));
                    if done || moved {
                        retry.succeeded();
                    }
                    due = match (done, moved) {
                        (true, _) => None,
                        (false, true) => Some(now),
                        (false, false) => Some(now + retry.failed(None)),
                    };
                }
                Ok(()) = feed.changed() => due = Some(Instant::now()),
                closing = self.closes(transport_kind, &rules) => break (Ended::lost(None), closing),
                () = net::accept::stopped(&mut stopped) => break (Ended::lost(None), Closing::Stop),
                () = tokio::time::sleep(LOOK), if rests => if self.is_at_rest(quiet) {
                    break (Ended::lost(None), Closing::Idle);
                }
            }
        };
        self.ended(&ended, quiet.is_some(), transport_kind, closing, began.elapsed());
    }
}
