//! [`Built`], and walking it: chunks and contents, made when they are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::{DeclaredResource, Module};
use lang::Expr;
use model::chunk::{self, TreeChunk};
use model::policy::{Policy, RunTimes};
use model::set::ObjectSet;
use model::trie::{Leaf, Top, Trie};
use model::{Channel, Digest, Kind, SectionKey, Selection};
use trust::feature::{Feature, FileUse, ROLLOUT_FEATURE};

use super::ReleaseError;
use super::shared::Shared;
use crate::secrets::SealedSection;
use crate::specialize::{Grant, Grants, NodeSpec, Specialized};

/// A release without its signature: who gets what. Cheap to clone.
#[derive(Clone)]
pub struct Built {
    pub(super) selection: Selection,
    pub(super) fleet: Specialized,
    pub(super) shared: Arc<Shared>,
}

/// A chunk's position in a release: a handle to walk it by. Cheap to clone.
#[derive(Clone)]
pub struct ReleaseChunk {
    hash: Digest,
    what: ChunkContent,
}

#[derive(Clone)]
enum ChunkContent {
    Selection,
    Exact(Trie),
    Set(Arc<NodeSpec>),
    Modules(Trie),
    Delegations(Trie, Arc<Grants>),
    Secrets(Trie, Arc<SealedSection>),
}

/// The bytes of an object, or a blob that one names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseContent {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

/// What lies directly below a piece.
#[derive(Clone, Default)]
pub struct Below {
    /// Chunks.
    pub pieces: Vec<ReleaseChunk>,
    /// Contents, and the blobs that they name.
    pub contents: Vec<ReleaseContent>,
}

impl Built {
    /// Which set each node gets.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The root that headers name.
    ///
    /// # Errors
    /// Never for a release that [`Builder::build`] gave.
    pub fn root(&self) -> Result<Digest, ReleaseError> {
        self.selection.root().map_err(ReleaseError::Canonical)
    }

    /// What the release was built from.
    pub fn fleet(&self) -> &Specialized {
        &self.fleet
    }

    /// Names of the features that agents must have to take this release, sorted: those of
    /// `features` that something in it uses.
    pub fn requires(&self, features: &[Feature]) -> Vec<String> {
        let specs =
            || self.fleet.exact.values().chain(self.fleet.patterns.iter().map(|pattern| &pattern.spec));
        let uses = |feature: &Feature| {
            if feature.rollout {
                // Of one header, not of the release.
                return false;
            }
            if feature.secrets {
                return specs().any(|spec| spec.secrets.is_some());
            }
            let needs = |resource: &DeclaredResource| {
                feature.resource_types.contains(&resource.kind.as_str())
                    || feature.resource_keys.iter().any(|key| resource.has_key(key))
                    || feature.attributes.iter().any(|attribute| {
                        resource.kind == attribute.kind && resource.attributes.contains_key(attribute.name)
                    })
            };
            let ships = |module: &Module| match feature.files {
                Some(FileUse::Executable) => module.files.values().any(|file| file.executable),
                None => false,
            };
            let modules = self.shared.modules.values();
            modules.map(|shared| &shared.module).any(|module| {
                let mut all = module.resources.iter().chain(&module.handlers);
                all.any(needs) || asks(module, feature.predicates) || ships(module)
            })
        };
        let used = features.iter().filter(|feature| uses(feature)).map(|feature| feature.name.to_owned());
        used.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// What the header of one channel requires beside what the whole release does.
    pub fn header_requires(&self, channel: &str, release: &[String]) -> Vec<String> {
        let mut requires: BTreeSet<String> = release.iter().cloned().collect();
        if self.fleet.rollouts.contains_key(channel) {
            requires.insert(ROLLOUT_FEATURE.to_owned());
        }
        requires.into_iter().collect()
    }

    /// What any of its headers requires.
    pub fn requires_anywhere(&self, features: &[Feature]) -> Vec<String> {
        let release = self.requires(features);
        match self.fleet.rollouts.keys().next() {
            Some(channel) => self.header_requires(channel, &release),
            None => release,
        }
    }

    /// Seconds between contacts, by channel.
    pub fn contact_secs(&self) -> BTreeMap<Channel, u64> {
        let policies = self.shared.policies.values();
        policies.map(|policy| (policy.channel.clone(), policy.policy.contact_secs)).collect()
    }

    /// How often nodes run, by channel.
    pub fn run_times(&self) -> BTreeMap<Channel, RunTimes> {
        let policies = self.shared.policies.values();
        policies.map(|policy| (policy.channel.clone(), RunTimes::of(&policy.policy))).collect()
    }

    /// Seconds for which a header is fresh, by channel.
    pub fn freshness_secs(&self) -> BTreeMap<Channel, u64> {
        let policies = self.shared.policies.iter();
        let freshness = |name| self.shared.settings.get(name).map_or(0, |settings| settings.freshness_secs);
        policies.map(|(name, policy)| (policy.channel.clone(), freshness(name).into())).collect()
    }

    /// The set of a node or a pattern.
    ///
    /// # Errors
    /// Never for a spec of the fleet that was built.
    pub fn set(&self, spec: &NodeSpec) -> Result<ObjectSet, ReleaseError> {
        self.shared.set(spec)
    }

    /// The policy of a node's channel, as its set holds it.
    ///
    /// # Errors
    /// As [`Built::set`].
    pub fn policy(&self, spec: &NodeSpec) -> Result<&Policy, ReleaseError> {
        Ok(&self.shared.policy(spec)?.policy)
    }

    /// Where a walk begins.
    ///
    /// # Errors
    /// As [`Built::root`].
    pub fn top(&self) -> Result<ReleaseChunk, ReleaseError> {
        Ok(ReleaseChunk { hash: self.root()?, what: ChunkContent::Selection })
    }

    /// The chunk that stands at a position.
    ///
    /// # Errors
    /// Never for a piece of this release.
    pub fn chunk(&self, piece: &ReleaseChunk) -> Result<TreeChunk, ReleaseError> {
        let trie = |section: &SectionKey, trie| chunk::of_trie(section, trie).ok_or(ReleaseError::Empty);
        match &piece.what {
            ChunkContent::Selection => Ok(chunk::of_selection(&self.selection)),
            ChunkContent::Exact(exact) => trie(&Selection::section(), exact),
            ChunkContent::Modules(modules) => trie(&self.shared.sections.module, modules),
            ChunkContent::Delegations(delegations, _) => trie(&SectionKey::of(Kind::DELEGATION), delegations),
            ChunkContent::Secrets(sealed, _) => trie(&SectionKey::of(Kind::SECRET_REF), sealed),
            ChunkContent::Set(spec) => Ok(chunk::of_set(&self.shared.set(spec)?)),
        }
    }

    /// What lies directly below a position.
    ///
    /// # Errors
    /// Never for a piece of this release.
    pub fn below(&self, piece: &ReleaseChunk) -> Result<Below, ReleaseError> {
        match &piece.what {
            ChunkContent::Selection => self.below_selection(),
            ChunkContent::Exact(exact) => Ok(self.below_exact(exact)),
            ChunkContent::Set(spec) => self.below_set(spec),
            ChunkContent::Modules(modules) => self.below_modules(modules),
            ChunkContent::Delegations(delegations, grants) => Ok(below_delegations(delegations, grants)),
            ChunkContent::Secrets(section, sealed) => Ok(below_secrets(section, sealed)),
        }
    }

    fn below_selection(&self) -> Result<Below, ReleaseError> {
        let exact = self.selection.exact();
        let mut pieces = Vec::new();
        if !exact.is_empty() {
            pieces.push(ReleaseChunk { hash: exact.hash(), what: ChunkContent::Exact(exact.clone()) });
        }
        for (entry, pattern) in self.selection.patterns().iter().zip(self.fleet.patterns.iter()) {
            pieces
                .push(ReleaseChunk { hash: entry.entry.root, what: ChunkContent::Set(pattern.spec.clone()) });
        }
        Ok(Below { pieces, contents: Vec::new() })
    }

    fn below_exact(&self, exact: &Trie) -> Below {
        let pieces = match exact.top() {
            Top::Branch(children) => parts(children, ChunkContent::Exact),
            Top::Bucket(leaves) => {
                let set = |leaf: &Arc<Leaf>| {
                    let spec = self.fleet.exact.get(&leaf.name)?.clone();
                    Some(ReleaseChunk { hash: leaf.stub.digest, what: ChunkContent::Set(spec) })
                };
                leaves.iter().filter_map(set).collect()
            }
        };
        Below { pieces, contents: Vec::new() }
    }

    fn below_set(&self, spec: &Arc<NodeSpec>) -> Result<Below, ReleaseError> {
        let modules = self.shared.list_of(spec)?;
        let mut below = match modules.len() {
            0 => Below::default(),
            1 => self.below_modules(&modules)?,
            _ => Below {
                pieces: vec![ReleaseChunk { hash: modules.hash(), what: ChunkContent::Modules(modules) }],
                contents: Vec::new(),
            },
        };
        let policy = self.shared.policy(spec)?;
        for bytes in [&spec.params, &policy.bytes] {
            below.contents.push(ReleaseContent { digest: Digest::of(bytes), bytes: bytes.clone() });
        }
        below.contents.extend(spec.grants.sync.iter().map(content));
        let delegations = spec.grants.delegation_section();
        match delegations.len() {
            0 => {}
            1 => below.contents.extend(spec.grants.delegations.iter().map(content)),
            _ => {
                let what = ChunkContent::Delegations(delegations.clone(), spec.grants.clone());
                below.pieces.push(ReleaseChunk { hash: delegations.hash(), what });
            }
        }
        if let Some(secrets) = &spec.secrets {
            below.contents.extend(secrets.keys.iter().map(content));
            let section = secrets.sealed_section();
            match section.len() {
                0 => {}
                1 => below.contents.extend(secrets.sealed.objects.iter().map(content)),
                _ => {
                    let what = ChunkContent::Secrets(section.clone(), secrets.sealed.clone());
                    below.pieces.push(ReleaseChunk { hash: section.hash(), what });
                }
            }
        }
        Ok(below)
    }

    fn below_modules(&self, modules: &Trie) -> Result<Below, ReleaseError> {
        let leaves = match modules.top() {
            Top::Branch(children) => {
                return Ok(Below { pieces: parts(children, ChunkContent::Modules), contents: Vec::new() });
            }
            Top::Bucket(leaves) => leaves,
        };
        let mut contents = Vec::new();
        for leaf in leaves {
            let module = self.shared.module(&leaf.name)?;
            contents.push(ReleaseContent { digest: module.digest, bytes: module.bytes.clone() });
            let blobs = module.module.blobs.iter();
            contents.extend(blobs.filter_map(|digest| {
                let bytes = self.fleet.blobs.get(digest)?.clone();
                Some(ReleaseContent { digest: *digest, bytes })
            }));
        }
        Ok(Below { pieces: Vec::new(), contents })
    }
}

fn below_delegations(delegations: &Trie, grants: &Arc<Grants>) -> Below {
    match delegations.top() {
        Top::Branch(children) => {
            let pieces = parts(children, |child| ChunkContent::Delegations(child, grants.clone()));
            Below { pieces, contents: Vec::new() }
        }
        Top::Bucket(leaves) => {
            let own = |grant: &&Grant| leaves.iter().any(|leaf| leaf.name == grant.name);
            Below {
                pieces: Vec::new(),
                contents: grants.delegations.iter().filter(own).map(content).collect(),
            }
        }
    }
}

fn below_secrets(section: &Trie, sealed: &Arc<SealedSection>) -> Below {
    match section.top() {
        Top::Branch(children) => {
            let pieces = parts(children, |child| ChunkContent::Secrets(child, sealed.clone()));
            Below { pieces, contents: Vec::new() }
        }
        Top::Bucket(leaves) => {
            let own = |object: &&Grant| leaves.iter().any(|leaf| leaf.name == object.name);
            Below { pieces: Vec::new(), contents: sealed.objects.iter().filter(own).map(content).collect() }
        }
    }
}

fn content(grant: &Grant) -> ReleaseContent {
    ReleaseContent { digest: grant.digest, bytes: grant.bytes.clone() }
}

fn parts(children: &[Trie; 16], what: impl Fn(Trie) -> ChunkContent) -> Vec<ReleaseChunk> {
    let held = children.iter().filter(|child| !child.is_empty());
    held.map(|child| ReleaseChunk { hash: child.hash(), what: what(child.clone()) }).collect()
}

impl ReleaseChunk {
    /// The hash by which the chunk is named.
    pub fn hash(&self) -> Digest {
        self.hash
    }
}

/// Whether a condition of a module asks one of these predicates.
fn asks(module: &Module, predicates: &[&str]) -> bool {
    if predicates.is_empty() {
        return false;
    }
    let resources = module.resources.iter().chain(&module.handlers);
    let mut conditions = resources.filter_map(|resource| resource.when.as_ref()).chain(&module.when);
    conditions.any(|when| {
        Expr::parse(when).is_ok_and(|expr| expr.calls().iter().any(|call| predicates.contains(call)))
    })
}
