//! The nodes of a rehearsal: those that a fleet repo names, and those that are made to a fleet of some size.

use std::collections::BTreeSet;
use std::sync::Arc;

use lang::Value;
use model::policy::Policy;
use model::{Channel, Hostname};
use rehearsal::{MAX_REHEARSED_NODES, RehearsedNode};
use resolve::{NodeSpec, Specialized};
use rollout::{SelectProbesError, probes_of};

/// The most names that are tried for the next node of a pattern: others take the names between.
const MAX_TRIES: usize = 100;

/// Why there are no nodes to rehearse with.
#[derive(Debug, thiserror::Error)]
pub enum FleetNodesError {
    /// None is named.
    #[error("the repo names no node of it")]
    NoneNamed,
    /// There is nothing to make nodes of.
    #[error("nothing of the repo gives {wanted} nodes of it; there are {found}")]
    TooFew {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// More than can be rehearsed.
    #[error("a rehearsal has 1 to {MAX_REHEARSED_NODES} nodes, not {0}")]
    Size(usize),
    /// What is declared of a node cannot be read.
    #[error("what is declared of {0} cannot be read")]
    Params(String, #[source] model::canonical::CanonicalError),
    /// The probes of a node.
    #[error("the probes of {0} cannot be gone by")]
    Probes(Hostname, #[source] SelectProbesError),
}

impl FleetNodesError {
    /// What to do about it.
    pub(super) fn hint(&self) -> Option<String> {
        matches!(self, FleetNodesError::NoneNamed)
            .then(|| "say with --nodes N how many nodes its patterns match".to_owned())
    }
}

/// A node with what it gets.
struct NamedNode<'f> {
    hostname: Hostname,
    spec: &'f Arc<NodeSpec>,
}

/// The nodes of a channel. Of `wanted` ones, those that are named come first; the others are made of patterns, or of
/// the named ones where there is no pattern.
pub(super) fn of_channel(
    fleet: &Specialized,
    channel: &Channel,
    wanted: Option<usize>,
) -> Result<Vec<RehearsedNode>, FleetNodesError> {
    let named = fleet.exact.iter().filter(|(_, spec)| *spec.channel == *channel.as_str());
    let mut nodes: Vec<NamedNode<'_>> =
        named.filter_map(|(name, spec)| Some(NamedNode { hostname: name.parse().ok()?, spec })).collect();
    match wanted {
        None if nodes.is_empty() => return Err(FleetNodesError::NoneNamed),
        None => {}
        Some(wanted) if !(1..=MAX_REHEARSED_NODES).contains(&wanted) => {
            return Err(FleetNodesError::Size(wanted));
        }
        Some(wanted) => {
            enlarge(fleet, channel, &mut nodes, wanted);
            nodes.truncate(wanted);
            if nodes.len() < wanted {
                return Err(FleetNodesError::TooFew { wanted, found: nodes.len() });
            }
        }
    }
    rehearsed(fleet, channel, nodes)
}

/// Makes nodes of the patterns of a channel, one of each in turn, or of its named nodes.
fn enlarge<'f>(fleet: &'f Specialized, channel: &Channel, nodes: &mut Vec<NamedNode<'f>>, wanted: usize) {
    let mut taken: BTreeSet<Hostname> = nodes.iter().map(|node| node.hostname.clone()).collect();
    let of_channel = fleet.patterns.iter().filter(|pattern| *pattern.spec.channel == *channel.as_str());
    let mut sources: Vec<NodeSource<'f>> =
        of_channel.map(|pattern| NodeSource::of_pattern(pattern.pattern.as_str(), &pattern.spec)).collect();
    if !sources.iter_mut().any(|source| source.can_name(fleet, &taken)) {
        sources = nodes.iter().map(NodeSource::of_node).collect();
    }
    while nodes.len() < wanted && !sources.is_empty() {
        sources.retain_mut(|source| {
            let Some(hostname) = source.next(fleet, &taken).filter(|_| nodes.len() < wanted) else {
                return nodes.len() >= wanted;
            };
            taken.insert(hostname.clone());
            nodes.push(NamedNode { hostname, spec: source.spec });
            true
        });
        if nodes.len() >= wanted {
            return;
        }
    }
}

/// What names of more nodes are made of.
struct NodeSource<'f> {
    /// What stands before the number and behind it.
    parts: Option<(String, String)>,
    spec: &'f Arc<NodeSpec>,
    /// Who has such a name gets what the source says, as the fleet repo classifies it.
    is_pattern: bool,
    number: usize,
}

impl<'f> NodeSource<'f> {
    /// Names in which numbers stand for the first star of a glob; other forms of patterns give none.
    fn of_pattern(pattern: &str, spec: &'f Arc<NodeSpec>) -> NodeSource<'f> {
        let is_plain = !pattern.starts_with('/') && !pattern.contains('?');
        let parts = pattern.split_once('*').filter(|_| is_plain);
        let parts = parts.map(|(before, behind)| {
            let behind = behind.trim_start_matches('*');
            (before.to_owned(), behind.replace("**", "x").replace('*', "x"))
        });
        NodeSource { parts, spec, is_pattern: true, number: 0 }
    }

    /// `web-1-r2.example.com` after `web-1.example.com`.
    fn of_node(node: &NamedNode<'f>) -> NodeSource<'f> {
        let name = node.hostname.as_str();
        let (label, domain) = name.split_at(name.find('.').unwrap_or(name.len()));
        let parts = Some((format!("{label}-r"), domain.to_owned()));
        NodeSource { parts, spec: node.spec, is_pattern: false, number: 1 }
    }

    fn can_name(&mut self, fleet: &Specialized, taken: &BTreeSet<Hostname>) -> bool {
        let number = self.number;
        let can = self.next(fleet, taken).is_some();
        self.number = number;
        can
    }

    fn next(&mut self, fleet: &Specialized, taken: &BTreeSet<Hostname>) -> Option<Hostname> {
        let (before, behind) = self.parts.clone()?;
        for _ in 0..MAX_TRIES {
            self.number += 1;
            let Ok(hostname) = format!("{before}{}{behind}", self.number).parse::<Hostname>() else {
                return None;
            };
            let is_its = !self.is_pattern
                || fleet.node(hostname.as_str()).is_some_and(|spec| Arc::ptr_eq(spec, self.spec));
            if is_its && !taken.contains(&hostname) {
                return Some(hostname);
            }
        }
        None
    }
}

/// The nodes with what the release declares of them, and with their probes.
fn rehearsed(
    fleet: &Specialized,
    channel: &Channel,
    nodes: Vec<NamedNode<'_>>,
) -> Result<Vec<RehearsedNode>, FleetNodesError> {
    let probes = fleet.channels.get(channel.as_str()).map(|settings| settings.probes.clone());
    let policy = Policy { probes: probes.unwrap_or_default(), ..Policy::default() };
    // Many nodes are declared alike.
    let mut last: Option<(Arc<[u8]>, Value)> = None;
    let mut made = Vec::with_capacity(nodes.len());
    for NamedNode { hostname, spec } in nodes {
        let declared = match last.take() {
            Some((params, facts)) if params == spec.params => facts,
            _ => {
                let params = spec.read_params();
                params.map_err(|error| FleetNodesError::Params(hostname.to_string(), error))?.node.facts()
            }
        };
        last = Some((spec.params.clone(), declared.clone()));
        let probes = probes_of(&policy, &hostname, &declared)
            .map_err(|source| FleetNodesError::Probes(hostname.clone(), source))?;
        made.push(RehearsedNode { hostname, declared, probes });
    }
    Ok(made)
}
