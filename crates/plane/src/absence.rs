//! How long the control plane itself did not hear: that is no silence of its nodes (LIF-1).
//!
//! ```text
//! last heard of the node    last heard of any node    started      now
//!          |-------- silence --------|----- absence -----|-- silence --|
//! ```

use std::time::Duration;

use model::Timestamp;

use crate::node::NodeState;

/// For how long nobody was heard before this start: since the newest [word](NodeState::heard_at) of all nodes that is
/// kept, which is taken for the moment at which the control plane stopped hearing. Zero for a fleet without nodes.
///
/// Only the last absence is known: a node that does not call between two starts, while others do, is taken for silent
/// during the first.
pub fn absence_before(started: Timestamp, newest: Option<Timestamp>) -> Duration {
    newest.map_or(Duration::ZERO, |stopped| started.since(stopped))
}

impl NodeState {
    /// The control plane was absent for so long after the node was heard of last. Counts until it calls again; kept in
    /// whole seconds, rounded up.
    pub fn control_plane_was_absent(&mut self, absence: Duration) {
        let secs = absence.as_secs().saturating_add(u64::from(absence.subsec_nanos() > 0));
        self.absent_secs = u32::try_from(secs).unwrap_or(u32::MAX);
    }

    /// For how long the control plane was absent since the node was heard of last.
    pub(crate) fn absence(&self) -> Duration {
        Duration::from_secs(self.absent_secs.into())
    }

    /// When the node was heard of last: its last contact, or of one that never called, that it enrolled.
    pub fn heard_at(&self) -> Timestamp {
        self.last_seen.unwrap_or(self.enrolled_at)
    }

    /// Since when the node has been silent, as its contact is judged: since it was [heard of](Self::heard_at) last,
    /// without the time in which the control plane itself was absent.
    pub fn silent_since(&self) -> Timestamp {
        self.heard_at().plus(self.absence())
    }
}
