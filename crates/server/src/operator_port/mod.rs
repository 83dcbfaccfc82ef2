//! The operator port: what the CLI asks and orders. Closed to nodes (IDN-5): their
//! certificates are under another CA.
//!
//! ```text
//!   request -> operator's name -> route by method and path -> read the request's type
//!           -> handler(OperatorCall, request) -> answer or problem -> JSON
//! ```
//!
//! [`ROUTES`] joins each [`Operation`] of [`crate::api`] to its handler; contents, which are no
//! JSON, and what scrapers read stand beside it.

mod fleet;
mod publish;
mod requests;
mod trust;
mod work;

use std::future::ready;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use hyper::body::Incoming;
use net::accept::Connection;
use net::identity::PeerRole;
use net::issue::{CertificateRequest, IssueError, PROXY_LIFE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::{Code, Problem};

use crate::answer::{PortReply, json, refuse};
use crate::api::objects::{APPLY, DELETE_OBJECTS, OBJECT, OBJECTS, RESYNC, SYNC};
use crate::api::operation::{Operation, segments};
use crate::api::work::{
    BEGIN_TASK, BEGIN_WORKFLOW, CANCEL_TASK, CONTROL_WORKFLOW, OUTPUT, SELECT, TASK, TASK_NODES, TASKS,
    WORKFLOW, WORKFLOWS,
};
use crate::api::{self, CONTENTS, MAX_CONTENTS, MAX_JSON};
use crate::intake::{WITHIN, accepts_gzip, read, read_any, unpacked};
use crate::metrics::gather;
use crate::objects::{apply, list, status};
use crate::posture::random;
use crate::releases;
use crate::state::{ControlPlane, now};
use crate::work::{select, views};

/// How long a body of contents may take to arrive; the CLI gives up long before.
const CONTENTS_WITHIN: Duration = Duration::from_secs(600);

/// Who asks, and the control plane that is asked.
pub(crate) struct OperatorCall {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) by: String,
}

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
    handle: Box<dyn Fn(OperatorCall, IncomingRequest) -> PendingReply + Send + Sync>,
}

static ROUTES: LazyLock<Vec<OperatorRoute>> = LazyLock::new(|| {
    vec![
        route(&api::STATUS, |call, _| fleet::status(call)),
        route(&api::NODES, fleet::nodes),
        route(&api::NODE, |call, asked| ready(fleet::node_view(&call.plane, &asked.node))),
        route(&api::ENTRY, |call, asked| ready(Ok(fleet::entry(&call.plane, &asked)))),
        route(&api::REMOVE_NODE, fleet::remove),
        route(&api::TRAITS, fleet::traits),
        route(&api::FACTS, fleet::facts),
        route(&api::RUNS, fleet::runs),
        route(&api::RUN, fleet::run),
        route(&api::TRUST, trust::view),
        route(&api::ADD_TRUST, trust::add),
        route(&api::REQUEST_RUN, requests::request_run),
        route(&api::REQUEST_TAGGED_RUN, requests::request_tagged_run),
        route(&api::HEAD, publish::head),
        route(&api::RELEASES, publish::releases),
        route(&api::CHUNK, publish::chunk),
        route(&api::MISSING, publish::missing),
        route(&api::FETCH, publish::fetch),
        route(&api::PUT_CHUNKS, publish::put_chunks),
        route(&api::COMMIT, releases::commit),
        route(&api::ADD_BEACONS, publish::add_beacons),
        route(&api::ISSUE_PROXY, |call, asked| ready(issue_proxy(&call, asked))),
        route(&api::SET_LOG_LEVEL, |call, asked| ready(set_log_level(&call, asked))),
        route(&OBJECTS, list::list),
        route(&OBJECT, list::one),
        route(&APPLY, apply::apply),
        route(&DELETE_OBJECTS, apply::delete),
        route(&SYNC, status::list),
        route(&RESYNC, |call, asked| ready(status::resync(&call, &asked))),
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
    OperatorRoute { method: operation.method.clone(), path: operation.path, handle: Box::new(handle) }
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

/// The operator's name, from its certificate.
fn operator(request: &Request<Incoming>) -> Result<String, Problem> {
    let peer = request.extensions().get::<Connection>().and_then(|c| c.peer.as_deref());
    match peer.map(|peer| &peer.role) {
        Some(PeerRole::Operator(name)) => Ok(name.clone()),
        _ => Err(Code::CertificateRequired.into()),
    }
}

async fn answer(plane: Arc<ControlPlane>, request: Request<Incoming>) -> Result<PortReply, Problem> {
    let by = operator(&request)?;
    let (parts, body) = request.into_parts();
    let (method, path) = (&parts.method, parts.uri.path());
    if let (&Method::GET, Some(reply)) = (method, gather::answer(&plane, path)) {
        return Ok(reply);
    }
    match (method, path.strip_prefix(CONTENTS)) {
        (&Method::GET, Some(digest)) => return publish::content(&plane, digest).await,
        (&Method::POST, Some("")) => {
            let bytes = read_any(body, MAX_CONTENTS, CONTENTS_WITHIN).await?;
            return publish::put_contents(&plane, unpacked(&parts, bytes, MAX_CONTENTS)?).await;
        }
        _ => {}
    }
    let mut of_method = ROUTES.iter().filter(|route| route.method == *method);
    let matched = of_method.find_map(|route| Some((route, segments(route.path, path)?)));
    let (route, segments) = matched.ok_or(Code::NotFound)?;
    let (gzip, query) = (accepts_gzip(&parts), parts.uri.query().unwrap_or("").to_owned());
    let body = match *method {
        Method::POST => read(&parts, body, MAX_JSON, WITHIN).await?,
        _ => Bytes::new(),
    };
    let body = unpacked(&parts, body, MAX_JSON)?;
    (route.handle)(OperatorCall { plane, by }, IncomingRequest { segments, query, body, gzip }).await
}

/// Issues a proxy's certificate under the CA that nodes believe (IDN-4).
fn issue_proxy(call: &OperatorCall, asked: api::IssueProxy) -> Result<api::ProxyCertificate, Problem> {
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
    let issued = call.plane.node_ca.issue_proxy(&csr, name, &names, serial, now);
    let cert_pem = issued.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    tracing::info!(by = call.by, proxy = name, ?names, "a certificate was issued to a proxy");
    let ca_pem = call.plane.node_ca.cert_pem().to_owned();
    Ok(api::ProxyCertificate { cert_pem, ca_pem, not_after: now.plus(PROXY_LIFE) })
}

/// A host name or address in the one form in which it is compared.
fn one_form(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_ascii_lowercase(), |address| address.to_string())
}

/// Changes what is logged from now on (OPS-4).
fn set_log_level(call: &OperatorCall, asked: api::LogLevel) -> Result<api::LogLevel, Problem> {
    let Some(log) = &call.plane.log else {
        return Err(Problem::new(Code::NotFound, "this control plane's logs are another program's"));
    };
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
