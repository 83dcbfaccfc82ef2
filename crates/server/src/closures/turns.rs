//! [`ClosureTurns`]: how many requests for closures are worked on at once, and of whom (ROL-9): archives that are sent, and
//! closures that are looked through for who may have a part.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that are worked on at once; more wait.
const AT_ONCE: usize = 16;
/// Of them by one node, those that wait included: an agent asks for one piece after the other, and may not have heard
/// that the one before is over.
const OF_NODE: usize = 2;
/// How long a request waits for its turn before it is refused as busy.
const WAIT_WITHIN: Duration = Duration::from_secs(30);

/// Whose requests are worked on.
#[derive(Debug)]
pub(crate) struct ClosureTurns {
    slots: Arc<Semaphore>,
    of_nodes: Arc<Mutex<BTreeMap<NodeId, usize>>>,
}

/// A request may be worked on for as long as this is held.
#[derive(Debug)]
pub(crate) struct ClosureTurn {
    _share: NodeShare,
    _slot: OwnedSemaphorePermit,
}

/// One of the requests that a node may have.
#[derive(Debug)]
struct NodeShare {
    node: NodeId,
    of_nodes: Arc<Mutex<BTreeMap<NodeId, usize>>>,
}

fn locked(of_nodes: &Mutex<BTreeMap<NodeId, usize>>) -> MutexGuard<'_, BTreeMap<NodeId, usize>> {
    of_nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for ClosureTurns {
    fn default() -> ClosureTurns {
        ClosureTurns { slots: Arc::new(Semaphore::new(AT_ONCE)), of_nodes: Arc::default() }
    }
}

impl ClosureTurns {
    /// Waits until a request of a node may be worked on; `None` where it has its share, and where none becomes free in time.
    pub(crate) async fn take(&self, node: &NodeId) -> Option<ClosureTurn> {
        let share = self.share(node)?;
        let slot = tokio::time::timeout(WAIT_WITHIN, self.slots.clone().acquire_owned()).await;
        Some(ClosureTurn { _share: share, _slot: slot.ok()?.ok()? })
    }

    fn share(&self, node: &NodeId) -> Option<NodeShare> {
        let mut of_nodes = locked(&self.of_nodes);
        let held = of_nodes.entry(node.clone()).or_default();
        if *held >= OF_NODE {
            return None;
        }
        *held += 1;
        Some(NodeShare { node: node.clone(), of_nodes: self.of_nodes.clone() })
    }
}

impl Drop for NodeShare {
    fn drop(&mut self) {
        let mut of_nodes = locked(&self.of_nodes);
        if let Some(held) = of_nodes.get_mut(&self.node) {
            *held -= 1;
            if *held == 0 {
                of_nodes.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn node(number: usize) -> NodeId {
        format!("n-{number:032x}").parse().unwrap()
    }

    /// ROL-9: one node that asks for much leaves all but two turns to others, and has none once the others wait.
    #[tokio::test(start_paused = true)]
    async fn a_node_holds_two_turns_at_most() {
        let turns = ClosureTurns::default();
        let mut held: Vec<ClosureTurn> = Vec::new();
        for _ in 0..OF_NODE {
            held.push(turns.take(&node(0)).await.unwrap());
        }
        assert!(turns.take(&node(0)).await.is_none(), "it has its share, whatever is free");
        for number in 1..=AT_ONCE - OF_NODE {
            held.push(turns.take(&node(number)).await.unwrap());
        }
        // All are taken: the next one waits, and for so long only.
        assert!(turns.take(&node(99)).await.is_none());
        assert!(!locked(&turns.of_nodes).contains_key(&node(99)), "who gave up holds no share");
        held.remove(0);
        held.push(turns.take(&node(99)).await.unwrap());
        held.clear();
        assert!(locked(&turns.of_nodes).is_empty());
        assert_eq!(turns.slots.available_permits(), AT_ONCE);
    }
}
