//! Nodes, their status and runs.

use std::collections::BTreeMap;

use lang::pattern::Pattern;
use model::exchange::TraitReport;
use model::status::Overall;
use model::{Contention, FailureCode, FailureKey, FailureNote, Pause, Timestamp};
use plane::{Heads, NodeState};
use store::{FactRecord, RunFilter, RunRecord};
use trust::adopt::REQUIRES_CODE;
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::store_problem;
use crate::api::{
    CauseView, ChannelView, EntryName, EntryView, History, MAX_CAUSES, Matching, NodeName, NodeView,
    NodesView, RunName, StatusView,
};
use crate::state::{ControlPlane, now};

/// The cause where no more is known of it.
const SEE_RUN: &str = "see its last run";
/// Hostnames named for one cause.
const NAMED: usize = 5;

pub(super) fn node_view(plane: &ControlPlane, name: &str) -> Result<NodeView, Problem> {
    let slot = plane.index.named(name)?;
    let heads = plane.heads();
    let mut entry = slot.lock();
    let view = view(&mut entry.node, &heads, now());
    let failure = entry.node.summary.failures.first().filter(|_| is_of_failures(view.state));
    let others = failure.and_then(|failure| {
        plane.index.others_failing(std::slice::from_ref(failure)).remove(&failure.resource)
    });
    Ok(NodeView { same_cause: others, ..view })
}

pub(super) fn entry(plane: &ControlPlane, asked: &EntryName) -> EntryView {
    let heads = plane.heads();
    let channel = heads.pointed(&asked.hostname).map(|(_, entry)| entry.channel);
    EntryView { fleet: plane.trust.fleet.clone(), seq: heads.seq(), channel }
}

/// Its cause is a failure of its last run.
fn is_of_failures(state: Overall) -> bool {
    matches!(state, Overall::Failed | Overall::Degraded)
}

fn view(node: &mut NodeState, heads: &Heads, now: Timestamp) -> NodeView {
    let status = node.status(heads, now);
    let pointed = node.pointed(heads);
    NodeView {
        id: node.id.clone(),
        hostname: node.hostname.clone(),
        state: status.overall(),
        channel: pointed.as_ref().map(|(_, entry)| entry.channel.clone()),
        pointed_seq: pointed.as_ref().map(|(head, _)| head.header.seq),
        pointed_root: pointed.as_ref().map(|(_, entry)| entry.root),
        held: node.held.clone(),
        last_seen: node.last_seen,
        promised_secs: node.promised.as_secs(),
        last_run: node.run.as_ref().map(|run| run.at),
        counts: node.summary.counts,
        cause: cause(node, status.overall(), heads),
        same_cause: None,
        since: since(node, status.overall(), heads),
        fingerprint: node.key.fingerprint(),
        seen: node.seen.as_ref().map(|kept| kept.seen.clone()),
        run_request: node.run_request,
        tagged_run: node.tagged_run.as_deref().cloned(),
        contended: node.contended.iter().flatten().cloned().collect(),
        unknown_tags: node.summary.unknown_tags.to_vec(),
        status,
    }
}

/// Why a node is not green.
fn cause(node: &NodeState, state: Overall, heads: &Heads) -> Option<String> {
    let silent = || node.last_seen.map(|seen| format!("last heard of at {seen}"));
    match state {
        Overall::Converged => None,
        Overall::Offline | Overall::Unreachable => silent(),
        _ if node.last_seen.is_none() => Some("joined, and has not called yet".to_owned()),
        Overall::Unassigned if heads.channels.is_empty() => Some("nothing is published yet".to_owned()),
        Overall::Unassigned => Some(match &node.held {
            None => "no entry of the fleet repo matches this hostname".to_owned(),
            Some(held) => format!(
                "no entry of the fleet repo matches this hostname any more; it keeps converging on release {}, \
                 which it holds",
                held.seq
            ),
        }),
        Overall::New => Some("enrolled, no run reported yet".to_owned()),
        Overall::Stale => {
            Some("the release it is pointed to is past its freshness by the control plane's clock".to_owned())
        }
        Overall::Changing => match &node.refusal {
            Some(refusal) => Some(refusal.message.to_string()),
            None => Some("has not adopted the newest release yet".to_owned()),
        },
        Overall::Paused => node.summary.paused.as_deref().map(paused),
        Overall::Diverged if node.contended.is_some() => node.contended.as_deref().map(contended),
        Overall::Diverged | Overall::Relapsed => Some(format!(
            "{} corrective runs in a row: something else changes this host",
            node.summary.streak
        )),
        Overall::Failed | Overall::Degraded => {
            node.summary.failures.first().map(FailureNote::line).or_else(|| Some(SEE_RUN.to_owned()))
        }
        Overall::WouldChange => Some(node.summary.would_change.as_deref().unwrap_or(SEE_RUN).to_owned()),
    }
}

/// Why a host is paused; since when is a column of its own.
fn paused(pause: &Pause) -> String {
    let until = pause.until.map(|until| format!(", until {until}")).unwrap_or_default();
    format!("paused on its host{until}: {}", model::text::printable(&pause.reason))
}

/// What is changed again and again, and by whom: the newest of them.
fn contended(contended: &[Contention]) -> String {
    let text = contended.first().map(|newest| model::text::printable(&newest.summary()).into_owned());
    let more = contended.len().saturating_sub(1);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    format!("{}{more}", text.unwrap_or_default())
}

/// Since when a node is in a state, by what tells of that state; `None` where nothing does.
fn since(node: &mut NodeState, state: Overall, heads: &Heads) -> Option<Timestamp> {
    match state {
        Overall::Offline | Overall::Unreachable => node.last_seen.or(Some(node.enrolled_at)),
        Overall::New => Some(node.enrolled_at),
        Overall::Changing => node.pointed(heads).map(|(head, _)| head.header.created),
        Overall::Paused => node.summary.paused.as_ref().map(|pause| pause.since),
        Overall::Diverged => node.contended.iter().flatten().map(|one| one.since).min(),
        Overall::Failed | Overall::Degraded | Overall::WouldChange | Overall::Converged => node.summary.since,
        // Of a streak of corrections only its length is kept.
        Overall::Relapsed | Overall::Stale | Overall::Unassigned => None,
    }
}

fn next_step(node: &NodeState, state: Overall) -> String {
    let refusal = node.refusal.as_ref().map(|refusal| &*refusal.code);
    let contends = node.contended.is_some();
    let node = &node.hostname;
    match state {
        Overall::Changing if refusal == Some(REQUIRES_CODE) => {
            format!("install a newer muster-agent on {node}")
        }
        Overall::Converged => String::new(),
        Overall::Offline | Overall::Unreachable => {
            format!("on {node}: systemctl status muster-agent")
        }
        Overall::Unassigned => "add an entry to nodes.yaml, then `muster publish`".to_owned(),
        Overall::Paused => format!("on {node}: muster-agent resume"),
        Overall::Stale => "`muster publish`, or `muster publish --beacon`".to_owned(),
        Overall::New | Overall::Changing => format!("muster node show {node}"),
        Overall::Diverged if contends => format!("muster node show {node}; on it: muster-agent doctor"),
        _ => format!("muster run show {node}"),
    }
}

pub(super) fn nodes(plane: &ControlPlane, request: Matching) -> Result<NodesView, Problem> {
    // `*` is every node here as in selectors, and no pattern that stops at a dot.
    let selector = request.selector.filter(|text| !lang::selector::is_every(text));
    let read = |text: String| {
        let bad = |error| format!("the pattern {text:?} cannot be read: {error}");
        Pattern::parse(&text).map_err(|error| Problem::new(Code::BadSelector, bad(error)))
    };
    let pattern = selector.map(read).transpose()?;
    let (heads, now) = (plane.heads(), now());
    let mut page = Vec::new();
    for slot in plane.index.page(&request.from.unwrap_or_default(), usize::MAX) {
        let mut entry = slot.lock();
        let name = entry.node.hostname.clone();
        if pattern.as_ref().is_some_and(|pattern| !pattern.matches(name.as_str())) {
            continue;
        }
        if page.len() == request.limit.get() {
            return Ok(NodesView { nodes: page, next: Some(name) });
        }
        page.push(view(&mut entry.node, &heads, now));
    }
    Ok(NodesView { nodes: page, next: None })
}

/// What nodes of one line of the status have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CauseKey {
    /// The same failure, on a node where nothing else worked as on one where all else did.
    Failure(FailureKey),
    /// Silence differs by the second; its cause is the same.
    Silence(Overall),
    /// Tags that a run was requested for in vain.
    UnknownTags(Vec<String>),
    Words(Overall, String),
}

/// A line of the status as far as one node makes it.
struct NodeCause {
    key: CauseKey,
    cause: String,
    code: Option<FailureCode>,
    since: Option<Timestamp>,
    next: String,
}

/// What there is to say of a node: why it is not green, and what was requested of it in vain.
fn causes_of(node: &mut NodeState, state: Overall, heads: &Heads) -> Vec<NodeCause> {
    let (since, next) = (since(node, state, heads), next_step(node, state));
    let of_state = |(key, cause, code)| NodeCause { key, cause, code, since, next: next.clone() };
    let mut causes: Vec<NodeCause> = why_not_green(node, state, heads).into_iter().map(of_state).collect();
    let unknown = &node.summary.unknown_tags;
    if !unknown.is_empty() {
        causes.push(NodeCause {
            key: CauseKey::UnknownTags(unknown.to_vec()),
            cause: format!("a run was requested, and no resource is tagged {}", unknown.join(" or ")),
            code: None,
            since: None,
            next: format!("muster node show {}; request it anew, of tags that it has", node.hostname),
        });
    }
    causes
}

/// Why a node is not green: one cause, or each of its failures that is kept.
fn why_not_green(
    node: &NodeState,
    state: Overall,
    heads: &Heads,
) -> Vec<(CauseKey, String, Option<FailureCode>)> {
    if is_of_failures(state) && !node.summary.failures.is_empty() {
        let of = |note: &FailureNote| {
            (CauseKey::Failure(note.key()), note.line(), note.cause.as_ref().map(|cause| cause.code))
        };
        return node.summary.failures.iter().map(of).collect();
    }
    let Some(cause) = cause(node, state, heads) else { return Vec::new() };
    let key = match state {
        Overall::Offline | Overall::Unreachable => CauseKey::Silence(state),
        _ => CauseKey::Words(state, cause.clone()),
    };
    vec![(key, cause, None)]
}

pub(super) fn status(plane: &ControlPlane) -> StatusView {
    let (heads, now) = (plane.heads(), now());
    let all = plane.index.page("", usize::MAX);
    let mut states: BTreeMap<Overall, usize> = BTreeMap::new();
    let mut causes: BTreeMap<CauseKey, CauseView> = BTreeMap::new();
    for slot in &all {
        let mut entry = slot.lock();
        let state = entry.node.status(&heads, now).overall();
        *states.entry(state).or_default() += 1;
        for NodeCause { key, cause, code, since, next } in causes_of(&mut entry.node, state, &heads) {
            let view = causes.entry(key).or_insert_with(|| CauseView {
                state,
                cause,
                code,
                since,
                count: 0,
                nodes: Vec::new(),
                next,
            });
            view.count += 1;
            view.state = view.state.min(state);
            view.since = view.since.into_iter().chain(since).min();
            if view.nodes.len() < NAMED {
                view.nodes.push(entry.node.hostname.clone());
            }
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
        states,
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

pub(super) async fn traits(call: OperatorCall, request: NodeName) -> Result<Option<TraitReport>, Problem> {
    let id = call.plane.index.named(&request.node)?.id();
    call.plane.store.traits(&id).await.map_err(store_problem)
}

pub(super) async fn facts(call: OperatorCall, request: History) -> Result<Vec<FactRecord>, Problem> {
    let id = call.plane.index.named(&request.node.unwrap_or_default())?.id();
    call.plane.store.facts(&id, request.before, request.limit.get()).await.map_err(store_problem)
}

pub(super) async fn runs(call: OperatorCall, request: History) -> Result<Vec<RunRecord>, Problem> {
    let id = |name: String| Ok::<_, Problem>(call.plane.index.named(&name)?.id());
    let node = request.node.map(id).transpose()?;
    let filter = RunFilter { node, before: request.before, limit: request.limit.get() };
    call.plane.store.runs(filter).await.map_err(store_problem)
}

pub(super) async fn run(call: OperatorCall, request: RunName) -> Result<RunRecord, Problem> {
    let id = call.plane.index.named(&request.node)?.id();
    let run = call.plane.store.run(&id, &request.incarnation, request.seq).await.map_err(store_problem)?;
    run.ok_or_else(|| Code::NotFound.into())
}

pub(super) async fn remove(call: OperatorCall, request: NodeName) -> Result<NodeView, Problem> {
    let (plane, view) = (&call.plane, node_view(&call.plane, &request.node)?);
    plane.store.remove_node(&view.id, now()).await.map_err(store_problem)?;
    plane.index.remove(&view.id);
    plane.hub.remove(&view.id);
    plane.work.removed(&view.id);
    tracing::info!(node = %view.id, hostname = %view.hostname, "a node was removed");
    Ok(view)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use trust::SigningKey;

    use super::*;

    /// CNV-3: each state counts from what tells of it, whatever the last run came to and when.
    #[test]
    fn since_when_is_told_by_the_state() {
        let key = SigningKey::from_seed(&[1; 32]).public();
        let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, Timestamp(1));
        let heads = Heads::default();
        let told = |node: &mut NodeState| {
            use Overall::{Degraded, Diverged, New, Offline, Paused, Relapsed, Unreachable};
            [New, Offline, Unreachable, Degraded, Paused, Diverged, Relapsed]
                .map(|state| since(node, state, &heads).map(|at| at.0))
        };
        assert_eq!(told(&mut node), [Some(1), Some(1), Some(1), None, None, None, None]);
        node.last_seen = Some(Timestamp(5));
        node.summary.since = Some(Timestamp(2));
        node.summary.paused =
            Some(Box::new(Pause { reason: "r".to_owned(), since: Timestamp(3), until: None }));
        assert_eq!(told(&mut node), [Some(1), Some(5), Some(5), Some(2), Some(3), None, None]);
    }
}
