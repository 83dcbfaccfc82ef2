//! Links of one request and one answer: polls, and the way up of server-sent events (SYN-1).
//!
//! ```text
//! own change, retry, moved --> exchange --> nothing left: a poll ends
//! pushed frames, up to a ping --> exchange --> post
//! ```
//!
//! Invariant: what an exchange did not bring is brought by the next one, from what is durable.

use std::sync::Arc;
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

use super::super::posts::Exchanged;
use super::{Closing, LinkManager, LinkOutcome};

/// After so long polls that bring something all the time pause for what else there is to do.
const LONGEST_POLL: Duration = Duration::from_secs(120);
/// Frames that are pushed down at once, before a ping ends them, take about so many bytes of memory
/// at the most.
const MAX_PUSHED: usize = 2 * (wire::batch::FULL + MAX_CONTENT);

impl LinkManager {
    /// One exchange: a post and its answer, or what was pushed down.
    async fn exchange(&mut self, transport_kind: TransportKind, pushed: Vec<Frame>) -> (Ended, Exchanged) {
        let rules = self.rules.borrow().clone();
        let (mut config, handler) = self.end(transport_kind, &rules);
        // An exchange does not wait for a retry: the next one brings what failed.
        Arc::make_mut(&mut config.limits).shown_after = 1;
        let after = self.acked.clone().filter(|_| pushed.is_empty());
        let exchanged = self.poster.exchange(config, after, &handler, pushed).await;
        self.acked = handler.state().acked.clone().or(self.acked.take());
        exchanged
    }

    /// Posts what there is to say until nothing is left, or nothing moves. Where events are pushed down,
    /// takes them, and posts until their stream ends.
    pub(super) async fn exchanges(
        &mut self,
        transport_kind: TransportKind,
        mut reader: Option<Box<SseReader>>,
    ) -> LinkOutcome {
        let (rules, began) = (self.rules.borrow_and_update().number, Instant::now());
        let polls = reader.is_none();
        if polls {
            self.last_poll = Some(link_time());
        } else {
            // The control plane could not announce a publish while there was no stream (SYN-11).
            self.context.daemon.contact();
        }
        let silence = Duration::from_secs(self.policy.link.bounded().timeout_secs.into());
        let (feed, mut stopped) = (self.context.sets.changed(), self.stopped.clone());
        let mut known = feed.get();
        let (mut pushed, mut bytes, mut heard) = (Vec::new(), 0, began);
        let (mut due, mut quiet) = (Some(began), None::<Instant>);
        let (mut retry, mut anew) = (Backoff::new(self.count), true);
        let (ended, closing) = loop {
            let post = due.unwrap_or(heard + silence);
            let taken = tokio::select! {
                Some(received) = async { Some(reader.as_mut()?.next().await) } => {
                    heard = Instant::now();
                    match received {
                        Ok(Some(frames)) => {
                            bytes += frames.iter().map(weight).sum::<usize>();
                            pushed.extend(frames);
                        }
                        received => break (Ended::lost(received.err()), Closing::No),
                    }
                    if bytes > MAX_PUSHED {
                        let error = TransportError::TooLarge { limit: MAX_PUSHED };
                        break (Ended::lost(Some(error)), Closing::No);
                    }
                    if !pushed.iter().any(|frame| matches!(frame, Frame::Ping(_) | Frame::GoAway(_))) {
                        continue;
                    }
                    bytes = 0;
                    std::mem::take(&mut pushed)
                }
                () = sleep_until(post) => match due {
                    Some(_) => Vec::new(),
                    None => break (Ended::lost(Some(TransportError::Slow)), Closing::No),
                },
                changes = feed.until(|changes| changes != known) => {
                    known = changes;
                    due = Some(Instant::now());
                    continue;
                }
                closing = self.closes(transport_kind, rules, || quiet) => break (Ended::lost(None), closing),
            };
            let was_pushed = !taken.is_empty();
            let (ended, progress) = tokio::select! {
                exchanged = self.exchange(transport_kind, taken) => exchanged,
                () = net::accept::stopped(&mut stopped) => break (Ended::lost(None), Closing::Stop),
            };
            let now = Instant::now();
            match progress {
                _ if was_pushed && matches!(ended.how, EndedBy::Them(_)) => break (ended, Closing::No),
                _ if was_pushed => due = Some(now),
                // Where the control plane stands elsewhere than was assumed, the next post knows it.
                Exchanged::Failed if ended.retry_after == Some(0) && std::mem::take(&mut anew) => {
                    due = Some(now);
                }
                Exchanged::Failed if polls || ended.retry_after != Some(0) => break (ended, Closing::No),
                Exchanged::Stuck if polls => break (ended, Closing::No),
                Exchanged::Failed | Exchanged::Stuck => (quiet, due) = (None, Some(now + retry.failed(None))),
                Exchanged::Moved => (quiet, due) = (None, Some(now)),
                Exchanged::Quiet => (quiet, due) = (quiet.or(Some(now)), None),
            }
            if matches!(progress, Exchanged::Quiet | Exchanged::Moved) {
                retry.succeeded();
                anew = true;
            }
            if polls && (quiet.is_some() || began.elapsed() >= LONGEST_POLL) {
                break (ended, Closing::Idle);
            }
        };
        LinkOutcome { ended, quiet: quiet.is_some(), closing }
    }
}
