//! Nodes, their status and runs.

use model::Timestamp;
use model::exchange::TraitReport;
use plane::renewal::CertificateRecovery;
use plane::{Heads, NodeState};
use store::{FactRecord, RunFilter, RunRecord};
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::store_problem;
use crate::api::{
    CauseView, ChannelView, EntryName, EntryView, History, MAX_CAUSES, Matching, NodeName, NodeView,
    NodesView, RunName, StatusView, TrustHolders,
};
use crate::causes::{cause, causes_of, is_of_failures, since};
use crate::refresh::refresh;
use crate::state::{ControlPlane, now};
use crate::totals::{CauseKey, TopCause};
use crate::work::select::{self, MeantPage};

/// Hostnames named for one cause.
const NAMED: usize = 5;

pub(super) fn node_view(plane: &ControlPlane, name: &str) -> Result<NodeView, Problem> {
    let slot = plane.index.named(name)?;
    let heads = plane.heads();
    let mut entry = slot.lock();
    let view = view(&mut entry.node, &heads, plane.certificate_recovery(), now());
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

fn view(node: &mut NodeState, heads: &Heads, recovery: CertificateRecovery, now: Timestamp) -> NodeView {
    let status = node.status(heads, now);
    let pointed = node.pointed(heads);
    let exceptions = node.exceptions().clone();
    let conditions = exceptions.conditions;
    NodeView {
        id: node.id.clone(),
        hostname: node.hostname.clone(),
        state: status.overall(),
        channel: pointed.as_ref().map(|(_, entry)| entry.channel.clone()),
        pointed_seq: pointed.as_ref().map(|(head, _)| head.header.seq),
        pointed_root: pointed.as_ref().map(|(_, entry)| entry.root),
        held: node.held.clone(),
        trust_version: Some(node.trust_version).filter(|version| *version > 0),
        refused_trust: conditions.refused_trust.map(String::from),
        certificate_ends: node.certificate.map(|certificate| certificate.until),
        certificate_state: node.certificate.map(|certificate| certificate.state(now)),
        renewal_failure: conditions.renewal_failure.map(String::from),
        invocation: node.invocation.as_deref().cloned(),
        freshness: conditions.freshness,
        last_seen: node.last_seen,
        promised_secs: node.promised.as_secs(),
        last_run: node.run.as_ref().map(|run| run.at),
        successful_run: node.runs.successful.map(|run| run.at),
        running_since: node.runs.under_way.map(|run| run.since),
        counts: node.summary.counts,
        cause: cause(node, status.overall(), heads, recovery),
        same_cause: None,
        since: since(node, status.overall(), heads),
        fingerprint: node.key.fingerprint(),
        seen: node.seen.as_ref().map(|kept| kept.seen.clone()),
        run_request: exceptions.run_request,
        tagged_run: exceptions.tagged_run,
        contended: exceptions.contended,
        traits_too_large: exceptions.untaken_traits.is_some(),
        unknown_tags: node.summary.unknown_tags.to_vec(),
        unadopted: conditions.unadopted,
        status,
    }
}

pub(super) async fn nodes(call: OperatorCall, request: Matching) -> Result<NodesView, Problem> {
    let (plane, limit, from) = (&call.plane, request.limit.get(), select::page_start(request.from)?);
    let page = match &request.selector {
        Some(text) => select::meant_from(plane, &select::read(text)?, &from, limit).await?,
        None => {
            let mut slots = plane.index.page(&from, limit + 1);
            let next = slots.get(limit).map(|slot| slot.names().1);
            slots.truncate(limit);
            MeantPage { slots, next }
        }
    };
    let (heads, recovery, now) = (plane.heads(), plane.certificate_recovery(), now());
    let nodes = page.slots.iter().map(|slot| view(&mut slot.lock().node, &heads, recovery, now)).collect();
    Ok(NodesView { nodes, next: page.next })
}

pub(super) async fn status(call: OperatorCall) -> Result<StatusView, Problem> {
    let plane = &call.plane;
    refresh(plane).await;
    let (heads, recovery) = (plane.heads(), plane.certificate_recovery());
    let (states, top) =
        plane.index.totals(|totals| (totals.states().clone(), totals.top_causes(MAX_CAUSES, NAMED)));
    Ok(StatusView {
        fleet: plane.trust.fleet.clone(),
        posture: plane.posture(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seq: heads.seq(),
        channels: heads.channels.values().map(|head| channel_view(head)).collect(),
        nodes: states.values().sum(),
        states,
        causes: top.into_iter().filter_map(|top| cause_view(plane, &heads, recovery, top)).collect(),
        overtaken_by: heads.overtaken_by().map(|held| held.seq),
        not_ready: plane.not_ready(),
        store: plane.store.health(),
        trust_overtaken: trust_overtaken(plane),
        trust_unusable: plane.trust.unusable(),
    })
}

/// The nodes that hold a trust document which is not here.
pub(super) fn trust_overtaken(plane: &ControlPlane) -> Option<TrustHolders> {
    let newest = plane.trust.documents().newest().document.version;
    let (version, nodes) = plane.index.totals(|totals| totals.trust_after(newest))?;
    Some(TrustHolders { version, nodes })
}

/// A line of the status, in the words of the first of its nodes that still has this cause.
fn cause_view(
    plane: &ControlPlane,
    heads: &Heads,
    recovery: CertificateRecovery,
    top: TopCause,
) -> Option<CauseView> {
    let words = |name: &model::Hostname| {
        let slot = plane.index.find(name.as_str())?;
        let mut entry = slot.lock();
        let state = entry.node.status(heads, now()).overall();
        let causes = causes_of(&mut entry.node, state, heads, recovery);
        causes.into_iter().find(|cause| cause.key == *top.key)
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
        warns_at: Some(head.freshness().warns_at()),
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
