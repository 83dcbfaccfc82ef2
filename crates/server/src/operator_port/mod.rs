//! The operator port: what the CLI asks and orders. Closed to nodes (IDN-5): their
//! certificates are under another CA.
//!
//! ```text
//!   request -> OperatorCaller (crate::operators) -> route by method and path -> its role and reach
//!           -> read the request's type -> handler(OperatorCall, request), cut when the caller is revoked
//!           -> entry in the audit log -> answer or problem -> JSON
//! ```
//!
//! [`ROUTES`] joins each [`Operation`] of [`crate::api`] to its handler; contents, which are no
//! JSON, and what scrapers read stand beside it.

mod call;
mod closures;
mod fleet;
mod joins;
mod operator_authority;
mod operators;
mod publish;
mod requests;
mod rollouts;
pub(crate) mod trust;
mod work;

use std::future::ready;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};
use hyper::body::Incoming;
use net::accept::Connection;
use net::issue::{CertificateRequest, IssueError, PROXY_LIFE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::OperatorRole;
use store::audit::AuditSubject;
use wire::{Code, Problem};

use crate::answer::{PortReply, json, refuse};
use crate::api::authority::STAGE_AUTHORITY;
use crate::api::closures::PUT_CLOSURE;
use crate::api::joins::{APPROVE_JOIN, DENY_JOIN, FORGET_JOIN, JOINS, RESOLVE_COPY};
use crate::api::lists::{ADD_LISTS, FAILED_JOINS, LISTS};
use crate::api::objects::{APPLY, DELETE_OBJECTS, OBJECT, OBJECTS, RESYNC, SYNC};
use crate::api::operation::{Operation, OperationEffect, OperationReach, segments};
use crate::api::operators::{
    ADD_OPERATOR, AUDIT, OPERATOR_AUTHORITIES, OPERATORS, RENEW_OPERATOR, RETIRE_OPERATOR_AUTHORITY,
    REVOKE_OPERATOR, ROTATE_OPERATOR_AUTHORITY, WHOAMI,
};
use crate::api::rollouts::{CONTROL_ROLLOUT, EXPLAIN_ROLLOUT, ROLLOUT, ROLLOUT_NODES, ROLLOUTS};
use crate::api::sealing::SEALING_KEYS;
use crate::api::work::{
    BEGIN_TASK, BEGIN_WORKFLOW, CANCEL_TASK, CONTROL_WORKFLOW, OUTPUT, SELECT, TASK, TASK_NODES, TASKS,
    WORKFLOW, WORKFLOWS,
};
use crate::api::{self, CONTENTS, MAX_CONTENTS, MAX_JSON};
use crate::index::clip;
use crate::intake::{WITHIN, accepts_gzip, read, read_any, unpacked};
use crate::metrics::gather;
use crate::objects::{apply, list, status};
use crate::operators::audit::RequestAudit;
use crate::operators::{OperatorCaller, UnknownCaller};
use crate::posture::random;
use crate::releases;
use crate::state::{ControlPlane, now};
use crate::work::{select, views};
use crate::{failed_joins, lists};

pub(crate) use self::call::OperatorCall;

/// How long a body of contents may take to arrive; the CLI gives up long before.
const CONTENTS_WITHIN: Duration = Duration::from_secs(600);

/// A request as it came.
struct IncomingRequest {
    segments: Vec<(&'static str, String)>,
    query: String,
    body: Bytes,
    gzip: bool,
}

type PendingReply = Pin<Box<dyn Future<Output = Result<PortReply, Problem>> + Send>>;

struct OperatorRoute {
    method: Method,
    path: &'static str,
    role: OperatorRole,
    reach: OperationReach,
    effect: OperationEffect,
    handle: Box<dyn Fn(OperatorCall, IncomingRequest) -> PendingReply + Send + Sync>,
}

static ROUTES: LazyLock<Vec<OperatorRoute>> = LazyLock::new(|| {
    vec![
        route(&api::STATUS, |call, _| fleet::status(call)),
        route(&api::NODES, fleet::nodes),
        route(&api::NODE, fleet::node),
        route(&api::ENTRY, fleet::entry),
        route(&api::REMOVE_NODE, fleet::remove),
        route(&SEALING_KEYS, fleet::sealing_keys),
        route(&JOINS, |call, _| ready(Ok(joins::list(&call)))),
        route(&APPROVE_JOIN, joins::approve),
        route(&DENY_JOIN, joins::deny),
        route(&FORGET_JOIN, joins::forget),
        route(&RESOLVE_COPY, joins::resolve_copy),
        route(&api::TRAITS, fleet::traits),
        route(&api::FACTS, fleet::facts),
        route(&api::RUNS, fleet::runs),
        route(&api::RUN, fleet::run),
        route(&api::TRUST, trust::view),
        route(&api::ADD_TRUST, trust::add),
        route(&STAGE_AUTHORITY, trust::stage_authority),
        route(&api::REQUEST_RUN, requests::request_run),
        route(&api::REQUEST_TAGGED_RUN, requests::request_tagged_run),
        route(&api::HEAD, publish::head),
        route(&api::RELEASES, publish::releases),
        route(&api::CHUNK, publish::chunk),
        route(&api::MISSING, publish::missing),
        route(&api::FETCH, publish::fetch),
        route(&api::PUT_CHUNKS, publish::put_chunks),
        route(&PUT_CLOSURE, closures::put),
        route(&api::COMMIT, releases::commit),
        route(&api::ADD_BEACONS, publish::add_beacons),
        route(&LISTS, |call, _| lists::view(call)),
        route(&ADD_LISTS, lists::add),
        route(&FAILED_JOINS, failed_joins::list),
        route(&api::ISSUE_PROXY, issue_proxy),
        route(&api::SET_LOG_LEVEL, set_log_level),
        route(&WHOAMI, |call, _| ready(Ok(operators::whoami(&call)))),
        route(&OPERATORS, operators::list),
        route(&ADD_OPERATOR, operators::add),
        route(&REVOKE_OPERATOR, operators::revoke),
        route(&OPERATOR_AUTHORITIES, operator_authority::view),
        route(&ROTATE_OPERATOR_AUTHORITY, operator_authority::rotate),
        route(&RETIRE_OPERATOR_AUTHORITY, operator_authority::retire),
        route(&RENEW_OPERATOR, operator_authority::renew),
        route(&AUDIT, operators::audit),
        route(&OBJECTS, list::list),
        route(&OBJECT, list::one),
        route(&APPLY, apply::apply),
        route(&DELETE_OBJECTS, apply::delete),
        route(&SYNC, status::list),
        route(&RESYNC, status::resync),
        route(&SELECT, select::count),
        route(&TASKS, views::tasks),
        route(&TASK, views::task),
        route(&TASK_NODES, views::nodes),
        route(&OUTPUT, views::output),
        route(&BEGIN_TASK, work::begin_task),
        route(&CANCEL_TASK, work::cancel_task),
        route(&WORKFLOWS, views::workflows),
        route(&WORKFLOW, views::workflow),
        route(&BEGIN_WORKFLOW, work::begin_workflow),
        route(&CONTROL_WORKFLOW, work::control_workflow),
        route(&ROLLOUTS, rollouts::list),
        route(&ROLLOUT, rollouts::show),
        route(&ROLLOUT_NODES, rollouts::nodes),
        route(&EXPLAIN_ROLLOUT, rollouts::explain),
        route(&CONTROL_ROLLOUT, rollouts::control),
    ]
});

/// Joins an operation to what carries it out.
fn route<Q, A, F>(
    operation: &'static Operation<Q, A>,
    handler: impl Fn(OperatorCall, Q) -> F + Send + Sync + 'static,
) -> OperatorRoute
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, Problem>> + Send + 'static,
{
    let handle = move |call, given: IncomingRequest| -> PendingReply {
        let IncomingRequest { segments, query, body, gzip } = given;
        match operation.read(&segments, &query, &body) {
            Ok(asked) => {
                let answer = handler(call, asked);
                Box::pin(async move { json(&answer.await?, gzip) })
            }
            Err(problem) => Box::pin(ready(Err(problem))),
        }
    };
    let Operation { path, role, reach, effect, .. } = *operation;
    OperatorRoute { method: operation.method.clone(), path, role, reach, effect, handle: Box::new(handle) }
}

pub(crate) async fn handle(plane: Arc<ControlPlane>, request: Request<Incoming>) -> PortReply {
    match answer(plane.clone(), request).await {
        Ok(reply) => reply,
        Err(problem) => {
            let id = plane.request_id();
            plane.metrics.failed(&problem.code);
            tracing::info!(request = id, code = problem.code, detail = problem.detail, "refused an operator");
            refuse(problem, id)
        }
    }
}

async fn answer(plane: Arc<ControlPlane>, request: Request<Incoming>) -> Result<PortReply, Problem> {
    let (parts, body) = request.into_parts();
    let (method, path) = (&parts.method, parts.uri.path());
    // Before anybody shows who they are: an operator asks whom to believe.
    if *method == Method::GET
        && let Some(asked) = segments(wire::route::TRUST_LINKS, path)
    {
        let digest = asked.into_iter().next().map(|(_, digest)| digest).unwrap_or_default();
        let connection = parts.extensions.get::<Connection>().ok_or(Code::Internal)?;
        return trust::links(&plane, connection, &digest, accepts_gzip(&parts));
    }
    let caller = match authenticated(&plane, &parts) {
        Ok(caller) => caller,
        Err(unknown) => {
            let audit = audit(&plane, &unknown.name, format!("{method} {}", clip(path)));
            audit.refused(&plane.refusals, &unknown.problem.code).await;
            return Err(unknown.problem);
        }
    };
    if *method == Method::GET
        && let Some(reply) = gather::answer(&plane, path)
    {
        // Metrics are of the whole fleet.
        return if path == "/metrics" {
            in_reach(&caller, OperationReach::WholeFleet).map(|()| reply)
        } else {
            Ok(reply)
        };
    }
    match (method, path.strip_prefix(CONTENTS)) {
        (&Method::GET, Some(digest)) => {
            in_reach(&caller, OperationReach::WholeFleet)?;
            return publish::content(&plane, digest).await;
        }
        (&Method::POST, Some("")) => {
            in_reach(&caller, OperationReach::WholeFleet)?;
            has_role(&caller, OperatorRole::Operator)?;
            let bytes = read_any(body, MAX_CONTENTS, CONTENTS_WITHIN).await?;
            return publish::put_contents(&plane, unpacked(&parts, bytes, MAX_CONTENTS)?).await;
        }
        _ => {}
    }
    let mut of_method = ROUTES.iter().filter(|route| route.method == *method);
    let matched = of_method.find_map(|route| Some((route, segments(route.path, path)?)));
    let (route, segments) = matched.ok_or(Code::NotFound)?;
    let audit = audit(&plane, &caller.name, format!("{} {}", route.method, route.path));
    let may = has_role(&caller, route.role).and_then(|()| in_reach(&caller, route.reach));
    let answered = match may {
        Ok(()) => {
            let (gzip, query) = (accepts_gzip(&parts), parts.uri.query().unwrap_or("").to_owned());
            let body = match *method {
                Method::POST => read(&parts, body, MAX_JSON, WITHIN).await?,
                _ => Bytes::new(),
            };
            let body = unpacked(&parts, body, MAX_JSON)?;
            let given = IncomingRequest { segments, query, body, gzip };
            carried_out(route, &plane, caller, &audit, given).await
        }
        Err(problem) => Err(problem),
    };
    match (route.effect, &answered) {
        (OperationEffect::Writes, Ok(_)) => audit.done().await?,
        (OperationEffect::Writes, Err(problem)) => audit.refused(&plane.refusals, &problem.code).await,
        (OperationEffect::Reads | OperationEffect::Stages, _) => {}
    }
    answered
}

/// Who asks. The connection of who is refused ends.
fn authenticated(plane: &ControlPlane, parts: &Parts) -> Result<OperatorCaller, Box<UnknownCaller>> {
    let connection = parts.extensions.get::<Connection>();
    let peer = connection.and_then(|connection| connection.peer.as_deref());
    plane.operators.authenticate(&parts.headers, peer, now()).inspect_err(|_| {
        connection.into_iter().for_each(Connection::close_after_answer);
    })
}

fn audit(plane: &ControlPlane, by: &str, operation: String) -> Arc<RequestAudit> {
    Arc::new(RequestAudit::new(plane.store.clone(), now(), by, &plane.request_id(), operation))
}

/// Does it. What only looks is cut when the caller is revoked meanwhile; what changes something was let in, and ends.
async fn carried_out(
    route: &OperatorRoute,
    plane: &Arc<ControlPlane>,
    caller: OperatorCaller,
    audit: &Arc<RequestAudit>,
    given: IncomingRequest,
) -> Result<PortReply, Problem> {
    let call = OperatorCall {
        plane: plane.clone(),
        by: caller.name.clone(),
        caller: caller.clone(),
        audit: audit.clone(),
    };
    let answer = (route.handle)(call, given);
    match route.effect {
        OperationEffect::Writes => answer.await,
        OperationEffect::Reads | OperationEffect::Stages => tokio::select! {
            answer = answer => answer,
            () = plane.operators.revoked(&caller) => {
                Err(Problem::new(Code::OperatorRefused, "they were revoked meanwhile"))
            }
        },
    }
}

fn has_role(caller: &OperatorCaller, needed: OperatorRole) -> Result<(), Problem> {
    if caller.role >= needed {
        return Ok(());
    }
    let detail = format!("{} is {}, and this needs {needed}", caller.name, caller.role);
    Err(Problem::new(Code::RoleRequired, detail))
}

fn in_reach(caller: &OperatorCaller, reach: OperationReach) -> Result<(), Problem> {
    match reach {
        OperationReach::WholeFleet if !caller.scope.is_fleet() => {
            Err(caller.scope.refuses(&caller.name, "this is of the whole fleet"))
        }
        OperationReach::WholeFleet | OperationReach::NodesInScope => Ok(()),
    }
}

/// A route of the operator port, and who may ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAccess {
    /// The HTTP method.
    pub method: Method,
    /// The path.
    pub path: &'static str,
    /// The least role.
    pub role: OperatorRole,
    /// For whom, of those.
    pub reach: OperationReach,
    /// What it does.
    pub effect: OperationEffect,
}

/// Every route of the operator port in JSON, and who may ask for it.
pub fn route_access() -> Vec<RouteAccess> {
    let access = |route: &OperatorRoute| {
        let OperatorRoute { path, role, reach, effect, .. } = *route;
        RouteAccess { method: route.method.clone(), path, role, reach, effect }
    };
    ROUTES.iter().map(access).collect()
}

/// Issues a proxy's certificate under the CA that nodes believe (IDN-4).
async fn issue_proxy(call: OperatorCall, asked: api::IssueProxy) -> Result<api::ProxyCertificate, Problem> {
    let api::IssueProxy { names, csr_pem } = asked;
    let is_name = |name: &String| name.parse::<IpAddr>().is_ok() || model::id::is_hostname(name);
    let (Some(name), true) = (names.first(), names.len() <= api::MAX_PROXY_NAMES) else {
        return Err(Problem::new(Code::BadBody, format!("a proxy has 1 to {} names", api::MAX_PROXY_NAMES)));
    };
    if let Some(other) = names.iter().find(|name| !is_name(name)) {
        return Err(Problem::new(Code::BadBody, format!("{other:?} is no host name and no address")));
    }
    let own: Vec<String> = call.plane.names.iter().map(|name| one_form(name)).collect();
    if let Some(taken) = names.iter().find(|name| own.contains(&one_form(name))) {
        return Err(Problem::new(Code::OwnName, format!("{taken:?} is in the control plane's certificate")));
    }
    let bad_csr = |error: IssueError| Problem::new(Code::BadCsr, error.to_string());
    let csr = CertificateRequest::read(&csr_pem).map_err(bad_csr)?;
    let (serial, now) = (random().map_err(|_| Code::Internal)?, now());
    call.audit.record(AuditSubject::of(format!("proxy {}", names.join(", ")))).await?;
    let authorities = call.plane.authorities.set();
    let issued = authorities.current().issue_proxy(&csr, name, &names, serial, now);
    let cert_pem = issued.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    tracing::info!(by = call.by, proxy = name, ?names, "a certificate was issued to a proxy");
    // Its issuer ends the chain; a proxy believes this server by any of them.
    let ca_pem = authorities.bundle_from_current();
    Ok(api::ProxyCertificate { cert_pem, ca_pem, not_after: now.plus(PROXY_LIFE) })
}

/// A host name or address in the one form in which it is compared.
fn one_form(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_ascii_lowercase(), |address| address.to_string())
}

/// Changes what is logged from now on (OPS-4).
async fn set_log_level(call: OperatorCall, asked: api::LogLevel) -> Result<api::LogLevel, Problem> {
    let Some(log) = &call.plane.log else {
        return Err(Problem::new(Code::NotFound, "this control plane's logs are another program's"));
    };
    call.audit.record(AuditSubject::of(format!("level {}", clip(&asked.level)))).await?;
    log.set(&asked.level).map_err(|why| Problem::new(Code::BadBody, why))?;
    tracing::info!(by = call.by, level = asked.level, "the log level was changed");
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::ROUTES;

    #[test]
    fn no_two_routes_take_one_request() {
        for (at, route) in ROUTES.iter().enumerate() {
            let like = |path: &'static str| super::segments(path, route.path).is_some();
            let twice = |other: &&super::OperatorRoute| other.method == route.method && like(other.path);
            assert!(!ROUTES[..at].iter().any(|other| twice(&other)), "{} {}", route.method, route.path);
        }
    }
}
