//! Listing objects, and one of them with its manifest and status.

use std::collections::BTreeSet;
use std::ops::Bound;

use model::condition::Direction;
use model::{Kind, NodeId, ObjectKey};
use store::{ObjectFilter, ObjectPosition, ObjectRecord};
use sync::{Content, Side};
use wire::{Code, Problem};

use super::{apply, is_internal};
use crate::answer::store_problem;
use crate::api::objects::{NO_NAMESPACE, ObjectName, ObjectView, ObjectsQuery, ObjectsView};
use crate::hub::SyncSummary;
use crate::operator_port::OperatorCall;
use crate::state::ControlPlane;
use crate::work::select;

/// The set that travels this way.
fn side_of(way: Direction) -> Side {
    if way == Direction::Down { Side::Feed } else { Side::Replica }
}

/// The way that a set travels.
fn way_of(side: Side) -> Direction {
    if side == Side::Feed { Direction::Down } else { Direction::Up }
}

/// One page of objects. Actions and statuses are listed when their kind is asked for alone:
/// they are shown where they belong, with tasks and with their objects.
pub(crate) async fn list(call: OperatorCall, request: ObjectsQuery) -> Result<ObjectsView, Problem> {
    let plane = &call.plane;
    let mut after = request.from.as_deref().map(parse_position).transpose()?;
    let all_kinds = request.kind.is_none();
    let filter = ObjectFilter {
        node: None,
        side: request.way.map(side_of),
        kind: request.kind.as_deref().map(Kind::new),
        namespace: request.namespace.map(|text| if text == NO_NAMESPACE { String::new() } else { text }),
        name: request.name,
    };
    let meant = match &request.selector {
        Some(text) => {
            let meant = select::meant(plane, &select::read(text)?).await?;
            Some(select::ids(&meant, None)?.into_iter().collect::<BTreeSet<NodeId>>())
        }
        None => None,
    };
    let mut page = ObjectsPage { plane, objects: Vec::new(), limit: request.limit.get(), all_kinds };
    match meant {
        None => page.fill(&filter, &mut after).await?,
        Some(meant) => {
            let index = plane.hub.sync_index();
            let first = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Included(after.node.clone()));
            for id in meant.range((first, Bound::Unbounded)) {
                if !index.read(id, SyncSummary::has_objects) {
                    continue;
                }
                let of_node = ObjectFilter { node: Some(id.clone()), ..filter.clone() };
                after = after.filter(|after| after.node == *id);
                page.fill(&of_node, &mut after).await?;
                if page.is_full() {
                    break;
                }
            }
        }
    }
    let full = page.is_full();
    let next = after.filter(|_| full).map(|position| show_position(&position));
    Ok(ObjectsView { objects: page.objects, next })
}

/// A page while it is filled.
struct ObjectsPage<'a> {
    plane: &'a ControlPlane,
    objects: Vec<ObjectView>,
    limit: usize,
    all_kinds: bool,
}

impl ObjectsPage<'_> {
    fn is_full(&self) -> bool {
        self.objects.len() >= self.limit
    }

    /// Fills it with objects after a position, which becomes that of the last one looked at.
    async fn fill(
        &mut self,
        filter: &ObjectFilter,
        after: &mut Option<ObjectPosition>,
    ) -> Result<(), Problem> {
        while !self.is_full() {
            let room = self.limit - self.objects.len();
            let found = self.plane.store.sync_objects(filter.clone(), after.clone(), room).await;
            let found = found.map_err(store_problem)?;
            let Some(last) = found.last() else { return Ok(()) };
            *after = Some(last.position());
            let shown = |record: &ObjectRecord| !self.all_kinds || !is_internal(&record.key.section.kind);
            let views = found.into_iter().filter(shown).filter_map(|record| view(self.plane, record));
            self.objects.extend(views);
        }
        Ok(())
    }
}

fn view(plane: &ControlPlane, record: ObjectRecord) -> Option<ObjectView> {
    let (_, node) = plane.index.get(&record.node)?.names();
    let ObjectRecord { node: id, side, key, stub, rev, at, trace } = record;
    let delivery = plane.hub.sync_index().read(&id, |summary| delivery(summary, side, &key, rev));
    let (delivered, refused) = delivery;
    Some(ObjectView {
        node,
        way: way_of(side),
        kind: key.section.kind.to_string(),
        namespace: key.section.namespace.to_string(),
        name: key.name.to_string(),
        uid: stub.uid.to_string(),
        digest: stub.digest,
        size: stub.size,
        rev,
        at,
        trace,
        delivered,
        refused,
        manifest: None,
        status: None,
    })
}

/// Whether the node has an object of ours, and why not.
fn delivery(summary: &SyncSummary, side: Side, key: &ObjectKey, rev: u64) -> (Option<bool>, Option<String>) {
    if side == Side::Replica {
        return (None, None);
    }
    let refused = summary.rejected.get(key).map(ToString::to_string);
    (if refused.is_some() { Some(false) } else { summary.has(rev) }, refused)
}

/// One object with its manifest, and what the node says of it.
pub(crate) async fn one(call: OperatorCall, mut name: ObjectName) -> Result<ObjectView, Problem> {
    let plane = &call.plane;
    if name.namespace == NO_NAMESPACE {
        name.namespace.clear();
    }
    let id = plane.index.named(&name.node)?.id();
    let key = apply::key_of(&name);
    let filter = ObjectFilter {
        node: Some(id.clone()),
        side: None,
        kind: Some(key.section.kind.clone()),
        namespace: Some(key.section.namespace.to_string()),
        name: Some(key.name.to_string()),
    };
    let found = plane.store.sync_objects(filter, None, 2).await.map_err(store_problem)?;
    let none = || Problem::new(Code::NotFound, format!("{} has no object {key}", name.node));
    let record = found.into_iter().find(|record| record.key == key).ok_or_else(none)?;
    let side = record.side;
    let status_key = vec![sync::object::status_key(&key)];
    let manifest = plane.store.sync_contents(&id, side, vec![key.clone()]).await.map_err(store_problem)?;
    let status = plane.store.sync_contents(&id, Side::Replica, status_key).await.map_err(store_problem)?;
    let value = |found: Vec<Option<Content>>| {
        found.into_iter().flatten().next().and_then(|content| serde_json::from_slice(&content.bytes).ok())
    };
    let view = view(plane, record).ok_or_else(none)?;
    Ok(ObjectView { manifest: value(manifest), status: value(status), ..view })
}

/// `node/side/Kind/namespace/name`.
fn show_position(position: &ObjectPosition) -> String {
    let side = if position.side == Side::Feed { "down" } else { "up" };
    format!("{}/{side}/{}", position.node, position.key)
}

fn parse_position(text: &str) -> Result<ObjectPosition, Problem> {
    let read = || {
        let mut parts = text.splitn(3, '/');
        let node = parts.next()?.parse().ok()?;
        let side = match parts.next()? {
            "down" => Side::Feed,
            "up" => Side::Replica,
            _ => return None,
        };
        Some(ObjectPosition { node, side, key: parts.next()?.parse().ok()? })
    };
    read().ok_or_else(|| Problem::new(Code::BadBody, "`from` is not what an earlier page said"))
}
