//! The node port: route, authenticate, step, make durable, answer.
//!
//! It has up to two listeners: one for nodes, and one for proxies that end the TLS sessions of nodes
//! (IDN-4), on which only enrollment and signed requests are answered.

mod blob;
mod caller;
mod checkin;
mod closure;
mod rollout;

use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use net::accept::Connection;
use wire::body::{self, MAX_NODE_BODY};
use wire::headers::{self, VersionCheck};
use wire::route::{self, Access, Route};
use wire::{Code, Problem, grpc};

use crate::answer::{PortReply, json, refuse};
use crate::api::operation::segments;
use crate::intake::{WITHIN, accepts_gzip, discard, read, unpacked};
use crate::state::ControlPlane;
use crate::{failed_joins, renew, streams};

pub(crate) use caller::CallingNode;
use caller::SignedRequest;
pub(crate) use checkin::{check_in, note_copied};

/// How much of a path that leads nowhere is repeated, in characters.
const MAX_SHOWN: usize = 200;

/// Whose connections a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortListener {
    /// Those of nodes.
    Nodes,
    /// Those of proxies that end the TLS sessions of nodes.
    Proxies,
}

impl PortListener {
    /// How long the body of a request that is refused may take to go by. Behind a proxy strangers
    /// could keep the permits of nodes on a shared connection with it.
    fn discards_within(self) -> Duration {
        match self {
            PortListener::Nodes => Duration::from_secs(15),
            PortListener::Proxies => Duration::from_secs(2),
        }
    }
}

/// A request matched against the route table.
pub(crate) struct Matched {
    route: &'static Route,
    /// The node that the path names.
    node: Option<String>,
    /// The digest, or the rollout, that the path names.
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
pub(crate) async fn handle(
    plane: Arc<ControlPlane>,
    listener: PortListener,
    request: Request<Incoming>,
) -> PortReply {
    let speaks_grpc = grpc::is_grpc(request.headers());
    match answer(&plane, listener, request).await {
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

async fn answer(
    plane: &Arc<ControlPlane>,
    listener: PortListener,
    request: Request<Incoming>,
) -> Result<PortReply, Problem> {
    let matched = find(request.method().as_str(), request.uri().path());
    let matched = matched.map_err(|code| unmatched(code, &request))?;
    if matched.route.access != Access::Standard {
        version(request.headers())?;
    }
    let connection = request.extensions().get::<Connection>().cloned().ok_or(Code::Internal)?;
    if connection.is_proxy() != (listener == PortListener::Proxies) {
        return Err(Problem::new(
            Code::CertificateRequired,
            "nodes connect to the node port, and proxies with their certificate to the proxies' port",
        ));
    }
    // From nodes HTTP/1.1 is there for one thing.
    if connection.http1 && !connection.is_proxy() && matched.route.path != route::STREAM {
        return Err(Code::UpgradeRequired.into());
    }
    match matched.route.access {
        Access::Open => {
            let (parts, body) = request.into_parts();
            match matched.route.path {
                route::TRUST_LINKS => {
                    let digest = matched.digest.as_deref().unwrap_or_default();
                    crate::operator_port::trust::links(plane, &connection, digest, accepts_gzip(&parts))
                }
                route::BOOTSTRAP_REPORT => failed_joins::report(plane, &connection, &parts, body).await,
                _ => crate::enroll::enroll(plane, &connection, &parts, body).await,
            }
        }
        Access::Certificate | Access::Standard => {
            CallingNode::by_session(plane, &connection)?;
            match matched.route.path {
                route::VERSION => streams::version(request).await,
                route::PING => streams::ping(request).await,
                route::HEALTH_CHECK => streams::health_check(plane, request).await,
                route::HEALTH_WATCH => streams::health_watch(plane, connection, request).await,
                _ => streams::reflection(connection, request),
            }
        }
        Access::Stream => open(plane, connection, request, &matched).await,
        Access::Node | Access::Key => exchange(plane, listener, connection, request, &matched).await,
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
        VersionCheck::Fits => Ok(()),
        VersionCheck::OtherProtocol => Err(Code::ProtocolVersion.into()),
        VersionCheck::TooOld => {
            let detail = format!("the oldest agent that is served is {}", headers::MINIMUM_AGENT);
            Err(Problem::new(Code::AgentTooOld, detail))
        }
    }
}

/// Opens a link. On a stream of two ways the TLS session says whose it is; server-sent events
/// are the answer to one request, and that is signed (IDN-4).
async fn open(
    plane: &Arc<ControlPlane>,
    connection: Connection,
    request: Request<Incoming>,
    matched: &Matched,
) -> Result<PortReply, Problem> {
    let upgrade = connection.http1 && (!connection.is_proxy() || request.headers().contains_key(UPGRADE));
    if matched.route.path == route::STREAM && !upgrade {
        let (head, _) = request.into_parts();
        let signed = SignedRequest::verify(plane, &connection, &head, matched)?;
        signed.holds(&[])?;
        checkin::ready(plane)?;
        return streams::sse(plane, signed.caller, connection, &head);
    }
    let caller = CallingNode::by_session(plane, &connection)?;
    caller.is_meant(matched)?;
    checkin::ready(plane)?;
    match matched.route.path {
        route::STREAM => streams::websocket(plane, caller, connection, request),
        route::SUBSCRIBE => streams::subscribe(plane, caller, connection, request),
        _ => streams::push(plane, caller, connection, request).await,
    }
}

/// Requests with a body, signed as a whole.
async fn exchange(
    plane: &Arc<ControlPlane>,
    listener: PortListener,
    connection: Connection,
    request: Request<Incoming>,
    matched: &Matched,
) -> Result<PortReply, Problem> {
    let (parts, body) = request.into_parts();
    let limit = match matched.route.path {
        route::EVENTS => wire::batch::MAX_REQUEST,
        route::RENEW | route::RECOVER => renew::MAX_BODY,
        _ => MAX_NODE_BODY,
    };
    let signed = match SignedRequest::verify(plane, &connection, &parts, matched) {
        Ok(signed) => signed,
        Err(problem) => {
            discard(body, limit, listener.discards_within()).await;
            return Err(problem);
        }
    };
    let body = read(&parts, body, limit, WITHIN).await?;
    signed.holds(&body)?;
    let (caller, packed) = (&signed.caller, body.len());
    let room = caller.share_left();
    let body = unpacked(&parts, body, limit.min(packed.saturating_add(room)))
        .map_err(|problem| if room < limit { CallingNode::beyond_its_share() } else { problem })?;
    caller.charge(body.len().saturating_sub(packed))?;
    let gzip = accepts_gzip(&parts);
    match matched.route.path {
        route::CHECKIN => {
            let version = headers::agent_version(&parts.headers);
            let reply = check_in(plane, caller, body::decode(&body)?, version, wait(&parts)?).await?;
            // A link may be on this very connection.
            if reply.closes_connection && plane.hub.sync_index().link(&caller.id).is_none() {
                connection.close_after_answer();
            }
            json(&reply.answer, gzip)
        }
        route::RENEW | route::RECOVER if connection.is_proxy() => Err(Code::BehindProxy.into()),
        route::RENEW => json(&renew::renew(plane, caller, body::decode(&body)?).await?, gzip),
        route::RECOVER => json(&renew::recover(plane, caller, body::decode(&body)?).await?, gzip),
        route::REPORT => json(&checkin::report(plane, caller, body::decode(&body)?).await?, gzip),
        route::STATE => json(&checkin::state(plane, caller).await?, gzip),
        route::BLOB => blob::blob(plane, caller, matched, &parts).await,
        route::CLOSURE => closure::closure(plane, caller, matched, &parts).await,
        route::DISPATCH => {
            let answer = rollout::dispatch(plane, caller, wait(&parts)?).await?;
            rollout::or_no_content(answer, gzip)
        }
        route::HEARTBEAT => json(&rollout::heartbeat(plane, caller, body::decode(&body)?).await?, gzip),
        route::ROLLOUT => {
            rollout::manifest(plane, caller, matched.digest.as_deref().unwrap_or_default(), &parts).await
        }
        route::EVENTS if rollout::is_event(&body) => rollout::event(plane, caller, &body).await,
        route::EVENTS => {
            checkin::ready(plane)?;
            streams::events(plane, caller.clone(), connection, &body, gzip).await
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
