//! Opening a link's transport as this node: gRPC, WebSocket, server-sent events (SYN-1, IDN-4).
//!
//! gRPC and WebSockets need no more than the node's certificate. The request for server-sent
//! events is signed; a refusal for its time or number is answered once, with a better one.

use std::sync::Arc;

use model::Hostname;
use net::client::{ClientError, Http1};
use streams::TransportError;
use streams::open::StreamDialer;
use streams::sse::SseReader;
use streams::task::LinkTransport;
use wire::cloudevents::Origin;
use wire::signature::SignedTarget;
use wire::sse::cursor_text;

use crate::render::chain;
use crate::session::{CallError, NodeSession};
use crate::sync::posts::Poster;

impl From<CallError> for TransportError {
    fn from(error: CallError) -> TransportError {
        match error {
            CallError::Refused(problem) => TransportError::Problem(problem),
            other => TransportError::Unreached(chain(&other)),
        }
    }
}

/// Dials the transports of one node's links.
#[derive(Clone)]
pub struct TransportDialer {
    session: Arc<NodeSession>,
    hostname: Hostname,
}

impl TransportDialer {
    /// Dials over the connection of this session, or beside it.
    pub fn new(session: Arc<NodeSession>, hostname: Hostname) -> TransportDialer {
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
    /// [`TransportError`] says what is in the way.
    pub async fn grpc(&self, link: &str) -> Result<LinkTransport, TransportError> {
        let mut client = self.session.client().await?;
        self.dialer(link).grpc(&mut client).await
    }

    /// A WebSocket over a connection of its own, which speaks HTTP/1.1.
    ///
    /// # Errors
    /// As [`TransportDialer::grpc`].
    pub async fn websocket(&self, link: &str) -> Result<LinkTransport, TransportError> {
        self.dialer(link).websocket(self.http1().await?).await
    }

    fn dialer<'a>(&'a self, link: &'a str) -> StreamDialer<'a> {
        StreamDialer { hostname: &self.hostname, version: env!("CARGO_PKG_VERSION"), link }
    }

    async fn http1(&self) -> Result<Http1, TransportError> {
        let dialled = Http1::dial(self.session.destination(), &self.session.tls()).await;
        dialled.map_err(|error| match error {
            // Nothing is reached, by whatever transport.
            ClientError::Dial { .. }
            | ClientError::Name(_)
            | ClientError::UnknownName { .. }
            | ClientError::Proxy { .. } => CallError::from(error).into(),
            other => other.into(),
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
    ) -> Result<SseReader, TransportError> {
        let session = self.session.beside();
        let signer = session.signer().clone();
        let mut client = session.client().await?;
        let last = have.map(cursor_text);
        let last = last.as_deref();
        let dialer = self.dialer(link);
        let _under_way = signer.begin();
        let sign = |target: SignedTarget<'_>| signer.sign(target);
        match dialer.sse(&mut client, instance, last, sign).await {
            Err(TransportError::Problem(problem)) if signer.learn(&problem) => {
                dialer.sse(&mut client, instance, last, sign).await
            }
            opened => opened,
        }
    }
}
