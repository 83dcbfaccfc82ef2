//! The unary and client-streaming calls of gRPC: `Version`, `Ping`, `Push`.

use model::replication::TransportKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming as Body;
use net::accept::Connection;
use streams::grpc::{GrpcReader, RequestChunks};
use streams::task::LinkTransport;
use streams::task::Post;
use streams::{FrameReader, LinkCommand};
use sync::Frame;
use tokio::sync::oneshot;
use wire::cloudevents::MAX_UP;
use wire::grpc::{self, Decoder, Status};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::rpc::{self, PushSummary, Spoken};
use wire::{Code, Problem};

use super::serve::{Opening, linked};
use crate::answer::Reply;
use crate::body::ReplyBody;
use crate::intake::read_any;
use crate::node_port::Caller;
use crate::state::ControlPlane;

/// The longest message of a unary call, in bytes.
const MAX_CALL: usize = 4 * 1024;
/// How long it may take to arrive.
const CALL_WITHIN: Duration = Duration::from_secs(15);
/// The most frames of one `Push`.
const MAX_PUSHED: u64 = 100_000;
/// How long what follows from pushed frames may take.
const PUSHED_WITHIN: Duration = Duration::from_secs(60);

/// `Version`: what this control plane speaks.
pub(crate) async fn version(request: Request<Body>) -> Result<Reply, Problem> {
    let message = called(request).await?;
    let asked = rpc::read_version_request(&message)?;
    let own = Spoken::own(concat!("muster/", env!("CARGO_PKG_VERSION")));
    if asked != (0, 0) && own.common(asked).is_none() {
        return Err(Code::ProtocolVersion.into());
    }
    Ok(message_reply(rpc::version_response(&own)))
}

/// `Ping`: a sign of incarnation.
pub(crate) async fn ping(request: Request<Body>) -> Result<Reply, Problem> {
    let number = rpc::read_ping_request(&called(request).await?)?;
    Ok(message_reply(rpc::pong_reply(number)))
}

/// `Push`: frames up, a summary down; a short link whose own frames are not asked for.
pub(crate) async fn push(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    request: Request<Body>,
) -> Result<Reply, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let source = caller.slot.lock().node.hostname.to_string();
    let opening = Opening::enter(plane, caller, connection, TransportKind::Poll)?;
    let chunks = RequestChunks(request.into_body());
    let mut reader = GrpcReader::new(chunks, agreed.incoming_gzip, MAX_UP, source);
    let bad = |error: streams::TransportError| Problem::new(Code::BadBody, crate::answer::chain(&error));
    let Some(first) = reader.next().await.map_err(bad)? else {
        return Err(Problem::new(Code::BadBody, "a link begins with a hello"));
    };
    let mut received = first.len() as u64;
    let node = opening.caller.id.clone();
    let session = plane.links.sessions.id(plane, opening.number);
    let (answer, begun) = oneshot::channel();
    let post = LinkCommand::Post(Box::new(Post { frames: Vec::new(), wait: Duration::ZERO, answer }));
    let ends = LinkTransport { reader: None, writer: None };
    tokio::spawn(Box::pin(linked(opening, ends, first, Some(post), Some(session.clone()))));
    let mut processed = acknowledged(&until(begun).await?);
    while let Some(frames) = reader.next().await.map_err(bad)? {
        received += frames.len() as u64;
        if received > MAX_PUSHED {
            return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_PUSHED} frames a push")));
        }
        let answer = super::posted::post_to(plane, &node, &session, frames)?;
        processed = processed.max(acknowledged(&until(answer).await?));
    }
    let summary = PushSummary { result: "ok".to_owned(), received, processed };
    Ok(message_reply(rpc::push_summary(&summary)))
}

async fn until(answer: oneshot::Receiver<streams::task::Posted>) -> Result<Vec<Frame>, Problem> {
    match tokio::time::timeout(PUSHED_WITHIN, answer).await {
        Ok(Ok(posted)) if posted.busy => {
            Err(Problem::new(Code::Busy, "what was pushed before is still worked on"))
        }
        Ok(Ok(posted)) if posted.busy => {
            Err(Problem::new(Code::Busy, "the link has more to do than it can hold"))
        }
        Ok(Ok(posted)) => match went_away(&posted.frames) {
            Some(problem) => Err(problem),
            None => Ok(posted.frames),
        },
        Ok(Err(_)) => Err(Problem::new(Code::Busy, "the link ended before what was pushed was done")),
        Err(_) => Err(Problem::new(Code::Busy, "what was pushed takes too long")),
    }
}

/// Why the link went away, where an answer says so.
fn went_away(frames: &[Frame]) -> Option<Problem> {
    let away = frames.iter().find_map(|frame| match frame {
        Frame::GoAway(away) => Some(away),
        _ => None,
    })?;
    let second = away.code == Code::DuplicateIdentity.as_str();
    let code = if second { Code::DuplicateIdentity } else { Code::Busy };
    let mut problem = Problem::new(code, away.message.clone());
    problem.retry_after_secs = away.retry_after;
    Some(problem)
}

/// How many events of the link are durable, by the acknowledgements in an answer.
fn acknowledged(frames: &[Frame]) -> u64 {
    let acks = frames.iter().filter_map(|frame| match frame {
        Frame::Ack(ack) => Some(ack.seq),
        _ => None,
    });
    acks.max().unwrap_or(0)
}

/// The one message of a unary call.
async fn called(request: Request<Body>) -> Result<Bytes, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let body = read_any(request.into_body(), MAX_CALL, CALL_WITHIN).await?;
    let mut decoder = Decoder::new(MAX_CALL, agreed.incoming_gzip);
    decoder.push(body);
    let bad = |error: grpc::ReadGrpcError| Problem::new(Code::BadBody, error.to_string());
    let message = decoder.next().map_err(bad)?;
    message.ok_or_else(|| Problem::new(Code::BadBody, "the call has no message"))
}

/// A response of one message.
fn message_reply(message: Vec<u8>) -> Reply {
    let mut out = Vec::with_capacity(message.len() + grpc::PREFIX);
    let written: Result<(), std::convert::Infallible> = grpc::append(&mut out, false, |out| {
        out.extend_from_slice(&message);
        Ok(())
    });
    let Ok(()) = written;
    let parts = streams::body::whole(out.into());
    let mut response = Response::new(ReplyBody::Parts { parts, trailers: Some(grpc::ended) });
    grpc::announce(response.headers_mut(), false);
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    response
}

/// A problem as a response of gRPC.
pub(crate) fn refused(problem: Problem) -> Reply {
    let mut response = Response::new(Bytes::new().into());
    grpc::announce(response.headers_mut(), false);
    response.headers_mut().extend(Status::of(problem).headers());
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    response
}
