//! Exchanges with the control plane by requests: polls, and the way up of server-sent events (SYN-1).
//!
//! ```text
//! link from durable cursors --> its frames --post--> answer --> link --> gone
//!                        ^                                       |
//!                        +-- acknowledged cursor, answers -------+   what there was no room for
//! ```
//!
//! Invariants: nothing is kept from one exchange to the next but what the other side said of its
//! cursor and frames that have no number; so a request that was lost is made again from what is
//! durable, and another control plane may answer the next one.

use std::sync::Arc;

use bytes::Bytes;
use streams::task::Ended;
use streams::{Exchange, LinkHandler, TransportError};
use sync::link::{LinkConfig, outlives_exchange};
use sync::{FeedCursor, Frame};
use wire::batch::{self, Batch, MAX_ANSWER};
use wire::cloudevents::json::MAX_FRAMES;
use wire::cloudevents::{Origin, PRINCIPAL};

use super::handler::AgentLinkHandler;
use crate::render::chain;
use crate::session::{CallError, Session};

/// Posts frames.
pub struct Poster {
    session: Arc<Session>,
    origin: Origin,
    /// What the last exchange had to say and no more room for.
    left: Vec<Frame>,
}

/// How an exchange ended.
pub struct Posted {
    /// As a link that ends does.
    pub ended: Ended,
    /// It failed, or a side ended it with a go-away.
    pub failed: bool,
    /// The control plane's durable cursor in the own feed, if it is known.
    pub acked: Option<FeedCursor>,
    /// Something came, or is to go: another exchange brings more.
    pub moved: bool,
}

impl Poster {
    /// Posts over this session; frames say to come from `origin`.
    pub fn new(session: Arc<Session>, origin: Origin) -> Poster {
        Poster { session, origin, left: Vec::new() }
    }

    /// One request and its answer. `after` is the control plane's cursor, as it said last.
    pub async fn post(
        &mut self,
        config: LinkConfig,
        after: Option<FeedCursor>,
        handler: &Arc<AgentLinkHandler>,
    ) -> Posted {
        let mut exchange = Exchange::open(config, after, handler.clone(), []);
        let mut frames = exchange.say(Vec::new()).await.frames;
        let room = MAX_FRAMES.saturating_sub(frames.len());
        // Behind the hello.
        let at = frames.len().min(1);
        frames.splice(at..at, self.left.drain(..).take(room));
        let (error, more) = match self.exchanged(frames).await {
            Ok(Batch { frames, more }) => {
                let said = exchange.say(frames).await.frames;
                // What is to be compared goes with the next one.
                let more = more || said.iter().any(|frame| matches!(frame, Frame::Checkpoint(_)));
                self.left = said.into_iter().filter(outlives_exchange).collect();
                (None, more)
            }
            Err(error) => (Some(error), false),
        };
        let moved = more || !self.left.is_empty();
        self.end(exchange, handler, error, moved).await
    }

    /// Takes what the control plane pushed down.
    pub async fn take(
        &mut self,
        config: LinkConfig,
        frames: Vec<Frame>,
        handler: &Arc<AgentLinkHandler>,
    ) -> Posted {
        let mut exchange = Exchange::open(config, None, handler.clone(), []);
        let said = exchange.say(frames).await;
        self.left = said.frames.into_iter().filter(outlives_exchange).collect();
        self.end(exchange, handler, None, true).await
    }

    async fn end(
        &mut self,
        exchange: Exchange<AgentLinkHandler>,
        handler: &AgentLinkHandler,
        error: Option<TransportError>,
        moved: bool,
    ) -> Posted {
        let failed = error.is_some() || exchange.is_closed();
        let acked = handler.with_sets(|feed, _| exchange.link().resumes_after(feed));
        let mut ended = exchange.end().await;
        if let Some(error) = &error {
            tracing::debug!(error = chain(error), "frames could not be posted");
        }
        let counters = &ended.counters;
        let moved = moved || counters.received + counters.resync_frames + counters.refused_here > 0;
        ended.error = ended.error.or(error);
        Posted { ended, failed, acked, moved }
    }

    async fn exchanged(&mut self, frames: Vec<Frame>) -> Result<Batch, TransportError> {
        let body = batch::encode(&mut self.origin, &Batch { frames, more: false })?;
        let answer = self.session.post_frames(body).await.map_err(of_call)?;
        Ok(batch::decode(&Bytes::from(answer), Some(PRINCIPAL), MAX_ANSWER)?)
    }
}

fn of_call(error: CallError) -> TransportError {
    match error {
        CallError::Refused(problem) => TransportError::Problem(problem),
        other => TransportError::Broke(chain(&other)),
    }
}
