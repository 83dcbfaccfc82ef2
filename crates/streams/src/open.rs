//! [`StreamDialer`]: the request of a node that opens a stream (IDN-4).
//!
//! gRPC and WebSocket streams live on a TLS session whose client certificate carries the node's
//! key; the request says the versions of the protocol and of the agent. Server-sent events are the answer
//! to one request, which is signed as every unary request is.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, response};
use model::Hostname;
use net::client::{Client, Http1, Upgraded};
use net::stream::{Receiver, Stream};
use net::websocket::SocketBounds;
use wire::cloudevents::{MAX_DOWN, MAX_UP, Origin, PRINCIPAL};
use wire::grpc::{self, GrpcStatus};
use wire::headers::{AGENT_VERSION_HEADER, PROTOCOL, PROTOCOL_HEADER, SIGNATURE, SIGNATURE_INPUT};
use wire::signature::{self, SignatureHeaders, SignedTarget};
use wire::{Code, Problem, route, sse};

use crate::grpc::{GrpcReader, GrpcWriter};
use crate::sse::SseReader;
use crate::task::LinkTransport;
use crate::transport::TransportError;

/// How long the answer to a stream request may take.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// The longest body of a refusal, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;

/// Names the instance of the agent in the query of a request for events (IDN-10): where frames go
/// down before a hello comes up, the control plane could not distinguish two agents otherwise.
pub const INSTANCE: &str = "instance";

/// Opens the streams of one node.
#[derive(Clone, Copy)]
pub struct StreamDialer<'a> {
    /// The node's name.
    pub hostname: &'a Hostname,
    /// The agent's version.
    pub version: &'static str,
    /// A text that names this link among all of the node.
    pub link: &'a str,
}

impl StreamDialer<'_> {
    fn request(&self, method: Method, uri: &str) -> Result<Request<()>, TransportError> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, self.version);
        request.body(()).map_err(unwritable)
    }

    fn origin(&self) -> Origin {
        Origin::agent(self.hostname, self.link)
    }

    /// Opens a link over gRPC.
    ///
    /// # Errors
    /// [`TransportError`] says what is in the way.
    pub async fn grpc(&self, client: &mut Client) -> Result<LinkTransport, TransportError> {
        let uri = format!("https://{}{}", client.url().authority(), route::SUBSCRIBE);
        let mut request = self.request(Method::POST, &uri)?;
        grpc::announce(request.headers_mut(), true);
        request.headers_mut().insert(http::header::TE, HeaderValue::from_static("trailers"));
        let stream = client.open_stream(request, Bytes::new(), OPEN_WITHIN).await?;
        let agreed = match grpc::agree(&stream.response.headers) {
            Ok(agreed) if stream.response.status == StatusCode::OK => agreed,
            Ok(_) | Err(_) => return Err(refusal(stream.response, stream.receiver).await),
        };
        if GrpcStatus::read(&stream.response.headers).is_some() {
            return Err(refusal(stream.response, stream.receiver).await);
        }
        let Stream { sender, receiver, .. } = stream;
        let body = receiver.into_body();
        let reader = GrpcReader::new(body, agreed.incoming_gzip, MAX_DOWN, PRINCIPAL.to_owned());
        let writer = GrpcWriter::of_request(sender, self.origin(), agreed.outgoing_gzip);
        Ok(LinkTransport { reader: Box::new(reader), writer: Box::new(writer) })
    }

    /// Opens a link over a WebSocket.
    ///
    /// # Errors
    /// [`TransportError`] says what is in the way.
    pub async fn websocket(&self, http1: Http1) -> Result<LinkTransport, TransportError> {
        let request = self.request(Method::GET, route::STREAM)?;
        let bounds = SocketBounds { read: MAX_DOWN, write: MAX_UP };
        match http1.upgrade(request, bounds, OPEN_WITHIN).await? {
            Upgraded::Socket(socket) => {
                let (origin, source) = (self.origin(), PRINCIPAL.to_owned());
                let (reader, writer) = crate::websocket::halves(socket, origin, true, MAX_DOWN, source);
                Ok(LinkTransport { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Upgraded::Refused(response) => Err(TransportError::Problem(Box::new(problem(&response)))),
        }
    }

    /// Opens server-sent events: what the control plane would answer a post with, as soon as there is
    /// something (SYN-11). `last_event` is the replica's durable cursor, which the signature covers;
    /// `instance` names this process, in letters, digits and `-`; `sign` signs the request.
    ///
    /// # Errors
    /// [`TransportError`] says what is in the way.
    pub async fn sse(
        &self,
        client: &mut Client,
        instance: &str,
        last_event: Option<&str>,
        sign: impl FnOnce(SignedTarget<'_>) -> SignatureHeaders,
    ) -> Result<SseReader, TransportError> {
        let query = format!("{INSTANCE}={instance}");
        let uri = format!("https://{}{}?{query}", client.url().authority(), route::STREAM);
        let path = route::STREAM;
        let signed =
            sign(SignedTarget { method: "GET", path, query: &query, body: &[], last_event_id: last_event });
        let mut request = self.request(Method::GET, &uri)?;
        let headers = request.headers_mut();
        let value = |text: String| HeaderValue::try_from(text).map_err(unwritable);
        headers.insert(SIGNATURE_INPUT, value(signed.input)?);
        headers.insert(SIGNATURE, value(signed.signature)?);
        signature::keep_out_of_table(headers);
        headers.insert(http::header::ACCEPT, HeaderValue::from_static(sse::CONTENT));
        if let Some(id) = last_event {
            headers.insert(sse::LAST_EVENT_ID, value(id.to_owned())?);
        }
        // The request ends with its headers: what is on the way may wait for its end.
        let (response, receiver) = client.open_download(request, OPEN_WITHIN).await?;
        if response.status != StatusCode::OK {
            return Err(refusal(response, receiver).await);
        }
        Ok(SseReader::new(receiver, MAX_DOWN, PRINCIPAL.to_owned()))
    }
}

async fn refusal(response: response::Parts, receiver: Receiver) -> TransportError {
    if let Some(problem) = GrpcStatus::read(&response.headers).and_then(|status| status.problem) {
        return TransportError::Problem(problem);
    }
    match receiver.rest(MAX_REFUSAL).await {
        Ok(body) => TransportError::Problem(Box::new(problem(&Response::from_parts(response, body)))),
        Err(error) => error.into(),
    }
}

fn unwritable(error: impl Into<http::Error>) -> TransportError {
    TransportError::Framing(error.into().to_string())
}

/// The problem that an answer carries; one made up when it carries none, as a proxy's answer.
fn problem(response: &Response<Bytes>) -> Problem {
    wire::body::decode(response.body()).map(Problem::bounded).unwrap_or_else(|_| {
        let status = response.status();
        Problem::new(Code::Internal, format!("the answer is {status}, without a reason"))
    })
}
