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
use streams::task::{Ended, EndedBy, link_time};
use streams::weight::weight;
use streams::{FrameReader, TransportError};
use sync::Frame;
use sync::backoff::Backoff;
use sync::object::MAX_CONTENT;
use tokio::time::{Instant, sleep_until};

use super::super::posts::{Exchanged, Progress};
use super::{Closing, LOOK, LinkOutcome, Manager};

/// After so long polls that bring something all the time pause for what else there is to do.
const LONGEST_POLL: Duration = Duration::from_secs(120);
/// Frames that are pushed down at once, before a ping ends them, take about so many bytes of memory
/// at the most.
const MAX_PUSHED: usize = 2 * (wire::batch::FULL + MAX_CONTENT);

impl Manager {
    /// One exchange: a post and its answer, or what was pushed down.
    async fn exchange(&mut self, transport_kind: TransportKind, pushed: Vec<Frame>) -> Exchanged {
        let rules = self.rules.borrow().clone();
        let (mut config, handler) = self.end(transport_kind, &rules);
        // Nobody waits here for a retry: the next exchange brings what failed.
        config.limits.shown_after = 1;
        let after = self.acked.clone().filter(|_| pushed.is_empty());
        let exchanged = self.poster.exchange(config, after, &handler, pushed).await;
        self.acked = exchanged.acked.clone().or(self.acked.take());
        self.context.view.link_ended(&exchanged.ended.counters);
        exchanged
    }

    /// Polls until nothing is left to be said, or nothing moves.
    pub(super) async fn poll(&mut self) -> LinkOutcome {
        let began = Instant::now();
        self.last_poll = Some(link_time());
        self.rules.mark_unchanged();
        let mut anew = true;
        loop {
            let mut stopped = self.stopped.clone();
            let Exchanged { ended, progress, .. } = tokio::select! {
                exchanged = self.exchange(TransportKind::Poll, Vec::new()) => exchanged,
                () = net::accept::stopped(&mut stopped) => {
                    return LinkOutcome { ended: Ended::lost(None), quiet: false, closing: Closing::Stop };
                }
            };
            let closing = match progress {
                // Where the control plane stands elsewhere than it was taken to, it said so.
                Progress::Failed if ended.retry_after == Some(0) && std::mem::take(&mut anew) => continue,
                Progress::Moved if began.elapsed() < LONGEST_POLL => continue,
                Progress::Failed | Progress::Stuck => Closing::No,
                Progress::Moved | Progress::Quiet => Closing::Idle,
            };
            return LinkOutcome { ended, quiet: progress == Progress::Quiet, closing };
        }
    }

    /// Takes what the control plane pushes down, and posts what there is to say, until the stream
    /// ends.
    pub(super) async fn events(&mut self, mut reader: Box<SseReader>) -> LinkOutcome {
        let transport_kind = TransportKind::Sse;
        let rules = self.rules.borrow_and_update().number;
        // A publish while there was no stream was announced to nobody (SYN-11).
        self.context.daemon.contact();
        let silence = Duration::from_secs(self.policy.link.bounded().timeout_secs.into());
        let mut feed = self.context.sets.watch();
        let (mut pushed, mut bytes, mut heard) = (Vec::new(), 0, Instant::now());
        let (mut due, mut quiet) = (Some(heard), None::<Instant>);
        let mut retry = Backoff::new(self.count);
        let (ended, closing) = loop {
            let rests = quiet.is_some() && !self.policy.transport.keeps_open();
            let post = due.unwrap_or(heard + silence);
            let mut stopped = self.stopped.clone();
            tokio::select! {
                came = reader.next() => {
                    heard = Instant::now();
                    match came {
                        Ok(Some(frames)) => {
                            bytes += frames.iter().map(weight).sum::<usize>();
                            pushed.extend(frames);
                        }
                        came => break (Ended::lost(came.err()), Closing::No),
                    }
                    if bytes > MAX_PUSHED {
                        let error = TransportError::TooLarge { limit: MAX_PUSHED };
                        break (Ended::lost(Some(error)), Closing::No);
                    }
                    if !pushed.iter().any(|frame| matches!(frame, Frame::Ping(_) | Frame::GoAway(_))) {
                        continue;
                    }
                    bytes = 0;
                    let ended = self.exchange(transport_kind, std::mem::take(&mut pushed)).await.ended;
                    if matches!(ended.how, EndedBy::Them(_)) {
                        break (ended, Closing::No);
                    }
                    due = Some(heard);
                }
                () = sleep_until(post) => {
                    if due.is_none() {
                        break (Ended::lost(Some(TransportError::Slow)), Closing::No);
                    }
                    let Exchanged { ended, progress, .. } = self.exchange(transport_kind, Vec::new()).await;
                    let now = Instant::now();
                    (quiet, due) = match progress {
                        Progress::Failed if ended.retry_after != Some(0) => break (ended, Closing::No),
                        Progress::Quiet => (Some(quiet.unwrap_or(now)), None),
                        Progress::Moved => (None, Some(now)),
                        Progress::Failed | Progress::Stuck => (None, Some(now + retry.failed(None))),
                    };
                    if matches!(progress, Progress::Quiet | Progress::Moved) {
                        retry.succeeded();
                    }
                }
                Ok(()) = feed.changed() => due = Some(Instant::now()),
                closing = self.closes(transport_kind, rules) => break (Ended::lost(None), closing),
                () = net::accept::stopped(&mut stopped) => break (Ended::lost(None), Closing::Stop),
                () = tokio::time::sleep(LOOK), if rests => if self.is_at_rest(quiet) {
                    break (Ended::lost(None), Closing::Idle);
                }
            }
        };
        LinkOutcome { ended, quiet: quiet.is_some(), closing }
    }
}
