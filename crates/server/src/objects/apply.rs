//! Applying and deleting objects: one result for each, and what was accepted is durable before it
//! is said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backends::manifest::{self, Manifest};
use bytes::Bytes;
use model::replication::{Mode, SyncPolicy};
use model::{Hostname, Kind, NodeId, ObjectKey};
use serde_json::Value;
use store::Store;
use store::audit::AuditSubject;
use sync::{Content, Side};
use tokio::task::JoinSet;
use wire::{Code, Problem};

use super::{hub_problem, is_internal, policy, trace};
use crate::answer::store_problem;
use crate::api::objects::{Apply, ApplyOutcome, Delete, MAX_APPLY, ObjectName, ObjectResult, ObjectResults};
use crate::hub::{EditOutcome, FeedEdit, HubError, Uid};
use crate::index::{beginning, clip};
use crate::operator_port::OperatorCall;
use crate::state::{ControlPlane, now};

/// Nodes whose objects are changed at once; they share the store's commits.
const AT_ONCE: usize = 32;

/// Why something is not done.
enum EditRefusal {
    /// This object alone is refused.
    Object(String),
    /// The request cannot be answered.
    Request(Problem),
}

impl From<Problem> for EditRefusal {
    fn from(problem: Problem) -> EditRefusal {
        EditRefusal::Request(problem)
    }
}

/// An object is refused for this reason.
fn refused(code: Code, detail: impl std::fmt::Display) -> EditRefusal {
    EditRefusal::Object(format!("{}: {detail}", code.as_str()))
}

/// A request's objects, sorted by their nodes.
struct ObjectsByNode<'a> {
    call: &'a OperatorCall,
    plane: &'a Arc<ControlPlane>,
    /// In the order of the request; refused until it is known better.
    results: Vec<ObjectResult>,
    /// What is to be done, by index in `results`.
    edits: BTreeMap<NodeId, Vec<(usize, FeedEdit)>>,
    /// Nodes that the request has named so far.
    targets: BTreeMap<String, Arc<TargetNode>>,
}

/// A node whose objects are changed.
struct TargetNode {
    id: NodeId,
    hostname: Hostname,
    policy: Arc<SyncPolicy>,
}

pub(crate) async fn apply(call: OperatorCall, asked: Apply) -> Result<ObjectResults, Problem> {
    let mut batch = ObjectsByNode::new(&call, asked.manifests.len())?;
    let trace = trace::context(asked.trace)?;
    for value in asked.manifests {
        let node = asked.node.as_deref().or_else(|| sync::mapping::target(&value, asked.mapping));
        let (name, node) = (name_of(&value, node), node.map(str::to_owned));
        let edit = batch.put(value, node.as_deref(), &trace).await;
        batch.take(name, edit)?;
    }
    Ok(batch.carry_out(&call.by, "applied", asked.dry_run).await)
}

pub(crate) async fn delete(call: OperatorCall, asked: Delete) -> Result<ObjectResults, Problem> {
    let mut batch = ObjectsByNode::new(&call, asked.objects.len())?;
    for object in asked.objects {
        let edit = batch.remove(&object).await;
        batch.take(object, edit)?;
    }
    Ok(batch.carry_out(&call.by, "deleted", asked.dry_run).await)
}

pub(super) fn key_of(object: &ObjectName) -> ObjectKey {
    let mut key = ObjectKey::of(&object.kind, &object.name);
    key.section.namespace = object.namespace.as_str().into();
    key
}

/// The name of an object in a manifest that is perhaps none; whole when it is one.
fn name_of(value: &Value, node: Option<&str>) -> ObjectName {
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str).unwrap_or("");
        beginning(text, manifest::MAX_NAME).to_owned()
    };
    let metadata = value.get("metadata");
    let named = |field: &str| text(metadata.and_then(|metadata| metadata.get(field)));
    ObjectName {
        node: clip(node.unwrap_or("")),
        kind: text(value.get("kind")),
        namespace: named("namespace"),
        name: named("name"),
    }
}

/// A manifest, read by the same rules as from a file.
fn read(value: Value) -> Result<Manifest, EditRefusal> {
    let too_large = |size| {
        let most = sync::object::MAX_CONTENT;
        let text = format!("{size} bytes; a synchronized object has at most {most}");
        refused(Code::ObjectTooLarge, text)
    };
    manifest::of_value(value).map_err(|error| match &error.problem {
        manifest::ManifestProblem::TooLarge { size } => too_large(*size),
        _ => refused(Code::BadBody, &error),
    })
}

impl ObjectsByNode<'_> {
    fn new(call: &OperatorCall, count: usize) -> Result<ObjectsByNode<'_>, Problem> {
        let plane = &call.plane;
        if count > MAX_APPLY {
            return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_APPLY} objects a request")));
        }
        Ok(ObjectsByNode {
            call,
            plane,
            results: Vec::new(),
            edits: BTreeMap::new(),
            targets: BTreeMap::new(),
        })
    }

    /// What makes an object so as its manifest says, on its node.
    async fn put(
        &mut self,
        value: Value,
        node: Option<&str>,
        trace: &str,
    ) -> Result<(Arc<TargetNode>, FeedEdit), EditRefusal> {
        let nobody = "the manifest names no node: neither its namespace nor its destination does";
        let target = self.target(node.ok_or_else(|| refused(Code::NotFound, nobody))?).await?;
        let manifest = read(value)?;
        target.may(&manifest.key.section.kind, false)?;
        let uid = match &manifest.uid {
            Some(uid) if uid.len() > sync::refusal::MAX_TEXT => {
                return Err(refused(Code::BadBody, "metadata.uid is longer than 512 bytes"));
            }
            Some(uid) => Uid::Given(uid.as_str().into()),
            None => Uid::Random,
        };
        let content = Content { bytes: manifest.spec, trace: Some(trace.to_owned()), at: now().0 };
        Ok((target, FeedEdit { key: manifest.key, put: Some((uid, content)) }))
    }

    async fn remove(&mut self, object: &ObjectName) -> Result<(Arc<TargetNode>, FeedEdit), EditRefusal> {
        let target = self.target(&object.node).await?;
        target.may(&Kind::new(&object.kind), true)?;
        Ok((target, FeedEdit { key: key_of(object), put: None }))
    }

    async fn target(&mut self, name: &str) -> Result<Arc<TargetNode>, EditRefusal> {
        if let Some(target) = self.targets.get(name) {
            return Ok(target.clone());
        }
        let unknown = |problem: Problem| {
            EditRefusal::Object(format!("{}: {}", problem.code, problem.detail.unwrap_or_default()))
        };
        let slot = self.call.node(name).await.map_err(unknown)?;
        let policy = policy(self.plane, &slot).await.map_err(store_problem)?;
        let (id, hostname) = slot.names();
        let target = Arc::new(TargetNode { id, hostname, policy });
        self.targets.insert(name.to_owned(), target.clone());
        Ok(target)
    }

    /// Takes in what is to be done for an object of the request, or why nothing is.
    fn take(
        &mut self,
        mut object: ObjectName,
        edit: Result<(Arc<TargetNode>, FeedEdit), EditRefusal>,
    ) -> Result<(), Problem> {
        let why = match edit {
            Ok((target, edit)) => {
                object.node = target.hostname.to_string();
                let of_node = match self.edits.get_mut(&target.id) {
                    Some(edits) => edits,
                    None => self.edits.entry(target.id.clone()).or_default(),
                };
                of_node.push((self.results.len(), edit));
                format!("{}: it was given up", Code::Internal.as_str())
            }
            Err(EditRefusal::Object(why)) => why,
            Err(EditRefusal::Request(problem)) => return Err(problem),
        };
        let (outcome, why) = (ApplyOutcome::Refused, Some(why));
        self.results.push(ObjectResult { object, outcome, why, before: None, after: None });
        Ok(())
    }

    /// What the changes are written through; none where only is said what would be done.
    fn store(&self, what: &str, dry_run: bool) -> Option<Arc<Store>> {
        if dry_run {
            self.call.audit.nothing_is_written();
            return None;
        }
        let nodes = self.targets.values().filter(|target| self.edits.contains_key(&target.id));
        let nodes: BTreeSet<&Hostname> = nodes.map(|target| &target.hostname).collect();
        let objects = format!("{} objects {what}", self.results.len());
        Some(self.call.recording(AuditSubject::nodes(nodes).and(objects)))
    }

    /// Does it, some nodes at a time.
    async fn carry_out(mut self, by: &str, what: &str, dry_run: bool) -> ObjectResults {
        let store = self.store(what, dry_run);
        let mut running = JoinSet::new();
        let mut edits = std::mem::take(&mut self.edits).into_iter();
        loop {
            while running.len() < AT_ONCE
                && let Some((id, edits)) = edits.next()
            {
                running.spawn(carry_out(self.plane.clone(), id, edits, store.clone()));
            }
            match running.join_next().await {
                None => break,
                Some(Ok(carried)) => {
                    for (index, (outcome, shown)) in carried {
                        let done = &mut self.results[index];
                        ((done.outcome, done.why), (done.before, done.after)) = (outcome, shown);
                    }
                }
                Some(Err(error)) => tracing::error!(%error, "a part of a request was given up"),
            }
        }
        let changes = [ApplyOutcome::Created, ApplyOutcome::Changed, ApplyOutcome::Deleted];
        if !dry_run {
            let changed = self.results.iter().filter(|done| changes.contains(&done.outcome)).count();
            self.plane.metrics.accepted(changed as u64);
            tracing::info!(by, objects = self.results.len(), changed, "objects were {what}");
        }
        // Each is refused by itself; that somebody tried is in the audit log.
        let is_outside = |done: &ObjectResult| {
            done.why.as_ref().is_some_and(|why| why.starts_with(Code::OutsideScope.as_str()))
        };
        if self.results.iter().any(is_outside) {
            self.call.audit.refused(&self.plane.refusals, Code::OutsideScope.as_str()).await;
        }
        ObjectResults { results: self.results }
    }
}

impl TargetNode {
    /// Whether an operator may write objects of this kind on this node.
    fn may(&self, kind: &Kind, remove: bool) -> Result<(), EditRefusal> {
        let TargetNode { hostname, policy, .. } = self;
        if is_internal(kind) {
            return Err(refused(Code::UnknownKind, format!("kind {kind} is nobody's to write")));
        }
        match policy.mode {
            Mode::Autonomous => {
                let text = format!("{hostname} is the source of truth of its objects; change them there");
                Err(refused(Code::ReadOnly, text))
            }
            // What is there may go whatever the release says now.
            _ if remove => Ok(()),
            Mode::Managed if policy.kinds.iter().any(|declared| declared == kind.as_str()) => Ok(()),
            Mode::Managed => {
                let kinds = policy.kinds.join(", ");
                let text =
                    format!("kind {kind} is not synchronized with {hostname}; its release has {kinds}");
                Err(refused(Code::UnknownKind, text))
            }
            Mode::Off => {
                Err(refused(Code::SyncOff, format!("the release of {hostname} synchronizes no objects")))
            }
        }
    }
}

/// Does it on one node; the results are by their indexes in the request.
async fn carry_out(
    plane: Arc<ControlPlane>,
    id: NodeId,
    edits: Vec<(usize, FeedEdit)>,
    store: Option<Arc<Store>>,
) -> Vec<(usize, CarriedEdit)> {
    let (indexes, edits): (Vec<usize>, Vec<FeedEdit>) = edits.into_iter().unzip();
    let carried = match store {
        None => would(&plane, &id, edits).await,
        Some(store) => change(&plane, &id, edits, store).await,
    };
    let carried = carried.map_err(hub_problem).unwrap_or_else(|problem| {
        let refused = (ApplyOutcome::Refused, Some(problem.to_string()));
        indexes.iter().map(|_| (refused.clone(), (None, None))).collect()
    });
    indexes.into_iter().zip(carried).collect()
}

/// What became of one object, and its manifest before and after.
type CarriedEdit = ((ApplyOutcome, Option<String>), (Option<Value>, Option<Value>));

async fn change(
    plane: &ControlPlane,
    id: &NodeId,
    edits: Vec<FeedEdit>,
    store: Arc<Store>,
) -> Result<Vec<CarriedEdit>, HubError> {
    let outcomes = plane.hub.change_recorded(id, edits, store).await?;
    Ok(outcomes.into_iter().map(|outcome| (named(outcome), (None, None))).collect())
}

/// What changing would come to.
async fn would(
    plane: &ControlPlane,
    id: &NodeId,
    edits: Vec<FeedEdit>,
) -> Result<Vec<CarriedEdit>, HubError> {
    let node = plane.hub.node(id).await?;
    let value = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).ok();
    let mut shown = Vec::with_capacity(edits.len());
    for edits in edits.chunks(store::MAX_CONTENTS_ASKED) {
        let keys = edits.iter().map(|edit| edit.key.clone()).collect();
        let befores = plane.store.sync_contents(id, Side::Feed, keys).await?.into_iter();
        let afters =
            edits.iter().map(|edit| edit.put.as_ref().and_then(|(_, content)| value(&content.bytes)));
        shown.extend(befores.map(|before| before.and_then(|before| value(&before.bytes))).zip(afters));
    }
    Ok(node.would(edits).into_iter().map(named).zip(shown).collect())
}

fn named(outcome: EditOutcome) -> (ApplyOutcome, Option<String>) {
    match outcome {
        Ok(outcome) => (outcome, None),
        Err(why) => (ApplyOutcome::Refused, Some(why.to_string())),
    }
}
