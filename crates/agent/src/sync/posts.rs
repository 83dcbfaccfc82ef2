//! Exchanges with the control plane by requests: polls, and both ways of server-sent events (SYN-1).
//!
//! ```text
//! link from durable cursors --> its frames --post--> answer --> link --> gone
//!                        ^                                       |
//!                        +-- acknowledged cursor, answers -------+   what there was no room for
//! ```
//!
//! Invariants: nothing is kept from one exchange to the next but what the other side said of its
//! cursor, how far a resync came (with the replica) and answers that have no number; so a request that
//! was lost is made again from what is durable, and another control plane may answer the next one. An
//! answer that the other side does not ask for again is kept until a post brought it, within a bound and
//! while there is no stream of two ways.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use streams::task::Ended;
use streams::weight::weight;
use streams::{Exchange, TransportError};
use sync::link::{LinkConfig, outlives_exchange};
use sync::{FeedCursor, Frame};
use wire::batch::{self, FULL, FrameBatch, MAX_ANSWER};
use wire::cloudevents::json::MAX_FRAMES;
use wire::cloudevents::{Origin, PRINCIPAL};

use super::handler::AgentLinkHandler;
use crate::render::chain;
use crate::session::NodeSession;

/// The most answers that wait for a post, in bytes: of an inventory about 32,000 objects. Those
/// beyond are left out, from the first of them on, so that none seems to be the last.
const MAX_LEFT: usize = 8 * 1024 * 1024;

/// Posts frames.
pub struct Poster {
    session: Arc<NodeSession>,
    origin: Origin,
    /// What exchanges had to say and no more room for.
    pub(super) left: VecDeque<Frame>,
}

/// What an exchange came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// It failed, or a side ended it with a go-away.
    Failed,
    /// Something came, or is to go: another exchange brings more.
    Moved,
    /// Nothing moved, and frames are left to send.
    Stuck,
    /// Both directions are equal, and no frame is left to send.
    Quiet,
}

impl Poster {
    /// Posts over this session; frames say to come from `origin`.
    pub fn new(session: Arc<NodeSession>, origin: Origin) -> Poster {
        Poster { session, origin, left: VecDeque::new() }
    }

    /// One request and its answer, or what was `pushed` down in place of them. `after` is the
    /// control plane's cursor, as it said last. Gives how the link ended, and what it came to.
    pub async fn exchange(
        &mut self,
        config: LinkConfig,
        after: Option<FeedCursor>,
        handler: &Arc<AgentLinkHandler>,
        pushed: Vec<Frame>,
    ) -> (Ended, Exchanged) {
        let mut exchange = Exchange::open(config, after, handler.clone());
        let had_left = !self.left.is_empty();
        let received = match pushed.is_empty() {
            true => {
                let own = exchange.step(Vec::new()).await.frames;
                self.post(own).await
            }
            false => Ok(FrameBatch { frames: pushed, more: true }),
        };
        let (mut moved, mut error) = (had_left, None);
        match received {
            Ok(FrameBatch { frames, more }) => {
                let answers = exchange.step(frames).await.frames;
                // What is to be compared goes with the next one.
                moved |= more || answers.iter().any(|frame| matches!(frame, Frame::Checkpoint(_)));
                self.keep(&mut exchange, answers).await;
            }
            Err(failed) => error = Some(failed),
        }
        let failed = error.is_some() || exchange.is_closed();
        let counters = exchange.link().counters();
        let brought = counters.received + counters.resync_frames + counters.refused_here > 0;
        let mut ended = exchange.end().await;
        if let Some(error) = &error {
            tracing::debug!(error = chain(error), "frames could not be posted");
        }
        ended.error = ended.error.or(error);
        let progress = match (failed, moved || brought || !self.left.is_empty()) {
            (true, _) => Exchanged::Failed,
            (false, true) => Exchanged::Moved,
            (false, false) if handler.state().quiet.is_some() => Exchanged::Quiet,
            (false, false) => Exchanged::Stuck,
        };
        (ended, progress)
    }

    /// Posts what was left, behind the hello, then as many own frames as there is room for: of those
    /// the next exchange says again what it must.
    async fn post(&mut self, own: Vec<Frame>) -> Result<FrameBatch, TransportError> {
        let mut own = own.into_iter();
        let mut frames: Vec<Frame> = own.next().into_iter().collect();
        let (mut number, mut bytes) = (frames.len(), 0);
        // One may always go.
        let mut fits = |frame: &Frame| {
            (number, bytes) = (number + 1, bytes + weight(frame));
            number <= MAX_FRAMES && (number <= 2 || bytes <= FULL)
        };
        let count = self.left.iter().take_while(|frame| fits(frame)).count();
        frames.extend(self.left.iter().take(count).cloned());
        // Alone they are as many as fit.
        frames.extend(own.take_while(|frame| count == 0 || fits(frame)));
        let body = batch::encode(&mut self.origin, &FrameBatch { frames, more: false })?;
        let answer = self.session.post_frames(body).await.map_err(TransportError::from);
        if answer.as_ref().map_or_else(is_unreadable, |_| true) {
            self.left.drain(..count);
        }
        // The next exchange asks for them again, or says them anew.
        self.left.retain(|frame| !is_asked_for_again(frame));
        Ok(batch::decode(&Bytes::from(answer?), Some(PRINCIPAL), MAX_ANSWER)?)
    }

    /// Keeps the answers that an exchange has, those that it had no room for among them.
    async fn keep(&mut self, exchange: &mut Exchange<AgentLinkHandler>, mut answers: Vec<Frame>) {
        let mut bytes: usize = self.left.iter().map(weight).sum();
        while !answers.is_empty() {
            let mut ends = false;
            for answer in answers.into_iter().filter(outlives_exchange) {
                bytes += weight(&answer);
                if bytes > MAX_LEFT {
                    tracing::warn!(MAX_LEFT, "more answers than may wait for the next post");
                    return;
                }
                ends |= matches!(answer, Frame::Event(_));
                self.left.push_back(answer);
            }
            // Contents, which are asked for again, are not loaded beyond what a post takes.
            if ends {
                return;
            }
            answers = exchange.step(Vec::new()).await.frames;
        }
    }
}

/// An answer of a trie resync, which each exchange asks for anew, or a checkpoint, which it says anew.
fn is_asked_for_again(frame: &Frame) -> bool {
    matches!(frame, Frame::Event(_) | Frame::ResyncResponse(_) | Frame::Checkpoint(_))
}

/// Whether the same again would be refused again.
fn is_unreadable(error: &TransportError) -> bool {
    matches!(error, TransportError::Problem(problem) if matches!(problem.status, 400 | 413))
}
