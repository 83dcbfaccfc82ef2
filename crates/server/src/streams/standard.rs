//! The standard services of gRPC: health and reflection (SYN-1).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming as Body;
use net::accept::Connection;
use streams::body::ResponsePipe;
use streams::grpc::{Chunk, Chunks, RequestChunks};
use wire::grpc::{self, Decoder, Status, StatusCode};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::standard::{Descriptors, Serving, health_response, read_health_request};
use wire::{Code, Problem};

use super::rpc::{MAX_CALL, called, message_reply, packed};
use crate::answer::Reply;
use crate::body::ReplyBody;
use crate::state::ControlPlane;

/// How often a watch looks whether the state changed, and whether somebody still reads it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The most questions of one stream of reflection.
const MAX_QUESTIONS: usize = 1000;

/// `grpc.health.v1.Health/Check`.
pub(crate) async fn health_check(plane: &ControlPlane, request: Request<Body>) -> Result<Reply, Problem> {
    let service = read_health_request(&called(request).await?)?;
    Ok(match serving(plane, &service)? {
        Serving::Unknown => super::rpc::status_reply(&Status {
            code: StatusCode::NOT_FOUND,
            message: format!("there is no service {service:?}"),
            reason: None,
            problem: None,
        }),
        known => message_reply(health_response(known)),
    })
}

fn serving(plane: &ControlPlane, service: &str) -> Result<Serving, Problem> {
    if !service.is_empty() && !Descriptors::built_in()?.services().iter().any(|name| name == service) {
        return Ok(Serving::Unknown);
    }
    Ok(if plane.not_ready().is_some() { Serving::NotServing } else { Serving::Serving })
}

/// `grpc.health.v1.Health/Watch`: the state now, then each change.
pub(crate) async fn health_watch(
    plane: &Arc<ControlPlane>,
    connection: Connection,
    request: Request<Body>,
) -> Result<Reply, Problem> {
    let service = read_health_request(&called(request).await?)?;
    let mut last = serving(plane, &service)?;
    let (mut pipe, reply) = stream();
    let plane = plane.clone();
    tokio::spawn(async move {
        let mut said = pipe.put(packed(&health_response(last)).into()).await;
        while said.is_ok() && !pipe.is_closed() {
            tokio::select! {
                () = connection.closing() => {
                    let status = Status::of_go_away("shutdown", "the connection is to end");
                    return pipe.end(Some(status.headers())).await;
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let Ok(now) = serving(&plane, &service) else { return };
            if now != last {
                last = now;
                said = pipe.put(packed(&health_response(now)).into()).await;
            }
        }
    });
    Ok(reply)
}

/// `grpc.reflection.v1.ServerReflection/ServerReflectionInfo`.
pub(crate) fn reflection(connection: Connection, request: Request<Body>) -> Result<Reply, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let descriptors = Descriptors::built_in()?;
    let decoder = Decoder::new(MAX_CALL, agreed.incoming_gzip);
    let chunks = RequestChunks(request.into_body());
    let (pipe, reply) = stream();
    tokio::spawn(async move {
        let mut questions = Questions { chunks, decoder, asked: 0 };
        let mut pipe = pipe;
        let answered = answer(&descriptors, &mut questions, &mut pipe, &connection).await;
        let status = match answered {
            Ok(()) => Status::ok(),
            Err(problem) => Status::of(problem),
        };
        pipe.end(Some(status.headers())).await;
    });
    Ok(reply)
}

async fn answer(
    descriptors: &Descriptors,
    questions: &mut Questions,
    pipe: &mut ResponsePipe,
    connection: &Connection,
) -> Result<(), Problem> {
    loop {
        let question = tokio::select! {
            question = questions.next() => question?,
            () = connection.closing() => None,
        };
        let Some(question) = question else { return Ok(()) };
        let answer = descriptors.answer(&question)?;
        if pipe.put(packed(&answer).into()).await.is_err() {
            return Ok(());
        }
    }
}

/// The messages of a request, one by one.
struct Questions {
    chunks: RequestChunks,
    decoder: Decoder,
    asked: usize,
}

impl Questions {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let bad = |what: String| Problem::new(Code::BadBody, what);
        loop {
            if let Some(message) = self.decoder.next().map_err(|error| bad(error.to_string()))? {
                self.asked += 1;
                if self.asked > MAX_QUESTIONS {
                    let what = format!("at most {MAX_QUESTIONS} questions a stream");
                    return Err(Problem::new(Code::BodyTooLarge, what));
                }
                return Ok(Some(message));
            }
            match self.chunks.chunk().await.map_err(|error| bad(error.to_string()))? {
                Chunk::Data(data) => self.decoder.push(data),
                Chunk::End(_) => return Ok(None),
            }
        }
    }
}

/// A response that goes on, and the way into it.
fn stream() -> (ResponsePipe, Reply) {
    let (pipe, parts) = streams::body::response();
    let mut response = Response::new(ReplyBody::Parts(parts));
    grpc::announce(response.headers_mut(), false);
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    (pipe, response)
}
