//! Permits by node, so that one node cannot take all there are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::NodeId;

/// How many permits each node holds, so that one cannot take all there are: of connections here,
/// of requests where many nodes share a connection.
#[derive(Default)]
pub struct Peers(Mutex<HashMap<NodeId, usize>>);

impl Peers {
    /// A permit for a node, until it is dropped; `None` when the node has as many
    /// as it may. Who is no node is not counted.
    pub fn enter(self: Arc<Peers>, node: Option<&NodeId>, limit: usize) -> Option<PeerPermit> {
        let Some(node) = node.cloned() else { return Some(PeerPermit { peers: self, node: None }) };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(node.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(PeerPermit { peers: self, node: Some(node) })
    }
}

/// A permit that a node holds.
pub struct PeerPermit {
    peers: Arc<Peers>,
    node: Option<NodeId>,
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let Some(node) = &self.node else { return };
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                counts.remove(node);
            }
        }
    }
}
