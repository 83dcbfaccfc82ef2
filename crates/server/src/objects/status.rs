//! How synchronization of nodes stands, and resyncs that operators ask for.

use std::collections::HashMap;
use std::sync::Arc;

use model::Digest;
use model::condition::SyncState;
use model::replication::Mode;
use plane::work::Reach;
use store::StoreError;
use wire::{Code, Problem};

use super::names;
use crate::answer::store_problem;
use crate::api::objects::{ConditionView, Resync, Resynced, SyncView, SyncsView};
use crate::hub::{Surroundings, Wants};
use crate::index::Slot;
use crate::state::ControlPlane;
use crate::work::{reach, select};

/// The most nodes that one order names.
const MAX_NODES: usize = 100_000;

/// `GET /v1/sync`: one page, in the order of hostnames. The first page counts the states of all
/// nodes that are asked for and costs as many looks; a later one costs what it shows, and with a
/// selector the nodes that it passes over.
pub(crate) async fn list(
    plane: &ControlPlane,
    selector: Option<&str>,
    from: &str,
    limit: usize,
) -> Result<SyncsView, Problem> {
    let mut look = Look { plane, modes: HashMap::new() };
    let mut page = SyncsView::default();
    let is_first = from.is_empty();
    let slots = match selector {
        Some(text) if is_first => select::meant(plane, &select::read(text)?).await?,
        Some(text) => select::meant_from(plane, &select::read(text)?, from, limit + 1).await?,
        None if is_first => plane.index.all(),
        None => plane.index.page(from, limit + 1),
    };
    for slot in slots {
        if page.nodes.len() < limit {
            let view = look.view(&slot).await.map_err(store_problem)?;
            if is_first {
                *page.states.entry(view.condition.state).or_default() += 1;
            }
            page.nodes.push(view);
            continue;
        }
        page.next.get_or_insert_with(|| names(&slot).1);
        if !is_first {
            break;
        }
        *page.states.entry(look.state(&slot).await.map_err(store_problem)?).or_default() += 1;
    }
    Ok(page)
}

/// Looks at nodes one after the other; nodes of one set have one mode.
struct Look<'a> {
    plane: &'a ControlPlane,
    modes: HashMap<Digest, Mode>,
}

impl Look<'_> {
    /// What a node's condition depends on besides its summary.
    async fn around(&mut self, slot: &Slot) -> Result<Surroundings<'_>, StoreError> {
        let heads = self.plane.heads();
        let (id, pointed) = {
            let mut entry = slot.lock();
            (entry.node.id.clone(), entry.node.pointed(&heads).map(|(_, entry)| entry.root))
        };
        let mode = match pointed {
            None => Mode::Off,
            Some(root) => match self.modes.get(&root) {
                Some(mode) => *mode,
                None => {
                    let mode = self.plane.grants.mode(&root).await?;
                    self.modes.insert(root, mode);
                    mode
                }
            },
        };
        let (instance, started) = (self.plane.boot(), self.plane.started);
        Ok(Surroundings { mode, reach: reach(self.plane, &id), instance, started })
    }

    async fn state(&mut self, slot: &Slot) -> Result<SyncState, StoreError> {
        let (id, index) = (names(slot).0, self.plane.hub.sync_index());
        let around = self.around(slot).await?;
        Ok(index.read(&id, |summary| summary.condition(around).cause.state()))
    }

    async fn view(&mut self, slot: &Slot) -> Result<SyncView, StoreError> {
        let ((id, node), index) = (names(slot), self.plane.hub.sync_index());
        let around = self.around(slot).await?;
        let reach = match around.reach {
            Reach::Online => "online",
            Reach::Promotable { .. } => "promotable",
            Reach::Offline | Reach::Removed => "offline",
        };
        Ok(index.read(&id, |summary| SyncView {
            condition: ConditionView::new(&summary.condition(around), node.as_str()),
            mode: around.mode,
            behind: summary.objects_behind(),
            link: summary.link().map(|link| link.transport),
            linked_since: summary.link().map(|link| link.since),
            reach: reach.to_owned(),
            down: summary.objects_down(),
            up: summary.objects_up(),
            node,
        }))
    }
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
    let now = slots.iter().filter(|slot| plane.hub.sync_index().want(&names(slot).0, wants)).count();
    tracing::info!(by, nodes = slots.len(), approve = asked.approve_deletions, "a resync was asked for");
    Ok(Resynced { now, nodes: slots.len() })
}
