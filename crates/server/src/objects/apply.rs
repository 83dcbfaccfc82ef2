//! `POST /v1/objects` and `POST /v1/objects-delete`: one answer for each object, and what was
//! accepted is durable before it is said.

use std::collections::BTreeMap;
use std::sync::Arc;

use backends::manifest::{self, Format, Manifest};
use bytes::Bytes;
use model::replication::{Mode, SyncPolicy};
use model::{Kind, NodeId, ObjectKey};
use serde_json::Value;
use sync::{Content, Side};
use tokio::task::JoinSet;
use wire::{Code, Problem};

use super::{clip, hub_problem, names, policy, trace};
use crate::answer::store_problem;
use crate::api::objects::{Apply, ApplyOutcome, Delete, Done, MAX_APPLY, Mapping, ObjectName, Results};
use crate::hub::{Edit, EditOutcome, Uid};
use crate::index::Slot;
use crate::posture;
use crate::state::{ControlPlane, now};

/// Nodes changed at once: they share the store's commits.
const AT_ONCE: usize = 32;

/// One object of a request on its way to its node.
struct Wanted {
    place: usize,
    key: ObjectKey,
    edit: Edit,
}

/// What a request wants of one node.
struct Part {
    slot: Arc<Slot>,
    wanted: Vec<Wanted>,
}

/// A request, sorted by node.
struct Sorted {
    results: Vec<Option<Done>>,
    parts: BTreeMap<NodeId, Part>,
    policies: BTreeMap<NodeId, Option<Arc<SyncPolicy>>>,
}

/// A refusal of one object: its code and what is the matter.
fn why(code: Code, detail: impl std::fmt::Display) -> String {
    format!("{}: {detail}", code.as_str())
}

/// Makes objects so.
pub(crate) async fn apply(plane: &Arc<ControlPlane>, asked: Apply, by: &str) -> Result<Results, Problem> {
    bounded(asked.manifests.len())?;
    let trace = trace::context(asked.trace)?;
    let mut sorted = Sorted::new(asked.manifests.len());
    for (place, value) in asked.manifests.into_iter().enumerate() {
        let named = name_of(&value, asked.node.as_deref(), asked.mapping);
        let (object, node) = named;
        match wanted(plane, &mut sorted, place, &value, node.as_deref(), &trace).await? {
            Ok((slot, wanted)) => sorted.take(slot, wanted),
            Err(why) => sorted.refuse(place, object, why),
        }
    }
    let results = sorted.carry_out(plane, asked.dry_run).await;
    if !asked.dry_run {
        let changed = results.iter().filter(|done| is_change(done.outcome)).count();
        plane.metrics.accepted(changed as u64);
        tracing::info!(by, trace, objects = results.len(), changed, "objects were applied");
    }
    Ok(Results { results })
}

/// Takes objects away.
pub(crate) async fn delete(plane: &Arc<ControlPlane>, asked: Delete, by: &str) -> Result<Results, Problem> {
    bounded(asked.objects.len())?;
    let mut sorted = Sorted::new(asked.objects.len());
    for (place, object) in asked.objects.into_iter().enumerate() {
        let Some(slot) = plane.index.find(&object.node) else {
            let text = format!("no node {:?} is enrolled", clip(&object.node));
            sorted.refuse(place, object, why(Code::NotFound, text));
            continue;
        };
        match sorted.may(plane, &slot, &Kind::new(&object.kind), true).await? {
            Err(why) => sorted.refuse(place, object, why),
            Ok(()) => {
                let key = key_of(&object);
                let edit = Edit::Remove { key: key.clone() };
                sorted.take(slot, Wanted { place, key, edit });
            }
        }
    }
    let results = sorted.carry_out(plane, asked.dry_run).await;
    if !asked.dry_run {
        let changed = results.iter().filter(|done| is_change(done.outcome)).count();
        plane.metrics.accepted(changed as u64);
        tracing::info!(by, objects = results.len(), changed, "objects were deleted");
    }
    Ok(Results { results })
}

fn is_change(became: ApplyOutcome) -> bool {
    matches!(became, ApplyOutcome::Created | ApplyOutcome::Changed | ApplyOutcome::Deleted)
}

fn bounded(count: usize) -> Result<(), Problem> {
    if count > MAX_APPLY {
        return Err(Problem::new(Code::BodyTooLarge, format!("at most {MAX_APPLY} objects a request")));
    }
    Ok(())
}

/// The key that a name stands for.
pub(super) fn key_of(object: &ObjectName) -> ObjectKey {
    let mut key = ObjectKey::of(&object.kind, &object.name);
    key.section.namespace = object.namespace.as_str().into();
    key
}

/// What a manifest calls itself, as far as it does, and the node that it is for.
fn name_of(value: &Value, node: Option<&str>, mapping: Mapping) -> (ObjectName, Option<String>) {
    let text = |pointer: &str| clip(value.pointer(pointer).and_then(Value::as_str).unwrap_or(""));
    let mapping = match mapping {
        Mapping::Namespace => sync::mapping::Mapping::Namespace,
        Mapping::Destination => sync::mapping::Mapping::Destination,
    };
    let node = node.or_else(|| sync::mapping::target(value, mapping)).map(str::to_owned);
    let object = ObjectName {
        node: clip(node.as_deref().unwrap_or("")),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    };
    (object, node)
}

/// What a manifest wants of which node, or why it is refused.
async fn wanted(
    plane: &ControlPlane,
    sorted: &mut Sorted,
    place: usize,
    value: &Value,
    node: Option<&str>,
    trace: &str,
) -> Result<Result<(Arc<Slot>, Wanted), String>, Problem> {
    let Some(node) = node else {
        let text = "the manifest names no node: neither its namespace nor its destination does";
        return Ok(Err(why(Code::NotFound, text)));
    };
    let Some(slot) = plane.index.find(node) else {
        return Ok(Err(why(Code::NotFound, format!("no node {:?} is enrolled", clip(node)))));
    };
    let manifest = match read(value) {
        Ok(manifest) => manifest,
        Err(why) => return Ok(Err(why)),
    };
    if let Err(why) = sorted.may(plane, &slot, &manifest.key.section.kind, false).await? {
        return Ok(Err(why));
    }
    let uid = match &manifest.uid {
        Some(uid) if uid.len() > sync::refusal::MAX_TEXT => {
            return Ok(Err(why(Code::BadBody, "metadata.uid is longer than 512 bytes")));
        }
        Some(uid) => Uid::Said(uid.as_str().into()),
        None => Uid::Kept(fresh_uid()?),
    };
    let content = Content { bytes: manifest.spec, trace: Some(trace.to_owned()), at: now().0 };
    let edit = Edit::Put { key: manifest.key.clone(), uid, content };
    Ok(Ok((slot, Wanted { place, key: manifest.key, edit })))
}

/// The one manifest that a value is, in the form in which it is synchronized.
fn read(value: &Value) -> Result<Manifest, String> {
    let bytes = serde_json::to_vec(value).map_err(|error| why(Code::BadBody, error))?;
    if bytes.len() > manifest::MAX_FILE {
        return Err(too_large(bytes.len()));
    }
    let refused = |error: manifest::ReadManifestError| match &error.problem {
        manifest::Problem::TooLarge { size } => too_large(*size),
        _ => why(Code::BadBody, &error),
    };
    let mut read = manifest::read(&bytes, Format::Json).map_err(refused)?;
    read.pop().ok_or_else(|| why(Code::BadBody, "there is no manifest"))
}

fn too_large(size: usize) -> String {
    let most = sync::object::MAX_CONTENT;
    why(Code::ObjectTooLarge, format!("{size} bytes; a synchronized object has at most {most}"))
}

/// A uid that nobody had before, in the form of RFC 9562.
fn fresh_uid() -> Result<Arc<str>, Problem> {
    let mut bytes = posture::random::<16>().map_err(|_| Problem::from(Code::Internal))?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-").into())
}

impl Sorted {
    fn new(count: usize) -> Sorted {
        Sorted { results: vec![None; count], parts: BTreeMap::new(), policies: BTreeMap::new() }
    }

    fn refuse(&mut self, place: usize, object: ObjectName, why: String) {
        self.results[place] = Some(done(object, ApplyOutcome::Refused, Some(why)));
    }

    fn take(&mut self, slot: Arc<Slot>, wanted: Wanted) {
        let (id, _) = names(&slot);
        let part = self.parts.entry(id).or_insert_with(|| Part { slot, wanted: Vec::new() });
        part.wanted.push(wanted);
    }

    /// Whether operators may change objects of a kind on a node (SYN-5). What a release no
    /// longer declares may still be taken away.
    async fn may(
        &mut self,
        plane: &ControlPlane,
        slot: &Slot,
        kind: &Kind,
        remove: bool,
    ) -> Result<Result<(), String>, Problem> {
        let (id, hostname) = names(slot);
        if !self.policies.contains_key(&id) {
            let known = policy(plane, slot).await.map_err(store_problem)?;
            self.policies.insert(id.clone(), known);
        }
        let policy = self.policies.get(&id).and_then(Option::as_ref);
        if kind.as_str() == Kind::ACTION || sync::object::is_status(kind) {
            return Ok(Err(why(Code::UnknownKind, format!("kind {kind} is nobody's to write"))));
        }
        Ok(match policy {
            Some(policy) if policy.mode == Mode::Autonomous => {
                let text = format!("{hostname} is the source of truth of its objects; change them there");
                Err(why(Code::ReadOnly, text))
            }
            _ if remove => Ok(()),
            Some(policy) if policy.mode == Mode::Managed => {
                if policy.kinds.iter().any(|declared| declared == kind.as_str()) {
                    Ok(())
                } else {
                    let kinds = policy.kinds.join(", ");
                    let text =
                        format!("kind {kind} is not synchronized with {hostname}; its release has {kinds}");
                    Err(why(Code::UnknownKind, text))
                }
            }
            _ => Err(why(Code::SyncOff, format!("the release of {hostname} synchronizes no objects"))),
        })
    }

    /// Changes all nodes, several at a time.
    async fn carry_out(mut self, plane: &Arc<ControlPlane>, dry_run: bool) -> Vec<Done> {
        let mut running = JoinSet::new();
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        loop {
            while running.len() < AT_ONCE
                && let Some((id, part)) = parts.next()
            {
                running.spawn(part.carry_out(plane.clone(), id, dry_run));
            }
            match running.join_next().await {
                None => break,
                Some(Ok(done)) => {
                    for (place, done) in done {
                        self.results[place] = Some(done);
                    }
                }
                Some(Err(error)) => tracing::error!(%error, "a part of a request was given up"),
            }
        }
        let nothing = ObjectName {
            node: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
        };
        let given_up =
            || done(nothing.clone(), ApplyOutcome::Refused, Some(why(Code::Internal, "it was given up")));
        self.results.into_iter().map(|done| done.unwrap_or_else(given_up)).collect()
    }
}

impl Part {
    async fn carry_out(self, plane: Arc<ControlPlane>, id: NodeId, dry_run: bool) -> Vec<(usize, Done)> {
        let (_, hostname) = names(&self.slot);
        let object = |key: &ObjectKey| ObjectName {
            node: hostname.to_string(),
            kind: key.section.kind.to_string(),
            namespace: key.section.namespace.to_string(),
            name: key.name.to_string(),
        };
        let places: Vec<(usize, ObjectKey)> = self.wanted.iter().map(|w| (w.place, w.key.clone())).collect();
        let edits: Vec<Edit> = self.wanted.into_iter().map(|wanted| wanted.edit).collect();
        let came = if dry_run { would(&plane, &id, edits).await } else { change(&plane, &id, edits).await };
        match came {
            Ok(came) => {
                let told = |((place, key), (became, why, shown)): ((usize, ObjectKey), Told)| {
                    let (before, after) = shown;
                    (place, Done { before, after, ..done(object(&key), became, why) })
                };
                places.into_iter().zip(came).map(told).collect()
            }
            Err(problem) => {
                let why = problem.to_string();
                let refused = |(place, key): (usize, ObjectKey)| {
                    (place, done(object(&key), ApplyOutcome::Refused, Some(why.clone())))
                };
                places.into_iter().map(refused).collect()
            }
        }
    }
}

/// What one edit came to: the word, why, and the manifest before and after.
type Told = (ApplyOutcome, Option<String>, (Option<Value>, Option<Value>));

async fn change(plane: &ControlPlane, id: &NodeId, edits: Vec<Edit>) -> Result<Vec<Told>, Problem> {
    let came = plane.hub.change(id, edits).await.map_err(hub_problem)?;
    Ok(came.into_iter().map(|came| told(came, (None, None))).collect())
}

async fn would(plane: &ControlPlane, id: &NodeId, edits: Vec<Edit>) -> Result<Vec<Told>, Problem> {
    let node = plane.hub.node(id).await.map_err(hub_problem)?;
    let mut befores = Vec::with_capacity(edits.len());
    let keys: Vec<ObjectKey> = edits.iter().map(|edit| edit.key().clone()).collect();
    for keys in keys.chunks(store::MAX_CONTENTS_ASKED) {
        befores.extend(node.contents(Side::Ours, keys.to_vec()).await.map_err(hub_problem)?);
    }
    let value = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).ok();
    let afters: Vec<Option<Value>> = edits
        .iter()
        .map(|edit| match edit {
            Edit::Put { content, .. } => value(&content.bytes),
            Edit::Remove { .. } => None,
        })
        .collect();
    let befores = befores.into_iter().map(|content| content.and_then(|content| value(&content.bytes)));
    let came = node.would(edits);
    Ok(came.into_iter().zip(befores.zip(afters)).map(|(came, shown)| told(came, shown)).collect())
}

fn told(came: EditOutcome, shown: (Option<Value>, Option<Value>)) -> Told {
    match came {
        EditOutcome::Created => (ApplyOutcome::Created, None, shown),
        EditOutcome::Changed => (ApplyOutcome::Changed, None, shown),
        EditOutcome::Unchanged => (ApplyOutcome::Unchanged, None, shown),
        EditOutcome::Deleted => (ApplyOutcome::Deleted, None, shown),
        EditOutcome::Absent => (ApplyOutcome::Absent, None, shown),
        EditOutcome::Refused(why) => (ApplyOutcome::Refused, Some(why.to_string()), shown),
    }
}

fn done(object: ObjectName, outcome: ApplyOutcome, why: Option<String>) -> Done {
    Done { object, outcome, why, before: None, after: None }
}
