//! The node port: route, authenticate, step, make durable, answer.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use model::exchange::{Acked, Answer, CheckIn, Report};
use model::log::{Cursor, MAX_FACTS};
use model::{Digest, Incarnation, NodeId};
use net::accept::Connection;
use net::identity::Role;
use plane::Step;
use wire::body::{self, MAX_NODE_BODY};
use wire::headers::{self, Version};
use wire::route::{self, Access, Route};
use wire::signature::{self, SignatureError, Target};
use wire::{Code, Problem};

use crate::answer::{Reply, json, refuse, reply, store_problem};
use crate::index::Slot;
use crate::intake::{accepts_gzip, read, unpacked};
use crate::state::{ControlPlane, now};

/// The longest that a long poll is held.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// When the next contact is further away than this, the connection is closed after the
/// answer: an idle node then costs no memory here.
const KEEP_OPEN: Duration = Duration::from_secs(45);
/// How far a request's number may be ahead of the clock: twice the skew that is forgiven.
const MAX_NUMBER_AHEAD: Duration = Duration::from_secs(120);
/// The most of a blob that one response carries.
const MAX_RANGE: u64 = 1024 * 1024;

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
            let Some(segment) = pattern.and_then(|pattern| matches(pattern, path)) else { continue };
            if route.method != method {
                code = Code::MethodNotAllowed;
                continue;
            }
            let (node, digest) = if by_node { (segment, None) } else { (None, segment) };
            return Ok(Matched { route, node, digest });
        }
    }
    Err(code)
}

/// Matches a path with a pattern of at most one `{segment}`.
fn matches(pattern: &str, path: &str) -> Option<Option<String>> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return (pattern == path).then_some(None);
    };
    let (_, after) = rest.split_once('}')?;
    let segment = path.strip_prefix(before)?.strip_suffix(after)?;
    (!segment.is_empty() && !segment.contains('/')).then(|| Some(segment.to_owned()))
}

/// Answers a request on the node port.
pub(crate) async fn handle(plane: Arc<ControlPlane>, request: Request<Incoming>) -> Reply {
    match answer(&plane, request).await {
        Ok(reply) => reply,
        Err(problem) => {
            let id = plane.request_id();
            tracing::debug!(request = id, code = problem.code, "refused");
            refuse(problem, id)
        }
    }
}

async fn answer(plane: &Arc<ControlPlane>, request: Request<Incoming>) -> Result<Reply, Problem> {
    match headers::version(request.headers()) {
        Version::Fits => {}
        Version::OtherProtocol => return Err(Code::ProtocolVersion.into()),
        Version::TooOld => return Err(Code::AgentTooOld.into()),
    }
    let matched = find(request.method().as_str(), request.uri().path())?;
    let connection = request.extensions().get::<Connection>().cloned().ok_or(Code::Internal)?;
    let (parts, body) = request.into_parts();
    if matched.route.access == Access::Open {
        let body = read(&parts, body, crate::enroll::MAX_BODY).await?;
        let body = unpacked(&parts, body, crate::enroll::MAX_BODY)?;
        return crate::enroll::enroll(plane, &body).await;
    }
    let caller = Caller::of(plane, &connection)?;
    let body = read(&parts, body, MAX_NODE_BODY).await?;
    caller.authenticate(plane, &parts, &matched, &body)?;
    let body = unpacked(&parts, body, MAX_NODE_BODY)?;
    let gzip = accepts_gzip(&parts);
    match matched.route.path {
        route::CHECKIN => {
            let wait = wait(&parts);
            let (answer, idle) = check_in(plane, &caller, body::decode(&body)?, wait).await?;
            if idle {
                connection.close_after_answer();
            }
            json(&answer, gzip)
        }
        route::REPORT => json(&report(plane, &caller, body::decode(&body)?).await?, gzip),
        route::STATE => json(&state(plane, &caller).await?, gzip),
        route::BLOB => blob(plane, &caller, &matched, &parts).await,
        _ => Err(Code::NotFound.into()),
    }
}

/// The node behind a request.
struct Caller {
    id: NodeId,
    slot: Arc<Slot>,
}

impl Caller {
    fn of(plane: &ControlPlane, connection: &Connection) -> Result<Caller, Problem> {
        let peer = connection.peer.as_deref().ok_or(Code::CertificateRequired)?;
        let Role::Node { id, key, .. } = &peer.role else {
            return Err(Code::CertificateRequired.into());
        };
        let slot = plane.index.get(id).ok_or(Code::UnknownNode)?;
        if slot.lock().node.key.as_bytes() != key {
            return Err(Code::UnknownNode.into());
        }
        Ok(Caller { id: id.clone(), slot })
    }

    /// Signature, digest, time, replay, and that the node asks for itself (IDN-4, IDN-5).
    fn authenticate(
        &self,
        plane: &ControlPlane,
        parts: &http::request::Parts,
        matched: &Matched,
        body: &[u8],
    ) -> Result<(), Problem> {
        if matched.node.as_deref().is_some_and(|named| named != self.id.as_str()) {
            return Err(Code::OtherNode.into());
        }
        let signed = signature::parse(&parts.headers).map_err(signature_problem)?;
        if signed.node != self.id.as_str() {
            return Err(Code::OtherNode.into());
        }
        let target = Target {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            body,
        };
        let key = self.slot.lock().node.key;
        signed.verify(target, &key, now()).map_err(signature_problem)?;
        // What was seen before this start is forgotten, so nothing from before it counts. The
        // number is the signer's clock in microseconds, or higher.
        let started = u64::try_from(plane.started.0).unwrap_or(0).saturating_mul(1000);
        if signed.nonce < started {
            return Err(signature_problem(SignatureError::Skew { created: signed.created }));
        }
        // A number far ahead of the clock would shut out the node itself once its clock is right.
        let ahead = u64::try_from(now().plus(MAX_NUMBER_AHEAD).0).unwrap_or(0).saturating_mul(1000);
        if signed.nonce > ahead {
            return Err(signature_problem(SignatureError::Skew { created: signed.created }));
        }
        let mut entry = self.slot.lock();
        if !entry.node.window.accept(signed.nonce) {
            let mut problem = Problem::from(Code::Replayed);
            problem.next_number = Some(entry.node.window.highest() + 1);
            return Err(problem);
        }
        if !entry.node.budget.take(body.len() as u64, now()) {
            return Err(Problem::new(Code::Busy, "the node sends more than its share"));
        }
        Ok(())
    }
}

fn signature_problem(error: SignatureError) -> Problem {
    let code = match error {
        SignatureError::Missing => Code::Unsigned,
        SignatureError::Digest => Code::BadDigest,
        SignatureError::Signature => Code::BadSignature,
        SignatureError::Skew { .. } => Code::Skewed,
    };
    let mut problem = Problem::new(code, error.to_string());
    if code == Code::Skewed {
        problem.server_time = Some(now());
    }
    problem
}

async fn check_in(
    plane: &Arc<ControlPlane>,
    caller: &Caller,
    request: CheckIn,
    wait: Duration,
) -> Result<(Answer, bool), Problem> {
    ready(plane)?;
    check_facts(request.facts.len())?;
    let incarnation = request.incarnation.clone();
    let mut heads = plane.heads.subscribe();
    let mut step = take_step(plane, caller, request.clone());
    let acked = persist(plane, caller, &incarnation, &mut step).await?;
    if step.unchanged && wait > Duration::ZERO {
        let quiet = CheckIn { facts: Vec::new(), traits: None, ..request };
        step = long_poll(plane, caller, quiet, wait, &mut heads).await;
    }
    step.answer.acked = acked;
    complete(plane, &mut step).await?;
    let far = Duration::from_secs(step.answer.next_checkin_secs) > KEEP_OPEN;
    let idle = far && step.unchanged && wait.is_zero();
    Ok((step.answer, idle))
}

/// What depends on the signed artifacts waits until they are loaded (WIR-4).
fn ready(plane: &ControlPlane) -> Result<(), Problem> {
    match plane.not_ready() {
        Some(why) => Err(Problem::new(Code::NotReady, why)),
        None => Ok(()),
    }
}

fn take_step(plane: &ControlPlane, caller: &Caller, request: CheckIn) -> Step {
    let heads = plane.heads();
    let mut entry = caller.slot.lock();
    entry.dirty = true;
    entry.node.check_in(request, &heads, now())
}

/// Waits until there is something to say, or the wait is over.
async fn long_poll(
    plane: &ControlPlane,
    caller: &Caller,
    request: CheckIn,
    wait: Duration,
    heads: &mut tokio::sync::watch::Receiver<Arc<plane::Heads>>,
) -> Step {
    let deadline = tokio::time::sleep(wait.min(MAX_WAIT));
    tokio::pin!(deadline);
    loop {
        let pushed = plane.pushes.notified();
        let step = take_step(plane, caller, request.clone());
        if !step.unchanged {
            return step;
        }
        tokio::select! {
            _ = heads.changed() => {}
            () = pushed => {}
            () = &mut deadline => return step,
        }
    }
}

/// Makes durable what a step says is new, before anything of it is acknowledged.
async fn persist(
    plane: &Arc<ControlPlane>,
    caller: &Caller,
    incarnation: &Incarnation,
    step: &mut Step,
) -> Result<Option<Cursor>, Problem> {
    if step.first_use {
        let stored = plane.store.certificate_used(&caller.id).await;
        if stored.is_err() {
            // Not stored: the next request is the first one again (ENR-7).
            caller.slot.lock().node.certificate_used = false;
        }
        stored.map_err(store_problem)?;
    }
    if let Some(push) = step.push_done {
        let stored = plane.store.clear_push(&caller.id, push).await;
        if stored.is_err() {
            caller.slot.lock().node.push.get_or_insert(push);
        }
        stored.map_err(store_problem)?;
    }
    if let Some(traits) = step.traits.take() {
        let stored = plane.store.put_traits(&caller.id, traits, now()).await;
        if stored.is_err() {
            // Not stored: the next answer asks for them again.
            caller.slot.lock().node.traits = None;
        }
        stored.map_err(store_problem)?;
    }
    if step.facts.is_empty() {
        return Ok(None);
    }
    let facts = std::mem::take(&mut step.facts);
    accept_facts(plane, caller, incarnation, facts).await.map(Some)
}

async fn accept_facts(
    plane: &Arc<ControlPlane>,
    caller: &Caller,
    incarnation: &Incarnation,
    facts: Vec<model::log::Fact>,
) -> Result<Cursor, Problem> {
    let (plane, id, slot) = (plane.clone(), caller.id.clone(), caller.slot.clone());
    let incarnation = incarnation.clone();
    // Whole, also when the node hangs up in the middle: what the store took and the index
    // did not would be known to nobody until the next start.
    whole(async move {
        let appended = plane.store.append_facts(&id, &incarnation, facts, now()).await;
        let accepted = appended.map_err(store_problem)?;
        slot.lock().node.accepted(accepted.cursor.clone(), &accepted.new);
        Ok(accepted.cursor)
    })
    .await
}

/// Does something to its end, even when the request that it is for is given up.
pub(crate) async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(work).await.unwrap_or_else(|_| Err(Code::Internal.into()))
}

/// Puts the set into an offer that needs one.
async fn complete(plane: &ControlPlane, step: &mut Step) -> Result<(), Problem> {
    if let (Some(wanted), Some(offer)) = (step.wanted, step.answer.offer.as_mut()) {
        offer.set = plane.sets.offer(wanted).await.map_err(store_problem)?;
        if offer.set.is_none() {
            return Err(Problem::new(Code::Internal, "the release's set is not stored"));
        }
    }
    Ok(())
}

async fn report(plane: &Arc<ControlPlane>, caller: &Caller, report: Report) -> Result<Acked, Problem> {
    check_facts(report.facts.len())?;
    let acked = accept_facts(plane, caller, &report.incarnation, report.facts).await?;
    Ok(Acked { acked })
}

fn check_facts(count: usize) -> Result<(), Problem> {
    if count > MAX_FACTS {
        return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_FACTS} facts a request")));
    }
    Ok(())
}

/// What the node is pointed to, named in full: the check-in's answer to one that holds nothing.
async fn state(plane: &ControlPlane, caller: &Caller) -> Result<Answer, Problem> {
    ready(plane)?;
    let heads = plane.heads();
    let mut step = {
        let mut node = caller.slot.lock().node.clone();
        let incarnation = node.cursor.as_ref().map(|cursor| cursor.incarnation.clone());
        let incarnation = incarnation.or_else(|| "none".parse().ok()).ok_or(Code::Internal)?;
        let empty = CheckIn {
            held: None,
            incarnation,
            facts: Vec::new(),
            run: None,
            traits: None,
            full: true,
            pushed: None,
        };
        node.check_in(empty, &heads, now())
    };
    complete(plane, &mut step).await?;
    Ok(step.answer)
}

async fn blob(
    plane: &ControlPlane,
    caller: &Caller,
    matched: &Matched,
    parts: &http::request::Parts,
) -> Result<Reply, Problem> {
    ready(plane)?;
    let digest: Digest =
        matched.digest.as_deref().and_then(|text| text.parse().ok()).ok_or(Code::NotFound)?;
    let roots = {
        let heads = plane.heads();
        let mut entry = caller.slot.lock();
        let pointed = entry.node.pointed(&heads).map(|(_, entry)| entry.root);
        // A set held by the node's own word alone would entitle it to anything.
        pointed.into_iter().collect::<Vec<_>>()
    };
    let mut entitled = false;
    for root in &roots {
        entitled |= plane.sets.entitles(root, &digest).await.map_err(store_problem)?;
    }
    if !entitled {
        return Err(Code::NotEntitled.into());
    }
    let Ok(_slot) = plane.blobs.acquire().await else { return Err(Code::Busy.into()) };
    let size = plane.store.content_size(&digest).await.map_err(store_problem)?.ok_or(Code::NotFound)?;
    let start = range_start(parts).unwrap_or(0);
    let end = start.saturating_add(MAX_RANGE).min(size);
    let bytes = plane.store.content(&digest, Some(start..end)).await.map_err(store_problem)?;
    let bytes = bytes.ok_or(Code::NotFound)?;
    let whole = start == 0 && end == size;
    let status = if whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    let mut response = reply(status, "application/octet-stream", None, bytes);
    let range = format!("bytes {start}-{}/{size}", end.saturating_sub(1));
    if let Ok(value) = header::HeaderValue::from_str(&range) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    Ok(response)
}

/// Where a `Range: bytes=N-` begins.
fn range_start(parts: &http::request::Parts) -> Option<u64> {
    let range = parts.headers.get(header::RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
}

fn wait(parts: &http::request::Parts) -> Duration {
    let query = parts.uri.query().unwrap_or("");
    let secs = query.split('&').find_map(|pair| pair.strip_prefix("wait=")?.parse().ok());
    Duration::from_secs(secs.unwrap_or(0)).min(MAX_WAIT)
}
