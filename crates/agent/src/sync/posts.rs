//! Frames that are posted: a link by polling, and the way up of server-sent events (SYN-1).
//!
//! To the link this is a transport like others. A task posts what is to go, and gives what
//! the answers hold; while there is nothing to say it asks again, and the control plane holds
//! its answer back until there is something.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderValue;
use streams::{FrameReader, FrameWriter, TransportError};
use sync::Frame;
use sync::frame::Op;
use tokio::sync::mpsc;
use wire::batch::{self, Batch, MAX_ANSWER};
use wire::cloudevents::json::MAX_FRAMES;
use wire::cloudevents::{Origin, PRINCIPAL};

use crate::render::chain;
use crate::session::{CallError, Session};

/// How long an answer with nothing in it is held back.
const WAIT: Duration = Duration::from_secs(1);
/// How long frames that belong together may take to come, before a request goes.
const GATHER: Duration = Duration::from_millis(20);
/// Groups of frames that may wait here, each way.
const DEPTH: usize = 4;

/// The frames of answers.
pub struct Answers(mpsc::Receiver<Result<Vec<Frame>, TransportError>>);

/// What is to be posted.
pub struct Posts(Option<mpsc::Sender<Vec<Frame>>>, Option<tokio::task::JoinHandle<()>>);

/// Both ends of a link by polling.
pub fn polled(session: Session, origin: Origin) -> (Answers, Posts) {
    let (frames, to_post) = mpsc::channel(DEPTH);
    let (answers, taken) = mpsc::channel(DEPTH);
    let poster = Poster { session, origin, link: None, answers: Some(answers), to_post, left: None };
    let task = tokio::spawn(poster.run());
    (Answers(taken), Posts(Some(frames), Some(task)))
}

/// The way up of a link of this name, whose frames come down otherwise.
pub fn beside(session: Session, origin: Origin, link: HeaderValue) -> Posts {
    let (frames, to_post) = mpsc::channel(DEPTH);
    let poster = Poster { session, origin, link: Some(link), answers: None, to_post, left: None };
    let task = tokio::spawn(poster.run());
    Posts(Some(frames), Some(task))
}

#[async_trait]
impl FrameReader for Answers {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        self.0.recv().await.transpose()
    }
}

#[async_trait]
impl FrameWriter for Posts {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let gone = || TransportError::Broke("frames are not posted any more".to_owned());
        match &self.0 {
            Some(sender) => sender.send(frames).await.map_err(|_| gone()),
            None => Err(gone()),
        }
    }

    async fn finish(&mut self) {
        self.0 = None;
        if let Some(task) = self.1.take() {
            // The last words are posted; a panic was printed where it happened.
            let _ = task.await;
        }
    }
}

impl Drop for Posts {
    fn drop(&mut self) {
        if let Some(task) = self.1.take() {
            task.abort();
        }
    }
}

struct Poster {
    session: Session,
    origin: Origin,
    link: Option<HeaderValue>,
    /// Absent where frames come down otherwise, or nobody reads them any more.
    answers: Option<mpsc::Sender<Result<Vec<Frame>, TransportError>>>,
    to_post: mpsc::Receiver<Vec<Frame>>,
    /// What did not fit into the last request.
    left: Option<Vec<Frame>>,
}

impl Poster {
    async fn run(mut self) {
        // The first request begins with a hello, so it waits for one.
        let mut asks = false;
        while let Some(frames) = self.gather(asks && self.answers.is_some()).await {
            let answers = self.answers.clone();
            let posted = if frames.is_empty() {
                tokio::select! {
                    posted = self.post(frames, WAIT) => posted,
                    // Nobody reads answers any more; what is left to say is said still.
                    () = closed(answers.as_ref()) => {
                        self.answers = None;
                        continue;
                    }
                }
            } else {
                self.post(frames, Duration::ZERO).await
            };
            asks = true;
            let given = match posted {
                Ok((frames, _)) if frames.is_empty() => continue,
                Ok((frames, _)) => Ok(frames),
                Err(error) => Err(error),
            };
            let failed = given.as_ref().err().map(|error| chain(error));
            if let Some(answers) = &self.answers
                && answers.send(given).await.is_err()
            {
                self.answers = None;
            }
            if let Some(error) = failed {
                tracing::debug!(error, "frames could not be posted");
                return;
            }
        }
    }

    /// What is to go in one request; nothing when there is only to be asked. `None`: no more
    /// comes.
    async fn gather(&mut self, asks: bool) -> Option<Vec<Frame>> {
        let mut frames = match self.left.take() {
            Some(left) => left,
            None if asks => match tokio::time::timeout(GATHER, self.to_post.recv()).await {
                Ok(frames) => frames?,
                Err(_) => return Some(Vec::new()),
            },
            None => self.to_post.recv().await?,
        };
        let mut bytes = weight(&frames);
        while let Ok(Some(more)) = tokio::time::timeout(GATHER, self.to_post.recv()).await {
            bytes += weight(&more);
            if bytes > batch::FULL || frames.len() + more.len() > MAX_FRAMES {
                self.left = Some(more);
                break;
            }
            frames.extend(more);
        }
        Some(frames)
    }

    async fn post(
        &mut self,
        frames: Vec<Frame>,
        wait: Duration,
    ) -> Result<(Vec<Frame>, bool), TransportError> {
        let body = batch::encode(&mut self.origin, &Batch { frames, more: false })?;
        let (answer, link) =
            self.session.post_frames(body, self.link.as_ref(), wait).await.map_err(of_call)?;
        if link.is_some() {
            self.link = link;
        }
        let answer = batch::decode(&Bytes::from(answer), Some(PRINCIPAL), MAX_ANSWER)?;
        Ok((answer.frames, answer.more))
    }
}

fn of_call(error: CallError) -> TransportError {
    match error {
        CallError::Refused(problem) => TransportError::Problem(problem),
        other => TransportError::Broke(chain(&other)),
    }
}

async fn closed(answers: Option<&mpsc::Sender<Result<Vec<Frame>, TransportError>>>) {
    match answers {
        Some(answers) => answers.closed().await,
        None => std::future::pending().await,
    }
}

/// The bytes of contents in frames.
fn weight(frames: &[Frame]) -> usize {
    let content = |frame: &Frame| match frame {
        Frame::Event(event) => match &event.op {
            Op::Put { content, .. } => content.len(),
            Op::Delete { .. } => 0,
        },
        _ => 0,
    };
    frames.iter().map(content).sum()
}
