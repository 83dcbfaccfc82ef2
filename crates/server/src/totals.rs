//! [`FleetTotals`]: how many nodes are how, and for which causes, kept as nodes change (CNV-3, SCL-1).
//!
//! ```text
//! check-in, facts, links, enrollment --FleetIndex::mark--> a node waits to be judged
//! heads changed, CountedNode::until is past ------------/
//!   refresh: judged anew, its share before taken out, its share now put in --> status, listings
//! ```
//!
//! Invariant: a node's share in the totals is its [`CountedNode`], and changes only together with it. What it
//! costs to ask is independent of the number of nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::condition::SyncState;
use model::rollout::RolloutId;
use model::status::Overall;
use model::unadopted::UnadoptedCause;
use model::{FailureKey, Hostname, NodeId, ReleaseVersion, Timestamp};

/// What nodes of one line of the status have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CauseKey {
    /// The same failure, on a node where nothing else worked as on one where all else did.
    Failure(FailureKey),
    /// Silence differs by the second; its cause is the same.
    Silence(Overall),
    /// A run that is due is under way; since when differs by the node.
    RunUnderWay(Overall),
    /// Silence of those whose certificates have ended.
    CertificateEnded,
    /// Certificates that have ended, of nodes that get another one by themselves once they run.
    CertificateRecoverable,
    /// Silence of those whose certificates are of a CA that counts no more.
    CertificateRejected,
    /// A release that is not adopted, by what fails: paths and digests differ by the node.
    Unadopted(UnadoptedCause),
    /// Two hosts hold the node's key.
    CopiedKey,
    /// Agents of this version, which fleet.yaml does not take any more.
    AgentTooOld(ReleaseVersion),
    /// Agents of this version, which is newer than the control plane's.
    AgentNewer(ReleaseVersion),
    /// Traits that are too large to be taken.
    TraitsTooLarge,
    /// Certificates whose renewal is late or fails.
    RenewalLate,
    /// A rollout's release that nodes went back from; why differs by the node.
    WentBack(RolloutId),
    /// A rollout that nodes were taken out of.
    TakenOut(RolloutId),
    /// Tags that a run was requested for in vain.
    UnknownTags(Vec<String>),
    /// Newer trust documents that are not followed, by the code of why.
    RefusedTrust(String),
    /// What is said of it.
    Words(Overall, String),
}

/// A node's share in the totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedNode {
    /// How it is.
    pub(crate) state: Overall,
    /// How its synchronization stands.
    pub(crate) sync: SyncState,
    /// The version of the trust document that it holds; 0 where that was not heard.
    pub(crate) trust: u64,
    /// Why it is not green, each cause once, and since when.
    pub(crate) causes: Box<[(Arc<CauseKey>, Option<Timestamp>)]>,
    /// From when it may be another one though nothing was heard.
    pub(crate) until: Option<Timestamp>,
}

/// Nodes that share a cause.
#[derive(Default)]
struct CauseTotal {
    nodes: BTreeSet<Hostname>,
    states: BTreeMap<Overall, usize>,
    since: BTreeMap<Timestamp, usize>,
}

/// A cause with the first of its nodes.
pub(crate) struct TopCause {
    pub(crate) key: Arc<CauseKey>,
    /// How many nodes.
    pub(crate) count: usize,
    /// How many of them are in each state; that which matters most is the first.
    pub(crate) states: BTreeMap<Overall, usize>,
    /// Since when, of the first of them.
    pub(crate) since: Option<Timestamp>,
    /// The first few, in the order of hostnames.
    pub(crate) nodes: Vec<Hostname>,
}

/// The fleet in numbers.
#[derive(Default)]
pub(crate) struct FleetTotals {
    states: BTreeMap<Overall, usize>,
    sync: BTreeMap<SyncState, usize>,
    trust: BTreeMap<u64, usize>,
    causes: BTreeMap<Arc<CauseKey>, CauseTotal>,
    ranked: BTreeSet<(Reverse<usize>, Arc<CauseKey>)>,
    due: BTreeSet<(Timestamp, NodeId)>,
}

impl FleetTotals {
    /// How many nodes of each state; what no node is in is left out.
    pub(crate) fn states(&self) -> &BTreeMap<Overall, usize> {
        &self.states
    }

    /// How many nodes of each state of synchronization.
    pub(crate) fn sync(&self) -> &BTreeMap<SyncState, usize> {
        &self.sync
    }

    /// How many nodes hold each version of the trust document; 0 are those that were not heard of.
    pub(crate) fn trust(&self) -> &BTreeMap<u64, usize> {
        &self.trust
    }

    /// The nodes that hold a trust document after that version, and the newest that they hold.
    pub(crate) fn trust_after(&self, version: u64) -> Option<(u64, usize)> {
        let newest = self.trust.last_key_value().filter(|(held, _)| **held > version)?;
        let nodes = self.trust.iter().filter(|(held, _)| **held > version).map(|(_, nodes)| nodes);
        Some((*newest.0, nodes.sum()))
    }

    /// The causes that most nodes share, with so many hostnames of each.
    pub(crate) fn top_causes(&self, most: usize, named: usize) -> Vec<TopCause> {
        let of = |(Reverse(count), key): &(Reverse<usize>, Arc<CauseKey>)| {
            let total = self.causes.get(key)?;
            Some(TopCause {
                key: key.clone(),
                count: *count,
                states: total.states.clone(),
                since: total.since.keys().next().copied(),
                nodes: total.nodes.iter().take(named).cloned().collect(),
            })
        };
        self.ranked.iter().take(most).filter_map(of).collect()
    }

    /// The one copy of a cause: nodes that share it share its text.
    pub(crate) fn interned(&self, key: CauseKey) -> Arc<CauseKey> {
        self.causes.get_key_value(&key).map_or_else(|| Arc::new(key), |(known, _)| known.clone())
    }

    /// A node whose share may be another one by now; each only once until it is counted again.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<NodeId> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.pop_first().map(|(_, id)| id)
    }

    /// Whether the share of a node may be another one by now.
    pub(crate) fn has_due(&self, now: Timestamp) -> bool {
        self.due.first().is_some_and(|(at, _)| *at <= now)
    }

    /// A node has this share instead of that one; `None` where it has none.
    pub(crate) fn replace(
        &mut self,
        id: &NodeId,
        name: &Hostname,
        before: Option<&CountedNode>,
        now: Option<&CountedNode>,
    ) {
        if let Some(at) = before.and_then(|node| node.until) {
            self.due.remove(&(at, id.clone()));
        }
        if let Some(at) = now.and_then(|node| node.until) {
            self.due.insert((at, id.clone()));
        }
        if let Some(node) = before {
            take(&mut self.states, &node.state);
            take(&mut self.sync, &node.sync);
            take(&mut self.trust, &node.trust);
        }
        if let Some(node) = now {
            *self.states.entry(node.state).or_default() += 1;
            *self.sync.entry(node.sync).or_default() += 1;
            *self.trust.entry(node.trust).or_default() += 1;
        }
        let same_causes = match (before, now) {
            (Some(before), Some(now)) => before.state == now.state && before.causes == now.causes,
            _ => false,
        };
        if !same_causes {
            before.into_iter().for_each(|node| self.leave_causes(name, node));
            now.into_iter().for_each(|node| self.join_causes(name, node));
        }
    }

    fn join_causes(&mut self, name: &Hostname, node: &CountedNode) {
        for (key, since) in &node.causes {
            let total = self.causes.entry(key.clone()).or_default();
            let count = total.nodes.len();
            total.nodes.insert(name.clone());
            *total.states.entry(node.state).or_default() += 1;
            if let Some(since) = since {
                *total.since.entry(*since).or_default() += 1;
            }
            self.ranked.remove(&(Reverse(count), key.clone()));
            self.ranked.insert((Reverse(total.nodes.len()), key.clone()));
        }
    }

    fn leave_causes(&mut self, name: &Hostname, node: &CountedNode) {
        for (key, since) in &node.causes {
            let Some(total) = self.causes.get_mut(key) else { continue };
            self.ranked.remove(&(Reverse(total.nodes.len()), key.clone()));
            total.nodes.remove(name);
            take(&mut total.states, &node.state);
            since.iter().for_each(|since| take(&mut total.since, since));
            match total.nodes.len() {
                0 => drop(self.causes.remove(key)),
                count => drop(self.ranked.insert((Reverse(count), key.clone()))),
            }
        }
    }
}

/// One less of it.
fn take<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn node(state: Overall, causes: &[(&str, i64)], until: Option<i64>) -> CountedNode {
        let of = |(text, since): &(&str, i64)| {
            (Arc::new(CauseKey::Words(state, (*text).to_owned())), Some(Timestamp(*since)))
        };
        let causes = causes.iter().map(of).collect();
        CountedNode { state, sync: SyncState::Off, trust: 1, causes, until: until.map(Timestamp) }
    }

    fn named(number: usize) -> (NodeId, Hostname) {
        let key = trust::SigningKey::from_seed(&[number as u8; 32]).public();
        (key.node_id(), format!("web-{number}").parse().unwrap())
    }

    #[test]
    fn a_cause_is_as_its_nodes_are() {
        let mut totals = FleetTotals::default();
        let all: Vec<_> = (1..4).map(named).collect();
        let bad = node(Overall::Failed, &[("disk", 7), ("net", 9)], None);
        let worse = CountedNode {
            state: Overall::Offline,
            causes: node(Overall::Failed, &[("disk", 5)], None).causes,
            ..bad.clone()
        };
        let good = node(Overall::Converged, &[], None);
        totals.replace(&all[0].0, &all[0].1, None, Some(&bad));
        totals.replace(&all[1].0, &all[1].1, None, Some(&worse));
        totals.replace(&all[2].0, &all[2].1, None, Some(&good));
        assert_eq!(
            totals.states(),
            &BTreeMap::from([(Overall::Failed, 1), (Overall::Offline, 1), (Overall::Converged, 1)])
        );
        let seen = |totals: &FleetTotals| {
            let lines = totals.top_causes(5, 1);
            lines.iter().map(|top| (top.count, top.since.unwrap().0, top.nodes.clone())).collect::<Vec<_>>()
        };
        assert_eq!(
            totals.top_causes(1, 1)[0].states,
            BTreeMap::from([(Overall::Failed, 1), (Overall::Offline, 1)])
        );
        assert_eq!(
            seen(&totals),
            [(2, 5, vec![all[0].1.clone()]), (1, 9, vec![all[0].1.clone()])],
            "the most frequent first, since the first of them"
        );
        totals.replace(&all[1].0, &all[1].1, Some(&worse), Some(&good));
        assert_eq!(seen(&totals)[0].1, 7);
        totals.replace(&all[0].0, &all[0].1, Some(&bad), None);
        assert_eq!((seen(&totals), totals.states()[&Overall::Converged]), (vec![], 2));
        assert!(totals.causes.is_empty() && totals.ranked.is_empty());
    }

    #[test]
    fn a_node_is_due_when_its_time_came_and_once() {
        let mut totals = FleetTotals::default();
        let (id, name) = named(1);
        let (first, second) =
            (node(Overall::Converged, &[], Some(10)), node(Overall::Converged, &[], Some(20)));
        totals.replace(&id, &name, None, Some(&first));
        assert!(!totals.has_due(Timestamp(9)) && totals.has_due(Timestamp(10)));
        assert_eq!(totals.take_due(Timestamp(10)), Some(id.clone()));
        assert_eq!(totals.take_due(Timestamp(99)), None);
        totals.replace(&id, &name, Some(&first), Some(&second));
        assert_eq!(totals.take_due(Timestamp(19)), None);
        totals.replace(&id, &name, Some(&second), None);
        assert!(!totals.has_due(Timestamp(99)));
    }
}
