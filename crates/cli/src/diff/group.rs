//! Nodes whose sets differ in the same way, and what that does to the resources of one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use catalog::module::{Module, OnRemove, Params};
use converge::{BoundResource, Desired, ResourceId};
use lang::Value;
use model::canonical::{self, CanonicalError};
use model::delta::{Delta, Edit};
use model::selection::Entry;
use model::{Digest, Fields, Kind, ObjectSet, SetDelta};
use resolve::NodeSpec;
use resolve::release::{Built, ReleaseError};
use serde::{Serialize, Serializer};
use tokio::task::JoinSet;

use super::compare::{NodeChange, Population};
use crate::bound::{self, NodeSet};
use crate::failure::Told;
use crate::observed;
use crate::operator::{CallError, Operator};
use crate::remote::{OldSets, RemoteError};
use crate::render;

/// Contents fetched at once.
const FETCHES: usize = 32;
/// Hostnames that a group names.
pub const NAMED: usize = 20;
/// Groups whose resources are compared; the rest are counted.
pub const MAX_SHOWN: usize = 100;

/// Why old and new cannot be put side by side.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The control plane did not answer, or refused.
    #[error("the control plane could not be asked")]
    Call(#[from] CallError),
    /// A published set cannot be read.
    #[error("a published set cannot be read")]
    Remote(#[from] RemoteError),
    /// The new release cannot be read.
    #[error("the new release cannot be read")]
    Build(#[from] ReleaseError),
    /// An object's content is not what its kind says.
    #[error("an object's content cannot be read")]
    Content(#[source] CanonicalError),
    /// The program is stopping.
    #[error("the comparison was stopped")]
    Stopped(#[source] tokio::task::JoinError),
}

impl Told for GroupError {}

impl Compared {
    /// Nothing differs.
    pub fn is_same(&self) -> bool {
        self.change == 0 && self.patterns == 0
    }
}

/// What would change, fleet-wide.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    /// The release that is published now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Nodes that were compared.
    pub nodes: usize,
    /// Those that get what they have.
    pub same: usize,
    /// Those that get something else.
    pub change: usize,
    /// Of these, those that only observe it.
    pub observe: usize,
    /// Patterns that get something else and classify no enrolled node.
    pub patterns: usize,
    /// The biggest first.
    pub groups: Vec<Group>,
}

/// Nodes whose sets differ in the same way.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// How many.
    pub count: usize,
    /// The first of them, by name.
    pub nodes: Vec<Arc<str>>,
    /// These stand for a pattern without enrolled nodes.
    pub pattern: bool,
    /// They gain their first set, or lose it.
    pub assigned: Assigned,
    /// From one channel to another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<(String, String)>,
    /// Nothing of it is done: it is only observed.
    pub observe: bool,
    /// Where the representative's traits are from.
    pub traits: String,
    /// What differs in the first node's resources.
    pub resources: Delta<Line, Fields>,
    /// What differs in what is declared of the node.
    pub params: Delta<String, Fields>,
}

/// Whether a node keeps having a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Assigned {
    /// It had one and gets another.
    Kept,
    /// It had none.
    New,
    /// It gets none; what was made stays as it is.
    Lost,
}

/// A resource or module in a difference, with what becomes of it when it goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// `module/type:name`, or `module NAME`.
    pub id: String,
    /// What becomes of it.
    pub note: Option<&'static str>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.note {
            Some(note) => write!(f, "{}  {note}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What makes nodes of one group alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    pattern: bool,
    assigned: Assigned,
    channels: (String, String),
    sets: String,
    params: String,
    observe: bool,
}

/// One side of a comparison.
struct Side {
    set: ObjectSet,
    params: Params,
}

/// Puts nodes that change alike together, and compares the resources of one of each.
///
/// # Errors
/// When a published set cannot be read.
pub async fn group(
    operator: &Operator,
    built: &Built,
    from: Option<u64>,
    population: Population,
) -> Result<Compared, GroupError> {
    let mut reader = Reader { operator, built, sets: OldSets::default(), contents: BTreeMap::new() };
    reader.load(&population.changed).await?;
    let mut alike: BTreeMap<Alike, Vec<&NodeChange>> = BTreeMap::new();
    for change in &population.changed {
        alike.entry(reader.alike(change)?).or_default().push(change);
    }
    let mut members: Vec<Vec<&NodeChange>> = alike.into_values().collect();
    members.sort_by_key(|members| std::cmp::Reverse(members.len()));
    let shown = members.iter().take(MAX_SHOWN);
    let mut groups = Vec::new();
    for members in shown {
        groups.push(reader.shown(members).await?);
    }
    let nodes = population.nodes;
    let change = population.changed.iter().filter(|change| !change.is_pattern).count();
    let patterns = population.changed.len() - change;
    let observing = groups.iter().filter(|group| group.observe && !group.pattern);
    let observe = observing.map(|group| group.count).sum();
    Ok(Compared { from, nodes, same: nodes.saturating_sub(change), change, observe, patterns, groups })
}

struct Reader<'a> {
    operator: &'a Operator,
    built: &'a Built,
    sets: OldSets,
    contents: BTreeMap<Digest, Bytes>,
}

impl Reader<'_> {
    /// Reads everything published that the comparison needs: sets, and params that differ.
    async fn load(&mut self, changes: &[NodeChange]) -> Result<(), GroupError> {
        let roots: BTreeSet<Digest> =
            changes.iter().filter_map(|change| Some(change.old.as_ref()?.root)).collect();
        let roots: Vec<Digest> = roots.into_iter().collect();
        self.sets.load(self.operator, &roots).await?;
        let mut params = BTreeSet::new();
        for root in &roots {
            params.extend(objects(&self.sets.get(root)?, Kind::PARAMS).map(|(_, digest)| digest));
        }
        self.fetch(params).await
    }

    async fn fetch(&mut self, digests: BTreeSet<Digest>) -> Result<(), GroupError> {
        let mut under_way: JoinSet<Result<(Digest, Bytes), CallError>> = JoinSet::new();
        let mut wanted = digests
            .into_iter()
            .filter(|digest| !self.contents.contains_key(digest))
            .collect::<Vec<_>>()
            .into_iter();
        loop {
            while under_way.len() < FETCHES {
                let Some(digest) = wanted.next() else { break };
                let operator = self.operator.clone();
                under_way.spawn(async move { Ok((digest, operator.content(&digest).await?)) });
            }
            let Some(ended) = under_way.join_next().await else { return Ok(()) };
            let (digest, content) = ended.map_err(GroupError::Stopped)??;
            self.contents.insert(digest, content);
        }
    }

    fn old(&self, entry: Option<&Entry>) -> Result<Option<Side>, GroupError> {
        let Some(entry) = entry else { return Ok(None) };
        let set = self.sets.get(&entry.root)?;
        let mut found = objects(&set, Kind::PARAMS);
        let content =
            found.next().and_then(|(_, digest)| self.contents.get(&digest).cloned()).unwrap_or_default();
        drop(found);
        let params = canonical::parse(&content).map_err(GroupError::Content)?;
        Ok(Some(Side { set, params }))
    }

    /// What the new release gives a node or a pattern.
    fn spec(&self, change: &NodeChange) -> Option<Arc<NodeSpec>> {
        change.new.as_ref()?;
        let fleet = self.built.fleet();
        if change.is_pattern {
            return fleet
                .patterns
                .iter()
                .find(|spec| spec.pattern.as_str() == &*change.name)
                .map(|spec| spec.spec.clone());
        }
        fleet.node(&change.name).cloned()
    }

    fn new_side(&self, change: &NodeChange) -> Result<Option<Side>, GroupError> {
        let Some(spec) = self.spec(change) else { return Ok(None) };
        let params = spec.read_params().map_err(GroupError::Content)?;
        Ok(Some(Side { set: self.built.set(&spec)?, params }))
    }

    fn alike(&self, change: &NodeChange) -> Result<Alike, GroupError> {
        let (old, new) = (self.old(change.old.as_ref())?, self.new_side(change)?);
        let channel =
            |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.channel.to_string()).unwrap_or_default();
        let text =
            |error: serde_json::Error| GroupError::Content(CanonicalError::NotAllowed(error.to_string()));
        let params = params_delta(old.as_ref(), new.as_ref());
        let observe = new.as_ref().is_some_and(|side| side.params.observe);
        let sets = sets_delta(old, new);
        Ok(Alike {
            observe,
            pattern: change.is_pattern,
            assigned: assigned(change),
            channels: (channel(&change.old), channel(&change.new)),
            sets: serde_json::to_string(&sets).map_err(text)?,
            params: serde_json::to_string(&params).map_err(text)?,
        })
    }

    /// The group of these nodes: what the first of them gets, resource by resource.
    async fn shown(&mut self, members: &[&NodeChange]) -> Result<Group, GroupError> {
        // A group has at least one member, or it would not be one.
        let first = members.first().copied().cloned().unwrap_or(NodeChange {
            name: "".into(),
            is_pattern: false,
            old: None,
            new: None,
        });
        let (old, new) = (self.old(first.old.as_ref())?, self.new_side(&first)?);
        let params = params_delta(old.as_ref(), new.as_ref());
        let observed = match observed::recorded(self.operator, &first.name).await {
            Some(recorded) if !first.is_pattern => recorded,
            _ => observed::sample(&first.name),
        };
        let old = match old {
            Some(side) => Some(self.node_set(side).await?),
            None => None,
        };
        let new = match self.spec(&first) {
            Some(spec) => Some(render::node_set(self.built.fleet(), &spec).map_err(GroupError::Content)?),
            None => None,
        };
        let (old, new) =
            (bound(old, &first.name, &observed.traits), bound(new, &first.name, &observed.traits));
        self.load_files(&old).await?;
        let resources = self.resources(&old, &new);
        let channel = match (&first.old, &first.new) {
            (Some(old), Some(new)) if old.channel != new.channel => {
                Some((old.channel.to_string(), new.channel.to_string()))
            }
            _ => None,
        };
        Ok(Group {
            count: members.len(),
            nodes: members.iter().take(NAMED).map(|change| change.name.clone()).collect(),
            pattern: first.is_pattern,
            assigned: assigned(&first),
            channel,
            observe: observes(&old, &new, &resources),
            traits: observed.source,
            resources,
            params,
        })
    }

    /// The modules and params of a published set.
    async fn node_set(&mut self, side: Side) -> Result<NodeSet, GroupError> {
        self.fetch(objects(&side.set, Kind::MODULE).map(|(_, digest)| digest).collect()).await?;
        let mut modules = BTreeMap::new();
        for (name, digest) in objects(&side.set, Kind::MODULE) {
            let content = self.contents.get(&digest).cloned().unwrap_or_default();
            let module: Module = canonical::parse(&content).map_err(GroupError::Content)?;
            modules.insert(name, Arc::new(module));
        }
        Ok(NodeSet { modules, params: side.params })
    }

    /// Reads shipped files that are small enough to be shown.
    async fn load_files(&mut self, desired: &Desired) -> Result<(), GroupError> {
        let small = |resource: &Arc<BoundResource>| match &resource.spec {
            Ok(catalog::spec::Spec::File(file)) => match file.content {
                Some(catalog::spec::Content::Blob { digest, size })
                    if size <= model::delta::MAX_FIELD as u64 =>
                {
                    Some(digest)
                }
                _ => None,
            },
            _ => None,
        };
        let known = &self.built.fleet().blobs;
        let wanted =
            desired.resources().filter_map(small).filter(|digest| !known.contains_key(digest)).collect();
        self.fetch(wanted).await
    }

    fn resources(&self, old: &Desired, new: &Desired) -> Delta<Line, Fields> {
        let blobs = |digest: &Digest| {
            let own = self.built.fleet().blobs.get(digest).cloned();
            own.or_else(|| self.contents.get(digest).map(|content| content.to_vec().into()))
        };
        let (was, is) = (all_fields(old, &blobs), all_fields(new, &blobs));
        let mut delta = Delta::between(&was, &is);
        let sensitive = sensitive(old, new);
        let removals: BTreeMap<&ResourceId, OnRemove> =
            old.resources().map(|resource| (&resource.id, resource.on_remove)).collect();
        let edits = std::mem::take(&mut delta.edits).into_iter().map(|(id, mut edit)| {
            if sensitive.contains(&id) {
                edit = hidden(edit);
            }
            let going = matches!(edit, Edit::Remove { .. });
            let note = removals
                .get(&ResourceId::from(id.as_str()))
                .filter(|_| going)
                .map(|how| bound::removal(*how));
            (Line { id, note }, edit)
        });
        Delta { edits: edits.collect() }
    }
}

fn bound(set: Option<NodeSet>, name: &str, traits: &Value) -> Desired {
    set.map(|set| set.bind(name, traits)).unwrap_or_default()
}

fn objects<'s>(set: &'s ObjectSet, kind: &'s str) -> impl Iterator<Item = (String, Digest)> + 's {
    let own = set.objects().filter(move |(key, _)| key.section.kind.as_str() == kind);
    own.map(|(key, stub)| (key.name.to_string(), stub.digest))
}

fn assigned(change: &NodeChange) -> Assigned {
    match (&change.old, &change.new) {
        (None, _) => Assigned::New,
        (_, None) => Assigned::Lost,
        (Some(_), Some(_)) => Assigned::Kept,
    }
}

/// What differs in the sets, params apart: these differ from node to node and are compared
/// by what they say.
fn sets_delta(old: Option<Side>, new: Option<Side>) -> SetDelta {
    let set = |side: Option<Side>| side.map(|side| side.set).unwrap_or_default();
    let mut delta = set(old).delta_to(&set(new));
    delta.edits.retain(|key, _| key.section.kind.as_str() != Kind::PARAMS);
    delta
}

/// What differs in what is declared of the node, part by part.
fn params_delta(old: Option<&Side>, new: Option<&Side>) -> Delta<String, Fields> {
    let parts = |side: Option<&Side>| side.map(|side| parts(&side.params)).unwrap_or_default();
    Delta::between(&parts(old), &parts(new))
}

fn parts(params: &Params) -> BTreeMap<String, Fields> {
    let mut parts: BTreeMap<String, Fields> = BTreeMap::new();
    let value = |value: &Value| Fields::from([("value".to_owned(), value.to_string())]);
    for (layer, vars) in [("vars", &params.vars), ("host vars", &params.host_vars)] {
        parts.extend(vars.iter().map(|(name, var)| (format!("{layer} {name}"), value(var))));
    }
    for (number, layer) in params.conditional.iter().enumerate() {
        let mut fields: Fields =
            layer.vars.iter().map(|(name, var)| (name.clone(), var.to_string())).collect();
        fields.insert("when".to_owned(), layer.when.clone());
        parts.insert(format!("conditional vars {}", number + 1), fields);
    }
    let declared = &params.node;
    let mut node = Fields::from([
        ("roles".to_owned(), declared.roles.join(", ")),
        ("modules".to_owned(), params.modules.join(", ")),
        ("observe".to_owned(), params.observe.to_string()),
    ]);
    let optional = [("environment", &declared.environment), ("owner", &declared.owner)];
    node.extend(optional.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.clone()?))));
    node.extend(declared.labels.iter().map(|(name, text)| (format!("labels.{name}"), text.clone())));
    parts.insert("node".to_owned(), node);
    parts
}

fn all_fields(desired: &Desired, blobs: bound::Blobs<'_>) -> BTreeMap<String, Fields> {
    let resources =
        desired.resources().map(|resource| (resource.id.to_string(), bound::fields(resource, blobs)));
    let modules = desired
        .modules
        .iter()
        .map(|module| (format!("module {}", module.name), bound::module_fields(module)));
    resources.chain(modules.filter(|(_, fields)| !fields.is_empty())).collect()
}

fn sensitive(old: &Desired, new: &Desired) -> BTreeSet<String> {
    let both = old.resources().chain(new.resources());
    both.filter(|resource| resource.sensitive).map(|resource| resource.id.to_string()).collect()
}

fn hidden(edit: Edit<Fields>) -> Edit<Fields> {
    let hide = |fields: &Fields| {
        let mut fields = fields.clone();
        bound::hide(&mut fields);
        fields
    };
    match &edit {
        Edit::Change { from, to } => {
            let (mut was, mut is) = (hide(from), hide(to));
            // Both sides would read alike, and what differs would not be seen.
            for (name, text) in &mut is {
                if from.get(name) != to.get(name) && was.get(name) == Some(text) {
                    *text = format!("{} differs", bound::HIDDEN);
                }
            }
            was.retain(|name, _| from.get(name) != to.get(name));
            is.retain(|name, _| from.get(name) != to.get(name));
            Edit::Change { from: was, to: is }
        }
        _ => edit.map(hide),
    }
}

/// Whether nothing of a difference is done, because all of it is only observed.
fn observes(old: &Desired, new: &Desired, resources: &Delta<Line, Fields>) -> bool {
    if new.observe || (new.modules.is_empty() && old.observe) {
        return true;
    }
    let observing = |id: &str| {
        let of = |desired: &Desired| {
            desired.resources().find(|resource| resource.id.as_str() == id).map(|r| r.observe)
        };
        of(new).or_else(|| of(old)).unwrap_or(false)
    };
    !resources.is_empty() && resources.edits.keys().all(|line| observing(&line.id))
}
