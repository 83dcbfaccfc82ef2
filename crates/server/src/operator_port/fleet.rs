//! Nodes, their status and runs.

use model::exchange::TraitReport;
use model::status::Overall;
use model::{Contention, FailureCode, FailureNote, Pause, Timestamp};
use plane::{Heads, NodeState};
use store::{FactRecord, RunFilter, RunRecord};
use wire::{Code, Problem};

use super::OperatorCall;
use super::next_step::{CertificateProblem, next_step};
use crate::answer::store_problem;
use crate::api::{
    CauseView, ChannelView, EntryName, EntryView, History, MAX_CAUSES, Matching, NodeName, NodeView,
    NodesView, RunName, StatusView,
};
use crate::settle::settle;
use crate::state::{ControlPlane, now};
use crate::totals::{CauseKey, TopCause};
use crate::work::select::{self, MeantPage};

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
        certificate_ends: node.certificate.map(|certificate| certificate.until),
        certificate_state: node.certificate.map(|certificate| certificate.state(now)),
        renewal_failure: node.renewal_failure.as_deref().map(str::to_owned),
        invocation: node.invocation.as_deref().cloned(),
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
        Overall::Offline | Overall::Unreachable => match CertificateProblem::of(node, now()) {
            Some(CertificateProblem::Ended(cause)) => Some(cause),
            _ => silent(),
        },
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
        Overall::Stalled => Some(stalled(node)),
        Overall::Stale => {
            Some("the release it is pointed to is past its freshness by the control plane's clock".to_owned())
        }
        Overall::Changing => match &node.refusal {
            Some(refusal) => Some(refusal.message.to_string()),
            None if node.holds_pointed(heads) => {
                Some("its first run on the release that it holds is not reported yet".to_owned())
            }
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

/// Why no run that was due is known to have been made.
fn stalled(node: &NodeState) -> String {
    let since = node.no_run_since().map(|since| format!(" since {since}")).unwrap_or_default();
    if let Some(unmade) = &node.unmade {
        return format!("no successful run{since}: {}", model::text::printable(&unmade.reason));
    }
    format!("no successful run{since}: none was reported in time")
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
        Overall::Stalled => node.no_run_since(),
        Overall::Changing => node.pointed(heads).map(|(head, _)| head.header.created),
        Overall::Paused => node.summary.paused.as_ref().map(|pause| pause.since),
        Overall::Diverged => node.contended.iter().flatten().map(|one| one.since).min(),
        Overall::Failed | Overall::Degraded | Overall::WouldChange | Overall::Converged => node.summary.since,
        // Of a streak of corrections only its length is kept.
        Overall::Relapsed | Overall::Stale | Overall::Unassigned => None,
    }
}

pub(super) async fn nodes(call: OperatorCall, request: Matching) -> Result<NodesView, Problem> {
    let (plane, limit, from) = (&call.plane, request.limit.get(), request.from.unwrap_or_default());
    let page = match &request.selector {
        Some(text) => select::meant_from(plane, &select::read(text)?, &from, limit).await?,
        None => {
            let mut slots = plane.index.page(&from, limit + 1);
            let next = slots.get(limit).map(|slot| slot.names().1);
            slots.truncate(limit);
            MeantPage { slots, next }
        }
    };
    let (heads, now) = (plane.heads(), now());
    let nodes = page.slots.iter().map(|slot| view(&mut slot.lock().node, &heads, now)).collect();
    Ok(NodesView { nodes, next: page.next })
}

/// A line of the status as far as one node makes it.
pub(crate) struct NodeCause {
    pub(crate) key: CauseKey,
    cause: String,
    code: Option<FailureCode>,
    pub(crate) since: Option<Timestamp>,
    next: String,
}

/// What there is to say of a node: why it is not green, and what was requested of it in vain.
pub(crate) fn causes_of(node: &mut NodeState, state: Overall, heads: &Heads) -> Vec<NodeCause> {
    let (since, next) = (since(node, state, heads), next_step(node, state, now()));
    let of_state = |(key, cause, code)| NodeCause { key, cause, code, since, next: next.clone() };
    let mut causes: Vec<NodeCause> = why_not_green(node, state, heads).into_iter().map(of_state).collect();
    if let Some(CertificateProblem::NotRenewed(cause)) = CertificateProblem::of(node, now()) {
        let next = format!("on {}: {}", node.hostname, node.agent().verb("status"));
        causes.push(NodeCause { key: CauseKey::RenewalLate, cause, code: None, since: None, next });
    }
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
        Overall::Stalled => CauseKey::Silence(state),
        Overall::Offline | Overall::Unreachable => match CertificateProblem::of(node, now()) {
            Some(CertificateProblem::Ended(_)) => CauseKey::CertificateEnded,
            _ => CauseKey::Silence(state),
        },
        _ => CauseKey::Words(state, cause.clone()),
    };
    vec![(key, cause, None)]
}

pub(super) async fn status(call: OperatorCall) -> Result<StatusView, Problem> {
    let plane = &call.plane;
    settle(plane).await;
    let heads = plane.heads();
    let (states, top) =
        plane.index.totals(|totals| (totals.states().clone(), totals.top_causes(MAX_CAUSES, NAMED)));
    Ok(StatusView {
        fleet: plane.trust.fleet.clone(),
        posture: plane.posture,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seq: heads.seq(),
        channels: heads.channels.values().map(|head| channel_view(head)).collect(),
        nodes: states.values().sum(),
        states,
        causes: top.into_iter().filter_map(|top| cause_view(plane, &heads, top)).collect(),
        overtaken_by: heads.overtaken_by().map(|held| held.seq),
        not_ready: plane.not_ready(),
        store: plane.store.health(),
    })
}

/// A line of the status, in the words of the first of its nodes that still has this cause.
fn cause_view(plane: &ControlPlane, heads: &Heads, top: TopCause) -> Option<CauseView> {
    let words = |name: &model::Hostname| {
        let slot = plane.index.find(name.as_str())?;
        let mut entry = slot.lock();
        let state = entry.node.status(heads, now()).overall();
        causes_of(&mut entry.node, state, heads).into_iter().find(|cause| cause.key == *top.key)
    };
    let found = top.nodes.iter().find_map(words).map(|found| (found.cause, found.code, found.next));
    let TopCause { key, count, state, since, nodes } = top;
    let (cause, code, next) = match (found, &*key) {
        (Some(found), _) => found,
        // It changed since it was counted.
        (None, CauseKey::Words(_, text)) => (text.clone(), None, String::new()),
        (None, _) => return None,
    };
    Some(CauseView { state, cause, code, since, count, nodes, next })
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
