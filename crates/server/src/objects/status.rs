//! How synchronization fares, node by node, and resyncs on an operator's word.

use std::sync::Arc;

use model::replication::Mode;
use plane::work::Reach;
use store::{StoreError, Verdict};
use wire::{Code, Problem};

use super::names;
use crate::answer::store_problem;
use crate::api::objects::{Resync, Resynced, SyncView, SyncsView};
use crate::hub::{Standing, SyncSummary, Wants};
use crate::index::Slot;
use crate::state::ControlPlane;
use crate::work::{reach, select};

/// The most nodes that one order names.
const MAX_NODES: usize = 100_000;

/// `GET /v1/sync`: one page, in the order of hostnames.
pub(crate) async fn list(
    plane: &ControlPlane,
    selector: Option<&str>,
    from: &str,
    limit: usize,
) -> Result<SyncsView, Problem> {
    let slots = match selector {
        Some(text) => select::meant(plane, &select::read(text)?).await?,
        None => plane.index.all(),
    };
    let mut page = SyncsView::default();
    for slot in slots {
        let (id, hostname) = names(&slot);
        let mode = mode(plane, &slot).await.map_err(store_problem)?;
        let summary = plane.hub.sync_index().get(&id);
        let reach = reach(plane, &id);
        let (word, why) = state(&summary, mode, reach);
        *page.states.entry(word.to_owned()).or_default() += 1;
        if hostname.as_str() < from || page.next.is_some() {
            continue;
        }
        if page.nodes.len() == limit {
            page.next = Some(hostname);
            continue;
        }
        page.nodes.push(view(&slot, &summary, mode, reach, word, why));
    }
    Ok(page)
}

/// Who is the source of truth of a node's objects.
async fn mode(plane: &ControlPlane, slot: &Slot) -> Result<Mode, StoreError> {
    let heads = plane.heads();
    let pointed = slot.lock().node.pointed(&heads).map(|(_, entry)| entry.root);
    match pointed {
        Some(root) => plane.grants.mode(&root).await,
        None => Ok(Mode::Off),
    }
}

fn view(
    slot: &Slot,
    summary: &SyncSummary,
    mode: Mode,
    reach: Reach,
    state: &str,
    why: Option<String>,
) -> SyncView {
    let (_, node) = names(slot);
    let reach = match reach {
        Reach::Online => "online",
        Reach::Promotable { .. } => "promotable",
        Reach::Offline | Reach::Removed => "offline",
    };
    let behind = match summary.link.as_ref().map(|link| link.standing()) {
        Some(Standing::Behind(behind)) => objects_of(summary, behind).max(summary.objects_behind()),
        _ => summary.objects_behind(),
    };
    SyncView {
        node,
        mode,
        state: state.to_owned(),
        behind,
        why,
        link: summary.link.as_ref().map(|link| link.transport.as_str().to_owned()),
        since: summary.link.as_ref().map(|link| link.since),
        reach: reach.to_owned(),
        down: summary.objects_down(),
        up: summary.up,
        duplicate: summary.is_duplicate(),
    }
}

/// The word for how a node's sets stand, and why they are not known to be equal. Equal are only
/// sets that a link compared.
fn state(summary: &SyncSummary, mode: Mode, reach: Reach) -> (&'static str, Option<String>) {
    let standing = summary.link.as_ref().map(|link| link.standing());
    match (&standing, &summary.verdict) {
        (Some(Standing::Diverged(why)), _) | (None, Some(Verdict::Diverged(why))) => {
            return ("diverged", Some(why.clone()));
        }
        (Some(Standing::Resyncing), _) => return ("resyncing", None),
        // Actions alone are under way; objects are as they were when they were compared.
        (Some(Standing::Behind(behind)), Some(Verdict::Diverged(why)))
            if objects_of(summary, *behind) == 0 =>
        {
            return ("diverged", Some(why.clone()));
        }
        _ => {}
    }
    if let Some((key, why)) = summary.refused.iter().next() {
        let others = summary.refused.len() - 1;
        let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
        return ("diverged", Some(format!("the node would not take {key}: {why}{more}")));
    }
    let unknown = |why: &str| ("unknown", Some(why.to_owned()));
    let late = matches!(reach, Reach::Offline | Reach::Removed);
    match (&standing, &summary.verdict) {
        (Some(Standing::Behind(behind)), _) if objects_of(summary, *behind) > 0 => ("behind", None),
        _ if summary.objects_behind() > 0 => ("behind", None),
        // Nothing to be equal about; actions alone come and go.
        _ if mode == Mode::Off => ("off", None),
        (Some(Standing::InSync), _) => ("in-sync", None),
        (Some(Standing::Behind(_)), Some(Verdict::InSync)) => ("in-sync", None),
        (Some(_), _) => unknown("a link is open, and the sets are not compared yet"),
        // Its own changes are the truth, and they come when it does.
        (None, Some(_)) if late && mode == Mode::Autonomous => {
            unknown("the node did not call when it was to; what it changed since is not known")
        }
        (None, Some(_)) => ("in-sync", None),
        (None, None) => unknown("no link has compared the sets to the end"),
    }
}

/// How many of the changes that are under way on a node's link are of objects.
fn objects_of(summary: &SyncSummary, behind: u64) -> u64 {
    behind.saturating_sub(summary.actions_behind())
}

/// `POST /v1/resyncs`.
pub(crate) fn resync(plane: &Arc<ControlPlane>, asked: &Resync, by: &str) -> Result<Resynced, Problem> {
    if asked.nodes.len() > MAX_NODES {
        return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_NODES} nodes a request")));
    }
    let mut slots = Vec::with_capacity(asked.nodes.len());
    for name in &asked.nodes {
        let unknown = || Problem::new(Code::NotFound, format!("no node {name:?} is enrolled"));
        slots.push(plane.index.find(name).ok_or_else(unknown)?);
    }
    let wants = Wants { resync: true, approve: asked.approve_deletions };
    let now = slots.iter().filter(|slot| plane.hub.want(&names(slot).0, wants)).count();
    tracing::info!(by, nodes = slots.len(), approve = asked.approve_deletions, "a resync was asked for");
    Ok(Resynced { now, nodes: slots.len() })
}
