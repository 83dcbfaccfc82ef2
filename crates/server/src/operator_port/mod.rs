//! The operator port: what the CLI asks and orders. Closed to nodes (IDN-5): their
//! certificates are under another CA.

mod fleet;
mod objects;
mod publish;
mod query;
mod work;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use hyper::body::Incoming;
use model::Digest;
use net::accept::Connection;
use net::identity::Role;
use wire::body;
use wire::{Code, Problem};

use crate::answer::{Reply, json, refuse, store_problem};
use crate::api::{Beacons, Chunks, Commit, Digests, MAX_CONTENTS, MAX_JSON};
use crate::intake::{accepts_gzip, read, read_any, unpacked};
use crate::metrics::gather;
use crate::releases;
use crate::state::{ControlPlane, now};
use query::Query;

/// How long a body of contents may take to arrive.
const CONTENTS_WITHIN: Duration = Duration::from_secs(600);

/// Answers a request on the operator port.
pub(crate) async fn handle(plane: Arc<ControlPlane>, request: Request<Incoming>) -> Reply {
    match answer(&plane, request).await {
        Ok(reply) => reply,
        Err(problem) => {
            let id = plane.request_id();
            plane.metrics.failed(&problem.code);
            tracing::info!(request = id, code = problem.code, detail = problem.detail, "refused an operator");
            refuse(problem, id)
        }
    }
}

/// Who asks.
fn operator(request: &Request<Incoming>) -> Result<String, Problem> {
    let peer = request.extensions().get::<Connection>().and_then(|c| c.peer.as_deref());
    match peer.map(|peer| &peer.role) {
        Some(Role::Operator(name)) => Ok(name.clone()),
        _ => Err(Code::CertificateRequired.into()),
    }
}

async fn answer(plane: &Arc<ControlPlane>, request: Request<Incoming>) -> Result<Reply, Problem> {
    let operator = operator(&request)?;
    let (parts, body) = request.into_parts();
    let gzip = accepts_gzip(&parts);
    let path: Vec<String> =
        parts.uri.path().trim_start_matches('/').split('/').map(wire::percent::decode).collect();
    let segments: Vec<&str> = path.iter().map(String::as_str).collect();
    let query = Query(parts.uri.query().unwrap_or(""));
    match (parts.method.clone(), segments.as_slice()) {
        (Method::GET, ["metrics"]) => Ok(gather::text(plane)),
        (Method::GET, ["healthz"]) => Ok(gather::alive()),
        (Method::GET, ["readyz"]) => Ok(gather::ready(plane)),
        (Method::GET, ["v1", asked @ ..]) => get(plane, asked, &query, gzip).await,
        (Method::DELETE, ["v1", "nodes", node]) => json(&fleet::remove(plane, node).await?, gzip),
        (Method::POST, ["v1", "contents"]) => {
            let bytes = read_any(body, MAX_CONTENTS, CONTENTS_WITHIN).await?;
            publish::put_contents(plane, unpacked(&parts, bytes, MAX_CONTENTS)?).await
        }
        (Method::POST, ["v1", order @ ..]) => {
            let bytes = read(&parts, body, MAX_JSON).await?;
            order_of(plane, order, &unpacked(&parts, bytes, MAX_JSON)?, &operator, gzip).await
        }
        _ => Err(Code::NotFound.into()),
    }
}

/// Questions.
async fn get(
    plane: &Arc<ControlPlane>,
    asked: &[&str],
    query: &Query<'_>,
    gzip: bool,
) -> Result<Reply, Problem> {
    match asked {
        ["status"] => json(&fleet::status(plane), gzip),
        ["nodes"] => json(&fleet::nodes(plane, query)?, gzip),
        ["nodes", node] => json(&fleet::node_view(plane, node)?, gzip),
        ["nodes", node, "traits"] => {
            let id = fleet::find(plane, node)?.lock().node.id.clone();
            json(&plane.store.traits(&id).await.map_err(store_problem)?, gzip)
        }
        ["nodes", node, "facts"] => {
            let id = fleet::find(plane, node)?.lock().node.id.clone();
            let facts = plane.store.facts(&id, query.number("before"), query.limit()).await;
            json(&facts.map_err(store_problem)?, gzip)
        }
        ["runs"] => json(&fleet::runs(plane, query).await?, gzip),
        ["runs", node, incarnation, seq] => json(&fleet::run(plane, node, incarnation, seq).await?, gzip),
        ["head"] => json(&publish::head(plane), gzip),
        ["releases"] => {
            let found = plane.store.releases(query.limit(), query.number("before")).await;
            json(&found.map_err(store_problem)?, gzip)
        }
        ["chunks", digest] => {
            let digest: Digest = digest.parse().map_err(|_| Code::NotFound)?;
            let chunk = plane.store.chunk(&digest).await.map_err(store_problem)?;
            json(&chunk.ok_or(Code::NotFound)?, gzip)
        }
        ["contents", digest] => publish::content(plane, digest).await,
        ["objects" | "sync", ..] => objects::get(plane, asked, query, gzip).await,
        ["tasks" | "workflows", ..] => work::get(plane, asked, query, gzip).await,
        _ => Err(Code::NotFound.into()),
    }
}

/// Orders: everything that changes something and comes as JSON.
async fn order_of(
    plane: &Arc<ControlPlane>,
    order: &[&str],
    bytes: &[u8],
    operator: &str,
    gzip: bool,
) -> Result<Reply, Problem> {
    match order {
        ["missing"] => {
            let asked: Digests = body::decode(bytes)?;
            let chunks = plane.store.missing_chunks(asked.chunks, now()).await.map_err(store_problem)?;
            let contents =
                plane.store.missing_contents(asked.contents, now()).await.map_err(store_problem)?;
            json(&Digests { chunks, contents }, gzip)
        }
        ["fetch"] => json(&publish::fetch(plane, body::decode(bytes)?).await?, gzip),
        ["chunks"] => {
            let sent: Chunks = body::decode(bytes)?;
            let stored = plane.store.put_chunks(sent.chunks, now()).await.map_err(publish::put_problem)?;
            json(&stored.len(), false)
        }
        ["releases"] => {
            let commit: Commit = body::decode(bytes)?;
            json(&releases::commit(plane.clone(), commit, operator.to_owned()).await?, false)
        }
        ["beacons"] => {
            let sent: Beacons = body::decode(bytes)?;
            let count = sent.beacons.len();
            releases::add_beacons(plane, sent.beacons).await?;
            json(&count, false)
        }
        ["pushes"] => json(&fleet::push(plane, body::decode(bytes)?).await?, false),
        ["log-level"] => set_log_level(plane, body::decode(bytes)?, operator),
        ["objects" | "objects-delete" | "resyncs"] => {
            objects::order(plane, order, bytes, operator, gzip).await
        }
        ["selections" | "tasks" | "workflows", ..] => work::order(plane, order, bytes, operator).await,
        _ => Err(Code::NotFound.into()),
    }
}

/// What is logged from now on (OPS-4).
fn set_log_level(
    plane: &ControlPlane,
    asked: crate::api::LogLevel,
    operator: &str,
) -> Result<Reply, Problem> {
    let Some(log) = &plane.log else {
        return Err(Problem::new(Code::NotFound, "this control plane's logs are another program's"));
    };
    log.set(&asked.level).map_err(|why| Problem::new(Code::BadBody, why))?;
    tracing::info!(by = operator, level = asked.level, "the log level was changed");
    json(&asked, false)
}
