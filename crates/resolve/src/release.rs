//! From what nodes get to what is signed: sets, the selection over them, headers.
//!
//! A node's set holds its modules, its params, its channel's policy, and what is granted to it
//! (synchronization and delegations). Modules are one section trie for every list of modules,
//! the policy one for every channel, grants one for all nodes for which the same holds, so
//! what a node adds is its params and one leaf of the selection. [`Builder`] keeps the selection's trie
//! from one release to the next and touches only the leaves of nodes that changed.
//!
//! Chunks and contents are made when they are asked for ([`Built::chunk`],
//! [`Built::below`]): an upload walks down from [`Built::top`] and stops at every hash that
//! the other side has, so it costs what differs, and nothing is held that is not sent.

mod shared;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::canonical::CanonicalError;
use model::id::ParseIdError;
use model::selection::{MAX_PATTERNS, PatternEntry};
use model::trie::{Leaf, Trie};
use model::{Channel, FleetId, Selection, Timestamp};
use trust::Header;
use trust::feature::FEATURES;
use trust::release::{Fallback, MAX_FALLBACKS};
use trust::rollout_terms::OnFailure;

pub use walk::{Below, Built, ReleaseChunk, ReleaseContent};

use crate::resolver::Changed;
use crate::specialize::{NodeSpec, Specialized};
use shared::{ChannelPolicy, Shared};

/// The name of the one object of kind `Params` in a node's set.
pub const PARAMS_NAME: &str = "node";
/// The name of the one object of kind `Policy` in a node's set.
pub const POLICY_NAME: &str = "channel";
/// The name of the one object of kind `Sync` in a node's set.
pub const SYNC_NAME: &str = "sync";
/// Lists of modules whose tries are kept; beyond them all are forgotten and made anew as needed.
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
    known: Option<LastRelease>,
}

/// What the last release was built from.
struct LastRelease {
    selection: Selection,
    shared: Arc<Shared>,
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
    /// What a channel is pointed to before, the newest first: where its policy says `rollback`, its nodes may be pointed
    /// back to these.
    pub before: BTreeMap<Channel, Vec<Fallback>>,
}

/// The headers of a release, one for every channel of the fleet; the caller signs them.
///
/// # Errors
/// Never for a release that [`Builder::build`] gave.
pub fn headers(built: &Built, stamp: &Stamp) -> Result<BTreeMap<Channel, Header>, ReleaseError> {
    let selection = built.root()?;
    let requires = built.requires(FEATURES);
    let header = |(name, policy): (&String, &ChannelPolicy)| {
        let channel = policy.channel.clone();
        let rollout = built.fleet.rollouts.get(name).map(|policy| Arc::new(policy.terms(stamp.created)));
        let goes_back = rollout.as_ref().is_some_and(|terms| terms.on_failure == OnFailure::Rollback);
        let before = stamp.before.get(&channel).filter(|_| goes_back).into_iter().flatten();
        let freshness = built.shared.settings.get(name).map_or(0, |settings| settings.freshness_secs);
        let header = Header {
            fleet: stamp.fleet.clone(),
            channel: channel.clone(),
            seq: stamp.seq,
            label: stamp.label.clone(),
            created: stamp.created,
            selection,
            freshness_secs: freshness.into(),
            fallbacks: before.take(MAX_FALLBACKS).cloned().collect(),
            requires: built.header_requires(name, &requires),
            rollout,
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
        let few = changed.hostnames.len() * REBUILD_SHARE <= fleet.exact.size();
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
        self.known = Some(LastRelease { selection: selection.clone(), shared: shared.clone() });
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
