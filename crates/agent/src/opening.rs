//! Opening a link's transport as this node: gRPC, WebSocket, server-sent events (SYN-1, IDN-4).
//!
//! A refusal for the clock or for the number is answered once, with a better one.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use model::Hostname;
use net::client::{ClientError, Http1};
use streams::open;
use streams::sse::SseReader;
use streams::task::LinkTransport;
use sync::FeedCursor;
use tokio::sync::Mutex;
use wire::Problem;
use wire::cloudevents::Origin;
use wire::sse::cursor_text;

use crate::session::{CallError, LINK, Session};

/// Why a transport could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody is there: another transport would not help.
    #[error("the control plane cannot be reached")]
    Reach(#[source] Box<CallError>),
    /// The control plane refused, or something on the way to it.
    #[error("refused: {0}")]
    Refused(Box<Problem>),
    /// This transport does not come through.
    #[error("it does not come through: {0}")]
    TransportKind(String),
}

impl OpenError {
    /// Another transport may work.
    pub fn is_of_carrier(&self) -> bool {
        match self {
            OpenError::TransportKind(_) => true,
            OpenError::Reach(_) => false,
            // What something on the way says, or a control plane that does not know this one.
            OpenError::Refused(problem) => matches!(problem.status, 404 | 405 | 415 | 426 | 500..),
        }
    }

    /// How long to stay away.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            OpenError::Refused(problem) => problem.retry_after_secs.map(Duration::from_secs),
            OpenError::Reach(_) | OpenError::TransportKind(_) => None,
        }
    }
}

impl From<CallError> for OpenError {
    fn from(error: CallError) -> OpenError {
        match error {
            CallError::Refused(problem) => OpenError::Refused(problem),
            other => OpenError::Reach(Box::new(other)),
        }
    }
}

impl From<open::OpenError> for OpenError {
    fn from(error: open::OpenError) -> OpenError {
        match error {
            open::OpenError::Refused(problem) => OpenError::Refused(problem),
            // The connection is there already: what does not get through is the stream.
            open::OpenError::Reach(error) => OpenError::TransportKind(crate::render::chain(&error)),
            open::OpenError::Request(error) => OpenError::Reach(Box::new(error.into())),
        }
    }
}

/// Opens the transports of one node.
#[derive(Clone)]
pub struct Opener {
    session: Arc<Mutex<Session>>,
    hostname: Hostname,
}

impl Opener {
    /// Opens over the connection of this session, or beside it.
    pub fn new(session: Arc<Mutex<Session>>, hostname: Hostname) -> Opener {
        Opener { session, hostname }
    }

    /// Where a link's frames say to come from.
    pub fn origin(&self, link: &str) -> Origin {
        Origin::agent(&self.hostname, link)
    }

    /// A session with a connection of its own.
    pub async fn beside(&self) -> Session {
        self.session.lock().await.beside()
    }

    /// The control planes in turn: the next try goes to the next one.
    pub async fn next_url(&self) {
        self.session.lock().await.next_url();
    }

    /// A bidirectional gRPC stream, over the connection that calls go over too.
    ///
    /// # Errors
    /// [`OpenError`] says whether another transport may do better.
    pub async fn grpc(&self, link: &str) -> Result<LinkTransport, OpenError> {
        let (mut client, signer) = {
            let mut session = self.session.lock().await;
            (session.client().await?.clone(), session.signer().clone())
        };
        match signer.opener(&self.hostname, link).grpc(&mut client).await {
            Err(open::OpenError::Refused(problem)) if signer.learn(&problem) => {
                Ok(signer.opener(&self.hostname, link).grpc(&mut client).await?)
            }
            opened => Ok(opened?),
        }
    }

    /// A WebSocket over a connection of its own, which speaks HTTP/1.1.
    ///
    /// # Errors
    /// As [`Opener::grpc`].
    pub async fn websocket(&self, link: &str) -> Result<LinkTransport, OpenError> {
        let signer = self.session.lock().await.signer().clone();
        match signer.opener(&self.hostname, link).websocket(self.http1().await?).await {
            Err(open::OpenError::Refused(problem)) if signer.learn(&problem) => {
                Ok(signer.opener(&self.hostname, link).websocket(self.http1().await?).await?)
            }
            opened => Ok(opened?),
        }
    }

    async fn http1(&self) -> Result<Http1, OpenError> {
        let (url, tls) = {
            let session = self.session.lock().await;
            (session.url().clone(), session.tls().clone())
        };
        Http1::dial(&url, &tls).await.map_err(|error| match error {
            ClientError::Dial { .. } | ClientError::Name(_) => OpenError::Reach(Box::new(error.into())),
            other => OpenError::TransportKind(crate::render::chain(&other)),
        })
    }

    /// Server-sent events over a connection of its own; gives what comes down, the link's name
    /// and the session that frames are posted with. `instance`: the instance of this process; `have`:
    /// the replica's durable cursor.
    ///
    /// # Errors
    /// As [`Opener::grpc`].
    pub async fn sse(
        &self,
        link: &str,
        instance: &str,
        have: Option<&FeedCursor>,
    ) -> Result<(SseReader, HeaderValue, Session), OpenError> {
        let mut session = self.beside().await;
        let signer = session.signer().clone();
        let mut client = session.client().await?.clone();
        let last = have.map(cursor_text);
        let last = last.as_deref();
        let opened = match signer.opener(&self.hostname, link).sse(&mut client, instance, last).await {
            Err(open::OpenError::Refused(problem)) if signer.learn(&problem) => {
                signer.opener(&self.hostname, link).sse(&mut client, instance, last).await
            }
            opened => opened,
        };
        let (incoming, headers) = opened?;
        let name = headers.get(LINK).cloned();
        let name = name.ok_or_else(|| OpenError::TransportKind("the link has no name".to_owned()))?;
        Ok((incoming, name, session))
    }
}
