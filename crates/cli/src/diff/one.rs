//! One node, before and after: its set, its params, and both bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use catalog::module::{Module, OnRemove, Params};
use catalog::types::{FileContent, Spec};
use converge::{BoundResource, Desired, ResourceId};
use futures_util::{StreamExt, TryStreamExt, stream};
use lang::secret::HIDDEN_SECRET;
use lang::{Pattern, Value};
use model::canonical::{self, CanonicalError};
use model::delta::{Delta, Edit, MAX_FIELD, render};
use model::selection::SelectionEntry;
use model::{Digest, Fields, Kind, ObjectSet};
use resolve::release::{Built, ReleaseError};
use resolve::{NodeSpec, PatternSpec};
use serde::Serialize;
use trust::feature::FEATURES;

use super::compare::NodeChange;
use super::granted::{self, Granted};
use super::line::{Line, MODULE};
use super::moves;
use crate::bound::{self, NodeSet};
use crate::observed::{self, Observed, TraitSource};
use crate::operator::{Operator, OperatorCallError};
use crate::remote::{OldSets, RemoteError};

/// Contents, or traits, asked for at once.
const ASKED: usize = 32;

/// Why old and new cannot be put side by side.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The control plane did not answer, or refused.
    #[error("the control plane could not be asked")]
    Call(#[from] OperatorCallError),
    /// A published set cannot be read.
    #[error("a published set cannot be read")]
    Remote(#[from] RemoteError),
    /// The new release cannot be read.
    #[error("the new release cannot be read")]
    Build(#[from] ReleaseError),
    /// An object's content is not what its kind says.
    #[error("an object's content cannot be read")]
    Content(#[source] canonical::CanonicalError),
}

/// What differs for one node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDifference {
    /// Nothing of it is done: it is only observed.
    pub observe: bool,
    /// It observed only and does so no more: what was held back is done, removals too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub observe_ends: bool,
    /// Where its traits are from.
    pub traits: TraitSource,
    /// What differs in its channel's settings, in what is synchronized, and in what the control
    /// plane may ask for (SYN-5, OPS-2).
    pub granted: Delta<Line, Fields>,
    /// What differs in its resources.
    pub resources: Delta<Line, Fields>,
    /// What differs in what is declared of it.
    pub params: Delta<String, Fields>,
}

/// A node's set on one side of the comparison.
struct NodeSide {
    set: ObjectSet,
    params: Params,
    granted: Granted,
}

/// The release that is compared with the one that is pointed to.
pub(crate) enum NewRelease<'a> {
    /// Of a fleet repo.
    Built(&'a Built),
    /// One that was published before.
    Published {
        /// Features that agents must have to take it.
        requires: Vec<String>,
    },
}

impl NewRelease<'_> {
    pub(super) fn requires(&self) -> Vec<String> {
        match self {
            NewRelease::Built(built) => built.requires_anywhere(FEATURES),
            NewRelease::Published { requires } => requires.clone(),
        }
    }
}

/// Reads what is published as far as it is needed, and what the new release gives.
pub(super) struct PublishedReader<'a> {
    operator: &'a Operator,
    /// The new release, where it is of a fleet repo.
    built: Option<&'a Built>,
    sets: OldSets,
    contents: BTreeMap<Digest, Bytes>,
    old_modules: BTreeMap<Digest, Arc<Module>>,
    new_modules: BTreeMap<String, Arc<Module>>,
}

impl<'a> PublishedReader<'a> {
    pub(super) fn new(operator: &'a Operator, new: &NewRelease<'a>) -> PublishedReader<'a> {
        let built = match new {
            NewRelease::Built(built) => Some(*built),
            NewRelease::Published { .. } => None,
        };
        PublishedReader {
            operator,
            built,
            sets: OldSets::default(),
            contents: BTreeMap::new(),
            old_modules: BTreeMap::new(),
            new_modules: built.map(|built| bound::modules(built.fleet())).unwrap_or_default(),
        }
    }

    /// Reads the published sets of these nodes, with their params and what is granted to them.
    pub(super) async fn load(&mut self, changes: &[NodeChange]) -> Result<(), GroupError> {
        let new = |change: &NodeChange| change.new.clone().filter(|_| self.built.is_none());
        let entries = changes.iter().flat_map(|change| change.old.clone().into_iter().chain(new(change)));
        let roots: BTreeSet<Digest> = entries.map(|entry| entry.root).collect();
        let roots: Vec<Digest> = roots.into_iter().collect();
        self.sets.load(self.operator, &roots).await?;
        let mut wanted = BTreeSet::new();
        for root in &roots {
            let set = self.sets.get(root)?;
            for kind in [Kind::PARAMS, Kind::POLICY, Kind::SYNC, Kind::DELEGATION] {
                wanted.extend(objects(&set, kind).map(|(_, digest)| digest));
            }
        }
        self.fetch(wanted).await
    }

    /// Whether it only observes, and what differs in its set, as text. Params differ from node
    /// to node, so they are compared by what they say.
    pub(super) fn sets(&self, change: &NodeChange) -> Result<(bool, String), GroupError> {
        let (old, new) = (self.old(change.old.as_ref())?, self.new_side(change)?);
        let observe = new.as_ref().is_some_and(|side| side.params.observe);
        let params = params_delta(old.as_ref(), new.as_ref());
        let set = |side: Option<NodeSide>| side.map(|side| side.set).unwrap_or_default();
        let mut sets = set(old).delta_to(&set(new));
        // A node's keys to its secrets are its own, too: what is sealed says whether one has another value.
        sets.edits.retain(|key, _| ![Kind::PARAMS, Kind::SECRET_KEYS].contains(&key.section.kind.as_str()));
        let text = serde_json::to_string(&sets)
            .map_err(|error| GroupError::Content(CanonicalError::NotAllowed(error.to_string())))?;
        Ok((observe, text + &render(&params)))
    }

    /// What differs for a node: both sets bound with the traits that it recorded.
    pub(super) async fn bound(&mut self, change: &NodeChange) -> Result<NodeDifference, GroupError> {
        let (old, new) = (self.old(change.old.as_ref())?, self.new_side(change)?);
        let params = params_delta(old.as_ref(), new.as_ref());
        let of = |side: &Option<NodeSide>| side.as_ref().map(|side| side.granted.clone()).unwrap_or_default();
        let granted = granted::delta(&of(&old), &of(&new));
        let Observed { traits, source } = self.observed(change).await;
        let old = match old {
            Some(side) => Some(self.old_set(side).await?),
            None => None,
        };
        let new = match new {
            Some(side) if self.built.is_none() => Some(self.old_set(side).await?),
            new => new.map(|side| NodeSet::of(&self.new_modules, side.params)),
        };
        let bind = |set: Option<NodeSet>, traits: &Value| {
            set.map(|set| set.bind(&change.name, traits)).unwrap_or_default()
        };
        let (old, new) = (bind(old, &traits), bind(new, &traits));
        self.load_files(&old).await?;
        self.load_files(&new).await?;
        let resources = self.resources(&old, &new);
        Ok(NodeDifference {
            observe: observes(&old, &new, &resources),
            observe_ends: old.observe && !new.observe && !new.modules.is_empty(),
            traits: source,
            granted,
            resources,
            params,
        })
    }

    async fn observed(&self, change: &NodeChange) -> Observed {
        let recorded = match change.enrolled {
            true => observed::recorded(self.operator, &change.name).await,
            false => None,
        };
        recorded.unwrap_or_else(|| observed::sample(&change.name))
    }

    async fn fetch(&mut self, digests: BTreeSet<Digest>) -> Result<(), GroupError> {
        let lacking = digests.into_iter().filter(|digest| !self.contents.contains_key(digest));
        let operator = self.operator;
        let content = |digest: Digest| async move {
            Ok::<_, OperatorCallError>((digest, operator.content(&digest).await?))
        };
        let fetched: Vec<_> =
            stream::iter(lacking.map(content)).buffer_unordered(ASKED).try_collect().await?;
        self.contents.extend(fetched);
        Ok(())
    }

    fn old(&self, entry: Option<&SelectionEntry>) -> Result<Option<NodeSide>, GroupError> {
        let Some(entry) = entry else { return Ok(None) };
        let set = self.sets.get(&entry.root)?;
        let contents = |kind| {
            objects(&set, kind)
                .map(|(name, digest)| (name, self.contents.get(&digest).cloned().unwrap_or_default()))
        };
        let content = contents(Kind::PARAMS).map(|(_, content)| content).next().unwrap_or_default();
        let params = canonical::parse(&content).map_err(GroupError::Content)?;
        let granted = Granted::read(&contents).map_err(GroupError::Content)?;
        Ok(Some(NodeSide { set, params, granted }))
    }

    fn new_side(&self, change: &NodeChange) -> Result<Option<NodeSide>, GroupError> {
        let Some(built) = self.built else { return self.old(change.new.as_ref()) };
        let Some(spec) = spec(built, change) else { return Ok(None) };
        let params = spec.read_params().map_err(GroupError::Content)?;
        let policy = built.policy(&spec)?;
        let granted = Granted::of(policy, &spec.grants).map_err(GroupError::Content)?;
        Ok(Some(NodeSide { set: built.set(&spec)?, params, granted }))
    }

    /// The modules and params of a published set.
    async fn old_set(&mut self, side: NodeSide) -> Result<NodeSet, GroupError> {
        let wanted: Vec<(String, Digest)> = objects(&side.set, Kind::MODULE).collect();
        let new =
            wanted.iter().map(|(_, digest)| *digest).filter(|digest| !self.old_modules.contains_key(digest));
        self.fetch(new.collect()).await?;
        let mut modules = BTreeMap::new();
        for (name, digest) in wanted {
            if !self.old_modules.contains_key(&digest) {
                let content = self.contents.remove(&digest).unwrap_or_default();
                let module: Module = canonical::parse(&content).map_err(GroupError::Content)?;
                self.old_modules.insert(digest, Arc::new(module));
            }
            modules.extend(self.old_modules.get(&digest).map(|module| (name, module.clone())));
        }
        Ok(NodeSet { modules, params: side.params })
    }

    /// Reads shipped files that are small enough to be shown.
    async fn load_files(&mut self, desired: &Desired) -> Result<(), GroupError> {
        let small = |resource: &Arc<BoundResource>| match &resource.spec {
            Ok(Spec::File(file)) => match file.content {
                Some(FileContent::Blob { digest, size }) if size <= MAX_FIELD as u64 => Some(digest),
                _ => None,
            },
            _ => None,
        };
        let known =
            |digest: &Digest| self.built.is_some_and(|built| built.fleet().blobs.contains_key(digest));
        let wanted = desired.resources().filter_map(small).filter(|digest| !known(digest));
        self.fetch(wanted.collect()).await
    }

    fn resources(&self, old: &Desired, new: &Desired) -> Delta<Line, Fields> {
        let blobs = |digest: &Digest| {
            let own = self.built.and_then(|built| built.fleet().blobs.get(digest).cloned());
            own.or_else(|| self.contents.get(digest).map(|content| content.to_vec().into()))
        };
        let mut delta = Delta::between(&all_fields(old, &blobs), &all_fields(new, &blobs));
        let mut moves = moves::join(&mut delta, old, new);
        let sensitive: BTreeSet<&str> = old
            .resources()
            .chain(new.resources())
            .filter(|resource| resource.sensitive)
            .map(|resource| resource.id.as_str())
            .collect();
        let removals: BTreeMap<&ResourceId, OnRemove> =
            old.resources().map(|resource| (&resource.id, resource.on_remove)).collect();
        let edits = delta.edits.into_iter().map(|(id, edit)| {
            let moved = moves.remove(&id);
            let was = moved.as_ref().map(|moved| moved.from.as_str());
            let hides = [Some(id.as_str()), was].into_iter().flatten().any(|id| sensitive.contains(id));
            let edit = if hides { hidden(&edit) } else { edit };
            let going = matches!(edit, Edit::Remove { .. });
            let how = removals.get(&ResourceId::from(id.as_str())).filter(|_| going);
            let note =
                moved.map(|moved| moved.note).or_else(|| how.map(|how| bound::removal(*how).to_owned()));
            (Line { id, note }, edit)
        });
        Delta { edits: edits.collect() }
    }
}

/// What the new release gives a node or a pattern.
fn spec(built: &Built, change: &NodeChange) -> Option<Arc<NodeSpec>> {
    change.new.as_ref()?;
    let fleet = built.fleet();
    if !change.is_pattern {
        return fleet.node(&change.name).cloned();
    }
    let excepts = |spec: &PatternSpec| spec.except.iter().map(Pattern::as_str).eq(change.except.iter());
    let mut patterns = fleet.patterns.iter();
    let of_pattern = patterns.find(|spec| spec.pattern.as_str() == &*change.name && excepts(spec));
    of_pattern.map(|spec| spec.spec.clone())
}

fn objects<'s>(set: &'s ObjectSet, kind: &'s str) -> impl Iterator<Item = (String, Digest)> + 's {
    let own = set.objects().filter(move |(key, _)| key.section.kind.as_str() == kind);
    own.map(|(key, stub)| (key.name.to_string(), stub.digest))
}

/// What differs in what is declared of the node, part by part.
fn params_delta(old: Option<&NodeSide>, new: Option<&NodeSide>) -> Delta<String, Fields> {
    let parts = |side: Option<&NodeSide>| {
        let Some(side) = side else { return BTreeMap::new() };
        let mut parts = bound::params_fields(&side.params);
        // Equal values are sealed as equal bytes: that one differs is seen, and nothing of what it is.
        parts.extend(objects(&side.set, Kind::SECRET_REF).map(|(name, digest)| {
            let value = format!("{HIDDEN_SECRET} sealed as {}", digest.short());
            (format!("secret {name}"), Fields::from([("value".to_owned(), value)]))
        }));
        parts
    };
    Delta::between(&parts(old), &parts(new))
}

fn all_fields(desired: &Desired, blobs: bound::BlobLookup<'_>) -> BTreeMap<String, Fields> {
    let resources =
        desired.resources().map(|resource| (resource.id.to_string(), bound::fields(resource, blobs)));
    let modules = desired
        .modules
        .iter()
        .map(|module| (format!("{MODULE}{}", module.name), bound::module_fields(module)));
    resources.chain(modules.filter(|(_, fields)| !fields.is_empty())).collect()
}

/// The same edit without what a sensitive resource holds.
fn hidden(edit: &Edit<Fields>) -> Edit<Fields> {
    let hide = |fields: &Fields| {
        let mut fields = fields.clone();
        bound::hide(&mut fields);
        fields
    };
    let Edit::Change { from, to } = edit else { return edit.map(hide) };
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

/// Whether nothing of a difference is done, because all of it is only observed.
fn observes(old: &Desired, new: &Desired, resources: &Delta<Line, Fields>) -> bool {
    if new.observe || (new.modules.is_empty() && old.observe) {
        return true;
    }
    let observing = |id: &str| {
        let of = |desired: &Desired| {
            let found = desired.resources().find(|resource| resource.id.as_str() == id);
            found.map(|resource| resource.observe)
        };
        of(new).or_else(|| of(old)).unwrap_or(false)
    };
    !resources.is_empty() && resources.edits.keys().all(|line| observing(&line.id))
}
