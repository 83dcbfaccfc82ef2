//! Opening a link's transport as this node: gRPC, WebSocket, server-sent events (SYN-1, IDN-4).
//!
//! gRPC and WebSockets need no more than the node's certificate. The request for server-sent
//! events is signed; a refusal for its time or number is answered once, with a better one.

use std::sync::Arc;
use std::time::Duration;

use model::Hostname;
use net::client::{ClientError, Http1};
use streams::open::{self, StreamDialer};
use streams::sse::SseReader;
use streams::task::LinkTransport;
use wire::Problem;
use wire::cloudevents::Origin;
use wire::signature::Target;
use wire::sse::cursor_text;

use crate::session::{CallError, Session};
use crate::sync::posts::Poster;

/// Why a transport could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody is there: another transport would not help.
    #[error("the control plane cannot be reached")]
    Reach(#[source] Box<CallError>),
    /// The control plane refused, or something on the way to it.
    #[error("refused: {0}")]
    Refused(Box<Problem>),
    /// This transport does not come through.
    #[error("it does not come through: {0}")]
    Transport(String),
}

impl DialError {
    /// Another transport may work.
    pub fn is_of_transport(&self) -> bool {
        match self {
            DialError::Transport(_) => true,
            DialError::Reach(_) => false,
            // What something on the way says, or a control plane that does not know this one.
            DialError::Refused(problem) => matches!(problem.status, 404 | 405 | 415 | 426 | 500..),
        }
    }

    /// How long to stay away.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            DialError::Refused(problem) => problem.retry_after_secs.map(Duration::from_secs),
            DialError::Reach(_) | DialError::Transport(_) => None,
        }
    }
}

impl From<CallError> for DialError {
    fn from(error: CallError) -> DialError {
        match error {
            CallError::Refused(problem) => DialError::Refused(problem),
            other => DialError::Reach(Box::new(other)),
        }
    }
}

impl From<open::OpenError> for DialError {
    fn from(error: open::OpenError) -> DialError {
        match error {
            open::OpenError::Refused(problem) => DialError::Refused(problem),
            // The connection is there already: what does not get through is the stream.
            open::OpenError::Reach(error) => DialError::Transport(crate::render::chain(&error)),
            open::OpenError::Request(error) => DialError::Reach(Box::new(error.into())),
        }
    }
}

/// Dials the transports of one node's links.
#[derive(Clone)]
pub struct TransportDialer {
    session: Arc<Session>,
    hostname: Hostname,
}

impl TransportDialer {
    /// Dials over the connection of this session, or beside it.
    pub fn new(session: Arc<Session>, hostname: Hostname) -> TransportDialer {
        TransportDialer { session, hostname }
    }

    /// Posts frames over the connection that calls go over too.
    pub fn poster(&self, link: &str) -> Poster {
        Poster::new(self.session.clone(), Origin::agent(&self.hostname, link))
    }

    /// The control planes in turn: the next try goes to the next one.
    pub fn next_url(&self) {
        self.session.next_url();
    }

    /// A bidirectional gRPC stream, over the connection that calls go over too.
    ///
    /// # Errors
    /// [`DialError`] says whether another transport may do better.
    pub async fn grpc(&self, link: &str) -> Result<LinkTransport, DialError> {
        let mut client = self.session.client().await?;
        Ok(self.dialer(link).grpc(&mut client).await?)
    }

    /// A WebSocket over a connection of its own, which speaks HTTP/1.1.
    ///
    /// # Errors
    /// As [`TransportDialer::grpc`].
    pub async fn websocket(&self, link: &str) -> Result<LinkTransport, DialError> {
        Ok(self.dialer(link).websocket(self.http1().await?).await?)
    }

    fn dialer<'a>(&'a self, link: &'a str) -> StreamDialer<'a> {
        StreamDialer { hostname: &self.hostname, version: env!("CARGO_PKG_VERSION"), link }
    }

    async fn http1(&self) -> Result<Http1, DialError> {
        Http1::dial(self.session.url(), self.session.tls()).await.map_err(|error| match error {
            ClientError::Dial { .. } | ClientError::Name(_) => DialError::Reach(Box::new(error.into())),
            other => DialError::Transport(crate::render::chain(&other)),
        })
    }

    /// Server-sent events over a connection of its own. `instance`: the instance of this process; `have`:
    /// the replica's durable cursor.
    ///
    /// # Errors
    /// As [`TransportDialer::grpc`].
    pub async fn sse(
        &self,
        link: &str,
        instance: &str,
        have: Option<&sync::FeedCursor>,
    ) -> Result<SseReader, DialError> {
        let session = self.session.beside();
        let signer = session.signer().clone();
        let mut client = session.client().await?;
        let last = have.map(cursor_text);
        let last = last.as_deref();
        let dialer = self.dialer(link);
        let _under_way = signer.begin();
        let sign = |target: Target<'_>| signer.sign(target);
        let opened = match dialer.sse(&mut client, instance, last, sign).await {
            Err(open::OpenError::Refused(problem)) if signer.learn(&problem) => {
                dialer.sse(&mut client, instance, last, sign).await
            }
            opened => opened,
        };
        Ok(opened?)
    }
}
