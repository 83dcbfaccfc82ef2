//! What a link goes by, the same at both ends: the release's [`SyncPolicy`] (SYN-5), and what a
//! channel or a control plane sets of its [`Limits`] (SYN-3).

use std::sync::Arc;
use std::time::Duration;

use model::Kind;
use model::replication::{LinkSettings, SyncPolicy};

use super::{Limits, LinkConfig};
use crate::mode::Role;

impl LinkConfig {
    /// One end of a link under a release; of one that synchronizes no objects the link carries actions
    /// alone.
    pub fn under(policy: &SyncPolicy, role: Role, instance: &str, limits: Arc<Limits>) -> LinkConfig {
        let kinds = policy.kinds.iter().map(|kind| Kind::new(kind)).collect();
        let config = LinkConfig::new(role, policy.mode, instance, kinds);
        LinkConfig { max_delete_percent: policy.max_delete_percent, limits, ..config }
    }
}

impl Limits {
    /// These limits where all that a side sends is to fit into one body of about so many bytes, with
    /// at most so many frames.
    pub fn of_exchange(self, frames: usize, bytes: usize) -> Limits {
        Limits {
            window_events: self.window_events.min(frames),
            window_bytes: self.window_bytes.min(bytes as u64),
            batch_bytes: self.batch_bytes.min(bytes as u64),
            // Tries are counted in the link: what is to be fetched anew waits for the next comparison.
            refetches: 0,
            ..self
        }
    }

    /// These limits with the settings in place of what they name; a setting that is out of its
    /// bounds is brought within them.
    pub fn with(self, settings: LinkSettings) -> Limits {
        let LinkSettings { window, pending_retries, keepalive_secs, timeout_secs } = settings.bounded();
        Limits {
            window_events: window as usize,
            pending_retries: pending_retries as usize,
            ping_every: Duration::from_secs(keepalive_secs.into()),
            dead_after: Duration::from_secs(timeout_secs.into()),
            ..self
        }
    }
}
