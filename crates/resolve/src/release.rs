//! From what nodes get to what is signed: sets, the selection over them, headers.
//!
//! A node's set holds its modules, its params and its channel's policy. Modules are one
//! section trie for every list of modules, the policy one for every channel, so what a node
//! adds is its params and one leaf of the selection. [`Builder`] keeps the selection's trie
//! from one release to the next and touches only the leaves of nodes that changed.
//!
//! Chunks and contents are made when they are asked for ([`Built::chunk`],
//! [`Built::below`]): an upload walks down from [`Built::top`] and stops at every hash that
//! the other side has, so it costs what differs, and nothing is held that is not sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::channel::ChannelSettings;
use model::canonical::{self, CanonicalError};
use model::chunk::{self, Chunk};
use model::id::ParseIdError;
use model::policy::Policy;
use model::selection::{Entry, MAX_PATTERNS, PatternEntry};
use model::set::{self, ObjectSet};
use model::trie::{Leaf, Top, Trie};
use model::{Channel, Digest, FleetId, Hostname, Kind, SectionKey, Selection, Stub, Timestamp};
use trust::Header;
use trust::release::Fallback;

use crate::check::modules::SharedModule;
use crate::resolver::Changed;
use crate::specialize::{NodeSpec, Specialized};

/// The name of the one object of kind `Params` in a node's set.
pub const PARAMS_NAME: &str = "node";
/// The name of the one object of kind `Policy` in a node's set.
pub const POLICY_NAME: &str = "channel";
/// Lists of modules whose tries are kept; beyond them the oldest kept are forgotten.
const MAX_LISTS: usize = 20_000;
/// When more than one in so many nodes changed, the whole trie is built at once.
const REBUILD_SHARE: usize = 4;

/// Why a release cannot be built. None of these happens to a fleet that was checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// A name cannot be a hostname or a channel.
    #[error("a name of the fleet cannot be used")]
    Name(#[source] ParseIdError),
    /// A node is in a channel that is not declared.
    #[error("channel {0:?} is not declared")]
    UnknownChannel(String),
    /// A node has a module that the fleet does not.
    #[error("module {0:?} is not in the fleet")]
    UnknownModule(String),
    /// There are more patterns than a release may hold.
    #[error("the fleet has {0} patterns; a release holds at most {MAX_PATTERNS}")]
    TooManyPatterns(usize),
    /// A part of a release that holds nothing has no chunk.
    #[error("an empty part of a release has no chunk")]
    Empty,
    /// A document has no canonical form.
    #[error("a document has no canonical form")]
    Canonical(#[source] CanonicalError),
}

/// Builds releases one after the other; each costs what changed since the one before.
#[derive(Default)]
pub struct Builder {
    known: Option<Known>,
}

/// What the last release was built from.
struct Known {
    selection: Selection,
    shared: Arc<Shared>,
}

/// A release without its signature: who gets what. Cheap to clone.
#[derive(Clone)]
pub struct Built {
    selection: Selection,
    fleet: Specialized,
    shared: Arc<Shared>,
}

/// What the sets of many nodes have in common.
#[derive(Clone)]
struct Shared {
    modules: Arc<BTreeMap<String, Arc<SharedModule>>>,
    settings: Arc<BTreeMap<String, ChannelSettings>>,
    policies: BTreeMap<String, ChannelPolicy>,
    lists: BTreeMap<Arc<[Arc<str>]>, Trie>,
    sections: Sections,
}

/// A channel's policy as an object.
#[derive(Clone)]
struct ChannelPolicy {
    channel: Channel,
    trie: Trie,
    bytes: Arc<[u8]>,
    contact_secs: u64,
}

/// The keys of a node's sections, and the names in them, made once.
#[derive(Clone)]
struct Sections {
    module: SectionKey,
    params: SectionKey,
    policy: SectionKey,
    params_name: Arc<str>,
}

/// A chunk's place in a release: a handle to walk it by. Cheap to clone.
#[derive(Clone)]
pub struct Piece {
    hash: Digest,
    what: What,
}

#[derive(Clone)]
enum What {
    Selection,
    Exact(Trie),
    Set(Arc<NodeSpec>),
    Modules(Trie),
}

/// The bytes of an object, or a blob that one names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

/// What lies directly below a piece.
#[derive(Clone, Default)]
pub struct Below {
    /// Chunks.
    pub pieces: Vec<Piece>,
    /// Contents, and the blobs that they name.
    pub contents: Vec<Content>,
}

/// What a header says besides what was built.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// The fleet.
    pub fleet: FleetId,
    /// The release's number.
    pub seq: u64,
    /// Its label for people.
    pub label: Option<String>,
    /// When it is signed.
    pub created: Timestamp,
    /// Earlier releases that nodes of a channel may be pointed back to.
    pub fallbacks: BTreeMap<Channel, Vec<Fallback>>,
}

/// The headers of a release, one for every channel of the fleet; the caller signs them.
///
/// # Errors
/// Never for a release that [`Builder::build`] gave.
pub fn headers(built: &Built, stamp: &Stamp) -> Result<BTreeMap<Channel, Header>, ReleaseError> {
    let selection = built.root()?;
    let header = |(name, policy): (&String, &ChannelPolicy)| {
        let channel = policy.channel.clone();
        let freshness = built.shared.settings.get(name).map_or(0, |settings| settings.freshness_secs);
        let header = Header {
            fleet: stamp.fleet.clone(),
            channel: channel.clone(),
            seq: stamp.seq,
            label: stamp.label.clone(),
            created: stamp.created,
            selection,
            freshness_secs: freshness.into(),
            fallbacks: stamp.fallbacks.get(&channel).cloned().unwrap_or_default(),
        };
        (channel, header)
    };
    Ok(built.shared.policies.iter().map(header).collect())
}

impl Builder {
    /// A builder that has built nothing.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Builds the release of a fleet. `changed` is against the fleet of the last call.
    ///
    /// # Errors
    /// [`ReleaseError`]; the next call then starts from nothing.
    pub fn build(&mut self, fleet: &Specialized, changed: &Changed) -> Result<Built, ReleaseError> {
        let known = self.known.take();
        let mut shared = match &known {
            Some(known) if known.shared.is_of(fleet) => known.shared.clone(),
            _ => Arc::new(Shared::of(fleet)?),
        };
        // Everything is the same but for the nodes that changed.
        let kept = known.filter(|known| Arc::ptr_eq(&known.shared, &shared));
        let few = changed.hostnames.len() * REBUILD_SHARE <= fleet.exact.len();
        let exact = match &kept {
            Some(known) if few => {
                remember_lists(
                    &mut shared,
                    fleet,
                    changed.hostnames.iter().filter_map(|name| fleet.exact.get(name)),
                )?;
                edit(known.selection.exact(), fleet, &shared, &changed.hostnames)?
            }
            _ => {
                remember_lists(&mut shared, fleet, fleet.exact.values())?;
                whole(fleet, &shared)?
            }
        };
        let selection = match kept {
            Some(known) if !changed.patterns => known.selection.with_exact(exact),
            _ => Selection::new(exact, patterns(fleet, &shared)?),
        };
        self.known = Some(Known { selection: selection.clone(), shared: shared.clone() });
        Ok(Built { selection, fleet: fleet.clone(), shared })
    }
}

fn whole(fleet: &Specialized, shared: &Shared) -> Result<Trie, ReleaseError> {
    let leaves: Result<Vec<Leaf>, ReleaseError> =
        fleet.exact.iter().map(|(name, spec)| shared.selected(name, spec)).collect();
    Ok(Trie::build(leaves?))
}

fn edit(
    exact: &Trie,
    fleet: &Specialized,
    shared: &Shared,
    changed: &[Arc<str>],
) -> Result<Trie, ReleaseError> {
    let mut trie = exact.clone();
    for name in changed {
        trie = match fleet.exact.get(name) {
            Some(spec) => trie.with(shared.selected(name, spec)?),
            None => trie.without(name),
        };
    }
    Ok(trie)
}

fn patterns(fleet: &Specialized, shared: &Shared) -> Result<Vec<PatternEntry>, ReleaseError> {
    if fleet.patterns.len() > MAX_PATTERNS {
        return Err(ReleaseError::TooManyPatterns(fleet.patterns.len()));
    }
    let entry = |spec: &crate::PatternSpec| {
        Ok(PatternEntry {
            pattern: spec.pattern.as_str().to_owned(),
            except: spec.except.iter().map(|except| except.as_str().to_owned()).collect(),
            entry: shared.entry(&spec.spec)?,
        })
    };
    fleet.patterns.iter().map(entry).collect()
}

/// Makes the tries of module lists that were not seen before.
fn remember_lists<'s>(
    shared: &mut Arc<Shared>,
    fleet: &'s Specialized,
    specs: impl Iterator<Item = &'s Arc<NodeSpec>>,
) -> Result<(), ReleaseError> {
    let mut new: BTreeMap<Arc<[Arc<str>]>, Trie> = BTreeMap::new();
    let specs = specs.chain(fleet.patterns.iter().map(|pattern| &pattern.spec));
    for spec in specs.filter(|spec| !shared.lists.contains_key(&spec.modules)) {
        if !new.contains_key(&spec.modules) {
            new.insert(spec.modules.clone(), shared.list(&spec.modules)?);
        }
    }
    if !new.is_empty() {
        let own = Arc::make_mut(shared);
        if own.lists.len() + new.len() > MAX_LISTS {
            own.lists.clear();
        }
        own.lists.append(&mut new);
    }
    Ok(())
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

    /// Seconds between contacts, by channel.
    pub fn contact_secs(&self) -> BTreeMap<Channel, u64> {
        let policies = self.shared.policies.values();
        policies.map(|policy| (policy.channel.clone(), policy.contact_secs)).collect()
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

    /// Where a walk begins.
    ///
    /// # Errors
    /// As [`Built::root`].
    pub fn top(&self) -> Result<Piece, ReleaseError> {
        Ok(Piece { hash: self.root()?, what: What::Selection })
    }

    /// The chunk that stands at a place.
    ///
    /// # Errors
    /// Never for a piece of this release.
    pub fn chunk(&self, piece: &Piece) -> Result<Chunk, ReleaseError> {
        let trie = |section: &SectionKey, trie| chunk::of_trie(section, trie).ok_or(ReleaseError::Empty);
        match &piece.what {
            What::Selection => Ok(chunk::of_selection(&self.selection)),
            What::Exact(exact) => trie(&Selection::section(), exact),
            What::Modules(modules) => trie(&self.shared.sections.module, modules),
            What::Set(spec) => Ok(chunk::of_set(&self.shared.set(spec)?)),
        }
    }

    /// What lies directly below a place.
    ///
    /// # Errors
    /// Never for a piece of this release.
    pub fn below(&self, piece: &Piece) -> Result<Below, ReleaseError> {
        match &piece.what {
            What::Selection => self.below_selection(),
            What::Exact(exact) => Ok(self.below_exact(exact)),
            What::Set(spec) => self.below_set(spec),
            What::Modules(modules) => self.below_modules(modules),
        }
    }

    fn below_selection(&self) -> Result<Below, ReleaseError> {
        let exact = self.selection.exact();
        let mut pieces = Vec::new();
        if !exact.is_empty() {
            pieces.push(Piece { hash: exact.hash(), what: What::Exact(exact.clone()) });
        }
        for (entry, pattern) in self.selection.patterns().iter().zip(self.fleet.patterns.iter()) {
            pieces.push(Piece { hash: entry.entry.root, what: What::Set(pattern.spec.clone()) });
        }
        Ok(Below { pieces, contents: Vec::new() })
    }

    fn below_exact(&self, exact: &Trie) -> Below {
        let pieces = match exact.top() {
            Top::Branch(children) => parts(children, What::Exact),
            Top::Bucket(leaves) => {
                let set = |leaf: &Arc<Leaf>| {
                    let spec = self.fleet.exact.get(&leaf.name)?.clone();
                    Some(Piece { hash: leaf.stub.digest, what: What::Set(spec) })
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
                pieces: vec![Piece { hash: modules.hash(), what: What::Modules(modules) }],
                contents: Vec::new(),
            },
        };
        let policy = self.shared.policy(spec)?;
        for bytes in [&spec.params, &policy.bytes] {
            below.contents.push(Content { digest: Digest::of(bytes), bytes: bytes.clone() });
        }
        Ok(below)
    }

    fn below_modules(&self, modules: &Trie) -> Result<Below, ReleaseError> {
        let leaves = match modules.top() {
            Top::Branch(children) => {
                return Ok(Below { pieces: parts(children, What::Modules), contents: Vec::new() });
            }
            Top::Bucket(leaves) => leaves,
        };
        let mut contents = Vec::new();
        for leaf in leaves {
            let module = self.shared.module(&leaf.name)?;
            contents.push(Content { digest: module.digest, bytes: module.bytes.clone() });
            let blobs = module.module.blobs.iter();
            contents.extend(blobs.filter_map(|digest| {
                let bytes = self.fleet.blobs.get(digest)?.clone();
                Some(Content { digest: *digest, bytes })
            }));
        }
        Ok(Below { pieces: Vec::new(), contents })
    }
}

fn parts(children: &[Trie; 16], what: impl Fn(Trie) -> What) -> Vec<Piece> {
    let held = children.iter().filter(|child| !child.is_empty());
    held.map(|child| Piece { hash: child.hash(), what: what(child.clone()) }).collect()
}

impl Piece {
    /// The hash by which the chunk is named.
    pub fn hash(&self) -> Digest {
        self.hash
    }
}

impl Shared {
    fn of(fleet: &Specialized) -> Result<Shared, ReleaseError> {
        let sections = Sections {
            module: SectionKey::of(Kind::MODULE),
            params: SectionKey::of(Kind::PARAMS),
            policy: SectionKey::of(Kind::POLICY),
            params_name: PARAMS_NAME.into(),
        };
        let mut policies = BTreeMap::new();
        for (name, settings) in fleet.channels.iter() {
            policies.insert(name.clone(), ChannelPolicy::of(name, settings, &sections)?);
        }
        Ok(Shared {
            modules: fleet.modules.clone(),
            settings: fleet.channels.clone(),
            policies,
            lists: BTreeMap::new(),
            sections,
        })
    }

    /// Nothing that all nodes share differs.
    fn is_of(&self, fleet: &Specialized) -> bool {
        let same_modules = Arc::ptr_eq(&self.modules, &fleet.modules) || self.modules == fleet.modules;
        same_modules && (Arc::ptr_eq(&self.settings, &fleet.channels) || self.settings == fleet.channels)
    }

    fn module(&self, name: &str) -> Result<&Arc<SharedModule>, ReleaseError> {
        self.modules.get(name).ok_or_else(|| ReleaseError::UnknownModule(name.to_owned()))
    }

    fn policy(&self, spec: &NodeSpec) -> Result<&ChannelPolicy, ReleaseError> {
        let unknown = || ReleaseError::UnknownChannel(spec.channel.to_string());
        self.policies.get(&*spec.channel).ok_or_else(unknown)
    }

    fn list_of(&self, spec: &NodeSpec) -> Result<Trie, ReleaseError> {
        match self.lists.get(&spec.modules) {
            Some(trie) => Ok(trie.clone()),
            None => self.list(&spec.modules),
        }
    }

    fn list(&self, names: &[Arc<str>]) -> Result<Trie, ReleaseError> {
        let leaf = |name: &Arc<str>| {
            let module = self.module(name)?;
            let size = module.bytes.len() as u64;
            let stub = Stub { uid: "".into(), digest: module.digest, size };
            Ok(set::leaf(&self.sections.module, name.clone(), stub))
        };
        let leaves: Result<Vec<Leaf>, ReleaseError> = names.iter().map(leaf).collect();
        Ok(Trie::build(leaves?))
    }

    fn set(&self, spec: &NodeSpec) -> Result<ObjectSet, ReleaseError> {
        let Sections { module, params, policy, params_name } = &self.sections;
        let own = set::leaf(params, params_name.clone(), Stub::of(&spec.params));
        Ok(ObjectSet::of_sections([
            (module.clone(), self.list_of(spec)?),
            (params.clone(), Trie::build([own])),
            (policy.clone(), self.policy(spec)?.trie.clone()),
        ]))
    }

    fn entry(&self, spec: &NodeSpec) -> Result<Entry, ReleaseError> {
        Ok(Entry { channel: self.policy(spec)?.channel.clone(), root: self.set(spec)?.root() })
    }

    fn selected(&self, name: &str, spec: &NodeSpec) -> Result<Leaf, ReleaseError> {
        let hostname: Hostname = name.parse().map_err(ReleaseError::Name)?;
        Ok(Selection::leaf(&hostname, &self.entry(spec)?))
    }
}

impl ChannelPolicy {
    fn of(
        name: &str,
        settings: &ChannelSettings,
        sections: &Sections,
    ) -> Result<ChannelPolicy, ReleaseError> {
        let policy = policy(settings);
        let bytes: Arc<[u8]> = canonical::to_bytes(&policy).map_err(ReleaseError::Canonical)?.into();
        let leaf = set::leaf(&sections.policy, POLICY_NAME.into(), Stub::of(&bytes));
        Ok(ChannelPolicy {
            channel: name.parse().map_err(ReleaseError::Name)?,
            trie: Trie::build([leaf]),
            bytes,
            contact_secs: policy.contact_secs,
        })
    }
}

/// A channel's settings as its nodes get them. What only observes is already said in params,
/// and freshness in the header.
fn policy(settings: &ChannelSettings) -> Policy {
    Policy {
        contact_secs: settings.contact_secs.into(),
        jitter_percent: u8::try_from(settings.jitter_percent).unwrap_or(u8::MAX),
        converge_secs: settings.converge_secs.into(),
        bundle_max_age_secs: settings.bundle_max_age_secs.into(),
        offline_grace_secs: settings.offline_grace_secs.into(),
        metered: settings.metered,
    }
}
