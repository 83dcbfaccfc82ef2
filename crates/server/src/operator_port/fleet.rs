//! Nodes, their status and runs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use lang::selector::Selector;
use model::exchange::TraitReport;
use plane::joining::{DeclaredKey, confirmation_now};
use plane::{Heads, NodeState};
use store::audit::{AuditEntry, AuditFilter, AuditSubject};
use store::{FactRecord, RunFilter, RunRecord};
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::store_problem;
use crate::api::sealing::{MAX_SEALING_KEYS, SealingKeys, SealingKeysOf};
use crate::api::{
    CauseView, ChannelView, EarlierReleaseView, EntryName, EntryView, History, MAX_CAUSES, Matching,
    NodeName, NodeView, NodesView, ReleaseSummary, RunName, StatusView, TrustHolders,
};
use crate::causes::{cause, causes_of, is_of_failures, since};
use crate::joins;
use crate::refresh::refresh;
use crate::state::{ControlPlane, now};
use crate::status_basis::StatusBasis;
use crate::totals::{CauseKey, FleetTotals, TopCause};
use crate::work::select::{self, MeantPage};

/// Hostnames named for one cause.
const NAMED: usize = 5;
/// Entries of the audit log in which a node's last change is looked for, refused ones among them.
const LOOKED_AT: usize = 20;

pub(super) async fn node(call: OperatorCall, asked: NodeName) -> Result<NodeView, Problem> {
    node_view(&call, &asked.node).await
}

pub(super) async fn node_view(call: &OperatorCall, name: &str) -> Result<NodeView, Problem> {
    let (plane, slot) = (&call.plane, call.node(name).await?);
    let node = slot.names().1.to_string();
    let newest = AuditFilter { node: Some(node), limit: LOOKED_AT, ..AuditFilter::default() };
    let entries = plane.store.audit(newest).await.map_err(store_problem)?;
    let mut entries = entries.iter().filter_map(|row| serde_json::from_str::<AuditEntry>(&row.entry).ok());
    let last_change = entries.find(|entry| entry.refused.is_none());
    let record = plane.store.node(&slot.id()).await.map_err(store_problem)?;
    let heads = plane.heads();
    let key = slot.lock().node.key.clone();
    // Where that cannot be read, what was recorded when it joined is said.
    let declared_key = joins::declared_key(plane, &slot.names().1, &key).await.unwrap_or(DeclaredKey::None);
    let mut entry = slot.lock();
    let view = view(&mut entry.node, plane.status_basis(&heads));
    let failure =
        entry.node.summary.failures.first().filter(|_| is_of_failures(view.state) && !call.is_scoped());
    let others = failure.and_then(|failure| {
        plane.index.others_failing(std::slice::from_ref(failure)).remove(&failure.resource)
    });
    let (capabilities, declared) =
        record.map(|record| (record.capabilities, record.declared)).unwrap_or_default();
    let join_labels = declared.get("labels").cloned().unwrap_or_default();
    let join_labels = serde_json::from_value(join_labels).unwrap_or_default();
    let key_confirmation = view.key_confirmation.map(|recorded| confirmation_now(recorded, declared_key));
    Ok(NodeView { same_cause: others, last_change, capabilities, join_labels, key_confirmation, ..view })
}

pub(super) async fn entry(call: OperatorCall, asked: EntryName) -> Result<EntryView, Problem> {
    if call.is_scoped() {
        call.node(asked.hostname.as_str()).await?;
    }
    let (plane, heads) = (&call.plane, call.plane.heads());
    let channel = heads.pointed(&asked.hostname).map(|(_, entry)| entry.channel);
    Ok(EntryView { fleet: plane.trust.fleet.clone(), seq: heads.seq(), channel })
}

pub(super) async fn sealing_keys(call: OperatorCall, asked: SealingKeysOf) -> Result<SealingKeys, Problem> {
    if asked.nodes.len() > MAX_SEALING_KEYS {
        return Err(Problem::new(
            Code::BadBody,
            format!("more than {MAX_SEALING_KEYS} nodes in one question"),
        ));
    }
    let statements = call.plane.store.sealing_statements(asked.nodes).await.map_err(store_problem)?;
    Ok(SealingKeys { statements })
}

fn view(node: &mut NodeState, basis: StatusBasis<'_>) -> NodeView {
    let StatusBasis { heads, now, .. } = basis;
    let status = node.status(heads, now);
    let pointed = node.pointed(heads);
    let channel = pointed.clone().or_else(|| heads.pointed(&node.hostname));
    let open_items = node.open_items().clone();
    let conditions = open_items.conditions;
    NodeView {
        id: node.id.clone(),
        hostname: node.hostname.clone(),
        revoked: node.revoked.as_deref().cloned(),
        state: status.overall(),
        channel: channel.map(|(_, entry)| entry.channel),
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
        cause: cause(node, status.overall(), basis),
        same_cause: None,
        since: since(node, status.overall(), heads),
        fingerprint: node.key.fingerprint(),
        key_confirmation: Some(node.key_confirmation),
        copied_since: open_items.copied,
        capabilities: None,
        join_labels: Default::default(),
        seen: node.seen.as_ref().map(|kept| kept.seen.clone()),
        run_request: open_items.run_request,
        tagged_run: open_items.tagged_run,
        contended: open_items.contended,
        traits_too_large: open_items.untaken_traits.is_some(),
        unknown_tags: node.summary.unknown_tags.to_vec(),
        last_change: None,
        unadopted: conditions.unadopted,
        status,
    }
}

pub(super) async fn nodes(call: OperatorCall, request: Matching) -> Result<NodesView, Problem> {
    let (plane, limit, from) = (&call.plane, request.limit.get(), select::page_start(request.from)?);
    let page = match call.listed(request.selector.as_deref())? {
        Some(selector) => call.meant_from(&selector, &from, limit).await?,
        None => {
            let mut slots = plane.index.page(&from, limit + 1);
            let next = slots.get(limit).map(|slot| slot.names().1);
            slots.truncate(limit);
            MeantPage { slots, next }
        }
    };
    let heads = plane.heads();
    let basis = plane.status_basis(&heads);
    let nodes = page.slots.iter().map(|slot| view(&mut slot.lock().node, basis)).collect();
    Ok(NodesView { nodes, next: page.next })
}

pub(super) async fn status(call: OperatorCall) -> Result<StatusView, Problem> {
    let plane = &call.plane;
    refresh(plane).await;
    let heads = plane.heads();
    let basis = plane.status_basis(&heads);
    let look = |totals: &FleetTotals| (totals.states().clone(), totals.top_causes(MAX_CAUSES, NAMED));
    let (states, top) = match call.listed(None)? {
        None => plane.index.totals(look),
        Some(scope) => look(&totals_of(plane, &scope).await?),
    };
    let mut channels = channels(plane, &heads).await?;
    if call.is_scoped() {
        // Their numbers are of nodes of others too.
        channels.iter_mut().for_each(|channel| channel.rollout = None);
    }
    Ok(StatusView {
        fleet: plane.trust.fleet.clone(),
        posture: plane.posture(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seq: heads.seq(),
        channels,
        nodes: states.values().sum(),
        states,
        causes: top.into_iter().filter_map(|top| cause_view(plane, basis, top)).collect(),
        overtaken_by: heads.overtaken_by().map(|held| held.seq),
        not_ready: plane.not_ready(),
        store: plane.store.health(),
        trust_overtaken: trust_overtaken(plane).filter(|_| !call.is_scoped()),
        trust_unusable: plane.trust.unusable(),
        control_plane_key_unusable: plane.hub.signing.problem(),
        // All nodes are looked at, so only while there is something to wait for.
        certificates: (!call.is_scoped()
            && (plane.authorities.set().is_changing() || plane.authorities.problem().is_some()))
        .then(|| super::trust::certificates(plane))
        .filter(|certificates| certificates.of_before > 0 || certificates.unusable.is_some()),
    })
}

/// The nodes that hold a trust document which is not here.
pub(super) fn trust_overtaken(plane: &ControlPlane) -> Option<TrustHolders> {
    let newest = plane.trust.documents().newest().document.version;
    let (version, nodes) = plane.index.totals(|totals| totals.trust_after(newest))?;
    Some(TrustHolders { version, nodes })
}

/// The numbers of the nodes that a selector means.
async fn totals_of(plane: &Arc<ControlPlane>, scope: &Selector) -> Result<FleetTotals, Problem> {
    let mut totals = FleetTotals::default();
    for slot in select::meant(plane, scope).await? {
        let (id, name) = slot.names();
        totals.replace(&id, &name, None, slot.counted().as_ref());
    }
    Ok(totals)
}

/// A line of the status, in the words of the first of its nodes that still has this cause.
fn cause_view(plane: &ControlPlane, basis: StatusBasis<'_>, top: TopCause) -> Option<CauseView> {
    let words = |name: &model::Hostname| {
        let slot = plane.index.find(name.as_str())?;
        let mut entry = slot.lock();
        let state = entry.node.status(basis.heads, basis.now).overall();
        let causes = causes_of(&mut entry.node, state, basis);
        causes.into_iter().find(|cause| cause.key == *top.key)
    };
    let found = top.nodes.iter().find_map(words).map(|found| (found.cause, found.code, found.next));
    let TopCause { key, count, states, since, nodes } = top;
    let state = *states.keys().next()?;
    let (cause, code, next) = match (found, &*key) {
        (Some(found), _) => found,
        // It changed since it was counted.
        (None, CauseKey::Words(_, text)) => (text.clone(), None, String::new()),
        (None, _) => return None,
    };
    Some(CauseView { state, states, cause, code, since, count, nodes, next })
}

/// What each channel points to; a release's author is read once.
async fn channels(plane: &ControlPlane, heads: &Heads) -> Result<Vec<ChannelView>, Problem> {
    let documents = plane.trust.documents();
    let trust = &documents.newest().document;
    let (mut views, mut authors) = (Vec::new(), HashMap::new());
    for head in heads.channels.values() {
        let seq = head.header.seq;
        if let Entry::Vacant(author) = authors.entry(seq) {
            let release = plane.store.release(seq).await.map_err(store_problem)?;
            let summary =
                release.and_then(|release| serde_json::from_value::<ReleaseSummary>(release.summary).ok());
            author.insert(summary.and_then(|summary| summary.by));
        }
        views.push(ChannelView {
            by: authors.get(&seq).cloned().flatten(),
            signer_retired: trust.header(&head.signed).is_err(),
            rollout: match head.header.rollout {
                Some(_) => plane.rollouts.of_channel(plane, &head.header.channel).await?,
                None => None,
            },
            earlier_due: earlier_due(plane, heads, head).await?,
            ..channel_view(head)
        });
    }
    Ok(views)
}

fn channel_view(head: &plane::Head) -> ChannelView {
    ChannelView {
        channel: head.header.channel.clone(),
        seq: head.header.seq,
        label: head.header.label.clone(),
        signed_at: head.signed_at,
        fresh_until: head.freshness().ends_at(),
        warns_at: Some(head.freshness().warns_at()),
        contact_secs: head.contact_secs,
        by: None,
        signer_retired: false,
        rollout: None,
        earlier_due: Vec::new(),
    }
}

/// The releases before a channel's newest that nodes are on, and whose freshness is three quarters over.
async fn earlier_due(
    plane: &ControlPlane,
    heads: &Heads,
    newest: &plane::Head,
) -> Result<Vec<EarlierReleaseView>, Problem> {
    let (channel, now) = (&newest.header.channel, now());
    let is_due =
        |head: &&Arc<plane::Head>| head.header.channel == *channel && now > head.freshness().warns_at();
    let due: Vec<_> = heads.earlier.values().filter(is_due).collect();
    // All nodes of the rollout are looked at.
    if due.is_empty() || newest.header.rollout.is_none() {
        return Ok(Vec::new());
    }
    let in_use = plane.rollouts.releases_before(plane, channel).await?;
    let of_nodes = due.into_iter().filter(|head| in_use.contains(&head.header.seq));
    let view = |head: &Arc<plane::Head>| EarlierReleaseView {
        seq: head.header.seq,
        signed_at: head.signed_at,
        fresh_until: head.freshness().ends_at(),
    };
    Ok(of_nodes.map(view).collect())
}

pub(super) async fn traits(call: OperatorCall, request: NodeName) -> Result<Option<TraitReport>, Problem> {
    let id = call.node(&request.node).await?.id();
    call.plane.store.traits(&id).await.map_err(store_problem)
}

pub(super) async fn facts(call: OperatorCall, request: History) -> Result<Vec<FactRecord>, Problem> {
    let id = call.node(&request.node.unwrap_or_default()).await?.id();
    call.plane.store.facts(&id, request.before, request.limit.get()).await.map_err(store_problem)
}

pub(super) async fn runs(call: OperatorCall, request: History) -> Result<Vec<RunRecord>, Problem> {
    let node = match &request.node {
        Some(name) => Some(call.node(name).await?.id()),
        None => None,
    };
    let (limit, is_all) = (request.limit.get(), node.is_some() || !call.is_scoped());
    let mut filter = RunFilter { node, before: request.before, limit };
    if is_all {
        return call.plane.store.runs(filter).await.map_err(store_problem);
    }
    refresh(&call.plane).await;
    let (mut found, mut covered) = (Vec::new(), HashMap::new());
    loop {
        let page = call.plane.store.runs(filter.clone()).await.map_err(store_problem)?;
        let Some(last) = page.last() else { return Ok(found) };
        filter.before = Some(last.id);
        let is_covered =
            |run: &RunRecord| *covered.entry(run.node.clone()).or_insert_with(|| call.covers_id(&run.node));
        found.extend(page.into_iter().filter(is_covered).take(limit - found.len()));
        if found.len() >= limit {
            return Ok(found);
        }
    }
}

pub(super) async fn run(call: OperatorCall, request: RunName) -> Result<RunRecord, Problem> {
    let id = call.node(&request.node).await?.id();
    let run = call.plane.store.run(&id, &request.incarnation, request.seq).await.map_err(store_problem)?;
    run.ok_or_else(|| Code::NotFound.into())
}

pub(super) async fn remove(call: OperatorCall, request: NodeName) -> Result<NodeView, Problem> {
    let (plane, view) = (&call.plane, node_view(&call, &request.node).await?);
    let store = call.recording(AuditSubject::nodes([&view.hostname]).and(view.id.to_string()));
    store.remove_node(&view.id, now()).await.map_err(store_problem)?;
    plane.forget(&view.id);
    tracing::info!(by = call.by, node = %view.id, hostname = %view.hostname, "a node was removed");
    Ok(view)
}
