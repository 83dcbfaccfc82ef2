//! The node port: route, authenticate, step, make durable, answer.

mod blob;
mod caller;
mod checkin;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request};
use hyper::body::Incoming;
use net::accept::Connection;
use wire::body::{self, MAX_NODE_BODY};
use wire::headers::{self, Version};
use wire::route::{self, Access, Route};
use wire::{Code, Problem, grpc};

use crate::answer::{Reply, json, refuse};
use crate::api::operation::segments;
use crate::intake::{accepts_gzip, read, unpacked};
use crate::state::ControlPlane;
use crate::streams;

pub(crate) use caller::Caller;
pub(crate) use checkin::{check_in, whole};

/// How much of a path that leads nowhere is repeated, in characters.
const MAX_SHOWN: usize = 200;

/// A request matched against the route table.
pub(crate) struct Matched {
    route: &'static Route,
    /// The node that the path names.
    node: Option<String>,
    /// The digest that the path names.
    digest: Option<String>,
}

/// Finds the route of a request.
pub(crate) fn find(method: &str, path: &str) -> Result<Matched, Code> {
    let mut code = Code::NotFound;
    for route in route::ROUTES {
        for (pattern, by_node) in [(Some(route.path), false), (route.by_node, true)] {
            let Some(segments) = pattern.and_then(|pattern| segments(pattern, path)) else { continue };
            if route.method != method {
                code = Code::MethodNotAllowed;
                continue;
            }
            let segment = segments.into_iter().next().map(|(_, segment)| segment);
            let (node, digest) = if by_node { (segment, None) } else { (None, segment) };
            return Ok(Matched { route, node, digest });
        }
    }
    Err(code)
}

/// Answers a request on the node port.
pub(crate) async fn handle(plane: Arc<ControlPlane>, request: Request<Incoming>) -> Reply {
    let speaks_grpc = grpc::is_grpc(request.headers());
    match answer(&plane, request).await {
        Ok(reply) => reply,
        Err(mut problem) => {
            let id = plane.request_id();
            plane.metrics.failed(&problem.code);
            tracing::debug!(request = id, code = problem.code, "refused");
            if !speaks_grpc {
                return refuse(problem, id);
            }
            problem.request_id = Some(id);
            streams::refused(problem)
        }
    }
}

async fn answer(plane: &Arc<ControlPlane>, request: Request<Incoming>) -> Result<Reply, Problem> {
    let matched = find(request.method().as_str(), request.uri().path());
    let matched = matched.map_err(|code| unmatched(code, &request))?;
    if matched.route.access != Access::Standard {
        version(request.headers())?;
    }
    let connection = request.extensions().get::<Connection>().cloned().ok_or(Code::Internal)?;
    // HTTP/1.1 is there for one thing.
    if connection.http1 && matched.route.path != route::STREAM {
        return Err(Code::UpgradeRequired.into());
    }
    match matched.route.access {
        Access::Open => {
            let (parts, body) = request.into_parts();
            let body = read(&parts, body, crate::enroll::MAX_BODY).await?;
            let body = unpacked(&parts, body, crate::enroll::MAX_BODY)?;
            crate::enroll::enroll(plane, &body).await
        }
        Access::Certificate => {
            Caller::of(plane, &connection)?;
            match matched.route.path {
                route::VERSION => streams::version(request).await,
                _ => streams::ping(request).await,
            }
        }
        Access::Standard => {
            Caller::of(plane, &connection)?;
            match matched.route.path {
                route::HEALTH_CHECK => streams::health_check(plane, request).await,
                route::HEALTH_WATCH => streams::health_watch(plane, connection, request).await,
                _ => streams::reflection(connection, request),
            }
        }
        Access::Stream => {
            let caller = Caller::of(plane, &connection)?;
            caller.is_meant(&matched)?;
            open(plane, caller, connection, request, &matched).await
        }
        Access::Node => exchange(plane, connection, request, &matched).await,
    }
}

/// A request of no route: in gRPC a method that is not implemented, whatever its service.
fn unmatched<B>(code: Code, request: &Request<B>) -> Problem {
    if !grpc::is_grpc(request.headers()) {
        return code.into();
    }
    let method: String = request.uri().path().chars().take(MAX_SHOWN).collect();
    Problem::new(Code::MethodNotAllowed, format!("there is no method {method:?}"))
}

/// Judges the version headers of a request (WIR-1).
fn version(headers: &HeaderMap) -> Result<(), Problem> {
    match headers::version(headers) {
        Version::Fits => Ok(()),
        Version::OtherProtocol => Err(Code::ProtocolVersion.into()),
        Version::TooOld => {
            let (major, minor, patch) = headers::MINIMUM_AGENT;
            let detail = format!("the oldest agent that is served is {major}.{minor}.{patch}");
            Err(Problem::new(Code::AgentTooOld, detail))
        }
    }
}

/// Opens a link. On a stream of two ways the TLS session says whose it is; server-sent events
/// are the answer to one request, and that is signed (IDN-4).
async fn open(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    request: Request<Incoming>,
    matched: &Matched,
) -> Result<Reply, Problem> {
    checkin::ready(plane)?;
    match (matched.route.path, connection.http1) {
        (route::STREAM, true) => streams::websocket(plane, caller, connection, request),
        (route::STREAM, false) => {
            let (head, _) = request.into_parts();
            caller.authenticate(plane, &head, matched, &[])?;
            streams::sse(plane, caller, connection, &head)
        }
        (route::SUBSCRIBE, _) => streams::subscribe(plane, caller, connection, request),
        _ => streams::push(plane, caller, connection, request).await,
    }
}

/// Requests with a body, signed as a whole.
async fn exchange(
    plane: &Arc<ControlPlane>,
    connection: Connection,
    request: Request<Incoming>,
    matched: &Matched,
) -> Result<Reply, Problem> {
    let caller = Caller::of(plane, &connection)?;
    let (parts, body) = request.into_parts();
    let limit = if matched.route.path == route::EVENTS { wire::batch::MAX_REQUEST } else { MAX_NODE_BODY };
    let body = read(&parts, body, limit).await?;
    caller.authenticate(plane, &parts, matched, &body)?;
    let packed = body.len();
    let body = unpacked(&parts, body, limit)?;
    caller.charge(body.len().saturating_sub(packed))?;
    let gzip = accepts_gzip(&parts);
    match matched.route.path {
        route::CHECKIN => {
            let (answer, idle) = check_in(plane, &caller, body::decode(&body)?, wait(&parts)?).await?;
            // A link may be on this very connection.
            if idle && !plane.hub.sync_index().has_link(&caller.id) {
                connection.close_after_answer();
            }
            json(&answer, gzip)
        }
        route::REPORT => json(&checkin::report(plane, &caller, body::decode(&body)?).await?, gzip),
        route::STATE => json(&checkin::state(plane, &caller).await?, gzip),
        route::BLOB => blob::blob(plane, &caller, matched, &parts).await,
        route::EVENTS => {
            checkin::ready(plane)?;
            streams::events(plane, caller, connection, &parts, &body).await
        }
        _ => Err(Code::NotFound.into()),
    }
}

/// How long an answer may be held back, as the query says it; at most [`checkin::MAX_WAIT`].
fn wait(parts: &http::request::Parts) -> Result<Duration, Problem> {
    let query = parts.uri.query().unwrap_or("");
    let Some(secs) = query.split('&').find_map(|pair| pair.strip_prefix("wait=")) else {
        return Ok(Duration::ZERO);
    };
    let bad = |_| Problem::new(Code::BadQuery, "`wait` is a whole number of seconds");
    Ok(Duration::from_secs(secs.parse().map_err(bad)?).min(checkin::MAX_WAIT))
}
