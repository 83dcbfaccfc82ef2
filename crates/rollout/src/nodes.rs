//! [`NodeTable`]: the nodes of all rollouts, each under a small number, with what is heard of them.

use std::collections::BTreeMap;

use model::NodeId;
use model::status::Contact;

use crate::budget::BudgetIndex;
use crate::id::RolloutKey;
use crate::step::NextCall;

/// A node's number in memory; never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeIndex(u32);

/// What is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct KnownNode {
    pub(crate) id: NodeId,
    pub(crate) reach: NodeReach,
    /// The rollouts that it is in.
    pub(crate) rollouts: Vec<RolloutKey>,
    /// The budgets of which it holds a slot.
    pub(crate) holds: Vec<BudgetIndex>,
}

/// How a node is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeReach {
    /// `None` until something was heard since the start.
    pub(crate) contact: Option<Contact>,
    pub(crate) next_call: NextCall,
}

impl NodeReach {
    /// It hears a request well before that lapses.
    pub(crate) fn may_be_asked(self) -> bool {
        self.contact == Some(Contact::Online) && self.next_call == NextCall::Soon
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTable {
    by_id: BTreeMap<NodeId, NodeIndex>,
    nodes: Vec<KnownNode>,
    free: Vec<NodeIndex>,
}

impl NodeTable {
    pub(crate) fn find(&self, id: &NodeId) -> Option<NodeIndex> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn get(&self, node: NodeIndex) -> Option<&KnownNode> {
        self.nodes.get(node.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, node: NodeIndex) -> Option<&mut KnownNode> {
        self.nodes.get_mut(node.0 as usize)
    }

    /// The node's number; a new one where it has none.
    pub(crate) fn insert(&mut self, id: &NodeId) -> NodeIndex {
        if let Some(known) = self.find(id) {
            return known;
        }
        let node = KnownNode {
            id: id.clone(),
            reach: NodeReach::default(),
            rollouts: Vec::new(),
            holds: Vec::new(),
        };
        let index = match self.free.pop() {
            Some(index) => {
                if let Some(slot) = self.get_mut(index) {
                    *slot = node;
                }
                index
            }
            None => {
                self.nodes.push(node);
                // More nodes than this number holds do not fit into memory.
                NodeIndex(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_id.insert(id.clone(), index);
        index
    }

    /// Forgets a node that is in no rollout.
    pub(crate) fn forget(&mut self, node: NodeIndex) {
        if let Some(known) = self.get(node).filter(|known| known.rollouts.is_empty()) {
            let id = known.id.clone();
            if self.by_id.remove(&id).is_some() {
                self.free.push(node);
            }
        }
    }
}
