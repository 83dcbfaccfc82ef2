//! The standard services of gRPC: health and reflection (SYN-1).

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming as Body;
use net::accept::Connection;
use net::stream::BodySender;
use streams::grpc::Messages;
use sync::frame::CloseReason;
use wire::grpc::{self, GrpcStatus};
use wire::standard::{Descriptors, Serving, health_response, read_health_request};
use wire::{Code, Problem};

use super::rpc::{MAX_CALL, called, message_reply, packed, stream, unreadable};
use crate::answer::PortReply;
use crate::state::ControlPlane;

/// How often a watch looks whether the state changed, and whether somebody still reads it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The most questions of one stream of reflection.
const MAX_QUESTIONS: usize = 1000;

/// `grpc.health.v1.Health/Check`.
pub(crate) async fn health_check(plane: &ControlPlane, request: Request<Body>) -> Result<PortReply, Problem> {
    let service = read_health_request(&called(request).await?)?;
    match serving(plane, &service)? {
        Serving::Unknown => Err(Problem::new(Code::NotFound, format!("there is no service {service:?}"))),
        known => Ok(message_reply(health_response(known))),
    }
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
) -> Result<PortReply, Problem> {
    let service = read_health_request(&called(request).await?)?;
    let (mut pipe, reply) = stream(false);
    let plane = plane.clone();
    tokio::spawn(async move {
        let mut last = None;
        while let (Ok(now), false) = (serving(&plane, &service), pipe.is_closed()) {
            if last.replace(now) != Some(now) && pipe.put(packed(&health_response(now)).into()).await.is_err()
            {
                return;
            }
            tokio::select! {
                () = connection.closing() => {
                    let status = GrpcStatus::of_go_away(CloseReason::SHUTDOWN, "the connection is to end");
                    return pipe.end(Some(status.headers())).await;
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    });
    Ok(reply)
}

/// `grpc.reflection.v1.ServerReflection/ServerReflectionInfo`.
pub(crate) fn reflection(connection: Connection, request: Request<Body>) -> Result<PortReply, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let descriptors = Descriptors::built_in()?;
    let chunks = request.into_body();
    let mut questions = Messages::new(chunks, agreed.incoming_gzip, MAX_CALL);
    let (mut pipe, reply) = stream(false);
    tokio::spawn(async move {
        let answered = answer(&descriptors, &mut questions, &mut pipe, &connection).await;
        let status = match answered {
            Ok(()) => GrpcStatus::ok(),
            Err(problem) => GrpcStatus::of(problem),
        };
        pipe.end(Some(status.headers())).await;
    });
    Ok(reply)
}

async fn answer(
    descriptors: &Descriptors,
    questions: &mut Messages,
    pipe: &mut BodySender,
    connection: &Connection,
) -> Result<(), Problem> {
    for _ in 0..MAX_QUESTIONS {
        let question = tokio::select! {
            question = questions.next() => question.map_err(|error| unreadable(&error))?,
            () = connection.closing() => None,
        };
        let Some(question) = question else { return Ok(()) };
        let answer = descriptors.answer(&question)?;
        if pipe.put(packed(&answer).into()).await.is_err() {
            return Ok(());
        }
    }
    Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_QUESTIONS} questions a stream")))
}
