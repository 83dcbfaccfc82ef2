//! Listing objects, and one of them with its manifest and status.

use std::fmt;
use std::sync::Arc;

use lang::selector::Selector;
use model::condition::Direction;
use model::{Hostname, Kind, ObjectKey};
use store::{ObjectFilter, ObjectPosition, ObjectRecord};
use sync::{Content, Side};
use wire::{Code, Problem};

use super::{apply, is_internal};
use crate::answer::store_problem;
use crate::api::objects::{NO_NAMESPACE, ObjectName, ObjectView, ObjectsQuery, ObjectsView};
use crate::hub::SyncSummary;
use crate::operator_port::OperatorCall;
use crate::state::ControlPlane;
use crate::work::select::MeantPage;

/// The set that travels this way.
fn side_of(way: Direction) -> Side {
    if way == Direction::Down { Side::Feed } else { Side::Replica }
}

/// The way that a set travels.
fn way_of(side: Side) -> Direction {
    if side == Side::Feed { Direction::Down } else { Direction::Up }
}

/// Where a page of objects begins.
enum ListCursor {
    /// After an object, in the order of the store: of a listing without a selector.
    Object(ObjectPosition),
    /// With a node, or after one of its objects, in the order of hostnames: of a listing with a selector.
    Node { hostname: Hostname, after: Option<ObjectInNode> },
}

/// An object of a node.
struct ObjectInNode {
    side: Side,
    key: ObjectKey,
}

/// One page of objects. Actions and statuses are listed when their kind is asked for alone:
/// they are shown where they belong, with tasks and with their objects.
pub(crate) async fn list(call: OperatorCall, request: ObjectsQuery) -> Result<ObjectsView, Problem> {
    let plane = &call.plane;
    let from = request.from.as_deref().filter(|from| !from.is_empty());
    let from = from.map(ListCursor::parse).transpose()?;
    let all_kinds = request.kind.is_none();
    let filter = ObjectFilter {
        node: None,
        side: request.way.map(side_of),
        kind: request.kind.as_deref().map(Kind::new),
        namespace: request.namespace.map(|text| if text == NO_NAMESPACE { String::new() } else { text }),
        name: request.name,
    };
    let selector = call.listed(request.selector.as_deref())?;
    let mut page =
        ObjectsPage { call: &call, plane, objects: Vec::new(), limit: request.limit.get(), all_kinds };
    let next = match (&selector, from) {
        (None, None) => page.of_all(&filter, None).await?,
        (None, Some(ListCursor::Object(after))) => page.of_all(&filter, Some(after)).await?,
        (Some(selector), None) => page.of_meant(selector, &filter, None).await?,
        (Some(selector), Some(ListCursor::Node { hostname, after })) => {
            page.of_meant(selector, &filter, Some((hostname, after))).await?
        }
        (None, Some(ListCursor::Node { .. })) | (Some(_), Some(ListCursor::Object(_))) => {
            return Err(no_cursor());
        }
    };
    Ok(ObjectsView { objects: page.objects, next: next.map(|next| next.to_string()) })
}

/// Nodes that one page with a selector looks at, whether they have objects or not.
const MEANT_NODES: usize = 1000;

/// A page while it is filled.
struct ObjectsPage<'a> {
    call: &'a OperatorCall,
    plane: &'a Arc<ControlPlane>,
    objects: Vec<ObjectView>,
    limit: usize,
    all_kinds: bool,
}

impl ObjectsPage<'_> {
    fn is_full(&self) -> bool {
        self.objects.len() >= self.limit
    }

    /// Fills it with objects of all nodes, in the order of the store; says where the next page begins.
    async fn of_all(
        &mut self,
        filter: &ObjectFilter,
        mut after: Option<ObjectPosition>,
    ) -> Result<Option<ListCursor>, Problem> {
        self.fill(filter, &mut after).await?;
        let full = self.is_full();
        Ok(after.filter(|_| full).map(ListCursor::Object))
    }

    /// Fills it with objects of the nodes that a selector means, in the order of their hostnames; says where the next
    /// page begins. It looks at no more nodes than a page of them has.
    async fn of_meant(
        &mut self,
        selector: &Selector,
        filter: &ObjectFilter,
        from: Option<(Hostname, Option<ObjectInNode>)>,
    ) -> Result<Option<ListCursor>, Problem> {
        let (first, rest) = from.unzip();
        let mut rest = rest.flatten();
        let first_name = first.as_ref().map_or("", Hostname::as_str);
        let MeantPage { slots, next } = self.call.meant_from(selector, first_name, MEANT_NODES).await?;
        let index = self.plane.hub.sync_index();
        for slot in slots {
            let (id, hostname) = slot.names();
            // What is left of the node where the page before ended; it may have been removed since.
            let rest = rest.take().filter(|_| first.as_ref() == Some(&hostname));
            if !index.read(&id, SyncSummary::has_objects) {
                continue;
            }
            let mut after =
                rest.map(|ObjectInNode { side, key }| ObjectPosition { node: id.clone(), side, key });
            self.fill(&ObjectFilter { node: Some(id), ..filter.clone() }, &mut after).await?;
            if self.is_full() {
                let after = after.map(|ObjectPosition { side, key, .. }| ObjectInNode { side, key });
                return Ok(Some(ListCursor::Node { hostname, after }));
            }
        }
        Ok(next.map(|hostname| ListCursor::Node { hostname, after: None }))
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
    let id = call.node(&name.node).await?.id();
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

/// Marks a cursor that begins with a hostname: node ids do not have it.
const HOSTNAME_MARK: char = '@';

/// `id/side/Kind/namespace/name`, `@hostname` or `@hostname/side/Kind/namespace/name`.
impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side_name = |side: &Side| if *side == Side::Feed { "down" } else { "up" };
        match self {
            ListCursor::Object(ObjectPosition { node, side, key }) => {
                write!(f, "{node}/{}/{key}", side_name(side))
            }
            ListCursor::Node { hostname, after } => {
                write!(f, "{HOSTNAME_MARK}{hostname}")?;
                match after {
                    Some(ObjectInNode { side, key }) => write!(f, "/{}/{key}", side_name(side)),
                    None => Ok(()),
                }
            }
        }
    }
}

impl ListCursor {
    fn parse(text: &str) -> Result<ListCursor, Problem> {
        let read = || {
            let (node, object) = text.split_once('/').map_or((text, None), |(node, rest)| (node, Some(rest)));
            let object = match object {
                None => None,
                Some(object) => {
                    let (side, key) = object.split_once('/')?;
                    let side = match side {
                        "down" => Side::Feed,
                        "up" => Side::Replica,
                        _ => return None,
                    };
                    Some(ObjectInNode { side, key: key.parse().ok()? })
                }
            };
            match node.strip_prefix(HOSTNAME_MARK) {
                Some(hostname) => Some(ListCursor::Node { hostname: hostname.parse().ok()?, after: object }),
                None => {
                    let ObjectInNode { side, key } = object?;
                    Some(ListCursor::Object(ObjectPosition { node: node.parse().ok()?, side, key }))
                }
            }
        };
        read().ok_or_else(no_cursor)
    }
}

fn no_cursor() -> Problem {
    Problem::new(Code::BadQuery, "`from` is not what a page before named as the next in this listing")
}
