//! The operator port: what the CLI asks and orders. Closed to nodes (IDN-5): their
//! certificates are under another CA.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use lang::pattern::Pattern;
use model::status::Word;
use model::{Digest, Incarnation, Timestamp};
use net::accept::Connection;
use net::identity::Role;
use plane::{Heads, NodeState};
use store::RunFilter;
use wire::body;
use wire::{Code, Problem};

use crate::answer::{Reply, json, refuse, reply, store_problem};
use crate::api::{
    Beacons, CauseView, ChannelView, Chunks, Commit, Digests, HeadView, MAX_CAUSES, MAX_CONTENTS, MAX_FETCH,
    MAX_JSON, MAX_PAGE, NodeView, NodesView, Push, Pushed, StatusView, unpack_contents,
};
use crate::index::Slot;
use crate::intake::{accepts_gzip, read, read_any, unpacked};
use crate::releases;
use crate::state::{ControlPlane, now};

/// How long a body of contents may take to arrive.
const CONTENTS_WITHIN: Duration = Duration::from_secs(600);
/// Hostnames named for one cause.
const NAMED: usize = 5;

/// Answers a request on the operator port.
pub(crate) async fn handle(plane: Arc<ControlPlane>, request: Request<Incoming>) -> Reply {
    match answer(&plane, request).await {
        Ok(reply) => reply,
        Err(problem) => {
            let id = plane.request_id();
            tracing::info!(request = id, code = problem.code, detail = problem.detail, "refused an operator");
            refuse(problem, id)
        }
    }
}

async fn answer(plane: &Arc<ControlPlane>, request: Request<Incoming>) -> Result<Reply, Problem> {
    let operator = match request.extensions().get::<Connection>().and_then(|c| c.peer.as_deref()) {
        Some(peer) => match &peer.role {
            Role::Operator(name) => name.clone(),
            Role::Node { .. } => return Err(Code::CertificateRequired.into()),
        },
        None => return Err(Code::CertificateRequired.into()),
    };
    let (parts, body) = request.into_parts();
    let gzip = accepts_gzip(&parts);
    let path = parts.uri.path().to_owned();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let query = Query(parts.uri.query().unwrap_or(""));
    match (parts.method.clone(), segments.as_slice()) {
        (Method::GET, ["v1", "status"]) => json(&status(plane), gzip),
        (Method::GET, ["v1", "nodes"]) => json(&nodes(plane, &query)?, gzip),
        (Method::GET, ["v1", "nodes", node]) => json(&node_view(plane, node)?, gzip),
        (Method::DELETE, ["v1", "nodes", node]) => json(&remove(plane, node).await?, gzip),
        (Method::GET, ["v1", "nodes", node, "traits"]) => {
            let id = find(plane, node)?.lock().node.id.clone();
            json(&plane.store.traits(&id).await.map_err(store_problem)?, gzip)
        }
        (Method::GET, ["v1", "nodes", node, "facts"]) => {
            let id = find(plane, node)?.lock().node.id.clone();
            let facts = plane.store.facts(&id, query.number("before"), query.limit()).await;
            json(&facts.map_err(store_problem)?, gzip)
        }
        (Method::GET, ["v1", "runs"]) => json(&runs(plane, &query).await?, gzip),
        (Method::GET, ["v1", "runs", node, incarnation, seq]) => {
            json(&run(plane, node, incarnation, seq).await?, gzip)
        }
        (Method::GET, ["v1", "head"]) => json(&head(plane), gzip),
        (Method::GET, ["v1", "releases"]) => {
            let found = plane.store.releases(query.limit(), query.number("before")).await;
            json(&found.map_err(store_problem)?, gzip)
        }
        (Method::GET, ["v1", "chunks", digest]) => {
            let digest: Digest = digest.parse().map_err(|_| Code::NotFound)?;
            let chunk = plane.store.chunk(&digest).await.map_err(store_problem)?;
            json(&chunk.ok_or(Code::NotFound)?, gzip)
        }
        (Method::GET, ["v1", "contents", digest]) => content(plane, digest).await,
        (Method::POST, ["v1", "contents"]) => {
            let bytes = read_any(body, MAX_CONTENTS, CONTENTS_WITHIN).await?;
            put_contents(plane, unpacked(&parts, bytes, MAX_CONTENTS)?).await
        }
        (Method::POST, ["v1", order]) => {
            let bytes = read(&parts, body, MAX_JSON).await?;
            order_of(plane, order, &unpacked(&parts, bytes, MAX_JSON)?, &operator).await
        }
        _ => Err(Code::NotFound.into()),
    }
}

/// Orders: everything that changes something and comes as JSON.
async fn order_of(
    plane: &Arc<ControlPlane>,
    order: &str,
    bytes: &[u8],
    operator: &str,
) -> Result<Reply, Problem> {
    match order {
        "missing" => {
            let asked: Digests = body::decode(bytes)?;
            let chunks = plane.store.missing_chunks(asked.chunks, now()).await.map_err(store_problem)?;
            let contents =
                plane.store.missing_contents(asked.contents, now()).await.map_err(store_problem)?;
            json(&Digests { chunks, contents }, true)
        }
        "fetch" => json(&fetch(plane, body::decode(bytes)?).await?, true),
        "chunks" => {
            let sent: Chunks = body::decode(bytes)?;
            let stored = plane.store.put_chunks(sent.chunks, now()).await.map_err(put_problem)?;
            json(&stored.len(), false)
        }
        "releases" => {
            let commit: Commit = body::decode(bytes)?;
            json(&releases::commit(plane.clone(), commit, operator.to_owned()).await?, false)
        }
        "beacons" => {
            let sent: Beacons = body::decode(bytes)?;
            let count = sent.beacons.len();
            releases::add_beacons(plane, sent.beacons).await?;
            json(&count, false)
        }
        "pushes" => json(&push(plane, body::decode(bytes)?).await?, false),
        _ => Err(Code::NotFound.into()),
    }
}

fn put_problem(error: store::PutError) -> Problem {
    match error {
        store::PutError::NotComplete { .. } => Problem::new(Code::Incomplete, error.to_string()),
        store::PutError::Store(error) => store_problem(error),
        other => Problem::new(Code::ReleaseRefused, other.to_string()),
    }
}

/// The chunks that are asked for; those that are not stored are left out.
async fn fetch(plane: &ControlPlane, asked: Digests) -> Result<Chunks, Problem> {
    if asked.chunks.len() > MAX_FETCH {
        return Err(Problem::new(Code::BodyTooLarge, format!("more than {MAX_FETCH} chunks are asked for")));
    }
    let mut chunks = Vec::with_capacity(asked.chunks.len());
    for digest in &asked.chunks {
        chunks.extend(plane.store.chunk(digest).await.map_err(store_problem)?);
    }
    Ok(Chunks { chunks })
}

async fn put_contents(plane: &ControlPlane, body: Bytes) -> Result<Reply, Problem> {
    let contents = unpack_contents(&body).ok_or(Code::BadBody)?;
    let stored = plane.store.put_contents(contents, now()).await.map_err(put_problem)?;
    json(&stored.len(), false)
}

async fn content(plane: &ControlPlane, digest: &str) -> Result<Reply, Problem> {
    let digest: Digest = digest.parse().map_err(|_| Code::NotFound)?;
    let content = plane.store.content(&digest, None).await.map_err(store_problem)?;
    let bytes = content.ok_or(Code::NotFound)?;
    Ok(reply(StatusCode::OK, "application/octet-stream", None, bytes))
}

/// The query part of a URL; values are names and numbers, so nothing is escaped in it but
/// `%2F`, `%2A` and the like of patterns.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| unescape(value))
        };
        self.0.split('&').find_map(pair)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    fn limit(&self) -> usize {
        let asked = self.number("limit").and_then(|limit| usize::try_from(limit).ok());
        asked.unwrap_or(MAX_PAGE).min(MAX_PAGE)
    }
}

fn unescape(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn find(plane: &ControlPlane, name: &str) -> Result<Arc<Slot>, Problem> {
    let unknown = || Problem::new(Code::NotFound, format!("no node {name:?} is enrolled"));
    plane.index.find(name).ok_or_else(unknown)
}

fn node_view(plane: &ControlPlane, name: &str) -> Result<NodeView, Problem> {
    let slot = find(plane, name)?;
    let heads = plane.heads();
    let view = view(&mut slot.lock().node, &heads, now());
    Ok(view)
}

fn view(node: &mut NodeState, heads: &Heads, now: Timestamp) -> NodeView {
    let status = node.status(heads, now);
    let pointed = node.pointed(heads);
    NodeView {
        id: node.id.clone(),
        hostname: node.hostname.clone(),
        word: status.word(),
        channel: pointed.as_ref().map(|(_, entry)| entry.channel.clone()),
        pointed_seq: pointed.as_ref().map(|(head, _)| head.header.seq),
        pointed_root: pointed.as_ref().map(|(_, entry)| entry.root),
        held: node.held.clone(),
        last_seen: node.last_seen,
        promised_secs: node.promised.as_secs(),
        last_run: node.run.as_ref().map(|run| run.at),
        counts: node.summary.counts,
        cause: cause(node, status.word(), heads),
        since: node.summary.since,
        fingerprint: node.key.fingerprint(),
        push: node.push,
        status,
    }
}

/// Why a node is not green.
fn cause(node: &NodeState, word: Word, heads: &Heads) -> Option<String> {
    let silent = || node.last_seen.map(|seen| format!("last heard of at {seen}"));
    match word {
        Word::Converged => None,
        Word::Offline | Word::Unreachable => silent(),
        _ if node.last_seen.is_none() => Some("joined, and has not called yet".to_owned()),
        Word::Unassigned if heads.channels.is_empty() => Some("nothing is published yet".to_owned()),
        Word::Unassigned => Some("no entry of the fleet repo matches this hostname".to_owned()),
        Word::New => Some("enrolled, no run reported yet".to_owned()),
        Word::Stale => Some("the release it is pointed to is past its freshness".to_owned()),
        Word::Changing => match &node.refusal {
            Some(refusal) => Some(refusal.to_string()),
            None => Some("has not adopted the newest release yet".to_owned()),
        },
        Word::Diverged | Word::Relapsed => Some(format!(
            "{} corrective runs in a row: something else changes this host",
            node.summary.streak
        )),
        Word::Failed | Word::Degraded | Word::WouldChange => {
            node.summary.cause.as_deref().map(str::to_owned).or_else(|| Some("see its last run".to_owned()))
        }
    }
}

fn next_step(word: Word, node: &str) -> String {
    match word {
        Word::Converged => String::new(),
        Word::Offline | Word::Unreachable => format!("on {node}: systemctl status muster-agent"),
        Word::Unassigned => "add an entry to nodes.yaml, then muster publish".to_owned(),
        Word::Stale => "muster publish, or muster publish --beacon".to_owned(),
        Word::New | Word::Changing => format!("muster node show {node}"),
        _ => format!("muster run show {node}"),
    }
}

fn nodes(plane: &ControlPlane, query: &Query<'_>) -> Result<NodesView, Problem> {
    let pattern = match query.get("match") {
        Some(text) => Some(Pattern::parse(&text).map_err(|error| {
            Problem::new(Code::BadBody, format!("the pattern {text:?} cannot be read: {error}"))
        })?),
        None => None,
    };
    let (from, limit) = (query.get("from").unwrap_or_default(), query.limit());
    let (heads, now) = (plane.heads(), now());
    let mut page = Vec::new();
    for slot in plane.index.all() {
        let mut entry = slot.lock();
        let name = entry.node.hostname.clone();
        if name.as_str() < from.as_str() || pattern.as_ref().is_some_and(|p| !p.matches(name.as_str())) {
            continue;
        }
        if page.len() == limit {
            return Ok(NodesView { nodes: page, next: Some(name) });
        }
        page.push(view(&mut entry.node, &heads, now));
    }
    Ok(NodesView { nodes: page, next: None })
}

fn status(plane: &ControlPlane) -> StatusView {
    let (heads, now) = (plane.heads(), now());
    let all = plane.index.all();
    let mut words: BTreeMap<Word, usize> = BTreeMap::new();
    let mut causes: BTreeMap<(Word, String), CauseView> = BTreeMap::new();
    for slot in &all {
        let mut entry = slot.lock();
        let word = entry.node.status(&heads, now).word();
        *words.entry(word).or_default() += 1;
        let Some(cause) = cause(&entry.node, word, &heads) else { continue };
        // Silence differs by the second; its cause is the same.
        let key =
            if matches!(word, Word::Offline | Word::Unreachable) { String::new() } else { cause.clone() };
        let (hostname, since) = (entry.node.hostname.clone(), entry.node.summary.since);
        let next = next_step(word, hostname.as_str());
        let view = causes.entry((word, key)).or_insert_with(|| CauseView {
            word,
            cause,
            since,
            count: 0,
            nodes: Vec::new(),
            next,
        });
        view.count += 1;
        view.since = view.since.into_iter().chain(since).min();
        if view.nodes.len() < NAMED {
            view.nodes.push(hostname);
        }
    }
    let mut causes: Vec<CauseView> = causes.into_values().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    causes.truncate(MAX_CAUSES);
    StatusView {
        fleet: plane.trust.fleet.clone(),
        posture: plane.posture,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seq: heads.seq(),
        channels: heads.channels.values().map(|head| channel_view(head)).collect(),
        nodes: all.len(),
        words,
        causes,
        not_ready: plane.not_ready(),
        store: plane.store.health(),
    }
}

fn channel_view(head: &plane::Head) -> ChannelView {
    ChannelView {
        channel: head.header.channel.clone(),
        seq: head.header.seq,
        label: head.header.label.clone(),
        signed_at: head.signed_at,
        fresh_until: head.signed_at.plus(head.header.freshness()),
        contact_secs: head.contact_secs,
    }
}

fn head(plane: &ControlPlane) -> HeadView {
    let heads = plane.heads();
    let newest = heads.channels.values().max_by_key(|head| head.header.seq);
    HeadView {
        trust: plane.trust.clone(),
        seq: newest.map(|head| head.header.seq),
        selection: newest.map(|head| head.header.selection),
        headers: releases::headers(&heads),
    }
}

async fn runs(plane: &ControlPlane, query: &Query<'_>) -> Result<Vec<store::RunRecord>, Problem> {
    let node = match query.get("node") {
        Some(name) => Some(find(plane, &name)?.lock().node.id.clone()),
        None => None,
    };
    let filter = RunFilter { node, before: query.number("before"), limit: query.limit() };
    plane.store.runs(filter).await.map_err(store_problem)
}

async fn run(
    plane: &ControlPlane,
    node: &str,
    incarnation: &str,
    seq: &str,
) -> Result<store::RunRecord, Problem> {
    let id = find(plane, node)?.lock().node.id.clone();
    let incarnation: Incarnation = incarnation.parse().map_err(|_| Code::NotFound)?;
    let seq = seq.parse().map_err(|_| Code::NotFound)?;
    let run = plane.store.run(&id, &incarnation, seq).await.map_err(store_problem)?;
    run.ok_or_else(|| Code::NotFound.into())
}

async fn remove(plane: &ControlPlane, name: &str) -> Result<NodeView, Problem> {
    let view = node_view(plane, name)?;
    plane.store.remove_node(&view.id, now()).await.map_err(store_problem)?;
    plane.index.remove(&view.id);
    tracing::info!(node = %view.id, hostname = %view.hostname, "a node was removed");
    Ok(view)
}

async fn push(plane: &ControlPlane, push: Push) -> Result<Pushed, Problem> {
    let mut slots = Vec::new();
    for name in &push.nodes {
        slots.push(find(plane, name)?);
    }
    let ids: Vec<_> = slots.iter().map(|slot| slot.lock().node.id.clone()).collect();
    // Milliseconds rise, so a later push replaces an earlier one on the node.
    let number = u64::try_from(now().0).unwrap_or(0);
    plane.store.set_push(ids, number, now()).await.map_err(store_problem)?;
    for slot in &slots {
        slot.lock().node.push = Some(number);
    }
    plane.pushes.notify_waiters();
    Ok(Pushed { push: number, nodes: slots.len() })
}
