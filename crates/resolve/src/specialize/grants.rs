//! [`Grants`]: what a node's set says of synchronization and of delegations (SYN-5, OPS-2).
//!
//! Both follow from the hostname alone. Nodes for which the same entries hold share one
//! [`Grants`], with its parts of a set made once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::canonical::{self, CanonicalError};
use model::replication::SyncPolicy;
use model::set;
use model::trie::Trie;
use model::work::Delegation;
use model::{Digest, Kind, SectionKey, Stub};

use crate::check::context::Context;
use crate::decl::delegation::DelegationDecl;
use crate::decl::fleet::FleetDecl;
use crate::decl::whom::Whom;
use crate::release::SYNC_NAME;
use crate::sink::Sink;
use crate::yaml::At;

/// The file that declares all of it.
const FILE: &str = "fleet.yaml";

/// An object that a release grants to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its name.
    pub name: Arc<str>,
    /// SHA-256 of its content.
    pub digest: Digest,
    /// Its content, canonical.
    pub bytes: Arc<[u8]>,
}

/// What a node may synchronize, and what the control plane may ask it for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The object of kind `Sync`; nothing is synchronized without one.
    pub sync: Option<Grant>,
    /// The objects of kind `Delegation`, by name.
    pub delegations: Vec<Grant>,
    sync_section: Trie,
    delegation_section: Trie,
}

impl Grants {
    /// The sections of a set that the grants are.
    pub(crate) fn sections(&self) -> [(SectionKey, Trie); 2] {
        [
            (SectionKey::of(Kind::DELEGATION), self.delegation_section.clone()),
            (SectionKey::of(Kind::SYNC), self.sync_section.clone()),
        ]
    }

    /// The delegations as a section.
    pub(crate) fn delegation_section(&self) -> &Trie {
        &self.delegation_section
    }

    /// What may be synchronized, read from its canonical bytes.
    ///
    /// # Errors
    /// When the bytes were not made by this crate.
    pub fn read_sync(&self) -> Result<Option<SyncPolicy>, CanonicalError> {
        self.sync.as_ref().map(|grant| canonical::parse(&grant.bytes)).transpose()
    }

    /// The delegations by name, read from their canonical bytes.
    ///
    /// # Errors
    /// As [`Grants::read_sync`].
    pub fn read_delegations(&self) -> Result<BTreeMap<Arc<str>, Delegation>, CanonicalError> {
        let read = |grant: &Grant| Ok((grant.name.clone(), canonical::parse(&grant.bytes)?));
        self.delegations.iter().map(read).collect()
    }

    fn of(sync: Option<Grant>, delegations: Vec<Grant>) -> Grants {
        let trie = |kind: &str, grants: &[Grant]| {
            let section = SectionKey::of(kind);
            let stub =
                |grant: &Grant| Stub { uid: "".into(), digest: grant.digest, size: grant.bytes.len() as u64 };
            Trie::build(grants.iter().map(|grant| set::leaf(&section, grant.name.clone(), stub(grant))))
        };
        let delegation_section = trie(Kind::DELEGATION, &delegations);
        let sync_section = trie(Kind::SYNC, sync.as_slice());
        Grants { sync, delegations, sync_section, delegation_section }
    }
}

/// Which entries of `sync:` and `delegations:` hold for a node, by their indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holding {
    /// The first entry of `sync:` that is for it.
    pub(crate) sync: Option<usize>,
    /// All delegations that are for it.
    pub(crate) delegations: Vec<usize>,
}

impl Holding {
    /// What holds for a node of that name.
    pub(crate) fn of(fleet: &FleetDecl, name: &str) -> Holding {
        Holding::by(fleet, |whom| whom.has(name))
    }

    /// What holds for nodes that `has` distinguishes.
    pub(crate) fn by(fleet: &FleetDecl, has: impl Fn(&Whom) -> bool) -> Holding {
        let delegations = fleet.delegations.iter().enumerate().filter(|(_, decl)| has(&decl.nodes));
        Holding {
            sync: fleet.sync.iter().position(|decl| has(&decl.nodes)),
            delegations: delegations.map(|(index, _)| index).collect(),
        }
    }
}

/// Grants that were made already in one pass over many nodes.
#[derive(Default)]
pub(crate) struct GrantCache(BTreeMap<Holding, Arc<Grants>>);

impl GrantCache {
    /// The grants of nodes for which the same holds. Two delegations that disagree are reported.
    pub(crate) fn grants(&mut self, context: &Context, holding: Holding, sink: &mut Sink) -> Arc<Grants> {
        if let Some(known) = self.0.get(&holding) {
            return known.clone();
        }
        let fleet = &context.fleet;
        let delegations: Vec<&DelegationDecl> =
            holding.delegations.iter().filter_map(|index| fleet.delegations.get(*index)).collect();
        conflicts(&delegations, sink);
        let sync = holding.sync.and_then(|index| fleet.sync.get(index));
        let sync = sync.and_then(|decl| Some((decl.name.at, decl.policy.as_ref()?)));
        let sync = sync.and_then(|(at, policy)| grant(SYNC_NAME, canonical::to_bytes(policy), at, sink));
        let made = delegations
            .iter()
            .filter_map(|decl| grant(&decl.name, canonical::to_bytes(&decl.content), decl.at, sink));
        let grants = Arc::new(Grants::of(sync, made.collect()));
        self.0.insert(holding, grants.clone());
        grants
    }
}

fn grant(name: &str, content: Result<Vec<u8>, CanonicalError>, at: At, sink: &mut Sink) -> Option<Grant> {
    match content {
        Ok(bytes) => Some(Grant { name: name.into(), digest: Digest::of(&bytes), bytes: bytes.into() }),
        Err(error) => {
            sink.error(FILE, "E048", at, format!("`{name}` cannot travel: {error}"));
            None
        }
    }
}

/// Actions to which two delegations of one node give different meanings.
fn conflicts(delegations: &[&DelegationDecl], sink: &mut Sink) {
    for (index, second) in delegations.iter().enumerate() {
        for first in delegations.iter().take(index) {
            for (name, at) in &second.actions {
                let same = first.content.actions.get(name) == second.content.actions.get(name);
                let Some(first_at) = first.actions.get(name).filter(|_| !same) else { continue };
                let message = format!(
                    "delegations `{}` and `{}` declare the action `{name}` differently, and some node has both",
                    first.name, second.name
                );
                sink.error(FILE, "E098", *at, message)
                    .help("give one another name, or let no node have both")
                    .label(*first_at, "differs from this one");
            }
        }
    }
}
