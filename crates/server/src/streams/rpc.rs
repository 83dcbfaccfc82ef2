//! The unary and client-streaming calls of gRPC: `Version`, `Ping`, `Push`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming as Body;
use model::replication::TransportKind;
use net::accept::Connection;
use net::stream::{BodySender, SentBody};
use streams::FrameReader;
use streams::grpc::{GrpcReader, Messages};
use streams::transport::{TOO_LARGE, TransportError};
use sync::Frame;
use sync::frame::{GoAway, Refused};
use tokio::sync::OwnedMutexGuard;
use wire::cloudevents::MAX_UP;
use wire::grpc::{self, GrpcStatus};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::rpc::{self, PingRequest, PongReply, PushSummary, VersionRequest, VersionResponse};
use wire::{Code, Problem};

use super::posted::{NodeExchange, posting_lease};
use super::serve::{HELLO_WITHIN, SOON, StreamRequest, away, over};
use crate::answer::PortReply;
use crate::node_port::CallingNode;
use crate::state::{ControlPlane, run_to_completion};

/// The longest message of a unary call, in bytes.
pub(super) const MAX_CALL: usize = 4 * 1024;
/// How long it may take to arrive.
const CALL_WITHIN: Duration = Duration::from_secs(15);
/// The most frames of one `Push`.
const MAX_PUSHED: u64 = 100_000;
/// How long more of a push may take to come.
const PUSHED_WITHIN: Duration = Duration::from_secs(60);

/// `Version`: what this control plane speaks.
pub(crate) async fn version(request: Request<Body>) -> Result<PortReply, Problem> {
    let message = called(request).await?;
    let asked: VersionRequest = rpc::read(&message)?;
    let own = VersionResponse::own(concat!("muster/", env!("CARGO_PKG_VERSION")));
    if asked != VersionRequest::default() && own.common(asked).is_none() {
        return Err(Code::ProtocolVersion.into());
    }
    Ok(message_reply(rpc::write(&own)))
}

/// `Ping`: a sign of life.
pub(crate) async fn ping(request: Request<Body>) -> Result<PortReply, Problem> {
    let PingRequest { number } = rpc::read(&called(request).await?)?;
    Ok(message_reply(rpc::write(&PongReply { number })))
}

/// `Push`: frames up, a summary down; a short link whose own frames are not asked for. A summary
/// says that all is durable; everything else is a status with its reason (SYN-4).
pub(crate) async fn push(
    plane: &Arc<ControlPlane>,
    caller: CallingNode,
    connection: Connection,
    request: Request<Body>,
) -> Result<PortReply, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let link = StreamRequest::new(plane, caller, connection, TransportKind::Poll);
    let reader = GrpcReader::new(request.into_body(), agreed.incoming_gzip, MAX_UP, link.source());
    let posting_lease = posting_lease(&link)?;
    run_to_completion(async move {
        Ok(match pushed(link, posting_lease, reader).await {
            Ok(summary) => message_reply(rpc::write(&summary)),
            Err(why) => status_reply(&GrpcStatus::of_go_away(&why.code, &why.message)),
        })
    })
    .await
}

async fn pushed(
    link: Box<StreamRequest>,
    posting_lease: OwnedMutexGuard<()>,
    mut reader: GrpcReader,
) -> Result<PushSummary, GoAway> {
    let connection = link.connection.clone();
    let first = read_first(&mut reader).await?;
    let mut exchange = NodeExchange::begin(link, posting_lease, &first).await?;
    let pushed = all_pushed(&mut exchange, first, &mut reader, &connection).await;
    exchange.end().await;
    pushed
}

/// Frames that come; what cannot be read is refused with a code.
async fn read(reader: &mut dyn FrameReader) -> Result<Option<Vec<Frame>>, GoAway> {
    let read = reader.next().await;
    read.map_err(|error| away(error.refusal().unwrap_or("lost"), &error.explained(), None))
}

/// The first frames; none when none come in time.
pub(super) async fn read_first(reader: &mut dyn FrameReader) -> Result<Vec<Frame>, GoAway> {
    let first = tokio::time::timeout(HELLO_WITHIN, read(reader)).await.unwrap_or(Ok(None))?;
    Ok(first.unwrap_or_default())
}

/// Takes all frames of a push. While the exchange is behind nothing is read: what it has to say is dropped
/// first, and when it has nothing to say the push ends.
async fn all_pushed(
    exchange: &mut NodeExchange,
    first: Vec<Frame>,
    reader: &mut GrpcReader,
    connection: &Connection,
) -> Result<PushSummary, GoAway> {
    let (mut received, mut highest, mut processed, mut refused) = (0, 0, 0, None);
    let ours = match first.first() {
        Some(Frame::Hello(hello)) => Some(hello.head.incarnation.clone()),
        _ => None,
    };
    let (mut frames, link) = (first, exchange.open.link.clone());
    loop {
        received += frames.len() as u64;
        if received > MAX_PUSHED {
            return Err(away(TOO_LARGE, &format!("at most {MAX_PUSHED} frames a push"), None));
        }
        let numbers = frames.iter().filter_map(|frame| match frame {
            Frame::Event(event) => Some(event.seq),
            _ => None,
        });
        highest = numbers.max().unwrap_or(0).max(highest);
        let said = exchange.step(frames).await.frames;
        let (behind, stuck) = (exchange.exchange.is_behind(), said.is_empty());
        for frame in said {
            match frame {
                // Events of another incarnation than the set here are passed over, and acknowledged.
                Frame::Ack(ack) if ack.cursor.as_ref().map(|cursor| &cursor.incarnation) == ours.as_ref() => {
                    processed = processed.max(ack.seq);
                }
                Frame::Refused(why) => refused = refused.or(Some(*why)),
                Frame::GoAway(why) => return Err(why),
                _ => {}
            }
        }
        let late = |_| away("silence", "nothing more of the push came in time", SOON);
        let next = async {
            match behind {
                true if stuck => Err(away(Code::Busy.as_str(), "what is pushed cannot be taken now", SOON)),
                true => Ok(Some(Vec::new())),
                false => tokio::time::timeout(PUSHED_WITHIN, read(reader)).await.map_err(late)?,
            }
        };
        let more = tokio::select! {
            more = next => more?,
            why = over(&link, connection) => return Err(why),
        };
        match more {
            Some(more) => frames = more,
            None if exchange.exchange.link().under_way() > 0 => {
                return Err(away(Code::Busy.as_str(), "what is pushed cannot be stored now", SOON));
            }
            None if processed < highest => {
                let why = format!("events up to {highest} were pushed, those up to {processed} are durable");
                return Err(away("out-of-order", &why, None));
            }
            None => {
                let refused = refused.map(|Refused { key, code, message, .. }| {
                    Err(away(&code, &format!("{key}: {message}"), None))
                });
                return refused.unwrap_or(Ok(PushSummary { result: "ok".to_owned(), received, processed }));
            }
        }
    }
}

/// The one message of a unary call.
pub(super) async fn called(request: Request<Body>) -> Result<Bytes, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let chunks = request.into_body();
    let mut messages = Messages::new(chunks, agreed.incoming_gzip, MAX_CALL);
    let late = |_| Problem::new(Code::BadBody, "the call did not arrive in time");
    let message = tokio::time::timeout(CALL_WITHIN, messages.next()).await.map_err(late)?;
    let message = message.map_err(|error| unreadable(&error))?;
    message.ok_or_else(|| Problem::new(Code::BadBody, "the call has no message"))
}

/// What was called cannot be read.
pub(super) fn unreadable(error: &TransportError) -> Problem {
    let code =
        if matches!(error, TransportError::TooLarge { .. }) { Code::BodyTooLarge } else { Code::BadBody };
    Problem::new(code, error.explained())
}

/// A message with what stands before it.
pub(super) fn packed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + grpc::PREFIX);
    let Ok(()) = grpc::append::<Infallible>(&mut out, false, |out| {
        out.extend_from_slice(message);
        Ok(())
    });
    out
}

/// A response of one message.
pub(super) fn message_reply(message: Vec<u8>) -> PortReply {
    let out = packed(&message);
    announced(SentBody::with_trailers(out.into(), GrpcStatus::ok().headers()), false)
}

/// A response that goes on, and the way into it.
pub(super) fn stream(gzip: bool) -> (BodySender, PortReply) {
    let (pipe, parts) = net::stream::channel(Bytes::new());
    (pipe, announced(parts, gzip))
}

fn announced(body: SentBody, gzip: bool) -> PortReply {
    let mut response = Response::new(body);
    grpc::announce(response.headers_mut(), gzip);
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    response
}

/// A problem as a response of gRPC.
pub(crate) fn refused(problem: Problem) -> PortReply {
    status_reply(&GrpcStatus::of(problem))
}

/// A response of a status and no message: headers alone, which are the trailers too.
pub(super) fn status_reply(status: &GrpcStatus) -> PortReply {
    let mut response = announced(Bytes::new().into(), false);
    response.headers_mut().extend(status.headers());
    response
}
