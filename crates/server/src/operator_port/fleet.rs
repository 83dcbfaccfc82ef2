//! Nodes, their status, runs and pushes.

use std::collections::BTreeMap;
use std::sync::Arc;

use lang::pattern::Pattern;
use model::status::Word;
use model::{Incarnation, Timestamp};
use plane::{Heads, NodeState};
use store::RunFilter;
use trust::adopt::REQUIRES_CODE;
use wire::{Code, Problem};

use super::query::Query;
use crate::answer::store_problem;
use crate::api::{CauseView, ChannelView, MAX_CAUSES, NodeView, NodesView, Push, Pushed, StatusView};
use crate::index::Slot;
use crate::state::{ControlPlane, now};

/// Hostnames named for one cause.
const NAMED: usize = 5;

pub(super) fn find(plane: &ControlPlane, name: &str) -> Result<Arc<Slot>, Problem> {
    let unknown = || Problem::new(Code::NotFound, format!("no node {name:?} is enrolled"));
    plane.index.find(name).ok_or_else(unknown)
}

pub(super) fn node_view(plane: &ControlPlane, name: &str) -> Result<NodeView, Problem> {
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
        seen: node.seen.as_ref().map(|kept| kept.seen.clone()),
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
            Some(refusal) => Some(refusal.message.to_string()),
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

fn next_step(node: &NodeState, word: Word) -> String {
    let refusal = node.refusal.as_ref().map(|refusal| &*refusal.code);
    let node = &node.hostname;
    match word {
        Word::Changing if refusal == Some(REQUIRES_CODE) => {
            format!("install a newer muster-agent on {node}")
        }
        Word::Converged => String::new(),
        Word::Offline | Word::Unreachable => format!("on {node}: systemctl status muster-agent"),
        Word::Unassigned => "add an entry to nodes.yaml, then muster publish".to_owned(),
        Word::Stale => "muster publish, or muster publish --beacon".to_owned(),
        Word::New | Word::Changing => format!("muster node show {node}"),
        _ => format!("muster run show {node}"),
    }
}

pub(super) fn nodes(plane: &ControlPlane, query: &Query<'_>) -> Result<NodesView, Problem> {
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

pub(super) fn status(plane: &ControlPlane) -> StatusView {
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
        let next = next_step(&entry.node, word);
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

pub(super) async fn runs(plane: &ControlPlane, query: &Query<'_>) -> Result<Vec<store::RunRecord>, Problem> {
    let node = match query.get("node") {
        Some(name) => Some(find(plane, &name)?.lock().node.id.clone()),
        None => None,
    };
    let filter = RunFilter { node, before: query.number("before"), limit: query.limit() };
    plane.store.runs(filter).await.map_err(store_problem)
}

pub(super) async fn run(
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

pub(super) async fn remove(plane: &ControlPlane, name: &str) -> Result<NodeView, Problem> {
    let view = node_view(plane, name)?;
    plane.store.remove_node(&view.id, now()).await.map_err(store_problem)?;
    plane.index.remove(&view.id);
    plane.hub.remove(&view.id);
    plane.work.removed(&view.id);
    tracing::info!(node = %view.id, hostname = %view.hostname, "a node was removed");
    Ok(view)
}

pub(super) async fn push(plane: &ControlPlane, push: Push) -> Result<Pushed, Problem> {
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
        slot.wake.notify_waiters();
    }
    plane.pushes.notify_waiters();
    Ok(Pushed { push: number, nodes: slots.len() })
}
